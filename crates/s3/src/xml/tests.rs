//! The documents read and written, hostile ones included.

use proptest::prelude::*;

use super::*;

#[test]
fn an_error_document_is_what_s3_sends() {
    let document = ErrorDocument {
        code: Code::NoSuchKey,
        message: Code::NoSuchKey.message(),
        resource: "/bucket/a&b",
        request_id: "4442587FB7D0A2F9",
        host_id: "host",
        details: &[("Key", "<a>\"'\r\0")],
    };
    assert_eq!(
        document.to_xml(),
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchKey</Code>\
         <Message>The specified key does not exist.</Message>\
         <Key>&lt;a&gt;&quot;&apos;&#xD;\u{fffd}</Key><Resource>/bucket/a&amp;b</Resource>\
         <RequestId>4442587FB7D0A2F9</RequestId><HostId>host</HostId></Error>"
    );
}

#[test]
fn keys_to_delete_are_read_as_they_are_meant() {
    let body = "<?xml version='1.0'?>\n\
        <Delete xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>\n\
        <Object><Key>a&amp;b&#x20;</Key></Object>\
        <Object><Key><![CDATA[<c>]]>d</Key><VersionId>v1</VersionId><ETag>e</ETag></Object>\
        <Object><Key> spaced </Key><VersionId/></Object><Quiet>true</Quiet></Delete>";
    let entries = delete_keys(body.as_bytes()).unwrap();
    let read: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                entry.key.as_str(),
                entry.version.as_ref().map(VersionId::as_str),
            )
        })
        .collect();
    assert_eq!(
        read,
        [("a&b ", None), ("<c>d", Some("v1")), (" spaced ", None)]
    );
}

#[test]
fn what_an_origin_might_read_otherwise_is_refused() {
    let many = |n: usize| {
        format!(
            "<Delete>{}</Delete>",
            "<Object><Key>k</Key></Object>".repeat(n)
        )
    };
    assert_eq!(delete_keys(many(1000).as_bytes()).unwrap().len(), 1000);
    let deep = "<a>".repeat(1000);
    let entity = "<!DOCTYPE d [<!ENTITY x 'k'>]><Delete><Object><Key>&x;</Key></Object></Delete>";
    for body in [
        "",
        "Delete",
        "<Delete/>",
        "<Delete><Object/></Delete>",
        "<Delete><Object><Key/></Object></Delete>",
        "<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>",
        "<Delete><Object><Key>a<b/></Key></Object></Delete>",
        "<Delete><Object><Key>a</Key><Other>b</Other></Object></Delete>",
        "<Delete><object><Key>a</Key></object></Delete>",
        "<Delete><Object><Key>a</Key></Object></Delete><Delete/>",
        "<Delete><Object><Key>a</Key></Object>",
        "<Delete><Object><Key>a</Object></Key></Delete>",
        "<Delete><Object><Key>&nbsp;</Key></Object></Delete>",
        "<Delete><Object><Key>&#0;</Key></Object></Delete>",
        "<Remove><Object><Key>a</Key></Object></Remove>",
        &many(1001),
        &deep,
        entity,
    ] {
        let error = delete_keys(body.as_bytes()).unwrap_err();
        assert_eq!(error.code(), Code::MalformedXML, "{body:.80}");
    }
    let long = format!(
        "<Delete><Object><Key>{}</Key></Object></Delete>",
        "k".repeat(1025)
    );
    assert_eq!(delete_keys(long.as_bytes()), Err(XmlError::KeyTooLong));
    let huge = " ".repeat(DOCUMENT_BYTES_MAX + 1);
    assert_eq!(delete_keys(huge.as_bytes()), Err(XmlError::TooLong));
    assert!(delete_keys(b"<Delete><Object><Key>\xff</Key></Object></Delete>").is_err());
}

#[test]
fn tags_are_read_and_their_rules_kept() {
    let document = |tags: &str| format!("<Tagging><TagSet>{tags}</TagSet></Tagging>");
    let tag = |key: &str, value: &str| format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>");
    let read = tags(
        document(&(tag("a", "1") + &tag("b", ""))).as_bytes(),
        OBJECT_TAGS_MAX,
    );
    let pairs: Vec<_> = read
        .unwrap()
        .into_iter()
        .map(|tag| (tag.key, tag.value))
        .collect();
    assert_eq!(
        pairs,
        [("a".into(), "1".into()), ("b".into(), String::new())]
    );
    assert_eq!(
        tags(document("").as_bytes(), OBJECT_TAGS_MAX),
        Ok(Vec::new())
    );

    let eleven: String = (0..11).map(|i| tag(&i.to_string(), "")).collect();
    for (body, code) in [
        (
            document(&(tag("a", "1") + &tag("a", "2"))),
            Code::InvalidTag,
        ),
        (document(&tag("", "1")), Code::InvalidTag),
        (document(&tag(&"k".repeat(129), "1")), Code::InvalidTag),
        (document(&tag("k", &"é".repeat(257))), Code::InvalidTag),
        (document(&eleven), Code::InvalidTag),
        (document("<Tag><Key>a</Key></Tag>"), Code::MalformedXML),
        (
            document("<Other><Key>a</Key><Value/></Other>"),
            Code::MalformedXML,
        ),
        ("<Tagging/>".to_owned(), Code::MalformedXML),
        ("<TagSet/>".to_owned(), Code::MalformedXML),
    ] {
        let error = tags(body.as_bytes(), OBJECT_TAGS_MAX).unwrap_err();
        assert_eq!(error.code(), code, "{body:.80}");
    }
}

#[test]
fn an_error_within_a_200_is_found_behind_white_space() {
    let body = b" \n \n<?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code>\
        <Message>We &lt;failed&gt;</Message><RequestId>1</RequestId></Error>";
    let error = error_in(body).unwrap();
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("InternalError", "We <failed>")
    );
    for body in [
        &b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"[..],
        b"<Error><Message>no code</Message></Error>",
        b"   ",
        b"<Error><Code>Cut",
    ] {
        assert_eq!(error_in(body), None);
    }
    for (depth, read) in [(6, true), (7, false), (100_000, false)] {
        let (open, close) = ("<a>".repeat(depth), "</a>".repeat(depth));
        let body = format!("<Error><Code>C</Code><b>{open}{close}</b></Error>");
        assert_eq!(error_in(body.as_bytes()).is_some(), read, "{depth}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (delete_keys(&body), tags(&body, OBJECT_TAGS_MAX), error_in(&body));
    }

    #[test]
    fn what_is_written_is_read_back(key in "[^\u{0}-\u{8}\u{b}\u{c}\u{e}-\u{1f}\u{fffe}\u{ffff}]{1,40}") {
        let mut escaped = String::new();
        push_escaped(&mut escaped, &key);
        let body = format!("<Delete><Object><Key>{escaped}</Key></Object></Delete>");
        let entries = delete_keys(body.as_bytes()).unwrap();
        prop_assert_eq!(entries[0].key.as_str(), key);
    }
}

#[test]
fn the_id_of_a_new_upload_is_read() {
    let document = |id: &str| {
        format!(
            "<?xml version='1.0'?><InitiateMultipartUploadResult xmlns='x'><Bucket>b</Bucket>\
             <Key>k</Key>{id}</InitiateMultipartUploadResult>"
        )
    };
    let id = upload_id(document("<UploadId>a&amp;b</UploadId>").as_bytes());
    assert_eq!(id.as_deref(), Ok("a&b"));
    for bad in [document(""), document("<UploadId/>"), "<Error/>".to_owned()] {
        assert!(upload_id(bad.as_bytes()).is_err(), "{bad}");
    }
}
