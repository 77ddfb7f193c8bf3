//! Five ways to break the commit protocol, each done around the sink and not in it.
//!
//! Owns: what a broken sink would send and see in place of the real one. Leaves to others: finding
//! it out (`verdict`, `fates`).

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use queen_core::kv::{KvLoss, KvOp, KvOpKind, KvOutcome, KvResult, KvRow};
use queen_core::sink::{Intent, LostRange, Start};
use queen_core::{PartitionId, QueueId, Stamp};
use queen_sink::bucket::{Bucket, BucketError, Head, ObjectMeta, Parts};
use queen_sink::host::{Host, HostError, LogBytes, Loss, QueueInfo, ScanFrom, TimelinePage};
use queen_sink::settings::Settings;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::twin::key_of;

/// A way to break the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Rows are written whoever holds the lease.
    NoLeaseCheck,
    /// An intent pins nothing.
    IntentNotPinned,
    /// The pointer moves before the manifest is sent.
    PointerBeforeManifest,
    /// Where a copy begins is known to the process that decided it, and written nowhere.
    StartInMemory,
    /// A redo takes today's settings in place of the intent's.
    RedoWithTodaysSettings,
}

impl Mutation {
    /// All.
    pub const ALL: [Mutation; 5] = [
        Mutation::NoLeaseCheck,
        Mutation::IntentNotPinned,
        Mutation::PointerBeforeManifest,
        Mutation::StartInMemory,
        Mutation::RedoWithTodaysSettings,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::NoLeaseCheck => "no-lease-check",
            Mutation::IntentNotPinned => "intent-not-pinned",
            Mutation::PointerBeforeManifest => "pointer-before-manifest",
            Mutation::StartInMemory => "start-in-memory",
            Mutation::RedoWithTodaysSettings => "redo-with-todays-settings",
        }
    }

    /// Undoes [`Mutation::name`].
    pub fn from_name(name: &str) -> Option<Mutation> {
        Mutation::ALL.into_iter().find(|mutation| mutation.name() == name)
    }

    /// Puts the mutation between one owner's sink and its line. `starts` takes the first start that
    /// any owner decided, by row.
    pub fn around(
        self,
        host: Arc<dyn Host>,
        bucket: Arc<dyn Bucket>,
        today: &Settings,
        starts: &Starts,
    ) -> (Arc<dyn Host>, Arc<dyn Bucket>) {
        let held: Held = Arc::default();
        let mutant = MutantHost {
            mutation: self,
            inner: host,
            bucket: bucket.clone(),
            held: held.clone(),
            today: today.clone(),
            rows: Mutex::default(),
            starts: starts.clone(),
        };
        let bucket: Arc<dyn Bucket> = match self {
            Mutation::PointerBeforeManifest => Arc::new(MutantBucket { inner: bucket, held }),
            _ => bucket,
        };
        (Arc::new(mutant), bucket)
    }
}

/// First values of rows that say where a copy begins.
pub type Starts = Arc<Mutex<BTreeMap<String, String>>>;

/// Manifests that wait for the pointer: key, bytes, SHA-256.
type Held = Arc<Mutex<Vec<(String, Bytes, String)>>>;

struct MutantHost {
    mutation: Mutation,
    inner: Arc<dyn Host>,
    bucket: Arc<dyn Bucket>,
    held: Held,
    today: Settings,
    rows: Mutex<BTreeMap<String, (u64, String)>>,
    starts: Starts,
}

fn is(op: &KvOp<'_>, word: &str) -> bool {
    key_of(op).rsplit_once(':').is_some_and(|(_, last)| last == word)
}

