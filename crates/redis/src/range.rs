//! Ranges: the names of all shards merged, then the values of those that are wanted.
//!
//! Each shard gives some more names than its share of what is asked for. A shard that gave all it
//! was asked for may have more, so what lies behind its last name is not certain; where that cuts
//! the merged names short, those shards alone are asked again. Names hash evenly, so one exchange
//! with each shard nearly always does, and a second one gets the values.

use std::ops::Range;

use bytes::Bytes;
use forebay_native::index::Entry;
use forebay_store::Error;
use futures_util::future::try_join_all;
use redis::{Pipeline, Value};

use crate::{
    entry::Packed,
    index::{RedisIndex, bytes_of},
    keys::{SHARDS, Shard},
};

/// Entries of one call: with values of the largest size, 64 MiB.
const ENTRIES_MAX: usize = 1024;

impl RedisIndex {
    pub(crate) async fn range_of(
        &self,
        names: Range<Bytes>,
        entries_max: usize,
    ) -> Result<Vec<Entry>, Error> {
        let mut names = names;
        let entries_max = entries_max.clamp(1, ENTRIES_MAX);
        while names.start < names.end {
            let found = self.names(&names, entries_max).await?;
            let Some((last, _)) = found.last() else {
                break;
            };
            let mut after = last.to_vec();
            after.push(0);
            let entries = self.entries(found).await?;
            if !entries.is_empty() {
                return Ok(entries);
            }
            // All of them were deleted meanwhile, which is not the end.
            names.start = after.into();
        }
        Ok(Vec::new())
    }

    /// The first names of a range, in order, and where they lie.
    async fn names(
        &self,
        names: &Range<Bytes>,
        entries_max: usize,
    ) -> Result<Vec<(Bytes, Shard)>, Error> {
        let mut merge = Merge::new(names.clone(), entries_max);
        loop {
            let questions = merge.questions();
            if questions.is_empty() {
                return Ok(merge.into_names());
            }
            let asking = questions
                .iter()
                .map(|question| self.ask(question, &names.end));
            for (question, found) in questions.iter().zip(try_join_all(asking).await?) {
                merge.answer(question, found);
            }
        }
    }

    async fn ask(&self, question: &Question, end: &Bytes) -> Result<Vec<Bytes>, Error> {
        let bound = |mark: u8, name: &Bytes| {
            let mut bound = Vec::with_capacity(1 + name.len());
            bound.push(mark);
            bound.extend_from_slice(name);
            bound
        };
        let mut command = Pipeline::with_capacity(1);
        command
            .cmd("ZRANGEBYLEX")
            .arg(self.keys.names(question.shard))
            .arg(bound(b'[', &question.from))
            .arg(bound(b'(', end))
            .arg("LIMIT")
            .arg(0)
            .arg(question.names_max);
        let answers = self
            .fleet
            .send(self.reading(question.shard), &command)
            .await?;
        match answers.into_iter().next() {
            Some(Value::Array(names)) => Ok(names.into_iter().filter_map(bytes_of).collect()),
            _ => Err(self.fleet.nonsense()),
        }
    }

    /// The entries of names, without those that have gone meanwhile.
    async fn entries(&self, names: Vec<(Bytes, Shard)>) -> Result<Vec<Entry>, Error> {
        let mut places: Vec<Vec<usize>> = vec![Vec::new(); usize::from(SHARDS)];
        for (place, (_, shard)) in names.iter().enumerate() {
            places[usize::from(shard.0)].push(place);
        }
        let asking = Shard::all()
            .zip(&places)
            .filter(|(_, places)| !places.is_empty());
        let asking = asking.map(|(shard, places)| {
            let mut command = Pipeline::with_capacity(1);
            command.cmd("HMGET").arg(self.keys.entries(shard));
            for place in places {
                command.arg(names[*place].0.as_ref());
            }
            async move {
                let answers = self.fleet.send(self.reading(shard), &command).await?;
                match answers.into_iter().next() {
                    Some(Value::Array(values)) if values.len() == places.len() => {
                        Ok((places, values))
                    }
                    _ => Err(self.fleet.nonsense()),
                }
            }
        });
        let mut values: Vec<Option<Bytes>> = vec![None; names.len()];
        for (places, found) in try_join_all(asking).await? {
            for (place, value) in places.iter().zip(found) {
                values[*place] = bytes_of(value);
            }
        }
        let mut entries = Vec::with_capacity(names.len());
        for ((name, _), value) in names.into_iter().zip(values) {
            let Some(value) = value else {
                continue;
            };
            let packed = Packed::read(&value).map_err(|_| self.fleet.damaged())?;
            entries.push(Entry {
                name,
                sequence: packed.sequence,
                value: packed.value,
                payload: None,
            });
        }
        Ok(entries)
    }
}

/// What one shard is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Question {
    shard: Shard,
    from: Bytes,
    names_max: usize,
}

/// Names of a range as they are learnt. Pure: who asks the shards is above.
#[derive(Debug)]
struct Merge {
    names_max: usize,
    /// What was learnt, in order.
    known: Vec<(Bytes, Shard)>,
    shards: Vec<Part>,
    is_sorted: bool,
}

