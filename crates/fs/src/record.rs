//! Records of objects: in an extended attribute of the file, or in a sidecar.
//!
//! A record holds the size and the time of modification of the file it was written for. A file
//! that has others was changed by somebody else: it is then an object without a record, with a tag
//! made of its inode, size and time, and S3's defaults for the rest.
//!
//! A sidecar's name holds size and time too, so it is written before the file is renamed into
//! place, and the rename alone decides which version there is. docs/formats.md has the layout.

use std::{fmt::Write as _, io};

use forebay_native::record::{Attributes, ObjectRecord, PartOfObject};
use forebay_s3::{bucket::BucketName, etag::ETag, key::ObjectKey, operation::ObjectId};
use forebay_store::Error;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::Stat,
    io::Errno,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use crate::{
    device::{Attribute, Entry, Over},
    fault,
    names::{Kind, OWN_DIRECTORY},
    settings::RecordPlace,
    store::Disk,
    tree::{self, FILE},
};

/// Name of the attribute.
pub(crate) const ATTRIBUTE: &str = "user.forebay";
/// Directory of sidecars in the store's own directory of a bucket.
pub(crate) const SIDECARS: &str = "records";
/// The format of records.
const FORMAT: u8 = 1;
/// Bytes of an attribute that are read at once: what fits into a block of ext4.
const ATTRIBUTE_BYTES: usize = 4096;
/// Most bytes of an attribute on Linux (`XATTR_SIZE_MAX`).
const ATTRIBUTE_BYTES_MAX: usize = 65_536;

/// Which state of a file a record belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) modified_ns: i64,
    pub(crate) size_bytes: u64,
}

impl Version {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            modified_ns: tree::modified_ns(stat),
            size_bytes: tree::size_bytes(stat),
        }
    }
}

/// A record as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    /// Format.
    v: u8,
    /// Time of modification of the file, Unix nanoseconds.
    mtime_ns: i64,
    /// The key; in sidecars only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(flatten)]
    record: ObjectRecord,
}

impl Written {
    fn belongs_to(&self, version: Version) -> bool {
        self.v == FORMAT
            && self.mtime_ns == version.modified_ns
            && self.record.size_bytes == version.size_bytes
    }
}

/// What a sidecar is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sidecar {
    Record,
    Parts,
}

impl Sidecar {
    /// Directory and name of the sidecar of one version.
    fn names(self, key: &ObjectKey, version: Version) -> (String, String) {
        let hash = hex::encode(Sha256::digest(key.as_str()));
        let kind = match self {
            Self::Record => "json",
            Self::Parts => "parts",
        };
        let mut name = hash.clone();
        let _ = write!(
            name,
            ".{}-{}.{kind}",
            version.modified_ns, version.size_bytes
        );
        (hash[..2].to_owned(), name)
    }
}

impl Disk {
    /// The record of an open file; `None` when it has none that belongs to it.
    pub(crate) fn load_record(
        &self,
        object: &ObjectId,
        file: BorrowedFd<'_>,
        version: Version,
    ) -> Result<Option<ObjectRecord>, Error> {
        let context = "read the record of an object";
        let attribute = read_attribute(file).map_err(|e| fault::of_io(context, e))?;
        let written = match attribute {
            // An attribute that is no record of ours is no record.
            Some(bytes) => serde_json::from_slice::<Written>(&bytes).ok(),
            None => self.read_sidecar::<Written>(object, Sidecar::Record, version)?,
        };
        Ok(written
            .filter(|written| written.belongs_to(version))
            .map(|written| written.record))
    }

