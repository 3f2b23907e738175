//! Reads a `multipart/form-data` body as it arrives: the fields first, then the file's bytes.
//!
//! What makes a part the file is its name, `file`, and not a `filename`: some clients send one
//! with every field. Names are compared in lower case, as S3 does. A field that comes twice is
//! refused, since it would be a matter of taste which one the policy judged; `x-amz-meta-*`
//! fields are joined with a comma, as headers are.

use bytes::{Buf as _, Bytes, BytesMut};

use super::{FIELDS_BYTES_MAX, PostError};

/// RFC 2046 §5.1.1.
const BOUNDARY_BYTES_MAX: usize = 70;

/// What [`FormReader::step`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing more in what was pushed so far.
    NeedMore,
    /// All fields before the file; comes once, before the first `File`.
    Fields(FormFields),
    /// The next bytes of the file.
    File(Bytes),
    /// The file is complete.
    End,
}

/// The fields of a form that stand before its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormFields {
    /// Names in lower case, in the order of the form.
    fields: Vec<(String, String)>,
    filename: Option<String>,
}

/// What the client wants as an answer to a successful upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuccessAction {
    /// `303 See Other` to this URL, with `bucket`, `key` and `etag` added to its query.
    Redirect(String),
    /// `200` with an empty body.
    Ok,
    /// `201` with a `PostResponse` document.
    Created,
    /// `204`, the default.
    NoContent,
}

impl FormFields {
    /// The value of a field by its lower-case name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value)
    }

    /// All fields, names in lower case, in the order of the form.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The name that the file has at the client, without directories.
    pub fn filename(&self) -> Option<&str> {
        self.filename.as_deref()
    }

    /// The key to upload to, with `${filename}` filled in where the file has a name.
    ///
    /// # Errors
    /// [`PostError::FieldMissing`] without a `key`.
    pub fn key(&self) -> Result<String, PostError> {
        let key = self.get("key").ok_or(PostError::FieldMissing("key"))?;
        Ok(match &self.filename {
            Some(filename) => key.replace("${filename}", filename),
            None => key.to_owned(),
        })
    }

    /// What to answer; an unknown status is the default, and so is a URL that is not absolute.
    pub fn success_action(&self) -> SuccessAction {
        let is_absolute = |url: &&str| url.starts_with("http://") || url.starts_with("https://");
        let redirect = self
            .get("success_action_redirect")
            .or_else(|| self.get("redirect"));
        if let Some(url) = redirect.filter(is_absolute) {
            return SuccessAction::Redirect(url.to_owned());
        }
        match self.get("success_action_status") {
            Some("200") => SuccessAction::Ok,
            Some("201") => SuccessAction::Created,
            _ => SuccessAction::NoContent,
        }
    }

    fn add(&mut self, name: String, value: String) -> Result<(), PostError> {
        match self.fields.iter_mut().find(|(field, _)| *field == name) {
            None => self.fields.push((name, value)),
            Some((field, joined)) if field.starts_with("x-amz-meta-") => {
                joined.push(',');
                joined.push_str(&value);
            }
            Some(_) => return Err(PostError::Malformed("a field comes twice")),
        }
        Ok(())
    }
}

/// Reads one form.
#[derive(Debug)]
pub struct FormReader {
    /// `\r\n--boundary`.
    delimiter: Vec<u8>,
    state: State,
    fields: FormFields,
    /// What has arrived of the fields and is not read yet.
    head: BytesMut,
    /// How much of `head` holds no delimiter, so that small pieces are not searched again.
    searched: usize,
    /// Bytes of fields that were read.
    fields_bytes: usize,
    /// What has arrived of the file and is not given on yet.
    file: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Before the first delimiter.
    Preamble,
    /// After a delimiter, before the end of its line.
    Delimiter,
    /// In the header lines of a part.
    PartHead,
    /// In the value of this field.
    Value(String),
    /// In the file.
    File,
    End,
}

/// The header lines of a part, as far as they matter.
struct PartHead {
    name: String,
    filename: Option<String>,
}

