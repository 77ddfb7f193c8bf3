//! The bucket, over S3 through the object_store library.
//!
//! Owns: building the client from settings, the mapping of its failures to words.
//! Leaves to others: pauses between tries (`retry`): each call here is one request.

use crate::bucket::{Bucket, BucketError, ErrorKind, Head, ObjectMeta, Parts};
use crate::settings::{BucketSettings, Sse, UPLOAD_BYTES_PER_SECOND};
use async_trait::async_trait;
use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Certificate, ClientOptions, GetOptions, MultipartId, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, RetryConfig,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// User metadata that holds the object's SHA-256; sent as `x-amz-meta-queen-sha256`.
const SHA256: &str = "queen-sha256";

/// A bucket on S3, or on a server that speaks as S3 does.
pub struct S3Bucket {
    store: Arc<AmazonS3>,
    name: String,
    endpoint: String,
    /// The last `Retry-After`, until the next failure takes it.
    retry_after: Arc<Mutex<Option<Duration>>>,
    timeout: Duration,
}

/// The settings make no client: why.
#[derive(Debug, thiserror::Error)]
#[error("the S3 client cannot be made: {0}")]
pub struct BadBucket(String);

impl S3Bucket {
    /// Makes the client. Sends nothing.
    pub fn new(settings: &BucketSettings) -> Result<S3Bucket, BadBucket> {
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
        let retry_after = Arc::new(Mutex::new(None));
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
            .with_http_connector(Listening(retry_after.clone()));
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
        let store = Arc::new(builder.build().map_err(|err| bad(&err))?);
        let (name, endpoint) = (settings.bucket.clone(), settings.endpoint.clone());
        let timeout = settings.request_timeout;
        Ok(S3Bucket { store, name, endpoint, retry_after, timeout })
    }

    fn failed(&self, what: &str, err: &object_store::Error) -> BucketError {
        let retry_after = self.retry_after.lock().take();
        let (kind, why) = explain(err, &self.name, &self.endpoint);
        BucketError { kind, text: format!("{what}: {why}"), retry_after }
    }

