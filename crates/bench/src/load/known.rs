//! What a thread knows of the objects that it has read: their `ETag`s, for conditional requests.
//!
//! A tag is learned from an answer and sent back with the next request for the object, as a client
//! does that keeps a copy. So the first request of each thread for an object has no condition.
//!
//! Bounded by the number of objects; a tag beyond [`TAG_BYTES_MAX`] is not kept.

/// Longer than the tags of S3 services: 32 digits, a count of parts, quotes.
const TAG_BYTES_MAX: usize = 128;

/// Tags by the number of the object.
#[derive(Debug, Default)]
pub(crate) struct KnownTags {
    tags: Vec<Option<Box<[u8]>>>,
}

impl KnownTags {
    /// Adds the condition to a head that is otherwise whole; gives whether the object is known.
    pub(crate) fn write_condition(&self, object: usize, head: &mut Vec<u8>) -> bool {
        let Some(tag) = self.tags.get(object).and_then(Option::as_deref) else {
            return false;
        };
        // The empty line that ends the head comes after it.
        head.truncate(head.len() - b"\r\n".len());
        for piece in [&b"if-none-match: "[..], tag, b"\r\n\r\n"] {
            head.extend_from_slice(piece);
        }
        true
    }

    pub(crate) fn learn(&mut self, object: usize, tag: &[u8]) {
        if tag.len() > TAG_BYTES_MAX {
            return;
        }
        if self.tags.len() <= object {
            self.tags.resize(object + 1, None);
        }
        if self.tags[object].as_deref() != Some(tag) {
            self.tags[object] = Some(tag.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_is_the_last_header_of_a_known_object() {
        let whole = b"GET /b/k HTTP/1.1\r\nhost: h\r\n\r\n";
        let mut known = KnownTags::default();
        known.learn(2, b"\"t\"");
        known.learn(3, &[b'x'; TAG_BYTES_MAX + 1]);
        for unknown in [0, 3, 4] {
            let mut head = whole.to_vec();
            assert!(!known.write_condition(unknown, &mut head));
            assert_eq!(head, whole);
        }
        let mut head = whole.to_vec();
        assert!(known.write_condition(2, &mut head));
        let expected = b"GET /b/k HTTP/1.1\r\nhost: h\r\nif-none-match: \"t\"\r\n\r\n";
        assert_eq!(head, expected);
    }
}
