//! What a HEAD finds, row by row.

use super::*;

const NOW: &str = "Sat, 21 Nov 2026 12:00:10 GMT";
const BEFORE: &str = "Sat, 21 Nov 2026 12:00:03 GMT";
const SINCE: &str = "Sat, 21 Nov 2026 12:00:06 GMT";
const ELAPSED: Duration = Duration::from_secs(5);

fn head(rows: &[(&'static str, &str)]) -> HeaderMap {
    let row = |(name, value): &(&'static str, &str)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        )
    };
    rows.iter().map(row).collect()
}

#[test]
fn what_is_there_tells_whether_a_write_has_happened() {
    use ReadBack::{Happened, NotHappened, Unknown};
    let object = || Left::Object(vec![(header::ETAG, "\"a\"".to_owned())]);
    let at = |etag, modified| head(&[("etag", etag), ("last-modified", modified), ("date", NOW)]);
    let rows = [
        (object(), 200, at("\"a\"", SINCE), Happened),
        // The same content from before: ours is not there yet, or left no trace.
        (object(), 200, at("\"a\"", BEFORE), NotHappened),
        (object(), 200, at("\"b\"", BEFORE), NotHappened),
        // Ours and another's after it, or another's alone.
        (object(), 200, at("\"b\"", SINCE), Unknown),
        (object(), 404, head(&[]), NotHappened),
        (object(), 403, head(&[]), Unknown),
        (object(), 200, head(&[("etag", "\"a\"")]), Unknown),
        (Left::Object(Vec::new()), 200, at("\"a\"", SINCE), Unknown),
        (Left::Nothing, 404, head(&[]), Happened),
        (Left::Nothing, 200, at("\"a\"", BEFORE), NotHappened),
        (Left::Nothing, 200, at("\"a\"", SINCE), Unknown),
        (Left::Nothing, 403, head(&[]), Unknown),
    ];
    for (left, status, headers, expected) in rows {
        let status = StatusCode::from_u16(status).unwrap();
        let judged = judge(&left, status, &headers, ELAPSED);
        assert_eq!(judged, expected, "{left:?} {status} {headers:?}");
    }
}

#[test]
fn the_tag_of_a_multipart_object_is_computed_from_the_list_of_its_parts() {
    let (one, two) = (hex(&md5_of(&["one".into()])), hex(&md5_of(&["two".into()])));
    let both = [md5_of(&["one".into()]), md5_of(&["two".into()])].concat();
    let expected = format!("{}-2", hex(&md5_of(&[both.into()])));
    for quote in ["", "\"", "&quot;", "&#34;"] {
        let part = |tag: &str| format!("<Part><ETag>{quote}{tag}{quote}</ETag></Part>");
        let document = format!("<C>{}{}</C>", part(&one), part(&two));
        // Wherever it was cut into pieces.
        let pieces = [
            document[..40].to_owned().into(),
            document[40..].to_owned().into(),
        ];
        assert_eq!(multipart_etag(&pieces), Some(expected.clone()), "{quote}");
    }
    let other: Bytes = format!("<ETag>{one}</ETag><ETag>{two}-7</ETag>").into();
    assert_eq!(multipart_etag(&[other]), None);
    assert_eq!(multipart_etag(&["<C/>".into()]), None);
}

#[test]
fn content_md5_is_the_tag_to_be_expected() {
    let mut headers = head(&[("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==")]);
    let md5 = content_md5(&headers).unwrap();
    assert_eq!(hex(&md5), "25f9e794323b453885f5181f1b624d0b");
    headers.insert(CONTENT_MD5, HeaderValue::from_static("short"));
    assert_eq!(content_md5(&headers), None);
}
