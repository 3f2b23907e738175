//! The XML documents that are read: any bytes.

use std::fmt::Write as _;

use forebay_s3::code::Code;
use forebay_s3::key::{ObjectKey, VersionId};
use forebay_s3::xml::{
    DELETE_OBJECTS_MAX, DeleteEntry, ErrorDocument, OBJECT_TAGS_MAX, OriginError, delete_keys,
    error_in, push_escaped, tags,
};

/// Printed documents read the same, and hold no more than their limits.
pub fn check(data: &[u8]) {
    check_delete(data);
    check_written(data);
    check_tags(data);
    check_error(data);
}

fn check_delete(data: &[u8]) {
    let Ok(entries) = delete_keys(data) else {
        return;
    };
    assert!((1..=DELETE_OBJECTS_MAX).contains(&entries.len()));
    let is_plain = |entry: &DeleteEntry| {
        let version = entry.version.as_ref().map(VersionId::as_str);
        is_printable(entry.key.as_str()) && version.is_none_or(is_printable)
    };
    if entries.iter().all(is_plain) {
        let xml = delete_document(&entries);
        assert_eq!(delete_keys(xml.as_bytes()), Ok(entries), "{xml}");
    }
}

/// A document of keys and versions that the input's lines name reads as just those.
fn check_written(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lines: Vec<_> = text.split('\n').filter(|line| is_printable(line)).collect();
    let entry = |pair: &[&str]| {
        let version = pair.get(1).and_then(|id| VersionId::parse(id).ok());
        Some(DeleteEntry {
            key: ObjectKey::parse(pair[0]).ok()?,
            version,
        })
    };
    let entries: Vec<_> = lines
        .chunks(2)
        .filter_map(entry)
        .take(DELETE_OBJECTS_MAX)
        .collect();
    if !entries.is_empty() {
        assert_eq!(
            delete_keys(delete_document(&entries).as_bytes()),
            Ok(entries)
        );
    }
}

fn delete_document(entries: &[DeleteEntry]) -> String {
    let mut xml = String::from("<Delete>");
    for entry in entries {
        xml.push_str("<Object>");
        push_element(&mut xml, "Key", entry.key.as_str());
        if let Some(version) = &entry.version {
            push_element(&mut xml, "VersionId", version.as_str());
        }
        xml.push_str("</Object>");
    }
    xml.push_str("</Delete>");
    xml
}

fn check_tags(data: &[u8]) {
    let Ok(read) = tags(data, OBJECT_TAGS_MAX) else {
        return;
    };
    assert!(read.len() <= OBJECT_TAGS_MAX);
    let mut xml = String::from("<Tagging><TagSet>");
    for tag in &read {
        if !is_printable(&tag.key) || !is_printable(&tag.value) {
            return;
        }
        xml.push_str("<Tag>");
        push_element(&mut xml, "Key", &tag.key);
        push_element(&mut xml, "Value", &tag.value);
        xml.push_str("</Tag>");
    }
    xml.push_str("</TagSet></Tagging>");
    assert_eq!(tags(xml.as_bytes(), OBJECT_TAGS_MAX), Ok(read), "{xml}");
}

fn check_error(data: &[u8]) {
    if let Some(error) = error_in(data) {
        let _ = Code::parse(&error.code);
    }
    // Whatever a message quotes of a request, the document stays one.
    let text = String::from_utf8_lossy(data);
    let xml = ErrorDocument {
        code: Code::AccessDenied,
        message: &text,
        resource: &text,
        request_id: &text,
        host_id: "host",
        details: &[("Key", &text)],
    }
    .to_xml();
    let message: String = text.chars().map(shown).collect();
    let expected = OriginError {
        code: Code::AccessDenied.as_str().to_owned(),
        message: message.trim().to_owned(),
    };
    assert_eq!(error_in(xml.as_bytes()), Some(expected));
}

fn push_element(xml: &mut String, name: &str, text: &str) {
    let _ = write!(xml, "<{name}>");
    push_escaped(xml, text);
    let _ = write!(xml, "</{name}>");
}

/// A character as a document can hold it.
fn shown(c: char) -> char {
    match c {
        '\t' | '\n' | '\r' => c,
        '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        c => c,
    }
}

/// Whether XML 1.0 has a way to write the text.
fn is_printable(text: &str) -> bool {
    text.chars().all(|c| shown(c) == c)
}
