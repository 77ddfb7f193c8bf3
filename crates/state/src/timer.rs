//! Timers: messages that go into their queue when their time has come.
//!
//! Owns: setting, taking away and firing timers, and their rows. Leaves to others: the append (`push`),
//! asking for it when something is due (`queen-broker`), sealing payloads (the caller: keys never
//! come here), limits of a call (`queen-broker`).
//!
//! A timer is due from the stamp that it was set for; a command that fires takes the oldest due ones, a
//! bounded number and size of them, and appends each as a message in the same step that removes it: on
//! every node and in every replay the same ones, each once. One whose queue became encrypted after it was
//! set waits until its payload is sealed. Upholds `encrypted-at-rest`.

use crate::step::{Queue, Step, bad_row, decode, get, queue_with_id, scan_prefix};
use crate::tables::{Row as Entry, StorageError};
use crate::{Reading, Storage, push, switch};
use bytes::Bytes;
use queen_core::command::PushGroup;
use queen_core::frame::Frame;
use queen_core::options::QueueOptions;
use queen_core::reply::{Event, Reply};
use queen_core::row::key;
use queen_core::row::timer::{self as row, TimerRow, TimersRow};
use queen_core::table::Table;
use queen_core::timer::{
    Fired, Promised, TimerMessage, TimerOp, TimerOpKind, TimerResult, Timers, promise,
};
use queen_core::{Code, Error, QueueId, Stamp, TenantId};
use std::collections::BTreeMap;

/// Timers fired by one command.
pub const FIRED_MAX: usize = 256;
/// Bytes of payloads fired by one command; a single longer one goes alone.
pub const FIRED_BYTES_MAX: usize = 4 << 20;
/// Longest pause between two tries of a timer that cannot be fired, seconds.
const PAUSE_SECONDS_MAX: u64 = 60;

/// Carries out operations; a refusal is without effect.
pub(crate) fn apply<S: Storage>(
    step: &mut Step<'_, S>,
    timers: &Timers<'_>,
) -> Result<Reply, StorageError> {
    if let Some(refusal) = unsealed(step, timers.tenant, timers.ops.iter())? {
        return Ok(Reply::Refused(refusal));
    }
    carry_out(step, timers.tenant, timers.ops.iter()).map(Reply::Timers)
}

/// Why the first operation must not apply that must not: its queue is encrypted and its payload is not.
pub(crate) fn unsealed<'o, 'a: 'o, S: Storage>(
    step: &mut Step<'_, S>,
    tenant: TenantId,
    ops: impl Iterator<Item = &'o TimerOp<'a>>,
) -> Result<Option<Error>, StorageError> {
    for op in ops {
        let clear = matches!(&op.kind, TimerOpKind::Schedule(message) if !message.encrypted);
        if clear && step.queue(tenant, op.queue)?.is_some_and(|queue| is_encrypted(&queue)) {
            let text =
                format!("queue {:?} is encrypted: its payloads are stored sealed only", op.queue);
            return Ok(Some(Error::new(Code::NotSealed, text)));
        }
    }
    Ok(None)
}

fn is_encrypted(queue: &Queue) -> bool {
    queue.row.options.encryption_enabled
}

/// Carries out operations that nothing refuses; one result per operation.
pub(crate) fn carry_out<'o, 'a: 'o, S: Storage>(
    step: &mut Step<'_, S>,
    tenant: TenantId,
    ops: impl Iterator<Item = &'o TimerOp<'a>>,
) -> Result<Vec<TimerResult>, StorageError> {
    let mut results = Vec::with_capacity(ops.size_hint().0);
    for op in ops {
        results.push(match &op.kind {
            TimerOpKind::Schedule(message) => schedule(step, tenant, op, message)?,
            TimerOpKind::Cancel => cancel(step, tenant, op)?,
            TimerOpKind::Seal { number, envelope } => seal(step, tenant, op, *number, envelope)?,
        });
    }
    Ok(results)
}

/// A timer where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    /// Its key in `Timer`.
    pub row_key: Bytes,
    /// Its row.
    pub row: TimerRow,
}

impl Timer {
    /// Its key in its queue.
    pub fn key(&self) -> &str {
        // A row is read only where its key is: it reads.
        row::parse_key(&self.row_key).map_or("", |(_, key)| key)
    }

