//! Uploads over members that miss parts, are down, or are asked twice.

use forebay_store::{
    contract::requests::{
        abort_upload, complete_upload, create_bucket, create_upload, get, head, list_parts,
        list_uploads, object, put, upload_part, upload_part_copy,
    },
    faulty::Fault,
};

use super::*;
use crate::{
    copy::{Copied, Ends, Likeness},
    rig::{Rig, members, subject},
};

const MIB: usize = 1 << 20;

async fn begin(rig: &Rig, key: &str) -> String {
    let create = create_upload("bucket", key).header("content-type", "text/plain");
    create.expect(200, &rig.mirror).await.element("UploadId")
}

async fn part(rig: &Rig, key: &str, id: &str, number: u16, size: usize) -> String {
    let bytes = vec![b'a' + u8::try_from(number).unwrap(); size];
    let part = upload_part("bucket", key, id, number).body(bytes);
    part.expect(200, &rig.mirror)
        .await
        .header("etag")
        .to_owned()
}

/// Uploads two parts; the tags.
async fn two_parts(rig: &Rig, id: &str) -> [String; 2] {
    [
        part(rig, "k", id, 1, 5 * MIB).await,
        part(rig, "k", id, 2, 3).await,
    ]
}

async fn complete(rig: &Rig, id: &str, tags: &[String; 2]) -> String {
    let parts = [(1, tags[0].as_str()), (2, tags[1].as_str())];
    let done = complete_upload("bucket", "k", id, &parts)
        .expect(200, &rig.mirror)
        .await;
    done.element("ETag")
}

/// Uploads that a member has.
async fn left_at(rig: &Rig, member: usize) -> usize {
    let listed = list_uploads("bucket")
        .expect(200, &*rig.members[member])
        .await;
    listed.elements("UploadId").len()
}

#[tokio::test]
async fn an_upload_becomes_the_same_object_at_all_members() {
    let rig = Rig::new(3).await;
    let id = begin(&rig, "k").await;
    let tags = two_parts(&rig, &id).await;
    let listed = list_parts("bucket", "k", &id)
        .expect(200, &rig.mirror)
        .await;
    assert_eq!(
        (listed.element("UploadId"), listed.elements("ETag").len()),
        (id.clone(), 2)
    );
    let listed = list_uploads("bucket").expect(200, &rig.mirror).await;
    assert_eq!(listed.elements("UploadId"), std::slice::from_ref(&id));
    let tag = complete(&rig, &id, &tags).await;
    rig.settle().await;
    for member in &rig.members {
        let there = head("bucket", "k").expect(200, &**member).await;
        assert_eq!(there.header("etag"), tag);
        assert_eq!(there.header("content-type"), "text/plain");
    }
    assert_eq!(rig.shared.held(&subject("k")).await.unwrap(), None);
    let listed = list_uploads("bucket").expect(200, &rig.mirror).await;
    assert!(listed.elements("UploadId").is_empty());
}

#[tokio::test]
async fn a_member_that_misses_a_part_owes_the_object_and_gets_it_by_a_copy() {
    let rig = Rig::new(3).await;
    let id = begin(&rig, "k").await;
    let first = part(&rig, "k", &id, 1, 5 * MIB).await;
    rig.members[2].script([Fault::Unavailable]);
    let second = part(&rig, "k", &id, 2, 3).await;
    let tag = complete(&rig, &id, &[first, second]).await;
    rig.settle().await;
    let held = rig.shared.held(&subject("k")).await.unwrap().unwrap();
    assert_eq!(
        (held.entry.owing(), held.entry.intent),
        (members(&[2]), None)
    );
    let ends = Ends {
        source: &*rig.members[0],
        target: &*rig.members[2],
    };
    let key = forebay_native::hot::HotKey::from(&object("bucket", "k"));
    let copied = rig.shared.copier.copy(&key, ends).await.unwrap();
    assert_eq!(
        copied,
        Copied::Written((5 * MIB + 3) as u64, Likeness::Same)
    );
    let there = head("bucket", "k").expect(200, &*rig.members[2]).await;
    assert_eq!(there.header("etag"), tag);
    // What it had of the upload is given up.
    turn(&rig.shared).await.unwrap();
    assert_eq!(left_at(&rig, 2).await, 0);
}

