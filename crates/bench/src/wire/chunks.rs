//! Reads the chunked coding from pieces, cut anywhere (RFC 9112 §7.1).

use super::WireError;

/// Longest line of a chunk's size with its extensions, or of a trailer.
const LINE_BYTES_MAX: usize = 4096;

/// Where in the coding the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// In the size of a chunk: what its digits say so far, and how many there were.
    Size { bytes: u64, digits: u8 },
    /// After the size, up to the line feed.
    Extension { bytes: u64 },
    /// In the bytes of a chunk.
    Data { left_bytes: u64 },
    /// In the line break after them.
    DataEnd,
    /// In the trailers: whether the line has any character yet.
    Trailer { is_empty: bool },
    /// Past the last line break.
    End,
}

/// The state of one body.
#[derive(Debug)]
pub(crate) struct Chunks {
    at: At,
    line_bytes: usize,
}

impl Chunks {
    pub(crate) fn new() -> Self {
        Self {
            at: At::Size {
                bytes: 0,
                digits: 0,
            },
            line_bytes: 0,
        }
    }

    pub(crate) fn is_end(&self) -> bool {
        self.at == At::End
    }

    /// Passes the payload within `piece` to `take`; gives how many bytes of `piece` were of this
    /// body.
    pub(crate) fn feed(
        &mut self,
        piece: &[u8],
        mut take: impl FnMut(&[u8]),
    ) -> Result<usize, WireError> {
        let mut used = 0;
        while used < piece.len() && self.at != At::End {
            if let At::Data { left_bytes } = self.at {
                let rest = &piece[used..];
                let count =
                    usize::try_from(left_bytes).map_or(rest.len(), |left| left.min(rest.len()));
                take(&rest[..count]);
                used += count;
                let left_bytes = left_bytes - count as u64;
                self.at = if left_bytes == 0 {
                    At::DataEnd
                } else {
                    At::Data { left_bytes }
                };
            } else {
                self.step(piece[used])?;
                used += 1;
            }
        }
        Ok(used)
    }

    fn step(&mut self, byte: u8) -> Result<(), WireError> {
        const MALFORMED: WireError = WireError::MalformedAnswer("broken chunk");
        self.line_bytes += 1;
        if self.line_bytes > LINE_BYTES_MAX {
            return Err(MALFORMED);
        }
        self.at = match (self.at, byte) {
            (At::Size { digits: 1.., bytes } | At::Extension { bytes }, b'\n') => {
                self.line_bytes = 0;
                if bytes == 0 {
                    At::Trailer { is_empty: true }
                } else {
                    At::Data { left_bytes: bytes }
                }
            }
            (At::Size { bytes, digits }, byte) => match (char::from(byte).to_digit(16), digits) {
                (Some(digit), ..16) => At::Size {
                    bytes: bytes << 4 | u64::from(digit),
                    digits: digits + 1,
                },
                (None, 1..) if matches!(byte, b'\r' | b';' | b' ' | b'\t') => {
                    At::Extension { bytes }
                }
                _ => return Err(MALFORMED),
            },
            (At::Extension { bytes }, _) => At::Extension { bytes },
            (At::DataEnd, b'\r') => At::DataEnd,
            (At::DataEnd, b'\n') => {
                self.line_bytes = 0;
                At::Size {
                    bytes: 0,
                    digits: 0,
                }
            }
            (At::Trailer { is_empty: true }, b'\n') => At::End,
            (At::Trailer { .. }, b'\n') => {
                self.line_bytes = 0;
                At::Trailer { is_empty: true }
            }
            (At::Trailer { is_empty: true }, b'\r') => At::Trailer { is_empty: true },
            (At::Trailer { .. }, _) => At::Trailer { is_empty: false },
            (At::DataEnd | At::Data { .. } | At::End, _) => return Err(MALFORMED),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Result<(Vec<u8>, bool, usize), WireError> {
        let (mut chunks, mut payload, mut used) = (Chunks::new(), Vec::new(), 0);
        for piece in pieces {
            used += chunks.feed(piece, |bytes| payload.extend_from_slice(bytes))?;
        }
        Ok((payload, chunks.is_end(), used))
    }

    #[test]
    fn chunks_are_read_wherever_they_are_cut() {
        let text = b"4\r\nWiki\r\nA;x=\"y\"\r\n0123456789\r\n0\r\nx-sum: 1\r\n\r\nHTTP";
        for cut in 0..text.len() {
            let (payload, is_end, used) = read(&[&text[..cut], &text[cut..]]).unwrap();
            assert_eq!(payload, b"Wiki0123456789", "cut at {cut}");
            assert!(is_end, "cut at {cut}");
            assert_eq!(
                used,
                text.len() - 4,
                "the next answer is left, cut at {cut}"
            );
        }
        let (_, is_end, _) = read(&[&text[..text.len() - 6]]).unwrap();
        assert!(!is_end, "the last line break is part of the body");
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for text in [
            "\r\n",
            "g\r\n",
            "4\r\nWikiX",
            "11112222333344445\r\n",
            ";\r\n",
        ] {
            assert!(read(&[text.as_bytes()]).is_err(), "{text:?}");
        }
    }
}