    /// Writes the record of a file and tells where; it is durable once the file is synced. Until
    /// then no sidecar may go, which may be all that there is of the record.
    pub(crate) fn store_record(
        &self,
        object: &ObjectId,
        file: BorrowedFd<'_>,
        version: Version,
        record: &ObjectRecord,
    ) -> Result<RecordPlace, Error> {
        let mut written = Written {
            v: FORMAT,
            mtime_ns: version.modified_ns,
            key: None,
            record: record.clone(),
        };
        if self.records == RecordPlace::Attribute {
            let json = to_json(&written)?;
            let attribute = Attribute {
                name: ATTRIBUTE,
                value: &json,
            };
            match self.device.set_attribute(file, attribute) {
                // It outranks a sidecar.
                Ok(()) => return Ok(RecordPlace::Attribute),
                Err(error) if sends_to_sidecar(error) => {}
                Err(error) => return Err(fault::of_io("write the record of an object", error)),
            }
        }
        written.key = Some(object.key.as_str().to_owned());
        self.write_sidecar(object, Sidecar::Record, version, &written)?;
        // The attribute that a file may have from before would outrank the sidecar.
        match self.device.remove_attribute(file, ATTRIBUTE) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM) => Ok(RecordPlace::Sidecar),
            Err(error) => Err(fault::of_io("remove the record of an object", error)),
        }
    }

    /// The parts of a multipart object; none when they are not known.
    pub(crate) fn load_parts(
        &self,
        object: &ObjectId,
        version: Version,
    ) -> Result<Vec<PartOfObject>, Error> {
        Ok(self
            .read_sidecar(object, Sidecar::Parts, version)?
            .unwrap_or_default())
    }

    pub(crate) fn store_parts(
        &self,
        object: &ObjectId,
        version: Version,
        parts: &[PartOfObject],
    ) -> Result<(), Error> {
        self.write_sidecar(object, Sidecar::Parts, version, &parts)
    }

    /// Removes the sidecar of a record that is in an attribute by now, durably.
    pub(crate) fn forget_sidecar(&self, object: &ObjectId, version: Version) -> Result<(), Error> {
        self.remove_sidecar(object, Sidecar::Record, version)
    }

    /// Removes what belonged to a version that is gone.
    pub(crate) fn forget_version(&self, object: &ObjectId, version: Version) -> Result<(), Error> {
        self.remove_sidecar(object, Sidecar::Record, version)?;
        self.remove_sidecar(object, Sidecar::Parts, version)
    }

    fn read_sidecar<T: DeserializeOwned>(
        &self,
        object: &ObjectId,
        sidecar: Sidecar,
        version: Version,
    ) -> Result<Option<T>, Error> {
        let (directory, name) = sidecar.names(&object.key, version);
        let bucket = object.bucket.as_str();
        let path = [bucket, OWN_DIRECTORY, SIDECARS, &directory, &name];
        let file = match self.tree.open(self.tree.root(), &path, FILE) {
            Ok(file) => std::fs::File::from(file),
            Err(error) if fault::is_absent(error) => return Ok(None),
            Err(error) => return Err(fault::of_io("open a sidecar", error)),
        };
        let text = io::read_to_string(file).map_err(|e| fault::of_io("read a sidecar", e))?;
        let value = serde_json::from_str(&text)
            .map_err(|error| Error::internal(format!("read sidecar {name}"), error))?;
        Ok(Some(value))
    }

    fn write_sidecar<T: Serialize>(
        &self,
        object: &ObjectId,
        sidecar: Sidecar,
        version: Version,
        value: &T,
    ) -> Result<(), Error> {
        let context = "write a sidecar";
        let (directory, name) = sidecar.names(&object.key, version);
        let into = self.own_directory(&object.bucket, &[SIDECARS, &directory])?;
        let mut staged = self.stage(&object.bucket)?;
        staged.write(&to_json(value)?)?;
        self.sync(staged.file())
            .map_err(|e| fault::of_io(context, e))?;
        staged
            .rename(into.as_fd(), &name, Over::Anything)
            .map_err(|e| fault::of_io(context, e))?;
        self.sync(&into).map_err(|e| fault::of_io(context, e))
    }

    fn remove_sidecar(
        &self,
        object: &ObjectId,
        sidecar: Sidecar,
        version: Version,
    ) -> Result<(), Error> {
        let Some(records) = self.sidecars_of(&object.bucket)? else {
            return Ok(());
        };
        let (directory, name) = sidecar.names(&object.key, version);
        let path = format!("{directory}/{name}");
        match self
            .device
            .remove(Entry::new(records.as_fd(), &path), Kind::File)
        {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(error) => Err(fault::of_io("remove a sidecar", error)),
        }
    }

    fn sidecars_of(&self, bucket: &BucketName) -> Result<Option<OwnedFd>, Error> {
        let path = [bucket.as_str(), OWN_DIRECTORY, SIDECARS];
        match self.tree.open(self.tree.root(), &path, tree::LOOKUP) {
            Ok(directory) => Ok(Some(directory)),
            Err(error) if fault::is_absent(error) => Ok(None),
            Err(error) => Err(fault::of_io("open the sidecars of a bucket", error)),
        }
    }
}

/// The record of a file that was put there by hand.
pub(crate) fn of_plain_file(stat: &Stat) -> ObjectRecord {
    let version = Version::of(stat);
    let mut hasher = Sha256::new();
    hasher.update(stat.st_ino.to_le_bytes());
    hasher.update(version.modified_ns.to_le_bytes());
    hasher.update(version.size_bytes.to_le_bytes());
    // The dash tells clients that this is no MD5 of the bytes.
    let etag = format!("{}-0", hex::encode(&hasher.finalize()[..16]));
    ObjectRecord {
        etag: ETag::strong(&etag).expect("hex digits and a dash are a tag"),
        size_bytes: version.size_bytes,
        modified_ms: version.modified_ns.div_euclid(1_000_000),
        attributes: Attributes::default(),
        checksum: None,
        part_count: None,
        upload_id: None,
    }
}

/// Whether an attribute can't be written, so that a sidecar must do: not supported here, or too
/// large (ext4 says `ENOSPC`, others `E2BIG` or `ERANGE`).
fn sends_to_sidecar(error: Errno) -> bool {
    [
        Errno::NOTSUP,
        Errno::NOSPC,
        Errno::TOOBIG,
        Errno::RANGE,
        Errno::PERM,
        Errno::NOSYS,
    ]
    .contains(&error)
}

fn read_attribute(file: BorrowedFd<'_>) -> Result<Option<Vec<u8>>, Errno> {
    let mut bytes = Vec::with_capacity(ATTRIBUTE_BYTES);
    loop {
        let room = rustix::buffer::spare_capacity(&mut bytes);
        match rustix::fs::fgetxattr(file, ATTRIBUTE, room) {
            Ok(_) => return Ok(Some(bytes)),
            Err(Errno::NODATA | Errno::NOTSUP | Errno::NOSYS) => return Ok(None),
            Err(Errno::RANGE) if bytes.capacity() < ATTRIBUTE_BYTES_MAX => {
                bytes.reserve(ATTRIBUTE_BYTES_MAX);
            }
            Err(error) => return Err(error),
        }
    }
}

fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|error| Error::internal("encode a record", error))
}
