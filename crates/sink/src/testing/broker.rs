//! A broker in memory: queues with their logs, KV with versions and expiry, a clock that tests move.

mod loss;

use self::loss::SINK;
use super::{Fault, Faults};
use crate::host::{Host, HostError, Loss, Place, QueueInfo, ScanFrom, TimelinePage, TimelineRun};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use queen_core::frame::Frame;
use queen_core::kv::{KvLoss, KvOp, KvOpKind, KvOutcome, KvResult, KvRow};
use queen_core::run::RunHeader;
use queen_core::sink::{Committed, Intent, LossReason, LostRange, RowKind, row_key};
use queen_core::{MessageId, Offset, PartitionId, QueueId, Stamp};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::Instant;

/// 2026-10-24T10:23:54.910988Z
const BEGIN: u64 = 1_792_837_434_910_988;

#[derive(Default)]
struct Log {
    info: Option<QueueInfo>,
    runs: Vec<TimelineRun>,
    bytes: Vec<u8>,
    /// Runs before this one were removed by retention.
    retained: usize,
}

struct World {
    logs: BTreeMap<u32, Log>,
    partitions: HashMap<u64, (u32, Arc<str>, u64)>,
    ids: HashMap<(u32, String), u64>,
    kv: BTreeMap<String, KvRow>,
    version: u64,
    stamp: u64,
    changes: u64,
    /// By queue and window: since when, and the ranges.
    lost: BTreeMap<(String, u64), (Stamp, Vec<LostRange>)>,
    /// Ranges that one window lists.
    ranges_max: usize,
    /// Before the next intent of this window retention takes so many runs of the queue.
    trim_before: Option<(u64, QueueId, usize)>,
}

/// The broker that all owners of a test share.
pub struct SimBroker {
    world: Mutex<World>,
    news: Notify,
    begun: Instant,
}

/// An appended record, as a test remembers it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Appended {
    pub partition: String,
    pub offset: u64,
    pub stamp: u64,
    pub transaction_id: String,
    pub payload: String,
}

impl SimBroker {
    pub fn new() -> Arc<SimBroker> {
        let world = World {
            logs: BTreeMap::new(),
            partitions: HashMap::new(),
            ids: HashMap::new(),
            kv: BTreeMap::new(),
            version: 0,
            stamp: BEGIN,
            changes: 1,
            lost: BTreeMap::new(),
            ranges_max: 10_000,
            trim_before: None,
        };
        Arc::new(SimBroker { world: Mutex::new(world), news: Notify::new(), begun: Instant::now() })
    }

    /// The host, as one owner sees it.
    pub fn host(self: &Arc<Self>, faults: Arc<Faults>) -> Arc<dyn Host> {
        Arc::new(SimHost { broker: self.clone(), faults })
    }

    fn clock(&self) -> u64 {
        BEGIN + self.begun.elapsed().as_micros() as u64
    }

    fn stamp(&self, world: &mut World) -> u64 {
        world.stamp = self.clock().max(world.stamp + 1);
        world.stamp
    }

    /// Makes a queue.
    pub fn create(&self, name: &str) -> QueueId {
        let mut world = self.world.lock();
        let created = Stamp(self.stamp(&mut world));
        let id = QueueId(world.logs.len() as u32 + 1);
        let info = QueueInfo { name: name.into(), id, created, deleted: false };
        world.logs.insert(id.0, Log { info: Some(info), ..Log::default() });
        world.changes += 1;
        drop(world);
        self.news.notify_waiters();
        id
    }

    /// Deletes a queue. What an intent pins is kept, the rest is lost to the sink.
    pub fn delete(&self, id: QueueId) {
        let mut world = self.world.lock();
        self.stamp(&mut world);
        let mut log = world.logs.remove(&id.0).unwrap();
        if let Some(info) = log.info.clone() {
            let pin = world.pin(&info);
            let pinned = |run: &RunHeader| {
                pin.as_ref().is_some_and(|pin| (pin.t_start..pin.t_end).contains(&run.stamp.0))
            };
            let rest: Vec<_> = log.runs.drain(log.retained..).collect();
            log.retained = log.runs.len();
            for run in rest {
                match pinned(&run.header) {
                    true => log.runs.push(run),
                    false => world.take(&info, &run.header, LossReason::Deleted),
                }
            }
            log.info = pin.map(|_| QueueInfo { deleted: true, ..info });
        }
        world.logs.insert(id.0, log);
        world.changes += 1;
        drop(world);
        self.news.notify_waiters();
    }

