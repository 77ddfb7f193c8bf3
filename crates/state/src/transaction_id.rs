//! Transaction ids: which are known, and which message an ack means.
//!
//! Owns: the memory of ids that producers gave, its expiry, and finding a message by its id. Leaves
//! to others: what follows (`push`, `ack`).
//!
//! A message without an id of its own has its message id's text as transaction id: that says where
//! the message lies, so no row is kept for it. The dedup window decides what is a duplicate; rows
//! live for the window, but at least [`ACK_MEMORY_SECONDS_MIN`], so that acks find their message.

use crate::run::{self, Run};
use crate::step::{Partition, Step, decode, get, parts};
use crate::tables::StorageError;
use crate::{Reading, Storage};
use bytes::Bytes;
use queen_core::frame::Frames;
use queen_core::limits::ACK_MEMORY_SECONDS_MIN;
use queen_core::row::transaction_id::hash;
use queen_core::row::{CursorRow, TransactionIdExpiryRow, TransactionIdRow, TransactionPlace, key};
use queen_core::table::Table;
use queen_core::{MessageId, Offset, PartitionId, Stamp};
use std::collections::HashMap;

/// Hashes in one expiry row.
const CHUNK: usize = 512;
/// Consumed messages among which an ack is looked for when its id's row is gone.
const HISTORY_MESSAGES: u64 = 65_536;
/// Bytes of log read for that, at most, per command.
pub(crate) const HISTORY_BYTES: u64 = 32 << 20;

/// The run whose frames were looked at last.
#[derive(Default)]
struct LastRun {
    run: Option<(Run, Bytes)>,
}

impl LastRun {
    /// Whether the message at an offset has this transaction id; `None` when the log, or the disk, has lost
    /// it.
    fn has_id(
        &mut self,
        store: &impl Reading,
        partition: &Partition,
        offset: Offset,
        id: &str,
    ) -> Result<Option<bool>, StorageError> {
        if offset < partition.row.log_start {
            return Ok(None);
        }
        let (run, frames) = match self.run.take() {
            Some((run, frames)) if run.first <= offset && offset < run.end() => (run, frames),
            _ => {
                let run = run::kept_at(store, partition.row.id, offset)?;
                let Some(frames) = run::frames(store, partition.queue, &run)? else {
                    return Ok(None);
                };
                (run, frames)
            }
        };
        let same = run::has_id(&run::frame_in(&frames, &run, offset)?, id);
        self.run = Some((run, frames));
        Ok(Some(same))
    }
}

/// What is known of an id.
pub(crate) enum Found {
    /// Its message is there.
    Duplicate(TransactionPlace),
    /// It is new; its row as it is, empty when there is none.
    Others(TransactionIdRow),
}

/// A new message with an id of its own.
pub(crate) struct New {
    pub(crate) hash: u64,
    pub(crate) offset: Offset,
    /// The row of the hash before the push.
    pub(crate) others: TransactionIdRow,
}

/// Looks ids of a partition up for a push.
pub(crate) struct Known<'p> {
    partition: &'p Partition,
    last: LastRun,
}

