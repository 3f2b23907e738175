//! Whom a statement is about.

use super::json::Json;

/// The principals of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Principals {
    /// Everyone, anonymous or not; also the user of an identity policy.
    Everyone,
    /// These users.
    Only(Vec<Box<str>>),
    /// Everyone but these users.
    AllBut(Vec<Box<str>>),
}

/// What a `Principal` or `NotPrincipal` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    Everyone,
    Users(Vec<Box<str>>),
}

impl Principals {
    /// Whether the statement is about `user`; `None` is an anonymous request.
    pub(super) fn include(&self, user: Option<&str>) -> bool {
        let listed = |users: &[Box<str>]| user.is_some_and(|u| users.iter().any(|n| **n == *u));
        match self {
            Self::Everyone => true,
            Self::Only(users) => listed(users),
            Self::AllBut(users) => !listed(users),
        }
    }
}

impl Named {
    /// Reads `"*"` or `{"AWS": …}`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(value: &Json) -> Result<Self, String> {
        let fields = match value {
            Json::Text(text) if text == "*" => return Ok(Self::Everyone),
            Json::Object(fields) => fields.as_slice(),
            _ => return Err("write \"*\" or {\"AWS\": [\"alice\"]}".to_owned()),
        };
        let names = match fields {
            [(name, names)] if name == "AWS" => names,
            _ => return Err("only {\"AWS\": …} is supported".to_owned()),
        };
        let one = std::slice::from_ref(names);
        let names = if let Json::List(names) = names {
            names.as_slice()
        } else {
            one
        };
        if names.is_empty() {
            return Err("no user named".to_owned());
        }
        let mut users = Vec::new();
        let mut everyone = false;
        for name in names {
            match name {
                Json::Text(name) if name == "*" => everyone = true,
                Json::Text(name) => users.push(user_name(name)?.into()),
                other => return Err(format!("a principal is {}, not a string", other.kind())),
            }
        }
        Ok(if everyone {
            Self::Everyone
        } else {
            Self::Users(users)
        })
    }
}

/// The name in `alice` or `arn:aws:iam::ACCOUNT:user/PATH/alice`.
fn user_name(principal: &str) -> Result<&str, String> {
    let name = match principal.splitn(6, ':').collect::<Vec<_>>()[..] {
        [name] if name.len() == 12 && name.bytes().all(|b| b.is_ascii_digit()) => {
            return Err(format!("{name:?} is an account; name its users"));
        }
        [name] => Some(name),
        ["arn", _, "iam", "", _, user] => user
            .strip_prefix("user/")
            .map(|path| path.rsplit_once('/').map_or(path, |(_, n)| n)),
        _ => None,
    };
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"+=,.@_-".contains(&b);
    name.filter(|name| !name.is_empty() && name.bytes().all(allowed))
        .ok_or_else(|| {
            format!("{principal:?} names no user; write \"alice\" or \"arn:aws:iam::*:user/alice\"")
        })
}
