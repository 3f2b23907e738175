//! Conditions of a statement: an operator, a key, and the values it is compared with.
//!
//! Source: IAM User Guide, "IAM JSON policy elements: Condition operators" and "Conditions with
//! multiple context keys or values". Each key here has one value at most, so the set operators
//! differ only where it has none: `ForAllValues` then holds and `ForAnyValue` does not.

use std::{cmp::Ordering, net::IpAddr};

use super::{
    AccessRequest, Effect,
    json::Json,
    key::{Key, Type, Value, parse_date, parse_number},
    pattern::{Pattern, Subject, Variables, Wildcards},
};

/// One compiled condition.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    key: Key,
    test: Test,
    polarity: Polarity,
    absent: Absent,
}

/// Whether a value must equal one of the policy's, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Polarity {
    AnyOf,
    NoneOf,
}

/// What holds when the request has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absent {
    Holds,
    Fails,
}

/// How many of the request's values must pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantifier {
    /// The one there is.
    One,
    /// `ForAnyValue`.
    Any,
    /// `ForAllValues`.
    All,
}

#[derive(Debug, Clone)]
enum Test {
    /// Wildcards where the operator has them.
    Text(Vec<Pattern>),
    TextIgnoringCase(Vec<Pattern>),
    /// An ARN in its six parts; the account is not compared.
    Arn(Vec<[Pattern; 6]>),
    Number(Relation, Vec<i64>),
    Bool(Vec<bool>),
    Ip(Vec<Network>),
    Null(Vec<Presence>),
}

/// How a number or date must stand to the policy's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Relation {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// What `Null` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Absent,
    Present,
}

/// Addresses that share their first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match bits {
            None => bits_max,
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
        };
        (prefix_bits <= bits_max).then_some(Self {
            address,
            prefix_bits,
        })
    }

    fn contains(self, address: IpAddr) -> bool {
        // A shift by all bits of the type is `None`: a prefix of no bits holds every address.
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() ^ other.to_bits())
                .checked_shr(32 - self.prefix_bits)
                .is_none_or(|differing| differing == 0),
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits())
                .checked_shr(128 - self.prefix_bits)
                .is_none_or(|differing| differing == 0),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// What the name of an operator says, without its prefix and suffix.
#[derive(Debug, Clone, Copy)]
enum Family {
    Text(Wildcards),
    TextIgnoringCase,
    Arn,
    Number(Relation),
    Date(Relation),
    Bool,
    Ip,
    Null,
}

impl Condition {
    /// Compiles one key of one operator.
    ///
    /// # Errors
    /// What is wrong with the operator, the key or a value.
    pub(super) fn compile(
        operator: &str,
        key: &str,
        values: &Json,
        variables: Variables,
    ) -> Result<Self, String> {
        let (quantifier, rest) = match operator.split_once(':') {
            Some(("ForAnyValue", rest)) => (Quantifier::Any, rest),
            Some(("ForAllValues", rest)) => (Quantifier::All, rest),
            Some(_) => return Err(unknown_operator(operator)),
            None => (Quantifier::One, operator),
        };
        let (base, if_exists) = match rest.strip_suffix("IfExists") {
            Some(base) => (base, true),
            None => (rest, false),
        };
        let (family, polarity) = parse_operator(base).ok_or_else(|| unknown_operator(operator))?;
        let key = Key::find(key)?;
        check_type(operator, family, key)?;
        if matches!(family, Family::Null) && (quantifier != Quantifier::One || if_exists) {
            return Err("Null takes no IfExists and no set operator".to_owned());
        }
        let without_value = match quantifier {
            Quantifier::One => polarity == Polarity::NoneOf,
            Quantifier::Any => false,
            Quantifier::All => true,
        };
        let absent = if without_value || if_exists {
            Absent::Holds
        } else {
            Absent::Fails
        };
        let test = Test::compile(family, key, values, variables)?;
        Ok(Self {
            key,
            test,
            polarity,
            absent,
        })
    }

    /// Whether the request meets it, for a statement of this effect.
    pub(super) fn holds(&self, effect: Effect, request: &AccessRequest<'_>) -> bool {
        let value = self.key.value(request);
        if let Test::Null(wanted) = &self.test {
            let presence = if value.is_some() {
                Presence::Present
            } else {
                Presence::Absent
            };
            return wanted.contains(&presence);
        }
        let Some(value) = value else {
            return self.absent == Absent::Holds;
        };
        match self.test.matches(effect, &value, request) {
            Some(matches) => matches == (self.polarity == Polarity::AnyOf),
            // Cannot be told: nothing is allowed by it, and nothing escapes a deny.
            None => effect == Effect::Deny,
        }
    }
}

