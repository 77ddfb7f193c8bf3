//! The broker, as the sink sees it: the `Host` trait over `Broker`.
//!
//! Owns: translating the sink's questions into look-ups of rows and reads of queue logs. Leaves to
//! others: what the sink does with the answers (`queen-sink`), every rule (`queen-state`).
//!
//! Rows are looked at under the store's read lock, a few at a time: whoever applies the log waits for
//! it. Files are read outside of it.

#[cfg(feature = "planted-bugs")]
mod planted;
mod timeline;

use async_trait::async_trait;
use queen_broker::{Broker, Class, View};
use queen_core::command::{Command, KvBatch, Tick};
use queen_core::kv::{KvOp, KvOutcome};
use queen_core::reply::{Reply, Ticked};
use queen_core::row::{
    LastStampRow, PartitionByIdRow, QueueNameRow, QueueRow, Row, SegmentRow, key,
};
use queen_core::sink::LostRange;
use queen_core::table::Table;
use queen_core::{Code, Error, PartitionId, QueueId, Stamp, TenantId};
use queen_sink::host::{Host, HostError, LogBytes, Loss, QueueInfo, ScanFrom, TimelinePage};
use queen_state::lost::{self, Page, Waiting};
use queen_state::{StorageError, Tables, pin};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Rows looked at under one lock: some that come from the disk take longer than a push may wait.
const PAGE: usize = 32;

/// The broker, for the sink of the default tenant.
pub struct SinkHost {
    broker: Broker,
    /// Name of the sink: pins and loss are its own.
    sink: String,
    /// Newest applied stamp handed out: what [`Host::applied`] gives when the state cannot be read.
    applied: AtomicU64,
    /// Names of queues with encrypted payloads; an incarnation never changes its name.
    names: Mutex<HashMap<QueueId, Arc<str>>>,
}

/// Names of queues that are remembered.
const NAMES_MAX: usize = 4096;

impl SinkHost {
    /// Over a running broker, for the sink of this name.
    pub fn new(broker: Broker, sink: &str) -> SinkHost {
        let (sink, applied) = (sink.to_owned(), AtomicU64::new(0));
        SinkHost { broker, sink, applied, names: Mutex::default() }
    }