    /// One push to one queue: (partition, payload) each.
    pub fn push(&self, id: QueueId, items: &[(&str, &str)]) -> Vec<Appended> {
        let mut world = self.world.lock();
        let world = &mut *world;
        let stamp = self.stamp(world);
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (partition, payload) in items {
            groups.entry(partition).or_default().push(payload);
        }
        let mut out = Vec::new();
        for (partition, payloads) in groups {
            let next = world.partitions.len() as u64 + 1;
            let pid = *world.ids.entry((id.0, partition.to_owned())).or_insert(next);
            let row = world.partitions.entry(pid).or_insert((id.0, partition.into(), 0));
            let first = row.2;
            row.2 += payloads.len() as u64;
            let mut frames = Vec::new();
            let mut text = 0;
            for (i, payload) in payloads.iter().enumerate() {
                Frame { payload: payload.as_bytes(), ..Frame::default() }.encode(&mut frames);
                text += 36 + payload.len() as u32;
                let offset = first + i as u64;
                let id = MessageId::mint(Stamp(stamp), PartitionId(pid), Offset(offset));
                out.push(Appended {
                    partition: partition.to_owned(),
                    offset,
                    stamp,
                    transaction_id: id.to_string(),
                    payload: (*payload).to_owned(),
                });
            }
            let header = RunHeader {
                partition: PartitionId(pid),
                first_offset: Offset(first),
                count: payloads.len() as u32,
                stamp: Stamp(stamp),
                frames_len: frames.len() as u32,
                text_bytes: text,
            };
            let log = world.logs.get_mut(&id.0).unwrap();
            let place = Place { segment: 0, at: log.bytes.len() as u64 };
            log.bytes.extend_from_slice(&header.encode(&frames));
            log.bytes.extend_from_slice(&frames);
            log.runs.push(TimelineRun { header, place });
        }
        self.news.notify_waiters();
        out
    }

    /// Retention removes the first `runs` runs, or as many as no pin holds.
    pub fn trim(&self, id: QueueId, runs: usize) {
        let mut world = self.world.lock();
        self.stamp(&mut world);
        let log = &world.logs[&id.0];
        let info = log.info.clone().unwrap();
        let old: Vec<RunHeader> =
            log.runs.iter().skip(log.retained).take(runs).map(|run| run.header).collect();
        let pin = world.pin(&info);
        for run in old {
            if pin.as_ref().is_some_and(|pin| (pin.t_start..pin.t_end).contains(&run.stamp.0)) {
                break;
            }
            world.take(&info, &run, LossReason::Retention);
            world.logs.get_mut(&id.0).unwrap().retained += 1;
        }
        world.changes += 1;
        drop(world);
        self.news.notify_waiters();
    }

    /// Retention removes the first `runs` runs right before the intent of window `k` is applied.
    pub fn trim_before_intent(&self, k: u64, id: QueueId, runs: usize) {
        self.world.lock().trim_before = Some((k, id, runs));
    }