impl<'p> Known<'p> {
    pub(crate) fn new(partition: &'p Partition) -> Known<'p> {
        Known { partition, last: LastRun::default() }
    }

    /// Looks for the stored message that has this id and is within the window.
    ///
    /// Exact: a row is only a hash, so the log is asked. Where retention has taken the message, the
    /// hash has to do.
    pub(crate) fn look_up<S: Storage>(
        &mut self,
        step: &Step<'_, S>,
        hash: u64,
        id: &str,
        window: u64,
    ) -> Result<Found, StorageError> {
        if let Some(place) = self.minted(step, id, window)? {
            return Ok(Found::Duplicate(place));
        }
        let key = key::transaction_id(self.partition.row.id, hash);
        let row = get::<TransactionIdRow>(&*step.store, &key)?.unwrap_or_default();
        for place in row.0.iter().rev() {
            let within = place.stamp.plus_seconds(window) > step.stamp;
            if within
                && self.last.has_id(&*step.store, self.partition, place.offset, id)?.unwrap_or(true)
            {
                return Ok(Found::Duplicate(*place));
            }
        }
        Ok(Found::Others(row))
    }

    /// The stored message without an id of its own whose message id's text is this id.
    fn minted<S: Storage>(
        &mut self,
        step: &Step<'_, S>,
        id: &str,
        window: u64,
    ) -> Result<Option<TransactionPlace>, StorageError> {
        let Some(found) = minted(&*step.store, self.partition, &mut None, id)? else {
            return Ok(None);
        };
        let (offset, stamp) = (found.offset, found.stamp);
        let place = TransactionPlace { offset, stamp, expires: stamp };
        Ok(Some(place).filter(|_| stamp.plus_seconds(window) > step.stamp))
    }
}

/// A message that a minted id names.
struct Minted {
    offset: Offset,
    stamp: Stamp,
}

/// The message whose minted message id has this text. One that retention has taken is found as well.
///
/// `near` is the run of the last one found: the ids of a batch mostly lie in one run, which is then
/// looked up once.
fn minted(
    store: &impl Reading,
    partition: &Partition,
    near: &mut Option<Run>,
    id: &str,
) -> Result<Option<Minted>, StorageError> {
    let Some(place) = MessageId::parse(id).and_then(|id| id.minted_at()) else { return Ok(None) };
    let row = &partition.row;
    let offset = place.offset_below(row.next).filter(|offset| place.matches(row.id, *offset));
    let stamped = place.stamp >= row.created && place.stamp <= row.last;
    let Some(offset) = offset.filter(|_| stamped) else { return Ok(None) };
    let found = Some(Minted { offset, stamp: place.stamp });
    if offset < row.log_start {
        return Ok(found);
    }
    let run = match near.filter(|run| run.first <= offset && offset < run.end()) {
        Some(run) => run,
        None => *near.insert(run::kept_at(store, row.id, offset)?),
    };
    if run.row.stamp != place.stamp {
        return Ok(None);
    }
    if run.row.own_ids {
        let Some(frames) = run::frames(store, partition.queue, &run)? else { return Ok(found) };
        if run::own_id(&run::frame_in(&frames, &run, offset)?).is_some() {
            return Ok(None);
        }
    }
    Ok(found)
}

/// Remembers the ids of new messages, ascending offsets.
pub(crate) fn remember<S: Storage>(
    step: &mut Step<'_, S>,
    partition: PartitionId,
    window: u64,
    mut added: Vec<New>,
) -> Result<(), StorageError> {
    let stamp = step.stamp;
    let expires = stamp.plus_seconds(window.max(ACK_MEMORY_SECONDS_MIN));
    let mut hashes: Vec<u64> = added.iter().map(|new| new.hash).collect();
    hashes.sort_unstable();
    let collide = hashes.windows(2).any(|pair| pair[0] == pair[1]);
    for new in &mut added {
        let key = key::transaction_id(partition, new.hash);
        if collide {
            // A row may have come to be within this very push.
            new.others = get(&*step.store, &key)?.unwrap_or_default();
        }
        let fresh = new.others.0.is_empty();
        new.others.0.push(TransactionPlace { offset: new.offset, stamp, expires });
        if fresh {
            step.insert(&key, &new.others);
        } else {
            step.put(&key, &new.others);
        }
    }
    for chunk in added.chunks(CHUNK) {
        // The offset tells chunks of one partition and expiry apart: no two share a message.
        let number = chunk[0].offset.0 as u32;
        let key = key::transaction_id_expiry(expires, partition, number);
        let hashes = chunk.iter().map(|new| new.hash.to_be_bytes()).collect();
        step.insert(&key, &TransactionIdExpiryRow(hashes));
    }
    Ok(())
}

/// Forgets ids whose time is over, about `limit` of them; whether more are due.
pub(crate) fn expire<S: Storage>(
    step: &mut Step<'_, S>,
    limit: usize,
) -> Result<bool, StorageError> {
    let end = key::transaction_id_expiry(Stamp(step.stamp.0 + 1), PartitionId(0), 0);
    let mut forgotten = 0;
    while forgotten < limit {
        let due = step.store.scan(Table::TransactionIdExpiry, &[], &end, 8)?;
        if due.is_empty() {
            return Ok(false);
        }
        for (expiry_key, value) in due {
            let found = key::transaction_id_expiry_parts(&expiry_key);
            let (_, partition, _) = parts(Table::TransactionIdExpiry, &expiry_key, found)?;
            let TransactionIdExpiryRow(hashes) = decode(&expiry_key, &value)?;
            forgotten += hashes.len();
            for hash in hashes {
                forget(step, partition, u64::from_be_bytes(hash))?;
            }
            step.store.delete(Table::TransactionIdExpiry, &expiry_key);
        }
    }
    Ok(true)
}

fn forget<S: Storage>(
    step: &mut Step<'_, S>,
    partition: PartitionId,
    hash: u64,
) -> Result<(), StorageError> {
    let key = key::transaction_id(partition, hash);
    if let Some(TransactionIdRow(mut places)) = get(&*step.store, &key)? {
        places.retain(|place| place.expires > step.stamp);
        if places.is_empty() {
            step.store.delete(Table::TransactionId, &key);
        } else {
            step.put(&key, &TransactionIdRow(places));
        }
    }
    Ok(())
}

/// Finds the messages that the acks of one partition mean.
pub(crate) struct Resolver<'p> {
    partition: &'p Partition,
    cursor: CursorRow,
    now: Stamp,
    last: LastRun,
    /// The run of the minted id found last.
    near: Option<Run>,
    /// Hashes of the ids of the batch that is out, and of what was consumed before it, as far as
    /// their rows may be gone. Read once, when an id needs it.
    aged: Option<HashMap<u64, Offset>>,
    /// Bytes of log that the command may still read of what was consumed.
    history: &'p mut u64,
}

