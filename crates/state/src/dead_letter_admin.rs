//! Replaying and purging dead letters.
//!
//! Owns: finding a dead letter by its id or its message, and what a replay pushes. Leaves to others:
//! filing dead letters (`ack`), the push itself (`push`), sealing payloads (the caller).

use crate::step::{Step, bad_row, decode, get, partition_with_id, queue_with_id};
use crate::tables::StorageError;
use crate::{Reading, Storage, push};
use bytes::Bytes;
use queen_core::command::{DeadLetterRef, PurgeDeadLetters, PushGroup, ReplayDeadLetter};
use queen_core::frame::Frame;
use queen_core::reply::{PushedItem, Replayed, Reply};
use queen_core::row::dead_letter::DeadLetterByIdRow;
use queen_core::row::{DeadLetterRow, key};
use queen_core::table::Table;
use queen_core::{Code, Error, QueueId, TenantId};

/// Dead letters that one purge command looks at; the caller goes on while it removes any.
pub const PURGE_ROWS: usize = 10_000;

/// Rows looked at together.
const BATCH: usize = 64;

/// A dead letter where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Its key in `DeadLetter`.
    pub key: Bytes,
    /// Its queue.
    pub queue: QueueId,
    /// Its row.
    pub row: DeadLetterRow,
}

/// Pushes a copy of a dead letter and removes it; `sealed` is its payload's envelope for where it
/// goes. `Replayed(None)`: there is no such letter.
///
/// Refused as `NotSealed` when the letter's own payload must not be stored there: it is an envelope
/// made for another partition, or in the clear and the queue is encrypted.
pub(crate) fn replay<S: Storage>(
    step: &mut Step<'_, S>,
    command: &ReplayDeadLetter<'_>,
    sealed: Option<&[u8]>,
) -> Result<Reply, StorageError> {
    let Some(letter) = find(&*step.store, command.tenant, command.letter)? else {
        return Ok(Reply::Replayed(None));
    };
    let Some(own) = queue_with_id(&*step.store, letter.queue)? else {
        return Ok(Reply::Replayed(None));
    };
    let row = letter.row;
    let (queue, partition) =
        (command.queue.unwrap_or(&own.row.name), command.partition.unwrap_or(&row.partition_name));
    let moved = queue != own.row.name || partition != row.partition_name;
    if sealed.is_none() && row.encrypted && moved {
        let text = "the dead letter's payload is sealed for the partition it was in".to_owned();
        return Ok(Reply::Refused(Error::new(Code::NotSealed, text)));
    }
    let transaction_id = format!("dlq:{}", uuid_text(row.id));
    let frame = Frame {
        transaction_id: Some(&transaction_id),
        trace_id: row.trace_id,
        producer: row.producer.as_deref(),
        message_id: None,
        encrypted: sealed.is_some() || row.encrypted,
        payload: sealed.unwrap_or(&row.payload),
    };
    let mut frames = Vec::new();
    frame.encode(&mut frames);
    let group = PushGroup {
        queue,
        partition,
        count: 1,
        has_transaction_ids: true,
        text_bytes: u32::try_from(frame.text_bytes()).unwrap_or(u32::MAX),
        frames: &frames,
    };
    let pushed = match push::append_group(step, command.tenant, &group)? {
        Ok(pushed) => pushed,
        Err(refusal) => return Ok(Reply::Refused(refusal)),
    };
    let item = pushed.items.into_iter().next().unwrap_or(PushedItem::Queued(pushed.first_offset));
    let replayed = Replayed {
        letter: row.id,
        original_transaction_id: row.transaction_id.clone(),
        group: row.group.clone(),
        queue: queue.to_owned(),
        partition: partition.to_owned(),
        partition_id: pushed.partition,
        item,
        stamp: pushed.stamp,
    };
    remove(step, &letter.key, row.id);
    Ok(Reply::Replayed(Some(replayed)))
}

/// Removes dead letters. `Purged`: how many went; of a queue at most [`PURGE_ROWS`] are looked at.
pub(crate) fn purge<S: Storage>(
    step: &mut Step<'_, S>,
    command: &PurgeDeadLetters<'_>,
) -> Result<Reply, StorageError> {
    match command {
        PurgeDeadLetters::One { tenant, letter } => match find(&*step.store, *tenant, *letter)? {
            None => Ok(Reply::Purged(0)),
            Some(letter) => {
                remove(step, &letter.key, letter.row.id);
                Ok(Reply::Purged(1))
            }
        },
        PurgeDeadLetters::Queue { tenant, queue, group } => match step.queue(*tenant, queue)? {
            None => Ok(Reply::Purged(0)),
            Some(queue) => purge_queue(step, queue.id, *group).map(Reply::Purged),
        },
    }
}

