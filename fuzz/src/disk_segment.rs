//! Segments of pages on disk: `forebay_disk::promises` has the format of the input.

/// See `forebay_disk::promises::check_segment`.
pub fn check(data: &[u8]) {
    forebay_disk::promises::check_segment(data);
}
