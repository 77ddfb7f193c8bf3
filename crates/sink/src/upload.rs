//! Sends what the encoder makes.
//!
//! Owns: the choice between one PUT and parts, what goes up side by side, and the HEAD that spares
//! a redo the objects that are there already.
//! Leaves to others: encoding (`produce`), pauses between tries (`retry`), the manifest (`commit`).

use crate::bucket::{Bucket, BucketError, ObjectMeta, Parts};
use crate::making::{Made, make};
use crate::produce::{Job, Produced, Summary};
use crate::read::ReadError;
use crate::retry::Limiter;
use crate::turns::Turns;
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use queen_core::sink::ObjectEntry;
use tokio::sync::{Notify, mpsc};

/// Objects of one window sent side by side.
const OBJECTS_AT_ONCE: usize = 4;
/// Parts of one object sent side by side.
const PARTS_AT_ONCE: usize = 2;

/// A window could not be brought into the bucket.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The bucket refused, and no pause mends it.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// The window could not be read or encoded.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Another owner has committed the window: nothing keeps its records any more.
    #[error("another owner has committed the window")]
    Committed,
}

/// Sends windows of one queue.
pub struct Uploader<'a> {
    /// The bucket.
    pub bucket: &'a dyn Bucket,
    /// Pauses and `Retry-After`.
    pub limiter: &'a Limiter,
    /// The encoding threads.
    pub turns: &'a Turns,
    /// Told when the window is encoded.
    pub encoded: &'a Notify,
    /// `content-type` of data objects.
    pub content_type: &'static str,
    /// Longest object sent in one PUT.
    pub multipart_threshold: u64,
    /// Ask whether an object is there before it is sent.
    pub ask_first: bool,
    /// Called with each error that is tried again.
    pub told: &'a (dyn Fn(&BucketError) + Sync),
    /// Asked when an object is encoded, before anything of it is sent: whether the log still keeps
    /// all of the window, so that the object is whole. A fenced owner that wakes up late must not
    /// write what retention has left over the object of another.
    pub kept: &'a (dyn Fn() -> bool + Sync),
    /// Called while the first object is on its way, and after its first part.
    pub on_the_way: &'a (dyn Fn() + Sync),
}

