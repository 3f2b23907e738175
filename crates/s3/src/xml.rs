//! The few XML documents that the gateway and layers write or read themselves.
//!
//! Written: the error document. Read: the keys of a `DeleteObjects` body, a tag set, a listing, and
//! the error that `CompleteMultipartUpload` and `CopyObject` may put into a 200. Typed operations
//! of native stores have XML of their own.
//!
//! The reader takes any bytes and stops at its limits; it knows no DTD and no entities but the
//! five of XML, so nothing expands.
//!
//! Sources: Amazon S3 API Reference, "REST error responses", "`DeleteObjects`",
//! "`PutObjectTagging`"; Extensible Markup Language (XML) 1.0, §2.2 (characters), §4.6 (entities).

use crate::{
    code::Code,
    key::{InvalidKey, ObjectKey, VersionId},
};

mod listing;
mod tree;

pub use listing::{ListedBatch, ListedObject, listed};

use tree::{Node, Unreadable};

/// Most bytes of a document that is read: a `DeleteObjects` of 1000 longest keys is 1 MiB, more
/// with escapes.
pub const DOCUMENT_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Most objects in one `DeleteObjects`.
pub const DELETE_OBJECTS_MAX: usize = 1000;
/// Most tags of an object.
pub const OBJECT_TAGS_MAX: usize = 10;
/// Most tags of a bucket.
pub const BUCKET_TAGS_MAX: usize = 50;
/// Most characters in the key of a tag.
pub const TAG_KEY_CHARS_MAX: usize = 128;
/// Most characters in the value of a tag.
pub const TAG_VALUE_CHARS_MAX: usize = 256;

/// An error as S3 tells it in a body.
#[derive(Debug, Clone, Copy)]
pub struct ErrorDocument<'a> {
    /// S3's code.
    pub code: Code,
    /// For people.
    pub message: &'a str,
    /// Path asked for; left out when empty.
    pub resource: &'a str,
    /// As in `x-amz-request-id`.
    pub request_id: &'a str,
    /// As in `x-amz-id-2`.
    pub host_id: &'a str,
    /// More elements, such as `Key` or `BucketName`; names are XML names.
    pub details: &'a [(&'a str, &'a str)],
}

impl ErrorDocument<'_> {
    /// Writes the document.
    pub fn to_xml(&self) -> String {
        let Self {
            code,
            message,
            resource,
            request_id,
            host_id,
            details,
        } = *self;
        let mut xml = String::with_capacity(384);
        xml.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
        push_element(&mut xml, "Code", code.as_str());
        push_element(&mut xml, "Message", message);
        for (name, value) in details {
            push_element(&mut xml, name, value);
        }
        if !resource.is_empty() {
            push_element(&mut xml, "Resource", resource);
        }
        push_element(&mut xml, "RequestId", request_id);
        push_element(&mut xml, "HostId", host_id);
        xml.push_str("</Error>");
        xml
    }
}

fn push_element(xml: &mut String, name: &str, text: &str) {
    xml.push('<');
    xml.push_str(name);
    xml.push('>');
    push_escaped(xml, text);
    xml.push_str("</");
    xml.push_str(name);
    xml.push('>');
}

/// Appends `text` as the content of an element or a quoted attribute.
///
/// A character that XML 1.0 cannot hold even escaped becomes U+FFFD.
pub fn push_escaped(xml: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            '\'' => xml.push_str("&apos;"),
            // Readers turn a plain carriage return into a line feed.
            '\r' => xml.push_str("&#xD;"),
            '\t' | '\n' => xml.push(c),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => xml.push('\u{fffd}'),
            _ => xml.push(c),
        }
    }
}

/// Why a body is not the document it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    /// Not well-formed, not in the schema, or past a limit.
    #[error("the XML is not well-formed or does not follow the schema: {0}")]
    Malformed(&'static str),
    /// The body has more than [`DOCUMENT_BYTES_MAX`] bytes.
    #[error("the XML is too long")]
    TooLong,
    /// A key has more than 1024 bytes.
    #[error("a key is too long")]
    KeyTooLong,
    /// A tag breaks the rules for tags.
    #[error("a tag is not valid: {0}")]
    InvalidTag(&'static str),
}

impl XmlError {
    /// S3's code for it.
    pub fn code(self) -> Code {
        match self {
            Self::Malformed(_) => Code::MalformedXML,
            Self::TooLong => Code::MaxMessageLengthExceeded,
            Self::KeyTooLong => Code::KeyTooLongError,
            Self::InvalidTag(_) => Code::InvalidTag,
        }
    }
}

impl From<Unreadable> for XmlError {
    fn from(reason: Unreadable) -> Self {
        Self::Malformed(reason.0)
    }
}

fn read(body: &[u8]) -> Result<Node, XmlError> {
    if body.len() > DOCUMENT_BYTES_MAX {
        return Err(XmlError::TooLong);
    }
    Ok(tree::read(body)?)
}

/// One object of a `DeleteObjects` body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteEntry {
    /// Its key.
    pub key: ObjectKey,
    /// The version to delete.
    pub version: Option<VersionId>,
}

