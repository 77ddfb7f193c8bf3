//! The bucket, over S3 through the object_store library.
//!
//! Owns: the calls of the library behind the traits of `bucket`; the client made of the settings
//! (`client`), the meaning of failures (`explain`), what is heard of HTTP (`http`).
//! Leaves to others: pauses between tries (`retry`): each call here is one request.

mod client;
mod explain;
mod http;

pub use client::BadBucket;

use crate::bucket::{Bucket, BucketError, ErrorKind, Head, ObjectMeta, Parts};
use crate::settings::{BucketSettings, UPLOAD_BYTES_PER_SECOND};
use async_trait::async_trait;
use bytes::Bytes;
use explain::{explain, is_missing_key};
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
pub struct S3Bucket {
    store: Arc<AmazonS3>,
    name: String,
    endpoint: String,
    /// The last `Retry-After`, until the next failure takes it.
    retry_after: Arc<Mutex<Option<Duration>>>,
    timeout: Duration,
}

impl S3Bucket {
    /// Makes the client. Sends nothing.
    pub fn new(settings: &BucketSettings) -> Result<S3Bucket, BadBucket> {
        let retry_after = Arc::new(Mutex::new(None));
        let store = Arc::new(client::build(settings, &retry_after)?);
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

#[cfg(test)]
#[path = "bucket_s3_tests.rs"]
mod tests;
