//! Reads one answer from the pieces in which it arrives.
//!
//! A head that arrives whole, as nearly all do, is parsed where it lies; one that is cut is
//! collected first. Bodies of successes go to a [`Sink`]; of bodies of errors the beginning is
//! kept, for the `<Code>` in it.
//!
//! Source: RFC 9112 §6.3 (length of a message).

use std::mem::MaybeUninit;

use super::{WireError, chunks::Chunks};

/// More headers than any S3 service sends.
const HEADERS_MAX: usize = 96;
/// Longest head, as curl and nginx limit it, with room to spare.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How much of an error's body is kept: the code comes in the first few hundred bytes.
const ERROR_BYTES_MAX: usize = 4096;

/// Takes the answer to a request that succeeded, as it comes.
pub(crate) trait Sink {
    /// The head of an answer with a status of 200–299.
    fn head(&mut self, head: &Head<'_>);
    /// The next bytes of its body.
    fn body(&mut self, bytes: &[u8]);
}

/// The head of an answer.
pub(crate) struct Head<'a> {
    pub(crate) status: u16,
    headers: &'a [httparse::Header<'a>],
}

impl Head<'_> {
    /// The value of a header; `name` in any case.
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    }
}

/// Whether an answer may carry a body at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expects {
    Body,
    /// It answers HEAD: the length is told and nothing follows.
    HeadOnly,
}

#[derive(Debug)]
enum State {
    Head,
    Length { left_bytes: u64 },
    Chunked(Chunks),
    UntilClose,
    Done,
}

/// Reads one answer at a time; kept with its connection for its buffers.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    state: State,
    expects: Expects,
    status: u16,
    keeps_alive: bool,
    body_bytes: u64,
    is_untouched: bool,
    /// The beginning of a head that was cut.
    partial: Vec<u8>,
    error_body: Vec<u8>,
}

