//! Traces: events that consumers record of messages, found by message and by name.
//!
//! Owns: their rows, how many there may be, and when they go: after [`TRACE_SECONDS`], or as the oldest
//! when there is no room. Leaves to others: what an event may hold (`queen-broker`), JSON (`queen-http`).
//!
//! An event outlives its message, and its queue: it says the queue's name itself. What is in it is the
//! consumer's own and lies as it is, also for encrypted queues.

use crate::step::{Partition, Step, decode, get, partition_with_id, parts, scan_prefix};
use crate::tables::{Row as Entry, StorageError};
use crate::{Reading, Storage};
use queen_core::reply::Reply;
use queen_core::row::{TraceNameRow, TraceRow, TraceTotalsRow, key, trace, transaction_id};
use queen_core::table::Table;
use queen_core::trace::{
    RecordTrace, TRACE_BYTES_MAX, TRACE_EVENTS_MAX, TRACE_EVENTS_PER_MESSAGE, TRACE_SECONDS,
};
use queen_core::{Code, Error, PartitionId, Stamp, TenantId};

/// An event and when it was recorded.
pub type Event = (Stamp, TraceRow);

/// Records an event. Refused when there is no such partition, or the message has as many as it may.
pub(crate) fn record<S: Storage>(
    step: &mut Step<'_, S>,
    event: &RecordTrace<'_>,
) -> Result<Reply, StorageError> {
    let refused = |code, text| Ok(Reply::Refused(Error::new(code, text)));
    let partition = match partition_with_id(&*step.store, event.partition)? {
        Some(partition) => owned(step, event.tenant, partition)?,
        None => None,
    };
    let Some((queue, Partition { name, .. })) = partition else {
        let text = format!("partitionId: there is no partition {}", event.partition);
        return refused(Code::NotFound, text);
    };
    let others = of_message(&*step.store, event.tenant, event.partition, event.transaction_id)?;
    if others.len() >= TRACE_EVENTS_PER_MESSAGE {
        let text = format!(
            "the message has {TRACE_EVENTS_PER_MESSAGE} events already, as many as it may have: \
             record fewer, or more in each"
        );
        return refused(Code::BadRequest, text);
    }
    let row = TraceRow {
        tenant: event.tenant,
        partition: event.partition,
        queue,
        partition_name: name.into(),
        transaction_id: event.transaction_id.to_owned(),
        group: event.group.map(str::to_owned),
        worker: event.worker.map(str::to_owned),
        event_type: event.event_type.to_owned(),
        names: event.names.iter().map(|name| (*name).to_owned()).collect(),
        data: event.data.to_owned(),
        bytes: event.bytes(),
    };
    make_room(step, row.bytes)?;
    // Those that made room may have been of this message.
    let others = of_message(&*step.store, event.tenant, event.partition, event.transaction_id)?;
    insert(step, &row, &others)?;
    Ok(Reply::Traced(step.stamp))
}

/// The queue's name of a partition that is a tenant's.
fn owned<S: Storage>(
    step: &mut Step<'_, S>,
    tenant: TenantId,
    partition: Partition,
) -> Result<Option<(String, Partition)>, StorageError> {
    let queue = step.queue_with_id(partition.queue)?;
    let queue = queue.filter(|q| q.row.tenant == tenant && q.row.deleted.is_none());
    Ok(queue.map(|queue| (queue.row.name.clone(), partition)))
}

fn insert<S: Storage>(
    step: &mut Step<'_, S>,
    row: &TraceRow,
    others: &[Event],
) -> Result<(), StorageError> {
    let stamp = step.stamp;
    step.insert(&trace::event(stamp), row);
    step.store.insert(Table::TraceOfMessage, &trace::at(message_key(row), stamp), &[]);
    for name in &row.names {
        step.store.insert(Table::TraceName, &trace::at(trace::name(row.tenant, name), stamp), &[]);
        let key = trace::count(row.tenant, name);
        let mut count = get::<TraceNameRow>(&*step.store, &key)?.unwrap_or_default();
        count.events += 1;
        count.messages += u64::from(!has_name(others, name));
        count.last = stamp;
        step.put(&key, &count);
    }
    let mut totals = totals(&*step.store)?;
    totals.events += 1;
    totals.bytes += row.bytes;
    step.put(trace::META_TRACES, &totals);
    Ok(())
}

fn message_key(row: &TraceRow) -> Vec<u8> {
    trace::message(row.partition, transaction_id::hash(&row.transaction_id))
}

fn has_name(events: &[Event], name: &str) -> bool {
    events.iter().any(|(_, event)| event.names.iter().any(|other| other == name))
}

fn totals(store: &impl Reading) -> Result<TraceTotalsRow, StorageError> {
    Ok(get::<TraceTotalsRow>(store, trace::META_TRACES)?.unwrap_or_default())
}

/// Lets the oldest events go until one more of this size fits.
fn make_room<S: Storage>(step: &mut Step<'_, S>, bytes: u64) -> Result<(), StorageError> {
    loop {
        let all = totals(&*step.store)?;
        if all.events < TRACE_EVENTS_MAX && all.bytes + bytes <= TRACE_BYTES_MAX {
            return Ok(());
        }
        if !remove_oldest(step, Stamp::MAX)? {
            return Ok(());
        }
    }
}