fn unknown_operator(operator: &str) -> String {
    format!(
        "{operator:?} is not supported; supported are String[Not]Equals[IgnoreCase], \
         String[Not]Like, Numeric… and Date… ([Not]Equals, LessThan[Equals], \
         GreaterThan[Equals]), Bool, [Not]IpAddress, Arn[Not]Equals, Arn[Not]Like, Null, each \
         but Null with IfExists, ForAnyValue: or ForAllValues:"
    )
}

fn parse_operator(name: &str) -> Option<(Family, Polarity)> {
    use Polarity::{AnyOf, NoneOf};
    let literal = Family::Text(Wildcards::Literal);
    let like = Family::Text(Wildcards::Active);
    Some(match name {
        "StringEquals" => (literal, AnyOf),
        "StringNotEquals" => (literal, NoneOf),
        "StringEqualsIgnoreCase" => (Family::TextIgnoringCase, AnyOf),
        "StringNotEqualsIgnoreCase" => (Family::TextIgnoringCase, NoneOf),
        "StringLike" => (like, AnyOf),
        "StringNotLike" => (like, NoneOf),
        "Bool" => (Family::Bool, AnyOf),
        "IpAddress" => (Family::Ip, AnyOf),
        "NotIpAddress" => (Family::Ip, NoneOf),
        "ArnEquals" | "ArnLike" => (Family::Arn, AnyOf),
        "ArnNotEquals" | "ArnNotLike" => (Family::Arn, NoneOf),
        "Null" => (Family::Null, AnyOf),
        name => {
            let numeric = name.strip_prefix("Numeric");
            let (relation, polarity) = match numeric.or(name.strip_prefix("Date"))? {
                "Equals" => (Relation::Equal, AnyOf),
                "NotEquals" => (Relation::Equal, NoneOf),
                "LessThan" => (Relation::Less, AnyOf),
                "LessThanEquals" => (Relation::LessOrEqual, AnyOf),
                "GreaterThan" => (Relation::Greater, AnyOf),
                "GreaterThanEquals" => (Relation::GreaterOrEqual, AnyOf),
                _ => return None,
            };
            let family = if numeric.is_some() {
                Family::Number
            } else {
                Family::Date
            };
            (family(relation), polarity)
        }
    })
}

fn check_type(operator: &str, family: Family, key: Key) -> Result<(), String> {
    let (fits, right) = match key.value_type() {
        Type::Text => (
            matches!(family, Family::Text(_) | Family::TextIgnoringCase),
            "a String operator",
        ),
        Type::Number => (matches!(family, Family::Number(_)), "a Numeric operator"),
        Type::Date => (matches!(family, Family::Date(_)), "a Date operator"),
        Type::Epoch => (
            matches!(family, Family::Date(_) | Family::Number(_)),
            "a Date or Numeric operator",
        ),
        Type::Bool => (matches!(family, Family::Bool), "Bool"),
        Type::Ip => (matches!(family, Family::Ip), "IpAddress or NotIpAddress"),
        Type::Arn => (matches!(family, Family::Arn), "an Arn operator"),
    };
    if fits || matches!(family, Family::Null) {
        Ok(())
    } else {
        Err(format!(
            "{operator} does not fit this key, which takes {right}"
        ))
    }
}