impl FormReader {
    /// Prepares for a body of this `Content-Type`.
    ///
    /// # Errors
    /// [`PostError::NotAForm`] for another type, [`PostError::Malformed`] without a boundary.
    pub fn new(content_type: &str) -> Result<Self, PostError> {
        let (media_type, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
        if !media_type
            .trim()
            .eq_ignore_ascii_case("multipart/form-data")
        {
            return Err(PostError::NotAForm);
        }
        let boundary = Parameters(parameters)
            .find_map(|(name, value)| name.eq_ignore_ascii_case("boundary").then_some(value))
            .filter(|boundary| (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len()))
            .ok_or(PostError::Malformed("no boundary"))?;
        Ok(Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            state: State::Preamble,
            fields: FormFields::default(),
            // The first delimiter usually opens the body, without the line end of the others.
            head: BytesMut::from(&b"\r\n"[..]),
            searched: 0,
            fields_bytes: 0,
            file: Bytes::new(),
        })
    }

    /// Takes the next piece of the body. Call [`FormReader::step`] until it wants more before
    /// pushing again.
    pub fn push(&mut self, piece: Bytes) {
        match self.state {
            State::File if self.file.is_empty() => self.file = piece,
            State::File => {
                // Only the beginning of what may be a delimiter was kept back.
                let joined = [&self.file[..], &piece[..]].concat();
                self.file = joined.into();
            }
            State::End => {}
            State::Preamble | State::Delimiter | State::PartHead | State::Value(_) => {
                self.head.extend_from_slice(&piece);
            }
        }
    }

    /// Reads on in what was pushed.
    ///
    /// # Errors
    /// What is not a form, or one whose fields are too large, or one without a file.
    pub fn step(&mut self) -> Result<Step, PostError> {
        loop {
            match &self.state {
                State::End => return Ok(Step::End),
                State::File => return Ok(self.next_of_file()),
                State::Preamble | State::Delimiter | State::PartHead | State::Value(_) => {}
            }
            if !self.read_head()? {
                let unread = self.fields_bytes + self.head.len();
                if unread > FIELDS_BYTES_MAX {
                    return Err(PostError::FieldsTooLarge);
                }
                return Ok(Step::NeedMore);
            }
            if self.fields_bytes > FIELDS_BYTES_MAX {
                return Err(PostError::FieldsTooLarge);
            }
            if self.state == State::File {
                self.file = self.head.split().freeze();
                return Ok(Step::Fields(std::mem::take(&mut self.fields)));
            }
        }
    }

    /// Whether the body may end here: the file's closing delimiter has been read.
    pub fn is_complete(&self) -> bool {
        self.state == State::End
    }

    /// Bytes of the body after the fields that were pushed and not given on yet.
    pub fn unread_bytes(&self) -> usize {
        self.file.len()
    }

    /// Bytes that end a form whose file is its last field: the closing delimiter and a line end.
    pub fn closing_bytes(&self) -> usize {
        self.delimiter.len() + b"--\r\n".len()
    }

    /// Makes one step in the fields; `false` when more bytes are needed for it.
    fn read_head(&mut self) -> Result<bool, PostError> {
        let next = match &self.state {
            State::Preamble => {
                if self.take_until_delimiter().is_none() {
                    return Ok(false);
                }
                State::Delimiter
            }
            State::Delimiter => {
                if self.head.starts_with(b"--") {
                    return Err(PostError::FileMissing);
                }
                let Some(line) = self.take_until(b"\r\n") else {
                    return Ok(false);
                };
                if !line.iter().all(|byte| matches!(byte, b' ' | b'\t')) {
                    return Err(PostError::Malformed("a boundary is followed by text"));
                }
                State::PartHead
            }
            State::PartHead => {
                let Some(lines) = self.take_until(b"\r\n\r\n") else {
                    return Ok(false);
                };
                let part = PartHead::parse(&lines)?;
                if part.name == "file" {
                    self.fields.filename = part.filename;
                    State::File
                } else {
                    State::Value(part.name)
                }
            }
            State::Value(name) => {
                let name = name.clone();
                let Some(value) = self.take_until_delimiter() else {
                    return Ok(false);
                };
                let value = String::from_utf8(value.to_vec())
                    .map_err(|_| PostError::Malformed("a field is not UTF-8"))?;
                self.fields.add(name, value)?;
                State::Delimiter
            }
            State::File | State::End => unreachable!("the fields are behind us"),
        };
        self.state = next;
        Ok(true)
    }

