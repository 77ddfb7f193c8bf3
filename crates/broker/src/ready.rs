//! Whether a pop would find something now, and if not, when time alone may bring it.
//!
//! Owns: the look before a claim is proposed, so that an empty poll costs no log entry. Leaves to
//! others: the claim itself (`queen-state`), which decides again; this look may err towards "now".

use queen_core::command::Pop;
use queen_core::limits::QUEUE_MODE_GROUP;
use queen_core::row::{GroupRow, key};
use queen_core::table::Table;
use queen_core::{GroupId, PartitionId, QueueId, Stamp};
use queen_state::query::{partition_ready_at, ready_at};
use queen_state::step::{get, partition_named, queue_named};
use queen_state::{Reading, StorageError};

/// Lease expiries looked through for one of the group's own.
const EXPIRIES_SEEN: usize = 8;

/// What a pop would find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// The queue, when there is one of the name.
    pub(crate) queue: Option<QueueId>,
    /// The group, when it is registered there.
    pub(crate) group: Option<GroupId>,
    /// A claim is worth an entry.
    pub(crate) claim: bool,
    /// Otherwise the stamp from which a claim may be worth one without anything being written.
    pub(crate) due: Option<Stamp>,
}

/// Looks for what `pop` asks, at `now` on the log clock.
pub(crate) fn look(view: &impl Reading, pop: &Pop<'_>, now: Stamp) -> Result<Look, StorageError> {
    let Some(queue) = queue_named(view, pop.tenant, pop.queue)? else {
        // A named group registers with a queue that is still to come; queue mode has nothing to say.
        return Ok(Look { claim: pop.group.is_some(), ..Look::default() });
    };
    let mut look = Look { queue: Some(queue.id), ..Look::default() };
    let name = pop.group.unwrap_or(QUEUE_MODE_GROUP);
    let Some(group) = get::<GroupRow>(view, &key::group(queue.id, name))? else {
        look.claim = true;
        return Ok(look);
    };
    look.group = Some(group.id);
    let at = match pop.partition {
        Some(name) => match partition_named(view, queue.id, name)? {
            Some(partition) => partition_ready_at(view, &queue, &group, &partition, now)?,
            None => None,
        },
        None => ready_at(view, &queue, &group)?,
    };
    if let Some(at) = at {
        look.found(at, now);
    }
    look_at_leases(view, group.id, now, &mut look)?;
    Ok(look)
}

/// Leases that end, here or elsewhere: the claim takes back those that are over.
fn look_at_leases(
    view: &impl Reading,
    group: GroupId,
    now: Stamp,
    look: &mut Look,
) -> Result<(), StorageError> {
    if look.claim {
        return Ok(());
    }
    let from = key::lease_expiry(Stamp::ZERO, GroupId(0), PartitionId(0));
    let to = key::lease_expiry(Stamp::MAX, GroupId(u32::MAX), PartitionId(u64::MAX));
    let rows = view.scan(Table::LeaseExpiry, &from, &to, EXPIRIES_SEEN)?;
    let full = rows.len() == EXPIRIES_SEEN;
    let mut last = None;
    for (at, of, _) in rows.iter().filter_map(|(key, _)| key::lease_expiry_parts(key)) {
        if of == group {
            look.found(at, now);
            return Ok(());
        }
        last = Some(at);
    }
    if let (true, Some(at)) = (full, last) {
        // Ours may come after all of these: look again when they are over.
        look.later(at.max(Stamp(now.0.saturating_add(1_000_000))));
    }
    Ok(())
}

impl Look {
    fn found(&mut self, at: Stamp, now: Stamp) {
        if at <= now {
            self.claim = true;
        } else {
            self.later(at);
        }
    }

    fn later(&mut self, at: Stamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}
