//! Sends what the encoder makes.
//!
//! Owns: the choice between one PUT and parts, what goes up side by side, the proof that the parts
//! became an object, and beginning anew when the bucket ends an upload.
//! Leaves to others: encoding (`produce`), single requests (`object`), the manifest (`commit`).

use crate::bucket::{BucketError, ErrorKind, ObjectMeta, Parts};
use crate::lease::{Fenced, Lease};
use crate::making::{Made, make};
use crate::object::{Seen, Sender};
use crate::open_uploads::OpenUploads;
use crate::produce::{Holds, Job, Produced, Summary};
use crate::read::ReadError;
use crate::turns::Turns;
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use queen_core::sink::ObjectEntry;
use tokio::sync::{Notify, mpsc};

/// Objects of one window sent side by side.
const OBJECTS_AT_ONCE: usize = 4;
/// Parts of one object sent side by side.
const PARTS_AT_ONCE: usize = 2;

/// A window whose uploads vanish is begun anew so often before the queue shows it as an error.
const RESTARTS_MAX: usize = 3;

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
    /// Another node owns the queue.
    #[error(transparent)]
    Fenced(#[from] Fenced),
}

/// What of a window is in the bucket.
#[derive(Debug, Default)]
pub struct Uploaded {
    /// Its objects, in order of keys.
    pub objects: Vec<ObjectEntry>,
    /// The object that lists its partitions, if the manifest does not.
    pub ranges: Option<ObjectEntry>,
    /// What the manifest says of them.
    pub summary: Summary,
}

/// Sends windows of one queue.
#[derive(Clone, Copy)]
pub struct Uploader<'a> {
    /// The bucket.
    pub sender: Sender<'a>,
    /// The queue's lease.
    pub lease: &'a Lease,
    /// Uploads in parts on their way.
    pub open: &'a OpenUploads,
    /// The encoding threads.
    pub turns: &'a Turns,
    /// Told when the window is encoded, once.
    pub encoded: Option<&'a Notify>,
    /// `content-type` of data objects.
    pub content_type: &'static str,
    /// Longest object sent in one PUT.
    pub multipart_threshold: u64,
    /// Ask whether an object is there before it is sent.
    pub ask_first: bool,
    /// Asked when an object is encoded, before anything of it is sent: whether the log still keeps
    /// all of the window, so that the object is whole. A fenced owner that wakes up late must not
    /// write what retention has left over the object of another.
    pub kept: &'a (dyn Fn() -> bool + Sync),
    /// Called while the first object is on its way, and after its first part.
    pub on_the_way: &'a (dyn Fn() + Sync),
}

