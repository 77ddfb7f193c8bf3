//! The sink's requests, put on a line.
//!
//! Owns: what each call of `Host` and `Bucket` does when it arrives. Leaves to others: whether and
//! when it arrives (`line`). Reads of the node's own state are no requests: they are answered at
//! once.

use super::line::{Call, Line, Sent};
use super::{SimStore, reading};
use async_trait::async_trait;
use bytes::Bytes;
use queen_core::command::{Command, KvBatch, Tick};
use queen_core::kv::{KvOp, KvOpKind, KvOutcome};
use queen_core::sink::LostRange;
use queen_core::{PartitionId, QueueId, Stamp, TenantId};
use queen_sink::bucket::{Bucket, BucketError, ErrorKind, Head, ObjectMeta, Parts};
use queen_sink::host::{Host, HostError, LogBytes, Loss, Place, QueueInfo, ScanFrom, TimelinePage};
use std::sync::Arc;

pub(super) struct OwnerHost(pub(super) Line);

#[async_trait]
impl Host for OwnerHost {
    fn queues(&self) -> Vec<QueueInfo> {
        self.0.broker.look(|store| reading::queues(store).unwrap())
    }

    fn queue(&self, name: &str) -> Option<QueueInfo> {
        self.0.broker.queue(name)
    }

    async fn queues_changed(&self, seen: u64) -> u64 {
        let broker = &self.0.broker;
        let now = broker.wait(|| Some(broker.changes()).filter(|now| *now != seen)).await;
        self.0.gate().await;
        now
    }

    async fn kv(&self, ops: &[KvOp<'_>]) -> Result<KvOutcome, HostError> {
        let reads = ops.iter().all(|op| matches!(op.kind, KvOpKind::Get { .. }));
        let key = ops.last().map(key_of).unwrap_or_default();
        let call = Call { op: if reads { "kv_read" } else { "kv" }, key };
        let batch = KvBatch { tenant: TenantId::DEFAULT, ops: ops.to_vec() };
        let bytes = Command::Kv(batch).encode();
        let Line { broker, fates, owner, .. } = self.0.clone();
        let effect = move || {
            let Ok(Command::Kv(batch)) = Command::decode(&bytes) else { unreachable!() };
            let outcome = broker.kv(&batch.ops);
            fates.applied(owner, &batch.ops, &outcome);
            outcome
        };
        answered(self.0.send(call, effect).await)
    }

    fn applied(&self) -> Stamp {
        self.0.broker.applied()
    }

    fn now(&self) -> Stamp {
        self.0.broker.now()
    }

    async fn tick(&self) -> Result<Stamp, HostError> {
        let broker = self.0.broker.clone();
        let call = Call { op: "tick", key: "" };
        answered(self.0.send(call, move || broker.tick_on(Tick::default())).await)
    }

    async fn written(&self, queue: QueueId, after: Stamp) {
        let broker = &self.0.broker;
        let newest = || broker.look(|store| reading::newest(store, queue).unwrap());
        let news = || newest().is_none_or(|newest| newest > after).then_some(());
        broker.wait(news).await;
        self.0.gate().await;
    }

    fn first_retained(&self, queue: QueueId) -> Result<Option<Stamp>, HostError> {
        self.0.broker.look(|store| reading::first_retained(store, queue))
    }

    fn timeline(
        &self,
        queue: QueueId,
        from: ScanFrom,
        runs_max: usize,
    ) -> Result<TimelinePage, HostError> {
        self.0.broker.look(|store| reading::timeline(store, queue, from, runs_max))
    }

    fn log(&self, queue: QueueId) -> Box<dyn LogBytes + '_> {
        Box::new(move |place: Place, into: &mut [u8]| {
            self.0.broker.look(|store| reading::read(store, queue, place, into))
        })
    }

    fn partition_names(
        &self,
        _queue: QueueId,
        partitions: &[PartitionId],
    ) -> Result<Vec<Arc<str>>, HostError> {
        self.0.broker.look(|store| reading::partition_names(store, partitions))
    }

    fn loss(&self, queue: &str, k: u64) -> Result<Option<Loss>, HostError> {
        self.0.broker.look(|store| reading::loss(store, queue, k))
    }

    fn lost(&self, queue: &str, k: u64) -> Result<Vec<LostRange>, HostError> {
        self.0.broker.look(|store| reading::ranges(store, queue, k))
    }

    fn committed(&self, queue: &str) -> Result<u64, HostError> {
        self.0.broker.look(|store| reading::committed(store, queue))
    }

    fn begun(&self, queue: &str) -> Result<u64, HostError> {
        self.0.broker.look(|store| reading::begun(store, queue))
    }

