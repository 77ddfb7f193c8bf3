//! The three steps that bring a window into the bucket exactly once, and how each is resumed.
//!
//! Owns: the order of effects (intent, objects, manifest, pointer), what a new owner finds and does,
//! and the look at the bucket that finds it ahead of the broker.
//! Leaves to others: which window it is (`plan`), the lease and its fence (`lease`), encoding and
//! sending (`produce`, `upload`).
//! Upholds: `window-is-final`, `once-in-the-lake`, `one-writer-commits`, `manifest-chain`,
//! `loss-is-listed`.
//!
//! ```text
//! 1 intent     KV batch {lease mine, intent at the version read}      pins all that decides the bytes
//! 2 objects    PUT each, then the manifest                            same key, same bytes, whoever does it
//! 3 committed  KV batch {lease mine, committed at the version read}   the window is in the lake
//! ```
//!
//! What a window lists as lost is fixed by the state machine when it applies the intent, and dropped
//! with the commit, as the pin is. So an owner that wakes up after another has committed could read
//! less than was there: what was read goes into the bucket only if the commit was not applied here
//! when it had been read. A window whose queue was deleted before its intent came holds nothing: all
//! of it is lost.
//!
//! Died before 1: the window is planned anew. Between 1 and 3: the next owner finds the intent, and
//! the manifest if 2 was done; it redoes what is missing from the intent's values. After 3: nothing.

use crate::ahead::Ahead;
use crate::bucket::{ErrorKind, ObjectMeta};
use crate::context::{Context, Stop};
use crate::encode::pieces::sha256_hex;
use crate::host::{HostError, Place, ScanFrom, blocking};
use crate::intent::{encoding_of, intent_of, job_of, kind_of, kind_of_found};
use crate::layout::{Align, QueueKeys, hour_end, hour_name, hour_of};
use crate::lease::{Lease, rows};
use crate::making::Made;
use crate::manifest::{Owner, is_of, is_of_release, manifest};
use crate::open_uploads::OpenUploads;
use crate::settings::CrashPoint;
use crate::turns::Kind;
use crate::upload::{Uploaded, Uploader};
use crate::window::{Window, window_is_final};
use bytes::Bytes;
use queen_core::sink::{
    Committed, HourFile, Intent, LostRange, Manifest, OpenHour, RowKind, row_key,
};
use queen_core::{QueueId, Stamp};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::Notify;

const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// The rows of one queue, as this owner knows them.
pub struct Progress {
    queue: String,
    /// Last committed window and the version of its row; version 0 when there is no row.
    pub committed: (Option<Committed>, u64),
    intent: (Option<Intent>, u64),
    uploads: OpenUploads,
    /// Hour file of the last window's hour was written by this owner.
    hour_written: bool,
    /// An owner before may have written it.
    hour_by_other: bool,
    /// The bucket was seen to hold nothing after the last committed window.
    looked_ahead: bool,
}

fn row<T>(
    found: Option<queen_core::kv::KvRow>,
    read: fn(&[u8]) -> Result<T, queen_core::sink::BadDocument>,
) -> Result<(Option<T>, u64), Stop> {
    match found {
        None => Ok((None, 0)),
        Some(row) => match read(&row.value) {
            Ok(document) => Ok((Some(document), row.version)),
            Err(err) => Err(Stop::failed(format!(
                "{err}: KV row {} was changed by hand or by a newer release; restore it",
                row.key
            ))),
        },
    }
}

/// The hour in whose file a window counts: that of its first record, or of its end when it has none.
/// With other boundaries than hours a window may start before, in an hour whose file is written.
fn counted_in(first: Option<Stamp>, t_end: Stamp) -> u64 {
    hour_of(first.unwrap_or(Stamp(t_end.0.saturating_sub(1)))).0
}

/// How a window is finished.
struct How<'a> {
    /// An earlier owner may have sent some of it.
    redo: bool,
    /// How it waits for a thread.
    kind: Kind,
    /// It was begun before its intent was written.
    ahead: Option<Ahead>,
    /// Told when it is encoded.
    encoded: &'a Notify,
}

impl Progress {
    /// Reads the rows of a queue, under its lease.
    pub async fn load(context: &Context, queue: &str) -> Result<Progress, Stop> {
        let sink = &context.settings.sink;
        let committed = row_key(sink, queue, RowKind::Committed);
        let intent = row_key(sink, queue, RowKind::Intent);
        let uploads = row_key(sink, queue, RowKind::Uploads);
        let mut found = rows(&*context.host, &[&committed, &intent, &uploads]).await.into_iter();
        let committed = row(found.next().flatten(), Committed::from_json)?;
        let intent = row(found.next().flatten(), Intent::from_json)?;
        let uploads = OpenUploads::new(uploads, found.next().flatten());
        uploads.give_up(&*context.bucket).await;
        Ok(Progress {
            queue: queue.to_owned(),
            committed,
            intent,
            uploads,
            hour_written: false,
            hour_by_other: true,
            looked_ahead: false,
        })
    }

