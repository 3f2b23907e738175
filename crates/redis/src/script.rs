//! The scripts that run in Redis: what must happen in one step.
//!
//! A script is sent by its hash, and by its text to a server that does not know it. Each judges all
//! before it writes, because what a script has written stays written when it fails. All keys of a
//! call lie in one slot. Replicas and the log get the effects, not the script (Redis 7), so a
//! script may ask for the time.
//!
//! Out of memory, a server refuses a script at its first command that may take memory, if that is
//! its first write; so a batch that only deletes begins with a deletion and goes through.

use std::sync::LazyLock;

use bytes::Bytes;
use redis::{Cmd, Pipeline};
use sha1::{Digest as _, Sha1};

/// Changes entries of one shard: see `apply.lua`.
pub(crate) static APPLY: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("apply.lua")));
/// Takes a lease.
pub(crate) static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("acquire.lua")));
/// Prolongs a lease, or gives it back.
pub(crate) static RENEW: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("renew.lua")));

/// A script.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    hash: String,
}

/// A call of a script.
#[derive(Debug)]
pub(crate) struct Call {
    script: &'static Script,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Bytes>,
    staged: Vec<Staged>,
}

/// A large argument, sent before its script under a key of its own: what passes through a script is
/// copied three times.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) key: Vec<u8>,
    pub(crate) bytes: Bytes,
}

/// Time to live of what is staged; the script takes it away, or the whole.
///
/// 1 min: a script comes right behind, and is given up after seconds.
const STAGED_TIME_MS: u32 = 60_000;

/// How a script is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// For a server that knows it.
    Hash,
    /// For one that does not, and learns it by this.
    Text,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self {
            text,
            hash: hex::encode(Sha1::digest(text)),
        }
    }

    /// A call with keys of one slot.
    pub(crate) fn call(&'static self, keys: Vec<Vec<u8>>) -> Call {
        Call {
            script: self,
            keys,
            arguments: Vec::new(),
            staged: Vec::new(),
        }
    }
}

impl Call {
    pub(crate) fn arg(&mut self, argument: impl Into<Bytes>) -> &mut Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn number(&mut self, number: usize) -> &mut Self {
        self.arg(number.to_string())
    }

    /// Sends these before the call, whose last keys they are.
    pub(crate) fn stage(&mut self, staged: Vec<Staged>) -> &mut Self {
        self.staged = staged;
        self
    }

    /// The call as it is sent; its answer is the last.
    pub(crate) fn command(&self, by: By) -> Pipeline {
        let (name, script) = match by {
            By::Hash => ("EVALSHA", self.script.hash.as_str()),
            By::Text => ("EVAL", self.script.text),
        };
        let keys_bytes: usize = self.keys.iter().map(Vec::len).sum();
        let arguments_bytes: usize = self.arguments.iter().map(Bytes::len).sum();
        let mut commands = Pipeline::with_capacity(1 + self.staged.len());
        for Staged { key, bytes } in &self.staged {
            let mut command = Cmd::with_capacity(5, key.len() + bytes.len() + 16);
            command.arg("SET").arg(key.as_slice()).arg(bytes.as_ref());
            command.arg("PX").arg(STAGED_TIME_MS);
            commands.add_command(command);
        }
        let count = 3 + self.keys.len() + self.arguments.len();
        let bytes = name.len() + script.len() + 8 + keys_bytes + arguments_bytes;
        let mut command = Cmd::with_capacity(count, bytes);
        command
            .arg(name)
            .arg(script)
            .arg(self.keys.len() + self.staged.len());
        for key in self
            .keys
            .iter()
            .chain(self.staged.iter().map(|staged| &staged.key))
        {
            command.arg(key.as_slice());
        }
        for argument in &self.arguments {
            command.arg(argument.as_ref());
        }
        commands.add_command(command);
        commands
    }
}