/// Reads which objects a `DeleteObjects` body names, `1..=1000` of them.
///
/// An element that the schema does not have is an error, so that nothing an origin might obey
/// goes unseen here.
///
/// # Errors
/// [`XmlError`] when the body is no such document.
pub fn delete_keys(body: &[u8]) -> Result<Vec<DeleteEntry>, XmlError> {
    let root = read(body)?;
    if root.name != "Delete" {
        return Err(XmlError::Malformed("the root is not Delete"));
    }
    let mut entries = Vec::new();
    for child in &root.children {
        match child.name.as_str() {
            "Object" => entries.push(delete_entry(child)?),
            "Quiet" => {}
            _ => return Err(XmlError::Malformed("unknown element in Delete")),
        }
    }
    if entries.is_empty() || entries.len() > DELETE_OBJECTS_MAX {
        return Err(XmlError::Malformed("one to 1000 objects are expected"));
    }
    Ok(entries)
}

fn delete_entry(object: &Node) -> Result<DeleteEntry, XmlError> {
    let (mut key, mut version) = (None, None);
    for field in &object.children {
        let text = field.leaf()?;
        let previous = match field.name.as_str() {
            "Key" => key.replace(text),
            "VersionId" => version.replace(text),
            // Conditions on the object; they select nothing else.
            "ETag" | "LastModifiedTime" | "Size" => None,
            _ => return Err(XmlError::Malformed("unknown element in Object")),
        };
        if previous.is_some() {
            return Err(XmlError::Malformed("an element of Object is there twice"));
        }
    }
    let key = key.ok_or(XmlError::Malformed("Object has no Key"))?;
    let key = ObjectKey::parse(key).map_err(|fault| match fault {
        InvalidKey::Empty => XmlError::Malformed("Key is empty"),
        InvalidKey::TooLong { .. } => XmlError::KeyTooLong,
    })?;
    let version = match version {
        // Some SDKs send the element empty where there is no version.
        None | Some("") => None,
        Some(id) => {
            Some(VersionId::parse(id).map_err(|_| XmlError::Malformed("VersionId is too long"))?)
        }
    };
    Ok(DeleteEntry { key, version })
}

/// A tag of an object or bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// Its key, `1..=128` characters.
    pub key: String,
    /// Its value, `0..=256` characters.
    pub value: String,
}

/// Reads a `Tagging` document with at most `tags_max` tags.
///
/// # Errors
/// [`XmlError`] when the body is no such document or a tag breaks the rules.
pub fn tags(body: &[u8], tags_max: usize) -> Result<Vec<Tag>, XmlError> {
    let root = read(body)?;
    let set = match (root.name.as_str(), root.children.as_slice()) {
        ("Tagging", [set]) if set.name == "TagSet" => set,
        _ => return Err(XmlError::Malformed("Tagging with one TagSet is expected")),
    };
    let mut tags: Vec<Tag> = Vec::new();
    for child in &set.children {
        let tag = tag(child)?;
        if tags.iter().any(|other| other.key == tag.key) {
            return Err(XmlError::InvalidTag("a key is there twice"));
        }
        if tags.len() == tags_max {
            return Err(XmlError::InvalidTag("there are too many"));
        }
        tags.push(tag);
    }
    Ok(tags)
}

fn tag(node: &Node) -> Result<Tag, XmlError> {
    let (mut key, mut value) = (None, None);
    for field in &node.children {
        let text = field.leaf()?;
        let previous = match (node.name.as_str(), field.name.as_str()) {
            ("Tag", "Key") => key.replace(text),
            ("Tag", "Value") => value.replace(text),
            _ => return Err(XmlError::Malformed("unknown element in TagSet")),
        };
        if previous.is_some() {
            return Err(XmlError::Malformed("an element of Tag is there twice"));
        }
    }
    let (Some(key), Some(value)) = (key, value) else {
        return Err(XmlError::Malformed("Tag has no Key or no Value"));
    };
    if !(1..=TAG_KEY_CHARS_MAX).contains(&key.chars().count()) {
        return Err(XmlError::InvalidTag("a key has 1 to 128 characters"));
    }
    if value.chars().count() > TAG_VALUE_CHARS_MAX {
        return Err(XmlError::InvalidTag("a value has 256 characters at most"));
    }
    Ok(Tag {
        key: key.to_owned(),
        value: value.to_owned(),
    })
}

/// Reads the id that `CreateMultipartUpload` gave an upload.
///
/// # Errors
/// [`XmlError`] when the body is no such answer.
pub fn upload_id(body: &[u8]) -> Result<String, XmlError> {
    let root = read(body)?;
    if root.name != "InitiateMultipartUploadResult" {
        return Err(XmlError::Malformed("no upload was created"));
    }
    let id = root.children.iter().find(|child| child.name == "UploadId");
    let text = id.map(Node::leaf).transpose()?.unwrap_or_default();
    if text.is_empty() {
        return Err(XmlError::Malformed("the upload has no id"));
    }
    Ok(text.to_owned())
}

/// The error in a body, whatever the status it came with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginError {
    /// The code as the origin spelled it; [`Code::parse`] knows S3's own.
    pub code: String,
    /// Its message.
    pub message: String,
}

/// Reads the error in `body`; `None` when it is no error document.
///
/// `CompleteMultipartUpload`, `CopyObject` and `UploadPartCopy` send their 200 before they know the
/// end, with white space to keep the connection alive, so their bodies must be asked.
pub fn error_in(body: &[u8]) -> Option<OriginError> {
    let root = read(body).ok().filter(|root| root.name == "Error")?;
    let text = |name: &str| {
        let child = root.children.iter().find(|child| child.name == name)?;
        Some(child.text.trim().to_owned())
    };
    Some(OriginError {
        code: text("Code")?,
        message: text("Message").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
