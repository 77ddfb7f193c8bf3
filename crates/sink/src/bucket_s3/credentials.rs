//! The credentials of requests: where they come from, how long they are used.
//!
//! Owns: the order in which sources are looked at, the cache in front of them, renewal.
//! Leaves to others: each source (`profile`, `sts`, `metadata`), signing (the library), what the
//! environment says (`settings`).
//!
//! What ends is renewed after four fifths of its life, by one request while the others go on with
//! what there is; and at once when the bucket says that it has ended. Files are read anew each time.
//! A source that is set and fails is an error: the next would act as somebody else.

mod http;
mod metadata;
mod profile;
mod sts;

use crate::settings::{BucketSettings, Machine, Role, StaticKeys, WebIdentity};
use async_trait::async_trait;
use futures::future::BoxFuture;
use http::Http;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Keys out of a profile may be replaced at any time, and say no end.
const FILE_LIFE: Duration = Duration::from_secs(10);
/// Between two tries of a source that fails; whoever asks meanwhile gets the same answer.
const FAILED_PAUSE: Duration = Duration::from_secs(5);

/// No credentials: why, in words. Never a secret.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct CredentialsError {
    /// Who was asked did not answer: may be better soon.
    pub transient: bool,
    /// What failed, and the way out.
    pub text: String,
}

impl CredentialsError {
    fn lasting(text: impl Into<String>) -> CredentialsError {
        CredentialsError { transient: false, text: text.into() }
    }
}

type Fetched = Result<Found, CredentialsError>;

/// Credentials, fresh from a source.
struct Found {
    credential: AwsCredential,
    /// When they end; `None`: never.
    expires: Option<SystemTime>,
    /// Where they are from, for people.
    source: String,
}

/// Where credentials come from.
#[derive(Clone, Debug)]
enum Source {
    /// These, of that name.
    Keys(StaticKeys, &'static str),
    /// A token in a file gives a role.
    WebIdentity(WebIdentity, Option<String>),
    /// A profile of the files.
    Profile(String),
    /// A container's service.
    Container,
    /// The instance's metadata service.
    Instance,
}

/// What is held.
struct Held {
    credential: Arc<AwsCredential>,
    source: String,
    /// From then on it is renewed; `None`: never.
    renew_at: Option<SystemTime>,
    expires: Option<SystemTime>,
}

#[derive(Default)]
struct State {
    held: Option<Held>,
    /// Until when the last failure stands.
    failed: Option<(SystemTime, CredentialsError)>,
    /// Rises with each renewal.
    generation: u64,
}

type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The credentials of a bucket's requests.
pub(super) struct Credentials {
    keys: Option<StaticKeys>,
    machine: Machine,
    region: String,
    http: Http,
    clock: Clock,
    state: Mutex<State>,
    renewing: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Asks nobody yet. `authorities` are PEM certificates beside the system's.
    pub fn new(settings: &BucketSettings, authorities: Option<&[u8]>) -> Result<Self, String> {
        Credentials::with_clock(settings, authorities, Arc::new(SystemTime::now))
    }

    fn with_clock(
        settings: &BucketSettings,
        authorities: Option<&[u8]>,
        clock: Clock,
    ) -> Result<Credentials, String> {
        Ok(Credentials {
            keys: settings.keys.clone(),
            machine: settings.machine.clone(),
            region: settings.region.clone(),
            http: Http::new(authorities)?,
            clock,
            state: Mutex::default(),
            renewing: tokio::sync::Mutex::default(),
        })
    }

    /// Which credentials the next request is signed with: changes when they do. Why there are none,
    /// the request tells.
    pub async fn generation(&self) -> u64 {
        let _ = self.current().await;
        self.state.lock().generation
    }

    /// The bucket refused those of `generation`: they are not used again. False when there can be
    /// no others.
    pub fn forget(&self, generation: u64) -> bool {
        let mut state = self.state.lock();
        let lasting = state.held.as_ref().is_some_and(|held| held.renew_at.is_none());
        if lasting {
            return false;
        }
        if state.generation == generation {
            state.held = None;
        }
        true
    }