/// Lets events go whose time is over, at most `limit`; whether more are due.
pub(crate) fn expire<S: Storage>(
    step: &mut Step<'_, S>,
    limit: usize,
) -> Result<bool, StorageError> {
    let due = Stamp(step.stamp.minus_seconds(TRACE_SECONDS).0.saturating_add(1));
    for _ in 0..limit {
        if !remove_oldest(step, due)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the oldest event, if it is stamped before `before`.
fn remove_oldest<S: Storage>(step: &mut Step<'_, S>, before: Stamp) -> Result<bool, StorageError> {
    let to = trace::event(before);
    let Some(oldest) = step.store.scan(Table::Trace, &[], &to, 1)?.pop() else { return Ok(false) };
    let (stamp, row) = read(&oldest)?;
    step.store.delete(Table::Trace, &oldest.0);
    step.store.delete(Table::TraceOfMessage, &trace::at(message_key(&row), stamp));
    let left = of_message(&*step.store, row.tenant, row.partition, &row.transaction_id)?;
    for name in &row.names {
        step.store.delete(Table::TraceName, &trace::at(trace::name(row.tenant, name), stamp));
        let key = trace::count(row.tenant, name);
        let mut count = get::<TraceNameRow>(&*step.store, &key)?.unwrap_or_default();
        count.events = count.events.saturating_sub(1);
        count.messages = count.messages.saturating_sub(u64::from(!has_name(&left, name)));
        match count.events {
            0 => step.store.delete(Table::TraceNameCount, &key),
            _ => step.put(&key, &count),
        }
    }
    let mut totals = totals(&*step.store)?;
    totals.events = totals.events.saturating_sub(1);
    totals.bytes = totals.bytes.saturating_sub(row.bytes);
    step.put(trace::META_TRACES, &totals);
    Ok(true)
}

fn read((key, value): &Entry) -> Result<Event, StorageError> {
    let stamp = parts(Table::Trace, key, trace::stamp_of(key))?;
    Ok((stamp, decode(key, value)?))
}

/// The events that keys of another table lead to.
fn led_to(store: &impl Reading, table: Table, keys: &[Entry]) -> Result<Vec<Event>, StorageError> {
    let mut events = Vec::with_capacity(keys.len());
    for (key, _) in keys {
        let stamp = parts(table, key, trace::stamp_of(key))?;
        let row = get::<TraceRow>(store, &trace::event(stamp))?;
        events.extend(row.map(|row| (stamp, row)));
    }
    Ok(events)
}

/// The events of a message, oldest first.
pub fn of_message(
    store: &impl Reading,
    tenant: TenantId,
    partition: PartitionId,
    transaction_id: &str,
) -> Result<Vec<Event>, StorageError> {
    let prefix = trace::message(partition, transaction_id::hash(transaction_id));
    // Another message may have the same hash.
    let most = 4 * TRACE_EVENTS_PER_MESSAGE;
    let keys = scan_prefix(store, Table::TraceOfMessage, &prefix, most)?;
    let mut events = led_to(store, Table::TraceOfMessage, &keys)?;
    events.retain(|(_, row)| row.tenant == tenant && row.transaction_id == transaction_id);
    Ok(events)
}

/// A page of the events that have a name, newest first: those stamped before `before`.
pub fn with_name(
    store: &impl Reading,
    tenant: TenantId,
    name: &str,
    before: Stamp,
    limit: usize,
) -> Result<Vec<Event>, StorageError> {
    let keys = named(store, tenant, name, before, limit)?;
    led_to(store, Table::TraceName, &keys)
}

/// The stamp of the event that `skip` events of a name before `before` are newer than, or not older.
pub fn skip_named(
    store: &impl Reading,
    tenant: TenantId,
    name: &str,
    before: Stamp,
    skip: usize,
) -> Result<Option<Stamp>, StorageError> {
    let keys = named(store, tenant, name, before, skip)?;
    match keys.last().filter(|_| keys.len() == skip) {
        Some((key, _)) => Ok(Some(parts(Table::TraceName, key, trace::stamp_of(key))?)),
        None => Ok(None),
    }
}

fn named(
    store: &impl Reading,
    tenant: TenantId,
    name: &str,
    before: Stamp,
    limit: usize,
) -> Result<Vec<Entry>, StorageError> {
    let prefix = trace::name(tenant, name);
    let to = trace::at(prefix.clone(), before);
    store.scan_back(Table::TraceName, &prefix, &to, limit)
}

/// How many events have a name, and of how many messages.
pub fn count(
    store: &impl Reading,
    tenant: TenantId,
    name: &str,
) -> Result<TraceNameRow, StorageError> {
    Ok(get::<TraceNameRow>(store, &trace::count(tenant, name))?.unwrap_or_default())
}

/// A page of names after one, in name order.
pub fn names(
    store: &impl Reading,
    tenant: TenantId,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, TraceNameRow)>, StorageError> {
    let mut from = trace::count(tenant, after.unwrap_or_default());
    if after.is_some() {
        from.push(0);
    }
    let rows = store.scan(Table::TraceNameCount, &from, &key::after_prefix(&tenant.0), limit)?;
    let read = rows.iter().map(|(key, value)| {
        let name = parts(Table::TraceNameCount, key, trace::name_of(key))?;
        Ok((name.to_owned(), decode(key, value)?))
    });
    read.collect()
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
