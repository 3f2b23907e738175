//! Keys in the environment and in AWS's profile files.
//!
//! The files are INI: `[default]`, `[name]` in the credentials file, `[profile name]` in the
//! config file; `name = value`; comments start with `#` or `;`; indented lines are values nested
//! in the setting before and are skipped. A key of the credentials file wins. Source: AWS SDKs and
//! Tools Reference Guide, "Shared config and credentials files".
//!
//! A profile that gets its keys by a role, a process, or a sign-in is not for here: the answer is
//! then "nothing found", and the library takes over.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use forebay_s3::sigv4::Credentials;

use super::{CredentialsError, pair};

/// Settings of a profile: values by name, which is in lower case.
pub type Profile = BTreeMap<String, String>;

/// Settings by which a profile gets its keys from elsewhere.
const INDIRECT: [&str; 5] = [
    "role_arn",
    "credential_process",
    "sso_session",
    "sso_start_url",
    "web_identity_token_file",
];

/// Looks for keys; `variable` gives environment variables that are set and not empty.
///
/// # Errors
/// Half a pair of keys, a file named but unreadable, a named profile that does not exist.
pub(super) fn find(
    variable: &dyn Fn(&str) -> Option<String>,
    profile: Option<&str>,
) -> Result<Option<Credentials>, CredentialsError> {
    // A profile named on purpose goes before the environment, as with AWS's own tools.
    if profile.is_none() {
        let of_environment = pair(
            "the environment",
            variable("AWS_ACCESS_KEY_ID"),
            variable("AWS_SECRET_ACCESS_KEY"),
            variable("AWS_SESSION_TOKEN"),
        )?;
        if of_environment.is_some() {
            return Ok(of_environment);
        }
    }
    let named = profile
        .map(str::to_owned)
        .or_else(|| variable("AWS_PROFILE"));
    let name = named.as_deref().unwrap_or("default");
    let files = [
        File::new(
            variable,
            "AWS_SHARED_CREDENTIALS_FILE",
            "credentials",
            name.to_owned(),
        ),
        File::new(
            variable,
            "AWS_CONFIG_FILE",
            "config",
            match name {
                "default" => name.to_owned(),
                other => format!("profile {other}"),
            },
        ),
    ];
    let mut is_known = false;
    for file in files.iter().flatten() {
        let Some(profile) = file.read()? else {
            continue;
        };
        is_known = true;
        if INDIRECT
            .iter()
            .any(|setting| profile.contains_key(*setting))
        {
            return Ok(None);
        }
        let setting = |name: &str| profile.get(name).filter(|v| !v.is_empty()).cloned();
        let place = format!("profile {name:?} of {}", file.path.display());
        let keys = pair(
            &place,
            setting("aws_access_key_id"),
            setting("aws_secret_access_key"),
            setting("aws_session_token"),
        )?;
        if keys.is_some() {
            return Ok(keys);
        }
    }
    match named {
        Some(profile) if !is_known => {
            let places: Vec<_> = files
                .iter()
                .flatten()
                .map(|file| file.path.display().to_string())
                .collect();
            Err(CredentialsError::Profile {
                profile,
                places: places.join(" or "),
            })
        }
        _ => Ok(None),
    }
}

/// A file and the section of a profile in it.
struct File {
    path: PathBuf,
    section: String,
    must: Must,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Must {
    Exist,
    MayBeAbsent,
}

impl File {
    fn new(
        variable: &dyn Fn(&str) -> Option<String>,
        named_by: &str,
        name: &str,
        section: String,
    ) -> Option<Self> {
        let (path, must) = match variable(named_by) {
            Some(path) => (path.into(), Must::Exist),
            None => (
                Path::new(&variable("HOME")?).join(".aws").join(name),
                Must::MayBeAbsent,
            ),
        };
        Some(Self {
            path,
            section,
            must,
        })
    }

    fn read(&self) -> Result<Option<Profile>, CredentialsError> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => parse(&text, &self.section).map_err(|line| CredentialsError::Syntax {
                path: self.path.clone(),
                line,
            }),
            Err(error)
                if error.kind() == std::io::ErrorKind::NotFound
                    && self.must == Must::MayBeAbsent =>
            {
                Ok(None)
            }
            Err(source) => Err(CredentialsError::File {
                path: self.path.clone(),
                source,
            }),
        }
    }
}

