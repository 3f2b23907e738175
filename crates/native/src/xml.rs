//! Documents: a small writer for answers, and a reader of request documents into a tree.
//!
//! Keys may hold characters that XML 1.0 has no way to write, NUL included. As S3 does, they are
//! written as numeric references, which S3's clients read; `encoding-type=url` avoids them.

use std::fmt::{Display, Write as _};

use bytes::Bytes;
use forebay_s3::code::Code;
use forebay_store::Error;
use quick_xml::{Reader, events::Event};

const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
/// Most bytes of a request document: a thousand keys of 1024 bytes, each byte as `&#xNN;`.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 8 << 20;
/// Nesting of the deepest request document that S3 knows, with room.
const DEPTH_MAX: usize = 8;

/// A document being written.
#[derive(Debug)]
pub(crate) struct Document {
    text: String,
    root: &'static str,
}

impl Document {
    /// Begins a document in S3's namespace.
    pub(crate) fn new(root: &'static str) -> Self {
        let text =
            format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root} xmlns=\"{NAMESPACE}\">");
        Self { text, root }
    }

    /// Writes `<name>value</name>`.
    pub(crate) fn element(&mut self, name: &str, value: impl AsRef<str>) -> &mut Self {
        let _ = write!(self.text, "<{name}>");
        escape_into(&mut self.text, value.as_ref());
        self.close(name)
    }

    /// Writes `<name>value</name>` with something that prints.
    pub(crate) fn number(&mut self, name: &str, value: impl Display) -> &mut Self {
        self.element(name, value.to_string())
    }

    /// Writes `<name>`; [`Document::close`] must follow.
    pub(crate) fn open(&mut self, name: &str) -> &mut Self {
        let _ = write!(self.text, "<{name}>");
        self
    }

    /// Writes `</name>`.
    pub(crate) fn close(&mut self, name: &str) -> &mut Self {
        let _ = write!(self.text, "</{name}>");
        self
    }

    /// Writes text as it is: markup, or text of this program.
    pub(crate) fn raw(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Writes text of the element that is open.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        escape_into(&mut self.text, text);
        self
    }

    /// Ends the document.
    pub(crate) fn finish(mut self) -> Bytes {
        let root = self.root;
        self.close(root);
        self.text.into()
    }
}

fn escape_into(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // What XML forbids, or would change on the way: a reader makes CR a newline.
            '\0'..='\x08' | '\x0b'..='\x1f' | '\x7f' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(out, "&#x{:x};", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

/// An element of a request document.
#[derive(Debug, Default)]
pub(crate) struct Element {
    /// Its name without a namespace prefix.
    pub(crate) name: String,
    /// Its own text, as it stands.
    pub(crate) text: String,
    /// Elements in it.
    pub(crate) children: Vec<Element>,
}

impl Element {
    /// The first child of this name.
    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Children of this name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Text of the first child of this name.
    pub(crate) fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.as_str())
    }
}

/// Reads a document whose root is `root`.
///
/// # Errors
/// `MalformedXML`.
pub(crate) fn read(body: &[u8], root: &str) -> Result<Element, Error> {
    std::str::from_utf8(body)
        .ok()
        .and_then(read_tree)
        .filter(|element| element.name == root)
        .ok_or_else(malformed)
}

/// `MalformedXML`.
pub(crate) fn malformed() -> Error {
    Error::refused(Code::MalformedXML)
}

fn read_tree(text: &str) -> Option<Element> {
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    let mut open = vec![Element::default()];
    loop {
        let event = reader.read_event().ok()?;
        match event {
            Event::Start(start) => {
                if open.len() > DEPTH_MAX {
                    return None;
                }
                open.push(named(start.local_name().as_ref()));
            }
            Event::Empty(start) => open
                .last_mut()?
                .children
                .push(named(start.local_name().as_ref())),
            Event::End(_) => {
                let done = open.pop()?;
                open.last_mut()?.children.push(done);
            }
            Event::Text(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
            Event::CData(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
            Event::GeneralRef(name) => open.last_mut()?.text.push(resolve(&name.xml10_content())?),
            Event::Decl(_) | Event::Comment(_) | Event::PI(_) => {}
            // Entities of its own are no business of a request.
            Event::DocType(_) => return None,
            Event::Eof => break,
        }
    }
    let document = open.pop().filter(|_| open.is_empty())?;
    let mut roots = document.children.into_iter();
    roots
        .next()
        .filter(|_| roots.len() == 0 && document.text.trim().is_empty())
}

fn named(name: &str) -> Element {
    Element {
        name: name.to_owned(),
        ..Element::default()
    }
}

fn resolve(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix('x') {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_key_survives_writing_and_reading() {
        let key = " a&b<c>\"d'\r\n\t\0\u{1}\u{7f}é😀]]> ";
        let mut document = Document::new("Delete");
        document.open("Object").element("Key", key).close("Object");
        let xml = document.finish();
        let element = read(&xml, "Delete").unwrap();
        assert_eq!(element.child("Object").unwrap().text_of("Key"), Some(key));
    }

    #[test]
    fn documents_of_another_shape_are_malformed() {
        for text in [
            "",
            "text",
            "<Delete>",
            "<Delete></Other>",
            "<Other/>",
            "<Delete/><Delete/>",
            "<Delete>&unknown;</Delete>",
            "<Delete>&#xD800;</Delete>",
            "<!DOCTYPE x [<!ENTITY a \"b\">]><Delete/>",
            "<a><a><a><a><a><a><a><a><a><a/></a></a></a></a></a></a></a></a></a>",
        ] {
            assert!(read(text.as_bytes(), "Delete").is_err(), "{text}");
        }
        assert!(read(b"\xff<Delete/>", "Delete").is_err());
        for text in [
            "<?xml version=\"1.0\"?>\n<Delete xmlns=\"x\"/>\n",
            "\u{feff}<x:Delete xmlns:x='y'><!-- c --></x:Delete>",
        ] {
            assert!(read(text.as_bytes(), "Delete").is_ok(), "{text}");
        }
    }
}
