//! Holds: retention waits for a sink, but not for ever.
//!
//! Owns: up to where a hold keeps a queue's log, and what an operator must know of it. Leaves to
//! others: trimming (`retention`), how far a sink has come (`lost`).
//!
//! A hold keeps what its sink has not committed, until it is as old as the hold's cap; then it goes,
//! and is listed as lost. A full disk ends a hold too. `maxWaitTimeSeconds` knows no hold. A pinned
//! window outlasts both; what lies behind it does not.

use crate::step::Queue;
use crate::tables::StorageError;
use crate::timeline::{self, Bounds, LogPosition};
use crate::{Reading, lost};
use queen_core::Stamp;

/// An operator is warned so long before a hold ends, or at 6/7 of a cap shorter than a week.
const WARN_SECONDS: u64 = 86_400;

/// How a hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It keeps records that retention would take.
    Holding,
    /// It does, and will soon have to give them up.
    Ending,
    /// Its cap is reached: records go that no sink has copied.
    Ended,
}

/// A hold that keeps records which retention would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Stamp of the oldest of them.
    pub oldest: Stamp,
    /// They are given up at this stamp.
    pub ends: Stamp,
    /// How it stands.
    pub phase: Phase,
}

/// What a queue's hold keeps begins here: what its sink has not committed and the cap does not give
/// up. [`Stamp::MAX`] without a hold.
pub(crate) fn floor(
    store: &impl Reading,
    queue: &Queue,
    now: Stamp,
) -> Result<Stamp, StorageError> {
    let options = &queue.row.options;
    if options.retention_sink_hold.is_empty() {
        return Ok(Stamp::MAX);
    }
    let last_resort = now.minus_seconds(cap(queue));
    let copied = lost::position(store, &options.retention_sink_hold, &queue.row, now)?;
    Ok(copied.map_or(last_resort, |copied| copied.max(last_resort)))
}

fn cap(queue: &Queue) -> u64 {
    queue.row.options.retention_sink_hold_max_seconds.max(0) as u64
}

/// What a queue's hold keeps now; `None` when it keeps nothing that would go without it.
///
/// Reads one header of the log.
pub fn held(store: &impl Reading, queue: &Queue, now: Stamp) -> Result<Option<Held>, StorageError> {
    let options = &queue.row.options;
    let ages = [options.retention_seconds, options.completed_retention_seconds];
    let age = ages.into_iter().filter(|age| *age > 0).min();
    let Some(age) = age.filter(|_| options.retention_enabled) else { return Ok(None) };
    if options.retention_sink_hold.is_empty() {
        return Ok(None);
    }
    let copied = lost::position(store, &options.retention_sink_hold, &queue.row, now)?;
    let begin = match copied {
        Some(copied) => timeline::position_at(store, queue.id, copied)?,
        None => LogPosition::default(),
    };
    let bounds = Bounds { runs: 1, bytes: u64::MAX, before: now.minus_seconds(age as u64) };
    let found = timeline::scan(store, queue.id, begin, bounds)?.runs;
    Ok(found.first().map(|run| {
        let (oldest, cap) = (run.header.stamp, cap(queue));
        let ends = oldest.plus_seconds(cap);
        let warn = oldest.plus_seconds(cap - WARN_SECONDS.min(cap / 7));
        let phase = match now {
            now if now >= ends => Phase::Ended,
            now if now >= warn => Phase::Ending,
            _ => Phase::Holding,
        };
        Held { oldest, ends, phase }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::World;

    #[test]
    fn a_hold_is_warned_of_a_day_before_its_cap_or_at_six_sevenths_of_a_short_one() {
        const DAY: u64 = 86_400;
        for (cap, warned) in [(7 * DAY, 6 * DAY), (30 * DAY, 29 * DAY), (70, 60)] {
            let mut world = World::new();
            world.configure("q", |options| {
                options.retention_enabled = true;
                options.retention_seconds = 10;
                options.retention_sink_hold = "lake".into();
                options.retention_sink_hold_max_seconds = cap as i64;
            });
            let oldest = world.push("q", "a", 1).stamp;
            let queue = crate::step::queue_with_id(&world.store, world.queue_id("q")).unwrap();
            let queue = queue.unwrap();
            let at =
                |seconds: u64| held(&world.store, &queue, oldest.plus_seconds(seconds)).unwrap();
            assert_eq!(at(9), None, "retention would not take it yet");
            let phase = |seconds| at(seconds).map(|held| held.phase);
            assert_eq!(phase(11), Some(Phase::Holding));
            assert_eq!(phase(warned - 1), Some(Phase::Holding));
            assert_eq!(phase(warned), Some(Phase::Ending));
            assert_eq!(phase(cap), Some(Phase::Ended));
            assert_eq!(at(11).map(|held| held.ends), Some(oldest.plus_seconds(cap)));
        }
    }
}
