//! The S3 client of the library, made of settings.
//!
//! Owns: endpoint, addressing, certificates, the headers of encryption, access, owner and proof.
//! Leaves to others: requests (`bucket_s3`), credentials (`credentials`), what is heard of answers
//! (`http`).

use super::credentials::Credentials;
use super::http::{Heard, Listening};
use crate::settings::{BucketSettings, Checksum, Sse};
use ::http::{HeaderMap, HeaderValue};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{Certificate, ClientOptions, RetryConfig};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The settings make no client: why.
#[derive(Debug, thiserror::Error)]
#[error("the S3 client cannot be made: {0}")]
pub struct BadBucket(String);

/// The header that proves a body beside the signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// None.
    Off,
    /// `x-amz-checksum-sha256`.
    Sha256,
    /// `Content-MD5`.
    Md5,
}

impl Proof {
    /// What is tried after it was refused.
    pub fn next(self) -> Proof {
        match self {
            Proof::Off => Proof::Sha256,
            Proof::Sha256 => Proof::Md5,
            Proof::Md5 => Proof::Off,
        }
    }
}

/// Clients for one kind of proof.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// The kind.
    pub proof: Proof,
    /// Begins objects: sends what belongs to them, encryption and access list.
    pub writing: AmazonS3,
    /// Everything else: such headers would be refused there.
    pub plain: AmazonS3,
}

/// The clients of one bucket.
pub(super) struct Clients {
    settings: BucketSettings,
    authorities: Option<Vec<u8>>,
    /// Those made so far, by kind of proof, and the kind in use.
    made: Mutex<(Vec<Pair>, Proof)>,
    pub credentials: Arc<Credentials>,
    pub heard: Arc<Mutex<Heard>>,
}

impl Clients {
    /// Makes them. Sends nothing.
    pub fn new(settings: &BucketSettings) -> Result<Clients, BadBucket> {
        let authorities = match &settings.ca_file {
            None => None,
            Some(path) => Some(std::fs::read(path).map_err(|err| bad(&format!("{path}: {err}")))?),
        };
        let credentials = Credentials::new(settings, authorities.as_deref());
        let credentials = Arc::new(credentials.map_err(|err| bad(&err))?);
        let proof = match settings.checksum {
            Checksum::Sha256 => Proof::Sha256,
            Checksum::Md5 => Proof::Md5,
            Checksum::Off => Proof::Off,
            // The signature covers the body's hash already; Amazon keeps the checksum besides.
            Checksum::Auto if settings.endpoint.contains(".amazonaws.com") => Proof::Sha256,
            Checksum::Auto => Proof::Off,
        };
        let mut clients = Clients {
            settings: settings.clone(),
            authorities,
            made: Mutex::new((Vec::new(), proof)),
            credentials,
            heard: Arc::default(),
        };
        let pair = clients.pair(proof)?;
        clients.made.get_mut().0.push(pair);
        Ok(clients)
    }

    /// Those in use.
    pub fn now(&self) -> Pair {
        let made = self.made.lock();
        let (pairs, proof) = &*made;
        pairs.iter().find(|pair| pair.proof == *proof).unwrap_or(&pairs[0]).clone()
    }

    /// Takes the next kind of proof into use, unless the settings say which, or another request
    /// has done so.
    pub fn prove_otherwise(&self, refused: Proof) -> bool {
        let mut made = self.made.lock();
        let (pairs, proof) = &mut *made;
        if self.settings.checksum != Checksum::Auto {
            return false;
        }
        if *proof != refused {
            return true;
        }
        let next = refused.next();
        if pairs.iter().all(|pair| pair.proof != next) {
            match self.pair(next) {
                Ok(pair) => pairs.push(pair),
                Err(_) => return false,
            }
        }
        *proof = next;
        true
    }

    fn pair(&self, proof: Proof) -> Result<Pair, BadBucket> {
        let settings = &self.settings;
        let listening = Listening { heard: self.heard.clone(), md5: proof == Proof::Md5 };
        let mut builder = builder(settings)
            .with_credentials(self.credentials.clone())
            .with_http_connector(listening);
        if proof == Proof::Sha256 {
            builder = builder.with_checksum_algorithm(object_store::aws::Checksum::SHA256);
        }
        let build = |builder: AmazonS3Builder, writing: bool| {
            let options = options(settings, self.authorities.as_deref(), writing)?;
            builder.with_client_options(options).build().map_err(|err| bad(&err))
        };
        let plain = build(builder.clone(), false)?;
        let writing = match (&settings.sse, settings.acl) {
            (None, None) => plain.clone(),
            (sse, _) => build(with_encryption(builder, sse.as_ref())?, true)?,
        };
        Ok(Pair { proof, writing, plain })
    }
}

fn bad(what: &dyn std::fmt::Display) -> BadBucket {
    BadBucket(what.to_string())
}

fn options(
    settings: &BucketSettings,
    authorities: Option<&[u8]>,
    writing: bool,
) -> Result<ClientOptions, BadBucket> {
    let mut options = ClientOptions::new()
        .with_allow_http(settings.endpoint.starts_with("http://"))
        .with_connect_timeout(Duration::from_secs(5))
        // Ours ends first: it knows how long a body is.
        .with_timeout_disabled();
    if let Some(pem) = authorities {
        let certificates = Certificate::from_pem_bundle(pem);
        for certificate in certificates.map_err(|err| bad(&err))? {
            options = options.with_root_certificate(certificate);
        }
    }
    // The library signs these with the rest.
    let mut headers = HeaderMap::new();
    if let Some(owner) = &settings.expected_owner {
        let owner = owner.parse().map_err(|err| bad(&err))?;
        headers.insert("x-amz-expected-bucket-owner", owner);
    }
    if let (true, Some(acl)) = (writing, settings.acl) {
        headers.insert("x-amz-acl", HeaderValue::from_static(acl));
    }
    Ok(options.with_default_headers(headers))
}

fn builder(settings: &BucketSettings) -> AmazonS3Builder {
    let endpoint = match settings.path_style {
        true => settings.endpoint.clone(),
        false => virtual_host(&settings.endpoint, &settings.bucket),
    };
    AmazonS3Builder::new()
        .with_region(&settings.region)
        .with_bucket_name(&settings.bucket)
        .with_endpoint(endpoint)
        .with_virtual_hosted_style_request(!settings.path_style)
        // Pauses, Retry-After and the limiter of all queues are ours.
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
}

fn with_encryption(
    builder: AmazonS3Builder,
    sse: Option<&Sse>,
) -> Result<AmazonS3Builder, BadBucket> {
    let with = |builder: AmazonS3Builder, kind: &str| {
        let key: AmazonS3ConfigKey = "aws_server_side_encryption"
            .parse()
            .map_err(|err: object_store::Error| BadBucket(err.to_string()))?;
        Ok(builder.with_config(key, kind))
    };
    match sse {
        None => Ok(builder),
        Some(Sse::Aes256) => with(builder, "AES256"),
        Some(Sse::Kms { key_id: None }) => with(builder, "aws:kms"),
        Some(Sse::Kms { key_id: Some(id) }) => {
            Ok(with(builder, "aws:kms")?.with_sse_kms_encryption(id))
        }
    }
}

fn virtual_host(endpoint: &str, bucket: &str) -> String {
    match endpoint.split_once("://") {
        Some((scheme, host)) => format!("{scheme}://{bucket}.{host}"),
        None => endpoint.to_owned(),
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tls_tests;