    /// One request with a body of `bytes`, given up when there is no answer in time.
    async fn ask<T>(
        &self,
        what: &str,
        bytes: u64,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, BucketError> {
        let sending = Duration::from_secs(bytes / UPLOAD_BYTES_PER_SECOND);
        let limit = self.timeout.max(sending);
        match tokio::time::timeout(limit, request).await {
            Ok(result) => result.map_err(|err| self.failed(what, &err)),
            Err(_) => Err(BucketError {
                kind: ErrorKind::Unreachable,
                text: format!("{what}: {} gave no answer within {limit:?}", self.endpoint),
                retry_after: None,
            }),
        }
    }

    /// As [`S3Bucket::ask`]; `None` when there is no such object.
    async fn ask_for<T>(
        &self,
        what: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<Option<T>, BucketError> {
        let found = async {
            match request.await {
                Err(err) if is_missing_key(&err) => Ok(None),
                result => result.map(Some),
            }
        };
        self.ask(what, 0, found).await
    }

    fn path(key: &str) -> Result<Path, BucketError> {
        Path::parse(key).map_err(|err| BucketError {
            kind: ErrorKind::Refused,
            text: format!("the key {key} cannot be sent: {err}"),
            retry_after: None,
        })
    }
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

fn attributes(meta: ObjectMeta<'_>) -> Attributes {
    let mut attributes = Attributes::new();
    attributes.insert(Attribute::ContentType, meta.content_type.into());
    attributes.insert(Attribute::Metadata(SHA256.into()), meta.sha256.to_owned().into());
    attributes
}

#[async_trait]
impl Bucket for S3Bucket {
    async fn put(
        &self,
        key: &str,
        body: Vec<Bytes>,
        meta: ObjectMeta<'_>,
    ) -> Result<(), BucketError> {
        let options = PutOptions { attributes: attributes(meta), ..PutOptions::default() };
        let body: PutPayload = body.into_iter().collect();
        let (path, bytes) = (Self::path(key)?, body.content_length() as u64);
        self.ask("put", bytes, self.store.put_opts(&path, body, options)).await.map(drop)
    }

    async fn get(&self, key: &str, bytes_max: u64) -> Result<Option<Bytes>, BucketError> {
        let path = Self::path(key)?;
        let Some(found) = self.ask_for("get", self.store.get(&path)).await? else {
            return Ok(None);
        };
        if found.meta.size > bytes_max {
            let text = format!("get: {key} is {} bytes, over {bytes_max}", found.meta.size);
            return Err(BucketError { kind: ErrorKind::Refused, text, retry_after: None });
        }
        self.ask("get", found.meta.size, found.bytes()).await.map(Some)
    }

    async fn head(&self, key: &str) -> Result<Option<Head>, BucketError> {
        let path = Self::path(key)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let found = self.ask_for("head", self.store.get_opts(&path, options)).await?;
        Ok(found.map(|found| {
            let sha256 = found.attributes.get(&Attribute::Metadata(SHA256.into()));
            let sha256 = sha256.map(|value| value.to_string());
            Head { bytes: found.meta.size, sha256 }
        }))
    }

    async fn begin(&self, key: &str, meta: ObjectMeta<'_>) -> Result<Box<dyn Parts>, BucketError> {
        let path = Self::path(key)?;
        let options =
            PutMultipartOptions { attributes: attributes(meta), ..PutMultipartOptions::default() };
        let id = self.store.create_multipart_opts(&path, options);
        let id = self.ask("multipart create", 0, id).await?;
        let bucket = S3Bucket {
            store: self.store.clone(),
            name: self.name.clone(),
            endpoint: self.endpoint.clone(),
            retry_after: self.retry_after.clone(),
            timeout: self.timeout,
        };
        Ok(Box::new(S3Parts { bucket, path, id, done: Mutex::default() }))
    }
}

struct S3Parts {
    bucket: S3Bucket,
    path: Path,
    id: MultipartId,
    done: Mutex<BTreeMap<usize, PartId>>,
}

#[async_trait]
impl Parts for S3Parts {
    async fn put(&self, number: usize, body: Bytes) -> Result<(), BucketError> {
        let bytes = body.len() as u64;
        let part = self.bucket.store.put_part(&self.path, &self.id, number, body.into());
        let part = self.bucket.ask("multipart part", bytes, part).await?;
        self.done.lock().insert(number, part);
        Ok(())
    }

    async fn complete(&self, count: usize) -> Result<(), BucketError> {
        let parts: Vec<PartId> = {
            let done = self.done.lock();
            (0..count)
                .filter_map(|n| {
                    done.get(&n).map(|part| PartId { content_id: part.content_id.clone() })
                })
                .collect()
        };
        let complete = self.bucket.store.complete_multipart(&self.path, &self.id, parts);
        // Some servers join the parts before they answer: a part is as good as 1 MiB sent.
        self.bucket.ask("multipart complete", (count as u64) << 20, complete).await.map(drop)
    }

    async fn abort(&self) {
        let _ = self.bucket.store.abort_multipart(&self.path, &self.id).await;
    }
}

/// Hears `Retry-After`, which the library does not pass on.
#[derive(Clone, Debug)]
struct Listening(Arc<Mutex<Option<Duration>>>);

#[derive(Debug)]
struct ListeningService {
    inner: HttpClient,
    heard: Arc<Mutex<Option<Duration>>>,
}

impl HttpConnector for Listening {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(ListeningService { inner, heard: self.0.clone() }))
    }
}

#[async_trait]
impl HttpService for ListeningService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.inner.execute(request).await?;
        let status = response.status().as_u16();
        if status == 429 || status >= 500 {
            let seconds = response.headers().get("retry-after");
            let seconds = seconds.and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
            *self.heard.lock() = seconds.map(Duration::from_secs);
        }
        Ok(response)
    }
}

/// 404, unless it is the bucket that is missing.
fn is_missing_key(err: &object_store::Error) -> bool {
    matches!(err, object_store::Error::NotFound { .. }) && !chain(err).contains("NoSuchBucket")
}

fn chain(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut source = err.source();
    while let Some(err) = source {
        let more = err.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = err.source();
    }
    text
}

/// What S3 calls it, in its XML.
fn s3_code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    rest.split_once("</Code>").map(|(code, _)| code)
}

