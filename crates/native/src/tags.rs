//! Tags of objects: in a header, in a document, and their rules.
//!
//! Source: Amazon S3 User Guide, "Categorizing your objects using tags".

use std::collections::HashSet;

use bytes::Bytes;
use forebay_s3::{code::Code, uri};
use forebay_store::Error;

use crate::xml::{self, Document};

const TAGS_MAX: usize = 10;
const NAME_CHARS_MAX: usize = 128;
const VALUE_CHARS_MAX: usize = 256;

/// Tags in order.
pub(crate) type Tags = Vec<(String, String)>;

/// Reads the value of `x-amz-tagging`, which is coded like a query.
///
/// # Errors
/// `InvalidTag`, `BadRequest`-like refusals of S3 for too many.
pub(crate) fn from_header(value: &str) -> Result<Tags, Error> {
    checked(
        uri::query_pairs(value)
            .map(|(n, v)| (n.into_owned(), v.into_owned()))
            .collect(),
    )
}

/// Reads the document of `PutObjectTagging`.
///
/// # Errors
/// `MalformedXML`, `InvalidTag`.
pub(crate) fn from_document(body: &[u8]) -> Result<Tags, Error> {
    let root = xml::read(body, "Tagging")?;
    let set = root.child("TagSet").ok_or_else(xml::malformed)?;
    let tag = |tag: &xml::Element| {
        Some((
            tag.text_of("Key")?.to_owned(),
            tag.text_of("Value")?.to_owned(),
        ))
    };
    let tags: Option<Tags> = set.all("Tag").map(tag).collect();
    checked(tags.ok_or_else(xml::malformed)?)
}

/// Writes the document of `GetObjectTagging`.
pub(crate) fn to_document(tags: &[(String, String)]) -> Bytes {
    let mut document = Document::new("Tagging");
    document.open("TagSet");
    for (name, value) in tags {
        document
            .open("Tag")
            .element("Key", name)
            .element("Value", value)
            .close("Tag");
    }
    document.close("TagSet");
    document.finish()
}

fn checked(tags: Tags) -> Result<Tags, Error> {
    let invalid = |message| Err(Error::refused_because(Code::InvalidTag, message));
    if tags.len() > TAGS_MAX {
        return invalid("Object tags cannot be greater than 10");
    }
    let mut names = HashSet::new();
    for (name, value) in &tags {
        if !(1..=NAME_CHARS_MAX).contains(&name.chars().count()) {
            return invalid("The TagKey you have provided is invalid");
        }
        if value.chars().count() > VALUE_CHARS_MAX {
            return invalid("The TagValue you have provided is invalid");
        }
        if !names.insert(name) {
            return invalid("Cannot provide multiple Tags with the same key");
        }
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_from_headers_and_documents_alike() {
        let tags = from_header("a%20b=1%2B2&c=").unwrap();
        assert_eq!(
            tags,
            [("a b".into(), "1+2".into()), ("c".into(), String::new())]
        );
        assert_eq!(from_document(&to_document(&tags)).unwrap(), tags);
        assert_eq!(from_header("").unwrap(), []);
    }

    #[test]
    fn more_longer_or_repeated_tags_than_s3_takes_are_refused() {
        let eleven: Vec<String> = (0..11).map(|n| format!("k{n}=v")).collect();
        let long_name = format!("{}=v", "é".repeat(129));
        let long_value = format!("k={}", "é".repeat(257));
        for bad in [&eleven.join("&"), "a=1&a=2", "=v", &long_name, &long_value] {
            assert!(from_header(bad).is_err(), "{bad}");
        }
        assert!(from_header(&eleven[..10].join("&")).is_ok());
        assert!(from_header(&format!("{}={}", "é".repeat(128), "é".repeat(256))).is_ok());
        assert!(from_document(b"<Tagging/>").is_err());
        let no_value = b"<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>";
        assert!(from_document(no_value).is_err());
    }
}
