//! Browsing: runs of messages newest first, over the partitions of several queues.
//!
//! Owns: the order, and where a browse has come to between two looks at the state. Leaves to others:
//! what became of a message ([`super::message`]), payloads (the caller).
//!
//! Each queue's `Tail` names its partitions by their last write, so a partition joins the walk only
//! when nothing newer is left: what is looked at is what is given, and one row per queue.

use crate::Reading;
use crate::run::{self, Run};
use crate::step::{Partition, partition_named, partition_with_id, parts};
use crate::tables::StorageError;
use queen_core::row::key;
use queen_core::table::Table;
use queen_core::{Offset, PartitionId, QueueId, Stamp};
use std::collections::BinaryHeap;

/// Messages of one run, as a browse meets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Browsed {
    /// Their partition.
    pub partition: Partition,
    /// Their run.
    pub run: Run,
    /// First offset of it that is kept for consumers.
    pub first: Offset,
}

/// A walk from newest to oldest. Between two steps it holds nothing of the state: what goes meanwhile is
/// not met, what comes meanwhile neither.
pub struct Browse {
    from: Stamp,
    to: Stamp,
    /// Only the partitions with this name.
    named: Option<String>,
    /// Queues not looked at yet.
    queues: Vec<QueueId>,
    /// What comes next, newest on top.
    ahead: BinaryHeap<Ahead>,
}

/// Something ahead, by the stamp of its newest message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ahead {
    stamp: Stamp,
    what: What,
}

/// At one stamp partitions join before runs are given, so that these come in one order always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A run of a partition that has joined.
    Run { partition: PartitionId, first: Offset },
    /// A partition of a queue that has not, and all those written to before it.
    Tail { partition: PartitionId, queue: QueueId },
}

impl Browse {
    /// Of the messages of these queues stamped from `from` to before `to`; with `named` only of
    /// the partitions with that name.
    pub fn new(queues: Vec<QueueId>, named: Option<String>, from: Stamp, to: Stamp) -> Browse {
        Browse { from, to, named, queues, ahead: BinaryHeap::new() }
    }

    /// Nothing is left.
    pub fn is_done(&self) -> bool {
        self.queues.is_empty() && self.ahead.is_empty()
    }

    /// Goes on, with at most `looks` looks at the state; the runs met, newest first.
    pub fn step(
        &mut self,
        store: &impl Reading,
        looks: usize,
    ) -> Result<Vec<Browsed>, StorageError> {
        let mut met = Vec::new();
        for _ in 0..looks {
            if let Some(queue) = self.queues.pop() {
                self.begin(store, queue)?;
                continue;
            }
            let Some(Ahead { stamp, what }) = self.ahead.pop() else { break };
            match what {
                What::Tail { partition, queue } => {
                    self.tail(store, queue, &key::tail(queue, stamp, partition))?;
                    if let Some(partition) = partition_with_id(store, partition)? {
                        self.join(store, &partition)?;
                    }
                }
                What::Run { partition, first } => met.extend(self.meet(store, partition, first)?),
            }
        }
        Ok(met)
    }

    fn begin(&mut self, store: &impl Reading, queue: QueueId) -> Result<(), StorageError> {
        match &self.named {
            None => self.tail(store, queue, &key::after_prefix(&key::queue(queue))),
            Some(name) => match partition_named(store, queue, name)? {
                Some(partition) => self.join(store, &partition),
                None => Ok(()),
            },
        }
    }

    /// Puts the partition ahead that was written to last of those before a `Tail` key.
    fn tail(
        &mut self,
        store: &impl Reading,
        queue: QueueId,
        before: &[u8],
    ) -> Result<(), StorageError> {
        let from = key::tail(queue, self.from, PartitionId(0));
        if let Some((row, _)) = store.scan_back(Table::Tail, &from, before, 1)?.first() {
            let (_, stamp, partition) = parts(Table::Tail, row, key::tail_parts(row))?;
            self.ahead.push(Ahead { stamp, what: What::Tail { partition, queue } });
        }
        Ok(())
    }

