//! Keys that an issuer of tokens publishes (JWKS).
//!
//! Owns: fetching the set, when it is fetched again, and finding a key in it. Leaves to others: what
//! a key is then used for (`keys`).
//!
//! One task fetches: at the start, each hour, after a failure, and when a request asks because its
//! token names a key that is not there, which is how keys are changed. Requests wait for that fetch.
//! However many ask, and whatever they name, the issuer is asked once in [`Pauses::again`]. A set that cannot
//! be fetched again stays in use; without any, tokens that need one are answered with 503.

use super::keys::Kind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{DecodingKey, Header};
use serde::Deserialize;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How often the issuer is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    /// Between two fetches that went well.
    refresh: Duration,
    /// Least time between two fetches that requests ask for, and time to the next after a failure.
    again: Duration,
    /// The same as long as nothing was fetched: nobody can be let in.
    first: Duration,
}

/// How often it is.
const PAUSES: Pauses = Pauses {
    refresh: Duration::from_secs(3600),
    again: Duration::from_secs(30),
    first: Duration::from_secs(2),
};
/// Longest fetch.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest set that is read.
const BYTES_MAX: usize = 1 << 20;
/// Keys of a set that are kept.
const KEYS_MAX: usize = 128;
/// Keys that are tried for a token that names none.
const TRIED_MAX: usize = 8;

/// A key of the set.
struct PublishedKey {
    id: Option<String>,
    kind: Kind,
    /// The only signature that it is for, if the set says so.
    only: Option<String>,
    key: DecodingKey,
}

/// What is known of the set.
#[derive(Clone)]
struct Known {
    /// The keys of the last good fetch; before it, why there are none.
    keys: Result<Arc<Vec<PublishedKey>>, String>,
    /// When the last fetch ended, good or not.
    at: Option<Instant>,
}

/// The published keys.
pub(super) struct Published {
    url: reqwest::Url,
    client: reqwest::Client,
    pauses: Pauses,
    /// Sent anew after each fetch, so that waiting for one is waiting for this.
    known: watch::Sender<Known>,
    ask: Notify,
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Published({})", self.url)
    }
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

impl Published {
    /// Sends nothing yet. The error names the setting.
    pub(super) fn new(url: &str) -> Result<Published, String> {
        Published::with(url, PAUSES)
    }

