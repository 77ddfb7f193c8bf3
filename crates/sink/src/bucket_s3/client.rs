//! The S3 client of the library, made of settings.
//!
//! Owns: endpoint, addressing, certificates, encryption headers.
//! Leaves to others: requests (`bucket_s3`), credentials (`credentials`), what is heard of answers
//! (`http`).

use super::credentials::Credentials;
use super::http::{Heard, Listening};
use crate::settings::{BucketSettings, Sse};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{Certificate, ClientOptions, RetryConfig};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The settings make no client: why.
#[derive(Debug, thiserror::Error)]
#[error("the S3 client cannot be made: {0}")]
pub struct BadBucket(String);

/// The clients of one bucket.
pub(super) struct Clients {
    /// Begins objects: sends what the encryption by the bucket needs.
    pub writing: Arc<AmazonS3>,
    /// Everything else: such headers would be refused there.
    pub plain: Arc<AmazonS3>,
    pub credentials: Arc<Credentials>,
    pub heard: Arc<Mutex<Heard>>,
}

impl Clients {
    /// Makes them. Sends nothing.
    pub fn new(settings: &BucketSettings) -> Result<Clients, BadBucket> {
        let bad = |what: &dyn std::fmt::Display| BadBucket(what.to_string());
        let authorities = match &settings.ca_file {
            None => None,
            Some(path) => Some(std::fs::read(path).map_err(|err| bad(&format!("{path}: {err}")))?),
        };
        let credentials = Credentials::new(settings, authorities.as_deref());
        let credentials = Arc::new(credentials.map_err(|err| bad(&err))?);
        let heard = Arc::new(Mutex::default());
        let plain = builder(settings, authorities.as_deref())?
            .with_credentials(credentials.clone())
            .with_http_connector(Listening(Arc::clone(&heard)));
        let writing = with_encryption(plain.clone(), settings.sse.as_ref())?;
        Ok(Clients {
            writing: Arc::new(writing.build().map_err(|err| bad(&err))?),
            plain: Arc::new(plain.build().map_err(|err| bad(&err))?),
            credentials,
            heard,
        })
    }
}

fn builder(
    settings: &BucketSettings,
    authorities: Option<&[u8]>,
) -> Result<AmazonS3Builder, BadBucket> {
    let mut options = ClientOptions::new()
        .with_allow_http(settings.endpoint.starts_with("http://"))
        .with_connect_timeout(Duration::from_secs(5))
        // Ours ends first: it knows how long a body is.
        .with_timeout_disabled();
    if let Some(pem) = authorities {
        let certificates = Certificate::from_pem_bundle(pem);
        for certificate in certificates.map_err(|err| BadBucket(err.to_string()))? {
            options = options.with_root_certificate(certificate);
        }
    }
    let endpoint = match settings.path_style {
        true => settings.endpoint.clone(),
        false => virtual_host(&settings.endpoint, &settings.bucket),
    };
    Ok(AmazonS3Builder::new()
        .with_region(&settings.region)
        .with_bucket_name(&settings.bucket)
        .with_endpoint(endpoint)
        .with_virtual_hosted_style_request(!settings.path_style)
        .with_client_options(options)
        // Pauses, Retry-After and the limiter of all queues are ours.
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() }))
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