    /// The name of a queue, also of a deleted one whose log is kept.
    fn name(&self, queue: QueueId) -> Result<Arc<str>, String> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = names.get(&queue) {
            return Ok(name.clone());
        }
        let name = self.broker.queue_name(queue);
        let name: Arc<str> = name.ok_or("belongs to a queue that is gone")?.into();
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(queue, name.clone());
        Ok(name)
    }

    fn look<T>(
        &self,
        look: impl FnOnce(&View<'_>) -> Result<T, StorageError>,
    ) -> Result<T, HostError> {
        self.broker.read(look).map_err(|error| HostError::Broken(error.to_string()))
    }

    async fn submit(&self, command: &Command<'_>) -> Result<Reply, HostError> {
        self.broker.submit(Class::Settle, command).await.map_err(refusal)
    }

    /// Whether the sink may read a queue's log: it is live, or the sink has pinned a part of it.
    fn is_readable(&self, queue: QueueId) -> Result<bool, HostError> {
        self.look(|view| match row::<QueueRow>(view, &key::queue(queue))? {
            Some(QueueRow { deleted: None, .. }) => Ok(true),
            Some(_) => Ok(pin::pin_of(queue, &self.sink, view)?.is_some()),
            None => Ok(false),
        })
    }

    /// The queues of which the sink has loss to list.
    fn lossy(&self) -> Vec<QueueInfo> {
        let info = |(name, id): (String, QueueId)| QueueInfo {
            name: Arc::from(name),
            id,
            created: Stamp::ZERO,
            deleted: true,
        };
        let page =
            |view: &View<'_>, from| lost::queues(view, TenantId::DEFAULT, &self.sink, from, PAGE);
        let found = self.pages(page).unwrap_or_else(|error| {
            tracing::error!(%error, "the sink cannot list the loss");
            Vec::new()
        });
        found.into_iter().map(info).collect()
    }

    /// All pages of a listing, the lock given back after each.
    fn pages<T>(
        &self,
        page: impl Fn(&View<'_>, Option<Vec<u8>>) -> Result<Page<T>, StorageError>,
    ) -> Result<Vec<T>, HostError> {
        let (mut all, mut from) = (Vec::new(), None);
        loop {
            let Page { found, next } = self.look(|view| page(view, from.take()))?;
            all.extend(found);
            match next {
                Some(next) => from = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Stamp of the newest record of a queue; `None` when the queue is deleted or unknown.
    fn newest(&self, queue: QueueId) -> Result<Option<Stamp>, HostError> {
        self.look(|view| {
            let known = row::<QueueRow>(view, &key::queue(queue))?;
            let Some(known) = known.filter(|known| known.deleted.is_none()) else {
                return Ok(None);
            };
            let last = row::<SegmentRow>(view, &key::segment(queue, known.last_segment))?;
            Ok(Some(last.map_or(Stamp::ZERO, |segment| segment.last)))
        })
    }
}

/// What a failed command means to the sink.
fn refusal(error: Error) -> HostError {
    match error.code {
        Code::OutcomeUnknown | Code::Timeout => HostError::Unknown(error.to_string()),
        _ => HostError::Retry(error.to_string()),
    }
}

/// Reads one row.
fn row<R: Row>(view: &View<'_>, key: &[u8]) -> Result<Option<R>, StorageError> {
    let bytes = view.get(R::TABLE, key)?;
    bytes.map(|bytes| decode(&bytes)).transpose()
}

fn decode<R: Row>(bytes: &[u8]) -> Result<R, StorageError> {
    R::decode(bytes).map_err(|bad| StorageError(bad.to_string()))
}

#[async_trait]
impl Host for SinkHost {
    fn queues(&self) -> Vec<QueueInfo> {
        let page = |view: &View<'_>, from: Option<Vec<u8>>| {
            let rows = view.scan(Table::Queue, &from.unwrap_or_default(), &[u8::MAX; 5], PAGE)?;
            let infos = rows.iter().map(|(key, value)| self.shown(view, key, value));
            let found = infos.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
            let last = rows.last().filter(|_| rows.len() == PAGE);
            Ok(Page { found, next: last.map(|(key, _)| [key, &[0][..]].concat()) })
        };
        match self.pages(page) {
            Ok(mut found) => {
                found.extend(self.lossy());
                found
            }
            Err(error) => {
                tracing::error!(%error, "the sink cannot list the queues");
                Vec::new()
            }
        }
    }

    fn queue(&self, name: &str) -> Option<QueueInfo> {
        let found = self.look(|view| {
            let named = key::queue_name(TenantId::DEFAULT, name);
            let Some(QueueNameRow(id)) = row(view, &named)? else { return Ok(None) };
            let key = key::queue(id);
            let Some(bytes) = view.get(Table::Queue, &key)? else { return Ok(None) };
            info(&key, &bytes)
        });
        found.unwrap_or_else(|error| {
            tracing::error!(%error, queue = name, "the sink cannot look at a queue");
            None
        })
    }

    async fn queues_changed(&self, seen: u64) -> u64 {
        self.broker.following().queues_changed(seen).await
    }

    async fn kv(&self, ops: &[KvOp<'_>]) -> Result<KvOutcome, HostError> {
        #[cfg(feature = "planted-bugs")]
        if let Some(commit) = planted::unfenced(ops) {
            tokio::time::sleep(planted::LATE).await;
            return Box::pin(self.kv(&[commit])).await.map(planted::answered);
        }
        let batch = KvBatch { tenant: TenantId::DEFAULT, ops: ops.to_vec() };
        match self.submit(&Command::Kv(batch)).await? {
            Reply::Kv(outcome) => Ok(outcome),
            other => Err(HostError::Broken(format!("a KV batch was answered with {other:?}"))),
        }
    }

    fn applied(&self) -> Stamp {
        let read = self.look(|view| row::<LastStampRow>(view, key::META_LAST_STAMP));
        match read {
            Ok(stamp) => {
                let stamp = stamp.map_or(0, |row| row.0.0);
                Stamp(self.applied.fetch_max(stamp, Ordering::AcqRel).max(stamp))
            }
            Err(_) => Stamp(self.applied.load(Ordering::Acquire)),
        }
    }

    fn now(&self) -> Stamp {
        self.broker.now().max(self.applied())
    }

    async fn tick(&self) -> Result<Stamp, HostError> {
        match self.submit(&Command::Tick(Tick::default())).await? {
            Reply::Ticked(Ticked { stamp, .. }) => Ok(stamp),
            other => Err(HostError::Broken(format!("a tick was answered with {other:?}"))),
        }
    }

    async fn written(&self, queue: QueueId, after: Stamp) {
        loop {
            let heard = self.broker.following().written(queue);
            match self.newest(queue) {
                Ok(Some(newest)) if newest <= after => heard.await,
                // A queue that cannot be read is looked at by the caller, who can say why.
                _ => return,
            }
        }
    }

    fn first_retained(&self, queue: QueueId) -> Result<Option<Stamp>, HostError> {
        timeline::first_retained(&self.broker, queue)
    }

    fn timeline(
        &self,
        queue: QueueId,
        from: ScanFrom,
        runs_max: usize,
    ) -> Result<TimelinePage, HostError> {
        // Read first: a queue that is there after it has no stamp of its deletion below it, so that
        // no window reaches into the queue that is made anew.
        let applied = self.applied();
        if !self.is_readable(queue)? {
            return Err(HostError::Gone(format!("queue {queue} is deleted")));
        }
        timeline::scan(&self.broker, queue, from, runs_max, applied)
    }

    fn log(&self, queue: QueueId) -> Box<dyn LogBytes + '_> {
        Box::new(timeline::Reader::new(&self.broker, queue))
    }

    fn partition_names(
        &self,
        _queue: QueueId,
        partitions: &[PartitionId],
    ) -> Result<Vec<Arc<str>>, HostError> {
        let mut names = Vec::with_capacity(partitions.len());
        for page in partitions.chunks(PAGE) {
            let found = self.look(|view| {
                let name =
                    |id: &PartitionId| row::<PartitionByIdRow>(view, &key::partition_by_id(*id));
                page.iter().map(name).collect::<Result<Vec<_>, _>>()
            })?;
            for (id, row) in page.iter().zip(found) {
                let row = row.ok_or_else(|| HostError::Gone(format!("partition {id} is gone")))?;
                names.push(Arc::from(row.name));
            }
        }
        Ok(names)
    }

    fn loss(&self, queue: &str, k: u64) -> Result<Option<Loss>, HostError> {
        let found =
            self.look(|view| lost::waiting(view, TenantId::DEFAULT, &self.sink, queue, k))?;
        Ok(found.map(|Waiting { queue, since, more, records, .. }| Loss {
            queue,
            since,
            more,
            records,
        }))
    }

    fn lost(&self, queue: &str, k: u64) -> Result<Vec<LostRange>, HostError> {
        self.pages(|view, from| {
            lost::ranges_from(view, TenantId::DEFAULT, &self.sink, (queue, k), from, PAGE)
        })
    }

    fn committed(&self, queue: &str) -> Result<u64, HostError> {
        let now = self.applied();
        self.look(|view| lost::committed(view, TenantId::DEFAULT, &self.sink, queue, now))
    }

    fn begun(&self, queue: &str) -> Result<u64, HostError> {
        let now = self.applied();
        self.look(|view| lost::begun(view, TenantId::DEFAULT, &self.sink, queue, now))
    }

    fn decrypt(
        &self,
        queue: QueueId,
        partition: &str,
        envelope: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), String> {
        let name = self.name(queue)?;
        let opened = self.broker.open_payload(TenantId::DEFAULT, &name, partition, envelope, into);
        opened.map_err(|why| why.to_string())
    }
}

impl SinkHost {
    /// A queue as the sink sees it; `None` when it is another tenant's, or deleted and not pinned.
    fn shown(
        &self,
        view: &View<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<QueueInfo>, StorageError> {
        let Some(info) = info(key, value)? else { return Ok(None) };
        let hidden = info.deleted && pin::pin_of(info.id, &self.sink, view)?.is_none();
        Ok((!hidden).then_some(info))
    }
}

/// A queue of the sink's tenant; `None` for another's.
fn info(key: &[u8], value: &[u8]) -> Result<Option<QueueInfo>, StorageError> {
    let row: QueueRow = decode(value)?;
    let id = key::queue_of(key).ok_or_else(|| StorageError("a queue key is too short".into()))?;
    Ok((row.tenant == TenantId::DEFAULT).then(|| QueueInfo {
        name: Arc::from(row.name),
        id,
        created: row.created,
        deleted: row.deleted.is_some(),
    }))
}

#[cfg(test)]
#[path = "sink_host_tests.rs"]
mod tests;
