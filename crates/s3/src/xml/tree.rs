//! Reads a small XML document into a tree, within limits.

use quick_xml::{Reader, events::Event};

/// Deepest nesting read; S3's deepest request is four.
const DEPTH_MAX: usize = 8;
/// Most elements read: 1000 objects of `DeleteObjects` with six each, and as much again.
const ELEMENTS_MAX: usize = 16 * 1024;

/// An element: its local name, its own text, and the elements in it.
///
/// Namespaces and attributes are left out: S3 gives them no meaning in what is read here.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) name: String,
    /// Character data directly in it, with references resolved.
    pub(super) text: String,
    pub(super) children: Vec<Node>,
}

impl Node {
    /// The text of an element that has no others in it.
    pub(super) fn leaf(&self) -> Result<&str, Unreadable> {
        if self.children.is_empty() {
            Ok(&self.text)
        } else {
            Err(Unreadable("an element in place of text"))
        }
    }
}

/// The bytes are no document that is read here, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable(pub(super) &'static str);

const NOT_WELL_FORMED: Unreadable = Unreadable("not well-formed");

/// Reads one whole document.
pub(super) fn read(body: &[u8]) -> Result<Node, Unreadable> {
    let text = std::str::from_utf8(body).map_err(|_| Unreadable("not UTF-8"))?;
    // White space before the declaration is not well-formed, but how S3 keeps a connection alive.
    let mut reader = Reader::from_str(text.trim_start());
    reader.config_mut().expand_empty_elements = true;
    let mut open: Vec<Node> = Vec::new();
    let mut root = None;
    let mut elements_count = 0;
    loop {
        match reader.read_event().map_err(|_| NOT_WELL_FORMED)? {
            Event::Start(start) => {
                elements_count += 1;
                if open.len() == DEPTH_MAX || elements_count > ELEMENTS_MAX {
                    return Err(Unreadable("too deep or too many elements"));
                }
                if root.is_some() {
                    return Err(NOT_WELL_FORMED);
                }
                let name = start.local_name().as_ref().to_owned();
                open.push(Node {
                    name,
                    ..Node::default()
                });
            }
            Event::End(_) => {
                let node = open.pop().ok_or(NOT_WELL_FORMED)?;
                match open.last_mut() {
                    Some(parent) => parent.children.push(node),
                    None => root = Some(node),
                }
            }
            Event::Text(text) => push_text(&mut open, &text.xml10_content())?,
            Event::CData(text) => push_text(&mut open, &text.xml10_content())?,
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref().map_err(|_| NOT_WELL_FORMED)?;
                match character {
                    Some(c) => push_text(&mut open, c.encode_utf8(&mut [0; 4]))?,
                    None => push_text(&mut open, entity(&reference)?)?,
                }
            }
            Event::Decl(_) | Event::Comment(_) => {}
            Event::DocType(_) | Event::PI(_) => {
                return Err(Unreadable("document types and instructions are not read"));
            }
            Event::Eof if open.is_empty() => return root.ok_or(NOT_WELL_FORMED),
            // An empty element comes as start and end.
            Event::Eof | Event::Empty(_) => return Err(NOT_WELL_FORMED),
        }
    }
}

fn push_text(open: &mut [Node], text: &str) -> Result<(), Unreadable> {
    match open.last_mut() {
        Some(node) => node.text.push_str(text),
        None if text.trim().is_empty() => {}
        None => return Err(NOT_WELL_FORMED),
    }
    Ok(())
}

fn entity(name: &str) -> Result<&'static str, Unreadable> {
    quick_xml::escape::resolve_xml_entity(name).ok_or(Unreadable("unknown entity"))
}
