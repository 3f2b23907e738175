//! Patterns of actions, compiled to the set of actions that they match.

use crate::{operation::Action, wildcard};

/// A set of actions, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ActionSet(u128);

const _: () = assert!(
    Action::ALL.len() <= u128::BITS as usize,
    "each action has a bit"
);

impl ActionSet {
    pub(super) const EMPTY: Self = Self(0);

    /// The set of these.
    pub(super) const fn of(actions: &[Action]) -> Self {
        let mut set = 0;
        let mut i = 0;
        while i < actions.len() {
            set |= 1 << actions[i] as u32;
            i += 1;
        }
        Self(set)
    }

    /// Every action that `pattern` matches, `*` and `?` being wildcards and case nothing.
    pub(super) fn matching(pattern: &str) -> Self {
        let pattern = pattern.to_ascii_lowercase();
        let mut set = Self::EMPTY;
        for action in Action::ALL {
            if wildcard::matches(&pattern, &action.as_str().to_ascii_lowercase()) {
                set = set.union(Self::of(&[*action]));
            }
        }
        set
    }

    pub(super) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn complement(self) -> Self {
        Self(!self.0)
    }

    pub(super) const fn contains(self, action: Action) -> bool {
        self.0 & (1 << action as u32) != 0
    }
}
