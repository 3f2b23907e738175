//! Multipart uploads on disk: a directory each, a file for each part. Everything here blocks.
//!
//! A part's file name holds all that is known of it, so that a part is written by one rename and
//! parts are listed by reading one directory:
//! `NUMBER-MTIME_NS-SIZE-MD5-ALGORITHM-CHECKSUM`. Of two files of one number the later counts.

use std::{collections::BTreeMap, fs::File, io};

use forebay_native::{
    engine::Completion,
    gate::{Act, Gate},
    ingest::Ingested,
    record::{ObjectRecord, PartRecord, UploadRecord},
    refuse,
};
use forebay_s3::{
    bucket::BucketName,
    checksum::{Algorithm, Checksum},
    code::Code,
    operation::ObjectId,
};
use forebay_store::Error;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
};

use crate::{
    device::{Entry, New, Over},
    fault,
    names::{Kind, OWN_DIRECTORY},
    staged::{Staged, TEMPORARY},
    store::Disk,
    tree::{self, DIRECTORY, FILE},
};

/// Directory of uploads in the store's own directory of a bucket.
pub(crate) const UPLOADS: &str = "uploads";
/// The file that makes a directory an upload.
pub(crate) const UPLOAD_FILE: &str = "upload.json";
/// Hex digits of an upload's id.
const ID_BYTES: usize = 48;

/// A part in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PartFile {
    record: PartRecord,
    modified_ns: i64,
}

impl PartFile {
    fn name(&self) -> String {
        let PartRecord {
            number,
            size_bytes,
            md5,
            checksum,
            ..
        } = self.record;
        let (md5, sum) = (hex::encode(md5), hex::encode(checksum.as_bytes()));
        let algorithm = checksum.algorithm();
        format!(
            "{number:05}-{}-{size_bytes}-{md5}-{algorithm}-{sum}",
            self.modified_ns
        )
    }

    fn parse(name: &str) -> Option<Self> {
        let mut fields = name.split('-');
        let number = fields.next()?.parse().ok()?;
        let dated_ns: i64 = fields.next()?.parse().ok()?;
        let size_bytes = fields.next()?.parse().ok()?;
        let md5 = hex::decode(fields.next()?).ok()?.try_into().ok()?;
        let algorithm = Algorithm::from_name(fields.next()?)?;
        let checksum = Checksum::new(algorithm, &hex::decode(fields.next()?).ok()?)?;
        let record = PartRecord {
            number,
            size_bytes,
            md5,
            checksum,
            modified_ms: dated_ns.div_euclid(1_000_000),
        };
        fields.next().is_none().then_some(Self {
            record,
            modified_ns: dated_ns,
        })
    }
}

impl Disk {
    pub(crate) fn create_upload(
        &self,
        bucket: &BucketName,
        upload: &UploadRecord,
    ) -> Result<(), Error> {
        let context = "begin an upload";
        let uploads = self.own_directory(bucket, &[UPLOADS])?;
        let json = serde_json::to_vec(upload).map_err(|e| Error::internal(context, e))?;
        let mut staged = self.stage(bucket)?;
        staged.write(&json)?;
        self.begin_upload(&uploads, &upload.id, staged)
            .map_err(|e| fault::of_io(context, e))
    }

    fn begin_upload(&self, uploads: &OwnedFd, id: &str, mut staged: Staged) -> Result<(), Errno> {
        self.sync(staged.file())?;
        let made = self.device.make_directory(Entry::new(uploads.as_fd(), id));
        if made? == New::WasThere {
            return Err(Errno::EXIST);
        }
        let directory = self.tree.open(uploads.as_fd(), &[id], DIRECTORY)?;
        staged.rename(directory.as_fd(), UPLOAD_FILE, Over::Anything)?;
        self.sync(&directory)?;
        self.sync(uploads)
    }

