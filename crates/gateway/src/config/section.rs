//! Reads single values of the raw config: judges each, falls back to its default on a fault, and
//! notes what is in force, so that `config show` can't forget a key.
//!
//! Called by `check` only. A faulty value never stops the check: its default stands in for it,
//! and all faults come out at the end.

use std::{fmt::Display, ops::RangeInclusive, time::Duration};

use super::{
    entry::{Entry, Provenance, Source},
    fault::Fault,
    outside::Outside,
    shape::join,
    value::{ByteSize, MIB, Share, Span},
};

/// All that a check finds.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    provenance: &'a Provenance,
    pub(super) faults: Vec<Fault>,
    pub(super) entries: Vec<Entry>,
    pub(super) warnings: Vec<String>,
    /// What is named and lies elsewhere.
    pub(super) outside: Vec<Outside>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(provenance: &'a Provenance) -> Self {
        Self {
            provenance,
            faults: Vec::new(),
            entries: Vec::new(),
            warnings: Vec::new(),
            outside: Vec::new(),
        }
    }

    /// The part of the config at `path`; empty for the whole.
    pub(super) fn section(&mut self, path: impl Into<String>) -> Section<'_, 'a> {
        Section {
            findings: self,
            path: path.into(),
        }
    }
}

/// One table of the config while it is checked.
#[derive(Debug)]
pub(super) struct Section<'f, 'a> {
    findings: &'f mut Findings<'a>,
    path: String,
}

