//! Takes the `aws-chunked` coding off a body as it arrives.

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use super::{CHUNK_LINE_BYTES_MAX, Framing, TRAILER_BYTES_MAX, TRAILER_SIGNATURE};
use crate::sigv4::{ChunkSigner, same_signature};

/// Why a body is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkedError {
    /// Not the coding.
    #[error("The request body terminated unexpectedly ({0})")]
    Malformed(&'static str),
    /// The body ended before its last chunk or its trailers.
    #[error("The request body terminated unexpectedly")]
    Cut,
    /// More or fewer bytes than `x-amz-decoded-content-length` says.
    #[error("You did not provide the number of bytes specified by the Content-Length HTTP header")]
    Length {
        /// The declared length.
        expected: u64,
        /// The length of the chunks announced so far.
        received: u64,
    },
    /// A chunk or the trailers are not what the key holder signed.
    #[error(
        "The request signature we calculated does not match the signature you provided. Check \
         your key and signing method."
    )]
    SignatureDoesNotMatch,
    /// Trailers that are malformed, too long, or not those announced by `x-amz-trailer`.
    #[error(
        "The request contained trailing data that was not well-formed or did not conform to our \
         published schema."
    )]
    MalformedTrailer,
}

impl ChunkedError {
    /// The S3 error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) | Self::Cut | Self::Length { .. } => "IncompleteBody",
            Self::SignatureDoesNotMatch => "SignatureDoesNotMatch",
            Self::MalformedTrailer => "MalformedTrailerError",
        }
    }
}

/// Gives the payload of an `aws-chunked` body, verifying the signatures of chunks and trailers.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    vouching: Vouching,
    trailer_rule: TrailerRule,
    expected_bytes: u64,
    /// The sizes of the chunks announced so far.
    announced_bytes: u64,
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
    /// The names that `x-amz-trailer` announced.
    announced_trailers: Vec<HeaderName>,
    trailers: HeaderMap,
    trailer_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before a chunk's line.
    Line,
    /// In a chunk's bytes, of which so many are missing.
    Chunk(u64),
    /// Before the line end after a chunk's bytes.
    ChunkEnd,
    /// After the last chunk's line.
    Trailers,
    /// Past the end.
    End,
}

/// What signs the chunks.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per request, and it stays put"
)]
enum Vouching {
    /// Nothing, or nothing that is looked at.
    None,
    /// A rolling signature.
    Signature {
        signer: ChunkSigner,
        hash: Sha256,
        claimed: Box<str>,
    },
}

/// What follows the last chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrailerRule {
    /// An empty line.
    None,
    /// Trailers and an empty line.
    Unsigned,
    /// Trailers, their signature, and an empty line.
    Signed,
    /// Any of the above.
    Unchecked,
}

impl Decoder {
    /// Prepares for a body that decodes to `expected_bytes` (`x-amz-decoded-content-length`),
    /// followed by exactly these trailers (`x-amz-trailer`).
    pub fn new(framing: Framing, expected_bytes: u64, announced_trailers: Vec<HeaderName>) -> Self {
        let vouched = |signer| Vouching::Signature {
            signer,
            hash: Sha256::new(),
            claimed: Box::default(),
        };
        let (vouching, trailer_rule) = match framing {
            Framing::Signed(signer) => (vouched(signer), TrailerRule::None),
            Framing::SignedTrailer(signer) => (vouched(signer), TrailerRule::Signed),
            Framing::UnsignedTrailer => (Vouching::None, TrailerRule::Unsigned),
            Framing::Unchecked => (Vouching::None, TrailerRule::Unchecked),
        };
        Self {
            state: State::Line,
            vouching,
            trailer_rule,
            expected_bytes,
            announced_bytes: 0,
            line: Vec::new(),
            announced_trailers,
            trailers: HeaderMap::new(),
            trailer_bytes: 0,
        }
    }

