//! What was acknowledged survives a crash at every call to the device, and nothing else appears.
//!
//! A script of operations runs on a [`Recorder`]. For each call, the states that a crash right
//! after it may leave are made real, opened as a store, and looked at as a client does: it must be
//! the world of the last operation that was acknowledged or, while one is under way, that of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    sync::Arc,
};

use forebay_store::{
    Clock,
    contract::requests::{
        abort_upload, complete_upload, copy, create_bucket, create_upload, delete, delete_bucket,
        delete_tags, get, put, put_tags, upload_part,
    },
};

use super::{
    recorder::{Call, Recorder},
    states::{self, Left, Medium, Seen},
    world::World,
};
use crate::{Durability, FsSettings, FsStore, RecordPlace, device::System};

const B: &str = "bucket";

/// Syncs of every script without which nothing is lost: that at the start, as there was no process
/// before, and that of the directory of temporary files, which is made again when it is lost.
const SPARE: [&str; 2] = ["Put: sync of /bucket/.forebay/", "open: sync of all"];

/// One operation of a script.
#[derive(Debug, Clone, Copy)]
enum Op {
    CreateBucket,
    DeleteBucket,
    Put(&'static str, &'static str),
    Copy(&'static str, &'static str),
    Delete(&'static str),
    /// Tags too long for an attribute.
    LongTags(&'static str),
    ShortTags(&'static str),
    NoTags(&'static str),
    CreateUpload(&'static str),
    Part(&'static str),
    Complete,
    Abort,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{self:?}");
        f.write_str(text.split('(').next().unwrap())
    }
}

/// The upload that a script has begun.
#[derive(Debug, Default)]
struct Begun {
    key: &'static str,
    id: String,
    etag: String,
    /// Bytes by tag, of all parts that any upload had.
    parts: BTreeMap<String, &'static str>,
}

impl Op {
    async fn run(self, store: &FsStore, begun: &mut Begun) {
        match self {
            Self::CreateBucket => drop(create_bucket(B).expect(200, store).await),
            Self::DeleteBucket => drop(delete_bucket(B).expect(204, store).await),
            Self::Put(key, body) => {
                let put = put(B, key).header("x-amz-meta-m", body).body(body);
                put.expect(200, store).await;
            }
            Self::Copy(from, to) => drop(copy((B, from), (B, to)).expect(200, store).await),
            Self::Delete(key) => drop(delete(B, key).expect(204, store).await),
            Self::LongTags(key) => {
                let value = "v".repeat(256);
                let names: Vec<String> = (0..8).map(|n| n.to_string()).collect();
                let tags: Vec<_> = names.iter().map(|n| (&**n, &*value)).collect();
                put_tags(B, key, &tags).expect(200, store).await;
            }
            Self::ShortTags(key) => {
                put_tags(B, key, &[("t", "1")]).expect(200, store).await;
            }
            Self::NoTags(key) => drop(delete_tags(B, key).expect(204, store).await),
            Self::CreateUpload(key) => {
                let created = create_upload(B, key).header("x-amz-meta-m", "of upload");
                begun.id = created.expect(200, store).await.element("UploadId");
                begun.key = key;
            }
            Self::Part(body) => {
                let part = upload_part(B, begun.key, &begun.id, 1).body(body);
                part.expect(200, store)
                    .await
                    .etag()
                    .clone_into(&mut begun.etag);
                begun.parts.insert(begun.etag.clone(), body);
            }
            Self::Complete => {
                let parts = [(1, begun.etag.as_str())];
                let complete = complete_upload(B, begun.key, &begun.id, &parts);
                complete.expect(200, store).await;
            }
            Self::Abort => {
                let abort = abort_upload(B, begun.key, &begun.id);
                abort.expect(204, store).await;
            }
        }
    }
}

/// A script that has run.
struct Recording {
    calls: Vec<Call>,
    steps: Vec<Step>,
    keys: Vec<&'static str>,
    parts: BTreeMap<String, &'static str>,
    records: RecordPlace,
}

/// An operation that has run: its calls end at `end`.
struct Step {
    op: Op,
    end: usize,
    /// What may be there before it is acknowledged, besides what was there before.
    during: Vec<World>,
    after: World,
}

fn open(device: &Arc<Recorder>, root: &Path, records: RecordPlace) -> FsStore {
    let settings = FsSettings {
        records,
        ..FsSettings::new(root)
    };
    FsStore::open_on(Arc::<Recorder>::clone(device), settings, Clock::system()).unwrap()
}

async fn record(ops: &[Op], keys: &[&'static str], records: RecordPlace) -> Recording {
    let root = tempfile::tempdir().unwrap();
    let device = Arc::new(Recorder::new(root.path()));
    let store = open(&device, root.path(), records);
    let mut steps: Vec<Step> = Vec::new();
    let mut begun = Begun::default();
    for op in ops {
        op.run(&store, &mut begun).await;
        let end = device.count();
        let after = World::of(&store, keys).await.unwrap();
        assert_eq!(device.count(), end, "looking changes nothing");
        let mut during = vec![after.clone()];
        if let (Op::Complete, Some(before)) = (op, steps.last()) {
            // The object first, then the upload goes.
            let mut both = after.clone();
            let uploads = before.after.0[B].uploads.clone();
            both.0.get_mut(B).unwrap().uploads = uploads;
            during.push(both);
        }
        let op = *op;
        steps.push(Step {
            op,
            end,
            during,
            after,
        });
    }
    Recording {
        calls: device.calls(),
        steps,
        keys: keys.to_vec(),
        parts: begun.parts,
        records,
    }
}

/// What a crash left that it must not.
#[derive(Debug)]
struct Fault {
    step: String,
    call_index: usize,
    found: Result<World, String>,
    left: Left,
}

impl Recording {
    /// Looks at all crashes, as if the syncs that `is_skipped` names were never made, but not at
    /// states seen before.
    async fn check(
        &self,
        seen: &mut Seen,
        is_skipped: &dyn Fn(&str) -> bool,
        usable: Usable,
    ) -> Result<(), Box<Fault>> {
        let mut medium = Medium::default();
        let (mut at, mut before) = (0, World::default());
        for call_index in 0..=self.calls.len() {
            if let Some(call) = call_index.checked_sub(1).map(|index| &self.calls[index]) {
                let label = self
                    .steps
                    .get(at)
                    .map(|step| label(&step.op, call, &medium));
                if !label.flatten().is_some_and(|label| is_skipped(&label)) {
                    medium.apply(call);
                }
            }
            while self
                .steps
                .get(at)
                .is_some_and(|step| step.end == call_index)
            {
                before = self.steps[at].after.clone();
                at += 1;
            }
            let under_way = self.steps.get(at);
            let began = at.checked_sub(1).map_or(0, |last| self.steps[last].end);
            let mut allowed = vec![before.clone()];
            if let Some(step) = under_way.filter(|_| call_index > began) {
                allowed.extend(step.during.iter().cloned());
            }
            let expectation = 2 * at + usize::from(call_index > began);
            let pending = medium.pending();
            for choice in states::choices(&pending, 4, call_index as u64) {
                let left = medium.crash(&choice);
                if !seen.insert((expectation, states::digest(&left))) {
                    continue;
                }
                let found = self.recover(&left, usable).await;
                if !found.as_ref().is_ok_and(|world| allowed.contains(world)) {
                    let step = under_way.map_or("the end".into(), |step| step.op.to_string());
                    return Err(Box::new(Fault {
                        step,
                        call_index,
                        found,
                        left,
                    }));
                }
            }
        }
        Ok(())
    }

    /// Opens what a crash left, and looks at it; it must also be a store that can be used.
    async fn recover(&self, left: &Left, usable: Usable) -> Result<World, String> {
        let root = tempfile::tempdir().unwrap();
        left.write(root.path());
        let settings = FsSettings {
            records: self.records,
            durability: Durability::None,
            ..FsSettings::new(root.path())
        };
        let store = FsStore::open_on(Arc::new(System), settings, Clock::system());
        let store = store.map_err(|error| format!("open: {error}"))?;
        let world = World::of(&store, &self.keys).await?;
        for (id, upload) in world.0.get(B).into_iter().flat_map(|b| &b.uploads) {
            let [key, etag] = &upload[..] else { continue };
            let complete = complete_upload(B, key, id, &[(1, etag)]).send(&store).await;
            complete.map_err(|error| format!("complete {id} after the crash: {error}"))?;
            let read = get(B, key).send(&store).await;
            let read = read.map_err(|error| format!("get {key} after the crash: {error}"))?;
            if self.parts[etag] != read.text() {
                return Err(format!("part {etag} became {:?}", read.text()));
            }
        }
        if usable == Usable::Tried && world.0.contains_key(B) {
            for key in &self.keys {
                let put = put(B, key)
                    .body("written after the crash")
                    .send(&store)
                    .await;
                put.map_err(|error| format!("put {key} after the crash: {error}"))?;
                let read = get(B, key).send(&store).await;
                let read = read.map_err(|error| format!("get {key} after the crash: {error}"))?;
                assert_eq!(read.text(), "written after the crash");
            }
            for key in &self.keys {
                let delete = delete(B, key).send(&store).await;
                delete.map_err(|error| format!("delete {key} after the crash: {error}"))?;
            }
            let delete = delete_bucket(B).send(&store).await;
            delete.map_err(|error| format!("delete the bucket after the crash: {error}"))?;
        }
        Ok(world)
    }

    /// The syncs that were made: of what, in which operation.
    fn syncs(&self) -> BTreeSet<String> {
        let mut medium = Medium::default();
        let mut labels = BTreeSet::new();
        for (index, call) in self.calls.iter().enumerate() {
            let step = self.steps.iter().find(|step| index < step.end).unwrap();
            labels.extend(label(&step.op, call, &medium));
            medium.apply(call);
        }
        labels
    }

    /// Insists that no crash is a fault, and that each sync is needed for that but these, without
    /// which nothing is lost.
    async fn prove(&self, spare: &[&str]) {
        let mut sound = Seen::new();
        if let Err(fault) = self.check(&mut sound, &|_| false, Usable::Tried).await {
            let Fault {
                step,
                call_index,
                found,
                left,
            } = *fault;
            panic!("crash after call {call_index}, in {step}: {found:#?}, of {left:#?}");
        }
        println!("{} calls, {} states", self.calls.len(), sound.len());
        let mut not_caught = Vec::new();
        for sync in self.syncs() {
            // Only states that the sync kept away are looked at.
            let mut seen = sound.clone();
            let is_skipped = |label: &str| label == sync;
            match self.check(&mut seen, &is_skipped, Usable::Assumed).await {
                Err(fault) => println!("without {sync}: caught in {}", fault.step),
                Ok(()) => not_caught.push(sync),
            }
        }
        assert_eq!(not_caught, spare);
    }
}

/// Whether a store is also written to after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usable {
    Tried,
    Assumed,
}

/// What a sync is called; nothing for other calls.
fn label(op: &Op, call: &Call, medium: &Medium) -> Option<String> {
    match call {
        Call::Sync { node } => Some(format!("{op}: sync of {}/", medium.path(*node))),
        Call::SyncAll => Some("open: sync of all".into()),
        _ => None,
    }
}

#[tokio::test]
async fn objects_survive_a_crash_at_every_call() {
    use Op::{Copy, CreateBucket, Delete, Put, ShortTags};
    let ops = [
        CreateBucket,
        Put("k", "one"),
        Put("k", "another"),
        Copy("k", "dir/copy"),
        ShortTags("k"),
        Delete("k"),
        Delete("dir/copy"),
    ];
    let recording = record(&ops, &["k", "dir/copy"], RecordPlace::Attribute);
    recording.await.prove(&SPARE).await;
}

#[tokio::test]
async fn objects_with_sidecars_survive_a_crash_at_every_call() {
    use Op::{CreateBucket, Delete, Put, ShortTags};
    let ops = [
        CreateBucket,
        Put("k", "one"),
        Put("k", "another"),
        ShortTags("k"),
        Delete("k"),
    ];
    let recording = record(&ops, &["k"], RecordPlace::Sidecar);
    // What is in the sidecar needs no sync of the object's own file.
    let spare = ["ShortTags: sync of /bucket/k/", SPARE[1]];
    recording.await.prove(&spare).await;
}

#[tokio::test]
async fn a_record_that_moves_between_attribute_and_sidecar_survives_a_crash_at_every_call() {
    use Op::{CreateBucket, LongTags, NoTags, Put, ShortTags};
    let ops = [
        CreateBucket,
        Put("k", "one"),
        LongTags("k"),
        ShortTags("k"),
        NoTags("k"),
        LongTags("k"),
        Put("k", "another"),
    ];
    let recording = record(&ops, &["k"], RecordPlace::Attribute);
    recording.await.prove(&SPARE).await;
}

#[tokio::test]
async fn keys_in_each_others_way_survive_a_crash_at_every_call() {
    use Op::{CreateBucket, Delete, Put};
    let ops = [
        CreateBucket,
        Put("a", "of a"),
        Put("a/b", "of a/b"),
        Put("a", "another of a"),
        Delete("a"),
        Delete("a/b"),
        Put("a", "again"),
    ];
    let recording = record(&ops, &["a", "a/b"], RecordPlace::Attribute);
    recording.await.prove(&SPARE).await;
}

#[tokio::test]
async fn long_keys_in_each_others_way_survive_a_crash_at_every_call() {
    use Op::{CreateBucket, Delete, Put};
    // Its plain name is one, its escaped name two.
    let key: &'static str = "n".repeat(250).leak();
    let below: &'static str = format!("{key}/b").leak();
    let ops = [
        CreateBucket,
        Put(key, "of the key"),
        Put(below, "of the key below"),
        Put(key, "another"),
        Delete(key),
    ];
    let keys = [key, below];
    let recording = record(&ops, &keys, RecordPlace::Attribute);
    recording.await.prove(&SPARE).await;
}

#[tokio::test]
async fn uploads_survive_a_crash_at_every_call() {
    use Op::{Abort, Complete, CreateBucket, CreateUpload, Part};
    let ops = [
        CreateBucket,
        CreateUpload("k"),
        Part("one"),
        Part("another"),
        Complete,
        CreateUpload("k"),
        Part("lost"),
        Abort,
    ];
    let recording = record(&ops, &["k"], RecordPlace::Attribute);
    recording.await.prove(&SPARE[1..]).await;
}

#[tokio::test]
async fn buckets_survive_a_crash_at_every_call() {
    use Op::{CreateBucket, Delete, DeleteBucket, Put};
    let ops = [
        CreateBucket,
        DeleteBucket,
        CreateBucket,
        Put("dir/k", "one"),
        Delete("dir/k"),
        DeleteBucket,
    ];
    let recording = record(&ops, &["dir/k"], RecordPlace::Attribute);
    recording.await.prove(&SPARE).await;
}

/// Goal: what a process left in the kernel's memory when it died is made durable before the next
/// process relies on it.
/// Method: kill it at each call of a put; then put again, and let the machine crash.
#[tokio::test]
async fn a_put_after_a_killed_process_survives_a_crash() {
    let key = "dir/k";
    let script = [Op::CreateBucket, Op::Put(key, "one")];
    let whole = record(&script, &[key], RecordPlace::Sidecar).await;
    for calls_max in 1..whole.calls.len() {
        let root = tempfile::tempdir().unwrap();
        let device = Arc::new(Recorder::new(root.path()));
        let killed = open(&device, root.path(), RecordPlace::Sidecar);
        device.die_after(calls_max);
        let _ = create_bucket(B).send(&killed).await;
        let _ = put(B, key).body("one").send(&killed).await;
        drop(killed);
        device.die_after(usize::MAX);

        let store = open(&device, root.path(), RecordPlace::Sidecar);
        let _ = create_bucket(B).send(&store).await;
        Op::Put(key, "two").run(&store, &mut Begun::default()).await;
        let expected = World::of(&store, &[key]).await.unwrap();
        let mut medium = Medium::default();
        device.calls().iter().for_each(|call| medium.apply(call));
        for choice in states::choices(&medium.pending(), 4, calls_max as u64) {
            let left = medium.crash(&choice);
            let found = whole.recover(&left, Usable::Assumed).await;
            assert_eq!(
                found.as_ref(),
                Ok(&expected),
                "killed after {calls_max}: {left:#?}"
            );
        }
    }
}
