//! Users as they come out of configs, files and the environment.

use std::net::SocketAddr;

use super::*;

fn user(name: &str, access_key: &str, secret_key: SecretSource) -> UserConfig {
    let json = r#"{"Version":"2012-10-17","Statement":[
        {"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}]}"#;
    let policies = vec![PolicySource::Json {
        json: json.to_owned(),
        key: format!("users.{name}"),
    }];
    let access_key = access_key.to_owned();
    UserConfig {
        name: name.to_owned(),
        access_key,
        secret_key,
        policies,
    }
}

fn inline(secret: &str) -> SecretSource {
    SecretSource::Inline(SecretKey::new(secret))
}

fn root() -> RootKey {
    RootKey {
        access_key: "ROOTKEY".to_owned(),
        secret_key: SecretKey::new("r"),
    }
}

fn load_alone(access: &AccessConfig) -> Result<Users, Vec<Fault>> {
    load(
        access,
        &[],
        Sources {
            root: None,
            variable: &|_| None,
        },
    )
}

fn open_to(name: &str) -> Listener {
    Listener {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        tls: None,
        authentication: Authentication::Off {
            identity: Identity::User(name.into()),
        },
    }
}

#[test]
fn secrets_come_from_config_file_and_environment() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret");
    fs::write(&path, "from file\n").unwrap();
    let access = AccessConfig {
        users: vec![
            user("a", "KEY-A", inline("from config")),
            user("b", "KEY-B", SecretSource::File(path)),
            user("c", "KEY-C", SecretSource::Environment("C_SECRET".into())),
        ],
        ..AccessConfig::default()
    };
    let variable = |name: &str| (name == "C_SECRET").then(|| "from environment".to_owned());
    let root = root();
    let sources = Sources {
        root: Some(&root),
        variable: &variable,
    };
    let users = load(&access, &[], sources).unwrap();
    for (access_key, name, secret) in [
        ("KEY-A", "a", "from config"),
        ("KEY-B", "b", "from file"),
        ("KEY-C", "c", "from environment"),
        ("ROOTKEY", "root", "r"),
    ] {
        let user = users.by_access_key(access_key).unwrap();
        assert_eq!((&*user.name, user.secret_key.expose()), (name, secret));
        assert_eq!(user.policies.len(), 1, "{name}");
    }
}

#[test]
fn a_users_file_adds_to_the_config() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let text = "[users.b]\naccess_key = \"KEY-B\"\nsecret_key = \"s\"\npolicies = [\"admin\"]\n\
                [[bucket_policies]]\nbucket = \"open-*\"\npolicy = \"public-read\"";
    fs::write(&path, text).unwrap();
    let access = AccessConfig {
        users_file: Some(path.clone()),
        users: vec![user("a", "KEY-A", inline("s"))],
        ..AccessConfig::default()
    };
    let users = load_alone(&access).unwrap();
    assert!(users.by_name("a").is_some() && users.by_name("b").is_some());
    assert_eq!(users.bucket_policies()[0].buckets.as_str(), "open-*");

    fs::write(&path, text.replace("KEY-B", "KEY-A")).unwrap();
    let faults = load_alone(&access).unwrap_err();
    assert!(
        faults[0].remedy.contains("user a has this access key"),
        "{faults:?}"
    );
}

#[test]
fn every_fault_is_told_and_names_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = directory.path().join("nowhere");
    let bad_policy = PolicySource::Json {
        json: "{".to_owned(),
        key: "users.a.policies[0]".into(),
    };
    let mut a = user("a", "KEY-A", SecretSource::File(nowhere.clone()));
    a.policies = vec![bad_policy];
    let access = AccessConfig {
        users_file: Some(nowhere.clone()),
        users: vec![
            a,
            user("b", "KEY-B", SecretSource::Environment("UNSET".into())),
        ],
        bucket_policies: vec![BucketPolicyConfig {
            bucket: "x".to_owned(),
            policy: PolicySource::File {
                path: nowhere,
                key: "bucket_policies[0].policy".into(),
            },
        }],
    };
    let keys: Vec<String> = load_alone(&access)
        .unwrap_err()
        .into_iter()
        .map(|fault| fault.key)
        .collect();
    for key in [
        "users_file",
        "users.a.secret_key_file",
        "users.a.policies[0]",
        "users.b.secret_key_env",
        "bucket_policies[0].policy",
    ] {
        assert!(keys.iter().any(|found| found == key), "{key} in {keys:?}");
    }
}

