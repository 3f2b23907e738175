//! Conditional headers: a line with the object's tag, a line with its time, then headers.

use forebay_s3::condition::{Conditions, IfRange, Outcome, RangeUse};
use forebay_s3::etag::{ETag, ETagList};
use forebay_s3::time::http_date;
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::input::Input;

/// Printed conditions read the same, and those that must or cannot hold are judged so.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let etag = ETag::parse(input.text_line());
    let etag = etag.unwrap_or_else(|_| ETag::strong("a").expect("a tag"));
    let modified: i64 = input.text_line().parse().unwrap_or_default();
    let headers = input.headers();
    let conditions = Conditions::from_headers(&headers);
    assert_eq!(Conditions::from_headers(&printed(&conditions)), conditions);

    assert_eq!(Conditions::from_headers(&joined(&headers)), conditions);

    let outcome = conditions.evaluate_read(&etag, modified);
    if conditions.is_empty() {
        assert_eq!(outcome, Outcome::Proceed);
    }
    match outcome {
        Outcome::Failed("If-Match") => assert_ne!(conditions.if_match, Some(ETagList::Any)),
        Outcome::Failed(_) => assert!(conditions.if_match.is_none()),
        Outcome::NotModified | Outcome::Proceed => {}
    }
    if conditions.if_none_match == Some(ETagList::Any) {
        assert_ne!(
            outcome,
            Outcome::Proceed,
            "`If-None-Match: *` of an object that is there"
        );
    }
    if conditions.range_use(&etag, modified) == RangeUse::Ignore {
        assert!(headers.contains_key(IF_RANGE));
    }
}

/// The same headers with the lines of each list in one (RFC 9110 §5.3), where each line is a list.
fn joined(headers: &HeaderMap) -> HeaderMap {
    let mut joined = headers.clone();
    for name in [IF_MATCH, IF_NONE_MATCH] {
        let lines = headers
            .get_all(&name)
            .iter()
            .map(|line| line.to_str().unwrap_or_default());
        let lines: Vec<_> = lines.collect();
        let is_list = |line: &&str| matches!(ETagList::parse(line), Ok(ETagList::Tags(_)));
        if lines.len() > 1 && lines.iter().all(is_list) {
            let line = HeaderValue::from_str(&lines.join(", "));
            joined.insert(name, line.expect("its parts are values"));
        }
    }
    joined
}

fn printed(conditions: &Conditions) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |name: HeaderName, text: Option<String>| {
        if let Some(text) = text {
            headers.insert(
                name,
                HeaderValue::from_str(&text).expect("tags and dates are plain"),
            );
        }
    };
    put(IF_MATCH, conditions.if_match.as_ref().map(list));
    put(IF_NONE_MATCH, conditions.if_none_match.as_ref().map(list));
    let date = |seconds: i64| http_date(seconds).to_string();
    put(IF_MODIFIED_SINCE, conditions.if_modified_since.map(date));
    put(
        IF_UNMODIFIED_SINCE,
        conditions.if_unmodified_since.map(date),
    );
    let if_range = conditions
        .if_range
        .as_ref()
        .map(|condition| match condition {
            IfRange::Tag(tag) => tag.to_string(),
            IfRange::Date(seconds) => date(*seconds),
            IfRange::Never => "\"".to_owned(),
        });
    put(IF_RANGE, if_range);
    headers
}

/// A list as a header has it; one that no object matches is unreadable.
fn list(list: &ETagList) -> String {
    match list {
        ETagList::Any => "*".to_owned(),
        ETagList::Tags(tags) if tags.is_empty() => "\"".to_owned(),
        ETagList::Tags(tags) => {
            let tags: Vec<_> = tags.iter().map(ETag::to_string).collect();
            tags.join(", ")
        }
    }
}
