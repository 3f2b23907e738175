//! Reads a batch of a listing (`ListObjectsV2`).
//!
//! Elements that are not asked for here are passed over: services add their own.
//! Source: Amazon S3 API Reference, `ListObjectsV2`.

use super::{Node, XmlError, read};
use crate::{key::ObjectKey, time, uri};

/// A batch of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBatch {
    /// Its objects, in the order of the document.
    pub objects: Vec<ListedObject>,
    /// What asks for the next batch; `None` at the end.
    pub next: Option<String>,
}

/// An object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key.
    pub key: ObjectKey,
    /// Its size.
    pub size_bytes: u64,
    /// Its tag as it is told, quotes included.
    pub etag: Option<String>,
    /// When it was written, Unix milliseconds.
    pub modified_ms: Option<i64>,
}

/// Reads a `ListBucketResult`.
///
/// # Errors
/// [`XmlError`] when the body is no such document.
pub fn listed(body: &[u8]) -> Result<ListedBatch, XmlError> {
    let root = read(body)?;
    if root.name != "ListBucketResult" {
        return Err(XmlError::Malformed("the root is not ListBucketResult"));
    }
    let text = |name| text_of(&root, name);
    let is_encoded = text("EncodingType") == Some("url");
    let contents = root.children.iter().filter(|node| node.name == "Contents");
    let objects = contents
        .map(|node| listed_object(node, is_encoded.then_some(Encoded)))
        .collect::<Result<_, _>>()?;
    let next = match text("IsTruncated") {
        Some("true") => text("NextContinuationToken").map(str::to_owned),
        Some(_) | None => None,
    };
    Ok(ListedBatch { objects, next })
}

/// Keys are as in a query.
#[derive(Clone, Copy)]
struct Encoded;

fn listed_object(node: &Node, encoded: Option<Encoded>) -> Result<ListedObject, XmlError> {
    const NO_KEY: XmlError = XmlError::Malformed("Contents has no Key that can be one");
    let key = text_of(node, "Key").ok_or(NO_KEY)?;
    let key = match encoded {
        Some(Encoded) => {
            let spaced = key.replace('+', " ");
            let decoded = uri::decode_path(&spaced).map_err(|_| NO_KEY)?;
            ObjectKey::parse(&decoded)
        }
        None => ObjectKey::parse(key),
    };
    let size = text_of(node, "Size").and_then(|size| size.trim().parse().ok());
    Ok(ListedObject {
        key: key.map_err(|_| NO_KEY)?,
        size_bytes: size.ok_or(XmlError::Malformed("Contents has no Size"))?,
        etag: text_of(node, "ETag").map(str::to_owned),
        modified_ms: text_of(node, "LastModified").and_then(time::parse_rfc3339),
    })
}

fn text_of<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    let child = node.children.iter().find(|child| child.name == name)?;
    child.leaf().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_keys_sizes_and_what_asks_for_the_next() {
        let xml = "<ListBucketResult xmlns=\"x\"><Name>b</Name><Contents><Key>a%2Bb/c+d</Key>\
            <LastModified>1970-01-01T00:00:01.500Z</LastModified><ETag>&quot;e&quot;</ETag>\
            <Size>12</Size><Owner><ID>1</ID></Owner></Contents><EncodingType>url</EncodingType>\
            <IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;u\
            </NextContinuationToken></ListBucketResult>";
        let batch = listed(xml.as_bytes()).unwrap();
        let pairs = |batch: &ListedBatch| {
            let pair = |object: &ListedObject| (object.key.to_string(), object.size_bytes);
            batch.objects.iter().map(pair).collect::<Vec<_>>()
        };
        assert_eq!(pairs(&batch), [("a+b/c d".to_owned(), 12)]);
        let told = &batch.objects[0];
        assert_eq!(told.etag.as_deref(), Some("\"e\""));
        assert_eq!(told.modified_ms, Some(1500));
        assert_eq!(batch.next.as_deref(), Some("t&u"));
        let plain = xml.replace("<EncodingType>url</EncodingType>", "");
        let last = listed(plain.replace(">true<", ">false<").as_bytes()).unwrap();
        assert_eq!(pairs(&last), [("a%2Bb/c+d".to_owned(), 12)]);
        assert_eq!(last.next, None);
        for strange in [
            "<html/>",
            "<ListBucketResult><Contents/></ListBucketResult>",
        ] {
            assert!(listed(strange.as_bytes()).is_err(), "{strange}");
        }
    }
}
