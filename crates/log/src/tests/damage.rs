//! Goal: damage is told by key and never served, and other keys are; where the keys are not known
//! the log does not open.
//! Method: every byte of every file of a small log is flipped, and every file is cut at every
//! length, one at a time.

use std::sync::Arc;

use bytes::Bytes;
use forebay_disk::sim::{Fate, Image, Sim};

use super::{Shown, delete, done, open, open_with, put, settings, shown, shown_or_told};
use crate::{LogSettings, OnUnnamedDamage, OpenError};

/// A log in several segments, and what it shows.
async fn log() -> (Arc<Sim>, Shown) {
    let sim = Arc::new(Sim::new());
    let parts = open(&sim);
    done(&parts, vec![put(0, 1, Some(200)), put(1, 1, Some(100))]).await;
    done(&parts, vec![put(2, 2, Some(400))]).await;
    done(&parts, vec![put(0, 3, Some(150)), delete(1)]).await;
    done(&parts, vec![put(3, 4, None), put(4, 4, Some(0))]).await;
    let shown = shown(&parts).await;
    parts.close().await;
    (sim, shown)
}

/// What the log shows must be right, but for what it tells to be damaged.
fn check(found: &Shown, told: &[Bytes], expected: &Shown, context: &str) {
    for (name, content) in &expected.entries {
        match found.entries.get(name) {
            Some(found) => assert_eq!(found, content, "{context}: {name:?}"),
            None => assert!(told.contains(name), "{context}: {name:?} is not told"),
        }
    }
    for name in found.entries.keys() {
        assert!(expected.entries.contains_key(name), "{context}: {name:?}");
    }
}

/// Images with one byte flipped or one file cut, of those files that `is_hit` says.
fn damaged(image: &Image, is_hit: impl Fn(u64) -> bool) -> Vec<(String, Image)> {
    let mut images = Vec::new();
    for (file, bytes) in image.iter().filter(|(file, _)| is_hit(**file)) {
        for at in 0..bytes.len() {
            let mut flipped = image.clone();
            flipped.get_mut(file).unwrap()[at] ^= 0x10;
            images.push((format!("byte {at} of {file:x}"), flipped));
            let mut cut = image.clone();
            cut.get_mut(file).unwrap().truncate(at);
            images.push((format!("{file:x} cut at {at}"), cut));
        }
    }
    images
}

fn is_table(file: u64) -> bool {
    file >> 62 == 1
}

fn tables_of(image: &Image) -> Vec<u64> {
    image
        .keys()
        .filter(|file| is_table(**file))
        .copied()
        .collect()
}

#[tokio::test]
async fn damaged_segments_are_told_by_key_and_other_keys_are_served() {
    let (sim, expected) = log().await;
    let image = sim.image();
    let tables = tables_of(&image);
    assert!(tables.len() > 1, "{} tables", tables.len());
    // Those that are sealed.
    let is_hit = |file: u64| tables.contains(&(file | 1 << 62)) && !is_table(file);
    for (context, image) in damaged(&image, is_hit) {
        let parts = open(&Arc::new(Sim::of(image)));
        let (found, told) = shown_or_told(&parts).await;
        check(&found, &told, &expected, &context);
        assert!(told.len() < expected.entries.len(), "{context}: {told:?}");
        let verified = parts.verify().await.unwrap();
        let names: Vec<Bytes> = verified.damaged.into_keys().collect();
        assert_eq!(names, told, "{context}");
        parts.close().await;
    }
}

#[tokio::test]
async fn a_damaged_table_is_made_anew_and_nothing_is_lost() {
    let (sim, expected) = log().await;
    for (context, image) in damaged(&sim.image(), is_table) {
        let sim = Arc::new(Sim::of(image));
        let parts = open(&sim);
        assert_eq!(shown(&parts).await, expected, "{context}");
        parts.close().await;
        for (file, bytes) in sim.image().into_iter().filter(|(file, _)| is_table(*file)) {
            let number = u32::try_from(file & !(3 << 62)).unwrap();
            let table = crate::table::Table::read(&bytes, number.try_into().unwrap());
            assert!(table.is_some(), "{context}: table {number}");
        }
    }
}

#[tokio::test]
async fn a_segment_that_is_missing_is_told_by_its_keys() {
    let (sim, expected) = log().await;
    let image = sim.image();
    let tables = tables_of(&image);
    for table in &tables[1..] {
        let segment = table & !(1 << 62);
        let mut image = image.clone();
        image.remove(&segment);
        let parts = open(&Arc::new(Sim::of(image.clone())));
        let (found, told) = shown_or_told(&parts).await;
        check(&found, &told, &expected, &format!("without {segment}"));
        drop(parts);
        // Without its table nobody knows what was in it.
        image.remove(table);
        match open_with(&Arc::new(Sim::of(image)), settings()) {
            Err(OpenError::Damaged { segment: told, .. }) => {
                assert_eq!(u64::from(told), segment);
            }
            other => panic!("without {segment}: {other:?}"),
        }
    }
}

/// Goal: in a segment that a crash left unsealed, damage to what was durable keeps the log from
/// opening where it hides keys; only of the last group, the disk could not have told.
#[tokio::test]
async fn damage_before_the_last_group_of_an_unsealed_segment_is_refused_loudly() {
    let sim = Arc::new(Sim::new());
    let parts = open(&sim);
    let mut stages = vec![Shown::default()];
    for (index, length) in [(0, 100), (1, 60), (0, 50)] {
        done(&parts, vec![put(index, stages.len() as u64, Some(length))]).await;
        stages.push(shown(&parts).await);
    }
    let image = sim.crashed(sim.count(), |_| Fate::Kept);
    parts.close().await;
    let (mut refused, mut told_count, mut cut) = (0, 0, 0);
    for (context, image) in damaged(&image, |file| file == 1) {
        match open_with(&Arc::new(Sim::of(image.clone())), settings()) {
            Err(OpenError::Damaged { segment, .. }) => {
                assert_eq!(segment, 1);
                refused += 1;
                // Whoever takes the loss gets the rest.
                let lose = LogSettings {
                    on_unnamed_damage: OnUnnamedDamage::Lose,
                    ..settings()
                };
                drop(open_with(&Arc::new(Sim::of(image)), lose).unwrap());
            }
            Err(other) => panic!("{context}: {other}"),
            Ok(parts) => {
                let (found, told) = shown_or_told(&parts).await;
                told_count += usize::from(!told.is_empty());
                if found == stages[stages.len() - 2] && told.is_empty() {
                    cut += 1;
                } else if !context.contains("cut") {
                    check(&found, &told, stages.last().unwrap(), &context);
                }
            }
        }
    }
    assert!(
        refused > 0 && told_count > 0 && cut > 0,
        "{refused} {told_count} {cut}"
    );
}
