//! What an answer that is an error means for the command it answers.
//!
//! Every error that a server *answers* with is one of a command that had no effect: the scripts
//! judge before they write, and the server refuses a script at its first write or not at all. What
//! is left open is a command without an answer, and [`crate::send`] deals with that.
//!
//! Sources: the error replies in the sources of Redis 7.0 (`server.c`, `script.c`, `cluster.c`).

use redis::ServerError;

use crate::{keys::Slot, settings::ServerAddress};

/// What to do about an error reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The slot lies elsewhere for good: ask there, and learn the layout anew.
    Moved(Slot, Redirect),
    /// The slot is on its way: ask there, this once.
    Ask(Redirect),
    /// The server does not know the script: send its text.
    NoScript,
    /// The server will answer in a moment: it loads, elects, or runs a long script; or a payload
    /// that was sent before its script is not there, as its slot moves.
    Wait,
    /// The server is no master any more: look for the one that is.
    Demoted,
    /// No room: nothing can be written until something is deleted.
    Full,
    /// The server can't write to its disk, or has lost its replicas, and takes no writes.
    Unsafe,
    /// Forebay may not do that: its user or password is wrong, or the user's rights are too few.
    Denied,
    /// Anything else: a fault of this crate, or of who changes its keys.
    Fault,
}

/// Where a redirect leads; without a host, to the server that gave it, at another port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) host: Option<String>,
    pub(crate) port: u16,
}

impl Redirect {
    pub(crate) fn address(&self, from: &ServerAddress) -> ServerAddress {
        ServerAddress {
            host: self.host.clone().unwrap_or_else(|| from.host.clone()),
            port: self.port,
        }
    }
}

/// Judges an error reply.
pub(crate) fn judge(error: &ServerError) -> Verdict {
    judge_text(error.code(), error.details().unwrap_or_default())
}

fn judge_text(code: &str, details: &str) -> Verdict {
    match code {
        "MOVED" => redirect(details).map_or(Verdict::Fault, |(slot, to)| Verdict::Moved(slot, to)),
        "ASK" => redirect(details).map_or(Verdict::Fault, |(_, to)| Verdict::Ask(to)),
        "NOSCRIPT" => Verdict::NoScript,
        "LOADING" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "BUSY" | "GONE" => Verdict::Wait,
        "READONLY" | "UNBLOCKED" => Verdict::Demoted,
        "OOM" => Verdict::Full,
        "MISCONF" | "NOREPLICAS" => Verdict::Unsafe,
        "NOAUTH" | "WRONGPASS" | "NOPERM" => Verdict::Denied,
        _ => Verdict::Fault,
    }
}

/// Reads `SLOT HOST:PORT`, as `MOVED` and `ASK` give it; a host of IPv6 has no brackets.
fn redirect(details: &str) -> Option<(Slot, Redirect)> {
    let (slot, place) = details.split_once(' ')?;
    let (host, port) = place.rsplit_once(':')?;
    let redirect = Redirect {
        host: (!host.is_empty() && host != "?").then(|| host.to_owned()),
        port: port.parse().ok()?,
    };
    Some((Slot(slot.parse().ok()?), redirect))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_a_server_has_its_verdict() {
        let to = |host: Option<&str>, port| Redirect {
            host: host.map(str::to_owned),
            port,
        };
        for (code, details, verdict) in [
            (
                "MOVED",
                "3999 10.0.0.1:6381",
                Verdict::Moved(Slot(3999), to(Some("10.0.0.1"), 6381)),
            ),
            (
                "MOVED",
                "3999 :6381",
                Verdict::Moved(Slot(3999), to(None, 6381)),
            ),
            ("MOVED", "nonsense", Verdict::Fault),
            ("ASK", "1 ::1:6382", Verdict::Ask(to(Some("::1"), 6382))),
            ("NOSCRIPT", "No matching script.", Verdict::NoScript),
            (
                "LOADING",
                "Redis is loading the dataset in memory",
                Verdict::Wait,
            ),
            ("BUSY", "Redis is busy running a script.", Verdict::Wait),
            ("GONE", "a staged payload", Verdict::Wait),
            ("CLUSTERDOWN", "The cluster is down", Verdict::Wait),
            (
                "READONLY",
                "You can't write against a read only replica.",
                Verdict::Demoted,
            ),
            (
                "OOM",
                "command not allowed when used memory > 'maxmemory'.",
                Verdict::Full,
            ),
            ("MISCONF", "Errors writing to the AOF file", Verdict::Unsafe),
            (
                "NOREPLICAS",
                "Not enough good replicas to write.",
                Verdict::Unsafe,
            ),
            ("NOPERM", "this user has no permissions", Verdict::Denied),
            ("WRONGTYPE", "Operation against a key", Verdict::Fault),
            ("ERR", "unknown command", Verdict::Fault),
        ] {
            assert_eq!(judge_text(code, details), verdict, "{code} {details}");
        }
    }

    #[test]
    fn a_redirect_without_a_host_stays_at_the_server_that_gave_it() {
        let from = ServerAddress {
            host: "a".to_owned(),
            port: 1,
        };
        let redirect = Redirect {
            host: None,
            port: 2,
        };
        assert_eq!(redirect.address(&from).to_string(), "a:2");
    }
}