impl AnswerReader {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Done,
            expects: Expects::Body,
            status: 0,
            keeps_alive: false,
            body_bytes: 0,
            is_untouched: true,
            partial: Vec::new(),
            error_body: Vec::new(),
        }
    }

    /// Gets ready for the answer to the next request.
    pub(crate) fn begin(&mut self, expects: Expects) {
        self.state = State::Head;
        self.expects = expects;
        self.status = 0;
        self.keeps_alive = true;
        self.body_bytes = 0;
        self.is_untouched = true;
        self.partial.clear();
        self.error_body.clear();
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(crate) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// The beginning of the body of an answer that was no success.
    pub(crate) fn error_body(&self) -> &[u8] {
        &self.error_body
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether not a byte of the answer has come.
    pub(crate) fn is_untouched(&self) -> bool {
        self.is_untouched
    }

    /// Whether another request may follow on the connection.
    pub(crate) fn keeps_alive(&self) -> bool {
        self.keeps_alive
    }

    /// Takes bytes as they arrived.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], sink: &mut impl Sink) -> Result<(), WireError> {
        self.is_untouched &= bytes.is_empty();
        while let State::Head = self.state {
            let used = self.feed_head(bytes, sink)?;
            bytes = &bytes[used..];
            if bytes.is_empty() {
                return Ok(());
            }
        }
        let used = self.feed_body(bytes, sink)?;
        // Nothing was asked yet that more bytes could answer: what follows can't be trusted.
        self.keeps_alive &= used == bytes.len();
        Ok(())
    }

    /// Takes the end of the connection.
    pub(crate) fn end(&mut self) -> Result<(), WireError> {
        self.keeps_alive = false;
        match self.state {
            State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            State::Done => Ok(()),
            State::Head | State::Length { .. } | State::Chunked(_) => Err(WireError::ShortBody),
        }
    }

    /// Gives how many of `bytes` were of the head.
    fn feed_head(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<usize, WireError> {
        if self.partial.is_empty() {
            if let Some(used) = self.parse_head(bytes, sink)? {
                return Ok(used);
            }
            self.partial.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        let mut whole = std::mem::take(&mut self.partial);
        let before = whole.len();
        whole.extend_from_slice(bytes);
        let parsed = self.parse_head(&whole, sink)?;
        let used = match parsed {
            // What was collected before was not a whole head, so this one ends within `bytes`.
            Some(used) => used - before,
            None if whole.len() > HEAD_BYTES_MAX => {
                return Err(WireError::MalformedAnswer("the head is too long"));
            }
            None => bytes.len(),
        };
        if parsed.is_some() {
            whole.clear();
        }
        self.partial = whole;
        Ok(used)
    }

    fn parse_head(
        &mut self,
        bytes: &[u8],
        sink: &mut impl Sink,
    ) -> Result<Option<usize>, WireError> {
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            bytes,
            &mut headers,
        );
        let used = match parsed {
            Ok(httparse::Status::Complete(used)) => used,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(WireError::MalformedAnswer("not an HTTP/1.1 head")),
        };
        let status = response.code.unwrap_or_default();
        if (100..200).contains(&status) {
            // An interim answer: the one that counts follows.
            return Ok(Some(used));
        }
        self.status = status;
        self.keeps_alive = response.version == Some(1);
        self.state = self.body_state(response.headers)?;
        if self.is_success() {
            sink.head(&Head {
                status,
                headers: response.headers,
            });
        }
        Ok(Some(used))
    }

    /// How the body is told apart from what follows it.
    fn body_state(&mut self, headers: &[httparse::Header<'_>]) -> Result<State, WireError> {
        let (mut length, mut is_chunked) = (None, false);
        for header in headers {
            // Lengths first: they are compared for each header of each answer.
            match header.name.len() {
                14 if header.name.eq_ignore_ascii_case("content-length") => {
                    length = Some(parse_length(header.value)?);
                }
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    is_chunked = ends_with_ignoring_case(header.value, b"chunked");
                }
                10 if header.name.eq_ignore_ascii_case("connection") => {
                    if header.value.eq_ignore_ascii_case(b"close") {
                        self.keeps_alive = false;
                    } else if header.value.eq_ignore_ascii_case(b"keep-alive") {
                        self.keeps_alive = true;
                    }
                }
                _ => {}
            }
        }
        let has_none = self.expects == Expects::HeadOnly || matches!(self.status, 204 | 304);
        Ok(match (has_none, is_chunked, length) {
            (true, ..) | (_, false, Some(0)) => State::Done,
            (_, true, _) => State::Chunked(Chunks::new()),
            (_, _, Some(left_bytes)) => State::Length { left_bytes },
            (_, _, None) => State::UntilClose,
        })
    }

    /// Gives how many of `bytes` were of the body.
    fn feed_body(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<usize, WireError> {
        let is_success = self.is_success();
        let (body_bytes, error_body) = (&mut self.body_bytes, &mut self.error_body);
        let mut take = |piece: &[u8]| {
            *body_bytes += piece.len() as u64;
            if is_success {
                sink.body(piece);
            } else {
                let room = ERROR_BYTES_MAX.saturating_sub(error_body.len());
                error_body.extend_from_slice(&piece[..piece.len().min(room)]);
            }
        };
        let (used, is_done) = match &mut self.state {
            State::Head | State::Done => (0, false),
            State::Length { left_bytes } => {
                let count =
                    usize::try_from(*left_bytes).map_or(bytes.len(), |n| n.min(bytes.len()));
                take(&bytes[..count]);
                *left_bytes -= count as u64;
                (count, *left_bytes == 0)
            }
            State::Chunked(chunks) => {
                let used = chunks.feed(bytes, take)?;
                (used, chunks.is_end())
            }
            State::UntilClose => {
                take(bytes);
                (bytes.len(), false)
            }
        };
        if is_done {
            self.state = State::Done;
        }
        Ok(used)
    }
}

fn parse_length(value: &[u8]) -> Result<u64, WireError> {
    let malformed = WireError::MalformedAnswer("broken Content-Length");
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(malformed);
    }
    value.iter().try_fold(0_u64, |length, byte| {
        length
            .checked_mul(10)
            .and_then(|length| length.checked_add(u64::from(byte - b'0')))
            .ok_or(malformed)
    })
}

fn ends_with_ignoring_case(text: &[u8], end: &[u8]) -> bool {
    text.len() >= end.len() && text[text.len() - end.len()..].eq_ignore_ascii_case(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Collected {
        body: Vec<u8>,
        tag: Option<Vec<u8>>,
    }

    impl Sink for Collected {
        fn head(&mut self, head: &Head<'_>) {
            self.tag = head.header("ETag").map(<[u8]>::to_vec);
        }

        fn body(&mut self, bytes: &[u8]) {
            self.body.extend_from_slice(bytes);
        }
    }

    fn read(expects: Expects, pieces: &[&[u8]]) -> Result<(AnswerReader, Collected), WireError> {
        let (mut reader, mut sink) = (AnswerReader::new(), Collected::default());
        reader.begin(expects);
        for piece in pieces {
            reader.feed(piece, &mut sink)?;
        }
        Ok((reader, sink))
    }

    #[test]
    fn an_answer_is_read_wherever_it_is_cut() {
        for text in [
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nETag: x\r\n\
             Content-Length: 5\r\n\r\nhello",
            "HTTP/1.1 206 Partial\r\netag: x\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        ] {
            for cut in 1..text.len() {
                let (first, second) = text.as_bytes().split_at(cut);
                let (reader, sink) = read(Expects::Body, &[first, second]).unwrap();
                assert!(
                    reader.is_done() && reader.keeps_alive(),
                    "{text} cut at {cut}"
                );
                assert_eq!(sink.body, b"hello", "{text} cut at {cut}");
                assert_eq!(sink.tag.as_deref(), Some(&b"x"[..]), "{text} cut at {cut}");
            }
        }
    }

    #[test]
    fn the_end_of_an_answer_is_where_its_head_says() {
        for (expects, text, is_done, keeps_alive) in [
            (
                Expects::HeadOnly,
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
                true,
                true,
            ),
            (Expects::Body, "HTTP/1.1 204 No Content\r\n\r\n", true, true),
            (
                Expects::Body,
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                true,
                true,
            ),
            (
                Expects::Body,
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                true,
                false,
            ),
            (
                Expects::Body,
                "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
                true,
                false,
            ),
            (
                Expects::Body,
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
                false,
                true,
            ),
            (
                Expects::Body,
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nhello",
                true,
                false,
            ),
            (Expects::Body, "HTTP/1.1 200 OK\r\n\r\nhello", false, true),
        ] {
            let (reader, _) = read(expects, &[text.as_bytes()]).unwrap();
            assert_eq!(reader.is_done(), is_done, "{text}");
            assert_eq!(reader.keeps_alive(), keeps_alive, "{text}");
        }
        let (mut open, sink) = read(Expects::Body, &[b"HTTP/1.1 200 OK\r\n\r\nhello"]).unwrap();
        assert_eq!((open.end(), sink.body), (Ok(()), b"hello".to_vec()));
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell";
        let (mut cut, _) = read(Expects::Body, &[cut]).unwrap();
        assert_eq!(cut.end(), Err(WireError::ShortBody));
    }

    #[test]
    fn the_body_of_an_error_is_kept_for_its_code() {
        let text = "HTTP/1.1 503 Slow Down\r\nContent-Length: 13\r\n\r\n<Code>S</Code";
        let (reader, sink) = read(Expects::Body, &[text.as_bytes()]).unwrap();
        assert!(reader.is_done() && !reader.is_success());
        assert_eq!(reader.error_body(), b"<Code>S</Code");
        assert_eq!(sink.body, b"");
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for text in [
            "SSH-2.0-OpenSSH_9.2p1\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        ] {
            assert!(read(Expects::Body, &[text.as_bytes()]).is_err(), "{text}");
        }
    }
}