    fn retention_was_first(&self, ops: &[KvOp<'_>]) {
        let intents = ops.iter().filter_map(|op| match &op.kind {
            KvOpKind::Put { value, .. } => Intent::from_json(value.as_bytes()).ok(),
            _ => None,
        });
        let armed = self.world.lock().trim_before;
        for intent in intents {
            if let Some((_, id, runs)) = armed.filter(|(k, ..)| *k == intent.k) {
                self.world.lock().trim_before = None;
                self.trim(id, runs);
            }
        }
    }

    /// Lists a queue that is not there, and of which no window has anything to say yet.
    pub fn list(&self, name: &str) {
        let range = LostRange {
            partition: "p".into(),
            incarnation: 99,
            from: 0,
            to: 0,
            reason: LossReason::Retention,
        };
        let mut world = self.world.lock();
        world.lost.insert((name.to_owned(), u64::MAX - 1), (Stamp::ZERO, vec![range]));
        world.changes += 1;
        drop(world);
        self.news.notify_waiters();
    }

    /// A window lists at most so many ranges.
    pub fn list_at_most(&self, ranges: usize) {
        self.world.lock().ranges_max = ranges;
    }

    /// A KV row's value.
    pub fn row(&self, key: &str) -> Option<String> {
        let world = self.world.lock();
        world.kv.get(key).map(|row| String::from_utf8(row.value.to_vec()).unwrap())
    }

    fn apply(&self, ops: &[KvOp<'_>]) -> KvOutcome {
        self.retention_was_first(ops);
        let mut world = self.world.lock();
        let world = &mut *world;
        let stamp = Stamp(self.stamp(world));
        world.kv.retain(|_, row| row.expires_at.is_none_or(|at| at > stamp));
        let (kv, version) = (world.kv.clone(), world.version);
        let mut results = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let result = apply_one(&mut world.kv, &mut world.version, op, stamp);
            if let (KvResult::Lost { reason, row }, true) = (&result, op.required) {
                let (reason, row) = (*reason, row.clone());
                (world.kv, world.version) = (kv, version);
                return KvOutcome::Precondition { index, reason, row };
            }
            results.push(result);
        }
        world.after_commit();
        KvOutcome::Done(results)
    }
}

fn apply_one(
    kv: &mut BTreeMap<String, KvRow>,
    version: &mut u64,
    op: &KvOp<'_>,
    stamp: Stamp,
) -> KvResult {
    let lost = |row: Option<&KvRow>, expect: u64| {
        let reason = match (row, expect) {
            (Some(_), 0) => KvLoss::Exists,
            (None, _) => KvLoss::Absent,
            _ => KvLoss::Version,
        };
        KvResult::Lost { reason, row: row.cloned() }
    };
    let meets = |row: Option<&KvRow>, expect: Option<u64>| {
        expect.is_none_or(|expect| row.map_or(0, |row| row.version) == expect)
    };
    match &op.kind {
        KvOpKind::Get { key } => KvResult::Row(kv.get(*key).cloned()),
        KvOpKind::GetPrefix { prefix, .. } => {
            let rows = kv.iter().filter(|(key, _)| key.starts_with(prefix));
            let rows = rows.map(|(_, row)| row.clone()).collect();
            KvResult::Rows { rows, missing: Vec::new(), truncated: false }
        }
        KvOpKind::Put { key, value, ttl_seconds, expect } => {
            if !meets(kv.get(*key), *expect) {
                return lost(kv.get(*key), expect.unwrap_or_default());
            }
            *version += 1;
            let row = KvRow {
                key: (*key).to_owned(),
                value: Bytes::copy_from_slice(value.as_bytes()),
                version: *version,
                expires_at: ttl_seconds.map(|ttl| stamp.plus_seconds(ttl)),
                updated_at: stamp,
            };
            kv.insert((*key).to_owned(), row.clone());
            KvResult::Applied(Some(row))
        }
        KvOpKind::Delete { key, expect } => {
            if !meets(kv.get(*key), *expect) {
                return lost(kv.get(*key), expect.unwrap_or_default());
            }
            kv.remove(*key);
            KvResult::Applied(None)
        }
        other => panic!("the sink does not use {other:?}"),
    }
}

struct SimHost {
    broker: Arc<SimBroker>,
    faults: Arc<Faults>,
}

#[async_trait]
impl Host for SimHost {
    fn queues(&self) -> Vec<QueueInfo> {
        let world = self.broker.world.lock();
        let kept = world.logs.values().filter_map(|log| log.info.clone());
        let lost = world.lost.iter().map(|((queue, _), (_, ranges))| QueueInfo {
            name: queue.as_str().into(),
            id: QueueId(ranges[0].incarnation),
            created: Stamp::ZERO,
            deleted: true,
        });
        kept.chain(lost).collect()
    }

    async fn queues_changed(&self, seen: u64) -> u64 {
        loop {
            let news = self.broker.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let now = self.broker.world.lock().changes;
            if now != seen {
                return now;
            }
            news.await;
        }
    }