    /// What it promises.
    pub fn promised(&self) -> Promised {
        let row = &self.row;
        let message = promise(row.due, row.number);
        let transaction_id = row.transaction_id.clone().unwrap_or_else(|| message.to_string());
        Promised { message, transaction_id, due: row.due }
    }
}

fn schedule<S: Storage>(
    step: &mut Step<'_, S>,
    tenant: TenantId,
    op: &TimerOp<'_>,
    message: &TimerMessage<'_>,
) -> Result<TimerResult, StorageError> {
    let queue = match step.queue(tenant, op.queue)? {
        Some(queue) => queue,
        None => step.create_queue(tenant, op.queue, QueueOptions::implicit(op.queue))?,
    };
    let row_key = Bytes::from(row::key(queue.id, op.key));
    let old = get::<TimerRow>(&*step.store, &row_key)?;
    let mut all = all(&*step.store)?;
    let number = all.next;
    all.next += 1;
    let created = match &old {
        Some(old) => {
            step.store.delete(Table::TimerDue, &row::due_key(old.tries, old.number, &row_key));
            old.created
        }
        None => {
            all.pending += 1;
            step.stamp
        }
    };
    step.put(row::META_KEY, &all);
    let due = Stamp(step.stamp.0.saturating_add(message.delay_ms.saturating_mul(1000)));
    let row = TimerRow {
        number,
        due,
        tries: due,
        partition: message.partition.to_owned(),
        transaction_id: message.transaction_id.map(str::to_owned),
        producer: message.producer.map(str::to_owned),
        encrypted: message.encrypted,
        payload_len: u32::try_from(message.payload.len()).unwrap_or(u32::MAX),
        attempts: 0,
        error: None,
        created,
        updated: step.stamp,
    };
    step.put(&row_key, &row);
    step.store.put(Table::TimerPayload, &row_key, &row::encode_payload(message.payload));
    step.store.insert(Table::TimerDue, &row::due_key(due, number, &row_key), &[]);
    step.events.push(Event::TimerDue(due));
    let timer = Timer { row_key, row }.promised();
    Ok(TimerResult::Scheduled { timer, replaced: old.is_some() })
}

fn cancel<S: Storage>(
    step: &mut Step<'_, S>,
    tenant: TenantId,
    op: &TimerOp<'_>,
) -> Result<TimerResult, StorageError> {
    let Some(queue) = step.queue(tenant, op.queue)? else { return Ok(TimerResult::Absent) };
    let Some(timer) = find(&*step.store, queue.id, op.key)? else { return Ok(TimerResult::Absent) };
    remove(step, &timer)?;
    Ok(TimerResult::Cancelled(timer.promised()))
}

fn seal<S: Storage>(
    step: &mut Step<'_, S>,
    tenant: TenantId,
    op: &TimerOp<'_>,
    number: u64,
    envelope: &[u8],
) -> Result<TimerResult, StorageError> {
    let Some(queue) = step.queue(tenant, op.queue)? else { return Ok(TimerResult::Absent) };
    let found = find(&*step.store, queue.id, op.key)?;
    let Some(timer) = found.filter(|timer| timer.row.number == number && !timer.row.encrypted)
    else {
        return Ok(TimerResult::Absent);
    };
    let Timer { row_key, mut row } = timer;
    step.store.put(Table::TimerPayload, &row_key, &row::encode_payload(envelope));
    step.store.delete(Table::TimerDue, &row::due_key(row.tries, number, &row_key));
    row.encrypted = true;
    row.payload_len = u32::try_from(envelope.len()).unwrap_or(u32::MAX);
    (row.tries, row.attempts, row.error) = (row.due, 0, None);
    step.store.insert(Table::TimerDue, &row::due_key(row.tries, number, &row_key), &[]);
    step.put(&row_key, &row);
    step.events.push(Event::TimerDue(row.tries));
    Ok(TimerResult::Sealed)
}

/// Removes a timer's rows.
fn remove<S: Storage>(step: &mut Step<'_, S>, timer: &Timer) -> Result<(), StorageError> {
    let Timer { row_key, row } = timer;
    step.store.delete(Table::Timer, row_key);
    step.store.delete(Table::TimerPayload, row_key);
    step.store.delete(Table::TimerDue, &row::due_key(row.tries, row.number, row_key));
    let mut all = all(&*step.store)?;
    all.pending = all.pending.saturating_sub(1);
    step.put(row::META_KEY, &all);
    Ok(())
}