    fn with(url: &str, pauses: Pauses) -> Result<Published, String> {
        let wrong = |why: &dyn fmt::Display| format!("JWT_JWKS_URL={url}: {why}");
        let parsed = reqwest::Url::parse(url).map_err(|error| wrong(&error))?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            let text =
                "JWT_JWKS_URL: it holds a user or a password: keys are public, leave them out";
            return Err(text.to_owned());
        }
        if !matches!(parsed.scheme(), "https" | "http") {
            return Err(wrong(&"is no address of https:// or http://"));
        }
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(PATIENCE)
            .timeout(PATIENCE)
            .build()
            .map_err(|error| wrong(&format!("no client for it can be made: {error}")))?;
        let keys = Err("they were not fetched yet".to_owned());
        let (known, _) = watch::channel(Known { keys, at: None });
        Ok(Published { url: parsed, client, pauses, known, ask: Notify::new() })
    }

    /// Fetches again and again; never ends.
    pub(super) async fn keep_fresh(&self) {
        if self.url.scheme() == "http" {
            tracing::warn!(url = %self.url, "keys are fetched in the clear: who is on the way can sign tokens");
        }
        loop {
            let fetched = self.fetch().await;
            let pause = match (&fetched, &self.known.borrow().keys) {
                (Ok(_), _) => self.pauses.refresh,
                (Err(_), Ok(_)) => self.pauses.again,
                (Err(_), Err(_)) => self.pauses.first,
            };
            self.settle(fetched);
            // A request's wish ends the pause early. One that came during the fetch had it.
            let wished = async {
                loop {
                    self.ask.notified().await;
                    if self.is_old(&self.known.borrow()) {
                        break;
                    }
                }
            };
            let _ = tokio::time::timeout(pause, wished).await;
        }
    }

    /// Whether there is a set, and its last fetch is long enough ago to ask for another.
    fn is_old(&self, known: &Known) -> bool {
        known.keys.is_ok() && known.at.is_some_and(|at| at.elapsed() >= self.pauses.again)
    }

    /// Takes over what a fetch brought, and tells those who wait.
    fn settle(&self, fetched: Result<Vec<PublishedKey>, String>) {
        let at = Some(Instant::now());
        match fetched {
            Ok(keys) => {
                let before = self.known.borrow().keys.as_ref().map_or(0, |keys| keys.len());
                if before != keys.len() {
                    tracing::info!(url = %self.url, keys = keys.len(), "keys of tokens fetched");
                }
                self.known.send_replace(Known { keys: Ok(Arc::new(keys)), at });
            }
            Err(why) => {
                tracing::warn!(url = %self.url, %why, "the keys of tokens cannot be fetched");
                self.known.send_modify(|known| {
                    known.at = at;
                    if let Err(text) = &mut known.keys {
                        *text = why;
                    }
                });
            }
        }
    }

    async fn fetch(&self) -> Result<Vec<PublishedKey>, String> {
        let failed = |error: reqwest::Error| {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(source) = cause.source() {
                cause = source;
            }
            cause.to_string()
        };
        let mut answer = self.client.get(self.url.clone()).send().await.map_err(failed)?;
        if !answer.status().is_success() {
            return Err(format!("it answered {}", answer.status()));
        }
        let mut bytes = Vec::new();
        while let Some(more) = answer.chunk().await.map_err(failed)? {
            bytes.extend_from_slice(&more);
            if bytes.len() > BYTES_MAX {
                return Err(format!("it answered more than {BYTES_MAX} bytes"));
            }
        }
        let set: Set = serde_json::from_slice(&bytes)
            .map_err(|error| format!("it answered no set of keys {{\"keys\":[...]}}: {error}"))?;
        let keys: Vec<PublishedKey> =
            set.keys.into_iter().filter_map(PublishedKey::read).take(KEYS_MAX).collect();
        match keys.is_empty() {
            true => {
                Err("it answered a set without an RSA or Ed25519 key for signatures".to_owned())
            }
            false => Ok(keys),
        }
    }

    /// The keys that may check a token. The error: none could be fetched, and why.
    pub(super) async fn find(
        &self,
        kind: Kind,
        header: &Header,
    ) -> Result<Vec<DecodingKey>, String> {
        let mut changes = self.known.subscribe();
        let known = changes.borrow_and_update().clone();
        let found = self.pick(&known, kind, header)?;
        if !found.is_empty() || !self.is_old(&known) {
            return Ok(found);
        }
        self.ask.notify_one();
        if tokio::time::timeout(PATIENCE * 2, changes.changed()).await.is_err() {
            return Ok(found);
        }
        let known = changes.borrow().clone();
        self.pick(&known, kind, header)
    }

    fn pick(&self, known: &Known, kind: Kind, header: &Header) -> Result<Vec<DecodingKey>, String> {
        let keys = known.keys.as_ref().map_err(|why| {
            format!("the keys of tokens cannot be fetched from {}: {why}", self.url)
        })?;
        let signature = format!("{:?}", header.alg);
        let fits = |key: &&PublishedKey| {
            key.kind == kind
                && key.only.as_ref().is_none_or(|only| *only == signature)
                && (header.kid.is_none() || key.id == header.kid)
        };
        Ok(keys.iter().filter(fits).take(TRIED_MAX).map(|key| key.key.clone()).collect())
    }
}

impl PublishedKey {
    /// `None` for a key that checks no token here; other users of the set may want it.
    fn read(value: Value) -> Option<PublishedKey> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        if matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)) {
            return None;
        }
        // A secret has no place in what is published.
        let of = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => Kind::Rsa,
            AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
                Kind::Ed25519
            }
            _ => return None,
        };
        let only = jwk.common.key_algorithm.map(|name| format!("{name:?}"));
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        Some(PublishedKey { id: jwk.common.key_id, kind: of, only, key })
    }
}

#[cfg(test)]
#[path = "published_tests.rs"]
mod tests;