fn purge_queue<S: Storage>(
    step: &mut Step<'_, S>,
    queue: QueueId,
    group: Option<&str>,
) -> Result<u64, StorageError> {
    let prefix = key::queue(queue);
    let (mut from, to) = (prefix.to_vec(), key::after_prefix(&prefix));
    let (mut seen, mut removed) = (0, 0);
    loop {
        let rows = step.store.scan(Table::DeadLetter, &from, &to, BATCH)?;
        let Some((last, _)) = rows.last() else { return Ok(removed) };
        from = last.to_vec();
        from.push(0);
        for (key, value) in &rows {
            let row: DeadLetterRow = decode(key, value)?;
            seen += 1;
            if group.is_none_or(|group| group == row.group) {
                remove(step, key, row.id);
                removed += 1;
            }
        }
        if seen >= PURGE_ROWS && removed > 0 {
            return Ok(removed);
        }
    }
}

fn remove<S: Storage>(step: &mut Step<'_, S>, key: &[u8], id: [u8; 16]) {
    step.store.delete(Table::DeadLetter, key);
    step.store.delete(Table::DeadLetterById, &key::dead_letter_by_id(id));
}

/// A dead letter of a tenant. By message it costs a look at each letter of the queue that is newer.
pub fn find(
    store: &impl Reading,
    tenant: TenantId,
    letter: DeadLetterRef<'_>,
) -> Result<Option<Letter>, StorageError> {
    let found = match letter {
        DeadLetterRef::Id(id) => by_id(store, id)?,
        DeadLetterRef::Message { partition, transaction_id } => {
            let Some(partition) = partition_with_id(store, partition)? else { return Ok(None) };
            newest(store, partition.queue, |row| {
                row.partition == partition.row.id && row.transaction_id == transaction_id
            })?
        }
    };
    let Some(letter) = found else { return Ok(None) };
    let queue = queue_with_id(store, letter.queue)?;
    let owned = queue.is_some_and(|q| q.row.tenant == tenant && q.row.deleted.is_none());
    Ok(Some(letter).filter(|_| owned))
}

fn by_id(store: &impl Reading, id: [u8; 16]) -> Result<Option<Letter>, StorageError> {
    let Some(place) = get::<DeadLetterByIdRow>(store, &key::dead_letter_by_id(id))? else {
        return Ok(None);
    };
    let letter_key = Bytes::copy_from_slice(&place.0);
    match get::<DeadLetterRow>(store, &letter_key)? {
        Some(row) => letter_at(letter_key, row).map(Some),
        None => Err(bad_row(Table::DeadLetterById, &id, "its dead letter is not there")),
    }
}

fn newest(
    store: &impl Reading,
    queue: QueueId,
    wanted: impl Fn(&DeadLetterRow) -> bool,
) -> Result<Option<Letter>, StorageError> {
    let prefix = key::queue(queue);
    let mut to = key::after_prefix(&prefix);
    loop {
        let rows = store.scan_back(Table::DeadLetter, &prefix, &to, BATCH)?;
        let Some((last, _)) = rows.last() else { return Ok(None) };
        to = last.to_vec();
        for (key, value) in rows {
            let row: DeadLetterRow = decode(&key, &value)?;
            if wanted(&row) {
                return letter_at(key, row).map(Some);
            }
        }
    }
}

fn letter_at(key: Bytes, row: DeadLetterRow) -> Result<Letter, StorageError> {
    match key::dead_letter_parts(&key) {
        Some((queue, ..)) => Ok(Letter { key, queue, row }),
        None => Err(bad_row(Table::DeadLetter, &key, "a queue, a stamp and a number")),
    }
}

/// The hyphenated text of a dead letter's id.
pub fn uuid_text(id: [u8; 16]) -> String {
    queen_core::MessageId(id).to_string()
}

#[cfg(test)]
#[path = "dead_letter_admin_tests.rs"]
mod tests;
