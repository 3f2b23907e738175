//! `Range` and `Content-Range`: a line with the header, a line with the object's size.

use forebay_s3::range::{ByteRange, RangeHeader};

use crate::input::Input;

/// Printed ranges read the same, and a range resolves to the bytes that simple arithmetic gives.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let text = input.text_line();
    let size_bytes: u64 = input.text_line().parse().unwrap_or(1000);
    if let Some(header) = RangeHeader::parse(text) {
        assert_eq!(RangeHeader::parse(&header.to_string()), Some(header));
        check_resolved(header, size_bytes);
    }
    if let Some((range, total_bytes)) = ByteRange::parse_content_range(text) {
        assert!(range.start() < range.end() && range.end() <= total_bytes);
        let printed = range.content_range(total_bytes);
        assert_eq!(
            ByteRange::parse_content_range(&printed),
            Some((range, total_bytes))
        );
    }
}

fn check_resolved(header: RangeHeader, size_bytes: u64) {
    let size = i128::from(size_bytes);
    let (first, last) = match header {
        RangeHeader::FromTo { first, last } => (i128::from(first), i128::from(last)),
        RangeHeader::From { first } => (i128::from(first), size - 1),
        RangeHeader::Suffix { count } => (size - i128::from(count), size - 1),
    };
    let (first, last) = (first.max(0), last.min(size - 1));
    match header.resolve(size_bytes) {
        Ok(range) => {
            assert_eq!(
                (i128::from(range.start()), i128::from(range.end()) - 1),
                (first, last)
            );
            assert_eq!(i128::from(range.len()), last - first + 1);
            let printed = range.content_range(size_bytes);
            assert_eq!(
                ByteRange::parse_content_range(&printed),
                Some((range, size_bytes))
            );
        }
        Err(_) => assert!(first > last, "{header} has bytes of {size_bytes}"),
    }
}