    fn decrypt(
        &self,
        queue: QueueId,
        partition: &str,
        envelope: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), String> {
        self.0.broker.open(queue, partition, envelope, into)
    }

    fn random(&self) -> u64 {
        self.0.fates.random()
    }

    fn threaded(&self) -> bool {
        false
    }
}

fn answered<T>(sent: Sent<T>) -> Result<T, HostError> {
    match sent {
        Sent::Answered(answer) => Ok(answer),
        Sent::Never => Err(HostError::Retry("no leader".to_owned())),
        Sent::Unknown => Err(HostError::Unknown("the answer was lost".to_owned())),
    }
}

/// The key of an operation of the kinds that the sink uses.
pub fn key_of<'a>(op: &KvOp<'a>) -> &'a str {
    match &op.kind {
        KvOpKind::Get { key } | KvOpKind::Put { key, .. } | KvOpKind::Delete { key, .. } => key,
        KvOpKind::GetPrefix { prefix, .. } => prefix,
        other => panic!("the sink does not use {other:?}"),
    }
}

pub(super) struct OwnerBucket(pub(super) Line);

impl OwnerBucket {
    async fn request<T: Send + 'static>(
        &self,
        op: &'static str,
        key: &str,
        mut effect: impl FnMut(&SimStore) -> T + Send + 'static,
    ) -> Result<T, BucketError> {
        let store = self.0.store.clone();
        let sent = self.0.send(Call { op, key }, move || {
            store.up()?;
            Ok(effect(&store))
        });
        let unreachable = |text: &str| BucketError {
            kind: ErrorKind::Unreachable,
            text: text.to_owned(),
            retry_after: None,
        };
        match sent.await {
            Sent::Answered(answer) => answer,
            Sent::Never => Err(unreachable("503")),
            Sent::Unknown => Err(unreachable("the answer was lost")),
        }
    }
}

#[async_trait]
impl Bucket for OwnerBucket {
    async fn put(
        &self,
        key: &str,
        body: Vec<Bytes>,
        meta: ObjectMeta<'_>,
    ) -> Result<(), BucketError> {
        let (bytes, sha256) = (Bytes::from(body.concat()), meta.sha256.to_owned());
        let name = key.to_owned();
        let effect = move |store: &SimStore| store.put(&name, bytes.clone(), &sha256);
        self.request("put", key, effect).await
    }

    async fn get(&self, key: &str, _bytes_max: u64) -> Result<Option<Bytes>, BucketError> {
        let name = key.to_owned();
        let found = self.request("get", key, move |store| store.get(&name)).await?;
        Ok(found.map(|(bytes, _)| bytes))
    }

    async fn head(&self, key: &str) -> Result<Option<Head>, BucketError> {
        let name = key.to_owned();
        let found = self.request("head", key, move |store| store.get(&name)).await?;
        Ok(found.map(|(bytes, sha256)| Head { bytes: bytes.len() as u64, sha256: Some(sha256) }))
    }

    async fn begin(&self, key: &str, meta: ObjectMeta<'_>) -> Result<Box<dyn Parts>, BucketError> {
        let upload = self.request("begin", key, SimStore::begin).await?;
        let bucket = OwnerBucket(self.0.clone());
        let (key, sha256) = (key.to_owned(), meta.sha256.to_owned());
        Ok(Box::new(OwnerParts { bucket, upload, key, sha256 }))
    }

    async fn abort(&self, key: &str, id: &str) -> Result<(), BucketError> {
        let upload = id.parse().unwrap_or_default();
        self.request("abort", key, move |store| store.abort(upload)).await
    }
}

struct OwnerParts {
    bucket: OwnerBucket,
    upload: u64,
    key: String,
    sha256: String,
}

#[async_trait]
impl Parts for OwnerParts {
    async fn put(&self, number: usize, body: Bytes) -> Result<(), BucketError> {
        let upload = self.upload;
        let effect = move |store: &SimStore| store.part(upload, number, body.clone());
        self.bucket.request("part", &self.key, effect).await
    }

    async fn complete(&self, count: usize) -> Result<(), BucketError> {
        let (upload, key, sha256) = (self.upload, self.key.clone(), self.sha256.clone());
        let effect = move |store: &SimStore| store.complete(upload, count, &key, &sha256);
        match self.bucket.request("complete", &self.key, effect).await? {
            true => Ok(()),
            false => Err(BucketError {
                kind: ErrorKind::UploadGone,
                text: "the upload or a part of it is missing".to_owned(),
                retry_after: None,
            }),
        }
    }

    fn id(&self) -> String {
        self.upload.to_string()
    }
}