    /// Number of the last committed window; 0 before the first.
    pub fn k(&self) -> u64 {
        self.committed.0.as_ref().map_or(0, |committed| committed.k)
    }

    /// The window that an earlier owner began and did not commit.
    pub fn pending(&self) -> Option<&Intent> {
        self.intent.0.as_ref().filter(|intent| intent.k == self.k() + 1)
    }

    /// Stops when the bucket holds a manifest that this broker's rows know nothing of: a restored
    /// backup, or another broker on the same prefix.
    pub async fn look_ahead(&mut self, context: &Context) -> Result<(), Stop> {
        if self.looked_ahead || self.pending().is_some() {
            return Ok(());
        }
        let next = self.k() + 1;
        let key = self.keys(context, &context.settings.prefix).manifest(next);
        if self.get(context, &key).await?.is_some() {
            return Err(self.diverged(&key));
        }
        self.looked_ahead = true;
        Ok(())
    }

    fn diverged(&self, key: &str) -> Stop {
        Stop::Diverged(format!(
            "the bucket is ahead of the broker: {key} exists, but the last window committed here is {}; \
             nothing was written. Another broker writes to this prefix, or this one was restored from \
             a backup: give it a prefix of its own, or restore the newer state",
            self.k()
        ))
    }

    fn keys(&self, context: &Context, prefix: &str) -> QueueKeys {
        QueueKeys::new(prefix, context.tenant, &self.queue)
    }

    async fn get(&self, context: &Context, key: &str) -> Result<Option<Bytes>, Stop> {
        let told = context.tells(&self.queue);
        let call = || context.bucket.get(key, MANIFEST_BYTES_MAX);
        match context.limiter.call("get", told, call).await {
            Ok(found) => Ok(found),
            // A key that may only write cannot tell.
            Err(err) if err.kind == ErrorKind::Forbidden => Ok(None),
            Err(err) => Err(Stop::failed(err.text)),
        }
    }

    /// Writes a document; `ask_first`: unless it is there.
    async fn put(
        &self,
        context: &Context,
        key: &str,
        body: &str,
        ask_first: bool,
    ) -> Result<(), Stop> {
        let sha256 = sha256_hex(body.as_bytes());
        let meta = ObjectMeta { content_type: "application/json", sha256: &sha256 };
        let body = vec![Bytes::copy_from_slice(body.as_bytes())];
        let told = context.tells(&self.queue);
        let put = context.sender(&told).put(key, body, meta, ask_first).await;
        put.map_err(|err| Stop::failed(err.text))
    }

    /// Brings a closed window into the bucket; `ahead`: it, if its encoding has begun. `encoded` is told
    /// when that is over.
    pub async fn commit(
        &mut self,
        context: &Context,
        lease: &Lease,
        window: &Window,
        ahead: Option<Ahead>,
        encoded: &Notify,
    ) -> Result<(), Stop> {
        window_is_final(window, context.host.applied()).map_err(Stop::failed)?;
        self.look_ahead(context).await?;
        let prev = self.committed.0.as_ref().map_or(String::new(), |c| c.manifest_sha256.clone());
        let intent = intent_of(context, &self.queue, window, self.k() + 1, prev);
        self.write_intent(context, lease, intent.clone()).await?;
        let kind = kind_of(window, context.settings.target_bytes);
        let how = How { redo: false, kind, ahead, encoded };
        self.finish(context, lease, intent, how).await
    }