/// What a value may be, and what it is when nobody sets it.
#[derive(Debug)]
pub(super) struct Rule<T> {
    pub(super) default: T,
    pub(super) range: RangeInclusive<T>,
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "a raw value is handed over whole, so that nothing reads it after its check"
)]
impl<'a> Section<'_, 'a> {
    /// The table `key` inside this one.
    pub(super) fn inner(&mut self, key: &str) -> Section<'_, 'a> {
        let path = self.at(key);
        Section {
            findings: self.findings,
            path,
        }
    }

    /// The dotted path of `key`.
    pub(super) fn at(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// The dotted path of the table itself.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Notes what is named here and lies elsewhere.
    pub(super) fn note_outside(&mut self, outside: Outside) {
        self.findings.outside.push(outside);
    }

    /// Notes the value in force of `key`.
    pub(super) fn note(&mut self, key: &str, value: impl Into<String>, given: Given) {
        let key = self.at(key);
        let source = match given {
            Given::Yes => self.findings.provenance.of(&key),
            Given::No => Source::Default,
        };
        self.findings.entries.push(Entry {
            key,
            value: value.into(),
            source,
        });
    }

    /// Adds a fault of `key`.
    pub(super) fn fault(&mut self, key: &str, wrong: Wrong<'_>) {
        self.findings.faults.push(Fault {
            key: self.at(key),
            value: wrong.value,
            allowed: wrong.allowed.to_owned(),
            remedy: wrong.remedy.to_owned(),
        });
    }

    /// Whether a store has a fault of its own: what stands in for it is of no type then, so that
    /// faults of who names it would only mislead.
    pub(super) fn is_faulty_store(&self, name: &str) -> bool {
        let path = join("stores", name) + ".";
        let faults = &self.findings.faults;
        faults.iter().any(|fault| fault.key.starts_with(&path))
    }

    /// Adds a warning: what is so, and why it may not be meant.
    pub(super) fn warn(&mut self, text: String) {
        self.findings.warnings.push(text);
    }

    /// A fault of a key that must be set and is not.
    pub(super) fn missing(&mut self, key: &str, remedy: &str) {
        let wrong = Wrong {
            value: "(not set)".to_owned(),
            allowed: "a value",
            remedy,
        };
        self.fault(key, wrong);
    }

    /// A text, as it is.
    pub(super) fn text(&mut self, key: &str, raw: Option<String>) -> Option<String> {
        let given = Given::from(raw.is_some());
        self.note(
            key,
            raw.as_deref()
                .map_or_else(|| "(not set)".to_owned(), quoted),
            given,
        );
        raw
    }

    /// A text that has a default.
    pub(super) fn text_or(&mut self, key: &str, raw: Option<String>, default: &str) -> String {
        let given = Given::from(raw.is_some());
        let value = raw.unwrap_or_else(|| default.to_owned());
        self.note(key, quoted(&value), given);
        value
    }

    /// A list of texts that has a default.
    pub(super) fn texts_or(
        &mut self,
        key: &str,
        raw: Option<Vec<String>>,
        default: &[&str],
    ) -> Vec<String> {
        let given = Given::from(raw.is_some());
        let values = raw.unwrap_or_else(|| default.iter().map(|&text| text.to_owned()).collect());
        let printed: Vec<String> = values.iter().map(|text| quoted(text)).collect();
        self.note(key, format!("[{}]", printed.join(", ")), given);
        values
    }

    /// A number of bytes with its unit.
    pub(super) fn size(&mut self, key: &str, raw: Option<String>, rule: Rule<u64>) -> u64 {
        let range = ByteSize(*rule.range.start())..=ByteSize(*rule.range.end());
        let rule = Rule {
            default: ByteSize(rule.default),
            range,
        };
        self.unit(key, raw, ByteSize::parse, rule).0
    }

    /// A length of time with its unit.
    pub(super) fn span(
        &mut self,
        key: &str,
        raw: Option<String>,
        rule: Rule<Duration>,
    ) -> Duration {
        let range = Span(*rule.range.start())..=Span(*rule.range.end());
        let rule = Rule {
            default: Span(rule.default),
            range,
        };
        self.unit(key, raw, Span::parse, rule).0
    }

    /// A share of a whole with its percent sign.
    pub(super) fn share(&mut self, key: &str, raw: Option<String>, rule: Rule<Share>) -> f64 {
        self.unit(key, raw, Share::parse, rule).ratio()
    }

    /// A number of bytes with its unit, where none is no bound.
    pub(super) fn bound(
        &mut self,
        key: &str,
        raw: Option<String>,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        if raw.is_none() {
            self.note(key, "(not set)", Given::No);
            return None;
        }
        // Only for the texts of faults.
        let default = (100 * MIB).clamp(*range.start(), *range.end());
        Some(self.size(key, raw, Rule { default, range }))
    }

    fn unit<T: Copy + PartialOrd + Display>(
        &mut self,
        key: &str,
        raw: Option<String>,
        parse: fn(&str) -> Option<T>,
        rule: Rule<T>,
    ) -> T {
        let given = Given::from(raw.is_some());
        let parsed = raw.as_deref().map(parse);
        let value = match parsed {
            None => rule.default,
            Some(Some(value)) if rule.range.contains(&value) => value,
            Some(found) => {
                let remedy = match found {
                    Some(_) => format!("choose a value in this range, such as {}", rule.default),
                    None => format!(
                        "write a whole number with its unit, such as \"{}\"",
                        rule.default
                    ),
                };
                let allowed = format!("{} to {}", rule.range.start(), rule.range.end());
                let value = quoted(raw.as_deref().unwrap_or_default());
                self.fault(
                    key,
                    Wrong {
                        value,
                        allowed: &allowed,
                        remedy: &remedy,
                    },
                );
                rule.default
            }
        };
        self.note(key, quoted(&value.to_string()), given);
        value
    }

    /// A whole number.
    pub(super) fn count(&mut self, key: &str, raw: Option<i64>, rule: Rule<u32>) -> u32 {
        let value = match raw.map(u32::try_from) {
            None => rule.default,
            Some(Ok(value)) if rule.range.contains(&value) => value,
            Some(_) => {
                let allowed = format!("{} to {}", rule.range.start(), rule.range.end());
                let remedy = format!("choose a number in this range, such as {}", rule.default);
                let value = raw.unwrap_or_default().to_string();
                self.fault(
                    key,
                    Wrong {
                        value,
                        allowed: &allowed,
                        remedy: &remedy,
                    },
                );
                rule.default
            }
        };
        self.note(key, value.to_string(), Given::from(raw.is_some()));
        value
    }

    /// One of several words; the first is the default.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &str,
        raw: Option<String>,
        table: &[(&str, T)],
    ) -> T {
        let given = Given::from(raw.is_some());
        let found = match raw {
            None => Some(&table[0]),
            Some(ref word) => table.iter().find(|(name, _)| name == word),
        };
        let (name, value) = found.unwrap_or_else(|| {
            let names: Vec<String> = table.iter().map(|(name, _)| quoted(name)).collect();
            let value = quoted(raw.as_deref().unwrap_or_default());
            let wrong = Wrong {
                value,
                allowed: &names.join(", "),
                remedy: "choose one of these words",
            };
            self.fault(key, wrong);
            &table[0]
        });
        self.note(key, quoted(name), given);
        *value
    }

    /// Something that has a text form of its own, such as an address.
    pub(super) fn parsed<T: Display>(
        &mut self,
        key: &str,
        raw: &str,
        given: Given,
        form: Form<'_, T>,
    ) -> Option<T> {
        let value = (form.parse)(raw);
        if let Some(value) = &value {
            self.note(key, quoted(&value.to_string()), given);
        } else {
            let wrong = Wrong {
                value: quoted(raw),
                allowed: form.allowed,
                remedy: form.remedy,
            };
            self.fault(key, wrong);
        }
        value
    }
}

/// How a text of a certain form is read, and what to say when it can't be.
#[derive(Debug)]
pub(super) struct Form<'a, T> {
    pub(super) parse: fn(&str) -> Option<T>,
    pub(super) allowed: &'a str,
    pub(super) remedy: &'a str,
}

/// The texts of a fault, named so that none is taken for another.
#[derive(Debug)]
pub(super) struct Wrong<'a> {
    pub(super) value: String,
    pub(super) allowed: &'a str,
    pub(super) remedy: &'a str,
}

/// Whether somebody set a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    Yes,
    No,
}

impl From<bool> for Given {
    fn from(is_given: bool) -> Self {
        if is_given { Self::Yes } else { Self::No }
    }
}

/// A text as TOML writes it.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
