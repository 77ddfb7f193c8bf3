//! What the sink needs of the bucket.
//!
//! Owns: the traits [`Bucket`] and [`Parts`], and the kinds of failure ([`BucketError`]) that decide
//! whether and when a call is made again.
//! Leaves to others: the S3 implementation (`bucket_s3`), its twin (`queen-sim`), waiting
//! between tries (`retry`), keys (`layout`).
//!
//! Needs PUT, GET, HEAD and multipart, nothing else: no listing, no deletes, no conditional writes.
//! A PUT overwrites. Each call is one attempt as the sink counts them; the implementation may repeat
//! it quietly for a time well below a lease.

use async_trait::async_trait;
use bytes::Bytes;
use std::time::Duration;

/// What goes with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectMeta<'a> {
    /// `content-type`. There is never a content encoding.
    pub content_type: &'static str,
    /// Sent as user metadata `queen-sha256`: SHA-256 of the object's bytes, lower hex.
    pub sha256: &'a str,
}

/// What a HEAD told of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its length.
    pub bytes: u64,
    /// Its user metadata `queen-sha256`, if it has one.
    pub sha256: Option<String>,
}

/// A bucket.
#[async_trait]
pub trait Bucket: Send + Sync + 'static {
    /// Writes an object, the pieces of `body` one after the other, over whatever was there.
    async fn put(
        &self,
        key: &str,
        body: Vec<Bytes>,
        meta: ObjectMeta<'_>,
    ) -> Result<(), BucketError>;

    /// Reads an object of at most `bytes_max` bytes (a longer one is an error of kind
    /// [`ErrorKind::Refused`]); `None` when there is none.
    async fn get(&self, key: &str, bytes_max: u64) -> Result<Option<Bytes>, BucketError>;

    /// Looks at an object; `None` when there is none.
    async fn head(&self, key: &str) -> Result<Option<Head>, BucketError>;

    /// Begins an upload in parts. Nothing is visible under the key until [`Parts::complete`].
    async fn begin(&self, key: &str, meta: ObjectMeta<'_>) -> Result<Box<dyn Parts>, BucketError>;

    /// Gives up the upload `id` to `key` that an earlier owner began. One that is not there any
    /// more is a success.
    async fn abort(&self, key: &str, id: &str) -> Result<(), BucketError>;
}

/// An upload in parts. Dropping it leaves the parts where they are until [`Bucket::abort`].
///
/// A call fails with [`ErrorKind::UploadGone`] when the upload is not there any more; begin anew.
#[async_trait]
pub trait Parts: Send + Sync {
    /// Sends part `number` (from 0; every part but the last of one size, at least 5 MiB). May be
    /// called again for a number after an error, and for several numbers at a time.
    async fn put(&self, number: usize, body: Bytes) -> Result<(), BucketError>;

    /// Makes the object of the parts `0..count`.
    async fn complete(&self, count: usize) -> Result<(), BucketError>;

    /// What [`Bucket::abort`] calls it.
    fn id(&self) -> String;
}

/// Why a call failed, as far as it decides what happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No answer, or 408, 429, 5xx, `SlowDown`: tried again for ever, with growing pauses.
    Unreachable,
    /// The bucket answered, and too many requests is what it said: as `Unreachable`.
    Throttled,
    /// The access key is not known there. Tried again each minute, like all that follow.
    WrongKey,
    /// The secret does not belong to the access key.
    WrongSecret,
    /// The credentials' time is over.
    ExpiredCredentials,
    /// There are no credentials: their source gives none.
    NoCredentials,
    /// The key may not do this.
    Forbidden,
    /// There is no such bucket.
    MissingBucket,
    /// The bucket lies in another region.
    WrongRegion,
    /// This machine's clock and the bucket's differ too much to sign requests.
    ClockSkew,
    /// Any other refusal.
    Refused,
    /// The bucket wants another header that proves the body, or takes none of those tried.
    Integrity,
    /// The upload in parts is not there: aborted by a rule of the bucket, or completed already.
    UploadGone,
    /// A success was answered that does not say what was made. As `Unreachable`.
    Unproven,
}

impl ErrorKind {
    /// Tried again for ever with back-off; otherwise the queue shows the error and tries each minute.
    pub fn transient(self) -> bool {
        matches!(self, ErrorKind::Unreachable | ErrorKind::Throttled | ErrorKind::Unproven)
    }

    /// The word in `/status` and in labels.
    pub fn word(self) -> &'static str {
        match self {
            ErrorKind::Unreachable => "unreachable",
            ErrorKind::Throttled => "throttled",
            ErrorKind::WrongKey => "wrong_key",
            ErrorKind::WrongSecret => "wrong_secret",
            ErrorKind::ExpiredCredentials => "expired_credentials",
            ErrorKind::NoCredentials => "no_credentials",
            ErrorKind::Forbidden => "forbidden",
            ErrorKind::MissingBucket => "missing_bucket",
            ErrorKind::WrongRegion => "wrong_region",
            ErrorKind::ClockSkew => "clock_skew",
            ErrorKind::Refused => "refused",
            ErrorKind::Integrity => "integrity",
            ErrorKind::UploadGone => "upload_gone",
            ErrorKind::Unproven => "unproven",
        }
    }
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct BucketError {
    /// What to do next.
    pub kind: ErrorKind,
    /// What failed and what to do about it, in words. Never a secret.
    pub text: String,
    /// The bucket asked for at least this pause.
    pub retry_after: Option<Duration>,
}