    async fn kv(&self, ops: &[KvOp<'_>]) -> Result<KvOutcome, HostError> {
        let reads = ops.iter().all(|op| matches!(op.kind, KvOpKind::Get { .. }));
        let fault = if reads { None } else { self.faults.step().await };
        let outcome = self.broker.apply(ops);
        match fault {
            Some(Fault::AnswerLost) => Err(HostError::Unknown("the answer was lost".into())),
            Some(Fault::After | Fault::Late) => {
                self.faults.die().await;
                Ok(outcome)
            }
            _ => Ok(outcome),
        }
    }

    fn applied(&self) -> Stamp {
        Stamp(self.broker.world.lock().stamp)
    }

    fn now(&self) -> Stamp {
        Stamp(self.broker.clock().max(self.broker.world.lock().stamp))
    }

    async fn tick(&self) -> Result<Stamp, HostError> {
        Ok(Stamp(self.broker.stamp(&mut self.broker.world.lock())))
    }

    async fn written(&self, queue: QueueId, after: Stamp) {
        loop {
            let news = self.broker.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let there = match self.broker.world.lock().logs.get(&queue.0) {
                Some(log) => log.runs.last().is_some_and(|run| run.header.stamp > after),
                None => true,
            };
            if there {
                return;
            }
            news.await;
        }
    }

    fn first_retained(&self, queue: QueueId) -> Result<Option<Stamp>, HostError> {
        let world = self.broker.world.lock();
        let log = world.logs.get(&queue.0).filter(|log| log.info.is_some());
        let log = log.ok_or_else(|| HostError::Gone("no such queue".into()))?;
        Ok(log.runs.get(log.retained).map(|run| run.header.stamp))
    }

    fn timeline(
        &self,
        queue: QueueId,
        from: ScanFrom,
        runs_max: usize,
    ) -> Result<TimelinePage, HostError> {
        let world = self.broker.world.lock();
        let log = world.logs.get(&queue.0).filter(|log| log.info.is_some());
        let log = log.ok_or_else(|| HostError::Gone("no such queue".into()))?;
        let after = |run: &&TimelineRun| match from {
            ScanFrom::Stamp(stamp) => run.header.stamp >= stamp,
            ScanFrom::Place(place) => run.place >= place,
        };
        let kept = &log.runs[log.retained..];
        let first = kept.partition_point(|run| !after(&run));
        let runs: Vec<TimelineRun> = kept[first..].iter().take(runs_max).copied().collect();
        let behind =
            |run: &TimelineRun| Place { at: run.place.at + run.header.run_len(), ..run.place };
        let log_end = Place { segment: 0, at: log.bytes.len() as u64 };
        let next = runs.last().map_or(log_end, behind);
        let end = next == log_end;
        let last = runs.last().map_or(Stamp::ZERO, |run| run.header.stamp);
        Ok(TimelinePage { runs, next, end, through: if end { Stamp(world.stamp) } else { last } })
    }

    fn read(&self, queue: QueueId, place: Place, into: &mut [u8]) -> Result<(), HostError> {
        let world = self.broker.world.lock();
        let at = place.at as usize;
        into.copy_from_slice(&world.logs[&queue.0].bytes[at..at + into.len()]);
        Ok(())
    }

    fn partition_names(
        &self,
        _queue: QueueId,
        partitions: &[PartitionId],
    ) -> Result<Vec<Arc<str>>, HostError> {
        let world = self.broker.world.lock();
        Ok(partitions.iter().map(|id| world.partitions[&id.0].1.clone()).collect())
    }

    fn loss(&self, queue: &str, k: u64) -> Result<Option<Loss>, HostError> {
        let world = self.broker.world.lock();
        let mut waiting = world.lost.iter().filter(|((name, _), _)| name == queue);
        let Some(((_, window), (since, ranges))) = waiting.next() else { return Ok(None) };
        let loss = Loss {
            queue: QueueId(ranges[0].incarnation),
            since: *since,
            more: waiting.next().is_some(),
            records: ranges.iter().map(|range| range.to + 1 - range.from).sum(),
        };
        Ok((*window <= k).then_some(loss))
    }

    fn lost(&self, queue: &str, k: u64) -> Result<Vec<LostRange>, HostError> {
        let world = self.broker.world.lock();
        let listed = world.lost.iter().filter(|((name, window), _)| name == queue && *window <= k);
        Ok(listed.flat_map(|(_, (_, ranges))| ranges.clone()).collect())
    }

    fn committed(&self, queue: &str) -> Result<u64, HostError> {
        let key = row_key(SINK, queue, RowKind::Committed);
        let done = self.broker.world.lock().document(&key, Committed::from_json);
        Ok(done.map_or(0, |done| done.k))
    }

    fn begun(&self, queue: &str) -> Result<u64, HostError> {
        let row = row_key(SINK, queue, RowKind::Intent);
        Ok(self.broker.world.lock().kv.get(&row).map_or(0, |row| row.version))
    }

    fn decrypt(
        &self,
        _queue: QueueId,
        _partition: &str,
        _envelope: &[u8],
        _into: &mut Vec<u8>,
    ) -> Result<(), String> {
        Err("is encrypted, and the double has no key".to_owned())
    }
}