    /// Takes from the front of `input` and gives the next piece of the payload; `None` when
    /// `input` is used up. Call until then, with each piece of the body.
    ///
    /// # Errors
    /// Anything that is not the coding, and signatures that do not match, of the bytes before.
    pub fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, ChunkedError> {
        while !input.is_empty() {
            match self.state {
                State::Chunk(missing) => {
                    let piece = take_at_most(input, missing);
                    let missing = missing - piece.len() as u64;
                    if let Vouching::Signature { hash, .. } = &mut self.vouching {
                        hash.update(&piece);
                    }
                    self.state = State::Chunk(missing);
                    if missing == 0 {
                        self.judge_chunk()?;
                        self.state = State::ChunkEnd;
                    }
                    return Ok(Some(piece));
                }
                State::Line | State::ChunkEnd | State::Trailers => self.read_line(input)?,
                State::End => return Err(ChunkedError::Malformed("bytes after the end")),
            }
        }
        Ok(None)
    }

    /// Judges the end of the body and gives its trailers, without their signature.
    ///
    /// # Errors
    /// [`ChunkedError::Cut`] when the body is not complete, [`ChunkedError::Length`] when it is
    /// shorter than declared, [`ChunkedError::MalformedTrailer`] when trailers are missing.
    pub fn finish(mut self) -> Result<HeaderMap, ChunkedError> {
        match self.state {
            State::End => {}
            // Some clients leave out the last empty line, or the end of the last line.
            State::Trailers => {
                if !self.line.is_empty() {
                    let line = std::mem::take(&mut self.line);
                    self.trailer_line(&line)?;
                }
                if self.state != State::End {
                    self.judge_trailers()?;
                }
            }
            State::Line | State::Chunk(_) | State::ChunkEnd => return Err(ChunkedError::Cut),
        }
        Ok(self.trailers)
    }

    /// Collects one line, which is copied only when it arrives in pieces.
    fn read_line(&mut self, input: &mut Bytes) -> Result<(), ChunkedError> {
        let line_bytes_max = match self.state {
            State::Trailers => TRAILER_BYTES_MAX,
            State::Line | State::Chunk(_) | State::ChunkEnd | State::End => CHUNK_LINE_BYTES_MAX,
        };
        let end = input.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(input.len(), |end| end + 1);
        if self.line.len() + taken > line_bytes_max {
            return Err(match self.state {
                State::Trailers => ChunkedError::MalformedTrailer,
                State::Line | State::Chunk(_) | State::ChunkEnd | State::End => {
                    ChunkedError::Malformed("a chunk's line is too long")
                }
            });
        }
        if end.is_none() {
            self.line.extend_from_slice(input);
            input.clear();
            return Ok(());
        }
        if self.line.is_empty() {
            let line = input.split_to(taken);
            return self.take_line(&line);
        }
        let mut line = std::mem::take(&mut self.line);
        line.extend_from_slice(&input[..taken]);
        input.advance(taken);
        self.take_line(&line)
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), ChunkedError> {
        match self.state {
            State::Line => self.chunk_line(line),
            State::ChunkEnd if line == b"\r\n" => {
                self.state = State::Line;
                Ok(())
            }
            State::ChunkEnd => Err(ChunkedError::Malformed("a chunk is longer than it says")),
            State::Trailers => self.trailer_line(line),
            State::Chunk(_) | State::End => unreachable!("no lines are read in these states"),
        }
    }

    /// Reads `size[;chunk-signature=hex]\r\n`.
    fn chunk_line(&mut self, line: &[u8]) -> Result<(), ChunkedError> {
        let malformed = ChunkedError::Malformed("a chunk's line is not one");
        let line = line
            .strip_suffix(b"\r\n")
            .and_then(|line| std::str::from_utf8(line).ok());
        let line = line.ok_or(malformed.clone())?;
        let (size, extension) = line.split_once(';').unwrap_or((line, ""));
        let is_hex = (1..=16).contains(&size.len()) && size.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_hex {
            return Err(malformed);
        }
        let size = u64::from_str_radix(size, 16).map_err(|_| malformed.clone())?;
        if let Vouching::Signature { claimed, .. } = &mut self.vouching {
            *claimed = extension
                .strip_prefix("chunk-signature=")
                .ok_or(malformed)?
                .into();
        }
        self.announced_bytes = self.announced_bytes.saturating_add(size);
        let is_last = size == 0;
        let is_wrong = if is_last {
            self.announced_bytes != self.expected_bytes
        } else {
            self.announced_bytes > self.expected_bytes
        };
        if is_wrong {
            let (expected, received) = (self.expected_bytes, self.announced_bytes);
            return Err(ChunkedError::Length { expected, received });
        }
        if is_last {
            self.judge_chunk()?;
            self.state = State::Trailers;
        } else {
            self.state = State::Chunk(size);
        }
        Ok(())
    }

