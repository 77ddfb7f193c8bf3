//! Which key checks a token.
//!
//! Owns: the keys that are set, and the choice by signature and key id. Leaves to others: keys that
//! are published somewhere (`published`), what the claims mean (`auth`).
//!
//! A key checks the signatures of its own kind and no others, so that a public key never serves as
//! somebody's secret. HMACs are compared in constant time by the library under jsonwebtoken.

use super::published::Published;
use super::{AuthOptions, Denied};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};
use std::fmt;

/// Signatures that can be asked for by name.
pub const SIGNATURES: &[&str] = &["HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "EdDSA"];

/// What a key is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Hmac,
    Rsa,
    Ed25519,
}

/// The kind of key of a signature; `None` for one that is never taken.
pub(super) fn kind(signature: Algorithm) -> Option<Kind> {
    match signature {
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => Some(Kind::Hmac),
        Algorithm::RS256 | Algorithm::RS384 | Algorithm::RS512 => Some(Kind::Rsa),
        Algorithm::EdDSA => Some(Kind::Ed25519),
        _ => None,
    }
}

/// The keys of a broker.
pub(super) struct Keys {
    only: Option<&'static str>,
    secret: Option<DecodingKey>,
    public: Option<(Kind, DecodingKey)>,
    published: Option<Published>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let public = self.public.as_ref().map(|(kind, _)| kind);
        f.debug_struct("Keys")
            .field("only", &self.only)
            .field("secret", &self.secret.is_some())
            .field("public", &public)
            .field("published", &self.published)
            .finish()
    }
}

impl Keys {
    /// Reads what is set; the error names the setting and the way out.
    pub(super) fn new(options: &AuthOptions) -> Result<Keys, String> {
        let secret = options.secret.as_ref();
        let secret = secret.map(|secret| DecodingKey::from_secret(secret.0.as_bytes())).transpose();
        let secret = secret.map_err(|error| format!("JWT_SECRET: {error}"))?;
        let public = options.public_key.as_deref().map(read_public).transpose()?;
        let published = options.published_at.as_deref().map(Published::new).transpose()?;
        let keys = Keys { only: options.signature, secret, public, published };
        keys.check()?;
        Ok(keys)
    }

    /// Whether there is a key for what is asked for.
    fn check(&self) -> Result<(), String> {
        let none = self.secret.is_none() && self.public.is_none() && self.published.is_none();
        if none {
            return Err("JWT_ENABLED is on, and there is nothing to check tokens with: set \
                JWT_SECRET, JWT_PUBLIC_KEY or JWT_JWKS_URL"
                .to_owned());
        }
        let Some(only) = self.only else { return Ok(()) };
        let public = |kind| self.public.as_ref().is_some_and(|(known, _)| *known == kind);
        let (there, set) = match only {
            "EdDSA" => (
                public(Kind::Ed25519) || self.published.is_some(),
                "JWT_PUBLIC_KEY (an Ed25519 key) or JWT_JWKS_URL",
            ),
            rsa if rsa.starts_with("RS") => (
                public(Kind::Rsa) || self.published.is_some(),
                "JWT_PUBLIC_KEY (an RSA key) or JWT_JWKS_URL",
            ),
            _ => (self.secret.is_some(), "JWT_SECRET"),
        };
        match there {
            true => Ok(()),
            false => Err(format!(
                "JWT_ALGORITHM={only}: there is no key for it: set {set}, or JWT_ALGORITHM=auto to take \
                 whatever the keys are for"
            )),
        }
    }

    /// Keeps published keys fresh; never ends.
    pub(super) async fn keep_fresh(&self) {
        match &self.published {
            Some(published) => published.keep_fresh().await,
            None => std::future::pending().await,
        }
    }