    /// Finishes the window that an earlier owner began.
    pub async fn redo(&mut self, context: &Context, lease: &Lease) -> Result<(), Stop> {
        let Some(intent) = self.pending().cloned() else { return Ok(()) };
        if intent.bucket != context.settings.bucket.bucket {
            return Err(Stop::failed(format!(
                "window {} was begun in bucket {}, but QUEEN_S3_BUCKET is {}; set it back until the window is committed",
                intent.k, intent.bucket, context.settings.bucket.bucket
            )));
        }
        let keys = self.keys(context, &intent.prefix);
        let key = keys.manifest(intent.k);
        if let Some(bytes) = self.get(context, &key).await? {
            let found = Manifest::from_json(&bytes).ok();
            let Some(found) = found else { return Err(self.diverged(&key)) };
            // More windows than this one: nothing is written there, no file of an hour either.
            let next = keys.manifest(intent.k + 1);
            if self.get(context, &next).await?.is_some() {
                return Err(self.diverged(&next));
            }
            self.looked_ahead = intent.prefix == context.settings.prefix;
            if is_of(&found, self.owner(context), &intent) {
                let sha256 = sha256_hex(&bytes);
                return self.point(context, lease, &intent, key, sha256, &found).await;
            }
            // A try of another release that this one could not see when it began the window anew: its
            // objects may be overwritten already, so it is not adopted but written over.
            if !is_of_release(&found, self.owner(context), &intent) {
                return Err(self.diverged(&key));
            }
        }
        let encoder = context.settings.encoder;
        let kind = kind_of_found(&intent, context.settings.target_bytes);
        let how = How { redo: true, kind, ahead: None, encoded: &Notify::new() };
        if intent.encoder == encoder {
            return self.finish(context, lease, intent, how).await;
        }
        // Nothing complete is there, and this release makes other bytes: the same window, anew.
        let writer = encoding_of(&intent)?.writer();
        let intent = Intent { encoder, writer, ..intent };
        self.write_intent(context, lease, intent.clone()).await?;
        self.finish(context, lease, intent, How { redo: false, ..how }).await
    }

    fn owner<'a>(&'a self, context: &'a Context) -> Owner<'a> {
        Owner { sink: &context.settings.sink, tenant: context.tenant, queue: &self.queue }
    }

    async fn write_intent(
        &mut self,
        context: &Context,
        lease: &Lease,
        intent: Intent,
    ) -> Result<(), Stop> {
        context.state(&self.queue, "intent");
        let key = row_key(&context.settings.sink, &self.queue, RowKind::Intent);
        let version = lease.put(&key, &intent.to_json(), self.intent.1).await?;
        self.intent = (Some(intent), version);
        context.crash(CrashPoint::AfterIntent);
        Ok(())
    }

    /// Steps 2 and 3.
    async fn finish(
        &mut self,
        context: &Context,
        lease: &Lease,
        intent: Intent,
        how: How<'_>,
    ) -> Result<(), Stop> {
        context.state(&self.queue, "upload");
        let mut uploaded = match self.is_void(context, &intent).await? {
            true => Uploaded::default(),
            false => self.send(context, lease, &intent, how).await?,
        };
        // Until all is sent.
        let _memory = uploaded.summary.memory.take();
        let lost = self.lost(context, &intent).await?;
        context.crash(CrashPoint::AfterUpload);
        let document = manifest(self.owner(context), &intent, uploaded, lost);
        let json = document.to_json();
        let key = self.keys(context, &intent.prefix).manifest(intent.k);
        self.put(context, &key, &json, false).await?;
        context.crash(CrashPoint::BeforeCommit);
        self.point(context, lease, &intent, key, sha256_hex(json.as_bytes()), &document).await
    }

    /// Whether this node has applied neither the commit of the intent's window nor an intent that
    /// another owner, of a release that makes other bytes, wrote for it.
    fn is_kept(&self, context: &Context, intent: &Intent) -> Result<bool, HostError> {
        let host = &context.host;
        Ok(host.committed(&self.queue)? < intent.k && host.begun(&self.queue)? <= self.intent.1)
    }

    /// Whether the queue was deleted before the intent came, so that nothing pinned its records.
    async fn is_void(&self, context: &Context, intent: &Intent) -> Result<bool, Stop> {
        let (queue, from) = (QueueId(intent.queue_id), intent.log_from);
        if from == intent.log_to {
            return Ok(true);
        }
        let host = Arc::clone(&context.host);
        let from = ScanFrom::Place(Place { segment: from.0, at: from.1 });
        match blocking(&*context.host, move || host.timeline(queue, from, 1)).await {
            Err(HostError::Gone(_)) if self.is_kept(context, intent)? => Ok(true),
            Err(HostError::Gone(_)) => Err(Stop::Fenced),
            Err(err) => Err(err.into()),
            Ok(_) => Ok(false),
        }
    }

    /// What the window lists as lost.
    async fn lost(&self, context: &Context, intent: &Intent) -> Result<Vec<LostRange>, Stop> {
        let (host, queue, k) = (Arc::clone(&context.host), self.queue.clone(), intent.k);
        let lost = blocking(&*context.host, move || host.lost(&queue, k)).await?;
        if self.is_kept(context, intent)? { Ok(lost) } else { Err(Stop::Fenced) }
    }

