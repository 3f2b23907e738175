//! Where the messages of an HTTP/1.1 connection begin and end.
//!
//! Pure: bytes in, lengths out. Called by `relay` for each direction; it changes no byte. What is
//! no HTTP/1.1 (TLS, HTTP/2, a broken message) is an error here, and the relay then passes bytes
//! on without looking at them.
//!
//! Source: RFC 9112 §6.3 (length of a body), §7.1 (chunked).

use httparse::Status;

/// Fields of a head that are read; a head with more is not understood.
const FIELDS_MAX: usize = 128;

/// Not a message that can be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotUnderstood;

/// What the relay must know of a request's head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestHead {
    /// Bytes of the head.
    pub(super) head_bytes: usize,
    pub(super) method: Method,
    pub(super) body: Body,
    /// The client waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
}

/// What the relay must know of an answer's head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AnswerHead {
    /// Bytes of the head.
    pub(super) head_bytes: usize,
    pub(super) status: u16,
    pub(super) kind: AnswerKind,
}

/// What follows the head of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// 1xx: another head for the same request.
    Interim,
    /// The connection changes its protocol.
    Tunnel,
    /// A body, maybe an empty one.
    Final(Body),
}

/// Methods that are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Head,
    Put,
    Post,
    Delete,
    Connect,
    Other,
}

impl Method {
    /// All of them, in the order of their discriminants.
    pub(super) const ALL: [(Self, &str); 7] = [
        (Self::Get, "GET"),
        (Self::Head, "HEAD"),
        (Self::Put, "PUT"),
        (Self::Post, "POST"),
        (Self::Delete, "DELETE"),
        (Self::Connect, "CONNECT"),
        (Self::Other, "other"),
    ];

    fn of(name: &str) -> Self {
        let known = Self::ALL.iter().find(|(_, known)| *known == name);
        known.map_or(Self::Other, |(method, _)| *method)
    }
}

/// How much of a body is still to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// This many bytes.
    Length(u64),
    /// As its chunks say.
    Chunked(Chunked),
    /// Until the connection ends.
    UntilClose,
}

/// A run of bytes at the front of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// Bytes of the run; 0 when more input is needed, or the body is at its end.
    pub(super) bytes: usize,
    /// Payload, or the framing around it.
    pub(super) is_payload: bool,
    /// The message ends after this run.
    pub(super) is_last: bool,
}

impl Body {
    /// The next run of `input`, all payload or all framing.
    pub(super) fn run(&mut self, input: &[u8]) -> Result<Run, NotUnderstood> {
        match self {
            Self::Length(left) => {
                let bytes = usize::try_from(*left).map_or(input.len(), |n| n.min(input.len()));
                *left -= bytes as u64;
                Ok(Run {
                    bytes,
                    is_payload: true,
                    is_last: *left == 0,
                })
            }
            Self::Chunked(chunked) => chunked.run(input),
            Self::UntilClose => Ok(Run {
                bytes: input.len(),
                is_payload: true,
                is_last: false,
            }),
        }
    }

    /// Payload bytes still to come, where the head told.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Chunked(_) | Self::UntilClose => None,
        }
    }
}

/// Place within a chunked body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Chunked {
    /// In a chunk's size.
    #[default]
    Size,
    /// In a chunk's size, with digits read.
    SizeDigits(u64),
    /// Between the size and the end of its line: extensions.
    Extension(u64),
    /// In a chunk's payload.
    Payload(u64),
    /// In the line end after the payload.
    PayloadEnd,
    /// At the start of a trailer line, or of the empty line that ends the body.
    TrailerStart,
    /// In a trailer line.
    Trailer,
    /// After the last byte.
    Ended,
}

impl Chunked {
    fn run(&mut self, input: &[u8]) -> Result<Run, NotUnderstood> {
        if let Self::Payload(left) = self {
            let bytes = usize::try_from(*left).map_or(input.len(), |n| n.min(input.len()));
            *left -= bytes as u64;
            if *left == 0 {
                *self = Self::PayloadEnd;
            }
            return Ok(Run {
                bytes,
                is_payload: true,
                is_last: false,
            });
        }
        let mut bytes = 0;
        for &byte in input {
            *self = self.after(byte)?;
            bytes += 1;
            if matches!(self, Self::Payload(_) | Self::Ended) {
                break;
            }
        }
        Ok(Run {
            bytes,
            is_payload: false,
            is_last: *self == Self::Ended,
        })
    }

