//! The table of the module, row by row, and what must hold of every step.

use super::*;
use forebay_native::gate::Absent;
use forebay_native::record::Attributes;
use forebay_s3::{
    code::Code,
    etag::{ETag, ETagList},
};

fn object(etag: &str) -> ObjectRecord {
    ObjectRecord {
        etag: ETag::strong(etag).unwrap(),
        size_bytes: 1,
        modified_ms: 0,
        attributes: Attributes::default(),
        checksum: None,
        part_count: None,
        upload_id: None,
    }
}

fn record(holding: Holding) -> HotRecord {
    HotRecord {
        write: "w".into(),
        acknowledged_ms: 10_000,
        known: Vec::new(),
        doubt_ms: 0,
        late_ms: 0,
        holding,
    }
}

fn conflict() -> Holding {
    Holding::Conflict {
        record: object("a"),
        found: "\"f\"".into(),
    }
}

/// All states, in the order of the table.
fn states() -> [Option<HotRecord>; 6] {
    [
        None,
        Some(record(Holding::Dirty(object("a")))),
        Some(record(conflict())),
        Some(record(Holding::Tombstone)),
        Some(record(Holding::Buried(20_000))),
        Some(record(Holding::Settling(20_000))),
    ]
}

fn gates() -> [Gate; 3] {
    let if_match = |etag: &str| Gate {
        if_match: Some(ETagList::parse(etag).unwrap()),
        ..Gate::default()
    };
    let absent = Gate {
        absent: Absent::Required,
        ..Gate::default()
    };
    [if_match("\"a\""), if_match("\"b\""), absent]
}

fn code<T: std::fmt::Debug>(outcome: Result<T, Error>) -> Result<T, Code> {
    outcome.map_err(|error| match error {
        Error::Refused(refusal) => refusal.code,
        other => panic!("{other}"),
    })
}

#[test]
fn every_state_answers_reads_as_the_table_says() {
    let looks = states().map(|state| match look(state.as_ref()) {
        Look::Object(_) => "object",
        Look::Gone => "gone",
        Look::Cold => "cold",
    });
    assert_eq!(looks, ["cold", "object", "object", "gone", "gone", "cold"]);
}

#[test]
fn every_state_takes_puts_as_the_table_says() {
    let key = ObjectKey::parse("k").unwrap();
    let failed = Err(Code::PreconditionFailed);
    let (hot, cold) = (Ok(PutWay::Hot), Ok(PutWay::Cold));
    let gone = [Err(Code::NoSuchKey), Err(Code::NoSuchKey), hot];
    let there = [hot, failed, failed];
    let expected = [[cold; 3], there, there, gone, gone, [cold; 3]];
    for (state, expected) in states().into_iter().zip(expected) {
        let open = code(put(state.as_ref(), &Gate::default(), &key));
        assert_eq!(open, hot, "{state:?}");
        let judged = gates().map(|gate| code(put(state.as_ref(), &gate, &key)));
        assert_eq!(judged, expected, "{state:?}");
    }
}

#[test]
fn every_state_takes_deletes_as_the_table_says() {
    use DeleteWay::{Cold, ColdThenBury, Entomb};
    let key = ObjectKey::parse("k").unwrap();
    let failed = Err(Code::PreconditionFailed);
    let [if_match, other, _] = gates();
    for (state, (open, matching, differing)) in states().into_iter().zip([
        (Ok(Cold), Ok(Cold), Ok(Cold)),
        (Ok(Entomb), Ok(Entomb), failed),
        (Ok(Entomb), Ok(Entomb), failed),
        (Ok(Entomb), failed, failed),
        (Ok(Entomb), failed, failed),
        (Ok(Entomb), Ok(ColdThenBury), Ok(ColdThenBury)),
    ]) {
        let judge = |gate: &Gate| code(delete(state.as_ref(), gate, &key));
        assert_eq!(judge(&Gate::default()), open, "{state:?}");
        assert_eq!(judge(&if_match), matching, "{state:?}");
        assert_eq!(judge(&other), differing, "{state:?}");
    }
}

#[test]
fn writes_that_pass_by_flush_what_the_cold_store_lacks_first() {
    use DirectWay::{FlushFirst, Pass, UncoverFirst};
    let ways = states().map(|state| direct(state.as_ref()));
    let expected = [Pass, FlushFirst, Pass, FlushFirst, UncoverFirst, Pass];
    assert_eq!(ways, expected);
}

#[test]
fn the_mover_does_with_every_state_what_the_table_says() {
    use Step::{Check, Delete, Forget, Leave, WaitUntil, Write};
    let steps = |now_ms| {
        let [_, rest @ ..] = states();
        rest.map(|state| step(&state.unwrap(), now_ms))
    };
    let (wait, none) = (WaitUntil(20_000), 19_999);
    assert_eq!(steps(none), [Write, Leave, Delete, wait, wait]);
    assert_eq!(steps(20_000), [Write, Leave, Delete, Check, Forget]);
}

