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
use crate::window::Shape;
use queen_core::limits::NAME_BYTES_MAX;

/// Pieces of an object that is encoded while it is sent: one in the making, one between two threads,
/// two being sent.
const PIECES: u64 = 4;
/// Line, range and JSON of a partition in summary and manifest, bytes beside its name.
const RANGE_BYTES: u64 = 288;
/// Copies of a partition's name there.
const RANGE_NAMES: u64 = 4;
/// An object of its own in the manifest, bytes beside the name.
const OBJECT_BYTES: u64 = 1_536;

/// Memory while a window is encoded, bytes.
pub fn working_bytes(shape: &Shape, encoding: Encoding) -> u64 {
    // Lines are longer than what is weighed of them, but less than twice as long.
    let pieces = shape.weight.saturating_mul(2 * PIECES).min(PIECES * PIECE_BYTES as u64);
    shape.index_bytes() + encoding.memory(shape.run_bytes_max) + pieces
}

/// Memory of what the manifest says, until it is sent, bytes.
pub fn manifest_bytes(shape: &Shape, layout: Layout) -> u64 {
    let object = if layout == Layout::PerPartition { OBJECT_BYTES } else { 0 };
    shape.partitions * (RANGE_BYTES + object) + shape.name_bytes * RANGE_NAMES + (64 << 10)
}

/// Objects, at most, that are encoded while they are sent and whose thread may have to wait: each has
/// been given the memory for all its pieces on their way.
pub fn large_at_once(limit: u64) -> usize {
    (limit / (PIECES * PIECE_BYTES as u64)) as usize
}

/// Memory to give out of a budget of `limit` bytes. An eighth is left for what nobody counts: headers of
/// windows that fill, connections, what the allocator keeps for itself; less of it where a window
/// would not fit any more.
pub fn given_out(limit: u64, encoding: Encoding) -> u64 {
    (limit - limit / 8).max(least_bytes(encoding).min(limit))
}

/// Least memory with which every window can be encoded whose records are not very long, bytes.
pub fn least_bytes(encoding: Encoding) -> u64 {
    let shape = Shape {
        runs: u64::MAX,
        run_bytes_max: 1 << 20,
        weight: u64::MAX,
        partitions: 1,
        name_bytes: NAME_BYTES_MAX as u64,
    };
    working_bytes(&shape, encoding) + manifest_bytes(&shape, Layout::Merged)
}

#[cfg(test)]
#[path = "needs_tests.rs"]
mod tests;
