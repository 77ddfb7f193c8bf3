//! The memory that a window needs, told from its headers.
//!
//! Owns: what is counted and how much of it.
//! Leaves to others: taking it (`turns`), index and fetches (`read`), each format's own (`encode`).
//! Upholds: `memory-bounded`.
//!
//! Counted is the most that may be held at one moment, so that the sum over all windows in work stays
//! within the budget whatever the records are. A small window needs little: fifty queues that keep up
//! fit beside a backfill.

use crate::encode::Encoding;
use crate::encode::pieces::PIECE_BYTES;
use crate::layout::Layout;
use crate::ranges::RANGES_MAX;
use crate::read::{Room, index_bytes};
use crate::window::Shape;
use queen_core::limits::NAME_BYTES_MAX;

/// Pieces of an object that is encoded while it is sent: one in the making, one between two threads,
/// two being sent.
const PIECES: u64 = 4;
/// Least room for partitions, bytes: some six thousand of them at a time.
const ROOM_MIN: u64 = 1 << 20;
/// Line, range and JSON of a partition in summary and manifest, bytes beside its name.
const RANGE_BYTES: u64 = 288;
/// Copies of a partition's name there.
const RANGE_NAMES: u64 = 4;
/// An object of its own in the manifest, bytes beside the name.
const OBJECT_BYTES: u64 = 1_536;

/// Memory while a window is encoded, bytes.
pub fn working_bytes(shape: &Shape, encoding: Encoding, room: Room) -> u64 {
    // Lines are longer than what is weighed of them, but less than twice as long.
    let pieces = shape.weight.saturating_mul(2 * PIECES).min(PIECES * PIECE_BYTES as u64);
    index_bytes(shape, room) + encoding.memory(shape.run_bytes_max) + pieces
}

/// Memory of what the manifest says, until it is sent, bytes.
pub fn manifest_bytes(shape: &Shape, layout: Layout) -> u64 {
    let listed = shape.partitions.min(RANGES_MAX as u64);
    let names = shape.name_bytes.min((RANGES_MAX * NAME_BYTES_MAX) as u64);
    let objects = match layout {
        Layout::Merged => 0,
        Layout::PerPartition => shape.partitions * OBJECT_BYTES + shape.name_bytes * RANGE_NAMES,
    };
    listed * RANGE_BYTES + names * RANGE_NAMES + objects + (64 << 10)
}

/// Memory for the partitions of a window, out of a budget of `limit` bytes: of what the rest of the
/// least window leaves, half. A window of more partitions is indexed part by part.
pub fn index_room(limit: u64, encoding: Encoding) -> Room {
    Room::of((limit.saturating_sub(least_bytes(encoding)) / 2).max(ROOM_MIN))
}

/// Objects, at most, that are encoded while they are sent and whose thread may have to wait: each has
/// been given the memory for all its pieces on their way.
pub fn large_at_once(limit: u64) -> usize {
    (limit / (PIECES * PIECE_BYTES as u64)) as usize
}

/// Memory to give out of a budget of `limit` bytes. An eighth is left: half of it to remember names by, and
/// half for what nobody counts, connections and what the allocator keeps for itself; less of it where
/// a window would not fit any more.
pub fn given_out(limit: u64, encoding: Encoding) -> u64 {
    (limit - limit / 8).max(least_bytes(encoding).min(limit))
}

/// Memory, of the eighth that [`given_out`] leaves, to remember names by while windows fill.
pub fn for_filling(limit: u64) -> u64 {
    limit / 16
}

/// Least memory with which every window can be encoded whose records are not very long, bytes.
pub fn least_bytes(encoding: Encoding) -> u64 {
    let shape = Shape {
        records: u64::MAX,
        weight: u64::MAX,
        runs: u64::MAX,
        run_bytes_max: 1 << 20,
        partitions: 1,
        name_bytes: NAME_BYTES_MAX as u64,
    };
    let room = Room::of(ROOM_MIN);
    working_bytes(&shape, encoding, room) + manifest_bytes(&shape, Layout::Merged)
}

#[cfg(test)]
#[path = "needs_tests.rs"]
mod tests;