#[test]
fn what_is_found_is_ours_older_or_foreign() {
    let mut ours = record(Holding::Dirty(object("a")));
    ours.known.push("\"known\"".into());
    let find = |etag: &str, modified_ms, likeness| Found {
        etag: etag.to_owned(),
        modified_ms,
        likeness,
    };
    let late = 10_000 + TOLERANCE_MS;
    for (found, verdict) in [
        (find("\"a\"", i64::MAX, Likeness::Whole), Verdict::Same),
        (
            find("\"a\"", i64::MAX, Likeness::Bytes),
            Verdict::Replaceable,
        ),
        (
            find("\"known\"", i64::MAX, Likeness::None),
            Verdict::Replaceable,
        ),
        (find("\"x\"", late, Likeness::None), Verdict::Replaceable),
        (find("\"x\"", late + 1, Likeness::None), Verdict::Foreign),
    ] {
        assert_eq!(judge(&ours, &found), verdict, "{found:?}");
    }
    ours.doubt_ms = 50_000;
    let found = find("\"x\"", 50_000, Likeness::None);
    assert_eq!(judge(&ours, &found), Verdict::Replaceable);
    // Of a deleted key nothing is the same.
    let tombstone = record(Holding::Tombstone);
    let found = find("\"a\"", late + 1, Likeness::Whole);
    assert_eq!(judge(&tombstone, &found), Verdict::Foreign);
}

#[test]
fn records_know_the_tags_of_all_that_came_before_them() {
    let mut now = record(Holding::Dirty(object("e0")));
    for n in 1..=KNOWN_MAX + 1 {
        let holding = Holding::Dirty(object(&format!("e{n}")));
        now = after(Some(&now), format!("w{n}"), 1, holding);
    }
    assert_eq!(now.known.len(), KNOWN_MAX);
    assert_eq!(now.known.last().unwrap(), &format!("\"e{KNOWN_MAX}\""));
    assert_eq!(now.known[0], "\"e1\"");
    let gone = after(Some(&now), "w".into(), 2, Holding::Tombstone);
    assert!(gone.known.contains(&format!("\"e{}\"", KNOWN_MAX + 1)));
    let of_conflict = after(Some(&record(conflict())), "w".into(), 2, Holding::Tombstone);
    assert_eq!(of_conflict.known, ["\"a\"", "\"f\""]);
}

/// What `after_direct` makes of a state: its holding's name, what it knows and doubts.
fn told(
    state: Option<&HotRecord>,
    seen: Option<&str>,
    outcome: &DirectOutcome,
) -> Option<(&'static str, Vec<String>, i64)> {
    let next = after_direct(state, seen, outcome, (15_000, 60_000), "n".into())?;
    let name = match next.holding {
        Holding::Dirty(_) => "dirty",
        Holding::Conflict { .. } => "conflict",
        Holding::Tombstone => "tombstone",
        Holding::Buried(_) => "buried",
        Holding::Settling(75_000) => "settling, prolonged",
        Holding::Settling(_) => "settling",
    };
    Some((name, next.known, next.doubt_ms))
}

#[test]
fn a_write_that_passed_by_ends_what_it_saw_and_is_made_known_to_what_came_after() {
    let done = DirectOutcome::Done(Some("\"d\"".into()));
    let known = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    let ends = |tags: &[&str]| Some(("settling, prolonged", known(tags), 0));
    let expected = [
        None,
        ends(&["\"a\"", "\"d\""]),
        ends(&["\"a\"", "\"f\"", "\"d\""]),
        ends(&["\"d\""]),
        ends(&["\"d\""]),
        ends(&["\"d\""]),
    ];
    for (state, expected) in states().iter().zip(expected) {
        assert_eq!(
            told(state.as_ref(), Some("w"), &done),
            expected,
            "{state:?}"
        );
    }
    let learns = |name| Some((name, known(&["\"d\""]), 0));
    let expected = ["dirty", "conflict", "tombstone", "buried", "settling"].map(learns);
    for (state, expected) in states().iter().skip(1).zip(expected) {
        let later = told(state.as_ref(), Some("earlier"), &done);
        assert_eq!(later, expected, "{state:?}");
    }
    // A conflict with this very write was none.
    let met = DirectOutcome::Done(Some("\"f\"".into()));
    let [_, _, conflict, ..] = states();
    assert_eq!(
        told(conflict.as_ref(), None, &met),
        Some(("dirty", known(&["\"f\""]), 0))
    );
}

#[test]
fn of_a_write_that_nobody_knows_the_end_of_a_doubt_stays() {
    let states = states();
    let doubts = states
        .iter()
        .map(|state| told(state.as_ref(), None, &DirectOutcome::Unknown).unwrap());
    let names = [
        "settling, prolonged",
        "dirty",
        "conflict",
        "tombstone",
        "buried",
    ];
    for ((name, _, doubt_ms), expected) in doubts.zip(names) {
        assert_eq!((name, doubt_ms), (expected, 75_000));
    }
    for state in &states {
        assert_eq!(
            told(state.as_ref(), Some("w"), &DirectOutcome::Refused),
            None
        );
    }
}

#[test]
fn while_a_request_of_the_mover_is_lost_nothing_passes_by() {
    for state in states().into_iter().flatten() {
        let late = with_late(&state, 30_000);
        assert!(!may_pass(Some(&late), 29_999));
        assert!(may_pass(Some(&late), 30_000));
        let next = after(Some(&late), "n".into(), 1, Holding::Tombstone);
        assert!(!may_pass(Some(&next), 29_999), "who follows knows of it");
        if let Step::WaitUntil(until_ms) = step(&late, 15_000) {
            assert_eq!(until_ms, 30_000, "the record is there for as long");
        }
    }
    assert!(may_pass(None, 0));
}
