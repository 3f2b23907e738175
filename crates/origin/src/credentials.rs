//! Who signs the requests to the origin, and with which key.
//!
//! Looked for in AWS's order; the first that is found counts:
//!
//! 1. keys in the settings, or a profile that the settings name;
//! 2. `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`;
//! 3. the profile `AWS_PROFILE` or `default` of the credentials file, then of the config file;
//! 4. web identity, container, instance metadata, and profiles that assume a role or run a
//!    process: `chain`, a library, with feature `aws-providers`.
//!
//! Keys of 1 to 3 are read once, at start. Those of 4 expire: they are renewed while the old ones
//! still hold, by the first request within `REFRESH_AHEAD_SECONDS` of the end, and no request
//! waits for that unless there are none at all. They are asked for once at the start, so that a
//! lack of them is told while somebody looks.
//!
//! The key derived for a day is kept beside the credentials, so a request costs one load of a
//! pointer and the signature itself.

#[cfg(feature = "aws-providers")]
mod chain;
pub mod profile;
#[cfg(test)]
mod tests;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::SystemTime,
};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use forebay_s3::{
    sigv4::{Credentials, ScopedKey, SecretKey},
    time::{AmzDate, unix_seconds},
};
use forebay_store::{Clock, Error};
use forebay_telemetry::origin::OriginMetrics;
use tokio::{runtime::Handle, sync::Semaphore};

use crate::settings::{CredentialsSource, OriginSettings};

/// Credentials are renewed this long before they expire: AWS's own clients use five minutes, and
/// instance metadata has new ones by then.
const REFRESH_AHEAD_SECONDS: i64 = 5 * 60;
/// After a failure the source is left alone this long: a metadata service that is away takes
/// seconds to say so, and every request would ask it.
const RETRY_AFTER_SECONDS: i64 = 5;

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// None of the places has any.
    #[error(
        "no credentials for the origin: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a \
         profile, or write credentials = \"none\" for a public bucket (with --origin: \
         FOREBAY_STORES__DEFAULT__CREDENTIALS=none)"
    )]
    None,
    /// Half a pair.
    #[error("{place} has {present} but no {absent}")]
    Half {
        /// Where.
        place: String,
        /// What is there.
        present: &'static str,
        /// What is not.
        absent: &'static str,
    },
    /// A file that was named can't be read.
    #[error("read credentials from {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path} line {line}: expected [profile] or name = value")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// A profile that was named does not exist, or has no keys and nothing to get them by.
    #[error("profile {profile:?} has no keys in {places}")]
    Profile {
        /// Its name.
        profile: String,
        /// The files looked at.
        places: String,
    },
    /// A service that gives credentials did not.
    #[error(
        "no credentials from the AWS provider chain: set AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY, or a profile in ~/.aws, or keys in the config, or write \
         credentials = \"none\" for a public bucket (with --origin: \
         FOREBAY_STORES__DEFAULT__CREDENTIALS=none)"
    )]
    Service(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Credentials and the end of their life.
#[derive(Debug, Clone)]
pub(crate) struct Fetched {
    pub credentials: Credentials,
    pub expires: Option<SystemTime>,
}

/// Gives credentials that expire.
#[async_trait]
pub(crate) trait Fetch: std::fmt::Debug + Send + Sync {
    /// Asks for credentials; takes as long as the service takes.
    async fn fetch(&self) -> Result<Fetched, CredentialsError>;
}

/// What signs one day's requests.
#[derive(Debug)]
pub(crate) struct Signing {
    pub credentials: Credentials,
    pub key: ScopedKey,
    expires_unix: Option<i64>,
}

/// Keeps the credentials and the key of the day.
#[derive(Debug)]
pub(crate) struct Signatory {
    source: Source,
    /// The endpoint, for the log.
    origin: String,
    region: String,
    service: String,
    current: ArcSwapOption<Signing>,
    clock: Clock,
    metrics: Arc<OriginMetrics>,
}

#[derive(Debug)]
enum Source {
    Anonymous,
    Fixed,
    #[cfg_attr(
        not(any(feature = "aws-providers", test)),
        expect(dead_code, reason = "only credentials of the library expire")
    )]
    Expiring(Arc<Renewal>),
}

#[derive(Debug)]
struct Renewal {
    fetch: Box<dyn Fetch>,
    /// One renewal at a time.
    turn: Semaphore,
    not_before_unix: AtomicI64,
}

/// Whether current credentials will do.
#[derive(Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    RenewSoon,
    RenewNow,
}

