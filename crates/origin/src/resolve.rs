//! Which addresses a name has, and what becomes of them when that changes.
//!
//! Every address is an endpoint of its own. A service may tell a different part of its addresses
//! each time (Amazon's names do), so one is given up only after it was missing twice in a row; a
//! lookup that fails, or finds nothing, changes nothing.
//!
//! [`Addresses`] is pure. Called by [`crate::set`] with what [`Resolve`] found.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;

/// Lookups in a row without it after which an address is given up.
const MISSED_MAX: u32 = 2;

/// Finds the addresses of a name.
#[async_trait]
pub trait Resolve: fmt::Debug + Send + Sync {
    /// The addresses of `host`, each with `port`, in the order of preference.
    ///
    /// # Errors
    /// The name service's.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The machine's own resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}

/// The addresses of one name that are in use.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// Each with the lookups in a row that did not find it.
    known: Vec<(SocketAddr, u32)>,
}

/// What a lookup changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub come: Vec<SocketAddr>,
    pub gone: Vec<SocketAddr>,
}

impl Addresses {
    /// Takes in what a lookup found; uses at most `addresses_max`.
    pub(crate) fn update(&mut self, found: &[SocketAddr], addresses_max: usize) -> Changes {
        let mut changes = Changes::default();
        if found.is_empty() {
            return changes;
        }
        self.known.retain_mut(|(address, missed)| {
            *missed = if found.contains(address) {
                0
            } else {
                *missed + 1
            };
            if *missed >= MISSED_MAX {
                changes.gone.push(*address);
            }
            *missed < MISSED_MAX
        });
        for address in found {
            let is_known = self.known.iter().any(|(known, _)| known == address);
            if !is_known && self.known.len() < addresses_max {
                self.known.push((*address, 0));
                changes.come.push(*address);
            }
        }
        changes
    }
}

/// A name to be looked up.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// The entry of the settings.
    pub(crate) source_index: usize,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) timeout: Duration,
}

impl Lookup {
    /// Asks the resolver, for as long as a connection may take.
    pub(crate) async fn run(&self) -> io::Result<Vec<SocketAddr>> {
        let resolving = self.resolver.resolve(&self.host, self.port);
        tokio::time::timeout(self.timeout, resolving).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(last: &[u8]) -> Vec<SocketAddr> {
        last.iter()
            .map(|last| SocketAddr::from(([10, 0, 0, *last], 80)))
            .collect()
    }

    fn changes(come: &[u8], gone: &[u8]) -> Changes {
        Changes {
            come: addresses(come),
            gone: addresses(gone),
        }
    }

    #[test]
    fn an_address_is_given_up_when_it_was_missing_twice_in_a_row() {
        let mut known = Addresses::default();
        let mut update = |found: &[u8]| known.update(&addresses(found), 16);
        assert_eq!(update(&[1, 2]), changes(&[1, 2], &[]));
        assert_eq!(update(&[2, 3]), changes(&[3], &[]));
        assert_eq!(update(&[1, 3]), changes(&[], &[]));
        assert_eq!(update(&[1, 3]), changes(&[], &[2]));
        assert_eq!(update(&[2]), changes(&[2], &[]));
    }

    #[test]
    fn a_lookup_that_finds_nothing_changes_nothing() {
        let mut known = Addresses::default();
        known.update(&addresses(&[1]), 16);
        for _ in 0..10 {
            assert_eq!(known.update(&[], 16), Changes::default());
        }
    }

    #[test]
    fn further_addresses_are_left_out_until_there_is_room() {
        let mut known = Addresses::default();
        assert_eq!(
            known.update(&addresses(&[1, 2, 3, 3]), 2),
            changes(&[1, 2], &[])
        );
        assert_eq!(known.update(&addresses(&[3]), 2), changes(&[], &[]));
        assert_eq!(known.update(&addresses(&[3]), 2), changes(&[3], &[1, 2]));
    }
}
