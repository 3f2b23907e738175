//! Version records on disk: bytes as docs/formats.md has them, of `bucket/key`.

/// See `forebay_cache::check_record`.
pub fn check(data: &[u8]) {
    forebay_cache::check_record(data);
}
