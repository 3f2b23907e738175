//! Entity tags and lists of them: a line with the text, a line with another tag to compare with.

use forebay_s3::etag::{ETAGS_IN_LIST_MAX, ETag, ETagList, Strength};

use crate::input::Input;

/// Printed tags and lists read the same; comparison is that of RFC 9110 §8.8.3.2.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let text = input.text_line();
    let other = ETag::parse(input.text_line()).ok();
    if let Ok(tag) = ETag::parse(text) {
        assert!(!tag.value().contains(['"', ' ', '\n', '\0', '\u{7f}']));
        assert_eq!(ETag::parse(&tag.to_string()).as_ref(), Ok(&tag));
        assert!(tag.matches_weakly(&tag));
        assert_eq!(
            tag.matches_strongly(&tag),
            tag.strength() == Strength::Strong
        );
        if let Some(other) = &other {
            check_compared(&tag, other);
        }
    }
    if let Ok(ETagList::Tags(tags)) = ETagList::parse(text) {
        assert!((1..=ETAGS_IN_LIST_MAX).contains(&tags.len()));
        let printed: Vec<_> = tags.iter().map(ETag::to_string).collect();
        let list = ETagList::Tags(tags);
        assert_eq!(ETagList::parse(&printed.join(",")).as_ref(), Ok(&list));
    }
}

fn check_compared(one: &ETag, other: &ETag) {
    let is_equal = one.value() == other.value();
    let are_strong = [one, other]
        .iter()
        .all(|tag| tag.strength() == Strength::Strong);
    assert_eq!(one.matches_weakly(other), is_equal);
    assert_eq!(one.matches_strongly(other), is_equal && are_strong);
    assert_eq!(other.matches_strongly(one), one.matches_strongly(other));
}