    /// The claims of a token whose signature and standard claims hold.
    pub(super) async fn open(
        &self,
        token: &str,
        validation: &Validation,
    ) -> Result<Map<String, Value>, Denied> {
        let header = decode_header(token)
            .map_err(|_| Denied::Unknown("the token is no signed JWT".to_owned()))?;
        let (signature, kind) = self.accepted(&header).map_err(Denied::Unknown)?;
        let mut validation = validation.clone();
        validation.algorithms = vec![signature];
        let mut refused = None;
        let own = self.own(kind).into_iter();
        if let Some(claims) = first(token, own, &validation, &mut refused) {
            return Ok(claims);
        }
        if let Some(published) = self.published.as_ref().filter(|_| kind != Kind::Hmac) {
            let found = published.find(kind, &header).await.map_err(Denied::Unready)?;
            if let Some(claims) = first(token, found.iter(), &validation, &mut refused) {
                return Ok(claims);
            }
        }
        Err(Denied::Unknown(refused.map_or_else(|| no_key(&header), words)))
    }

    /// The key that is set for a kind.
    fn own(&self, kind: Kind) -> Option<&DecodingKey> {
        match kind {
            Kind::Hmac => self.secret.as_ref(),
            _ => self.public.as_ref().filter(|(known, _)| *known == kind).map(|(_, key)| key),
        }
    }

    /// The signature of a token and the kind of key that checks it, if such are taken.
    fn accepted(&self, header: &Header) -> Result<(Algorithm, Kind), String> {
        let name = format!("{:?}", header.alg);
        let kind = kind(header.alg).filter(|_| self.only.is_none_or(|only| only == name));
        match (kind, self.only) {
            (Some(kind), _) => Ok((header.alg, kind)),
            (None, Some(only)) => {
                Err(format!("the token is signed with {name}, JWT_ALGORITHM takes {only} only"))
            }
            (None, None) => {
                Err(format!("the token is signed with {name}, taken are {}", SIGNATURES.join(", ")))
            }
        }
    }
}

/// The claims, if one of the keys opens the token; else `refused` says why the last one did not.
fn first<'k>(
    token: &str,
    keys: impl Iterator<Item = &'k DecodingKey>,
    validation: &Validation,
    refused: &mut Option<ErrorKind>,
) -> Option<Map<String, Value>> {
    for key in keys {
        match decode::<Map<String, Value>>(token, key, validation) {
            Ok(token) => return Some(token.claims),
            Err(error) => *refused = Some(error.into_kind()),
        }
    }
    None
}

fn read_public(pem: &str) -> Result<(Kind, DecodingKey), String> {
    // A variable of the environment often has no line breaks of its own.
    let pem = pem.replace("\\n", "\n");
    if let Ok(key) = DecodingKey::from_rsa_pem(pem.as_bytes()) {
        return Ok((Kind::Rsa, key));
    }
    if let Ok(key) = DecodingKey::from_ed_pem(pem.as_bytes()) {
        return Ok((Kind::Ed25519, key));
    }
    Err("JWT_PUBLIC_KEY: it is no RSA or Ed25519 public key in PEM, such as `openssl pkey -pubout` \
        prints"
        .to_owned())
}

fn no_key(header: &Header) -> String {
    match &header.kid {
        Some(kid) => format!("no key {kid:?} for {:?} is known here", header.alg),
        None => format!("no key for {:?} is known here", header.alg),
    }
}

/// Why the library refused a token.
fn words(kind: ErrorKind) -> String {
    match kind {
        ErrorKind::ExpiredSignature => "the token has expired".to_owned(),
        ErrorKind::ImmatureSignature => "the token is not valid yet (nbf)".to_owned(),
        ErrorKind::InvalidIssuer => "the token's iss is not JWT_ISSUER".to_owned(),
        ErrorKind::InvalidAudience => "the token's aud does not hold JWT_AUDIENCE".to_owned(),
        ErrorKind::MissingRequiredClaim(claim) if claim == "exp" => {
            "the token has no exp: one that never ends is taken only with JWT_ALLOW_WITHOUT_EXP"
                .to_owned()
        }
        ErrorKind::MissingRequiredClaim(claim) => format!("the token has no {claim}"),
        ErrorKind::InvalidClaimFormat(claim) => format!("the token's {claim} is malformed"),
        ErrorKind::InvalidSignature => "the token's signature does not match".to_owned(),
        _ => "the token is malformed".to_owned(),
    }
}
