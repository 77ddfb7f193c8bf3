//! The bucket, over S3 through the object_store library.
//!
//! Owns: the requests: each call is one, but for the second try after the bucket said that the
//! credentials have ended, and others after it wanted another proof of the body.
//! Leaves to others: making the client (`client`), credentials (`credentials`), the words of a
//! failure (`explain`), what is heard of HTTP (`http`), pauses between tries (`retry`).

mod client;
mod credentials;
mod explain;
mod http;

pub use client::BadBucket;

use crate::bucket::{Bucket, BucketError, ErrorKind, Head, ObjectMeta, Parts};
use crate::settings::{BucketSettings, UPLOAD_BYTES_PER_SECOND};
use async_trait::async_trait;
use bytes::Bytes;
use client::{Clients, Pair, Proof};
use explain::{Place, explain, is_missing_key};
use http::UNSAID;
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, MultipartId, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// User metadata that holds the object's SHA-256; sent as `x-amz-meta-queen-sha256`.
const SHA256: &str = "queen-sha256";

/// A bucket on S3, or on a server that speaks as S3 does.
#[derive(Clone)]
pub struct S3Bucket(Arc<Inner>);

struct Inner {
    clients: Clients,
    name: String,
    endpoint: String,
    path_style: bool,
    timeout: Duration,
}

impl S3Bucket {
    /// Makes the client. Sends nothing.
    pub fn new(settings: &BucketSettings) -> Result<S3Bucket, BadBucket> {
        Ok(S3Bucket(Arc::new(Inner {
            clients: Clients::new(settings)?,
            name: settings.bucket.clone(),
            endpoint: settings.endpoint.clone(),
            path_style: settings.path_style,
            timeout: settings.request_timeout,
        })))
    }

    /// Asks for the credentials, and says where they are from and their key id.
    pub async fn describe_credentials(&self) -> Result<String, BucketError> {
        self.0.clients.credentials.describe().await.map_err(|error| BucketError {
            kind: ErrorKind::NoCredentials,
            text: error.text,
            retry_after: None,
        })
    }

    /// How far this machine's clock is ahead of the bucket's, seconds, at the last answer.
    pub fn clock_ahead(&self) -> Option<i64> {
        self.0.clients.heard.lock().clock_ahead
    }

    /// Makes a request until the bucket likes the proof of its body, each kind once.
    async fn proving<T, F>(&self, request: impl Fn(Pair) -> F) -> Result<T, BucketError>
    where
        F: Future<Output = Result<T, BucketError>>,
    {
        let mut tries = 0;
        loop {
            let pair = self.0.clients.now();
            let proof = pair.proof;
            tries += 1;
            match request(pair).await {
                Err(err) if err.kind == ErrorKind::Integrity && tries < 3 => {
                    if !self.0.clients.prove_otherwise(proof) {
                        return Err(err);
                    }
                }
                result => return result,
            }
        }
    }

    fn failed(&self, what: &str, err: &object_store::Error, lasting_keys: bool) -> BucketError {
        let bucket = &*self.0;
        let retry_after = bucket.clients.heard.lock().pause();
        let place = Place {
            bucket: &bucket.name,
            endpoint: &bucket.endpoint,
            path_style: bucket.path_style,
            lasting_keys,
        };
        let (kind, why) = explain(err, &place);
        BucketError { kind, text: format!("{what}: {why}"), retry_after }
    }