impl Uploader<'_> {
    /// Encodes the window and brings all its objects into the bucket; gives them in order of keys.
    pub async fn window(&self, job: Job) -> Result<(Vec<ObjectEntry>, Summary), UploadError> {
        let turn = self.turns.take(job.kind, job.working_bytes).await;
        let (mut produced, encoding) = make(job, turn);
        let encoding = async {
            let summary = encoding.await;
            self.encoded.notify_one();
            summary
        };
        let sending = async move {
            let sent = self.objects(&mut produced).await;
            // With an error the channel closes, and the encoder ends at its next object or piece.
            drop(produced);
            sent
        };
        let (summary, sent) = futures::join!(encoding, sending);
        let objects = sent?;
        Ok((objects, summary?))
    }

    /// Brings the objects of a window that is encoded already into the bucket.
    pub async fn made(&self, made: Made) -> Result<(Vec<ObjectEntry>, Summary), UploadError> {
        let Made { mut produced, summary } = made;
        self.encoded.notify_one();
        Ok((self.objects(&mut produced).await?, summary))
    }

    async fn objects(
        &self,
        produced: &mut mpsc::Receiver<Produced>,
    ) -> Result<Vec<ObjectEntry>, UploadError> {
        let mut entries = Vec::new();
        let mut sending = FuturesUnordered::new();
        loop {
            while sending.len() >= OBJECTS_AT_ONCE {
                sending.next().await.transpose()?;
            }
            let next = tokio::select! {
                biased;
                done = sending.next(), if !sending.is_empty() => {
                    done.transpose()?;
                    continue;
                }
                next = produced.recv() => next,
            };
            match next {
                None => break,
                Some(Produced::Whole { .. } | Produced::Large { .. }) if !(self.kept)() => {
                    return Err(UploadError::Committed);
                }
                Some(Produced::Whole { entry, kept }) => {
                    entries.push(entry.clone());
                    let (pieces, grant) = kept.into_parts();
                    sending.push(async move {
                        let result = self.whole(&entry, pieces.unwrap_or_default()).await;
                        drop(grant);
                        result
                    });
                }
                Some(Produced::Large { entry, wanted }) => {
                    let send = !self.is_there(&entry).await?;
                    // An encoder that is gone says why itself.
                    let _ = wanted.send(send);
                    if send {
                        self.large(&entry, produced).await?;
                    }
                    entries.push(entry);
                }
                Some(Produced::Piece(_)) => unreachable!("pieces are read by `large`"),
            }
        }
        while sending.next().await.transpose()?.is_some() {}
        Ok(entries)
    }

    async fn call<T, F: Future<Output = Result<T, BucketError>>>(
        &self,
        op: &'static str,
        call: impl FnMut() -> F,
    ) -> Result<T, BucketError> {
        self.limiter.call(op, |err| (self.told)(err), call).await
    }

    async fn is_there(&self, entry: &ObjectEntry) -> Result<bool, BucketError> {
        if !self.ask_first {
            return Ok(false);
        }
        match self.call("head", || self.bucket.head(&entry.key)).await {
            Ok(head) => Ok(head.is_some_and(|head| {
                head.bytes == entry.bytes && head.sha256.as_deref() == Some(&entry.sha256)
            })),
            // A key that may only write cannot look; it sends again.
            Err(_) => Ok(false),
        }
    }

    fn meta<'m>(&self, entry: &'m ObjectEntry) -> ObjectMeta<'m> {
        ObjectMeta { content_type: self.content_type, sha256: &entry.sha256 }
    }

    async fn whole(&self, entry: &ObjectEntry, pieces: Vec<Bytes>) -> Result<(), BucketError> {
        if self.is_there(entry).await? {
            return Ok(());
        }
        let meta = self.meta(entry);
        if entry.bytes <= self.multipart_threshold {
            let put = self.call("put", || self.bucket.put(&entry.key, pieces.clone(), meta));
            tokio::pin!(put);
            tokio::select! {
                biased;
                result = &mut put => return result,
                () = tokio::task::yield_now() => (self.on_the_way)(),
            }
            return put.await;
        }
        let parts = self.call("multipart_create", || self.bucket.begin(&entry.key, meta)).await?;
        let numbered = pieces.into_iter().enumerate();
        let sends = numbered.map(|(number, piece)| self.part(&*parts, number, piece));
        let mut sends = futures::stream::iter(sends).buffer_unordered(PARTS_AT_ONCE);
        let mut count = 0;
        while let Some(sent) = sends.next().await {
            if let Err(err) = sent {
                parts.abort().await;
                return Err(err);
            }
            count += 1;
            (self.on_the_way)();
        }
        self.call("multipart_complete", || parts.complete(count)).await
    }

    async fn part(
        &self,
        parts: &dyn Parts,
        number: usize,
        piece: Bytes,
    ) -> Result<(), BucketError> {
        self.call("multipart_part", || parts.put(number, piece.clone())).await
    }

    async fn large(
        &self,
        entry: &ObjectEntry,
        produced: &mut mpsc::Receiver<Produced>,
    ) -> Result<(), UploadError> {
        let meta = self.meta(entry);
        let parts = self.call("multipart_create", || self.bucket.begin(&entry.key, meta)).await?;
        let mut sends = FuturesUnordered::new();
        let (mut count, mut left) = (0, entry.bytes);
        while left > 0 {
            // A channel that ends here ends for a reason that the encoder gives.
            let Some(Produced::Piece(piece)) = produced.recv().await else {
                parts.abort().await;
                return Ok(());
            };
            left = left.saturating_sub(piece.len() as u64);
            sends.push(self.part(&*parts, count, piece));
            count += 1;
            while sends.len() >= PARTS_AT_ONCE || left == 0 {
                match sends.next().await {
                    None => break,
                    Some(Ok(())) => (self.on_the_way)(),
                    Some(Err(err)) => {
                        parts.abort().await;
                        return Err(err.into());
                    }
                }
            }
        }
        self.call("multipart_complete", || parts.complete(count)).await?;
        Ok(())
    }
}