    /// Where the credentials are from and their key id, for people.
    pub async fn describe(&self) -> Result<String, CredentialsError> {
        let credential = self.current().await?;
        let source = self.state.lock().held.as_ref().map(|held| held.source.clone());
        Ok(format!("{} (key id {})", source.unwrap_or_default(), credential.key_id))
    }

    async fn current(&self) -> Result<Arc<AwsCredential>, CredentialsError> {
        if let Some(answer) = self.held(false) {
            return answer;
        }
        let _renewing = match self.renewing.try_lock() {
            Ok(guard) => guard,
            Err(_) => {
                if let Some(answer) = self.held(true) {
                    return answer;
                }
                self.renewing.lock().await
            }
        };
        // Another may have renewed them, or failed to, since.
        if let Some(answer) = self.held(false) {
            return answer;
        }
        let fetched = self.fetch().await;
        self.settle(fetched)
    }

    /// The answer without asking anybody, if there is one; with `due`, what should be renewed counts.
    fn held(&self, due: bool) -> Option<Result<Arc<AwsCredential>, CredentialsError>> {
        let now = (self.clock)();
        let state = self.state.lock();
        let before = |at: Option<SystemTime>| at.is_none_or(|at| now < at);
        let failed = state.failed.as_ref().filter(|(until, _)| now < *until);
        match &state.held {
            Some(held) if before(held.renew_at) => Some(Ok(held.credential.clone())),
            Some(held) if (due || failed.is_some()) && before(held.expires) => {
                Some(Ok(held.credential.clone()))
            }
            _ => failed.map(|(_, error)| Err(error.clone())),
        }
    }

    fn settle(&self, fetched: Fetched) -> Result<Arc<AwsCredential>, CredentialsError> {
        let now = (self.clock)();
        let mut state = self.state.lock();
        match fetched {
            Ok(found) => {
                let life = |end: SystemTime| end.duration_since(now).unwrap_or_default();
                let fresh = |end| (life(end) * 4 / 5).max(Duration::from_secs(1));
                let renew_at = match found.expires {
                    Some(end) => Some(now + fresh(end)),
                    None => found.source.starts_with("profile").then(|| now + FILE_LIFE),
                };
                let credential = Arc::new(found.credential);
                if let Some(end) = found.expires {
                    let (from, seconds) = (&found.source, life(end).as_secs());
                    tracing::info!(%from, seconds, "bucket credentials are renewed");
                }
                state.generation += 1;
                state.failed = None;
                state.held = Some(Held {
                    credential: credential.clone(),
                    source: found.source,
                    renew_at,
                    expires: found.expires,
                });
                Ok(credential)
            }
            Err(error) => {
                state.failed = Some((now + FAILED_PAUSE, error.clone()));
                match &state.held {
                    Some(held) if held.expires.is_none_or(|end| now < end) => {
                        tracing::warn!(%error, "bucket credentials are not renewed yet");
                        Ok(held.credential.clone())
                    }
                    _ => Err(error),
                }
            }
        }
    }

    async fn fetch(&self) -> Fetched {
        let source = self.source().await?;
        let found = self.ask(source, 0).await?;
        match &self.machine.role {
            Some(role) => self.assume(&found, role, None).await,
            None => Ok(found),
        }
    }