    /// The place after one more byte of framing.
    fn after(&self, byte: u8) -> Result<Self, NotUnderstood> {
        let digit = || char::from(byte).to_digit(16).map(u64::from);
        Ok(match (self, byte) {
            (Self::Size, _) => Self::SizeDigits(digit().ok_or(NotUnderstood)?),
            (Self::SizeDigits(size) | Self::Extension(size), b'\n') => match size {
                0 => Self::TrailerStart,
                size => Self::Payload(*size),
            },
            (Self::SizeDigits(size), b';' | b'\r' | b' ' | b'\t') | (Self::Extension(size), _) => {
                Self::Extension(*size)
            }
            (Self::SizeDigits(size), _) => {
                let digit = digit().ok_or(NotUnderstood)?;
                let size = size.checked_mul(16).ok_or(NotUnderstood)?;
                Self::SizeDigits(size + digit)
            }
            (Self::PayloadEnd, b'\r') => Self::PayloadEnd,
            (Self::PayloadEnd, b'\n') => Self::Size,
            (Self::TrailerStart, b'\n') => Self::Ended,
            (Self::TrailerStart, b'\r') | (Self::Trailer, b'\n') => Self::TrailerStart,
            (Self::TrailerStart | Self::Trailer, _) => Self::Trailer,
            (Self::PayloadEnd | Self::Payload(_) | Self::Ended, _) => return Err(NotUnderstood),
        })
    }
}

/// Reads the head of a request; `None` when it is not all there yet.
pub(super) fn read_request(input: &[u8]) -> Result<Option<RequestHead>, NotUnderstood> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let head_bytes = match request.parse(input) {
        Ok(Status::Complete(bytes)) => bytes,
        Ok(Status::Partial) => return Ok(None),
        Err(_) => return Err(NotUnderstood),
    };
    let framing = Framing::of(request.headers)?;
    let body = match framing.coding {
        Coding::None => Body::Length(framing.length.unwrap_or(0)),
        Coding::Chunked => Body::Chunked(Chunked::default()),
        Coding::Other => return Err(NotUnderstood),
    };
    Ok(Some(RequestHead {
        head_bytes,
        method: Method::of(request.method.unwrap_or_default()),
        body,
        expects_continue: framing.expects_continue,
    }))
}

/// Reads the head of an answer to a request of `method`; `None` when it is not all there yet.
pub(super) fn read_answer(
    input: &[u8],
    method: Method,
) -> Result<Option<AnswerHead>, NotUnderstood> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut answer = httparse::Response::new(&mut fields);
    let head_bytes = match answer.parse(input) {
        Ok(Status::Complete(bytes)) => bytes,
        Ok(Status::Partial) => return Ok(None),
        Err(_) => return Err(NotUnderstood),
    };
    let status = answer.code.unwrap_or_default();
    let kind = match (method, status) {
        (_, 101) | (Method::Connect, 200..=299) => AnswerKind::Tunnel,
        (_, 100..=199) => AnswerKind::Interim,
        (Method::Head, _) | (_, 204 | 304) => AnswerKind::Final(Body::Length(0)),
        _ => {
            let framing = Framing::of(answer.headers)?;
            AnswerKind::Final(match (framing.coding, framing.length) {
                (Coding::Chunked, _) => Body::Chunked(Chunked::default()),
                (Coding::None, Some(length)) => Body::Length(length),
                (Coding::None, None) | (Coding::Other, _) => Body::UntilClose,
            })
        }
    };
    Ok(Some(AnswerHead {
        head_bytes,
        status,
        kind,
    }))
}

/// The fields of a head that say how long its body is.
struct Framing {
    coding: Coding,
    length: Option<u64>,
    expects_continue: bool,
}

/// The last coding of `Transfer-Encoding`.
#[derive(Clone, Copy)]
enum Coding {
    None,
    Chunked,
    Other,
}

