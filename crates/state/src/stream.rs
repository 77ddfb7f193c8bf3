//! Streams: queries of the clients' stream runtimes, and what they remember of partitions.
//!
//! Owns: registration, the rows of state and reading them, and when they go. Leaves to others: cycles
//! (`cycle`), claims (`claim`), limits of a request (`queen-broker`), JSON (`queen-http`).
//!
//! A query is found by its name and keeps its id. Its state has a number of its own: a reset takes another
//! one, so that what was remembered is out of reach at once and goes in steps. What bounds it all: a
//! partition's state has a size; it goes with its partition, with a reset, or row by row as the query lets
//! go of it; a query whose source does not exist and that remembers nothing is forgotten after a day. A
//! runner that still polls makes its source anew, so its query stays.
//!
//! What is remembered of the partitions of an encrypted queue is sealed, as its payloads are: the rules refuse
//! it in the clear.

pub(crate) mod claim;
pub(crate) mod cycle;

use crate::gone;
use crate::step::{Partition, Queue, Step, decode, get, partition_with_id, parts, scan_prefix};
use crate::tables::{Row as Entry, StorageError};
use crate::{Reading, Storage};
use bytes::Bytes;
use queen_core::reply::Reply;
use queen_core::row::stream::StateValue;
use queen_core::row::{
    StreamPartitionRow, StreamQueryIdRow, StreamQueryRow, StreamsRow, key, stream,
};
use queen_core::stream::{
    GROUP_PREFIX, ORPHAN_SECONDS, QueryId, RegisterQuery, Registered, Registration, StreamCommand,
    StreamReply,
};
use queen_core::table::Table;
use queen_core::{PartitionId, Stamp, TenantId};
use std::borrow::Cow;
use std::sync::Arc;

/// Queries at which one tick looks, whether their sources exist.
const LOOKS: usize = 16;

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Its name.
    pub name: String,
    /// Its row.
    pub row: StreamQueryRow,
}

impl Query {
    /// The group that a runner names, or the query's own.
    fn group<'g>(&self, asked: Option<&'g str>) -> Cow<'g, str> {
        asked.map_or_else(|| Cow::Owned(format!("{GROUP_PREFIX}{}", self.name)), Cow::Borrowed)
    }
}

/// A row of a query's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRow {
    /// Its key.
    pub key: String,
    /// Stamp of its last write.
    pub updated: Stamp,
    /// Whether `value` is an envelope.
    pub encrypted: bool,
    /// JSON text, or its envelope.
    pub value: Bytes,
}

/// Carries out a command of a stream runtime.
pub(crate) fn apply<S: Storage>(
    step: &mut Step<'_, S>,
    command: &StreamCommand<'_>,
) -> Result<Reply, StorageError> {
    match command {
        StreamCommand::Register(query) => {
            let registered = register(step, query)?;
            Ok(Reply::Stream(StreamReply::Registered(registered)))
        }
        StreamCommand::Cycle(cycle) => cycle::apply(step, cycle),
        StreamCommand::Claim(claim) => claim::apply(step, claim),
    }
}

/// Makes a query known, or comes back to it.
fn register<S: Storage>(
    step: &mut Step<'_, S>,
    asked: &RegisterQuery<'_>,
) -> Result<Registered, StorageError> {
    let row_key = stream::query(asked.tenant, asked.name);
    let known = get::<StreamQueryRow>(&*step.store, &row_key)?;
    let (id, state, how) = match &known {
        None => (QueryId(step.stamp), step.stamp, Registration::Fresh),
        Some(row) if asked.reset => (row.id, step.stamp, Registration::Reset),
        Some(row) if row.config_hash == asked.config_hash => {
            (row.id, row.state, Registration::Known)
        }
        Some(row) => return Ok(Registered { query: row.id, how: Registration::OtherConfig }),
    };
    match known {
        None => {
            let named = StreamQueryIdRow { tenant: asked.tenant, name: asked.name.to_owned() };
            step.insert(&stream::query_by_id(id), &named);
        }
        Some(row) if row.state != state => gone::state(step, row.state)?,
        Some(_) => {}
    }
    let row = StreamQueryRow {
        id,
        state,
        source: asked.source.to_owned(),
        sink: asked.sink.map(str::to_owned),
        config_hash: asked.config_hash.to_owned(),
        registered: step.stamp,
        orphaned: None,
    };
    step.put(&row_key, &row);
    Ok(Registered { query: id, how })
}

