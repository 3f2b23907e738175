//! What is wrong with an input: which key, what it holds, what it may hold, what to do.

use std::fmt;

/// One thing wrong; all of them are reported at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The key, as the reader wrote it: `s3.put`, `--delay`.
    pub key: String,
    /// What it holds now.
    pub value: String,
    /// What it may hold.
    pub allowed: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            value,
            allowed,
            remedy,
        } = self;
        write!(
            f,
            "{key} = {value}\n  allowed: {allowed}\n  remedy:  {remedy}"
        )
    }
}

/// An input that can't be used, with all that is wrong. A program leaves with 64 (`EX_USAGE`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FaultyInput {
    /// What was read: `the price book prices.toml`.
    pub input: String,
    /// At least one.
    pub faults: Vec<Fault>,
}

impl fmt::Display for FaultyInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.faults.len() {
            1 => write!(f, "1 fault in {}", self.input)?,
            more => write!(f, "{more} faults in {}", self.input)?,
        }
        for fault in &self.faults {
            write!(f, "\n\n{fault}")?;
        }
        Ok(())
    }
}