#[tokio::test]
async fn a_part_that_too_few_have_is_no_part_and_may_be_tried_again() {
    let rig = Rig::new(3).await;
    let id = begin(&rig, "k").await;
    let first = part(&rig, "k", &id, 1, 5 * MIB).await;
    for member in &rig.members[1..] {
        member.script([Fault::Unavailable]);
    }
    let refused = upload_part("bucket", "k", &id, 2)
        .body("x")
        .send(&rig.mirror)
        .await;
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    let second = part(&rig, "k", &id, 2, 3).await;
    complete(&rig, &id, &[first, second]).await;
    rig.settle().await;
    assert_eq!(rig.shared.held(&subject("k")).await.unwrap(), None);
}

#[tokio::test]
async fn a_completion_may_be_asked_for_again_by_whoever_got_no_answer() {
    let rig = Rig::new(3).await;
    let id = begin(&rig, "k").await;
    let tags = two_parts(&rig, &id).await;
    let tag = complete(&rig, &id, &tags).await;
    assert_eq!(complete(&rig, &id, &tags).await, tag);
    let other = [(1, tags[0].as_str())];
    let refused = complete_upload("bucket", "k", &id, &other)
        .refusal(&rig.mirror)
        .await;
    assert_eq!(refused, "NoSuchUpload", "it was completed with other parts");
    let aborted = abort_upload("bucket", "k", &id).refusal(&rig.mirror).await;
    assert_eq!(aborted, "NoSuchUpload");
}

/// Goal: a gateway that ends between the completions and the record leaves nothing that a client
/// which tries again would fail on.
/// Method: the members have the object and know the upload no longer, as stores do that forget an
/// upload once it is completed.
#[tokio::test]
async fn a_completion_that_its_gateway_did_not_survive_is_found_by_its_object() {
    let rig = Rig::new(3).await;
    let id = begin(&rig, "k").await;
    let tags = two_parts(&rig, &id).await;
    let of_k = Upload {
        object: object("bucket", "k"),
        upload_id: id.clone(),
    };
    let record = record::get(&rig.shared, &of_k).await.unwrap().record;
    for (at, member) in rig.members.iter().enumerate() {
        let theirs = &record.members[&format!("m{at}")];
        abort_upload("bucket", "k", theirs)
            .expect(204, &**member)
            .await;
    }
    let parts = [(1, tags[0].as_str()), (2, tags[1].as_str())];
    let refused = complete_upload("bucket", "k", &id, &parts)
        .refusal(&rig.mirror)
        .await;
    assert_eq!(refused, "NoSuchUpload");
    let again = begin(&rig, "k").await;
    let of_again = two_parts(&rig, &again).await;
    let tag = complete(&rig, &again, &of_again).await;
    assert_eq!(complete(&rig, &id, &tags).await, tag);
}

#[test]
fn the_tag_of_an_object_follows_from_those_of_its_parts() {
    let document = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber>\
        <ETag>&quot;900150983cd24fb0d6963f7d28e17f72&quot;</ETag></Part></CompleteMultipartUpload>";
    let tag = complete::expected_tag(document.as_bytes()).unwrap();
    assert_eq!(tag, "\"af5da9f45af7a300e3aded972f8ff687-1\"");
    let other = document.replace("9001", "zzzz");
    assert_eq!(complete::expected_tag(other.as_bytes()), None);
}

#[tokio::test]
async fn an_aborted_upload_is_given_up_at_every_member_sooner_or_later() {
    let rig = Rig::new(3).await;
    let id = begin(&rig, "k").await;
    part(&rig, "k", &id, 1, 3).await;
    rig.members[1].script([Fault::Unavailable]);
    abort_upload("bucket", "k", &id)
        .expect(204, &rig.mirror)
        .await;
    let refused = list_parts("bucket", "k", &id).refusal(&rig.mirror).await;
    assert_eq!(refused, "NoSuchUpload");
    assert_eq!([left_at(&rig, 0).await, left_at(&rig, 1).await], [0, 1]);
    turn(&rig.shared).await.unwrap();
    assert_eq!(left_at(&rig, 1).await, 0);
    let records = record::range(&rig.shared, None, None, 10).await.unwrap();
    assert!(records.is_empty());
}

