//! What is needed of RESP, the protocol of Redis: SET, GET, DEL, and their replies.
//!
//! A reply is given the status that S3 would give: 200, 404 for a value that isn't there, 400 for
//! an error, whose text is then the error's body.
//!
//! Source: "Redis serialization protocol specification", RESP2.

use std::io::Write as _;

use super::{Address, Head, Sink, WireError};

/// Longest line of a reply that is read: an error's text.
const LINE_BYTES_MAX: usize = 4096;

/// Writes a command of whole words.
pub(crate) fn put_command(out: &mut Vec<u8>, words: &[&str]) {
    // Writing to a vector can't fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n{word}\r\n", word.len());
    }
}

/// Writes the beginning of a SET whose value of `len_bytes` bytes, and a line break, follow.
pub(crate) fn put_set(out: &mut Vec<u8>, key: &str, len_bytes: u64) {
    let _ = write!(
        out,
        "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${len_bytes}\r\n",
        key.len()
    );
}

/// The commands that open a session.
pub(crate) fn login(address: &Address) -> Vec<Vec<u8>> {
    let command = |words: &[&str]| {
        let mut out = Vec::new();
        put_command(&mut out, words);
        out
    };
    let mut commands = Vec::new();
    match &address.login {
        Some((user, password)) if user.is_empty() => commands.push(command(&["AUTH", password])),
        Some((user, password)) => commands.push(command(&["AUTH", user, password])),
        None => {}
    }
    if let Some(number) = address.database {
        commands.push(command(&["SELECT", &number.to_string()]));
    }
    commands
}

/// Takes a reply that is of no interest.
pub(crate) struct Ignored;

impl Sink for Ignored {
    fn head(&mut self, _: &Head<'_>) {}

    fn body(&mut self, _: &[u8]) {}
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Line,
    Value {
        left_bytes: u64,
    },
    /// In the line break after a value.
    ValueEnd {
        left_bytes: u8,
    },
    Done,
}

/// Reads one reply at a time.
#[derive(Debug)]
pub(crate) struct ReplyReader {
    state: State,
    status: u16,
    body_bytes: u64,
    line: Vec<u8>,
    is_untouched: bool,
    has_surplus: bool,
}

impl ReplyReader {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Done,
            status: 0,
            body_bytes: 0,
            line: Vec::new(),
            is_untouched: true,
            has_surplus: false,
        }
    }

    pub(crate) fn begin(&mut self) {
        self.state = State::Line;
        self.status = 0;
        self.body_bytes = 0;
        self.line.clear();
        self.is_untouched = true;
        self.has_surplus = false;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    pub(crate) fn is_untouched(&self) -> bool {
        self.is_untouched
    }

    pub(crate) fn keeps_alive(&self) -> bool {
        !self.has_surplus
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    pub(crate) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// The text of the last reply, if that was an error.
    pub(crate) fn error_body(&self) -> &[u8] {
        &self.line
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8], sink: &mut impl Sink) -> Result<(), WireError> {
        self.is_untouched &= bytes.is_empty();
        while !bytes.is_empty() {
            match self.state {
                State::Line => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let count = end.map_or(bytes.len(), |at| at + 1);
                    self.line.extend_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                    if end.is_some() {
                        self.read_line()?;
                    } else if self.line.len() > LINE_BYTES_MAX {
                        return Err(WireError::MalformedAnswer("the reply is too long"));
                    }
                }
                State::Value { left_bytes } => {
                    let count =
                        usize::try_from(left_bytes).map_or(bytes.len(), |n| n.min(bytes.len()));
                    sink.body(&bytes[..count]);
                    bytes = &bytes[count..];
                    let left_bytes = left_bytes - count as u64;
                    self.state = match left_bytes {
                        0 => State::ValueEnd { left_bytes: 2 },
                        _ => State::Value { left_bytes },
                    };
                }
                State::ValueEnd { left_bytes } => {
                    bytes = &bytes[1..];
                    self.state = match left_bytes {
                        2.. => State::ValueEnd {
                            left_bytes: left_bytes - 1,
                        },
                        _ => State::Done,
                    };
                }
                State::Done => {
                    self.has_surplus = true;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn read_line(&mut self) -> Result<(), WireError> {
        const MALFORMED: WireError = WireError::MalformedAnswer("not a reply of Redis");
        let line = self.line.strip_suffix(b"\r\n").ok_or(MALFORMED)?;
        let (kind, rest) = line.split_first().ok_or(MALFORMED)?;
        (self.status, self.state) = match kind {
            b'+' | b':' => (200, State::Done),
            b'-' => (400, State::Done),
            b'$' if rest == b"-1" => (404, State::Done),
            b'$' => {
                let text = str::from_utf8(rest).map_err(|_| MALFORMED)?;
                self.body_bytes = text.parse().map_err(|_| MALFORMED)?;
                let state = match self.body_bytes {
                    0 => State::ValueEnd { left_bytes: 2 },
                    left_bytes => State::Value { left_bytes },
                };
                (200, state)
            }
            _ => return Err(MALFORMED),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Value(Vec<u8>);

    impl Sink for Value {
        fn head(&mut self, _: &Head<'_>) {}

        fn body(&mut self, bytes: &[u8]) {
            self.0.extend_from_slice(bytes);
        }
    }

    #[test]
    fn replies_are_read_wherever_they_are_cut() {
        for (text, status, body) in [
            ("+OK\r\n", 200, ""),
            (":1\r\n", 200, ""),
            ("$5\r\nhe\r\no\r\n", 200, "he\r\no"),
            ("$0\r\n\r\n", 200, ""),
            ("$-1\r\n", 404, ""),
            ("-NOAUTH Authentication required.\r\n", 400, ""),
        ] {
            for cut in 0..=text.len() {
                let (mut reader, mut value) = (ReplyReader::new(), Value(Vec::new()));
                reader.begin();
                reader.feed(&text.as_bytes()[..cut], &mut value).unwrap();
                assert_eq!(reader.is_done(), cut == text.len(), "{text:?} cut at {cut}");
                reader.feed(&text.as_bytes()[cut..], &mut value).unwrap();
                assert!(
                    reader.is_done() && reader.keeps_alive(),
                    "{text:?} cut at {cut}"
                );
                assert_eq!(reader.status(), status, "{text:?}");
                assert_eq!(value.0, body.as_bytes(), "{text:?}");
            }
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        let mut reader = ReplyReader::new();
        reader.begin();
        assert!(
            reader
                .feed(b"HTTP/1.1 400 Bad Request\r\n", &mut Ignored)
                .is_err()
        );
    }

    #[test]
    fn a_session_opens_with_password_and_database() {
        let address = Address::parse("redis://me:hush@cache/3").unwrap();
        let expected = [
            &b"*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$4\r\nhush\r\n"[..],
            b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n",
        ];
        assert_eq!(login(&address), expected);
        assert!(login(&Address::parse("redis://cache").unwrap()).is_empty());
    }
}