    /// Brings the data objects into the bucket.
    async fn send(
        &self,
        context: &Context,
        lease: &Lease,
        intent: &Intent,
        how: How<'_>,
    ) -> Result<Uploaded, Stop> {
        let made = self.made(context, intent, how.ahead).await?;
        let job = job_of(context, &self.queue, intent, how.kind)?;
        let told = context.tells(&self.queue);
        let uploader = Uploader {
            sender: context.sender(&told),
            lease,
            open: &self.uploads,
            turns: &context.turns,
            encoded: Some(how.encoded),
            content_type: job.spec.encoding.content_type(),
            multipart_threshold: context.settings.bucket.multipart_threshold,
            ask_first: how.redo,
            kept: &|| self.is_kept(context, intent).unwrap_or(false),
            on_the_way: &|| context.crash(CrashPoint::MidUpload),
        };
        Ok(uploader.window(made, job).await?)
    }

    /// What was encoded before the intent, if it is what would be encoded now: the intent says the
    /// same, and nothing of the window went before it was pinned.
    async fn made(
        &self,
        context: &Context,
        intent: &Intent,
        ahead: Option<Ahead>,
    ) -> Result<Option<Made>, Stop> {
        let Some(ahead) = ahead else { return Ok(None) };
        let made = ahead.made(intent).await;
        let whole = context.host.loss(&self.queue, intent.k)?.is_none();
        let made = made.filter(|_| whole);
        if made.is_some() {
            context.metrics.ahead.fetch_add(1, Ordering::Relaxed);
        }
        Ok(made)
    }

    /// Step 3: moves the pointer.
    async fn point(
        &mut self,
        context: &Context,
        lease: &Lease,
        intent: &Intent,
        manifest_key: String,
        manifest_sha256: String,
        manifest: &Manifest,
    ) -> Result<(), Stop> {
        context.state(&self.queue, "commit");
        let hour = counted_in(manifest.min_ts.map(Stamp), Stamp(intent.t_end));
        if self.committed.0.as_ref().is_some_and(|committed| committed.hour.hour < hour) {
            self.close_hour(context).await?;
        }
        let before = self.committed.0.as_ref();
        let same_hour = before.map(|c| c.hour.clone()).filter(|open| open.hour == hour);
        let first = OpenHour { hour, first_k: intent.k, records: 0, bytes: 0 };
        let mut open = same_hour.unwrap_or(first);
        open.records += manifest.records;
        open.bytes += manifest.bytes;
        let lost: u64 = manifest.lost.iter().map(|range| range.to - range.from + 1).sum();
        let next = Committed {
            k: intent.k,
            t_end: intent.t_end,
            manifest: manifest_key,
            manifest_sha256,
            records: before.map_or(0, |c| c.records) + manifest.records,
            bytes: before.map_or(0, |c| c.bytes) + manifest.bytes,
            records_lost: before.map_or(0, |c| c.records_lost) + lost,
            gaps: before.map_or(0, |c| c.gaps) + manifest.lost.len() as u64,
            queue_id: intent.queue_id,
            log_to: intent.log_to,
            hour: open,
        };
        let key = row_key(&context.settings.sink, &self.queue, RowKind::Committed);
        let version = lease.put(&key, &next.to_json(), self.committed.1).await?;
        self.committed = (Some(next), version);
        (self.hour_written, self.hour_by_other) = (false, false);
        context.crash(CrashPoint::AfterCommit);
        context.committed(&self.queue, self.committed.0.as_ref(), manifest);
        Ok(())
    }

    /// End of the hour whose file is still to be written; `None` when there is none.
    pub fn open_hour_end(&self, context: &Context) -> Option<Stamp> {
        let committed = self.committed.0.as_ref().filter(|_| !self.hour_written)?;
        (context.settings.align == Align::Hour).then(|| hour_end(Stamp(committed.hour.hour)))
    }

    /// Writes the hour file of the last window's hour. Call when no record of the hour can come any
    /// more and all are committed. Whoever writes it writes the same bytes.
    pub async fn close_hour(&mut self, context: &Context) -> Result<(), Stop> {
        if self.open_hour_end(context).is_none() {
            return Ok(());
        }
        let Some(committed) = &self.committed.0 else { return Ok(()) };
        // A fenced owner that wakes up late knows of fewer windows than the hour has, or will have.
        let host = &context.host;
        if host.committed(&self.queue)? != committed.k || host.begun(&self.queue)? > self.intent.1 {
            return Err(Stop::Fenced);
        }
        let hour = Stamp(committed.hour.hour);
        let file = HourFile {
            v: 1,
            tenant: context.tenant.to_string(),
            queue: self.queue.clone(),
            hour: hour_name(hour),
            first_k: committed.hour.first_k,
            last_k: committed.k,
            windows: committed.k + 1 - committed.hour.first_k,
            records: committed.hour.records,
            bytes: committed.hour.bytes,
            complete: true,
        };
        let key = self.keys(context, &context.settings.prefix).hour(hour);
        self.put(context, &key, &file.to_json(), self.hour_by_other).await?;
        self.hour_written = true;
        Ok(())
    }
}