/// What is known of one shard.
#[derive(Debug, Clone)]
struct Part {
    /// From where it may have more; `None`: it has no more.
    from: Option<Bytes>,
    /// Names to ask for next.
    names_max: usize,
}

impl Merge {
    fn new(names: Range<Bytes>, names_max: usize) -> Self {
        // Half more than a shard's share, and some for small shares: with 1,000 names, 15.6 are
        // expected of each shard, and a share of more than 31 is met once in thousands of listings.
        let share = names_max.div_ceil(usize::from(SHARDS));
        let part = Part {
            from: Some(names.start),
            names_max: (share + share / 2 + 8).min(names_max),
        };
        Self {
            names_max,
            known: Vec::new(),
            shards: vec![part; usize::from(SHARDS)],
            is_sorted: true,
        }
    }

    /// Who must be asked before the first names are certain; nobody at the end.
    fn questions(&mut self) -> Vec<Question> {
        if !self.is_sorted {
            self.known.sort_unstable();
            self.known.truncate(self.names_max);
            self.is_sorted = true;
        }
        // A shard matters when it may have a name before the last that is wanted.
        let horizon = self.known.get(self.names_max - 1).map(|(name, _)| name);
        let asked = Shard::all().zip(&self.shards).filter_map(|(shard, part)| {
            let from = part.from.as_ref()?;
            let matters = horizon.is_none_or(|horizon| from < horizon);
            matters.then(|| Question {
                shard,
                from: from.clone(),
                names_max: part.names_max,
            })
        });
        asked.collect()
    }

    fn answer(&mut self, question: &Question, found: Vec<Bytes>) {
        let part = &mut self.shards[usize::from(question.shard.0)];
        part.from = if found.len() < question.names_max {
            None
        } else {
            found.last().map(|last| {
                let mut after = last.to_vec();
                after.push(0);
                after.into()
            })
        };
        part.names_max = (part.names_max * 2).min(self.names_max);
        self.known
            .extend(found.into_iter().map(|name| (name, question.shard)));
        self.is_sorted = false;
    }

    fn into_names(self) -> Vec<(Bytes, Shard)> {
        self.known
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Answers a merge from sets, and counts the rounds and the names that were sent.
    fn merged(
        shards: &[BTreeSet<Bytes>],
        names: &Range<Bytes>,
        names_max: usize,
    ) -> (Vec<Bytes>, usize, usize) {
        let mut merge = Merge::new(names.clone(), names_max);
        let (mut rounds, mut sent) = (0, 0);
        loop {
            let questions = merge.questions();
            if questions.is_empty() {
                let found = merge
                    .into_names()
                    .into_iter()
                    .map(|(name, _)| name)
                    .collect();
                return (found, rounds, sent);
            }
            rounds += 1;
            for question in questions {
                let found: Vec<Bytes> = shards[usize::from(question.shard.0)]
                    .range(question.from.clone()..names.end.clone())
                    .take(question.names_max)
                    .cloned()
                    .collect();
                sent += found.len();
                merge.answer(&question, found);
            }
        }
    }

    proptest! {
        /// Goal: a merge gives the first names of all shards, however they are spread.
        /// Method: random names in random shards, some of them crowded, against one sorted set.
        #[test]
        fn a_merge_gives_the_first_names_of_all_shards(
            placed in proptest::collection::vec((0_u16..2000, 0_u16..SHARDS), 0..600),
            crowd in 0_u16..SHARDS,
            crowded in 0_usize..600,
            names_max in 1_usize..300,
            start in 0_u16..2000,
            end in 0_u16..2000,
        ) {
            let name = |n: u16| Bytes::from(format!("{n:05}"));
            let mut shards = vec![BTreeSet::new(); usize::from(SHARDS)];
            let mut all = BTreeSet::new();
            for (index, (n, shard)) in placed.into_iter().enumerate() {
                let shard = if index < crowded { crowd } else { shard };
                if all.insert(name(n)) {
                    shards[usize::from(shard)].insert(name(n));
                }
            }
            let names = name(start.min(end))..name(start.max(end));
            let (found, _, _) = merged(&shards, &names, names_max);
            let expected: Vec<Bytes> = all.range(names).take(names_max).cloned().collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_thousand_names_take_one_round_and_not_twice_the_names() {
        let mut shards = vec![BTreeSet::new(); usize::from(SHARDS)];
        for n in 0..20_000 {
            let name = Bytes::from(format!("bucket/key-{n:06}"));
            let route = forebay_native::index::Route::One(name.clone());
            shards[usize::from(Shard::of(&route).0)].insert(name);
        }
        let names = Bytes::from_static(b"bucket/")..Bytes::from_static(b"bucket0");
        let (found, rounds, sent) = merged(&shards, &names, 1000);
        assert_eq!((found.len(), rounds), (1000, 1));
        assert!(sent <= 2100, "{sent} names were sent");
    }
}
