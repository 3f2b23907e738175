//! Values of an index's entries: bytes as docs/formats.md has them, read as each kind of entry.

/// See `forebay_native::indexed::check_entry`.
pub fn check(data: &[u8]) {
    forebay_native::indexed::check_entry(data);
}
