//! Is there an order in which a register would have answered as it did? For the model tests of
//! layers that promise it for each key.
//!
//! The search of Wing and Gong with Lowe's memory of what was tried: operations in the order of
//! their calls; one may come next if no other ended before it began; an operation of unknown
//! outcome may come at any time after its call, or never. Sources: Wing & Gong, "Testing and
//! Verifying Concurrent Objects" (1993); Lowe, "Testing for Linearizability" (2017).

use std::collections::HashSet;

/// Most operations of one key: they are bits of a number.
pub const OPERATIONS_MAX: usize = 128;

/// What was asked of a key, and answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A write of this value; `None` deletes.
    Write(Option<u32>),
    /// A write that was done because there was no object.
    Create(u32),
    /// A write that was refused because there was one.
    NotCreated,
    /// A read that found this.
    Read(Option<u32>),
}

/// An operation of a client on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What it was.
    pub act: Act,
    /// When it was called, by any count that only grows.
    pub called: u64,
    /// When it was answered; `None` when nobody knows its outcome.
    pub answered: Option<u64>,
}

/// Whether a register that begins without a value explains these events.
///
/// # Panics
/// With more than [`OPERATIONS_MAX`] events.
pub fn is_linearizable(events: &[Event]) -> bool {
    assert!(events.len() <= OPERATIONS_MAX, "split the history");
    let mut tried = HashSet::new();
    search(events, 0, None, &mut tried)
}

fn search(
    events: &[Event],
    done: u128,
    value: Option<u32>,
    tried: &mut HashSet<(u128, Option<u32>)>,
) -> bool {
    let left = |at: usize| done & (1 << at) == 0;
    let must = events.iter().enumerate();
    let ends = must
        .filter(|(at, _)| left(*at))
        .filter_map(|(_, event)| event.answered);
    // Whatever comes next was called before the first of the others was answered.
    let Some(first_end) = ends.min() else {
        return true;
    };
    if !tried.insert((done, value)) {
        return false;
    }
    let mut next = events.iter().enumerate().filter(|(at, _)| left(*at));
    next.any(|(at, event)| {
        event.called <= first_end
            && match step(&event.act, value) {
                Next::Is(value) => search(events, done | (1 << at), value, tried),
                Next::Impossible => false,
            }
    })
}

/// What comes of an act.
enum Next {
    /// The register has this value.
    Is(Option<u32>),
    /// It can't have happened to the value that was there.
    Impossible,
}

fn step(act: &Act, value: Option<u32>) -> Next {
    match act {
        Act::Write(written) => Next::Is(*written),
        Act::Create(written) if value.is_none() => Next::Is(Some(*written)),
        Act::NotCreated if value.is_some() => Next::Is(value),
        Act::Read(found) if *found == value => Next::Is(value),
        Act::Create(_) | Act::NotCreated | Act::Read(_) => Next::Impossible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(act: Act, called: u64, answered: u64) -> Event {
        Event {
            act,
            called,
            answered: (answered > 0).then_some(answered),
        }
    }

    #[test]
    fn orders_that_explain_a_history_are_found_and_others_are_not() {
        use Act::{Create, NotCreated, Read, Write};
        let one = Some(1);
        for (events, expected) in [
            (vec![event(Write(one), 1, 2), event(Read(one), 3, 4)], true),
            (
                vec![event(Write(one), 1, 2), event(Read(None), 3, 4)],
                false,
            ),
            (vec![event(Write(one), 1, 4), event(Read(None), 2, 3)], true),
            (vec![event(Write(one), 1, 0), event(Read(None), 2, 3)], true),
            (vec![event(Write(one), 1, 0), event(Read(one), 2, 3)], true),
            (vec![event(Read(one), 1, 2), event(Write(one), 3, 0)], false),
            (
                vec![
                    event(Write(one), 1, 0),
                    event(Read(one), 2, 3),
                    event(Read(None), 4, 5),
                ],
                false,
            ),
            (vec![event(Create(1), 1, 4), event(Create(2), 2, 3)], false),
            (vec![event(Create(1), 1, 4), event(NotCreated, 2, 3)], true),
            (
                vec![
                    event(Write(one), 1, 2),
                    event(Write(None), 3, 4),
                    event(Read(one), 5, 6),
                ],
                false,
            ),
        ] {
            assert_eq!(is_linearizable(&events), expected, "{events:?}");
        }
    }
}