/// Removes timers of a deleted queue, as far as `budget` rows go; false when it ended before.
pub(crate) fn remove_of_queue<S: Storage>(
    step: &mut Step<'_, S>,
    queue: QueueId,
    budget: &mut usize,
) -> Result<bool, StorageError> {
    const BATCH: usize = 256;
    loop {
        let rows = scan_prefix(&*step.store, Table::Timer, &key::queue(queue), BATCH)?;
        if rows.is_empty() {
            return Ok(true);
        }
        for row in &rows {
            if *budget == 0 {
                return Ok(false);
            }
            *budget -= 1;
            let timer = timer(row)?;
            remove(step, &timer)?;
        }
    }
}

/// Messages of one partition that are fired together.
#[derive(Default)]
struct Batch {
    count: u32,
    text_bytes: usize,
    frames: Vec<u8>,
}

/// Turns the oldest timers that are due into messages. Nothing while firing is switched off.
pub(crate) fn fire<S: Storage>(step: &mut Step<'_, S>) -> Result<Reply, StorageError> {
    let mut fired = Fired::default();
    if !switch::all(&*step.store)?.timers_fire {
        return Ok(Reply::Fired(fired));
    }
    let due = due(&*step.store, step.stamp, FIRED_MAX + 1)?;
    let mut batches: BTreeMap<(QueueId, String), Batch> = BTreeMap::new();
    let mut bytes = 0;
    for (taken, (due_key, _)) in due.iter().enumerate() {
        let (tries, number, row_key) = row::parse_due_key(due_key)?;
        let found = get::<TimerRow>(&*step.store, row_key)?;
        let Some(row) = found.filter(|row| (row.tries, row.number) == (tries, number)) else {
            step.store.delete(Table::TimerDue, due_key);
            continue;
        };
        let len = row.payload_len as usize;
        if taken == FIRED_MAX || bytes > 0 && bytes + len > FIRED_BYTES_MAX {
            fired.more = true;
            break;
        }
        let (id, _) = row::parse_key(row_key)?;
        let timer = Timer { row_key: Bytes::copy_from_slice(row_key), row };
        let queue = step.queue_with_id(id)?.filter(|queue| queue.row.deleted.is_none());
        let Some(queue) = queue else {
            remove(step, &timer)?;
            continue;
        };
        if is_encrypted(&queue) && !timer.row.encrypted {
            postpone(step, timer);
            fired.failed += 1;
            continue;
        }
        let payload = payload(&*step.store, row_key)?;
        let frame = frame(&timer, &payload);
        let batch = batches.entry((id, timer.row.partition.clone())).or_default();
        frame.encode(&mut batch.frames);
        batch.count += 1;
        batch.text_bytes += frame.text_bytes();
        bytes += len;
        fired.fired += 1;
        remove(step, &timer)?;
    }
    for ((queue, partition), batch) in batches {
        append(step, queue, &partition, &batch)?;
    }
    Ok(Reply::Fired(fired))
}

/// The message that a timer becomes.
fn frame<'a>(timer: &'a Timer, payload: &'a [u8]) -> Frame<'a> {
    let row = &timer.row;
    Frame {
        transaction_id: row.transaction_id.as_deref(),
        trace_id: None,
        producer: row.producer.as_deref(),
        message_id: Some(promise(row.due, row.number).0),
        encrypted: row.encrypted,
        payload,
    }
}

fn append<S: Storage>(
    step: &mut Step<'_, S>,
    queue: QueueId,
    partition: &str,
    batch: &Batch,
) -> Result<(), StorageError> {
    let missing = || StorageError(format!("queue {queue} went while its timers were fired"));
    let queue = step.queue_with_id(queue)?.ok_or_else(missing)?;
    let group = PushGroup {
        queue: &queue.row.name,
        partition,
        count: batch.count,
        has_transaction_ids: true,
        text_bytes: u32::try_from(batch.text_bytes).unwrap_or(u32::MAX),
        frames: &batch.frames,
    };
    let pushed = push::append_group(step, queue.row.tenant, &group)?;
    pushed.map(drop).map_err(|refusal| StorageError(refusal.text))
}

