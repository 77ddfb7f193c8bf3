//! One object: sent, unless it is there already.
//!
//! Owns: the HEAD that spares a redo what is there, and the second look when a PUT is refused.
//! Leaves to others: pauses between tries (`retry`), what goes up in parts (`upload`).
//! Upholds: `once-in-the-lake`.
//!
//! A bucket may refuse to write over an object: a retention lock, a policy. When the first answer to
//! a PUT was lost, the second is such a refusal, and the object is there.

use crate::bucket::{Bucket, BucketError, ErrorKind, ObjectMeta};
use crate::retry::Limiter;
use bytes::Bytes;

/// What a HEAD told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// This object is there: its length and its hash are those asked for.
    Same,
    /// None is there, or another.
    Other,
    /// The key may only write.
    CannotTell,
}

/// Sends objects.
#[derive(Clone, Copy)]
pub struct Sender<'a> {
    /// The bucket.
    pub bucket: &'a dyn Bucket,
    /// Pauses and `Retry-After`.
    pub limiter: &'a Limiter,
    /// Called with each error that is tried again.
    pub told: &'a (dyn Fn(&BucketError) + Sync),
}

impl Sender<'_> {
    /// Calls until it succeeds or no pause mends it.
    pub async fn call<T, F: Future<Output = Result<T, BucketError>>>(
        &self,
        op: &'static str,
        call: impl FnMut() -> F,
    ) -> Result<T, BucketError> {
        self.limiter.call(op, |err| (self.told)(err), call).await
    }

    /// Whether an object of `bytes` with this hash is there.
    pub async fn see(&self, key: &str, bytes: u64, sha256: &str) -> Result<Seen, BucketError> {
        match self.call("head", || self.bucket.head(key)).await {
            Ok(Some(head)) if head.bytes == bytes && head.sha256.as_deref() == Some(sha256) => {
                Ok(Seen::Same)
            }
            Ok(_) => Ok(Seen::Other),
            Err(err) if err.kind == ErrorKind::Forbidden => Ok(Seen::CannotTell),
            Err(err) => Err(err),
        }
    }

    /// Sends an object in one request; `ask_first`: unless it is there.
    pub async fn put(
        &self,
        key: &str,
        body: Vec<Bytes>,
        meta: ObjectMeta<'_>,
        ask_first: bool,
    ) -> Result<(), BucketError> {
        let bytes = body.iter().map(|piece| piece.len() as u64).sum();
        if ask_first && self.see(key, bytes, meta.sha256).await? == Seen::Same {
            return Ok(());
        }
        let put = self.call("put", || self.bucket.put(key, body.clone(), meta)).await;
        let Err(refused) = put else { return Ok(()) };
        if !matches!(refused.kind, ErrorKind::Forbidden | ErrorKind::Refused) {
            return Err(refused);
        }
        match self.see(key, bytes, meta.sha256).await {
            Ok(Seen::Same) => Ok(()),
            _ => Err(refused),
        }
    }
}
