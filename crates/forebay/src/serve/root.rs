//! The key of the root user: from the environment, or made at the first start, shown once and kept
//! in a file that only its owner can read.
//!
//! The file has the form of AWS's shared credentials files, so that clients can use it as it is
//! (`AWS_SHARED_CREDENTIALS_FILE`). It lies in the data directory, with `--origin` as well; its
//! name begins with a dot, which no bucket's name does.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use forebay_gateway::{
    access::{RootKey, needs_root},
    config::{Config, Fault},
};
use forebay_s3::sigv4::SecretKey;

use super::variable;
use crate::FaultyConfig;

const ACCESS_KEY_VARIABLE: &str = "FOREBAY_ROOT_ACCESS_KEY";
const SECRET_KEY_VARIABLE: &str = "FOREBAY_ROOT_SECRET_KEY";
const FILE_NAME: &str = ".forebay-root-credentials";
/// Only the owner may read or write it.
const FILE_MODE: u32 = 0o600;
/// Any of these bits lets others in.
const MODE_OF_OTHERS: u32 = 0o077;

/// Letters of a made access key: 32 of them, so that 5 random bits choose one without bias, and
/// none that is taken for another.
const ACCESS_KEY_LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// Letters of a made secret: 64, for 6 random bits each.
const SECRET_KEY_LETTERS: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// As long as AWS's own: 16 letters after a prefix are 80 random bits,
const ACCESS_KEY_RANDOM_LETTERS: usize = 16;
/// and 40 letters are 240.
const SECRET_KEY_LETTERS_COUNT: usize = 40;

/// Where the key of the root user is.
#[derive(Debug)]
pub(crate) enum RootSource {
    /// The config has users of its own, and nobody asks for root.
    Nowhere,
    /// In the environment; perhaps only half of it.
    Environment {
        access_key: String,
        secret_key: Option<SecretKey>,
    },
    /// In a file, once it has been made.
    File(PathBuf),
}

/// The key of the root user, and how it came.
#[derive(Debug)]
pub(crate) enum Root {
    /// There is no root user.
    None,
    /// From the environment.
    FromEnvironment(RootKey),
    /// From the file.
    FromFile { key: RootKey, path: PathBuf },
    /// Made just now, kept in the file.
    Made { key: RootKey, path: PathBuf },
}

impl Root {
    /// The key, where there is a root user.
    pub(crate) fn key(&self) -> Option<&RootKey> {
        match self {
            Self::None => None,
            Self::FromEnvironment(key) | Self::FromFile { key, .. } | Self::Made { key, .. } => {
                Some(key)
            }
        }
    }
}

impl RootSource {
    /// Decides where the key is, from the environment and the config.
    pub(crate) fn of(config: &Config) -> Self {
        if let Some(given) = Self::of_environment() {
            return given;
        }
        if needs_root(&config.access, &config.settings.listeners) {
            Self::File(config.data_dir.join(FILE_NAME))
        } else {
            Self::Nowhere
        }
    }

    /// The key of the environment, if at least half of it is there.
    fn of_environment() -> Option<Self> {
        let set = |name| variable(name).filter(|text| !text.is_empty());
        let access_key = set(ACCESS_KEY_VARIABLE);
        let secret_key = set(SECRET_KEY_VARIABLE).map(SecretKey::new);
        (access_key.is_some() || secret_key.is_some()).then(|| Self::Environment {
            access_key: access_key.unwrap_or_default(),
            secret_key,
        })
    }

    /// The key, made and kept if there is none yet.
    pub(crate) fn obtain(self) -> Result<Root> {
        match self {
            Self::Nowhere => Ok(Root::None),
            Self::Environment {
                access_key,
                secret_key,
            } => {
                let key = from_environment(access_key, secret_key).map_err(faulty)?;
                Ok(Root::FromEnvironment(key))
            }
            Self::File(path) => {
                if let Some(key) = read(&path)? {
                    return Ok(Root::FromFile { key, path });
                }
                let key = make()?;
                keep(&path, &key)
                    .with_context(|| format!("keep root credentials in {}", path.display()))?;
                Ok(Root::Made { key, path })
            }
        }
    }

    /// A key that stands for the root user where only faults are looked for; makes nothing.
    pub(crate) fn key_for_check(self) -> Result<Option<RootKey>> {
        match self {
            Self::Nowhere => Ok(None),
            Self::Environment {
                access_key,
                secret_key,
            } => Ok(Some(
                from_environment(access_key, secret_key).map_err(faulty)?,
            )),
            Self::File(path) => match read(&path)? {
                Some(key) => Ok(Some(key)),
                None => make().map(Some),
            },
        }
    }
}

/// What is wrong with the variables of the root key; for a config that can't be asked whether it
/// needs one.
pub(super) fn faults_of_environment() -> Vec<Fault> {
    let Some(RootSource::Environment {
        access_key,
        secret_key,
    }) = RootSource::of_environment()
    else {
        return Vec::new();
    };
    match from_environment(access_key, secret_key) {
        Ok(_) => Vec::new(),
        Err(fault) => vec![fault],
    }
}

