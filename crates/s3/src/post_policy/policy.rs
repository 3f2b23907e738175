//! The policy of a POST form: what its fields and its file must be.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{FormFields, PostError};
use crate::time::parse_rfc3339;

/// A policy document, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostPolicy {
    expires_unix_millis: i64,
    conditions: Vec<Condition>,
    bytes_min: u64,
    bytes_max: u64,
}

/// A condition on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    /// The name in lower case, without the `$`.
    field: String,
    test: Test,
    operand: String,
    /// The condition as a list, for the client that fails it.
    shown: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Equals,
    StartsWith,
    /// The condition is well-formed and says nothing that can hold; S3 refuses the form then, and
    /// not the policy.
    Never,
}

impl PostPolicy {
    /// Reads the base64 of a policy document, as the `policy` field holds it.
    ///
    /// # Errors
    /// [`PostError::InvalidPolicy`] with what S3 says about it.
    pub fn parse(base64: &str) -> Result<Self, PostError> {
        // Some clients break the base64 into lines.
        let compact: String = base64.split_ascii_whitespace().collect();
        let json = STANDARD
            .decode(compact)
            .map_err(|_| invalid("invalid Base64 encoding."))?;
        let document: Map<String, Value> =
            serde_json::from_slice(&plain_escapes(&json)).map_err(|_| invalid("Invalid JSON."))?;
        let expiration = document
            .get("expiration")
            .ok_or_else(|| invalid("Policy missing expiration."))?;
        let expires_unix_millis = expiration.as_str().and_then(parse_rfc3339).ok_or_else(|| {
            invalid(&format!(
                "Invalid 'expiration' value: '{}'",
                unquoted(expiration)
            ))
        })?;
        let conditions = document
            .get("conditions")
            .ok_or_else(|| invalid("Policy missing conditions."))?;
        let conditions = conditions
            .as_array()
            .ok_or_else(|| invalid("Invalid 'conditions' value: must be a List."))?;
        let mut policy = Self {
            expires_unix_millis,
            conditions: Vec::with_capacity(conditions.len()),
            bytes_min: 0,
            bytes_max: u64::MAX,
        };
        for condition in conditions {
            match condition {
                Value::Object(simple) => policy.add_simple(simple)?,
                Value::Array(list) => policy.add_list(list)?,
                _ => return Err(invalid("Invalid condition test: must be a List or Object.")),
            }
        }
        Ok(policy)
    }

    /// Judges the fields of a form that is posted to `bucket`.
    ///
    /// # Errors
    /// [`PostError::Refused`] when the policy has expired, a condition fails, or a field has no
    /// condition; [`PostError::FieldMissing`] without a `key`.
    pub fn check(
        &self,
        fields: &FormFields,
        bucket: &str,
        now_unix_seconds: i64,
    ) -> Result<(), PostError> {
        if now_unix_seconds.saturating_mul(1000) > self.expires_unix_millis {
            return Err(PostError::Refused("Policy expired.".to_owned()));
        }
        let key = fields.key()?;
        let value = |field: &str| match field {
            "key" => Some(key.as_str()),
            "bucket" => Some(bucket),
            _ => fields.get(field),
        };
        for condition in &self.conditions {
            if !value(&condition.field).is_some_and(|value| condition.holds(value)) {
                let fault = format!("Policy Condition failed: {}", condition.shown);
                return Err(PostError::Refused(fault));
            }
        }
        let is_free = |name: &str| {
            matches!(name, "policy" | "x-amz-signature") || name.starts_with("x-ignore-")
        };
        let is_covered = |name: &str| {
            self.conditions
                .iter()
                .any(|condition| condition.field == name)
        };
        // The bucket counts as a field: a policy that names none would be good for all of them.
        let extra: Vec<&str> = fields
            .iter()
            .map(|(name, _)| name)
            .filter(|name| *name != "bucket")
            .chain(["bucket"])
            .filter(|name| !is_free(name) && !is_covered(name))
            .collect();
        if extra.is_empty() {
            return Ok(());
        }
        Err(PostError::Refused(format!(
            "Extra input fields: {}",
            extra.join(", ")
        )))
    }

    /// Judges the length of the file once it is known.
    ///
    /// # Errors
    /// [`PostError::TooLarge`], [`PostError::TooSmall`].
    pub const fn check_length(&self, file_bytes: u64) -> Result<(), PostError> {
        if file_bytes < self.bytes_min {
            let (proposed_bytes, bytes_min) = (file_bytes, self.bytes_min);
            return Err(PostError::TooSmall {
                proposed_bytes,
                bytes_min,
            });
        }
        self.check_length_so_far(file_bytes)
    }