impl Signatory {
    /// Finds credentials, or where they will come from; those that expire are asked for at once,
    /// in the background, where there is a tokio runtime.
    pub(crate) fn new(
        settings: &OriginSettings,
        clock: Clock,
        metrics: Arc<OriginMetrics>,
    ) -> Result<Arc<Self>, CredentialsError> {
        let (source, fixed) = match &settings.credentials {
            CredentialsSource::Anonymous => (Source::Anonymous, None),
            CredentialsSource::Static(credentials) => (Source::Fixed, Some(credentials.clone())),
            CredentialsSource::Chain { profile } => {
                let variable = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
                match profile::find(&variable, profile.as_deref())? {
                    Some(credentials) => (Source::Fixed, Some(credentials)),
                    None => (Self::chain(settings, profile.as_deref())?, None),
                }
            }
        };
        let signatory = Self::with_source(settings, source, clock, metrics);
        if let Some(credentials) = fixed {
            signatory.keep(&Fetched {
                credentials,
                expires: None,
            });
        }
        let signatory = Arc::new(signatory);
        signatory.look_early();
        Ok(signatory)
    }

    fn with_source(
        settings: &OriginSettings,
        source: Source,
        clock: Clock,
        metrics: Arc<OriginMetrics>,
    ) -> Self {
        Self {
            source,
            origin: settings
                .endpoints
                .first()
                .map(ToString::to_string)
                .unwrap_or_default(),
            region: settings.region.clone(),
            service: settings.service.clone(),
            current: ArcSwapOption::empty(),
            clock,
            metrics,
        }
    }

    #[cfg(feature = "aws-providers")]
    #[expect(
        clippy::unnecessary_wraps,
        reason = "without the feature it always fails"
    )]
    fn chain(settings: &OriginSettings, profile: Option<&str>) -> Result<Source, CredentialsError> {
        let chain = chain::Chain::new(&settings.region, profile);
        Ok(Source::Expiring(Arc::new(Renewal::new(Box::new(chain)))))
    }

    #[cfg(not(feature = "aws-providers"))]
    fn chain(_: &OriginSettings, _: Option<&str>) -> Result<Source, CredentialsError> {
        Err(CredentialsError::None)
    }

    /// What signs a request of the moment `now`; `None` when requests are not signed.
    ///
    /// # Errors
    /// [`Error::Internal`] when there are no credentials and none are to be had.
    ///
    /// # Cancel safety
    /// A dropped future loses at most its own turn at renewing.
    pub(crate) async fn signing(
        self: &Arc<Self>,
        now: &AmzDate,
    ) -> Result<Option<Arc<Signing>>, Error> {
        if let Source::Anonymous = self.source {
            return Ok(None);
        }
        let current = self.current.load_full();
        match (&self.source, need(current.as_deref(), now.unix_seconds())) {
            (Source::Expiring(renewal), Need::RenewNow) => {
                self.renewed(renewal, now).await.map(Some)
            }
            (Source::Expiring(renewal), Need::RenewSoon) => {
                self.renew_in_background(renewal, now);
                Ok(current.map(|current| self.for_day(current, now)))
            }
            _ => Ok(current.map(|current| self.for_day(current, now))),
        }
    }

    /// The same credentials with the key of the day.
    fn for_day(&self, current: Arc<Signing>, now: &AmzDate) -> Arc<Signing> {
        if current.key.covers(now) {
            return current;
        }
        let key = self.key_of(&current.credentials, now);
        let credentials = current.credentials.clone();
        let next = Arc::new(Signing {
            credentials,
            key,
            expires_unix: current.expires_unix,
        });
        // Only in place of what was loaded: a renewal that came between stays.
        self.current
            .compare_and_swap(&current, Some(Arc::clone(&next)));
        next
    }

    fn key_of(&self, credentials: &Credentials, now: &AmzDate) -> ScopedKey {
        ScopedKey::derive(
            &credentials.secret_access_key,
            now,
            &self.region,
            &self.service,
        )
    }

    fn keep(&self, fetched: &Fetched) -> Arc<Signing> {
        let now = AmzDate::from_unix(self.clock.unix_seconds());
        let signing = Arc::new(Signing {
            key: self.key_of(&fetched.credentials, &now),
            credentials: fetched.credentials.clone(),
            expires_unix: fetched.expires.map(unix_seconds),
        });
        self.current.store(Some(Arc::clone(&signing)));
        signing
    }

    /// Renews while the caller waits; of several callers one asks and the others share.
    async fn renewed(&self, renewal: &Renewal, now: &AmzDate) -> Result<Arc<Signing>, Error> {
        let _turn = renewal.turn.acquire().await;
        if let Some(current) = self.current.load_full()
            && need(Some(&current), now.unix_seconds()) != Need::RenewNow
        {
            return Ok(self.for_day(current, now));
        }
        if self.clock.unix_seconds() < renewal.not_before_unix.load(Ordering::Relaxed) {
            return Err(Error::Internal {
                context: "find credentials for the origin: none a moment ago".into(),
                source: None,
            });
        }
        match renewal.fetch.fetch().await {
            Ok(fetched) => Ok(self.for_day(self.keep(&fetched), now)),
            Err(error) => {
                self.note_failure(renewal);
                Err(Error::internal("find credentials for the origin", error))
            }
        }
    }

    /// Asks for credentials before any request needs them, and warns when there are none.
    fn look_early(self: &Arc<Self>) {
        let (Source::Expiring(renewal), Ok(runtime)) = (&self.source, Handle::try_current()) else {
            return;
        };
        let (signatory, renewal) = (Arc::clone(self), Arc::clone(renewal));
        // Nobody waits for it, as a metadata service that is away takes seconds to say so: what it
        // finds is found in `current`, and a failure is logged here.
        runtime.spawn(async move {
            let now = AmzDate::from_unix(signatory.clock.unix_seconds());
            if let Err(error) = signatory.renewed(&renewal, &now).await {
                tracing::warn!(
                    origin = signatory.origin,
                    cause = format!(
                        "no keys in the environment or in a profile of ~/.aws; then: {}",
                        innermost(&error)
                    ),
                    remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile; \
                              if the origin wants no signatures, a config file with \
                              credentials = \"none\"",
                    "no credentials for the origin, so requests to it fail"
                );
            }
        });
    }

    fn renew_in_background(self: &Arc<Self>, renewal: &Arc<Renewal>, now: &AmzDate) {
        if now.unix_seconds() < renewal.not_before_unix.load(Ordering::Relaxed) {
            return;
        }
        // Not again before the turn is over, whoever asks.
        let next_try = now.unix_seconds() + RETRY_AFTER_SECONDS;
        renewal.not_before_unix.store(next_try, Ordering::Relaxed);
        let (signatory, renewal) = (Arc::clone(self), Arc::clone(renewal));
        // Nobody waits for it: what it finds is found in `current`, and a failure is logged here.
        tokio::spawn(async move {
            let Ok(_turn) = renewal.turn.try_acquire() else {
                return;
            };
            match renewal.fetch.fetch().await {
                Ok(fetched) => {
                    signatory.keep(&fetched);
                }
                Err(error) => {
                    signatory.note_failure(&renewal);
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "credentials for the origin could not be renewed");
                }
            }
        });
    }

    fn note_failure(&self, renewal: &Renewal) {
        self.metrics.credential_errors.inc();
        let next_try = self.clock.unix_seconds() + RETRY_AFTER_SECONDS;
        renewal.not_before_unix.store(next_try, Ordering::Relaxed);
    }
}