    /// Puts a partition's newest run ahead.
    fn join(&mut self, store: &impl Reading, partition: &Partition) -> Result<(), StorageError> {
        let row = &partition.row;
        let end = run::first_stamped(store, row, row.log_start, self.to)?;
        self.before(store, partition, end)
    }

    /// Puts the run before an offset ahead.
    fn before(
        &mut self,
        store: &impl Reading,
        partition: &Partition,
        end: Offset,
    ) -> Result<(), StorageError> {
        if end <= partition.row.log_start {
            return Ok(());
        }
        let run = run::at(store, partition.row.id, Offset(end.0 - 1))?;
        if let Some(run) = run.filter(|run| run.row.stamp >= self.from) {
            let what = What::Run { partition: partition.row.id, first: run.first };
            self.ahead.push(Ahead { stamp: run.row.stamp, what });
        }
        Ok(())
    }

    fn meet(
        &mut self,
        store: &impl Reading,
        partition: PartitionId,
        first: Offset,
    ) -> Result<Option<Browsed>, StorageError> {
        // Retention or a deletion may have been faster.
        let Some(partition) = partition_with_id(store, partition)? else { return Ok(None) };
        let Some(run) = run::at(store, partition.row.id, first)? else { return Ok(None) };
        let kept = run.first.max(partition.row.log_start);
        if kept >= run.end() {
            return Ok(None);
        }
        self.before(store, &partition, run.first)?;
        Ok(Some(Browsed { partition, run, first: kept }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::World;

    fn walk(world: &World, queues: &[&str], named: Option<&str>, span: [u64; 2]) -> Vec<String> {
        let ids = queues.iter().map(|queue| world.queue_id(queue)).collect();
        let named = named.map(str::to_owned);
        let mut browse = Browse::new(ids, named, Stamp(span[0]), Stamp(span[1]));
        let mut met = Vec::new();
        while !browse.is_done() {
            met.extend(browse.step(&world.store, 1).unwrap());
        }
        let shown = met.iter().map(|one| {
            let Browsed { partition, run, first } = one;
            format!("{}{}-{}", partition.name, first.0, run.end().0)
        });
        shown.collect()
    }

    #[test]
    fn runs_of_several_partitions_and_queues_come_newest_first() {
        let mut world = World::new();
        let start = world.now;
        for (queue, partition, count) in
            [("a", "x", 2), ("b", "y", 1), ("a", "z", 1), ("a", "x", 1), ("b", "x", 3)]
        {
            world.push(queue, partition, count);
        }
        let all = walk(&world, &["a", "b"], None, [0, u64::MAX]);
        assert_eq!(all, ["x0-3", "x2-3", "z0-1", "y0-1", "x0-2"]);
        let some = walk(&world, &["a"], None, [0, u64::MAX]);
        assert_eq!(some, ["x2-3", "z0-1", "x0-2"]);
        assert_eq!(walk(&world, &["a", "b"], Some("y"), [0, u64::MAX]), ["y0-1"]);
        let span = [start + 2, start + 5];
        assert_eq!(walk(&world, &["a", "b"], None, span), ["x2-3", "z0-1", "y0-1"]);
        assert_eq!(walk(&world, &["a"], Some("x"), [start + 1, start + 2]), ["x0-2"]);
        assert_eq!(walk(&world, &["a"], None, [u64::MAX - 1, u64::MAX]), [""; 0]);
    }

    #[test]
    fn what_retention_took_is_not_met() {
        let mut world = World::new();
        world.configure("q", |options| {
            options.retention_enabled = true;
            options.retention_seconds = 10;
        });
        world.push("q", "p", 2);
        world.sleep(60);
        world.push("q", "p", 1);
        let id = world.queue_id("q");
        let mut browse = Browse::new(vec![id], None, Stamp(0), Stamp::MAX);
        let met = browse.step(&world.store, 3).unwrap();
        assert_eq!((met.len(), met[0].first), (1, Offset(2)));
        world.tick(&[id]);
        assert_eq!(browse.step(&world.store, 9).unwrap(), [], "it went while the browse waited");
        assert!(browse.is_done());
        assert_eq!(walk(&world, &["q"], None, [0, u64::MAX]), ["p2-3"]);
    }
}