    fn take_until_delimiter(&mut self) -> Option<BytesMut> {
        let delimiter = std::mem::take(&mut self.delimiter);
        let taken = self.take_until(&delimiter);
        self.delimiter = delimiter;
        taken
    }

    /// Takes what stands before `end`, and drops `end`.
    fn take_until(&mut self, end: &[u8]) -> Option<BytesMut> {
        match find(&self.head[self.searched..], end) {
            Found::At(at) => {
                let taken = self.head.split_to(self.searched + at);
                self.head.advance(end.len());
                self.searched = 0;
                self.fields_bytes += taken.len() + end.len();
                Some(taken)
            }
            Found::Perhaps(at) => {
                self.searched += at;
                None
            }
        }
    }

    fn next_of_file(&mut self) -> Step {
        if self.file.is_empty() {
            return Step::NeedMore;
        }
        match find(&self.file, &self.delimiter) {
            Found::At(0) => {
                self.file = Bytes::new();
                self.state = State::End;
                Step::End
            }
            Found::Perhaps(0) => Step::NeedMore,
            Found::At(at) | Found::Perhaps(at) => Step::File(self.file.split_to(at)),
        }
    }
}

impl PartHead {
    fn parse(lines: &[u8]) -> Result<Self, PostError> {
        let malformed = PostError::Malformed("a part has no name");
        let lines = std::str::from_utf8(lines).map_err(|_| malformed.clone())?;
        let disposition = lines
            .split("\r\n")
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case("content-disposition"));
        let (_, value) = disposition.ok_or(malformed.clone())?;
        let (kind, parameters) = value.split_once(';').ok_or(malformed.clone())?;
        if !kind.trim().eq_ignore_ascii_case("form-data") {
            return Err(malformed);
        }
        let (mut name, mut filename) = (None, None);
        for (parameter, value) in Parameters(parameters) {
            if parameter.eq_ignore_ascii_case("name") {
                name = Some(value.to_ascii_lowercase());
            } else if parameter.eq_ignore_ascii_case("filename") {
                // Some browsers send the whole path.
                let base = value.rsplit(['/', '\\']).next().unwrap_or_default();
                filename = Some(base.to_owned());
            }
        }
        Ok(Self {
            name: name.filter(|name| !name.is_empty()).ok_or(malformed)?,
            filename,
        })
    }
}

/// The parameters of a header value: `; name=token; name="quoted"`.
struct Parameters<'a>(&'a str);

impl<'a> Iterator for Parameters<'a> {
    type Item = (&'a str, String);

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.0.trim_start_matches([';', ' ', '\t']);
        let (name, rest) = text.split_once('=')?;
        let Some(quoted) = rest.strip_prefix('"') else {
            let end = rest.find(';').unwrap_or(rest.len());
            self.0 = &rest[end..];
            return Some((name.trim(), rest[..end].trim().to_owned()));
        };
        let mut value = String::new();
        let mut characters = quoted.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.0 = &quoted[at + 1..];
                    return Some((name.trim(), value));
                }
                // Before anything else a backslash is itself: paths of Windows hold them.
                '\\' if matches!(characters.peek(), Some((_, '"' | '\\'))) => {
                    value.extend(characters.next().map(|(_, escaped)| escaped));
                }
                other => value.push(other),
            }
        }
        None
    }
}

/// Where a pattern is in some bytes.
enum Found {
    /// It starts here.
    At(usize),
    /// Nowhere, but it may start here once more bytes come; at the end when it cannot.
    Perhaps(usize),
}

fn find(bytes: &[u8], pattern: &[u8]) -> Found {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == pattern[0]) {
        let start = from + at;
        let rest = &bytes[start..];
        if rest.starts_with(pattern) {
            return Found::At(start);
        }
        if pattern.starts_with(rest) {
            return Found::Perhaps(start);
        }
        from = start + 1;
    }
    Found::Perhaps(bytes.len())
}
