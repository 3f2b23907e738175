//! What is kept of an upload: which members take part, under which ids of their own.
//!
//! A record is an entry of the journal's index, named by bucket, key and id, so that a range of
//! them is a listing. Its bytes are in docs/formats.md.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_native::index::{
    Applied, Batch, Change, Entry, Expect, Payload, Route, Sequence, Want,
};
use forebay_s3::{
    bucket::BucketName,
    code::Code,
    key::ObjectKey,
    operation::{ObjectId, Upload},
};
use forebay_store::Error;
use serde::{Deserialize, Serialize};

use crate::{
    members::{MemberId, MemberSet},
    mirror::Shared,
};

/// The kind of its names.
const UPLOAD: u8 = b'u';
/// Tries to change a record that others change as well: parts of one upload that are written side
/// by side and each find a member that fails.
const ATTEMPTS_MAX: usize = 32;

/// What is kept of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// When it was begun, Unix milliseconds.
    #[serde(rename = "at")]
    pub(crate) begun_ms: i64,
    /// Members that have all its parts, by name, and its id there.
    pub(crate) members: BTreeMap<String, String>,
    /// Members that have parts of it that are to be given up.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) dropped: BTreeMap<String, String>,
    /// Class that its creation named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<String>,
    /// How it ended, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<End>,
}

/// How an upload ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// It was given up.
    Aborted,
    /// It became an object.
    Completed {
        /// When, Unix milliseconds.
        #[serde(rename = "at")]
        at_ms: i64,
        /// What its client was told.
        document: String,
    },
}

/// A record as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) record: Record,
    sequence: Sequence,
}

/// A record in a range of them.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) upload: Upload,
    pub(crate) record: Record,
    /// Its name, after which the next one is.
    pub(crate) name: Bytes,
}

impl Record {
    /// Nobody takes part any more.
    pub(crate) fn give_up(&mut self) {
        let members = std::mem::take(&mut self.members);
        self.dropped.extend(members);
    }

    /// Members that have all its parts, and are still configured.
    pub(crate) fn taking_part(&self, shared: &Shared) -> MemberSet {
        let names = self.members.keys();
        names
            .filter_map(|name| shared.members.named(name))
            .collect()
    }

    /// Its id at a member.
    pub(crate) fn id_at(&self, shared: &Shared, member: MemberId) -> Option<&str> {
        let name = &shared.members.get(member).name;
        self.members.get(name).map(String::as_str)
    }
}

fn name_of(shared: &Shared, upload: &Upload) -> Bytes {
    let (bucket, key) = (&upload.object.bucket, &upload.object.key);
    shared.journal.names().join(
        UPLOAD,
        &[
            bucket.as_str().as_bytes(),
            &[0],
            key.as_str().as_bytes(),
            &[0],
            upload.upload_id.as_bytes(),
        ],
    )
}

/// Uploads of a key lie together.
fn route_of(upload: &Upload) -> Route {
    let (bucket, key) = (&upload.object.bucket, &upload.object.key);
    Route::One(
        [bucket.as_str().as_bytes(), &[0], key.as_str().as_bytes()]
            .concat()
            .into(),
    )
}

pub(crate) fn no_such_upload(upload: &Upload) -> Error {
    let mut error = Error::refused(Code::NoSuchUpload);
    if let Error::Refused(refusal) = &mut error {
        refusal.details.push(("UploadId", upload.upload_id.clone()));
    }
    error
}

/// The record of an upload.
///
/// # Errors
/// `NoSuchUpload`; the index's own.
pub(crate) async fn get(shared: &Shared, upload: &Upload) -> Result<Held, Error> {
    // What is no id of ours names nothing, however long it is.
    if upload.upload_id.len() != super::ID_BYTES {
        return Err(no_such_upload(upload));
    }
    let (route, name) = (route_of(upload), name_of(shared, upload));
    let entry = shared
        .journal
        .parts()
        .index
        .get(&route, &name, Want::Value)
        .await?;
    entry.map_or_else(|| Err(no_such_upload(upload)), |entry| held(&entry))
}

fn held(entry: &Entry) -> Result<Held, Error> {
    let record = serde_json::from_slice(&entry.value)
        .map_err(|error| Error::internal("read the record of an upload", error))?;
    Ok(Held {
        record,
        sequence: entry.sequence,
    })
}

