//! One step: everything that a command may touch while it is applied.
//!
//! Owns: typed access to rows, the caches that spare decoding, the next ids. Leaves to others: what
//! the commands do. The caches ([`Memo`]) are derived: dropping them changes no outcome.

use crate::tables::{Row as Entry, StorageError};
use crate::{Reading, Storage};
use bytes::Bytes;
use queen_core::reply::Event;
use queen_core::row::{
    NextIdsRow, PartitionByIdRow, PartitionRow, QueueNameRow, QueueRow, Row, SMALL_ROW_BYTES, key,
};
use queen_core::table::Table;
use queen_core::{PartitionId, QueueId, Stamp, TenantId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A queue incarnation and its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its id.
    pub id: QueueId,
    /// Its row.
    pub row: QueueRow,
}

/// A partition incarnation, its name and its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its queue.
    pub queue: QueueId,
    /// Its name.
    pub name: Box<str>,
    /// Its row.
    pub row: PartitionRow,
}

/// Decoded rows that the next command is likely to need again.
#[derive(Debug, Default)]
pub struct Memo {
    /// Live queues by name. Bounded by [`QUEUES_KEPT`].
    names: BTreeMap<TenantId, BTreeMap<Box<str>, QueueId>>,
    queues: BTreeMap<QueueId, Arc<Queue>>,
    /// The newest segments; see [`crate::segment`].
    pub(crate) newest: crate::segment::Newest,
    /// Before this stamp there is no `LeaseExpiry` row. Only a bound: there may be none there either.
    pub(crate) no_lease_ends_before: Stamp,
    /// The next ids, once read.
    ids: Option<NextIdsRow>,
}

/// Queues of which the decoded row is kept.
const QUEUES_KEPT: usize = 4096;

impl Memo {
    /// Forgets what is known of a queue: its row, name or log changed.
    pub fn forget(&mut self, queue: QueueId) {
        self.newest.forget(queue);
        if let Some(queue) = self.queues.remove(&queue)
            && let Some(names) = self.names.get_mut(&queue.row.tenant)
        {
            names.remove(queue.row.name.as_str());
        }
    }

    fn queue(&self, tenant: TenantId, name: &str) -> Option<Arc<Queue>> {
        let id = self.names.get(&tenant)?.get(name)?;
        self.queues.get(id).cloned()
    }

    fn keep(&mut self, queue: &Arc<Queue>) {
        if self.queues.len() >= QUEUES_KEPT {
            self.queues.clear();
            self.names.clear();
        }
        self.queues.insert(queue.id, queue.clone());
        let names = self.names.entry(queue.row.tenant).or_default();
        if names.get(queue.row.name.as_str()) != Some(&queue.id) {
            names.insert(queue.row.name.as_str().into(), queue.id);
        }
    }
}

/// What a command may touch.
pub struct Step<'s, S: Storage> {
    /// Tables and queue logs.
    pub store: &'s mut S,
    /// Decoded rows.
    pub memo: &'s mut Memo,
    /// The command's stamp: the time.
    pub stamp: Stamp,
    /// What others are to be told.
    pub events: &'s mut Vec<Event>,
}

/// Reads a row.
pub fn get<R: Row>(store: &impl Reading, key: &[u8]) -> Result<Option<R>, StorageError> {
    store.get(R::TABLE, key)?.map(|bytes| decode(key, &bytes)).transpose()
}

/// Decodes the row found at `key`.
pub fn decode<R: Row>(key: &[u8], bytes: &Bytes) -> Result<R, StorageError> {
    R::decode(bytes).map_err(|e| bad_row(R::TABLE, key, e.what))
}

/// A row or key that does not read: the tables are damaged.
pub fn bad_row(table: Table, key: &[u8], what: &str) -> StorageError {
    StorageError(format!("table {}, key {}: {what}", table.name(), key.escape_ascii()))
}

/// The parts of a key, or the error that it has none.
pub fn parts<T>(table: Table, key: &[u8], parts: Option<T>) -> Result<T, StorageError> {
    parts.ok_or_else(|| bad_row(table, key, "the key does not read"))
}

/// At most `limit` rows whose key begins with `prefix`, ascending.
pub fn scan_prefix(
    store: &impl Reading,
    table: Table,
    prefix: &[u8],
    limit: usize,
) -> Result<Vec<Entry>, StorageError> {
    store.scan(table, prefix, &key::after_prefix(prefix), limit)
}

/// The queue that has a name.
pub fn queue_named(
    store: &impl Reading,
    tenant: TenantId,
    name: &str,
) -> Result<Option<Queue>, StorageError> {
    match get::<QueueNameRow>(store, &key::queue_name(tenant, name))? {
        Some(QueueNameRow(id)) => queue_with_id(store, id),
        None => Ok(None),
    }
}

/// A queue incarnation; also a deleted one whose log is kept.
pub fn queue_with_id(store: &impl Reading, id: QueueId) -> Result<Option<Queue>, StorageError> {
    Ok(get::<QueueRow>(store, &key::queue(id))?.map(|row| Queue { id, row }))
}

/// The partition of a queue that has a name.
pub fn partition_named(
    store: &impl Reading,
    queue: QueueId,
    name: &str,
) -> Result<Option<Partition>, StorageError> {
    let row = get::<PartitionRow>(store, &key::partition(queue, name))?;
    Ok(row.map(|row| Partition { queue, name: name.into(), row }))
}