#[tokio::test]
async fn what_nobody_ends_expires_and_records_go() {
    let rig = Rig::new(3).await;
    let (old, done) = (begin(&rig, "old").await, begin(&rig, "k").await);
    let tags = two_parts(&rig, &done).await;
    complete(&rig, &done, &tags).await;
    rig.settle().await;
    turn(&rig.shared).await.unwrap();
    let count = async || {
        record::range(&rig.shared, None, None, 10)
            .await
            .unwrap()
            .len()
    };
    assert_eq!(count().await, 2);
    rig.clock.advance(COMPLETED_KEPT);
    turn(&rig.shared).await.unwrap();
    assert_eq!(count().await, 1);
    rig.clock.advance(EXPIRES_AFTER);
    turn(&rig.shared).await.unwrap();
    assert_eq!((count().await, left_at(&rig, 0).await), (0, 0));
    let refused = upload_part("bucket", "old", &old, 1)
        .body("x")
        .refusal(&rig.mirror)
        .await;
    assert_eq!(refused, "NoSuchUpload");
    turn(&rig.shared).await.unwrap();
}

#[tokio::test]
async fn a_part_is_copied_by_members_that_have_the_source_alone() {
    let rig = Rig::new(3).await;
    rig.set_all("source", Some("right")).await;
    rig.set(1, "source", Some("wrong")).await;
    rig.owe(&subject("source"), &[1]).await;
    let id = begin(&rig, "k").await;
    let copy = upload_part_copy(("bucket", "source"), ("bucket", "k"), &id, 1);
    let tag = copy.expect(200, &rig.mirror).await.element("ETag");
    complete_upload("bucket", "k", &id, &[(1, &tag)])
        .expect(200, &rig.mirror)
        .await;
    rig.settle().await;
    let held = rig.shared.held(&subject("k")).await.unwrap().unwrap();
    assert_eq!(held.entry.owing(), members(&[1]));
    let read = get("bucket", "k").expect(200, &rig.mirror).await;
    assert_eq!(read.text(), "right");
    // Two that agree are not right when the journal says that they lack it.
    rig.set(2, "source", Some("wrong")).await;
    rig.owe(&subject("source"), &[1, 2]).await;
    let id = begin(&rig, "k").await;
    let copy = upload_part_copy(("bucket", "source"), ("bucket", "k"), &id, 1);
    let refused = copy.send(&rig.mirror).await;
    assert!(
        matches!(refused, Err(Error::SlowDown { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn refusals_of_members_and_unknown_ids_are_told() {
    let rig = Rig::new(2).await;
    assert_eq!(
        create_upload("none", "k").refusal(&rig.mirror).await,
        "NoSuchBucket"
    );
    for id in ["", "x", &"0".repeat(ID_BYTES), &"0".repeat(5000)] {
        let refused = upload_part("bucket", "k", id, 1)
            .body("x")
            .refusal(&rig.mirror)
            .await;
        assert_eq!(refused, "NoSuchUpload", "{id}");
    }
    // One member is fewer than acknowledge a write.
    rig.members[1].script([Fault::Unavailable]);
    let refused = create_upload("bucket", "k").send(&rig.mirror).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(left_at(&rig, 0).await, 0);
}

#[tokio::test]
async fn uploads_are_listed_in_pages_by_prefix_and_delimiter() {
    let rig = Rig::new(2).await;
    let mut ids = Vec::new();
    for key in ["a", "a", "d/x", "d/y", "e"] {
        ids.push((key, begin(&rig, key).await));
    }
    ids.sort();
    let all = list_uploads("bucket").expect(200, &rig.mirror).await;
    let listed: Vec<_> = all
        .elements("Key")
        .into_iter()
        .zip(all.elements("UploadId"))
        .collect();
    let expected: Vec<_> = ids
        .iter()
        .map(|(key, id)| ((*key).to_owned(), id.clone()))
        .collect();
    assert_eq!(listed, expected);
    let (mut keys, mut markers) = (Vec::new(), (String::new(), String::new()));
    loop {
        let page = list_uploads("bucket")
            .query("max-uploads", "1")
            .query("delimiter", "/")
            .query("key-marker", &markers.0)
            .query("upload-id-marker", &markers.1)
            .expect(200, &rig.mirror)
            .await;
        let prefixes = page
            .elements("Prefix")
            .into_iter()
            .filter(|prefix| !prefix.is_empty());
        keys.extend(page.elements("Key").into_iter().chain(prefixes));
        if page.element("IsTruncated") != "true" {
            break;
        }
        markers = (
            page.element("NextKeyMarker"),
            page.element("NextUploadIdMarker"),
        );
    }
    assert_eq!(keys, ["a", "a", "d/", "e"]);
    let some = list_uploads("bucket")
        .query("prefix", "d/")
        .expect(200, &rig.mirror)
        .await;
    assert_eq!(some.elements("Key"), ["d/x", "d/y"]);
    create_bucket("other").expect(200, &rig.mirror).await;
    let none = list_uploads("other").expect(200, &rig.mirror).await;
    assert!(none.elements("Key").is_empty());
}

/// The bytes that docs/formats.md shows; a change of them is a change of the format.
#[test]
fn records_are_written_as_the_page_of_formats_says() {
    let ids = |name: &str| [(name.to_owned(), "x".to_owned())].into();
    let mut record = Record {
        begun_ms: 1,
        members: ids("a"),
        dropped: BTreeMap::new(),
        class: None,
        end: None,
    };
    let text = |record: &Record| serde_json::to_string(record).unwrap();
    assert_eq!(text(&record), r#"{"at":1,"members":{"a":"x"}}"#);
    record.dropped = ids("b");
    record.class = Some("STANDARD_IA".into());
    record.end = Some(End::Aborted);
    let expected =
        r#"{"at":1,"members":{"a":"x"},"dropped":{"b":"x"},"class":"STANDARD_IA","end":"aborted"}"#;
    assert_eq!(text(&record), expected);
    record.end = Some(End::Completed {
        at_ms: 2,
        document: "<a/>".into(),
    });
    assert!(text(&record).ends_with(r#""end":{"completed":{"at":2,"document":"<a/>"}}}"#));
    assert_eq!(
        serde_json::from_str::<Record>(&text(&record)).unwrap(),
        record
    );
}

/// Goal: an upload that was acknowledged is there, whole, at all members in the end.
/// Method: random faults of members at every step; a client that tries each step until it is done.
#[tokio::test(start_paused = true)]
async fn an_acknowledged_upload_survives_faults_at_every_step() {
    for case in 0..100 {
        let seed = fastrand::u64(..);
        println!("case {case} seed {seed}");
        through_faults(seed).await;
    }
}

async fn through_faults(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let rig = Rig::new(3).await;
    rig.mirror.repairer().turn().await.unwrap();
    if random.bool() {
        put("bucket", "k")
            .body("before")
            .expect(200, &rig.mirror)
            .await;
        rig.settle().await;
    }
    for member in &rig.members {
        let faults = (0..30).map(|_| match random.u8(0..20) {
            0 => Fault::Unavailable,
            1 => Fault::AnswerLost,
            2 => Fault::SlowDown,
            _ => Fault::None,
        });
        member.script(faults.collect::<Vec<_>>());
    }
    let id = loop {
        let created = create_upload("bucket", "k").send(&rig.mirror).await;
        if let Some(answer) = created.ok().filter(|answer| answer.status.is_success()) {
            break answer.element("UploadId");
        }
        turn_of(&rig).await;
    };
    let (mut content, mut tag) = (String::new(), String::new());
    for at in 0..random.usize(1..4) {
        content = format!("content {at}");
        tag = loop {
            let part = upload_part("bucket", "k", &id, 1).body(content.clone());
            let written = part.send(&rig.mirror).await;
            if let Some(answer) = written.ok().filter(|answer| answer.status.is_success()) {
                break answer.header("etag").to_owned();
            }
            turn_of(&rig).await;
        };
    }
    loop {
        let completed = complete_upload("bucket", "k", &id, &[(1, &tag)]);
        match completed.send(&rig.mirror).await {
            Ok(answer) if answer.status.is_success() => break,
            Err(Error::Refused(refusal)) => panic!("seed {seed}: {}", refusal.message),
            Ok(_) | Err(_) => turn_of(&rig).await,
        }
    }
    for member in &rig.members {
        // No more faults.
        for _ in 0..30 {
            drop(head("bucket", "k").send(&**member).await);
        }
    }
    for _ in 0..100 {
        turn_of(&rig).await;
    }
    assert_eq!(rig.shared.journal.keys().await.unwrap(), 0, "seed {seed}");
    let mut tags = Vec::new();
    for member in &rig.members {
        let read = get("bucket", "k").expect(200, &**member).await;
        assert_eq!(read.text(), content, "seed {seed}");
        tags.push(read.header("etag").to_owned());
    }
    assert!(
        tags.iter().all(|tag| *tag == tags[0]),
        "seed {seed} {tags:?}"
    );
}

/// Time passes, and repair takes a turn.
async fn turn_of(rig: &Rig) {
    rig.settle().await;
    rig.clock.advance(Duration::from_mins(2));
    rig.mirror.repairer().turn().await.unwrap();
}