/// Reads one section of a profile file, such as `default` or `profile work`; `None` when the file
/// has no such section.
///
/// A section that is there several times is one; of a setting that is, the last value counts.
///
/// # Errors
/// The number, counted from 1, of the first line that is none of an INI file, in whichever section.
pub fn parse(text: &str, section: &str) -> Result<Option<Profile>, usize> {
    let mut found: Option<Profile> = None;
    let mut is_inside = false;
    for (index, line) in text.lines().enumerate() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) || line.starts_with([' ', '\t']) {
            continue;
        }
        if let Some(header) = content.strip_prefix('[') {
            let (name, _) = header.split_once(']').ok_or(index + 1)?;
            is_inside = name.split_whitespace().eq(section.split_whitespace());
            if is_inside {
                found.get_or_insert_default();
            }
            continue;
        }
        let (name, value) = content.split_once('=').ok_or(index + 1)?;
        if is_inside && let Some(profile) = &mut found {
            profile.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "# mine\n[default]\naws_access_key_id = AKID\n\
        AWS_SECRET_ACCESS_KEY=a=b+c/d\n\n; more\n[work]\naws_access_key_id=WORK\n\
        aws_secret_access_key = w\naws_session_token = t\n[half]\naws_access_key_id = H\n";
    const CONFIG: &str = "[default]\nregion = eu-central-1\ns3 =\n  addressing_style = path\n\
        [profile  assumed]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = default\n\
        [profile of-config]\naws_access_key_id = C\naws_secret_access_key = c\n";

    fn found(
        variables: &[(&str, &str)],
        profile: Option<&str>,
    ) -> Result<Option<String>, CredentialsError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(".aws")).unwrap();
        std::fs::write(folder.path().join(".aws/credentials"), CREDENTIALS).unwrap();
        std::fs::write(folder.path().join(".aws/config"), CONFIG).unwrap();
        let variable = |name: &str| match name {
            "HOME" => Some(folder.path().to_str().unwrap().to_owned()),
            name => variables
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_owned()),
        };
        Ok(find(&variable, profile)?.map(|keys| {
            let token = keys.session_token.as_deref().unwrap_or("-").to_owned();
            format!(
                "{} {} {token}",
                keys.access_key_id,
                keys.secret_access_key.expose()
            )
        }))
    }

    #[test]
    fn keys_are_found_in_awss_order() {
        let environment = [("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "e")];
        let profile = [("AWS_PROFILE", "work")];
        assert_eq!(found(&environment, None).unwrap().unwrap(), "ENV e -");
        assert_eq!(
            found(&environment, Some("work")).unwrap().unwrap(),
            "WORK w t"
        );
        assert_eq!(found(&profile, None).unwrap().unwrap(), "WORK w t");
        assert_eq!(found(&[], None).unwrap().unwrap(), "AKID a=b+c/d -");
        assert_eq!(found(&[], Some("of-config")).unwrap().unwrap(), "C c -");
    }

    #[test]
    fn a_profile_that_gets_its_keys_elsewhere_is_left_to_the_library() {
        assert_eq!(found(&[], Some("assumed")).unwrap(), None);
    }

    #[test]
    fn half_a_pair_and_unknown_names_are_told() {
        let message = |result: Result<_, CredentialsError>| result.unwrap_err().to_string();
        let half = message(found(&[], Some("half")));
        assert!(
            half.ends_with("has an access key id but no secret access key"),
            "{half}"
        );
        let half = message(found(&[("AWS_SECRET_ACCESS_KEY", "e")], None));
        assert_eq!(
            half,
            "the environment has a secret access key but no access key id"
        );
        let unknown = message(found(&[], Some("typo")));
        assert!(
            unknown.starts_with("profile \"typo\" has no keys in "),
            "{unknown}"
        );
        let absent = message(found(&[("AWS_CONFIG_FILE", "/nonexistent")], Some("typo")));
        assert_eq!(absent, "read credentials from /nonexistent");
    }

    #[test]
    fn what_is_no_ini_names_its_line() {
        assert_eq!(parse("[default]\nnonsense\n", "default"), Err(2));
        assert_eq!(parse("\n[default\n", "default"), Err(2));
        assert_eq!(parse("[other]\na=1\n", "default"), Ok(None));
    }
}
