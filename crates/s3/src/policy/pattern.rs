//! Texts of a policy that may hold wildcards and policy variables.
//!
//! Compiled to pieces; matching walks them with one point of return, the last `*`, so its time is
//! at most the product of both lengths. A `*` crosses `/`, as in IAM.

use std::borrow::Cow;

use super::{AccessRequest, key::Key};

/// A compiled text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(Box<str>),
    /// `?`: one character.
    AnyOne,
    /// `*`: any characters, also none.
    AnyRun,
    /// `${key}` or `${key, 'default'}`.
    Variable(Key, Option<Box<str>>),
}

/// Whether `*` and `?` are wildcards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wildcards {
    Active,
    Literal,
}

/// Whether `${…}` is a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variables {
    /// Version 2012-10-17.
    Active,
    /// Older versions, where it would be plain text, which nobody means.
    Refused,
}

/// A variable has no value in this request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unresolved;

/// What a pattern is held against: a text, or `bucket/key` without joining them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subject<'a> {
    Text(&'a str),
    Joined(&'a str, &'a str),
}

impl Subject<'_> {
    fn len(self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Joined(bucket, key) => bucket.len() + 1 + key.len(),
        }
    }

    fn byte(self, at: usize) -> Option<u8> {
        match self {
            Self::Text(text) => text.as_bytes().get(at).copied(),
            Self::Joined(bucket, key) => match at.checked_sub(bucket.len()) {
                None => bucket.as_bytes().get(at).copied(),
                Some(0) => Some(b'/'),
                Some(past) => key.as_bytes().get(past - 1).copied(),
            },
        }
    }

    /// Where the character at `at` ends; `None` at the end.
    fn character_end(self, at: usize) -> Option<usize> {
        self.byte(at)?;
        let mut end = at + 1;
        while self.byte(end).is_some_and(|b| b & 0xC0 == 0x80) {
            end += 1;
        }
        Some(end)
    }

    fn has_at(self, at: usize, literal: &str) -> bool {
        let has = |text: &str, at: usize, part: &[u8]| {
            text.as_bytes()
                .get(at..)
                .is_some_and(|rest| rest.starts_with(part))
        };
        let literal = literal.as_bytes();
        let (bucket, key) = match self {
            Self::Text(text) => return has(text, at, literal),
            Self::Joined(bucket, key) => (bucket, key),
        };
        let Some(left) = bucket.len().checked_sub(at) else {
            return has(key, at - bucket.len() - 1, literal);
        };
        let (of_bucket, rest) = literal.split_at(left.min(literal.len()));
        let of_key = rest.strip_prefix(b"/");
        has(bucket, at, of_bucket)
            && (rest.is_empty() || of_key.is_some_and(|part| has(key, 0, part)))
    }
}