impl<'p> Resolver<'p> {
    pub(crate) fn new(
        partition: &'p Partition,
        cursor: CursorRow,
        now: Stamp,
        history: &'p mut u64,
    ) -> Resolver<'p> {
        let last = LastRun::default();
        Resolver { partition, cursor, now, last, near: None, aged: None, history }
    }

    /// The offset of the message that has this transaction id, if it can still be told.
    ///
    /// Of several, the one that was delivered and is not settled; then the first not settled; then
    /// the last settled.
    pub(crate) fn resolve(
        &mut self,
        store: &impl Reading,
        id: &str,
    ) -> Result<Option<Offset>, StorageError> {
        if let Some(found) = minted(store, self.partition, &mut self.near, id)? {
            return Ok(Some(found.offset));
        }
        let hash = hash(id);
        let key = key::transaction_id(self.partition.row.id, hash);
        let places = get::<TransactionIdRow>(store, &key)?.unwrap_or_default().0;
        if let [place] = places[..] {
            return Ok(Some(place.offset));
        }
        let (mut ahead, mut behind) = (None, None);
        for place in places {
            let TransactionPlace { offset, .. } = place;
            if self.last.has_id(store, self.partition, offset, id)? == Some(false) {
                continue;
            }
            if offset >= self.cursor.next {
                ahead = ahead.or(Some(offset));
            } else {
                behind = Some(offset);
            }
        }
        if let Some(offset) = ahead.or(behind) {
            return Ok(Some(offset));
        }
        let aged = match self.aged.take() {
            Some(aged) => aged,
            None => self.read_aged(store)?,
        };
        let found = aged.get(&hash).copied();
        self.aged = Some(aged);
        match found {
            Some(offset) => {
                let same = self.last.has_id(store, self.partition, offset, id)?;
                Ok(Some(offset).filter(|_| same == Some(true)))
            }
            None => Ok(None),
        }
    }

    /// Ids whose rows may be gone: of the batch that is out, then of the messages before it.
    fn read_aged(&mut self, store: &impl Reading) -> Result<HashMap<u64, Offset>, StorageError> {
        let mut ids = HashMap::new();
        let row = &self.partition.row;
        let next = self.cursor.next.max(row.log_start);
        let mut at = next;
        while at < self.cursor.delivered.min(row.next) {
            let run = run::kept_at(store, row.id, at)?;
            self.read_run(store, &run, &mut ids)?;
            at = run.end();
        }
        let oldest = Offset(next.0.saturating_sub(HISTORY_MESSAGES)).max(row.log_start);
        let mut at = next;
        while at > oldest && *self.history > 0 {
            let run = run::kept_at(store, row.id, Offset(at.0 - 1))?;
            let read = self.read_run(store, &run, &mut ids)?;
            *self.history = self.history.saturating_sub(read);
            at = run.first;
        }
        Ok(ids)
    }

    /// Adds the ids of a run, unless their rows must be there; gives the bytes read.
    fn read_run(
        &self,
        store: &impl Reading,
        run: &Run,
        ids: &mut HashMap<u64, Offset>,
    ) -> Result<u64, StorageError> {
        let rows_live = run.row.stamp.plus_seconds(ACK_MEMORY_SECONDS_MIN) > self.now;
        if rows_live || !run.row.own_ids {
            return Ok(0);
        }
        let frames = run::frames(store, self.partition.queue, run)?.unwrap_or_default();
        for (index, frame) in Frames::new(&frames).enumerate() {
            let frame = frame.map_err(|bad| StorageError(bad.to_string()))?;
            if let Some(id) = run::own_id(&frame) {
                ids.entry(hash(&id)).or_insert(run.first.plus(index as u64));
            }
        }
        Ok(run.row.run_len())
    }
}

/// The newest message of a partition that has this transaction id, if its row or its log is kept.
pub(crate) fn find(
    store: &impl Reading,
    partition: &Partition,
    id: &str,
) -> Result<Option<Offset>, StorageError> {
    if let Some(found) = minted(store, partition, &mut None, id)? {
        return Ok(Some(found.offset));
    }
    let key = key::transaction_id(partition.row.id, hash(id));
    let places = get::<TransactionIdRow>(store, &key)?.unwrap_or_default().0;
    let mut last = LastRun::default();
    for place in places.into_iter().rev() {
        if last.has_id(store, partition, place.offset, id)?.unwrap_or(true) {
            return Ok(Some(place.offset));
        }
    }
    Ok(None)
}