    /// All uploads of a bucket.
    pub(crate) fn uploads(&self, bucket: &BucketName) -> Result<Vec<UploadRecord>, Error> {
        let context = "list uploads";
        self.require_bucket(bucket)?;
        let path = [bucket.as_str(), OWN_DIRECTORY, UPLOADS];
        let directory = match self.tree.open(self.tree.root(), &path, DIRECTORY) {
            Ok(directory) => directory,
            Err(error) if fault::is_absent(error) => return Ok(Vec::new()),
            Err(error) => return Err(fault::of_io(context, error)),
        };
        let mut uploads = Vec::new();
        let entries = tree::entries(directory.as_fd());
        for (id, kind) in entries.map_err(|e| fault::of_io(context, e))? {
            if kind == Kind::Directory
                && let Some(upload) = self.read_upload(bucket, &id)?
            {
                uploads.push(upload);
            }
        }
        Ok(uploads)
    }

    fn read_upload(&self, bucket: &BucketName, id: &str) -> Result<Option<UploadRecord>, Error> {
        // Anything else is no id of ours, and must not become a path.
        if id.len() != ID_BYTES || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let path = [bucket.as_str(), OWN_DIRECTORY, UPLOADS, id, UPLOAD_FILE];
        let file = match self.tree.open(self.tree.root(), &path, FILE) {
            Ok(file) => File::from(file),
            Err(error) if fault::is_absent(error) => return Ok(None),
            Err(error) => return Err(fault::of_io("open an upload", error)),
        };
        let text = io::read_to_string(file).map_err(|e| fault::of_io("read an upload", e))?;
        let upload = serde_json::from_str(&text)
            .map_err(|error| Error::internal(format!("read upload {id}"), error))?;
        Ok(Some(upload))
    }

    /// The upload `id` of this object.
    pub(crate) fn upload(&self, object: &ObjectId, id: &str) -> Result<UploadRecord, Error> {
        let upload = self.read_upload(&object.bucket, id)?;
        if let Some(upload) = upload.filter(|upload| upload.key == object.key.as_str()) {
            return Ok(upload);
        }
        self.require_bucket(&object.bucket)?;
        Err(refuse::no_such_upload(id))
    }

    fn open_upload(&self, object: &ObjectId, id: &str) -> Result<OwnedFd, Error> {
        self.upload(object, id)?;
        let path = [object.bucket.as_str(), OWN_DIRECTORY, UPLOADS, id];
        match self.tree.open(self.tree.root(), &path, DIRECTORY) {
            Ok(directory) => Ok(directory),
            Err(error) if fault::is_absent(error) => Err(refuse::no_such_upload(id)),
            Err(error) => Err(fault::of_io("open an upload", error)),
        }
    }

    /// The parts of an upload by number.
    pub(crate) fn upload_parts(
        &self,
        object: &ObjectId,
        id: &str,
    ) -> Result<Vec<PartRecord>, Error> {
        let parts = part_files(self.open_upload(object, id)?.as_fd())?;
        Ok(parts.into_values().map(|part| part.record).collect())
    }

