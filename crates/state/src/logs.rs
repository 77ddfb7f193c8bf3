//! The queue logs: where the messages lie.
//!
//! Owns: the trait and the place of a run. Leaves to others: files (`queen-store`), the bytes of a
//! run (`queen_core::run`).
//!
//! The rules decide every place (segment, position), so that the same log gives the same files on
//! every node and a replay writes the same bytes at the same place.

use crate::tables::StorageError;
use bytes::Bytes;
use queen_core::QueueId;
use serde::{Deserialize, Serialize};

/// Where a run lies: a queue's log, the segment file in it, the byte in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Queue incarnation whose log it is.
    pub queue: QueueId,
    /// Segment number, from 1, rising with the stamps.
    pub segment: u32,
    /// Byte position of the run's header in the segment.
    pub position: u64,
}

/// Reading queue logs.
pub trait QueueLogs {
    /// `len` bytes at `place`, all of them written before; fewer are an error that names the file.
    fn read(&self, place: Place, len: usize) -> Result<Bytes, StorageError>;

    /// The bytes of a whole run at `place`, its checksum looked at. `None`: they are damaged, and this
    /// node, which has the only copy, does without them; an operator has been told. Where others have
    /// theirs, damage is an error: what was filed here would differ from what they file.
    fn run(&self, place: Place, len: usize) -> Result<Option<Bytes>, StorageError> {
        let bytes = self.read(place, len)?;
        match queen_core::run::decode(&bytes) {
            Ok(_) => Ok(Some(bytes)),
            Err(bad) => Err(StorageError(format!("the run at {place:?} is damaged: {bad}"))),
        }
    }
}

/// Writing queue logs.
pub trait QueueLogsMut: QueueLogs {
    /// Writes a run's parts one after the other at `place`. A first place in a segment creates it.
    fn write(&mut self, place: Place, parts: &[&[u8]]) -> Result<(), StorageError>;

    /// Gives a segment's space back.
    ///
    /// Readers that hold the file may finish. The store may do it late: a replay from an older
    /// checkpoint must still find the segment.
    fn remove_segment(&mut self, queue: QueueId, segment: u32);

    /// Gives the space of a queue's whole log back, in the same way.
    fn remove_queue(&mut self, queue: QueueId);
}