impl MutantHost {
    async fn without_lease(&self, ops: &[KvOp<'_>]) -> Result<KvOutcome, HostError> {
        let Some((first, rest)) = ops
            .split_first()
            .filter(|(first, rest)| is(first, "lease") && first.required && !rest.is_empty())
        else {
            return self.inner.kv(ops).await;
        };
        debug_assert!(matches!(first.kind, KvOpKind::Put { .. }));
        Ok(match self.inner.kv(rest).await? {
            KvOutcome::Done(mut results) => {
                results.insert(0, KvResult::Applied(None));
                KvOutcome::Done(results)
            }
            KvOutcome::Precondition { index, reason, row } => {
                KvOutcome::Precondition { index: index + 1, reason, row }
            }
        })
    }

    fn remembered(&self, op: &KvOp<'_>) -> KvResult {
        let mut rows = self.rows.lock();
        let key = key_of(op);
        if let KvOpKind::Put { value, expect, .. } = op.kind {
            let version = rows.get(key).map_or(0, |(version, _)| *version);
            if expect.is_some_and(|expect| expect != version) {
                return KvResult::Lost { reason: KvLoss::Version, row: None };
            }
            rows.insert(key.to_owned(), (version + 1, value.to_owned()));
            // Stamp 0: the start is still being looked up.
            if Start::from_json(value.as_bytes()).is_ok_and(|start| start.stamp > 0) {
                self.starts.lock().entry(key.to_owned()).or_insert_with(|| value.to_owned());
            }
        }
        let row = rows.get(key).map(|(version, value)| KvRow {
            key: key.to_owned(),
            value: Bytes::copy_from_slice(value.as_bytes()),
            version: *version,
            expires_at: None,
            updated_at: Stamp::ZERO,
        });
        match op.kind {
            KvOpKind::Get { .. } => KvResult::Row(row),
            _ => KvResult::Applied(row),
        }
    }

    /// An intent as it would be with the settings of this owner.
    fn of_today(&self, row: &mut KvRow) {
        let Ok(mut intent) = Intent::from_json(&row.value) else { return };
        intent.format = self.today.encoding.format().to_owned();
        intent.compression = self.today.encoding.compression().to_owned();
        intent.level = self.today.encoding.level();
        intent.wrap = self.today.wrap;
        intent.layout = self.today.layout.word().to_owned();
        row.value = intent.to_json().into();
    }
}

#[async_trait]
impl Host for MutantHost {
    async fn kv(&self, ops: &[KvOp<'_>]) -> Result<KvOutcome, HostError> {
        match self.mutation {
            Mutation::NoLeaseCheck => self.without_lease(ops).await,
            Mutation::StartInMemory if ops.iter().all(|op| is(op, "start") || is(op, "on")) => {
                Ok(KvOutcome::Done(ops.iter().map(|op| self.remembered(op)).collect()))
            }
            Mutation::PointerBeforeManifest => {
                let outcome = self.inner.kv(ops).await?;
                if ops.iter().any(|op| is(op, "committed") && op.required) {
                    let held = std::mem::take(&mut *self.held.lock());
                    for (key, bytes, sha256) in held {
                        let meta = ObjectMeta { content_type: "application/json", sha256: &sha256 };
                        let _ = self.bucket.put(&key, vec![bytes], meta).await;
                    }
                }
                Ok(outcome)
            }
            Mutation::RedoWithTodaysSettings => {
                let mut outcome = self.inner.kv(ops).await?;
                if let KvOutcome::Done(results) = &mut outcome {
                    for (op, result) in ops.iter().zip(results) {
                        if let (true, KvResult::Row(Some(row))) = (is(op, "intent"), result) {
                            self.of_today(row);
                        }
                    }
                }
                Ok(outcome)
            }
            _ => self.inner.kv(ops).await,
        }
    }

    fn queues(&self) -> Vec<QueueInfo> {
        self.inner.queues()
    }

    fn queue(&self, name: &str) -> Option<QueueInfo> {
        self.inner.queue(name)
    }

    async fn queues_changed(&self, seen: u64) -> u64 {
        self.inner.queues_changed(seen).await
    }

    fn applied(&self) -> Stamp {
        self.inner.applied()
    }

    fn now(&self) -> Stamp {
        self.inner.now()
    }

    async fn tick(&self) -> Result<Stamp, HostError> {
        self.inner.tick().await
    }

    async fn written(&self, queue: QueueId, after: Stamp) {
        self.inner.written(queue, after).await;
    }

    fn first_retained(&self, queue: QueueId) -> Result<Option<Stamp>, HostError> {
        self.inner.first_retained(queue)
    }

    fn timeline(
        &self,
        queue: QueueId,
        from: ScanFrom,
        runs_max: usize,
    ) -> Result<TimelinePage, HostError> {
        self.inner.timeline(queue, from, runs_max)
    }

    fn log(&self, queue: QueueId) -> Box<dyn LogBytes + '_> {
        self.inner.log(queue)
    }

    fn partition_names(
        &self,
        queue: QueueId,
        partitions: &[PartitionId],
    ) -> Result<Vec<Arc<str>>, HostError> {
        self.inner.partition_names(queue, partitions)
    }

    fn loss(&self, queue: &str, k: u64) -> Result<Option<Loss>, HostError> {
        self.inner.loss(queue, k)
    }

    fn lost(&self, queue: &str, k: u64) -> Result<Vec<LostRange>, HostError> {
        self.inner.lost(queue, k)
    }

    fn committed(&self, queue: &str) -> Result<u64, HostError> {
        self.inner.committed(queue)
    }

    fn begun(&self, queue: &str) -> Result<u64, HostError> {
        self.inner.begun(queue)
    }

    fn decrypt(
        &self,
        queue: QueueId,
        partition: &str,
        envelope: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), String> {
        self.inner.decrypt(queue, partition, envelope, into)
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }

    fn threaded(&self) -> bool {
        self.inner.threaded()
    }
}

struct MutantBucket {
    inner: Arc<dyn Bucket>,
    held: Held,
}

#[async_trait]
impl Bucket for MutantBucket {
    async fn put(
        &self,
        key: &str,
        body: Vec<Bytes>,
        meta: ObjectMeta<'_>,
    ) -> Result<(), BucketError> {
        if key.contains("/windows/") {
            let held = (key.to_owned(), Bytes::from(body.concat()), meta.sha256.to_owned());
            self.held.lock().push(held);
            return Ok(());
        }
        self.inner.put(key, body, meta).await
    }

    async fn get(&self, key: &str, bytes_max: u64) -> Result<Option<Bytes>, BucketError> {
        self.inner.get(key, bytes_max).await
    }

    async fn head(&self, key: &str) -> Result<Option<Head>, BucketError> {
        self.inner.head(key).await
    }

    async fn begin(&self, key: &str, meta: ObjectMeta<'_>) -> Result<Box<dyn Parts>, BucketError> {
        self.inner.begin(key, meta).await
    }

    async fn abort(&self, key: &str, id: &str) -> Result<(), BucketError> {
        self.inner.abort(key, id).await
    }
}