fn from_environment(access_key: String, secret_key: Option<SecretKey>) -> Result<RootKey, Fault> {
    let fits = |b: u8| b.is_ascii_graphic() && !matches!(b, b'/' | b',' | b'=');
    match secret_key {
        Some(secret_key) if access_key.len() >= 3 && access_key.bytes().all(fits) => Ok(RootKey {
            access_key,
            secret_key,
        }),
        Some(_) | None => Err(Fault {
            key: ACCESS_KEY_VARIABLE.to_owned(),
            value: format!("{access_key:?}"),
            allowed: format!("an access key, together with {SECRET_KEY_VARIABLE}"),
            remedy: "set both variables, or neither to have a key made".to_owned(),
        }),
    }
}

fn faulty(fault: Fault) -> FaultyConfig {
    FaultyConfig(vec![fault])
}

fn make() -> Result<RootKey> {
    let access_key = random_letters(ACCESS_KEY_LETTERS, ACCESS_KEY_RANDOM_LETTERS)?;
    let secret_key = random_letters(SECRET_KEY_LETTERS, SECRET_KEY_LETTERS_COUNT)?;
    Ok(RootKey {
        access_key: format!("FBAY{access_key}"),
        secret_key: SecretKey::new(secret_key),
    })
}

/// Letters chosen evenly; the alphabet's size divides 256.
fn random_letters(letters: &[u8], count: usize) -> Result<String> {
    let mut bytes = vec![0; count];
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        bail!("the system gives no random bytes");
    }
    Ok(bytes
        .iter()
        .map(|byte| char::from(letters[usize::from(*byte) % letters.len()]))
        .collect())
}

fn read(path: &Path) -> Result<Option<RootKey>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(error).with_context(|| format!("read root credentials {}", path.display()));
        }
    };
    let mode = fs::metadata(path).map_or(FILE_MODE, |metadata| metadata.mode());
    if mode & MODE_OF_OTHERS != 0 {
        tracing::warn!(
            path = %path.display(),
            mode = format!("{:o}", mode & 0o777),
            "others can read the root credentials; chmod 600, and make new ones by removing it"
        );
    }
    let Some(key) = parse(&text) else {
        bail!(
            "root credentials {} can't be read as a credentials file; remove it to have new ones \
             made",
            path.display()
        );
    };
    Ok(Some(key))
}

fn parse(text: &str) -> Option<RootKey> {
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name)
                .then(|| value.trim())
                .filter(|value| !value.is_empty())
        })
    };
    Some(RootKey {
        access_key: value("aws_access_key_id")?.to_owned(),
        secret_key: SecretKey::new(value("aws_secret_access_key")?),
    })
}

/// Writes the key beside and links it into place, so that there is never half a file and an
/// existing one is never replaced.
fn keep(path: &Path, key: &RootKey) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    let written = write_draft(&draft, key).and_then(|()| fs::hard_link(&draft, path));
    let removed = fs::remove_file(&draft);
    written?;
    removed?;
    File::open(directory)?.sync_all()
}

fn write_draft(draft: &Path, key: &RootKey) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(draft)?;
    write!(
        file,
        "# The root user of Forebay. Made at the first start; remove it to have a new one made.\n\
         [default]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
        key.access_key,
        key.secret_key.expose()
    )?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_then_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data").join(FILE_NAME);
        let Root::Made { key, .. } = RootSource::File(path.clone()).obtain().unwrap() else {
            panic!("nothing was there to read");
        };
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            (key.access_key.len(), key.secret_key.expose().len()),
            (20, 40)
        );
        let Root::FromFile { key: again, .. } = RootSource::File(path.clone()).obtain().unwrap()
        else {
            panic!("made again");
        };
        assert_eq!(key, again);
        let names: Vec<_> = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names, [FILE_NAME], "no draft is left");
    }

    #[test]
    fn a_check_makes_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data").join(FILE_NAME);
        assert!(
            RootSource::File(path.clone())
                .key_for_check()
                .unwrap()
                .is_some()
        );
        assert!(!path.exists());
    }

    #[test]
    fn half_a_key_is_a_fault() {
        let secret = || Some(SecretKey::new("s"));
        assert!(from_environment("AKIA".to_owned(), secret()).is_ok());
        assert!(from_environment("AKIA".to_owned(), None).is_err());
        assert!(from_environment(String::new(), secret()).is_err());
        assert!(from_environment("AK/A".to_owned(), secret()).is_err());
    }

    #[test]
    fn a_damaged_file_is_told_and_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        fs::write(&path, "[default]\naws_access_key_id = A\n").unwrap();
        let error = RootSource::File(path.clone()).obtain().unwrap_err();
        assert!(format!("{error:#}").contains("remove it"), "{error:#}");
        assert!(
            fs::read_to_string(&path)
                .unwrap()
                .contains("aws_access_key_id = A")
        );
    }
}