    fn judge_chunk(&mut self) -> Result<(), ChunkedError> {
        match &mut self.vouching {
            Vouching::None => Ok(()),
            Vouching::Signature {
                signer,
                hash,
                claimed,
            } => {
                let signature = signer.sign_chunk(&hash.finalize_reset().into());
                if same_signature(&signature, claimed) {
                    Ok(())
                } else {
                    Err(ChunkedError::SignatureDoesNotMatch)
                }
            }
        }
    }

    /// Reads one line after the last chunk: a trailer, or the empty line at the end.
    fn trailer_line(&mut self, line: &[u8]) -> Result<(), ChunkedError> {
        self.trailer_bytes += line.len();
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(ChunkedError::MalformedTrailer);
        }
        let line = trimmed(line);
        if line.is_empty() {
            // Signed trailers end with their signature. Before it, empty lines are tolerated:
            // the page that defines them shows `value\n\r\n`, and some clients do so.
            let is_early = self.trailer_rule == TrailerRule::Signed
                && !self.trailers.contains_key(TRAILER_SIGNATURE);
            if !is_early {
                self.judge_trailers()?;
            }
            return Ok(());
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.ok_or(ChunkedError::MalformedTrailer)?);
        let name = HeaderName::from_bytes(name);
        let value = HeaderValue::from_bytes(trimmed(&value[1..]));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(ChunkedError::MalformedTrailer);
        };
        // A second value would make it a matter of taste which one counts.
        match self.trailers.insert(name, value) {
            None => Ok(()),
            Some(_) => Err(ChunkedError::MalformedTrailer),
        }
    }

    /// Judges the trailers once all of them are here.
    fn judge_trailers(&mut self) -> Result<(), ChunkedError> {
        let claimed = self.trailers.remove(TRAILER_SIGNATURE);
        match self.trailer_rule {
            TrailerRule::None if !self.trailers.is_empty() => {
                return Err(ChunkedError::MalformedTrailer);
            }
            TrailerRule::None | TrailerRule::Unsigned | TrailerRule::Unchecked => {}
            TrailerRule::Signed => {
                let claimed = claimed.ok_or(ChunkedError::MalformedTrailer)?;
                self.judge_trailer_signature(&claimed)?;
            }
        }
        let is_announced = |name| self.announced_trailers.contains(name);
        let is_complete = self.trailers.len() == self.announced_trailers.len()
            && self.trailers.keys().all(is_announced);
        if !is_complete {
            return Err(ChunkedError::MalformedTrailer);
        }
        self.state = State::End;
        Ok(())
    }

    fn judge_trailer_signature(&mut self, claimed: &HeaderValue) -> Result<(), ChunkedError> {
        let digest = trailers_sha256(&self.trailers);
        match &mut self.vouching {
            Vouching::None => Ok(()),
            Vouching::Signature { signer, .. } => {
                let signature = signer.sign_trailers(&digest);
                if claimed
                    .to_str()
                    .is_ok_and(|claimed| same_signature(&signature, claimed))
                {
                    Ok(())
                } else {
                    Err(ChunkedError::SignatureDoesNotMatch)
                }
            }
        }
    }
}

/// SHA-256 of the lines that a trailer signature covers: sorted, `name:value\n` each.
pub(super) fn trailers_sha256(trailers: &HeaderMap) -> [u8; 32] {
    let mut lines: Vec<_> = trailers.iter().collect();
    lines.sort_by_key(|(name, _)| name.as_str());
    let mut hash = Sha256::new();
    for (name, value) in lines {
        hash.update(name.as_str());
        hash.update(b":");
        hash.update(value.as_bytes());
        hash.update(b"\n");
    }
    hash.finalize().into()
}

/// Without the blanks and line ends around it.
fn trimmed(line: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let start = line.iter().position(is_text).unwrap_or(line.len());
    let end = line
        .iter()
        .rposition(is_text)
        .map_or(start, |last| last + 1);
    &line[start..end]
}

/// Splits off the front of `input`, sharing its memory.
fn take_at_most(input: &mut Bytes, bytes_max: u64) -> Bytes {
    let len = usize::try_from(bytes_max).map_or(input.len(), |max| max.min(input.len()));
    input.split_to(len)
}
