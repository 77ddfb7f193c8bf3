//! The S3 client, made of the settings.
//!
//! Owns: endpoint, credentials, certificates and headers as the library wants them. Leaves to
//! others: requests (`bucket_s3`).

use super::http::Listening;
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

/// Makes the client. Sends nothing.
pub(super) fn build(
    settings: &BucketSettings,
    heard: &Arc<Mutex<Option<Duration>>>,
) -> Result<AmazonS3, BadBucket> {
    let bad = |what: &dyn std::fmt::Display| BadBucket(what.to_string());
    let mut options = ClientOptions::new()
        .with_allow_http(settings.endpoint.starts_with("http://"))
        .with_connect_timeout(Duration::from_secs(5))
        // Ours ends first: it knows how long a body is.
        .with_timeout_disabled();
    if let Some(path) = &settings.ca_file {
        let pem = std::fs::read(path).map_err(|err| bad(&format!("{path}: {err}")))?;
        for certificate in Certificate::from_pem_bundle(&pem).map_err(|err| bad(&err))? {
            options = options.with_root_certificate(certificate);
        }
    }
    // The environment gives credentials only when the settings do not.
    let builder = match &settings.keys {
        Some(keys) => {
            let builder = AmazonS3Builder::new()
                .with_access_key_id(&keys.access_key)
                .with_secret_access_key(keys.secret_key.expose());
            match &keys.session_token {
                Some(token) => builder.with_token(token.expose()),
                None => builder,
            }
        }
        None => AmazonS3Builder::from_env(),
    };
    let endpoint = match settings.path_style {
        true => settings.endpoint.clone(),
        false => virtual_host(&settings.endpoint, &settings.bucket),
    };
    let mut builder = builder
        .with_region(&settings.region)
        .with_bucket_name(&settings.bucket)
        .with_endpoint(endpoint)
        .with_virtual_hosted_style_request(!settings.path_style)
        .with_client_options(options)
        // Pauses, Retry-After and the limiter of all queues are ours.
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .with_http_connector(Listening(heard.clone()));
    match &settings.sse {
        None => {}
        Some(Sse::Aes256) => {
            builder = with_sse(builder, "AES256")?;
        }
        Some(Sse::Kms { key_id }) => {
            builder = with_sse(builder, "aws:kms")?;
            if let Some(key_id) = key_id {
                builder = builder.with_sse_kms_encryption(key_id);
            }
        }
    }
    builder.build().map_err(|err| bad(&err))
}

fn with_sse(builder: AmazonS3Builder, kind: &str) -> Result<AmazonS3Builder, BadBucket> {
    let key: AmazonS3ConfigKey =
        "aws_server_side_encryption".parse().map_err(|err| BadBucket(format!("{err}")))?;
    Ok(builder.with_config(key, kind))
}

fn virtual_host(endpoint: &str, bucket: &str) -> String {
    match endpoint.split_once("://") {
        Some((scheme, host)) => format!("{scheme}://{bucket}.{host}"),
        None => endpoint.to_owned(),
    }
}