impl Framing {
    fn of(fields: &[httparse::Header<'_>]) -> Result<Self, NotUnderstood> {
        let mut framing = Self {
            coding: Coding::None,
            length: None,
            expects_continue: false,
        };
        for field in fields {
            let text = || std::str::from_utf8(field.value).map_err(|_| NotUnderstood);
            if field.name.eq_ignore_ascii_case("content-length") {
                let length = text()?.trim().parse().map_err(|_| NotUnderstood)?;
                if framing.length.is_some_and(|other| other != length) {
                    return Err(NotUnderstood);
                }
                framing.length = Some(length);
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                let last = text()?.rsplit(',').next().unwrap_or_default().trim();
                framing.coding = match last {
                    last if last.eq_ignore_ascii_case("chunked") => Coding::Chunked,
                    _ => Coding::Other,
                };
            } else if field.name.eq_ignore_ascii_case("expect") {
                framing.expects_continue = text()?.trim().eq_ignore_ascii_case("100-continue");
            }
        }
        Ok(framing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_body_only_where_its_head_says_so() {
        for (fields, body) in [
            ("", Body::Length(0)),
            ("Content-Length: 12\r\n", Body::Length(12)),
            (
                "content-length: 12\r\nContent-Length: 12\r\n",
                Body::Length(12),
            ),
            (
                "Transfer-Encoding: gzip, Chunked\r\n",
                Body::Chunked(Chunked::Size),
            ),
        ] {
            let head = format!("PUT /b/k HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            let read = read_request(head.as_bytes()).unwrap().unwrap();
            assert_eq!(read.body, body, "{fields:?}");
            assert_eq!(read.head_bytes, head.len());
            assert_eq!(read.method, Method::Put);
        }
    }

    #[test]
    fn what_is_no_http_1_is_not_understood() {
        for input in [
            &b"\x16\x03\x01\x02\x00\x01\x00"[..],
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"PUT / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"PUT / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        ] {
            assert_eq!(read_request(input), Err(NotUnderstood), "{input:?}");
        }
        assert_eq!(read_request(b"GET / HTT"), Ok(None));
    }

    #[test]
    fn an_answers_body_depends_on_request_and_status() {
        let length = "Content-Length: 5\r\n";
        for (method, status, fields, kind) in [
            (Method::Get, 200, length, AnswerKind::Final(Body::Length(5))),
            (
                Method::Head,
                200,
                length,
                AnswerKind::Final(Body::Length(0)),
            ),
            (Method::Get, 304, length, AnswerKind::Final(Body::Length(0))),
            (Method::Delete, 204, "", AnswerKind::Final(Body::Length(0))),
            (Method::Get, 200, "", AnswerKind::Final(Body::UntilClose)),
            (Method::Put, 100, "", AnswerKind::Interim),
            (Method::Get, 103, length, AnswerKind::Interim),
            (Method::Get, 101, "", AnswerKind::Tunnel),
            (Method::Connect, 200, "", AnswerKind::Tunnel),
        ] {
            let head = format!("HTTP/1.1 {status} X\r\n{fields}\r\n");
            let read = read_answer(head.as_bytes(), method).unwrap().unwrap();
            assert_eq!(read.kind, kind, "{method:?} {status}");
        }
    }

    /// Payload and framing bytes of a chunked body, read in pieces of `step` bytes.
    fn read_chunked(text: &[u8], step: usize) -> Result<(usize, usize, bool), NotUnderstood> {
        let mut body = Body::Chunked(Chunked::default());
        let (mut payload, mut framing, mut ended) = (0, 0, false);
        for mut piece in text.chunks(step) {
            while !piece.is_empty() && !ended {
                let run = body.run(piece)?;
                *(if run.is_payload {
                    &mut payload
                } else {
                    &mut framing
                }) += run.bytes;
                ended = run.is_last;
                piece = &piece[run.bytes..];
            }
        }
        Ok((payload, framing, ended))
    }

    #[test]
    fn a_chunked_body_is_followed_however_it_is_cut() {
        let text = b"5\r\nhello\r\nA;x=\"y\"\r\n0123456789\r\n0\r\nx-t: 1\r\n\r\n";
        for step in 1..text.len() {
            let read = read_chunked(text, step);
            assert_eq!(read, Ok((15, text.len() - 15, true)), "step {step}");
        }
        for bad in [&b"x\r\n"[..], b"5\r\nhelloX", b"fffffffffffffffff\r\n"] {
            assert_eq!(read_chunked(bad, 3), Err(NotUnderstood), "{bad:?}");
        }
    }
}