#[test]
fn root_exists_when_nobody_else_does_and_never_twice() {
    let nobody = AccessConfig::default();
    let somebody = AccessConfig {
        users: vec![user("a", "KEY-A", inline("s"))],
        ..AccessConfig::default()
    };
    let named = AccessConfig {
        users: vec![user("root", "KEY-A", inline("s"))],
        ..AccessConfig::default()
    };
    assert!(needs_root(&nobody, &[]) && !needs_root(&somebody, &[]));
    assert!(needs_root(&somebody, &[open_to("root")]));
    assert!(!needs_root(&named, &[open_to("root")]));
    let root = root();
    let sources = Sources {
        root: Some(&root),
        variable: &|_| None,
    };
    let faults = load(&named, &[], sources).unwrap_err();
    assert_eq!(faults[0].key, "FOREBAY_ROOT_ACCESS_KEY");
}

#[test]
fn a_listener_without_signatures_needs_its_user() {
    let access = AccessConfig {
        users: vec![user("a", "KEY-A", inline("s"))],
        ..AccessConfig::default()
    };
    let sources = Sources {
        root: None,
        variable: &|_| None,
    };
    assert!(load(&access, &[open_to("a")], sources).is_ok());
    let faults = load(&access, &[open_to("b")], sources).unwrap_err();
    assert!(faults[0].remedy.contains("[users.b]"), "{faults:?}");
}

#[test]
fn ready_made_policies_compile() {
    let text = "[users.a]\naccess_key = \"KEY-A\"\nsecret_key = \"s\"\n\
                policies = [\"admin\", \"readonly\"]\n\
                [[bucket_policies]]\nbucket = \"a-*\"\npolicy = \"public-read\"\n\
                [[bucket_policies]]\nbucket = \"b\"\npolicy = \"public-read-write\"\n";
    let file = File {
        path: "users.toml".to_owned(),
        text: text.to_owned(),
    };
    let access = check_users_file(&file).unwrap();
    let users = load_alone(&access).unwrap();
    assert_eq!(users.by_name("a").unwrap().policies.len(), 2);
    assert_eq!(users.bucket_policies().len(), 2);
    let policies = users.by_name("a").unwrap().policies.iter();
    let bucket_policies = users.bucket_policies().iter().map(|policy| &policy.policy);
    for policy in policies.chain(bucket_policies) {
        assert!(policy.warnings().is_empty(), "{:?}", policy.warnings());
    }
}

#[test]
fn faults_outside_of_a_config_are_told_for_each_place_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let text = "[users.b]\naccess_key = \"KEY-B\"\nsecret_key_env = \"UNSET\"\n\
                policies = [{ json = \"{\" }, { jason = \"{\" }]\n";
    fs::write(&path, text).unwrap();
    let outside = [
        Outside::UsersFile(path.clone()),
        Outside::UsersFile(directory.path().join("nowhere")),
        Outside::Secret {
            key: "stores.s".to_owned(),
            source: SecretSource::File(directory.path().join("nowhere")),
        },
        Outside::Secret {
            key: "stores.t".to_owned(),
            source: inline("s"),
        },
    ];
    let faults = faults_of(&outside, &|_| None);
    let mut keys: Vec<&str> = faults.iter().map(|fault| &*fault.key).collect();
    let in_file = |key: &str| format!("{}: {key}", path.display());
    keys.sort_unstable();
    keys.dedup();
    let mut expected = [
        in_file("users.b.policies[0]"),
        in_file("users.b.policies[1].jason"),
        in_file("users.b.secret_key_env"),
        "stores.s.secret_key_file".to_owned(),
        "users_file".to_owned(),
    ];
    expected.sort_unstable();
    assert_eq!(keys, expected, "{faults:#?}");
}

/// A config with faults and one without tell the same of what lies in the users file.
#[test]
fn a_fault_of_a_users_file_reads_the_same_either_way() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let text = "[users.b]\naccess_key = \"KEY-B\"\nsecret_key_env = \"UNSET\"\n\
                policies = [{ file = \"/nowhere\" }]\n\
                [[bucket_policies]]\nbucket = \"b\"\npolicy = { json = \"{\" }\n";
    fs::write(&path, text).unwrap();
    let access = AccessConfig {
        users_file: Some(path.clone()),
        ..AccessConfig::default()
    };
    let mut loaded = load_alone(&access).unwrap_err();
    let mut looked_at = faults_of(&[Outside::UsersFile(path)], &|_| None);
    for faults in [&mut loaded, &mut looked_at] {
        faults.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    }
    assert_eq!(loaded.len(), 3, "{loaded:#?}");
    assert_eq!(loaded, looked_at);
}