impl Test {
    fn compile(
        family: Family,
        key: Key,
        values: &Json,
        variables: Variables,
    ) -> Result<Self, String> {
        let texts = texts(values)?;
        let pattern = |wildcards| {
            move |text: &String| {
                let relative = text
                    .strip_prefix('/')
                    .filter(|_| key.ignores_leading_slash());
                Pattern::compile(relative.unwrap_or(text), wildcards, variables)
            }
        };
        Ok(match family {
            Family::Text(wildcards) => Self::Text(all(&texts, pattern(wildcards))?),
            Family::TextIgnoringCase => {
                Self::TextIgnoringCase(all(&texts, pattern(Wildcards::Literal))?)
            }
            Family::Arn => Self::Arn(all(&texts, |text| arn_parts(text, variables))?),
            Family::Number(relation) => Self::Number(
                relation,
                all(&texts, |t| {
                    parse_number(t).ok_or(format!("{t:?} is no whole number"))
                })?,
            ),
            Family::Date(relation) => Self::Number(
                relation,
                all(&texts, |t| {
                    parse_date(t).ok_or(format!(
                        "{t:?} is no date; write it as 2013-06-30T00:00:00Z"
                    ))
                })?,
            ),
            Family::Bool => Self::Bool(all(&texts, |text| parse_bool(text))?),
            Family::Ip => Self::Ip(all(&texts, |text| {
                Network::parse(text).ok_or(format!(
                    "{text:?} is no address or network such as 203.0.113.0/24"
                ))
            })?),
            Family::Null => Self::Null(all(&texts, |text| {
                parse_bool(text).map(|absent| {
                    if absent {
                        Presence::Absent
                    } else {
                        Presence::Present
                    }
                })
            })?),
        })
    }

    /// Whether `value` equals one of the policy's; `None` when it cannot be told.
    fn matches(
        &self,
        effect: Effect,
        value: &Value<'_>,
        request: &AccessRequest<'_>,
    ) -> Option<bool> {
        match (self, value) {
            (Self::Text(patterns), Value::Text(text)) => any(effect, patterns, |p| {
                p.matches(Subject::Text(text), request).ok()
            }),
            (Self::TextIgnoringCase(patterns), Value::Text(text)) => any(effect, patterns, |p| {
                Some(equal_ignoring_case(&p.resolve(request).ok()?, text))
            }),
            (Self::Arn(patterns), Value::Text(text)) => {
                any(effect, patterns, |parts| arn_matches(parts, text, request))
            }
            (Self::Number(relation, values), Value::Number(number)) => {
                let number = (*number)?;
                Some(values.iter().any(|value| relation.holds(number.cmp(value))))
            }
            (Self::Bool(values), Value::Bool(value)) => Some(values.contains(value)),
            (Self::Ip(networks), Value::Ip(address)) => {
                Some(networks.iter().any(|network| network.contains(*address)))
            }
            // `check_type` lets no other pair pass.
            _ => None,
        }
    }
}

/// Whether any pattern matches. A variable without a value matches nothing, and lets an allow
/// judge nothing.
fn any<T>(effect: Effect, patterns: &[T], matches: impl Fn(&T) -> Option<bool>) -> Option<bool> {
    let mut found = false;
    for pattern in patterns {
        match (matches(pattern), effect) {
            (Some(this), _) => found |= this,
            (None, Effect::Deny) => {}
            (None, Effect::Allow) => return None,
        }
    }
    Some(found)
}

fn equal_ignoring_case(a: &str, b: &str) -> bool {
    a.chars()
        .flat_map(char::to_lowercase)
        .eq(b.chars().flat_map(char::to_lowercase))
}

/// One value or a list of at least one, each as text.
fn texts(values: &Json) -> Result<Vec<String>, String> {
    let one = std::slice::from_ref(values);
    let list = if let Json::List(list) = values {
        list.as_slice()
    } else {
        one
    };
    if list.is_empty() {
        return Err("no value to compare with".to_owned());
    }
    list.iter()
        .map(|value| match value {
            Json::Text(text) => Ok(text.clone()),
            Json::Bool(value) => Ok(value.to_string()),
            Json::Number(value) => Ok(value.to_string()),
            other => Err(format!("a value is {}, not a string", other.kind())),
        })
        .collect()
}

fn all<T>(
    texts: &[String],
    parse: impl Fn(&String) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    texts.iter().map(parse).collect()
}

fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

fn arn_parts(text: &str, variables: Variables) -> Result<[Pattern; 6], String> {
    let parts: Vec<_> = text
        .splitn(6, ':')
        .map(|part| Pattern::compile(part, Wildcards::Active, variables))
        .collect::<Result<_, _>>()?;
    parts
        .try_into()
        .map_err(|_| format!("{text:?} is no ARN of six parts"))
}

fn arn_matches(patterns: &[Pattern; 6], arn: &str, request: &AccessRequest<'_>) -> Option<bool> {
    const ACCOUNT: usize = 4;
    let mut matched = true;
    for (i, (pattern, part)) in patterns.iter().zip(arn.splitn(6, ':')).enumerate() {
        matched &= i == ACCOUNT || pattern.matches(Subject::Text(part), request).ok()?;
    }
    Some(matched)
}
