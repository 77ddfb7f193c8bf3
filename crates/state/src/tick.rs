//! Ticks: time passes.
//!
//! Owns: the bounded share of each kind of work that a tick takes. Leaves to others: the work.

use crate::retention::{self, Holds};
use crate::tables::StorageError;
use crate::{Storage, gone, kv, lease, step::Step, stream, trace, transaction_id};
use queen_core::command::{BreakHolds, Tick};
use queen_core::reply::{Reply, Ticked};

/// Leases ended by one tick.
const LEASES: usize = 1024;
/// Transaction ids forgotten by one tick, about.
const TRANSACTION_IDS: usize = 4096;
/// KV rows removed by one tick.
const KV_ROWS: usize = 1024;
/// Rows of deleted queues and groups removed by one tick.
const GONE_ROWS: usize = 4096;
/// Trace events that one tick lets go.
const TRACES: usize = 256;
/// Runs trimmed by one tick, over all its queues.
const RUNS: usize = 1000;

/// Takes a bounded step of everything that is due.
pub(crate) fn apply<S: Storage>(
    step: &mut Step<'_, S>,
    tick: &Tick,
) -> Result<Reply, StorageError> {
    let mut more = lease::sweep(step, LEASES)?;
    more |= transaction_id::expire(step, TRANSACTION_IDS)?;
    more |= kv::sweep(step.stamp, KV_ROWS, step.store)?;
    more |= gone::sweep(step, GONE_ROWS)?;
    more |= trace::expire(step, TRACES)?;
    stream::look_at_sources(step)?;
    let share = (RUNS / tick.retention.len().max(1)).max(1);
    for queue in &tick.retention {
        more |= retention::trim(step, *queue, share, Holds::Kept)?;
    }
    Ok(Reply::Ticked(Ticked { stamp: step.stamp, more }))
}

/// Takes a bounded step of retention that no hold stops.
pub(crate) fn break_holds<S: Storage>(
    step: &mut Step<'_, S>,
    command: &BreakHolds,
) -> Result<Reply, StorageError> {
    let mut more = false;
    let share = (RUNS / command.queues.len().max(1)).max(1);
    for queue in &command.queues {
        more |= retention::trim(step, *queue, share, Holds::Broken)?;
    }
    Ok(Reply::Ticked(Ticked { stamp: step.stamp, more }))
}