    /// Judges the length of a file that is still arriving, to stop one that is too large early.
    ///
    /// # Errors
    /// [`PostError::TooLarge`].
    pub const fn check_length_so_far(&self, received_bytes: u64) -> Result<(), PostError> {
        if received_bytes > self.bytes_max {
            let (proposed_bytes, bytes_max) = (received_bytes, self.bytes_max);
            return Err(PostError::TooLarge {
                proposed_bytes,
                bytes_max,
            });
        }
        Ok(())
    }

    /// Adds `{"field": "value"}`.
    fn add_simple(&mut self, simple: &Map<String, Value>) -> Result<(), PostError> {
        let mut properties = simple.iter();
        let (Some((field, operand)), None) = (properties.next(), properties.next()) else {
            return Err(invalid(
                "Invalid Simple-Condition: Simple-Conditions must have exactly one property \
                 specified.",
            ));
        };
        let operand = operand
            .as_str()
            .ok_or_else(|| invalid("Invalid Simple-Condition: value must be a string."))?;
        let shown = format!("[\"eq\", \"${field}\", \"{operand}\"]");
        self.conditions
            .push(Condition::new(field, Test::Equals, operand, shown));
        Ok(())
    }

    /// Adds `["eq", "$field", "value"]`, `["starts-with", …]` or `["content-length-range", …]`.
    fn add_list(&mut self, list: &[Value]) -> Result<(), PostError> {
        let operation = list
            .first()
            .and_then(Value::as_str)
            .ok_or_else(|| invalid("Invalid Condition: missing operation identifier."))?;
        let name = operation.to_ascii_lowercase();
        let arguments = || invalid(&format!("Invalid {name}: wrong number of arguments."));
        let [_, first, second] = list else {
            return Err(arguments());
        };
        let shown = show(list);
        let test = match name.as_str() {
            "eq" => Test::Equals,
            "starts-with" => Test::StartsWith,
            "content-length-range" => return self.add_length_range(first, second, shown),
            _ => {
                let fault = format!("Invalid Condition: unknown operation '{operation}'.");
                return Err(invalid(&fault));
            }
        };
        let not_text = || invalid(&format!("Invalid {name}: arguments must be strings."));
        let field = first.as_str().ok_or_else(not_text)?;
        let operand = second.as_str().ok_or_else(not_text)?;
        let (test, field) = match field.strip_prefix('$') {
            Some(field) => (test, field),
            None => (Test::Never, field),
        };
        self.conditions
            .push(Condition::new(field, test, operand, shown));
        Ok(())
    }

    fn add_length_range(
        &mut self,
        min: &Value,
        max: &Value,
        shown: String,
    ) -> Result<(), PostError> {
        if min.is_i64() && !min.is_u64() || max.is_i64() && !max.is_u64() {
            return Err(invalid(
                "Invalid content-length-range: a limit is negative.",
            ));
        }
        match (read_length(min), read_length(max)) {
            (Some(min), Some(max)) => {
                self.bytes_min = self.bytes_min.max(min);
                self.bytes_max = self.bytes_max.min(max);
            }
            _ => self
                .conditions
                .push(Condition::new("", Test::Never, "", shown)),
        }
        Ok(())
    }
}

impl Condition {
    fn new(field: &str, test: Test, operand: &str, shown: String) -> Self {
        Self {
            field: field.to_ascii_lowercase(),
            test,
            operand: operand.to_owned(),
            shown,
        }
    }

    fn holds(&self, value: &str) -> bool {
        match self.test {
            Test::Equals => value == self.operand,
            // A list of content types must match in each of its entries.
            Test::StartsWith if self.field == "content-type" => value
                .split(',')
                .all(|entry| entry.trim().starts_with(&self.operand)),
            Test::StartsWith => value.starts_with(&self.operand),
            Test::Never => false,
        }
    }
}

/// A condition as S3 shows it: `["eq", "$key", "value"]`.
fn show(list: &[Value]) -> String {
    let entries: Vec<String> = list.iter().map(Value::to_string).collect();
    format!("[{}]", entries.join(", "))
}

/// Rewrites the two escapes that the policy language has and JSON has not: `\$` and `\v`.
fn plain_escapes(json: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(json.len());
    let mut bytes = json.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'$') => plain.push(b'$'),
            Some(b'v') => plain.extend_from_slice(b"\\u000b"),
            other => {
                plain.push(byte);
                plain.extend(other);
            }
        }
    }
    plain
}

fn invalid(fault: &str) -> PostError {
    PostError::InvalidPolicy(fault.to_owned())
}

/// A length as a number, or as a string of digits.
fn read_length(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn unquoted(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