/// A partition incarnation.
pub fn partition_with_id(
    store: &impl Reading,
    id: PartitionId,
) -> Result<Option<Partition>, StorageError> {
    match get::<PartitionByIdRow>(store, &key::partition_by_id(id))? {
        Some(PartitionByIdRow { queue, name }) => partition_named(store, queue, &name),
        None => Ok(None),
    }
}

/// A partition incarnation of a tenant's queue, and that, unless it was deleted.
pub fn partition_of(
    store: &impl Reading,
    tenant: TenantId,
    id: PartitionId,
) -> Result<Option<(Queue, Partition)>, StorageError> {
    let Some(partition) = partition_with_id(store, id)? else { return Ok(None) };
    let queue = queue_with_id(store, partition.queue)?;
    let queue = queue.filter(|queue| queue.row.tenant == tenant && queue.row.deleted.is_none());
    Ok(queue.map(|queue| (queue, partition)))
}

impl<S: Storage> Step<'_, S> {
    /// Sets a row.
    pub fn put<R: Row>(&mut self, key: &[u8], row: &R) {
        let mut buffer = [0; SMALL_ROW_BYTES];
        match row.encode_small(&mut buffer) {
            Some(bytes) => self.store.put(R::TABLE, key, bytes),
            None => self.store.put(R::TABLE, key, &row.encode()),
        }
    }

    /// Sets a row at a key where there is none.
    pub fn insert<R: Row>(&mut self, key: &[u8], row: &R) {
        let mut buffer = [0; SMALL_ROW_BYTES];
        match row.encode_small(&mut buffer) {
            Some(bytes) => self.store.insert(R::TABLE, key, bytes),
            None => self.store.insert(R::TABLE, key, &row.encode()),
        }
    }

    /// The queue that has a name.
    pub fn queue(
        &mut self,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<Arc<Queue>>, StorageError> {
        if let Some(queue) = self.memo.queue(tenant, name) {
            return Ok(Some(queue));
        }
        let queue = queue_named(self.store, tenant, name)?.map(Arc::new);
        if let Some(queue) = &queue {
            self.memo.keep(queue);
        }
        Ok(queue)
    }

    /// A queue incarnation; also a deleted one whose log is kept.
    pub fn queue_with_id(&mut self, id: QueueId) -> Result<Option<Arc<Queue>>, StorageError> {
        if let Some(queue) = self.memo.queues.get(&id) {
            return Ok(Some(queue.clone()));
        }
        let queue = queue_with_id(self.store, id)?.map(Arc::new);
        if let Some(queue) = queue.as_ref().filter(|queue| queue.row.deleted.is_none()) {
            self.memo.keep(queue);
        }
        Ok(queue)
    }

    /// Sets a queue's row. Its name must be there already.
    pub fn put_queue(&mut self, queue: Queue) -> Arc<Queue> {
        self.put(&key::queue(queue.id), &queue.row);
        let queue = Arc::new(queue);
        if queue.row.deleted.is_none() {
            self.memo.keep(&queue);
        } else {
            self.memo.forget(queue.id);
        }
        queue
    }

    /// Creates a queue under a name that no queue has.
    pub fn create_queue(
        &mut self,
        tenant: TenantId,
        name: &str,
        options: queen_core::options::QueueOptions,
    ) -> Result<Arc<Queue>, StorageError> {
        let mut ids = self.next_ids()?;
        let id = ids.queue;
        ids.queue.0 += 1;
        self.put_next_ids(ids);
        self.insert(&key::queue_name(tenant, name), &QueueNameRow(id));
        let created = self.stamp;
        let name = name.to_owned();
        let row = QueueRow { tenant, name, options, created, deleted: None, last_segment: 0 };
        self.events.push(Event::QueueChanged { queue: id });
        Ok(self.put_queue(Queue { id, row }))
    }

    /// Creates a partition under a name that no partition of the queue has. Writes no `Tail` row:
    /// there is none before the first append.
    pub fn create_partition(
        &mut self,
        queue: QueueId,
        name: &str,
    ) -> Result<PartitionRow, StorageError> {
        let mut ids = self.next_ids()?;
        let id = ids.partition;
        ids.partition.0 += 1;
        self.put_next_ids(ids);
        self.insert(&key::partition_by_id(id), &PartitionByIdRow { queue, name: name.into() });
        let start = queen_core::Offset(0);
        let (last, created) = (Stamp::ZERO, self.stamp);
        let row = PartitionRow { id, next: start, log_start: start, last, created };
        self.insert(&key::partition(queue, name), &row);
        Ok(row)
    }

    /// The next ids that nobody has.
    pub fn next_ids(&mut self) -> Result<NextIdsRow, StorageError> {
        if let Some(ids) = self.memo.ids {
            return Ok(ids);
        }
        let ids = get::<NextIdsRow>(self.store, key::META_NEXT_IDS)?.unwrap_or_default();
        self.memo.ids = Some(ids);
        Ok(ids)
    }

    /// Gives ids out.
    pub fn put_next_ids(&mut self, ids: NextIdsRow) {
        self.memo.ids = Some(ids);
        self.put(key::META_NEXT_IDS, &ids);
    }
}