    /// The first in the order that is set.
    async fn source(&self) -> Result<Source, CredentialsError> {
        let machine = &self.machine;
        if let Some(keys) = &self.keys {
            return Ok(Source::Keys(keys.clone(), "QUEEN_S3_ACCESS_KEY"));
        }
        if let Some(profile) = &machine.only_profile {
            return Ok(Source::Profile(profile.clone()));
        }
        if let Some(keys) = &machine.keys {
            return Ok(Source::Keys(keys.clone(), "AWS_ACCESS_KEY_ID"));
        }
        if let Some(identity) = &machine.web_identity {
            return Ok(Source::WebIdentity(identity.clone(), None));
        }
        match &machine.profile {
            Some(profile) => return Ok(Source::Profile(profile.clone())),
            None if self.profiles().await?.has("default") => {
                return Ok(Source::Profile("default".to_owned()));
            }
            None => {}
        }
        match (&machine.container, &machine.metadata) {
            (Some(_), _) => Ok(Source::Container),
            (None, Some(_)) => Ok(Source::Instance),
            (None, None) => Err(CredentialsError::lasting(
                "no credentials are set: set QUEEN_S3_ACCESS_KEY and QUEEN_S3_SECRET_KEY",
            )),
        }
    }

    async fn profiles(&self) -> Result<profile::Profiles, CredentialsError> {
        let files: Vec<PathBuf> = self.machine.profile_files.clone();
        let read = tokio::task::spawn_blocking(move || profile::Profiles::read(&files)).await;
        read.map_err(|_| CredentialsError::lasting("the files of profiles were not read"))?
    }

    /// Asks one source; `depth` counts the profiles that led to it.
    fn ask(&self, source: Source, depth: usize) -> BoxFuture<'_, Fetched> {
        Box::pin(async move {
            match source {
                Source::Keys(keys, name) => Ok(Found {
                    credential: AwsCredential {
                        key_id: keys.access_key,
                        secret_key: keys.secret_key.expose().to_owned(),
                        token: keys.session_token.map(|token| token.expose().to_owned()),
                    },
                    expires: None,
                    source: name.to_owned(),
                }),
                Source::WebIdentity(identity, session) => {
                    let session = session.as_ref().unwrap_or(&self.machine.session);
                    sts::web_identity(&self.http, &self.sts(), &identity, session).await
                }
                Source::Profile(name) => self.ask_profile(&name, depth).await,
                Source::Container => match &self.machine.container {
                    Some(container) => metadata::container(&self.http, container).await,
                    None => Err(CredentialsError::lasting(
                        "the profile's credential_source is EcsContainer, and \
                         AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and _FULL_URI are not set",
                    )),
                },
                Source::Instance => match &self.machine.metadata {
                    Some(endpoint) => metadata::instance(&self.http, endpoint).await,
                    None => Err(CredentialsError::lasting(
                        "the profile's credential_source is Ec2InstanceMetadata, and \
                         AWS_EC2_METADATA_DISABLED is true",
                    )),
                },
            }
        })
    }

    async fn ask_profile(&self, name: &str, depth: usize) -> Fetched {
        let step = self.profiles().await?.step(name, self.machine.keys.as_ref(), depth)?;
        let found = match step {
            profile::Step::Keys(keys) => {
                let found = self.ask(Source::Keys(keys, ""), depth).await?;
                Found { source: String::new(), ..found }
            }
            profile::Step::Ask(source) => self.ask(source, depth + 1).await?,
            profile::Step::Assume(source, role, session) => {
                let base = self.ask(source, depth + 1).await?;
                self.assume(&base, &role, session.as_deref()).await?
            }
        };
        let source = match found.source.as_str() {
            "" => format!("profile {name}"),
            source => format!("profile {name}: {source}"),
        };
        Ok(Found { source, ..found })
    }

    async fn assume(&self, base: &Found, role: &Role, session: Option<&str>) -> Fetched {
        let session = session.unwrap_or(&self.machine.session);
        sts::assume(&self.http, &self.sts(), &self.region, base, role, session).await
    }

    fn sts(&self) -> String {
        let china = if self.region.starts_with("cn-") { ".cn" } else { "" };
        let amazon = || format!("https://sts.{}.amazonaws.com{china}", self.region);
        self.machine.sts.clone().unwrap_or_else(amazon)
    }
}

#[async_trait]
impl CredentialProvider for Credentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        self.current().await.map_err(|error| object_store::Error::Generic {
            store: "credentials",
            source: Box::new(error),
        })
    }
}

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;
