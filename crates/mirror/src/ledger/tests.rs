//! Every row of the tables.

use super::*;

/// Plan, progress by member, verdict, who owes after it and until when in doubt, and whether it is
/// unsettled still. The lead is member 1.
type WriteRow<'a> = (&'a Plan, [Progress; 3], Verdict, &'a [(u8, i64)], bool);
/// Kind, who owed before it, looks, the time up to which leads are waited for, who is right.
type SettleRow<'a> = (WriteKind, &'a [(u8, i64)], [Look; 3], i64, Option<u8>);

fn set(members: &[u8]) -> MemberSet {
    members.iter().map(|member| MemberId(*member)).collect()
}

/// Three members, of which two must have a write.
fn three() -> Standings {
    Standings {
        all: set(&[0, 1, 2]),
        up: set(&[0, 1, 2]),
        known: set(&[0, 1, 2]),
        tracked: set(&[0, 1, 2]),
        writes_min: 2,
    }
}

fn owing(members: &[(u8, i64)]) -> Entry {
    let owed = members.iter().map(|(member, doubt_ms)| Owed {
        member: MemberId(*member),
        doubt_ms: *doubt_ms,
    });
    Entry {
        at_ms: 5,
        intent: None,
        owed: owed.collect(),
    }
}

fn put(before: Option<&Entry>, standings: Standings) -> Result<Plan, NoPlan> {
    let first = [MemberId(1), MemberId(0), MemberId(2)];
    plan(
        before,
        WriteKind::Put,
        standings,
        standings.all,
        (&first, 100),
    )
}

fn done(tag: &str) -> Progress {
    Progress::Done(tag.to_owned())
}

#[test]
fn the_best_member_that_owes_nothing_leads_and_all_that_are_up_get_it() {
    let fresh = put(None, three()).unwrap();
    assert_eq!((fresh.lead, fresh.targets), (MemberId(1), set(&[0, 1, 2])));
    assert_eq!((fresh.entry.at_ms, &fresh.entry.owed[..]), (100, &[][..]));
    let behind = owing(&[(1, 0)]);
    let over = put(Some(&behind), three()).unwrap();
    assert_eq!((over.lead, over.targets), (MemberId(0), set(&[0, 1, 2])));
    assert_eq!((over.entry.at_ms, &over.entry.owed), (5, &behind.owed));
    assert_eq!(over.voters, set(&[0, 2]));
}

#[test]
fn a_write_that_could_not_be_kept_is_not_sent() {
    let up = |members: &[u8]| Standings {
        up: set(members),
        ..three()
    };
    assert_eq!(put(None, up(&[2])), Err(NoPlan::TooFew));
    assert_eq!(
        put(Some(&owing(&[(0, 0), (2, 0)])), up(&[0, 2])),
        Err(NoPlan::NobodyCurrent)
    );
    let mut unsettled = owing(&[]);
    unsettled.intent = put(None, three()).unwrap().entry.intent;
    assert_eq!(put(Some(&unsettled), three()), Err(NoPlan::Unsettled));
    // Tags are not for one that lacks the object.
    let tags = |before: &Entry| {
        let all = three().all;
        plan(Some(before), WriteKind::Retag, three(), all, (&[], 100))
    };
    assert_eq!(tags(&owing(&[(0, 0)])).unwrap().targets, set(&[1, 2]));
    assert_eq!(tags(&owing(&[(0, 0), (1, 0)])), Err(NoPlan::TooFew));
}

