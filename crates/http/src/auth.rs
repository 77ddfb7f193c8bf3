//! Who may call: bearer tokens (JWT), what they grant, and what each level of route asks for.
//!
//! Owns: levels and grants, reading the bearer header, the claims that make an identity, the words of
//! each refusal. Leaves to others: signatures and standard claims (the jsonwebtoken library), which key
//! checks a token (`keys`), fetching published keys (`published`), which route asks for what (`routes`).
//!
//! No text of this file's errors or logs holds a token or a key. What refuses a token says which of
//! the settings it does not fit.

mod keys;
mod published;
#[cfg(test)]
mod signer;

use crate::answer::{Answer, json};
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use jsonwebtoken::Validation;
use keys::Keys;
pub use keys::SIGNATURES;
use serde_json::{Map, Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Longest token that is looked at, in bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Longest subject, in bytes: it is stored with each message.
const SUBJECT_BYTES_MAX: usize = 1024;
/// A secret of fewer bytes is weaker than the signature that it makes.
const SECRET_BYTES_GOOD: usize = 32;

/// What a route asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Nothing, as long as its path is one of the open ones; else as `Read`.
    Public,
    /// read-only, read-write or admin.
    Read,
    /// write-only, read-write or admin.
    Write,
    /// read-write or admin.
    ReadWrite,
    /// admin.
    Admin,
}

/// What a token's roles allow: a set of the levels above `Public`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Grants(u8);

impl Grants {
    const READ: Grants = Grants(1);
    const WRITE: Grants = Grants(2);
    const READ_WRITE: Grants = Grants(1 | 2 | 4);
    const ADMIN: Grants = Grants(1 | 2 | 4 | 8);

    fn allow(self, level: Level) -> bool {
        let bit = match level {
            Level::Public | Level::Read => 1,
            Level::Write => 2,
            Level::ReadWrite => 4,
            Level::Admin => 8,
        };
        self.0 & bit != 0
    }
}

/// Text that no `Debug` shows.
#[derive(Clone)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// How tokens are checked.
#[derive(Clone, Debug)]
pub struct AuthOptions {
    /// `JWT_ALGORITHM`: the only signature that is taken, one of [`SIGNATURES`]; `None` takes every
    /// one that there is a key for.
    pub signature: Option<&'static str>,
    /// `JWT_SECRET`: checks HS256, HS384, HS512.
    pub secret: Option<Secret>,
    /// `JWT_PUBLIC_KEY`: a PEM text; an RSA key checks RS256, RS384, RS512, an Ed25519 key EdDSA.
    pub public_key: Option<String>,
    /// `JWT_JWKS_URL`: where public keys are published; they are fetched at the start and again
    /// each hour, and when a token names one that is not known.
    pub published_at: Option<String>,
    /// `JWT_ISSUER`: what the claim `iss` has to be.
    pub issuer: Option<String>,
    /// `JWT_AUDIENCE`: what the claim `aud` has to hold.
    pub audience: Option<String>,
    /// `JWT_CLOCK_SKEW`: how far another machine's clock may be off when `exp` and `nbf` are judged.
    pub clock_skew: Duration,
    /// `JWT_ALLOW_WITHOUT_EXP`: a token that never ends is taken too.
    pub allow_endless: bool,
    /// `JWT_SKIP_PATHS`: paths, as they stand in the request, that need no token.
    pub open_paths: Vec<String>,
    /// `JWT_ROLES_CLAIM`: the claim that holds one role.
    pub role_claim: String,
    /// `JWT_ROLES_ARRAY_CLAIM`: the claim that holds a list of roles.
    pub roles_claim: String,
    /// `JWT_ROLE_ADMIN`.
    pub admin: String,
    /// `JWT_ROLE_READ_WRITE`.
    pub read_write: String,
    /// `JWT_ROLE_READ_ONLY`.
    pub read_only: String,
    /// `JWT_ROLE_WRITE_ONLY`.
    pub write_only: String,
}

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The token's `sub`.
    pub(crate) subject: Option<String>,
    grants: Grants,
}

/// Why a request is not let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// 401: no token, or one that is not taken; why.
    Unknown(String),
    /// 403: a good token whose roles do not allow it.
    Forbidden,
    /// 503: the keys that would tell could not be fetched; why.
    Unready(String),
}

impl Denied {
    /// The answer that says it.
    pub(crate) fn into_answer(self) -> Answer {
        match self {
            Denied::Unknown(text) => {
                let mut answer = json(StatusCode::UNAUTHORIZED, &json!({ "error": text }));
                answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                answer
            }
            Denied::Forbidden => {
                json(StatusCode::FORBIDDEN, &json!({"error": "Insufficient permissions"}))
            }
            Denied::Unready(text) => {
                let mut answer = json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": text }));
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
                answer
            }
        }
    }
}

/// Checks the tokens of requests.
#[derive(Debug)]
pub struct Auth {
    options: AuthOptions,
    keys: Keys,
    /// All of it but the signature, which each token names.
    validation: Validation,
}