impl Renewal {
    #[cfg_attr(
        not(any(feature = "aws-providers", test)),
        expect(dead_code, reason = "only credentials of the library expire")
    )]
    fn new(fetch: Box<dyn Fetch>) -> Self {
        Self {
            fetch,
            turn: Semaphore::new(1),
            not_before_unix: AtomicI64::new(i64::MIN),
        }
    }
}

fn need(current: Option<&Signing>, now_unix: i64) -> Need {
    let Some(current) = current else {
        return Need::RenewNow;
    };
    match current.expires_unix {
        Some(expires) if now_unix >= expires => Need::RenewNow,
        Some(expires) if now_unix >= expires - REFRESH_AHEAD_SECONDS => Need::RenewSoon,
        Some(_) | None => Need::Nothing,
    }
}

/// What lies below an error's other causes, on one line: the library lists what it tried.
fn innermost(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let text = causes.last().map(ToString::to_string).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Joins a pair of keys that may be there.
fn pair(
    place: &str,
    id: Option<String>,
    secret: Option<String>,
    token: Option<String>,
) -> Result<Option<Credentials>, CredentialsError> {
    let half = |present, absent| CredentialsError::Half {
        place: place.to_owned(),
        present,
        absent,
    };
    match (id, secret) {
        (Some(id), Some(secret)) => Ok(Some(Credentials {
            access_key_id: id.into(),
            secret_access_key: SecretKey::new(secret),
            session_token: token.map(Into::into),
        })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(half("an access key id", "secret access key")),
        (None, Some(_)) => Err(half("a secret access key", "access key id")),
    }
}