#[test]
fn a_write_is_acknowledged_when_enough_have_it_and_the_entry_says_who_lacks_it() {
    use Progress::{NoEffect, NotSent, Refused, Unknown, Waiting};
    let fresh = put(None, three()).unwrap();
    let behind = put(Some(&owing(&[(0, 0)])), three()).unwrap();
    let in_doubt = put(Some(&owing(&[(0, 150)])), three()).unwrap();
    let both = put(Some(&owing(&[(0, 150), (2, 150)])), three()).unwrap();
    let d = || done("t");
    let rows: Vec<WriteRow<'_>> = vec![
        (&fresh, [d(), d(), d()], Verdict::Acknowledge, &[], false),
        (
            &fresh,
            [d(), d(), Waiting],
            Verdict::Acknowledge,
            &[(2, 200)],
            false,
        ),
        (
            &fresh,
            [d(), d(), NotSent],
            Verdict::Acknowledge,
            &[(2, 0)],
            false,
        ),
        (
            &fresh,
            [Waiting, d(), Waiting],
            Verdict::Wait,
            &[(0, 200), (2, 200)],
            false,
        ),
        (
            &fresh,
            [d(), Waiting, d()],
            Verdict::SettleAndAcknowledge,
            &[(1, 200)],
            false,
        ),
        (
            &fresh,
            [d(), Refused, d()],
            Verdict::SettleAndAcknowledge,
            &[(1, 0)],
            false,
        ),
        (
            &fresh,
            [NoEffect, d(), Unknown],
            Verdict::TooFew,
            &[(0, 0), (2, 200)],
            false,
        ),
        (
            &fresh,
            [d(), Unknown, NoEffect],
            Verdict::TooFew,
            &[(1, 200), (2, 0)],
            false,
        ),
        (
            &fresh,
            [NoEffect, NoEffect, NotSent],
            Verdict::Nothing,
            &[],
            false,
        ),
        (
            &fresh,
            [Unknown, Refused, Refused],
            Verdict::Unknown,
            &[(0, 200)],
            false,
        ),
        (
            &fresh,
            [Refused, Unknown, Refused],
            Verdict::Unknown,
            &[],
            true,
        ),
        // The tag of most counts.
        (
            &fresh,
            [d(), d(), done("u")],
            Verdict::Acknowledge,
            &[(2, 0)],
            false,
        ),
        (
            &fresh,
            [d(), done("u"), d()],
            Verdict::SettleAndAcknowledge,
            &[(1, 0)],
            false,
        ),
        // Who was behind counts once the entry says that it has it.
        (
            &behind,
            [d(), d(), NoEffect],
            Verdict::SettleAndAcknowledge,
            &[(2, 0)],
            false,
        ),
        (
            &behind,
            [NoEffect, NoEffect, NoEffect],
            Verdict::Nothing,
            &[(0, 0)],
            false,
        ),
        // Who is in doubt stays so.
        (
            &in_doubt,
            [d(), d(), d()],
            Verdict::Acknowledge,
            &[(0, 150)],
            false,
        ),
        (
            &both,
            [d(), d(), d()],
            Verdict::SettleAndAcknowledge,
            &[(0, 150), (2, 150)],
            false,
        ),
        (
            &both,
            [d(), Unknown, d()],
            Verdict::Unknown,
            &[(0, 150), (2, 150)],
            true,
        ),
        (
            &both,
            [d(), Refused, d()],
            Verdict::Unknown,
            &[(0, 150), (2, 150)],
            false,
        ),
    ];
    for (plan, progress, verdict, owes, is_unsettled) in rows {
        assert_eq!(judge(plan, &progress, 100), verdict, "{progress:?}");
        let expected = Entry {
            at_ms: plan.entry.at_ms,
            intent: plan.entry.intent.filter(|_| is_unsettled),
            ..owing(owes)
        };
        let expected = Some(expected).filter(|entry| !owes.is_empty() || entry.intent.is_some());
        assert_eq!(after(plan, &progress, (100, 200)), expected, "{progress:?}");
    }
}

#[test]
fn tags_are_acknowledged_only_once_the_entry_says_who_has_them() {
    let all = three().all;
    let plan = plan(None, WriteKind::Retag, three(), all, (&[], 100)).unwrap();
    let progress = [done(""), done(""), Progress::Waiting];
    assert_eq!(judge(&plan, &progress, 100), Verdict::SettleAndAcknowledge);
}

#[test]
fn a_member_that_is_to_be_compared_as_a_whole_neither_counts_nor_is_kept_book_of() {
    let standings = Standings {
        known: set(&[0, 1]),
        tracked: set(&[0, 1]),
        ..three()
    };
    let plan = put(None, standings).unwrap();
    assert_eq!((plan.targets, plan.voters), (set(&[0, 1, 2]), set(&[0, 1])));
    let progress = [Progress::NoEffect, done("t"), done("t")];
    assert_eq!(judge(&plan, &progress, 100), Verdict::TooFew);
    let progress = [done("t"), done("t"), Progress::NoEffect];
    assert_eq!(after(&plan, &progress, (100, 200)), None);
}

#[test]
fn a_write_whose_gateway_ended_is_settled_by_its_lead_or_by_enough_others() {
    use Look::{Absent, NotReached};
    let at = |modified_s| Look::There { modified_s };
    let entry = |kind, owes: &[(u8, i64)]| Entry {
        intent: Some(Intent {
            lead: MemberId(0),
            kind,
            sent_ms: 50,
        }),
        ..owing(owes)
    };
    let (put, delete) = (WriteKind::Put, WriteKind::Delete);
    let rows: Vec<SettleRow<'_>> = vec![
        (put, &[], [at(1), at(2), at(2)], 0, Some(0)),
        (put, &[], [Absent, at(2), at(2)], 0, Some(0)),
        // The lead is waited for, but not for ever.
        (put, &[], [NotReached, at(1), at(2)], 49, None),
        (put, &[], [NotReached, at(1), at(2)], 50, Some(2)),
        (put, &[], [NotReached, at(1), Absent], 50, Some(1)),
        (delete, &[], [NotReached, at(1), Absent], 50, Some(2)),
        // One other alone may have missed an acknowledged write.
        (put, &[], [NotReached, NotReached, at(2)], 50, None),
        // Who owed has an older state still, or the new one; nobody knows.
        (put, &[(2, 0)], [NotReached, at(1), at(2)], 50, Some(1)),
        (put, &[(1, 0), (2, 0)], [NotReached, at(1), at(2)], 50, None),
    ];
    for (kind, owes, looks, until_ms, expected) in rows {
        let looks: Vec<_> = looks
            .into_iter()
            .zip(0..)
            .map(|(look, member)| (MemberId(member), look))
            .collect();
        let winner = settle(&entry(kind, owes), &looks, three(), until_ms);
        assert_eq!(winner, expected.map(MemberId), "{looks:?} {until_ms}");
    }
    let next = settled(&entry(put, &[(2, 0)]), MemberId(1), three(), 200);
    assert_eq!(next, Some(owing(&[(0, 200), (2, 200)])));
}
