//! TLS, and users of an access list.

use std::path::Path;

use forebay_redis::{
    OpenError, RedisSettings,
    settings::{Login, Security},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::{
    open, open_counted,
    servers::{Server, free_port},
    value, write,
};

/// What docs/semantics.md says that a user needs.
const USER: &str = "user forebay on >s3cret:word ~{fb:forebay:* &{fb:forebay:* -@all +@hash \
    +@sortedset +@string +@keyspace +@scripting +@connection +ssubscribe +sunsubscribe +spublish \
    +info +config|get +wait +time +cluster|slots +asking";

/// Writes the files of an authority, and of a certificate by it for 127.0.0.1.
fn certificates(folder: &Path) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = server.signed_by(&key, &issuer).unwrap();
    std::fs::write(folder.join("ca.pem"), authority_pem).unwrap();
    std::fs::write(folder.join("server.pem"), certificate.pem()).unwrap();
    std::fs::write(folder.join("server.key"), key.serialize_pem()).unwrap();
}

fn start(folder: &TempDir) -> (Server, RedisSettings) {
    certificates(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let tls_port = free_port();
    let user = USER.strip_prefix("user ").unwrap();
    let mut words = vec!["--tls-port".to_owned(), tls_port.to_string()];
    words.extend(["--tls-cert-file".to_owned(), file("server.pem")]);
    words.extend(["--tls-key-file".to_owned(), file("server.key")]);
    words.extend(["--tls-ca-cert-file".to_owned(), file("ca.pem")]);
    words.extend(["--tls-auth-clients".to_owned(), "no".to_owned()]);
    std::fs::write(
        folder.path().join("users.acl"),
        format!("user default on nopass ~* &* +@all\nuser {user}\n"),
    )
    .unwrap();
    words.extend(["--aclfile".to_owned(), file("users.acl")]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let server = Server::start(&words);
    let mut settings = RedisSettings::single("127.0.0.1", tls_port);
    settings.security = Security::Tls {
        ca_file: Some(folder.path().join("ca.pem")),
    };
    settings.login = Some(Login {
        username: Some("forebay".to_owned()),
        password: "s3cret:word".to_owned(),
    });
    (server, settings)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_few_rights_does_everything_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, settings) = start(&folder);
    let engine = open(&settings).await;
    write(engine.index(), "a", "1").await.unwrap();
    assert_eq!(value(engine.index(), "a").await.as_deref(), Some("1"));
    forebay_native::contract::blobs(async || std::sync::Arc::clone(engine.blobs())).await;
    let pass = async |time| tokio::time::sleep(time).await;
    forebay_native::contract::leases(async || std::sync::Arc::clone(engine.leases()), pass).await;
    let mut events = forebay_store::changes::Changes::listen(&**engine.changes());
    while events.recv().await != Some(forebay_store::changes::Event::Verified) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_and_a_wrong_password_are_refused() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_server, settings) = start(&folder);
    certificates(other.path());
    let mut stranger = settings.clone();
    stranger.security = Security::Tls {
        ca_file: Some(other.path().join("ca.pem")),
    };
    let mut wrong = settings.clone();
    wrong.login = Some(Login {
        username: Some("forebay".to_owned()),
        password: "wrong".to_owned(),
    });
    for (settings, told) in [(stranger, "no TLS"), (wrong, "denied the login")] {
        let refused = open_counted(&settings).await.err();
        match &refused {
            Some(OpenError::Unreachable { reason, .. }) => {
                assert!(reason.contains(told), "{reason}");
            }
            _ => panic!("{refused:?}"),
        }
    }
}
