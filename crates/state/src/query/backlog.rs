//! Backlogs: how much of a partition a group has still to get.
//!
//! Owns: the counts of one partition. Leaves to others: sums over partitions (the caller).

use crate::Reading;
use crate::group;
use crate::lease;
use crate::ready::{Visible, visible};
use crate::run;
use crate::step::{Partition, Queue};
use crate::tables::StorageError;
use queen_core::row::{CursorRow, GroupRow, PartitionRow};
use queen_core::{Offset, Stamp};

/// Where a group is in a partition. The kept messages are `completed + processing + pending`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Kept messages.
    pub total: u64,
    /// Settled, of those kept.
    pub completed: u64,
    /// Leased now.
    pub processing: u64,
    /// Neither.
    pub pending: u64,
    /// Of the pending: those that a pop would be given now.
    pub ready: u64,
}

/// Where a group is in a partition at `now`; without a group nothing is settled.
///
/// Costs a look-up of its cursor, and more for delayed queues.
pub fn of_group(
    store: &impl Reading,
    queue: &Queue,
    group: Option<&GroupRow>,
    partition: &Partition,
    now: Stamp,
) -> Result<Backlog, StorageError> {
    let row = &partition.row;
    let total = row.next.0 - row.log_start.0;
    let cursor = match group {
        Some(group) => group::cursor(store, group.id, row.id)?,
        None => None,
    };
    let next = match (&cursor, group) {
        (Some(cursor), _) => cursor.next.max(row.log_start),
        (None, Some(group)) => group::first_cursor(store, group, row)?.next,
        (None, None) => row.log_start,
    };
    let held = cursor.as_ref().and_then(|cursor| lease::live(cursor, now));
    let processing = held.map_or(0, |held| held.end.0.saturating_sub(next.0));
    let pending = row.next.0.saturating_sub(next.0 + processing);
    let ready = match held {
        Some(_) => 0,
        None => match visible(store, &queue.row.options, row, next, now)? {
            Visible::Now { first, end } => end.0 - first.0,
            _ => 0,
        },
    };
    let completed = total - processing.min(total) - pending.min(total - processing.min(total));
    Ok(Backlog { total, completed, processing, pending, ready })
}

/// Where the group furthest behind is in a partition, of those given.
pub fn furthest_behind(
    store: &impl Reading,
    queue: &Queue,
    groups: &[(String, GroupRow)],
    partition: &Partition,
    now: Stamp,
) -> Result<Backlog, StorageError> {
    let mut worst: Option<Backlog> = None;
    for (_, group) in groups {
        let one = of_group(store, queue, Some(group), partition, now)?;
        if worst.is_none_or(|worst| one.completed < worst.completed) {
            worst = Some(one);
        }
    }
    match worst {
        Some(worst) => Ok(worst),
        None => of_group(store, queue, None, partition, now),
    }
}

/// How far a group is behind in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Its cursor, if it has one.
    pub cursor: Option<CursorRow>,
    /// The offset it is at.
    pub next: Offset,
    /// Messages not settled.
    pub messages: u64,
    /// Stamp of the oldest of them.
    pub oldest: Option<Stamp>,
}

/// How far a group is behind in a partition.
pub fn lag(
    store: &impl Reading,
    group: &GroupRow,
    partition: &PartitionRow,
) -> Result<Lag, StorageError> {
    let cursor = group::cursor(store, group.id, partition.id)?;
    let next = match &cursor {
        Some(cursor) => cursor.next.max(partition.log_start),
        None => group::first_cursor(store, group, partition)?.next,
    };
    let messages = partition.next.0.saturating_sub(next.0);
    let oldest = match messages {
        0 => None,
        _ => Some(run::kept_at(store, partition.id, next)?.row.stamp),
    };
    Ok(Lag { cursor, next, messages, oldest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::{group_registered, partition_named, queue_named};
    use crate::world::{TENANT, World, pop};
    use queen_core::command::{GroupStart, Pop, Verdict};

    fn backlog(world: &World, group: &str) -> Backlog {
        let queue = queue_named(&world.store, TENANT, "q").unwrap().unwrap();
        let partition = partition_named(&world.store, queue.id, "p").unwrap().unwrap();
        let group = group_registered(&world.store, queue.id, group).unwrap();
        of_group(&world.store, &queue, group.as_ref(), &partition, Stamp(world.now)).unwrap()
    }

    fn counts(backlog: Backlog) -> [u64; 5] {
        let Backlog { total, completed, processing, pending, ready } = backlog;
        [total, completed, processing, pending, ready]
    }

    #[test]
    fn a_message_is_pending_then_processing_then_completed() {
        let mut world = World::new();
        world.push("q", "p", 5);
        assert_eq!(counts(backlog(&world, "g")), [5, 0, 0, 5, 5]);
        let popped = world.pop("q", "g", 2);
        assert_eq!(counts(backlog(&world, "g")), [5, 0, 2, 3, 0]);
        let partition = popped.claims[0].partition;
        let id = world.id_at(partition, 1);
        world.ack_one("g", partition, &id, Verdict::Completed, popped.lease);
        assert_eq!(counts(backlog(&world, "g")), [5, 2, 0, 3, 3]);
        world.pop("q", "g", 2);
        world.sleep(60);
        assert_eq!(counts(backlog(&world, "g")), [5, 2, 0, 3, 3], "the lease is over");
        assert_eq!(counts(backlog(&world, "unknown")), [5, 0, 0, 5, 5]);
    }

    #[test]
    fn what_is_delayed_or_before_the_start_is_not_ready() {
        let mut world = World::new();
        world.configure("q", |options| options.delayed_processing = 10);
        world.push("q", "p", 3);
        let new = Pop { start: GroupStart::New, ..pop("q", Some("new"), 9) };
        assert!(world.popped(new).claims.is_empty());
        world.push("q", "p", 2);
        assert_eq!(counts(backlog(&world, "g")), [5, 0, 0, 5, 0]);
        assert_eq!(counts(backlog(&world, "new")), [5, 3, 0, 2, 0]);
        world.sleep(20);
        assert_eq!(counts(backlog(&world, "new")), [5, 3, 0, 2, 2]);
    }

    #[test]
    fn the_group_furthest_behind_counts() {
        let mut world = World::new();
        world.push("q", "p", 4);
        world.popped(Pop { auto_ack: true, ..pop("q", Some("fast"), 3) });
        world.popped(Pop { auto_ack: true, ..pop("q", Some("slow"), 1) });
        let queue = queue_named(&world.store, TENANT, "q").unwrap().unwrap();
        let partition = partition_named(&world.store, queue.id, "p").unwrap().unwrap();
        let groups = crate::query::list::groups(&world.store, queue.id, 9).unwrap();
        let worst =
            furthest_behind(&world.store, &queue, &groups, &partition, Stamp(world.now)).unwrap();
        assert_eq!(counts(worst), [4, 1, 0, 3, 3]);
        let lag = lag(&world.store, &groups[0].1, &partition.row).unwrap();
        assert_eq!((groups[0].0.as_str(), lag.next.0, lag.messages), ("fast", 3, 1));
        assert_eq!(lag.oldest, Some(partition.row.last));
    }
}