/// Writes the record of a new upload.
pub(crate) async fn begin(shared: &Shared, upload: &Upload, record: &Record) -> Result<(), Error> {
    match apply(shared, upload, Expect::Absent, Some(record)).await? {
        Applied::Done(_) => Ok(()),
        Applied::Unexpected { .. } => Err(Error::internal("begin an upload", "its id is taken")),
    }
}

/// Changes a record, whatever others do to it meanwhile; `None` when it is gone.
pub(crate) async fn change(
    shared: &Shared,
    upload: &Upload,
    change: impl Fn(&mut Record),
) -> Result<Option<Record>, Error> {
    for _ in 0..ATTEMPTS_MAX {
        let held = match get(shared, upload).await {
            Ok(held) => held,
            Err(Error::Refused(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut next = held.record.clone();
        change(&mut next);
        if next == held.record {
            return Ok(Some(next));
        }
        let expect = Expect::At(held.sequence);
        if let Applied::Done(_) = apply(shared, upload, expect, Some(&next)).await? {
            return Ok(Some(next));
        }
    }
    Err(Error::SlowDown { retry_after: None })
}

/// Forgets an upload.
pub(crate) async fn forget(shared: &Shared, upload: &Upload) -> Result<(), Error> {
    apply(shared, upload, Expect::Present, None).await.map(drop)
}

async fn apply(
    shared: &Shared,
    upload: &Upload,
    expect: Expect,
    record: Option<&Record>,
) -> Result<Applied, Error> {
    let name = name_of(shared, upload);
    let change = match record {
        None => Change::Delete { name: name.clone() },
        Some(record) => Change::Put {
            name: name.clone(),
            value: serde_json::to_vec(record)
                .map_err(|error| Error::internal("write the record of an upload", error))?
                .into(),
            payload: Payload::None,
        },
    };
    let batch = Batch {
        expects: vec![(name, expect)],
        changes: vec![change],
    };
    let index = &shared.journal.parts().index;
    index.apply(&route_of(upload), batch).await
}

/// Where records of a bucket begin whose keys are at or after this one.
pub(crate) fn start_of(shared: &Shared, bucket: &BucketName, key: &[u8]) -> Bytes {
    let bucket = bucket.as_str().as_bytes();
    shared.journal.names().join(UPLOAD, &[bucket, &[0], key])
}

/// The first records from a name on: of one bucket, or of all; some, or none at the end.
pub(crate) async fn range(
    shared: &Shared,
    bucket: Option<&BucketName>,
    from: Option<Bytes>,
    records_max: usize,
) -> Result<Vec<Named>, Error> {
    let names = shared.journal.names();
    let mut range = names.all(UPLOAD);
    if let Some(bucket) = bucket {
        range.start = names.join(UPLOAD, &[bucket.as_str().as_bytes(), &[0]]);
        range.end = names.join(UPLOAD, &[bucket.as_str().as_bytes(), &[1]]);
    }
    if let Some(from) = from {
        range.start = range.start.max(from);
    }
    let first = names.join(UPLOAD, &[]).len();
    let entries = shared
        .journal
        .parts()
        .index
        .range(range, records_max)
        .await?;
    let unreadable = || Error::internal("read the record of an upload", "its name is none");
    entries
        .iter()
        .map(|entry| {
            let upload = entry
                .name
                .get(first..)
                .and_then(upload_of)
                .ok_or_else(unreadable)?;
            Ok(Named {
                upload,
                record: held(entry)?.record,
                name: entry.name.clone(),
            })
        })
        .collect()
}

/// The upload that the rest of a name is of. A key may have a NUL in it, an id has none.
fn upload_of(rest: &[u8]) -> Option<Upload> {
    let text = std::str::from_utf8(rest).ok()?;
    let (bucket, rest) = text.split_once('\0')?;
    let (key, id) = rest.rsplit_once('\0')?;
    Some(Upload {
        object: ObjectId {
            bucket: BucketName::parse(bucket).ok()?,
            key: ObjectKey::parse(key).ok()?,
            version: None,
        },
        upload_id: id.to_owned(),
    })
}
