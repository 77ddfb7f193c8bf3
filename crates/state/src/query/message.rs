//! Messages: what became of one, for each group of its queue.
//!
//! Owns: the words for it, and where groups are in a partition. Leaves to others: which messages there
//! are ([`super::browse`]), their payloads (the caller), dead letters ([`super::list`]).

use super::list;
use crate::step::Queue;
use crate::tables::StorageError;
use crate::{Reading, group, lease};
use queen_core::row::{HeldLease, PartitionRow};
use queen_core::{Offset, Stamp};

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Some group has still to be given it, or there is no group.
    Pending,
    /// Some group holds it under a lease.
    Processing,
    /// Every group is past it.
    Completed,
    /// Some group gave it up, and the dead letter is there still.
    DeadLetter,
}

/// Where a group is in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupAt {
    /// Its name.
    pub name: String,
    /// Every message below is settled, or was never meant for it.
    pub next: Offset,
    /// The batch that is out.
    pub held: Option<HeldLease>,
    /// Failed acks charged since a batch was completed.
    pub failures: u32,
    /// It has been in the partition: it has a cursor there.
    pub visited: bool,
}

impl GroupAt {
    /// What became of the message at an offset, for this group alone.
    pub fn status(&self, offset: Offset) -> Status {
        match self.holds(offset) {
            Some(_) => Status::Processing,
            None if offset < self.next => Status::Completed,
            None => Status::Pending,
        }
    }

    /// The lease under which the group holds the message at an offset.
    pub fn holds(&self, offset: Offset) -> Option<HeldLease> {
        self.held.filter(|held| offset >= self.next && offset < held.end)
    }
}

/// Where the groups of a queue are in one of its partitions at `now`, the first `limit` by name.
///
/// Costs a look-up per group.
pub fn groups_at(
    store: &impl Reading,
    queue: &Queue,
    partition: &PartitionRow,
    now: Stamp,
    limit: usize,
) -> Result<Vec<GroupAt>, StorageError> {
    let groups = list::groups(store, queue.id, limit)?.into_iter().map(|(name, row)| {
        let known = group::cursor(store, row.id, partition.id)?;
        let cursor = match known {
            Some(cursor) => cursor,
            None => group::first_cursor(store, &row, partition)?,
        };
        Ok(GroupAt {
            name,
            next: cursor.next.max(partition.log_start),
            held: lease::live(&cursor, now),
            failures: cursor.failures,
            visited: known.is_some(),
        })
    });
    groups.collect()
}

/// What became of the message at an offset, for all groups together.
pub fn status(groups: &[GroupAt], offset: Offset) -> Status {
    let any = |wanted| groups.iter().any(|group| group.status(offset) == wanted);
    if any(Status::Processing) {
        Status::Processing
    } else if groups.is_empty() || any(Status::Pending) {
        Status::Pending
    } else {
        Status::Completed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::{partition_named, queue_named};
    use crate::world::{TENANT, World, pop};
    use queen_core::command::{GroupStart, Pop, Verdict};

    fn at(world: &World) -> Vec<GroupAt> {
        let queue = queue_named(&world.store, TENANT, "q").unwrap().unwrap();
        let partition = partition_named(&world.store, queue.id, "p").unwrap().unwrap();
        groups_at(&world.store, &queue, &partition.row, Stamp(world.now), 9).unwrap()
    }

    fn words(world: &World) -> Vec<Status> {
        let groups = at(world);
        (0..4).map(|offset| status(&groups, Offset(offset))).collect()
    }

    #[test]
    fn a_message_is_completed_when_every_group_is_past_it() {
        use Status::{Completed, Pending, Processing};
        let mut world = World::new();
        world.push("q", "p", 4);
        assert_eq!(words(&world), [Pending; 4], "there is no group");
        world.popped(Pop { auto_ack: true, ..pop("q", Some("fast"), 3) });
        assert_eq!(words(&world), [Completed, Completed, Completed, Pending]);
        let slow = world.popped(pop("q", Some("slow"), 2));
        assert_eq!(words(&world), [Processing, Processing, Pending, Pending]);
        let partition = slow.claims[0].partition;
        let id = world.id_at(partition, 0);
        world.ack_one("slow", partition, &id, Verdict::Completed, slow.lease);
        assert_eq!(words(&world), [Completed, Processing, Pending, Pending]);
        world.sleep(60);
        assert_eq!(words(&world), [Completed, Pending, Pending, Pending], "the lease is over");
    }

    #[test]
    fn a_group_that_began_later_holds_nothing_up() {
        let mut world = World::new();
        world.push("q", "p", 2);
        world.popped(Pop { start: GroupStart::New, ..pop("q", Some("new"), 9) });
        world.push("q", "p", 2);
        let groups = at(&world);
        assert_eq!((groups[0].name.as_str(), groups[0].visited), ("new", false));
        assert_eq!(groups[0].status(Offset(1)), Status::Completed);
        assert_eq!(groups[0].status(Offset(2)), Status::Pending);
    }
}