/// The query of a tenant that has an id.
pub fn query_with_id(
    store: &impl Reading,
    tenant: TenantId,
    id: QueryId,
) -> Result<Option<Query>, StorageError> {
    let named = get::<StreamQueryIdRow>(store, &stream::query_by_id(id))?;
    let Some(named) = named.filter(|named| named.tenant == tenant) else { return Ok(None) };
    let row = get::<StreamQueryRow>(store, &stream::query(tenant, &named.name))?;
    Ok(row.map(|row| Query { name: named.name, row }))
}

/// How much a state holds of a partition; `None` for nothing.
pub fn partition_state(
    store: &impl Reading,
    state: Stamp,
    partition: PartitionId,
) -> Result<Option<StreamPartitionRow>, StorageError> {
    get::<StreamPartitionRow>(store, &stream::partition(state, partition))
}

/// A page of what a state holds of a partition: rows whose keys begin with `prefix`, in key order, those
/// after a key.
pub fn rows(
    store: &impl Reading,
    state: Stamp,
    partition: PartitionId,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<StateRow>, StorageError> {
    let prefix = stream::state(partition, state, prefix);
    let from = match after {
        Some(after) => [&stream::state(partition, state, after)[..], &[0]].concat(),
        None => prefix.clone(),
    };
    let found = store.scan(Table::StreamState, &from, &key::after_prefix(&prefix), limit)?;
    found.iter().map(read).collect()
}

/// The rows that there are of some keys, in the order of these.
pub fn rows_at(
    store: &impl Reading,
    state: Stamp,
    partition: PartitionId,
    keys: &[&str],
) -> Result<Vec<StateRow>, StorageError> {
    let mut rows = Vec::with_capacity(keys.len());
    for key in keys {
        let row_key = stream::state(partition, state, key);
        if let Some(value) = store.get(Table::StreamState, &row_key)? {
            rows.push(read(&(row_key.into(), value))?);
        }
    }
    Ok(rows)
}

fn read((row_key, value): &Entry) -> Result<StateRow, StorageError> {
    let (_, key) = parts(Table::StreamState, row_key, stream::state_parts(row_key))?;
    let StateValue { updated, encrypted, value } = StateValue::decode(value)?;
    Ok(StateRow { key: key.to_owned(), updated, encrypted, value })
}

/// A page of the partitions of which a state holds something, in the order of their ids, those after one.
pub fn partitions(
    store: &impl Reading,
    state: Stamp,
    after: PartitionId,
    limit: usize,
) -> Result<Vec<(PartitionId, StreamPartitionRow)>, StorageError> {
    let from = stream::partition(state, PartitionId(after.0.saturating_add(1)));
    let to = key::after_prefix(&state.0.to_be_bytes());
    let found = store.scan(Table::StreamPartition, &from, &to, limit)?;
    let read = found.iter().map(|(row_key, value)| {
        let found = stream::partition_parts(row_key);
        let (_, partition) = parts(Table::StreamPartition, row_key, found)?;
        Ok((partition, decode(row_key, value)?))
    });
    read.collect()
}

/// The queue of a tenant that has a partition, unless it was deleted; and that.
fn owned<S: Storage>(
    step: &mut Step<'_, S>,
    tenant: TenantId,
    id: PartitionId,
) -> Result<Option<(Arc<Queue>, Partition)>, StorageError> {
    let Some(partition) = partition_with_id(&*step.store, id)? else { return Ok(None) };
    let queue = step.queue_with_id(partition.queue)?;
    let queue = queue.filter(|q| q.row.tenant == tenant && q.row.deleted.is_none());
    Ok(queue.map(|queue| (queue, partition)))
}

/// Removes what a state holds, which no query has any more; false when the budget ended before.
pub(crate) fn remove_state<S: Storage>(
    step: &mut Step<'_, S>,
    state: Stamp,
    budget: &mut usize,
) -> Result<bool, StorageError> {
    while let Some((partition, _)) = partitions(&*step.store, state, PartitionId(0), 1)?.pop() {
        if !remove_rows(step, state, partition, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes what any query remembers of a partition that goes; false when the budget ended before.
pub(crate) fn remove_of_partition<S: Storage>(
    step: &mut Step<'_, S>,
    partition: PartitionId,
    budget: &mut usize,
) -> Result<bool, StorageError> {
    let prefix = key::partition_by_id(partition);
    while let Some((row_key, _)) = scan_prefix(&*step.store, Table::StreamState, &prefix, 1)?.pop()
    {
        let (state, _) = parts(Table::StreamState, &row_key, stream::state_parts(&row_key))?;
        if !remove_rows(step, state, partition, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes what a state holds of a partition; false when the budget ended before.
fn remove_rows<S: Storage>(
    step: &mut Step<'_, S>,
    state: Stamp,
    partition: PartitionId,
    budget: &mut usize,
) -> Result<bool, StorageError> {
    let rows = stream::state(partition, state, "");
    if !gone::remove_prefix(step, Table::StreamState, &rows, budget)? {
        return Ok(false);
    }
    // With the last of the rows, which are what leads here.
    step.store.delete(Table::StreamPartition, &stream::partition(state, partition));
    Ok(true)
}

/// Looks at the next queries, whether their sources exist, and forgets those whose source has not for a
/// day: each query's turn comes after those of all others.
pub(crate) fn look_at_sources<S: Storage>(step: &mut Step<'_, S>) -> Result<(), StorageError> {
    let last = get::<StreamsRow>(&*step.store, stream::META_STREAMS)?.unwrap_or_default().looked;
    let from = stream::query_by_id(QueryId(Stamp(last.0.0.saturating_add(1))));
    let found = step.store.scan(Table::StreamQueryById, &from, &[u8::MAX; 9], LOOKS)?;
    let mut looked = QueryId::default();
    for (row_key, value) in &found {
        let id = parts(Table::StreamQueryById, row_key, stream::query_of(row_key))?;
        look_at_source(step, id, &decode(row_key, value)?)?;
        if found.len() == LOOKS {
            looked = id;
        }
    }
    if looked != last {
        step.put(stream::META_STREAMS, &StreamsRow { looked });
    }
    Ok(())
}

fn look_at_source<S: Storage>(
    step: &mut Step<'_, S>,
    id: QueryId,
    named: &StreamQueryIdRow,
) -> Result<(), StorageError> {
    let row_key = stream::query(named.tenant, &named.name);
    let Some(mut row) = get::<StreamQueryRow>(&*step.store, &row_key)? else { return Ok(()) };
    let exists = step.queue(named.tenant, &row.source)?.is_some();
    let orphaned = match row.orphaned {
        _ if exists => None,
        Some(since) if since.plus_seconds(ORPHAN_SECONDS) <= step.stamp => {
            if partitions(&*step.store, row.state, PartitionId(0), 1)?.is_empty() {
                step.store.delete(Table::StreamQuery, &row_key);
                step.store.delete(Table::StreamQueryById, &stream::query_by_id(id));
            }
            return Ok(());
        }
        since => since.or(Some(step.stamp)),
    };
    if row.orphaned != orphaned {
        row.orphaned = orphaned;
        step.put(&row_key, &row);
    }
    Ok(())
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
