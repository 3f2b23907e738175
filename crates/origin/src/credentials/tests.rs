//! Renewal of credentials that expire, on a clock that stands still.

use std::{
    collections::VecDeque,
    time::{Duration, UNIX_EPOCH},
};

use parking_lot::Mutex;

use super::*;

const NOON_UNIX: u64 = 1_700_049_600;

/// A key id and the end of its life, or a failure.
type Given = Result<(String, u64), ()>;

/// Gives what the script says, and nothing when it is done.
#[derive(Debug, Default)]
struct Script {
    answers: Mutex<VecDeque<Given>>,
}

#[async_trait]
impl Fetch for Script {
    async fn fetch(&self) -> Result<Fetched, CredentialsError> {
        match self.answers.lock().pop_front() {
            Some(Ok((id, expires_unix))) => Ok(Fetched {
                credentials: Credentials {
                    access_key_id: id.into(),
                    secret_access_key: SecretKey::new("secret"),
                    session_token: None,
                },
                expires: Some(UNIX_EPOCH + Duration::from_secs(expires_unix)),
            }),
            Some(Err(())) | None => Err(CredentialsError::None),
        }
    }
}

fn scripted(answers: &[Result<(&str, u64), ()>]) -> (Arc<Signatory>, Clock, Arc<OriginMetrics>) {
    let script = Script::default();
    script.answers.lock().extend(
        answers
            .iter()
            .map(|answer| answer.map(|(id, expires)| (id.to_owned(), expires))),
    );
    let settings = OriginSettings::new(http::Uri::from_static("http://h"));
    let clock = Clock::manual(UNIX_EPOCH + Duration::from_secs(NOON_UNIX));
    let metrics = Arc::new(OriginMetrics::default());
    let source = Source::Expiring(Arc::new(Renewal::new(Box::new(script))));
    let signatory = Signatory::with_source(&settings, source, clock.clone(), Arc::clone(&metrics));
    (Arc::new(signatory), clock, metrics)
}

async fn key_id(signatory: &Arc<Signatory>, clock: &Clock) -> Result<String, Error> {
    let now = AmzDate::from_unix(clock.unix_seconds());
    let signing = signatory.signing(&now).await?.unwrap();
    assert!(signing.key.covers(&now), "the key is of another day");
    Ok(signing.credentials.access_key_id.to_string())
}

#[tokio::test]
async fn credentials_are_renewed_before_they_expire_and_nobody_waits() {
    let (signatory, clock, _) =
        scripted(&[Ok(("ONE", NOON_UNIX + 3600)), Ok(("TWO", NOON_UNIX + 7200))]);
    assert_eq!(key_id(&signatory, &clock).await.unwrap(), "ONE");
    clock.advance(Duration::from_secs(3600 - 301));
    assert_eq!(key_id(&signatory, &clock).await.unwrap(), "ONE");
    clock.advance(Duration::from_secs(2));
    // The request that finds them old is served with them, and starts the renewal.
    assert_eq!(key_id(&signatory, &clock).await.unwrap(), "ONE");
    tokio::task::yield_now().await;
    assert_eq!(key_id(&signatory, &clock).await.unwrap(), "TWO");
}

#[tokio::test]
async fn a_failed_renewal_is_tried_again_while_the_old_credentials_hold() {
    let (signatory, clock, metrics) = scripted(&[
        Ok(("ONE", NOON_UNIX + 100)),
        Err(()),
        Ok(("TWO", NOON_UNIX + 7200)),
    ]);
    for _ in 0..3 {
        assert_eq!(key_id(&signatory, &clock).await.unwrap(), "ONE");
        tokio::task::yield_now().await;
    }
    assert_eq!(metrics.credential_errors.get(), 1);
    clock.advance(Duration::from_secs(6));
    assert_eq!(key_id(&signatory, &clock).await.unwrap(), "ONE");
    tokio::task::yield_now().await;
    assert_eq!(key_id(&signatory, &clock).await.unwrap(), "TWO");
}

#[tokio::test]
async fn without_credentials_requests_fail_and_the_source_is_not_asked_by_each() {
    let (signatory, clock, metrics) = scripted(&[Err(()), Ok(("ONE", NOON_UNIX + 7200))]);
    for _ in 0..3 {
        let failed = key_id(&signatory, &clock).await;
        assert!(matches!(failed, Err(Error::Internal { .. })), "{failed:?}");
    }
    assert_eq!(metrics.credential_errors.get(), 1);
    clock.advance(Duration::from_secs(6));
    assert_eq!(key_id(&signatory, &clock).await.unwrap(), "ONE");
}

#[tokio::test]
async fn the_key_follows_the_day() {
    let (signatory, clock, _) = scripted(&[Ok(("ONE", NOON_UNIX + 1_000_000))]);
    assert_eq!(key_id(&signatory, &clock).await.unwrap(), "ONE");
    clock.advance(Duration::from_hours(24));
    assert_eq!(key_id(&signatory, &clock).await.unwrap(), "ONE");
}

#[tokio::test]
async fn credentials_are_asked_for_before_any_request_needs_them() {
    let (signatory, _, metrics) = scripted(&[Ok(("ONE", NOON_UNIX + 3600))]);
    signatory.look_early();
    tokio::task::yield_now().await;
    let current = signatory.current.load_full().expect("found early");
    assert_eq!(&*current.credentials.access_key_id, "ONE");
    assert_eq!(metrics.credential_errors.get(), 0);

    let (signatory, clock, metrics) = scripted(&[Err(()), Ok(("TWO", NOON_UNIX + 3600))]);
    signatory.look_early();
    tokio::task::yield_now().await;
    assert_eq!(metrics.credential_errors.get(), 1);
    clock.advance(Duration::from_secs(6));
    assert_eq!(key_id(&signatory, &clock).await.unwrap(), "TWO");
}
