//! Holds: what queues keep for a sink, looked at with each round of retention.
//!
//! Owns: telling an operator: the warning before a hold ends, the event when it has, when the disk
//! ends it, and the lines of the pages. Leaves to others: what is held (`queen_state::hold`), the
//! rounds (`ticker`).

use crate::broker::{Broker, View};
use parking_lot::Mutex;
use queen_core::row::{QueueRow, key};
use queen_core::{QueueId, Stamp};
use queen_state::StorageError;
use queen_state::hold::{self, Phase};
use queen_state::step::{Queue, get};
use std::collections::{BTreeMap, BTreeSet};
use tracing::{info, warn};

/// A hold that keeps records which retention would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldQueue {
    /// The queue's name.
    pub queue: String,
    /// The sink that it waits for.
    pub sink: String,
    /// Stamp of the oldest record that only the hold keeps.
    pub oldest: Stamp,
    /// It is given up at this stamp.
    pub ends: Stamp,
    /// How the hold stands.
    pub phase: Phase,
}

/// The holds as the last round saw them.
#[derive(Default)]
pub(crate) struct Holds(Mutex<Known>);

#[derive(Default)]
struct Known {
    held: BTreeMap<QueueId, HeldQueue>,
    /// Those that the full disk has ended, once told.
    broken: BTreeSet<QueueId>,
}

/// Looks at the hold of a queue; `None` when it keeps nothing.
pub(crate) fn look(
    view: &View<'_>,
    queue: QueueId,
    now: Stamp,
) -> Result<Option<HeldQueue>, StorageError> {
    let Some(row) = get::<QueueRow>(view, &key::queue(queue))? else { return Ok(None) };
    if row.deleted.is_some() {
        return Ok(None);
    }
    let queue = Queue { id: queue, row };
    let held = hold::held(view, &queue, now)?;
    Ok(held.map(|held| HeldQueue {
        queue: queue.row.name,
        sink: queue.row.options.retention_sink_hold,
        oldest: held.oldest,
        ends: held.ends,
        phase: held.phase,
    }))
}

impl Holds {
    /// Takes what a round has seen, and tells what is new.
    pub(crate) fn seen(&self, found: BTreeMap<QueueId, HeldQueue>) {
        let mut known = self.0.lock();
        for (id, now) in &found {
            let before = known.held.get(id).map(|before| before.phase);
            if before == Some(now.phase) {
                continue;
            }
            let HeldQueue { queue, sink, oldest, ends, phase } = now;
            let (oldest, ends) = (oldest.to_iso(), ends.to_iso());
            match phase {
                Phase::Holding => info!(queue, sink, oldest, ends, "retention waits for the sink"),
                Phase::Ending => warn!(
                    queue,
                    sink,
                    oldest,
                    ends,
                    "a hold ends soon: records that the sink has not copied will go and be listed as \
                     lost; look at the sink, or raise retentionSinkHoldMaxSeconds"
                ),
                Phase::Ended => warn!(
                    queue,
                    sink,
                    oldest,
                    "a hold has ended: records that the sink has not begun to copy go, and are listed \
                     as lost"
                ),
            }
        }
        known.broken.retain(|id| found.contains_key(id));
        known.held = found;
    }

    /// The queues whose holds the full disk ends now; tells of each once.
    pub(crate) fn broken_by_disk(&self) -> Vec<QueueId> {
        let mut known = self.0.lock();
        let Known { held, broken } = &mut *known;
        for (id, HeldQueue { queue, sink, oldest, .. }) in held.iter() {
            if !broken.insert(*id) {
                continue;
            }
            let oldest = oldest.to_iso();
            warn!(
                queue,
                sink,
                oldest,
                "the disk is full, which ends a hold: records that the sink has not copied go and are \
                 listed as lost with the reason disk_full"
            );
        }
        held.keys().copied().collect()
    }
}

impl Broker {
    /// The holds that keep records which retention would take, as the last round saw them.
    pub fn holds(&self) -> Vec<HeldQueue> {
        self.shared.ticker.holds.0.lock().held.values().cloned().collect()
    }

    /// The sinks that were ever turned on for a tenant, in order of names.
    pub fn sinks(&self, tenant: queen_core::TenantId) -> Result<Vec<String>, queen_core::Error> {
        self.read(|view| {
            let mut kept = Vec::new();
            for sink in queen_state::lost::sinks(view, tenant)? {
                if queen_state::lost::is_known(view, tenant, &sink)? {
                    kept.push(sink);
                }
            }
            Ok(kept)
        })
    }
}