impl Pattern {
    /// Compiles `text`.
    ///
    /// # Errors
    /// What is wrong with a variable in it.
    pub(super) fn compile(
        text: &str,
        wildcards: Wildcards,
        variables: Variables,
    ) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let piece = match c {
                '*' if wildcards == Wildcards::Active => Piece::AnyRun,
                '?' if wildcards == Wildcards::Active => Piece::AnyOne,
                '$' if rest.starts_with("${") => {
                    let (piece, after) = variable(rest, variables)?;
                    rest = after;
                    match piece {
                        Piece::Literal(escaped) => literal.push_str(&escaped),
                        piece => push(&mut pieces, &mut literal, piece),
                    }
                    continue;
                }
                c => {
                    literal.push(c);
                    rest = &rest[c.len_utf8()..];
                    continue;
                }
            };
            rest = &rest[1..];
            push(&mut pieces, &mut literal, piece);
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.into()));
        }
        Ok(Self(pieces))
    }

    /// Whether the whole of `subject` matches.
    ///
    /// # Errors
    /// [`Unresolved`] when any variable has no value, wherever the match would have ended.
    pub(super) fn matches(
        &self,
        subject: Subject<'_>,
        request: &AccessRequest<'_>,
    ) -> Result<bool, Unresolved> {
        for piece in &self.0 {
            if let Piece::Variable(key, default) = piece {
                resolve(*key, default.as_deref(), request)?;
            }
        }
        let (mut piece, mut at) = (0, 0);
        // Where to go on when a try fails: the piece after the last `*`, and what it has not eaten.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            let next = match self.0.get(piece) {
                None if at == subject.len() => return Ok(true),
                None => None,
                Some(Piece::AnyRun) if piece + 1 == self.0.len() => return Ok(true),
                Some(Piece::AnyRun) => {
                    retry = Some((piece + 1, at));
                    Some(at)
                }
                Some(Piece::AnyOne) => subject.character_end(at),
                Some(Piece::Literal(text)) => subject.has_at(at, text).then(|| at + text.len()),
                Some(Piece::Variable(key, default)) => {
                    let value = resolve(*key, default.as_deref(), request)?;
                    subject.has_at(at, &value).then(|| at + value.len())
                }
            };
            if let Some(next) = next {
                (piece, at) = (piece + 1, next);
                continue;
            }
            let Some((after_run, eaten)) = retry else {
                return Ok(false);
            };
            let Some(eaten) = subject.character_end(eaten) else {
                return Ok(false);
            };
            retry = Some((after_run, eaten));
            (piece, at) = (after_run, eaten);
        }
    }

    /// The text with its variables resolved, for a pattern compiled without wildcards.
    pub(super) fn resolve<'a>(
        &'a self,
        request: &AccessRequest<'a>,
    ) -> Result<Cow<'a, str>, Unresolved> {
        let mut text = Cow::Borrowed("");
        for piece in &self.0 {
            let value = match piece {
                Piece::Literal(literal) => Cow::Borrowed(&**literal),
                Piece::AnyOne => Cow::Borrowed("?"),
                Piece::AnyRun => Cow::Borrowed("*"),
                Piece::Variable(key, default) => resolve(*key, default.as_deref(), request)?,
            };
            if text.is_empty() {
                text = value;
            } else {
                text.to_mut().push_str(&value);
            }
        }
        Ok(text)
    }
}

/// Adds a piece after the literal before it; two runs are one.
fn push(pieces: &mut Vec<Piece>, literal: &mut String, piece: Piece) {
    if !literal.is_empty() {
        pieces.push(Piece::Literal(std::mem::take(literal).into()));
    }
    if piece != Piece::AnyRun || pieces.last() != Some(&Piece::AnyRun) {
        pieces.push(piece);
    }
}

/// Reads `${…}` at the start of `text`: what it is, and what follows.
fn variable(text: &str, variables: Variables) -> Result<(Piece, &str), String> {
    if variables == Variables::Refused {
        return Err("policy variables need \"Version\": \"2012-10-17\"".to_owned());
    }
    let (inner, after) = text[2..]
        .split_once('}')
        .ok_or("a variable without its closing brace")?;
    if let "*" | "?" | "$" = inner {
        return Ok((Piece::Literal(inner.into()), after));
    }
    let (name, default) = match inner.split_once(',') {
        Some((name, quoted)) => {
            let quoted = quoted.trim();
            let default = quoted
                .strip_prefix('\'')
                .and_then(|text| text.strip_suffix('\''));
            (
                name,
                Some(
                    default
                        .ok_or("the default of a variable stands in single quotes")?
                        .into(),
                ),
            )
        }
        None => (inner, None),
    };
    let key = Key::find(name.trim())?;
    if !key.is_text() {
        return Err(format!(
            "{} cannot be a variable: it is no text",
            name.trim()
        ));
    }
    Ok((Piece::Variable(key, default), after))
}

fn resolve<'a>(
    key: Key,
    default: Option<&'a str>,
    request: &AccessRequest<'a>,
) -> Result<Cow<'a, str>, Unresolved> {
    key.text(request)
        .or(default.map(Cow::Borrowed))
        .ok_or(Unresolved)
}
