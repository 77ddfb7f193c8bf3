//! What ephemeral queues take of the node's memory, and what was dropped of them.
//!
//! Owns: the sum, its bound, and what each kind of thing counts for. Leaves to others: what is refused
//! when there is no room (`queue`, `house`).
//!
//! A thing counts for its own bytes and for what the maps and allocations around it take, rounded up.
//! What is on its way in or out (bodies of requests, answers, pops that wait) does not count here.
//! Upholds: the sum never goes over its bound.

use crate::counters::Counters;
use std::sync::Arc;

/// A message beside its payload: its place on the shelf and in its ring.
pub(super) const MESSAGE_BYTES: u64 = 256;
/// A message that a group holds, or is given again.
pub(super) const HELD_BYTES: u64 = 192;
/// A group's cursor on a partition, beside its name.
pub(super) const CURSOR_BYTES: u64 = 512;
/// A partition, beside its name.
pub(super) const RING_BYTES: u64 = 512;
/// A queue, beside its name.
pub(super) const QUEUE_BYTES: u64 = 1024;

/// The sum.
pub(super) struct Ledger {
    used: u64,
    max: u64,
    pub(super) counters: Arc<Counters>,
}

impl Ledger {
    pub(super) fn new(max: u64, counters: Arc<Counters>) -> Ledger {
        Ledger { used: 0, max, counters }
    }

    /// Takes so many bytes, or none when there is no room for all of them.
    #[must_use]
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.max.saturating_sub(self.used);
        if fits {
            self.used += bytes;
        }
        fits
    }

    /// Gives bytes back.
    pub(super) fn give(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.used, "{bytes} of {} given back", self.used);
        self.used = self.used.saturating_sub(bytes);
    }

    /// The sum now.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Its bound.
    pub(super) fn max(&self) -> u64 {
        self.max
    }
}