    /// Makes a part of a temporary file.
    pub(crate) fn commit_part(
        &self,
        object: &ObjectId,
        id: &str,
        number: u16,
        (mut staged, ingested): (Staged, Ingested),
    ) -> Result<PartRecord, Error> {
        let version = self.date(&staged)?;
        let modified_ns = version.modified_ns;
        let record = ingested.into_part(number, modified_ns.div_euclid(1_000_000));
        self.sync(staged.file())
            .map_err(|e| fault::of_io("sync a part", e))?;
        let directory = self.open_upload(object, id)?;
        let name = PartFile {
            record,
            modified_ns,
        }
        .name();
        match staged.rename(directory.as_fd(), &name, Over::Anything) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(refuse::no_such_upload(id)),
            Err(error) => return Err(fault::of_io("rename a part into place", error)),
        }
        self.sync(&directory)
            .map_err(|e| fault::of_io("sync an upload", e))?;
        Ok(record)
    }

    /// Makes an object of an upload.
    pub(crate) fn complete_upload(
        &self,
        object: &ObjectId,
        id: &str,
        completion: Completion,
    ) -> Result<ObjectRecord, Error> {
        let Completion {
            record,
            parts,
            gate,
        } = completion;
        let upload = self.upload(object, id)?;
        // Before the work; it is judged again with the key's lock.
        self.check(object, &gate, Act::Write)?;
        let staged = self.assemble(object, id, &parts)?;
        let choice = upload.checksum.choice;
        let of_object: Vec<_> = parts.iter().map(|part| part.of_object(choice)).collect();
        let dated = |modified_ms| ObjectRecord {
            modified_ms,
            ..record
        };
        let record = self.seal(&staged, object, &of_object, dated)?;
        self.commit(object, staged, &gate)?;
        if let Err(error) = self.remove_upload(&object.bucket, id) {
            // The object is there and the client is told so; a later abort can remove the rest.
            tracing::warn!(upload_id = id, %error, "completed upload leaves its parts behind");
        }
        Ok(record)
    }

    fn assemble(&self, object: &ObjectId, id: &str, parts: &[PartRecord]) -> Result<Staged, Error> {
        let directory = self.open_upload(object, id)?;
        let files = part_files(directory.as_fd())?;
        let mut staged = self.stage(&object.bucket)?;
        for part in parts {
            let file = files.get(&part.number).filter(|file| file.record == *part);
            let file = file.ok_or_else(|| Error::refused(Code::InvalidPart))?;
            let source = match self.tree.open(directory.as_fd(), &[file.name()], FILE) {
                Ok(source) => File::from(source),
                Err(error) if fault::is_absent(error) => return Err(refuse::no_such_upload(id)),
                Err(error) => return Err(fault::of_io("open a part", error)),
            };
            if staged.append_file(source)? != part.size_bytes {
                let error = io::Error::from(io::ErrorKind::InvalidData);
                return Err(Error::internal(
                    "copy a part: it is not as long as it was",
                    error,
                ));
            }
        }
        Ok(staged)
    }

    pub(crate) fn abort_upload(&self, object: &ObjectId, id: &str) -> Result<(), Error> {
        self.upload(object, id)?;
        self.remove_upload(&object.bucket, id)
    }

    /// Takes an upload out of sight, then removes its files.
    fn remove_upload(&self, bucket: &BucketName, id: &str) -> Result<(), Error> {
        let uploads = self.own_directory(bucket, &[UPLOADS])?;
        let temporary = self.own_directory(bucket, &[TEMPORARY])?;
        let from = Entry::new(uploads.as_fd(), id);
        let to = Entry::new(temporary.as_fd(), id);
        match self.device.rename(from, to, Over::Anything) {
            Ok(()) => {}
            // Somebody else was faster.
            Err(Errno::NOENT) => return Err(refuse::no_such_upload(id)),
            Err(error) => return Err(fault::of_io("remove an upload", error)),
        }
        self.sync(&uploads)
            .and_then(|()| self.remove_all(to))
            .map_err(|error| fault::of_io("remove the parts of an upload", error))
    }

    /// Judges a write early, to spare a client the upload of a body that will be refused.
    pub(crate) fn check_early(&self, object: &ObjectId, gate: &Gate) -> Result<(), Error> {
        self.check(object, gate, Act::Write)
    }
}

/// The parts in the directory of an upload, by number.
fn part_files(directory: BorrowedFd<'_>) -> Result<BTreeMap<u16, PartFile>, Error> {
    let mut parts = BTreeMap::new();
    tree::visit_entries(directory, |name, _| {
        if let Some(part) = PartFile::parse(name) {
            let latest = parts.entry(part.record.number).or_insert(part);
            if latest.modified_ns < part.modified_ns {
                *latest = part;
            }
        }
        Ok(())
    })
    .map_err(|e| fault::of_io("list parts", e))?;
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_names_hold_all_that_is_known_of_a_part() {
        for algorithm in Algorithm::ALL {
            let modified_ns = 1_700_000_000_123_456_789;
            let record = PartRecord {
                number: 10_000,
                size_bytes: 5 << 30,
                md5: [0xab; 16],
                checksum: Checksum::of(algorithm, b"x"),
                modified_ms: 1_700_000_000_123,
            };
            let part = PartFile {
                record,
                modified_ns,
            };
            assert!(part.name().len() <= 255);
            assert_eq!(PartFile::parse(&part.name()), Some(part));
        }
        for bad in ["", UPLOAD_FILE, "1-2-3", "00001-1-1-zz-CRC32-00000000"] {
            assert_eq!(PartFile::parse(bad), None, "{bad}");
        }
    }
}
