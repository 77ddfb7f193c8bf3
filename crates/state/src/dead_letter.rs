//! Dead letters: filing a message that a group gave up.
//!
//! Owns: the copy and its ids. Leaves to others: when (`ack`), replaying and purging
//! (`dead_letter_admin`).

use crate::Storage;
use crate::run;
use crate::step::{Partition, Step};
use crate::tables::StorageError;
use queen_core::row::dead_letter::{DeadLetterByIdRow, DeadLetterRow};
use queen_core::row::{Row, key};
use queen_core::table::Table;
use queen_core::{MessageId, Offset, PartitionId, Stamp};

/// Why, when the consumer does not say.
pub const DEFAULT_ERROR: &str = "Retries exhausted";

/// A message that a group gives up.
pub(crate) struct Failed<'a> {
    pub(crate) partition: &'a Partition,
    pub(crate) group: &'a str,
    pub(crate) offset: Offset,
    /// Failed acks before this one.
    pub(crate) retries: u32,
    pub(crate) error: &'a Option<&'a str>,
}

/// The id of the dead letter that is number `number` of those filed by the command stamped `stamp`.
fn mint(stamp: Stamp, number: u32) -> [u8; 16] {
    // A partition id that no partition has: dead letter ids are never those of messages.
    MessageId::mint(stamp, PartitionId(u64::MAX - 1), Offset(u64::from(number))).0
}

/// Files a copy of a message; `number` counts the letters of the command.
pub(crate) fn file<S: Storage>(
    step: &mut Step<'_, S>,
    failed: &Failed<'_>,
    number: u32,
) -> Result<(), StorageError> {
    let Failed { partition, offset, .. } = *failed;
    let id = partition.row.id;
    let mut letter = DeadLetterRow {
        id: mint(step.stamp, number),
        partition: id,
        partition_name: partition.name.to_string(),
        offset,
        group: failed.group.to_owned(),
        transaction_id: String::new(),
        message_id: [0; 16],
        error: failed.error.unwrap_or(DEFAULT_ERROR).to_owned(),
        retries: failed.retries,
        created: Stamp::ZERO,
        failed: step.stamp,
        trace_id: None,
        producer: None,
        encrypted: false,
        payload: Vec::new(),
    };
    // Retention may have taken the message while it was out, or the disk; then only its place is known.
    let kept = offset >= partition.row.log_start && offset < partition.row.next;
    let run = if kept { Some(run::kept_at(&*step.store, id, offset)?) } else { None };
    let frames = match &run {
        Some(run) => run::frames(&*step.store, partition.queue, run)?,
        None => None,
    };
    if let (Some(run), Some(frames)) = (run, frames) {
        let frame = run::frame_in(&frames, &run, offset)?;
        let minted = MessageId::mint(run.row.stamp, id, offset);
        letter.message_id = frame.message_id.unwrap_or(minted.0);
        letter.transaction_id = match frame.transaction_id {
            Some(own) => own.to_owned(),
            None => MessageId(letter.message_id).to_string(),
        };
        letter.created = run.row.stamp;
        letter.trace_id = frame.trace_id;
        letter.producer = frame.producer.map(str::to_owned);
        letter.encrypted = frame.encrypted;
        letter.payload = frame.payload.to_vec();
    }
    let letter_key = key::dead_letter(partition.queue, step.stamp, number);
    step.store.insert(Table::DeadLetter, &letter_key, &letter.encode());
    step.insert(&key::dead_letter_by_id(letter.id), &DeadLetterByIdRow(letter_key));
    Ok(())
}
