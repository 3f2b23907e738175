//! What the operating system says, as an error of a store.

use std::io;

use forebay_s3::code::Code;
use forebay_store::Error;
use rustix::io::Errno;

/// An error of the operating system while doing `context` (verb and object).
///
/// S3 has no code for a full disk. `ServiceUnavailable` (503) is the one that clients understand as
/// "not now, and not your fault"; the message says what is the matter.
pub(crate) fn of_io(context: &'static str, error: impl Into<io::Error>) -> Error {
    let error = error.into();
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => Error::refused_because(
            Code::ServiceUnavailable,
            "There is no space left on the disk of this store.",
        ),
        Some(Errno::MFILE | Errno::NFILE) => Error::SlowDown { retry_after: None },
        _ => Error::internal(context, error),
    }
}

/// Whether nothing is there under a name, or nothing that could be an object.
pub(crate) fn is_absent(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::NXIO
            | Errno::NODEV
            | Errno::NAMETOOLONG
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_to_the_client_and_a_fault_to_the_log() {
        let full = of_io("write", Errno::NOSPC);
        assert!(matches!(full, Error::Refused(r) if r.code == Code::ServiceUnavailable));
        assert!(matches!(
            of_io("write", Errno::MFILE),
            Error::SlowDown { .. }
        ));
        assert!(matches!(of_io("write", Errno::IO), Error::Internal { .. }));
    }
}