    /// One request with a body of `bytes`, given up when there is no answer in time; asked once more
    /// when the credentials may have ended and there can be others.
    async fn ask<T, R>(
        &self,
        what: &str,
        bytes: u64,
        request: impl Fn() -> R,
    ) -> Result<T, BucketError>
    where
        R: Future<Output = object_store::Result<T>>,
    {
        let credentials = &self.0.clients.credentials;
        let generation = credentials.generation().await;
        let error = match self.ask_once(what, bytes, request()).await {
            Ok(answer) => return Ok(answer),
            Err(Failure::NoAnswer(error)) => return Err(error),
            Err(Failure::Answered(err)) => err,
        };
        let failed = self.failed(what, &error, false);
        if !may_have_ended(failed.kind, what) {
            return Err(failed);
        }
        if !credentials.forget(generation) {
            return Err(self.failed(what, &error, true));
        }
        match self.ask_once(what, bytes, request()).await {
            Ok(answer) => Ok(answer),
            Err(Failure::NoAnswer(error)) => Err(error),
            Err(Failure::Answered(err)) => Err(self.failed(what, &err, false)),
        }
    }

    async fn ask_once<T>(
        &self,
        what: &str,
        bytes: u64,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Failure> {
        let sending = Duration::from_secs(bytes / UPLOAD_BYTES_PER_SECOND);
        let limit = self.0.timeout.max(sending);
        match tokio::time::timeout(limit, request).await {
            Ok(result) => result.map_err(Failure::Answered),
            Err(_) => Err(Failure::NoAnswer(BucketError {
                kind: ErrorKind::Unreachable,
                text: format!("{what}: {} gave no answer within {limit:?}", self.0.endpoint),
                retry_after: None,
            })),
        }
    }

    /// As [`S3Bucket::ask`]; `None` when there is no such object.
    async fn ask_for<T, R>(
        &self,
        what: &str,
        request: impl Fn() -> R,
    ) -> Result<Option<T>, BucketError>
    where
        R: Future<Output = object_store::Result<T>>,
    {
        let found = || {
            let request = request();
            async {
                match request.await {
                    Err(err) if is_missing_key(&err) => Ok(None),
                    result => result.map(Some),
                }
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

/// How one request failed.
enum Failure {
    NoAnswer(BucketError),
    Answered(object_store::Error),
}

/// Whether other credentials may be what a request needs. Keys out of a profile may have been
/// replaced; a HEAD's answer has no body that could say so.
fn may_have_ended(kind: ErrorKind, what: &str) -> bool {
    let keys = [ErrorKind::ExpiredCredentials, ErrorKind::WrongKey, ErrorKind::WrongSecret];
    let silent = [ErrorKind::Refused, ErrorKind::Forbidden];
    keys.contains(&kind) || (what == "head" && silent.contains(&kind))
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
        let options = &PutOptions { attributes: attributes(meta), ..PutOptions::default() };
        let body: &PutPayload = &body.into_iter().collect();
        let (path, bytes) = (&Self::path(key)?, body.content_length() as u64);
        let put = |pair: Pair| async move {
            let put = || pair.writing.put_opts(path, body.clone(), options.clone());
            self.ask("put", bytes, put).await
        };
        let put = self.proving(put).await?;
        match put.e_tag.as_deref() {
            Some(UNSAID) => self.look_for(key, bytes, meta).await,
            _ => Ok(()),
        }
    }

    async fn get(&self, key: &str, bytes_max: u64) -> Result<Option<Bytes>, BucketError> {
        let path = Self::path(key)?;
        let client = self.0.clients.now().plain;
        let Some(found) = self.ask_for("get", || client.get(&path)).await? else {
            return Ok(None);
        };
        if found.meta.size > bytes_max {
            let text = format!("get: {key} is {} bytes, over {bytes_max}", found.meta.size);
            return Err(BucketError { kind: ErrorKind::Refused, text, retry_after: None });
        }
        let size = found.meta.size;
        match self.ask_once("get", size, found.bytes()).await {
            Ok(body) => Ok(Some(body)),
            Err(Failure::NoAnswer(error)) => Err(error),
            Err(Failure::Answered(err)) => Err(self.failed("get", &err, false)),
        }
    }

    async fn head(&self, key: &str) -> Result<Option<Head>, BucketError> {
        let path = Self::path(key)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let client = self.0.clients.now().plain;
        let head = || client.get_opts(&path, options.clone());
        let found = self.ask_for("head", head).await?;
        Ok(found.map(|found| {
            let sha256 = found.attributes.get(&Attribute::Metadata(SHA256.into()));
            let sha256 = sha256.map(|value| value.to_string());
            Head { bytes: found.meta.size, sha256 }
        }))
    }

    async fn begin(&self, key: &str, meta: ObjectMeta<'_>) -> Result<Box<dyn Parts>, BucketError> {
        let path = &Self::path(key)?;
        let options =
            &PutMultipartOptions { attributes: attributes(meta), ..PutMultipartOptions::default() };
        let begin = |pair: Pair| async move {
            let begin = || pair.writing.create_multipart_opts(path, options.clone());
            let id = self.ask("multipart create", 0, begin).await?;
            Ok((pair, id))
        };
        let (pair, id) = self.proving(begin).await?;
        let (bucket, path) = (self.clone(), path.clone());
        let Pair { proof, plain: client, .. } = pair;
        Ok(Box::new(S3Parts { bucket, proof, client, path, id, done: Mutex::default() }))
    }

    async fn abort(&self, key: &str, id: &str) -> Result<(), BucketError> {
        let (path, id) = (Self::path(key)?, id.to_owned());
        let client = self.0.clients.now().plain;
        match self.ask("multipart abort", 0, || client.abort_multipart(&path, &id)).await {
            Err(err) if err.kind == ErrorKind::UploadGone => Ok(()),
            result => result,
        }
    }
}

impl S3Bucket {
    /// A PUT was answered with success and without the ETag that proves it.
    async fn look_for(
        &self,
        key: &str,
        bytes: u64,
        meta: ObjectMeta<'_>,
    ) -> Result<(), BucketError> {
        let found = match self.head(key).await {
            // A key that may only write cannot look; the status must do.
            Err(err) if err.kind == ErrorKind::Forbidden => return Ok(()),
            found => found?,
        };
        let same = |head: &Head| head.bytes == bytes && head.sha256.as_deref() == Some(meta.sha256);
        match found.filter(same) {
            Some(_) => Ok(()),
            None => Err(BucketError {
                kind: ErrorKind::Unproven,
                text: format!("put: {} said yes and has no such object", self.0.endpoint),
                retry_after: None,
            }),
        }
    }
}

struct S3Parts {
    bucket: S3Bucket,
    /// The upload's own kind of proof and client: S3 wants one kind for all parts.
    proof: Proof,
    client: AmazonS3,
    path: Path,
    id: MultipartId,
    done: Mutex<BTreeMap<usize, PartId>>,
}

#[async_trait]
impl Parts for S3Parts {
    async fn put(&self, number: usize, body: Bytes) -> Result<(), BucketError> {
        let bytes = body.len() as u64;
        let part = || self.client.put_part(&self.path, &self.id, number, body.clone().into());
        match self.bucket.ask("multipart part", bytes, part).await {
            Ok(part) => {
                self.done.lock().insert(number, part);
                Ok(())
            }
            // Some buckets find out at the first part.
            Err(err)
                if err.kind == ErrorKind::Integrity
                    && self.bucket.0.clients.prove_otherwise(self.proof) =>
            {
                Err(BucketError { kind: ErrorKind::UploadGone, ..err })
            }
            Err(err) => Err(err),
        }
    }

    async fn complete(&self, count: usize) -> Result<(), BucketError> {
        let parts = || -> Vec<PartId> {
            let done = self.done.lock();
            let part = |n| done.get(&n).map(|part| part.content_id.clone());
            (0..count).filter_map(part).map(|content_id| PartId { content_id }).collect()
        };
        let complete = || self.client.complete_multipart(&self.path, &self.id, parts());
        // Some servers join the parts before they answer: a part is as good as 1 MiB sent.
        self.bucket.ask("multipart complete", (count as u64) << 20, complete).await.map(drop)
    }

    fn id(&self) -> String {
        self.id.clone()
    }
}

#[cfg(test)]
#[path = "bucket_s3_tests.rs"]
mod tests;
