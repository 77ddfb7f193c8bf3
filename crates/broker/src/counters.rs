//! Counts of what the broker did since it started, for the metrics pages.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The count now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All counts.
#[derive(Debug, Default)]
pub struct Counters {
    /// Push requests answered 201.
    pub push_requests: Counter,
    /// Messages in them, in transactions and in cycles of streams.
    pub push_messages: Counter,
    /// Pops answered, empty ones included.
    pub pop_requests: Counter,
    /// Messages delivered.
    pub pop_messages: Counter,
    /// Ack requests answered 200.
    pub ack_requests: Counter,
    /// Items in them and in transactions.
    pub ack_messages: Counter,
    /// Transactions that were applied.
    pub transactions_committed: Counter,
    /// Transactions of which nothing was applied.
    pub transactions_rolled_back: Counter,
    /// Cycles of streams that were applied.
    pub stream_cycles_committed: Counter,
    /// Cycles of streams of which nothing was applied.
    pub stream_cycles_refused: Counter,
    /// Timers set, in transactions too.
    pub timers_scheduled: Counter,
    /// Timers taken away before their time, in transactions too.
    pub timers_cancelled: Counter,
    /// Timers that became messages while this node led.
    pub timers_fired: Counter,
    /// Tries of timers that were put off while this node led.
    pub timers_postponed: Counter,
    /// Messages of ephemeral queues dropped for the queue's bounds.
    pub ephemeral_dropped_bounds: Counter,
    /// Messages of ephemeral queues dropped for their age.
    pub ephemeral_dropped_ttl: Counter,
    /// Messages of ephemeral queues that a group failed to settle too often.
    pub ephemeral_dropped_retry: Counter,
    /// Ephemeral queues that lost messages as this node no longer owned them.
    pub ephemeral_wipes_owner: Counter,
    /// Ephemeral queues that lost messages by a reset.
    pub ephemeral_wipes_reset: Counter,
    /// Ephemeral queues that lost messages as they were deleted.
    pub ephemeral_wipes_deleted: Counter,
    /// Claims that went back because the client was gone.
    pub returned_leases: Counter,
    /// Commands let in.
    pub admitted: Counter,
    /// Commands refused with 429.
    pub refused_overloaded: Counter,
    /// Commands refused with 507.
    pub refused_full: Counter,
    /// Commands given to the log.
    pub proposed: Counter,
    /// Commands that the leader was asked for.
    pub forwarded: Counter,
    /// Commands proposed for other nodes.
    pub served: Counter,
    /// Tries of commands that nobody took, and that were made again.
    pub repeated: Counter,
    /// Snapshots of other nodes that took the place of the state.
    pub snapshots: Counter,
    /// Commands applied, those of a replay included.
    pub applied: Counter,
    /// Requests whose deadline passed before their command was applied.
    pub timeouts: Counter,
    /// Waiting pops rung awake.
    pub woken: Counter,
}
