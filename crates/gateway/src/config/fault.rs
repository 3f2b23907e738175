//! What is wrong with a config: which key, what it holds, what it may hold, what to do.

use std::fmt;

/// One thing wrong with the config; all of them are reported at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Dotted path of the key, such as `routes[0].layers[0].memory`.
    pub key: String,
    /// What it holds now; secrets never get here.
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