/// A timer cannot be fired: it is tried again after a pause that grows.
fn postpone<S: Storage>(step: &mut Step<'_, S>, timer: Timer) {
    let Timer { row_key, mut row } = timer;
    step.store.delete(Table::TimerDue, &row::due_key(row.tries, row.number, &row_key));
    let pause = (1u64 << row.attempts.min(16)).min(PAUSE_SECONDS_MAX);
    row.attempts = row.attempts.saturating_add(1);
    row.tries = step.stamp.plus_seconds(pause);
    row.error = Some("the queue is encrypted and the payload is not sealed yet".to_owned());
    step.store.insert(Table::TimerDue, &row::due_key(row.tries, row.number, &row_key), &[]);
    step.put(&row_key, &row);
    step.events.push(Event::TimerDue(row.tries));
}

/// Keys of the timers that are due at `now`, oldest first.
fn due(store: &impl Reading, now: Stamp, limit: usize) -> Result<Vec<Entry>, StorageError> {
    let end = row::due_key(Stamp(now.0.saturating_add(1)), 0, &[]);
    store.scan(Table::TimerDue, &[], &end, limit)
}

fn timer((row_key, value): &Entry) -> Result<Timer, StorageError> {
    Ok(Timer { row_key: row_key.clone(), row: decode(row_key, value)? })
}

/// All timers together.
pub fn all(store: &impl Reading) -> Result<TimersRow, StorageError> {
    Ok(get::<TimersRow>(store, row::META_KEY)?.unwrap_or_default())
}

/// When the next timer is due; `None` when there is none, or firing is switched off.
pub fn due_at(store: &impl Reading) -> Result<Option<Stamp>, StorageError> {
    let next = store.scan(Table::TimerDue, &[], &row::due_key(Stamp::MAX, 0, &[]), 1)?;
    let Some((due_key, _)) = next.first() else { return Ok(None) };
    let (tries, ..) = row::parse_due_key(due_key)?;
    Ok(switch::all(store)?.timers_fire.then_some(tries))
}

/// The timer that a queue has under a key.
pub fn find(
    store: &impl Reading,
    queue: QueueId,
    key: &str,
) -> Result<Option<Timer>, StorageError> {
    let row_key = Bytes::from(row::key(queue, key));
    Ok(get::<TimerRow>(store, &row_key)?.map(|row| Timer { row_key, row }))
}

/// The payload of a timer that is there: JSON text, or its envelope.
pub fn payload(store: &impl Reading, row_key: &[u8]) -> Result<Bytes, StorageError> {
    match store.get(Table::TimerPayload, row_key)? {
        Some(bytes) => Ok(row::decode_payload(&bytes)?),
        None => Err(bad_row(Table::Timer, row_key, "its payload is not there")),
    }
}

/// At most `limit` timers of a queue whose keys begin with `prefix`, in key order, after a key.
pub fn list(
    store: &impl Reading,
    queue: QueueId,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Timer>, StorageError> {
    let first = row::key(queue, prefix);
    let end = key::after_prefix(&first);
    let from = match after {
        Some(after) => first.max([&row::key(queue, after)[..], &[0]].concat()),
        None => first,
    };
    store.scan(Table::Timer, &from, &end, limit)?.iter().map(timer).collect()
}

/// A timer that is due and whose payload must be sealed first.
#[derive(Clone, Debug)]
pub struct Unsealed {
    /// The timer.
    pub timer: Timer,
    /// Whose.
    pub tenant: TenantId,
    /// Its queue's name.
    pub queue: String,
    /// The payload, in the clear.
    pub payload: Bytes,
}

/// Timers among the next to be fired at `now` whose queue became encrypted after they were set.
pub fn unsealed_due(store: &impl Reading, now: Stamp) -> Result<Vec<Unsealed>, StorageError> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    for (due_key, _) in due(store, now, FIRED_MAX)? {
        let (.., row_key) = row::parse_due_key(&due_key)?;
        let (id, _) = row::parse_key(row_key)?;
        let Some(row) = get::<TimerRow>(store, row_key)?.filter(|row| !row.encrypted) else {
            continue;
        };
        let Some(queue) = queue_with_id(store, id)?.filter(is_encrypted) else { continue };
        bytes += row.payload_len as usize;
        if !found.is_empty() && bytes > FIRED_BYTES_MAX {
            break;
        }
        let payload = payload(store, row_key)?;
        let timer = Timer { row_key: Bytes::copy_from_slice(row_key), row };
        found.push(Unsealed { timer, tenant: queue.row.tenant, queue: queue.row.name, payload });
    }
    Ok(found)
}

#[cfg(test)]
#[path = "timer_tests.rs"]
mod tests;