impl Uploader<'_> {
    /// Encodes the window and brings all its objects into the bucket.
    ///
    /// An upload that the bucket ends itself costs no more than doing it again: the records are
    /// pinned.
    ///
    /// `made`: the window, if it is encoded already.
    pub async fn window(&self, mut made: Option<Made>, job: Job) -> Result<Uploaded, UploadError> {
        let mut tries = 0;
        let mut uploader = *self;
        loop {
            let result = match made.take() {
                Some(made) => uploader.made(made).await,
                None => uploader.once(job.clone()).await,
            };
            if result.is_err() {
                self.open.give_up(self.sender.bucket).await;
            }
            match result {
                // What was read may be short of what the other's commit has freed.
                Err(UploadError::Read(_)) if !(self.kept)() => return Err(UploadError::Committed),
                Err(UploadError::Bucket(gone))
                    if gone.kind == ErrorKind::UploadGone && tries < RESTARTS_MAX =>
                {
                    (self.sender.told)(&gone);
                    tries += 1;
                    (uploader.ask_first, uploader.encoded) = (true, None);
                }
                result => return result,
            }
        }
    }

    async fn once(&self, job: Job) -> Result<Uploaded, UploadError> {
        let turn = self.turns.take(job.kind, job.working_bytes + job.manifest_bytes).await;
        let (mut produced, encoding) = make(job, turn);
        let encoding = async {
            let summary = encoding.await;
            self.is_encoded();
            summary
        };
        let sending = async move {
            let sent = self.objects(&mut produced).await;
            // With an error the channel closes, and the encoder ends at its next object or piece.
            drop(produced);
            sent
        };
        let (summary, sent) = futures::join!(encoding, sending);
        let (objects, ranges) = sent?;
        Ok(Uploaded { objects, ranges, summary: summary? })
    }

    /// Brings the objects of a window that is encoded already into the bucket.
    async fn made(&self, made: Made) -> Result<Uploaded, UploadError> {
        let Made { mut produced, summary } = made;
        self.is_encoded();
        let (objects, ranges) = self.objects(&mut produced).await?;
        Ok(Uploaded { objects, ranges, summary })
    }

    fn is_encoded(&self) {
        if let Some(encoded) = self.encoded {
            encoded.notify_one();
        }
    }

    /// Sends what comes, and gives the objects of records and that of ranges.
    async fn objects(
        &self,
        produced: &mut mpsc::Receiver<Produced>,
    ) -> Result<(Vec<ObjectEntry>, Option<ObjectEntry>), UploadError> {
        let (mut entries, mut ranges) = (Vec::new(), None);
        let mut note = |holds: Holds, entry: ObjectEntry| match holds {
            Holds::Records => entries.push(entry),
            Holds::Ranges => ranges = Some(entry),
        };
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
                Some(Produced::Whole { holds, entry, kept }) => {
                    note(holds, entry.clone());
                    let (pieces, grant) = kept.into_parts();
                    sending.push(async move {
                        let result = self.whole(holds, &entry, pieces.unwrap_or_default()).await;
                        drop(grant);
                        result
                    });
                }
                Some(Produced::Large { holds, entry, wanted }) => {
                    let send = !self.is_there(&entry).await?;
                    // An encoder that is gone says why itself.
                    let _ = wanted.send(send);
                    if send {
                        self.large(holds, &entry, produced).await?;
                    }
                    note(holds, entry);
                }
                // `large` reads them, to the end or to that of the channel.
                Some(Produced::Piece(_) | Produced::Same) => {}
            }
        }
        while sending.next().await.transpose()?.is_some() {}
        Ok((entries, ranges))
    }

    async fn is_there(&self, entry: &ObjectEntry) -> Result<bool, BucketError> {
        if !self.ask_first {
            return Ok(false);
        }
        Ok(self.sender.see(&entry.key, entry.bytes, &entry.sha256).await? == Seen::Same)
    }

    fn meta<'m>(&self, holds: Holds, entry: &'m ObjectEntry) -> ObjectMeta<'m> {
        let content_type = match holds {
            Holds::Records => self.content_type,
            Holds::Ranges => "application/json",
        };
        ObjectMeta { content_type, sha256: &entry.sha256 }
    }

    async fn whole(
        &self,
        holds: Holds,
        entry: &ObjectEntry,
        pieces: Vec<Bytes>,
    ) -> Result<(), UploadError> {
        if entry.bytes <= self.multipart_threshold {
            let meta = self.meta(holds, entry);
            let put = self.sender.put(&entry.key, pieces, meta, self.ask_first);
            tokio::pin!(put);
            tokio::select! {
                biased;
                result = &mut put => return Ok(result?),
                () = tokio::task::yield_now() => (self.on_the_way)(),
            }
            return Ok(put.await?);
        }
        if self.is_there(entry).await? {
            return Ok(());
        }
        let parts = self.begin(holds, entry).await?;
        let numbered = pieces.into_iter().enumerate();
        let sends = numbered.map(|(number, piece)| self.part(&*parts, number, piece));
        let mut sends = futures::stream::iter(sends).buffer_unordered(PARTS_AT_ONCE);
        let mut count = 0;
        while let Some(sent) = sends.next().await {
            sent?;
            count += 1;
            (self.on_the_way)();
        }
        self.complete(entry, &*parts, count).await
    }

    /// Begins an upload that is given up when this owner does not complete it.
    async fn begin(
        &self,
        holds: Holds,
        entry: &ObjectEntry,
    ) -> Result<Box<dyn Parts>, UploadError> {
        let (bucket, meta) = (self.sender.bucket, self.meta(holds, entry));
        let parts = self.sender.call("multipart_create", || bucket.begin(&entry.key, meta)).await?;
        self.open.begun(self.lease, &entry.key, &parts.id()).await?;
        Ok(parts)
    }

    async fn part(
        &self,
        parts: &dyn Parts,
        number: usize,
        piece: Bytes,
    ) -> Result<(), BucketError> {
        self.sender.call("multipart_part", || parts.put(number, piece.clone())).await
    }

    /// Makes the object, and sees it: the answer to the end of an upload proves too little.
    async fn complete(
        &self,
        entry: &ObjectEntry,
        parts: &dyn Parts,
        count: usize,
    ) -> Result<(), UploadError> {
        let end = || async {
            let ended = parts.complete(count).await;
            match &ended {
                Ok(()) => {}
                // The answer before this one may have been lost.
                Err(err) if matches!(err.kind, ErrorKind::UploadGone | ErrorKind::Unproven) => {}
                Err(_) => return ended,
            }
            match self.sender.see(&entry.key, entry.bytes, &entry.sha256).await? {
                Seen::Same => Ok(()),
                Seen::CannotTell => ended,
                Seen::Other => ended.and_then(|()| {
                    let text = format!("multipart complete: {} is not there after all", entry.key);
                    Err(BucketError { kind: ErrorKind::Unproven, text, retry_after: None })
                }),
            }
        };
        self.sender.call("multipart_complete", end).await?;
        self.open.ended(&parts.id());
        Ok(())
    }

    async fn large(
        &self,
        holds: Holds,
        entry: &ObjectEntry,
        produced: &mut mpsc::Receiver<Produced>,
    ) -> Result<(), UploadError> {
        let parts = self.begin(holds, entry).await?;
        let mut sends = FuturesUnordered::new();
        let (mut count, mut left) = (0, entry.bytes);
        while left > 0 {
            // A channel that ends here ends for a reason that the encoder gives.
            let Some(Produced::Piece(piece)) = produced.recv().await else {
                return Ok(());
            };
            left = left.saturating_sub(piece.len() as u64);
            sends.push(self.part(&*parts, count, piece));
            count += 1;
            while sends.len() >= PARTS_AT_ONCE || left == 0 {
                match sends.next().await {
                    None => break,
                    Some(sent) => sent?,
                }
                (self.on_the_way)();
            }
        }
        // An object of other bytes than those announced is never made: the encoder says why.
        loop {
            match produced.recv().await {
                Some(Produced::Same) => return self.complete(entry, &*parts, count).await,
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::encode::pieces::PIECE_BYTES;
    use queen_core::limits::ENTRY_BYTES_MAX;
    use queen_core::setting::{Kind, sink::TARGET_MB};

    #[test]
    fn no_window_needs_more_parts_than_s3_takes() {
        let Kind::Number { high, .. } = TARGET_MB.kind else { panic!("a number") };
        // A line is at most eight times as long as what is counted of its record.
        let longest = ((high << 20) + ENTRY_BYTES_MAX as u64) * 8;
        assert!(longest <= PIECE_BYTES as u64 * 10_000);
    }
}
