//! Reads the batches of a listing (`ListObjectsV2`).
//!
//! Only what is asked for here is read, by the names of elements; whatever else a service puts into
//! the document is passed over.

use std::collections::HashMap;

use forebay_s3::uri::decode_path;

/// The document is no listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotAListing;

/// Adds the keys and sizes of one batch to `found`.
///
/// # Errors
/// [`NotAListing`] when it is something else.
pub(super) fn read_batch(text: &str, found: &mut HashMap<String, u64>) -> Result<(), NotAListing> {
    if !text.contains("<ListBucketResult") {
        return Err(NotAListing);
    }
    let is_encoded = element(text, "EncodingType") == Some("url");
    for entry in text.split("<Contents>").skip(1) {
        let key = element(entry, "Key").ok_or(NotAListing)?;
        let size = element(entry, "Size").and_then(|size| size.trim().parse().ok());
        let mut key = unescaped(key);
        if is_encoded {
            let decoded = decode_path(&key.replace('+', " ")).map(std::borrow::Cow::into_owned);
            key = decoded.map_err(|_| NotAListing)?;
        }
        found.insert(key, size.ok_or(NotAListing)?);
    }
    Ok(())
}

/// The text of the first element of that name.
pub(super) fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
}

pub(super) fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#34;", "\"")
        .replace("&apos;", "'")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_gives_keys_and_sizes() {
        let text = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><EncodingType>url\
            </EncodingType><Contents><Key>a%2Bb/c+d</Key><Size>12</Size></Contents>\
            <Contents><Size>0</Size><Key>%C3%BC</Key></Contents></ListBucketResult>";
        let mut found = HashMap::new();
        read_batch(text, &mut found).unwrap();
        let expected = [("a+b/c d".to_owned(), 12), ("ü".to_owned(), 0)];
        assert_eq!(found, HashMap::from(expected));
        let plain = text
            .replace("<EncodingType>url</EncodingType>", "")
            .replace("a%2B", "a&amp;");
        let mut found = HashMap::new();
        read_batch(&plain, &mut found).unwrap();
        assert!(found.contains_key("a&b/c+d"), "{found:?}");
        for strange in [
            "<html>",
            "<ListBucketResult><Contents><Key>a</Key></Contents>",
        ] {
            assert!(
                read_batch(strange, &mut HashMap::new()).is_err(),
                "{strange}"
            );
        }
    }
}