/// What S3 says of it, in its XML.
fn s3_message(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Message>")?;
    rest.split_once("</Message>").map(|(message, _)| message)
}

/// HTTP status in the library's text.
fn status_in(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("non-2xx status code: ")?;
    rest.get(..3)?.parse().ok()
}

fn explain(err: &object_store::Error, bucket: &str, endpoint: &str) -> (ErrorKind, String) {
    let text = chain(err);
    let code = s3_code(&text);
    let status = status_in(&text);
    let known: Option<(ErrorKind, String)> = match (code, status) {
        (Some("NoSuchBucket"), _) => Some((
            ErrorKind::MissingBucket,
            format!("bucket {bucket} does not exist at {endpoint}; make it, or correct QUEEN_S3_BUCKET"),
        )),
        (Some("InvalidAccessKeyId"), _) => Some((
            ErrorKind::WrongKey,
            format!("{endpoint} does not know this access key; correct QUEEN_S3_ACCESS_KEY"),
        )),
        (Some("SignatureDoesNotMatch"), _) => Some((
            ErrorKind::WrongSecret,
            "the signature does not match: the secret does not belong to the access key; correct QUEEN_S3_SECRET_KEY".to_owned(),
        )),
        (Some("RequestTimeTooSkewed"), _) => Some((
            ErrorKind::ClockSkew,
            "the clocks of this machine and of the bucket differ by more than 15 minutes; set this machine's clock".to_owned(),
        )),
        (Some("ExpiredToken" | "ExpiredTokenException"), _) => Some((
            ErrorKind::ExpiredCredentials,
            "the temporary credentials have expired; renew QUEEN_S3_SESSION_TOKEN and its keys".to_owned(),
        )),
        (Some("AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException"), _) => Some((
            ErrorKind::WrongRegion,
            format!("bucket {bucket} lies in another region; correct QUEEN_S3_REGION"),
        )),
        (Some("SlowDown" | "RequestLimitExceeded"), _) | (_, Some(429)) => Some((
            ErrorKind::Throttled,
            format!("{endpoint} asks for fewer requests"),
        )),
        (Some("AccessDenied"), _) | (_, Some(403)) => Some((
            ErrorKind::Forbidden,
            format!("access to bucket {bucket} is denied: the key needs PutObject and GetObject under the prefix"),
        )),
        (Some("KeyTooLongError"), _) => Some((
            ErrorKind::Refused,
            format!(
                "the object's name is too long for {endpoint} ({}): the queue needs a shorter name, or the sink a shorter QUEEN_S3_PREFIX",
                s3_message(&text).unwrap_or("KeyTooLongError")
            ),
        )),
        (Some("InternalError" | "ServiceUnavailable" | "RequestTimeout"), _) => Some((
            ErrorKind::Unreachable,
            format!("{endpoint} cannot answer now ({})", code.unwrap_or_default()),
        )),
        _ => None,
    };
    if let Some(known) = known {
        return known;
    }
    match status {
        Some(404) => (
            ErrorKind::MissingBucket,
            format!(
                "bucket {bucket} was not found at {endpoint} (404); make it, or correct QUEEN_S3_BUCKET"
            ),
        ),
        Some(status) if (400..500).contains(&status) && status != 408 => (
            ErrorKind::Refused,
            format!("{endpoint} refused: {status} {}", code.unwrap_or("without a code")),
        ),
        Some(status) => (ErrorKind::Unreachable, format!("{endpoint} answered {status}")),
        None if text.contains("Server returned error response") => {
            (ErrorKind::Unreachable, format!("{endpoint} answered 200 with an error inside"))
        }
        None => (ErrorKind::Unreachable, format!("{endpoint} is unreachable: {}", short(&text))),
    }
}

/// The end of a chain says the cause; addresses and ids before it help nobody.
fn short(text: &str) -> &str {
    let start = text.rfind("error sending request").unwrap_or(0);
    let end = text.char_indices().nth(start + 300).map_or(text.len(), |(at, _)| at.max(start));
    &text[start..end]
}

#[cfg(test)]
#[path = "bucket_s3_tests.rs"]
mod tests;
