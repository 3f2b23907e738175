//! Takes an S3 document apart without losing what is not understood: the children of its root as
//! they stand, to be written again elsewhere.
//!
//! Called by layers for listings and deletes of many, whose elements are passed on unless a layer
//! knows better. Not here: what the elements mean.

use quick_xml::{Reader, events::Event};

/// Most elements below the root: 1000 keys of a listing, as many common prefixes, and the rest.
const CHILDREN_MAX: usize = 10_000;

/// A document.
#[derive(Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// All before the first child: declaration and start tag of the root.
    pub head: &'a str,
    /// The root's name.
    pub root: &'a str,
    /// Its children in order.
    pub children: Vec<Child<'a>>,
}

/// A child of the root, as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Child<'a> {
    /// Its name.
    pub name: &'a str,
    /// All of it, tags included.
    pub raw: &'a str,
}

/// Takes a document apart; `None` when it is none.
pub fn read(text: &str) -> Option<Document<'_>> {
    let mut reader = Reader::from_str(text);
    let mut depth = 0_usize;
    let mut start = 0_usize;
    let (mut head, mut root) = ("", "");
    let mut children = Vec::new();
    loop {
        let before = usize::try_from(reader.buffer_position()).ok()?;
        let event = reader.read_event().ok()?;
        let after = usize::try_from(reader.buffer_position()).ok()?;
        match event {
            Event::Start(_) => {
                match depth {
                    0 => (head, root) = (&text[..after], name_in(&text[before..after])?),
                    1 => start = before,
                    _ => {}
                }
                depth += 1;
            }
            Event::End(_) => {
                depth = depth.checked_sub(1)?;
                if depth == 1 {
                    push(&mut children, &text[start..after])?;
                }
                if depth == 0 {
                    return Some(Document {
                        head,
                        root,
                        children,
                    });
                }
            }
            Event::Empty(_) if depth == 0 => return empty_root(text, before, after),
            Event::Empty(_) if depth == 1 => push(&mut children, &text[before..after])?,
            Event::DocType(_) | Event::Eof => return None,
            Event::Empty(_)
            | Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::GeneralRef(_) => {}
        }
    }
}

/// A root without children has no start tag that others could stand behind.
fn empty_root(text: &str, before: usize, after: usize) -> Option<Document<'_>> {
    Some(Document {
        head: "",
        root: name_in(&text[before..after])?,
        children: Vec::new(),
    })
}

fn push<'a>(children: &mut Vec<Child<'a>>, raw: &'a str) -> Option<()> {
    let name = name_in(raw)?;
    children.push(Child { name, raw });
    (children.len() <= CHILDREN_MAX).then_some(())
}

/// The local name in a start tag.
fn name_in(tag: &str) -> Option<&str> {
    let rest = tag.strip_prefix('<')?;
    let end = rest.find(|c: char| c.is_whitespace() || c == '>' || c == '/')?;
    let name = &rest[..end];
    Some(name.rsplit(':').next().unwrap_or(name))
}

impl Document<'_> {
    /// The text of the first child of this name.
    pub fn text_of(&self, name: &str) -> Option<String> {
        let child = self.children.iter().find(|child| child.name == name)?;
        child.text_at(&[])
    }
}

impl Child<'_> {
    /// The text of the first element at this path below it; its own for none.
    pub fn text_at(&self, path: &[&str]) -> Option<String> {
        let target = [&[self.name], path].concat();
        let mut reader = Reader::from_str(self.raw);
        let mut open: Vec<String> = Vec::new();
        let mut text = String::new();
        loop {
            let event = reader.read_event().ok()?;
            let is_there = open == target;
            match event {
                Event::Start(tag) => open.push(tag.local_name().as_ref().to_owned()),
                Event::Empty(tag) => {
                    open.push(tag.local_name().as_ref().to_owned());
                    if open == target {
                        return Some(text);
                    }
                    open.pop();
                }
                Event::End(_) if is_there => return Some(text),
                Event::End(_) => {
                    open.pop()?;
                }
                Event::Text(piece) if is_there => text.push_str(&piece.xml10_content()),
                Event::CData(piece) if is_there => text.push_str(&piece.xml10_content()),
                Event::GeneralRef(name) if is_there => text.push(resolve(&name.xml10_content())?),
                Event::Eof | Event::DocType(_) => return None,
                Event::Text(_)
                | Event::CData(_)
                | Event::GeneralRef(_)
                | Event::Comment(_)
                | Event::Decl(_)
                | Event::PI(_) => {}
            }
        }
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

/// Writes `<name>text</name>`; what XML has no way to write becomes a numeric reference, as S3
/// does it.
pub fn element(out: &mut String, name: &str, text: &str) {
    use std::fmt::Write as _;
    let _ = write!(out, "<{name}>");
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\0'..='\x08' | '\x0b'..='\x1f' | '\x7f' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(out, "&#x{:x};", u32::from(c));
            }
            c => out.push(c),
        }
    }
    let _ = write!(out, "</{name}>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_stand_as_they_were_and_tell_their_texts() {
        let text = "<?xml version=\"1.0\"?>\n<List xmlns=\"x\"><Name>b</Name>\n<C a='1'><Key>a&amp;\
            &#x1;<![CDATA[<]]></Key><Owner><ID>me</ID></Owner><Key>no</Key></C><E/></List>\n";
        let document = read(text).unwrap();
        assert_eq!((document.root, document.children.len()), ("List", 3));
        assert!(document.head.ends_with("<List xmlns=\"x\">"));
        assert_eq!(document.text_of("Name").as_deref(), Some("b"));
        assert_eq!(document.text_of("E").as_deref(), Some(""));
        let child = document.children[1];
        assert!(child.raw.starts_with("<C a='1'>") && child.raw.ends_with("</C>"));
        assert_eq!(child.text_at(&["Key"]).as_deref(), Some("a&\u{1}<"));
        assert_eq!(child.text_at(&["Owner", "ID"]).as_deref(), Some("me"));
        assert_eq!(child.text_at(&["ID"]), None);
        for bad in ["", "text", "<a>", "<a></b>", "<!DOCTYPE a><a/>"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn any_text_is_read_as_it_was_written() {
        let text = " a&b<c>\"d'\r\n\t\0\u{1}\u{7f}é😀]]> ";
        let mut out = String::from("<r>");
        element(&mut out, "k", text);
        out.push_str("</r>");
        let document = read(&out).unwrap();
        assert_eq!(document.text_of("k").as_deref(), Some(text));
    }
}