impl Auth {
    /// Reads the keys. The error names the setting that is wrong and the way out.
    pub fn new(options: AuthOptions) -> Result<Arc<Auth>, String> {
        let keys = Keys::new(&options)?;
        let names = [&options.admin, &options.read_write, &options.read_only, &options.write_only];
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                return Err(format!(
                    "two of JWT_ROLE_ADMIN, JWT_ROLE_READ_WRITE, JWT_ROLE_READ_ONLY, \
                     JWT_ROLE_WRITE_ONLY are {name:?}: a role would mean two things"
                ));
            }
        }
        if let Some(bad) = options.open_paths.iter().find(|path| !path.starts_with('/')) {
            return Err(format!("JWT_SKIP_PATHS: {bad:?} is no path: it does not begin with /"));
        }
        let validation = validation(&options);
        Ok(Arc::new(Auth { options, keys, validation }))
    }

    /// Says what is weak, then keeps published keys fresh; never ends.
    pub(crate) async fn keep_fresh(&self) {
        let secret = self.options.secret.as_ref();
        if secret.is_some_and(|secret| secret.0.len() < SECRET_BYTES_GOOD) {
            tracing::warn!(
                bytes_wanted = SECRET_BYTES_GOOD,
                "JWT_SECRET is short and may be guessed from a token; `openssl rand -hex 32` makes a good one"
            );
        }
        self.keys.keep_fresh().await;
    }

    /// Who sent a request to a route of this level; `None` on an open path.
    pub(crate) async fn admit(
        &self,
        level: Level,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Option<Identity>, Denied> {
        if self.options.open_paths.iter().any(|open| open == path) {
            return Ok(None);
        }
        let identity = self.identify(bearer(headers).map_err(Denied::Unknown)?).await?;
        match identity.grants.allow(level) {
            true => Ok(Some(identity)),
            false => Err(Denied::Forbidden),
        }
    }

    async fn identify(&self, token: &str) -> Result<Identity, Denied> {
        let claims = self.keys.open(token, &self.validation).await?;
        let subject = subject(&claims).map_err(Denied::Unknown)?;
        Ok(Identity { subject, grants: self.grants(&claims) })
    }

    fn grants(&self, claims: &Map<String, Value>) -> Grants {
        let one = claims.get(&self.options.role_claim).and_then(Value::as_str);
        let list = claims.get(&self.options.roles_claim).and_then(Value::as_array);
        let list = list.into_iter().flatten().filter_map(Value::as_str);
        let all = one.into_iter().chain(list).map(|role| self.role(role).0);
        Grants(all.fold(0, |all, grants| all | grants))
    }

    fn role(&self, name: &str) -> Grants {
        let AuthOptions { admin, read_write, read_only, write_only, .. } = &self.options;
        let known = [
            (admin, Grants::ADMIN),
            (read_write, Grants::READ_WRITE),
            (read_only, Grants::READ),
            (write_only, Grants::WRITE),
        ];
        let found = known.into_iter().find(|(known, _)| *known == name);
        found.map_or_else(Grants::default, |(_, grants)| grants)
    }
}

fn validation(options: &AuthOptions) -> Validation {
    let leeway = options.clock_skew.as_secs();
    let mut validation = Validation { leeway, validate_nbf: true, ..Validation::default() };
    let mut required = Vec::new();
    if !options.allow_endless {
        required.push("exp");
    }
    if let Some(issuer) = &options.issuer {
        validation.set_issuer(&[issuer]);
        required.push("iss");
    }
    match &options.audience {
        Some(audience) => {
            validation.set_audience(&[audience]);
            required.push("aud");
        }
        // Without an audience of its own the broker takes tokens for any.
        None => validation.validate_aud = false,
    }
    validation.required_spec_claims = required.into_iter().map(str::to_owned).collect();
    validation
}

/// The token of the request.
fn bearer(headers: &HeaderMap) -> Result<&str, String> {
    let header = headers.get(AUTHORIZATION).ok_or_else(|| {
        "a token is needed: send it as `Authorization: Bearer <token>`".to_owned()
    })?;
    let wrong = || "the Authorization header is not `Bearer <token>`".to_owned();
    let (scheme, token) = header.to_str().ok().and_then(|h| h.split_once(' ')).ok_or_else(wrong)?;
    let token = token.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Err(wrong());
    }
    if token.len() > TOKEN_BYTES_MAX {
        let bytes = token.len();
        return Err(format!("the token has {bytes} bytes, at most {TOKEN_BYTES_MAX} are read"));
    }
    Ok(token)
}

fn subject(claims: &Map<String, Value>) -> Result<Option<String>, String> {
    match claims.get("sub") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text.len() <= SUBJECT_BYTES_MAX => Ok(Some(text.clone())),
        Some(Value::String(text)) => Err(format!(
            "the token's sub has {} bytes, at most {SUBJECT_BYTES_MAX} are taken",
            text.len()
        )),
        Some(_) => Err("the token's sub is no text".to_owned()),
    }
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
