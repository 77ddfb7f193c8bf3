//! Waiting pops: who sleeps at which queue, and who is rung awake.
//!
//! Owns: the sleepers by (queue, group), first come first served. Leaves to others: whether there is
//! something to deliver (`ready`), claiming it (`pop`).
//!
//! A sleeper parks before it looks, so that nothing can arrive unseen between the two. As many
//! sleepers of each group are rung as partitions may have become ready, not all of them; one that
//! leaves after it was rung, without having tried, passes the ring on.

use crate::counters::Counters;
use parking_lot::Mutex;
use queen_core::{GroupId, QueueId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Where a pop sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// `None` while no queue has the name.
    pub(crate) queue: Option<QueueId>,
    /// Group name.
    pub(crate) group: Box<str>,
    /// Waits for one partition, of which events do not tell: rung at every one of the queue's.
    pub(crate) fixed: bool,
}

#[derive(Default)]
struct Bell {
    ring: Notify,
    rung: AtomicBool,
}

/// Sleepers of one group on one queue, in order of arrival.
#[derive(Default)]
struct Lot {
    /// The group's id, once one of them knew it.
    id: Option<GroupId>,
    any: BTreeMap<u64, Arc<Bell>>,
    fixed: BTreeMap<u64, Arc<Bell>>,
}

#[derive(Default)]
struct Lots {
    next: u64,
    /// The newest queue heard of: a newer one may be what the homeless wait for.
    newest: QueueId,
    queues: HashMap<QueueId, HashMap<Box<str>, Lot>>,
    homeless: BTreeMap<u64, Arc<Bell>>,
    parked: usize,
    closed: bool,
}

/// All sleepers.
pub(crate) struct Parking {
    lots: Mutex<Lots>,
    counters: Arc<Counters>,
}

/// A place to sleep; given up when dropped.
pub(crate) struct Ticket<'a> {
    parking: &'a Parking,
    number: u64,
    spot: Spot,
    bell: Arc<Bell>,
}

impl Lot {
    fn ring(&mut self, most: u32) -> u64 {
        let mut rung = 0;
        for _ in 0..most {
            let Some((_, bell)) = self.any.pop_first() else { break };
            bell.ring();
            rung += 1;
        }
        for (_, bell) in std::mem::take(&mut self.fixed) {
            bell.ring();
            rung += 1;
        }
        rung
    }
}

impl Bell {
    fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.ring.notify_one();
    }
}

impl Parking {
    pub(crate) fn new(counters: Arc<Counters>) -> Parking {
        Parking { lots: Mutex::default(), counters }
    }

    /// Takes a place. `None` when nobody may sleep any more.
    pub(crate) fn park(&self, spot: Spot) -> Option<Ticket<'_>> {
        let mut lots = self.lots.lock();
        lots.next += 1;
        let number = lots.next;
        let ticket = Ticket { parking: self, number, spot, bell: Arc::default() };
        lots.parked += 1;
        let closed = lots.closed;
        ticket.lie_down(&mut lots);
        drop(lots);
        (!closed).then_some(ticket)
    }

    /// A queue was written to: so many partitions may be ready for every group.
    pub(crate) fn written(&self, queue: QueueId, partitions: u32) {
        let mut lots = self.lots.lock();
        if lots.parked == 0 {
            lots.newest = lots.newest.max(queue);
            return;
        }
        let mut rung = lots.arrived(queue);
        if let Some(groups) = lots.queues.get_mut(&queue) {
            rung += groups.values_mut().map(|lot| lot.ring(partitions)).sum::<u64>();
        }
        drop(lots);
        self.counters.woken.add(rung);
    }

    /// A partition is ready again for one group.
    pub(crate) fn ready(&self, queue: QueueId, group: GroupId) {
        let mut lots = self.lots.lock();
        if lots.parked == 0 {
            return;
        }
        let mut rung = 0;
        if let Some(groups) = lots.queues.get_mut(&queue) {
            let lots = groups.values_mut().filter(|lot| lot.id.is_none_or(|id| id == group));
            rung = lots.map(|lot| lot.ring(1)).sum::<u64>();
        }
        drop(lots);
        self.counters.woken.add(rung);
    }

    /// A queue was created, changed or deleted: everybody there looks again.
    pub(crate) fn changed(&self, queue: QueueId) {
        let mut lots = self.lots.lock();
        let mut rung = lots.arrived(queue);
        for lot in lots.queues.get_mut(&queue).into_iter().flat_map(HashMap::values_mut) {
            rung += lot.ring(u32::MAX);
        }
        drop(lots);
        self.counters.woken.add(rung);
    }

    /// All queues may be others now: everybody looks again.
    pub(crate) fn all_changed(&self) {
        self.lots.lock().ring_all();
    }

    /// Wakes everybody for good.
    pub(crate) fn close(&self) {
        let mut lots = self.lots.lock();
        lots.closed = true;
        lots.ring_all();
    }

    pub(crate) fn closed(&self) -> bool {
        self.lots.lock().closed
    }

    /// Pops that wait now.
    pub(crate) fn parked(&self) -> usize {
        self.lots.lock().parked
    }

    /// Pops of a group on a queue that wait now for any partition.
    pub(crate) fn parked_of(&self, queue: QueueId, group: &str) -> usize {
        let lots = self.lots.lock();
        let lot = lots.queues.get(&queue).and_then(|groups| groups.get(group));
        lot.map_or(0, |lot| lot.any.len())
    }

    /// Pops that wait now, by queue.
    pub(crate) fn parked_by_queue(&self) -> Vec<(QueueId, usize)> {
        let lots = self.lots.lock();
        let count = |lot: &Lot| lot.any.len() + lot.fixed.len();
        let mut all: Vec<_> =
            lots.queues.iter().map(|(id, g)| (*id, g.values().map(count).sum())).collect();
        all.sort_unstable();
        all
    }
}

impl Lots {
    fn ring_all(&mut self) {
        self.queues.values_mut().flat_map(HashMap::values_mut).for_each(|lot| {
            lot.ring(u32::MAX);
        });
        std::mem::take(&mut self.homeless).values().for_each(|bell| bell.ring());
    }

    /// Rings the homeless when a queue is heard of for the first time.
    fn arrived(&mut self, queue: QueueId) -> u64 {
        if queue <= self.newest {
            return 0;
        }
        self.newest = queue;
        let homeless = std::mem::take(&mut self.homeless);
        homeless.values().for_each(|bell| bell.ring());
        homeless.len() as u64
    }
}

impl Ticket<'_> {
    fn lie_down(&self, lots: &mut Lots) {
        let bell = Arc::clone(&self.bell);
        let Some(queue) = self.spot.queue else {
            lots.homeless.insert(self.number, bell);
            return;
        };
        let groups = lots.queues.entry(queue).or_default();
        if !groups.contains_key(&self.spot.group) {
            groups.insert(self.spot.group.clone(), Lot::default());
        }
        let Some(lot) = groups.get_mut(&self.spot.group) else { return };
        let side = if self.spot.fixed { &mut lot.fixed } else { &mut lot.any };
        side.insert(self.number, bell);
    }

    /// Lies down again at the same rank, to look once more afterwards; tells the group's id.
    pub(crate) fn again(&mut self, queue: Option<QueueId>, group: Option<GroupId>) {
        let mut lots = self.parking.lots.lock();
        self.get_up(&mut lots);
        self.bell.rung.store(false, Ordering::Release);
        self.spot.queue = queue;
        self.lie_down(&mut lots);
        let groups = queue.and_then(|queue| lots.queues.get_mut(&queue));
        if let Some(lot) = groups.and_then(|groups| groups.get_mut(&self.spot.group)) {
            lot.id = group.or(lot.id);
        }
    }

    /// Whether it was rung since it lay down.
    pub(crate) fn rung(&self) -> bool {
        self.bell.rung.load(Ordering::Acquire)
    }

    /// Sleeps until rung; at once when it was.
    pub(crate) async fn sleep(&self) {
        while !self.rung() {
            self.bell.ring.notified().await;
        }
    }

    /// Takes it out of its lot; true when it was still in there.
    fn get_up(&self, lots: &mut Lots) -> bool {
        let Some(queue) = self.spot.queue else {
            return lots.homeless.remove(&self.number).is_some();
        };
        let Some(groups) = lots.queues.get_mut(&queue) else { return false };
        let Some(lot) = groups.get_mut(&self.spot.group) else { return false };
        let side = if self.spot.fixed { &mut lot.fixed } else { &mut lot.any };
        let there = side.remove(&self.number).is_some();
        if lot.any.is_empty() && lot.fixed.is_empty() {
            groups.remove(&self.spot.group);
            if groups.is_empty() {
                lots.queues.remove(&queue);
            }
        }
        there
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut lots = self.parking.lots.lock();
        lots.parked -= 1;
        self.get_up(&mut lots);
        if !self.rung() || self.spot.fixed {
            return;
        }
        // Whoever leaves after a ring either took one partition or nothing: a spare look by the next
        // one is cheap, a lost ring is not.
        let groups = self.spot.queue.and_then(|queue| lots.queues.get_mut(&queue));
        let lot = groups.and_then(|groups| groups.get_mut(&self.spot.group));
        if let Some((_, bell)) = lot.and_then(|lot| lot.any.pop_first()) {
            bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(queue: u32, group: &str) -> Spot {
        let queue = (queue > 0).then_some(QueueId(queue));
        Spot { queue, group: group.into(), fixed: false }
    }

    #[test]
    fn as_many_sleepers_of_each_group_are_rung_as_partitions_were_written() {
        let parking = Parking::new(Arc::default());
        let a: Vec<_> = (0..3).map(|_| parking.park(spot(1, "a")).unwrap()).collect();
        let b = parking.park(spot(1, "b")).unwrap();
        let other = parking.park(spot(2, "a")).unwrap();
        parking.written(QueueId(1), 2);
        assert_eq!(a.iter().map(Ticket::rung).collect::<Vec<_>>(), [true, true, false]);
        assert!(b.rung() && !other.rung());
        assert_eq!(parking.parked(), 5);
        assert_eq!(parking.parked_by_queue(), [(QueueId(1), 1), (QueueId(2), 1)]);
        assert_eq!(parking.parked_of(QueueId(1), "a"), 1);
        assert_eq!(
            (parking.parked_of(QueueId(1), "b"), parking.parked_of(QueueId(3), "a")),
            (0, 0)
        );
    }

    #[test]
    fn a_ring_is_passed_on_by_one_that_leaves() {
        let parking = Parking::new(Arc::default());
        let first = parking.park(spot(1, "a")).unwrap();
        let second = parking.park(spot(1, "a")).unwrap();
        parking.written(QueueId(1), 1);
        assert!(first.rung() && !second.rung());
        drop(first);
        assert!(second.rung());
        drop(second);
        assert_eq!(parking.parked(), 0);
        assert!(parking.lots.lock().queues.is_empty());
    }

    #[test]
    fn lying_down_again_keeps_the_rank_and_forgets_the_ring() {
        let parking = Parking::new(Arc::default());
        let mut first = parking.park(spot(1, "a")).unwrap();
        let second = parking.park(spot(1, "a")).unwrap();
        parking.written(QueueId(1), 1);
        first.again(Some(QueueId(1)), Some(GroupId(7)));
        assert!(!first.rung());
        parking.ready(QueueId(1), GroupId(8));
        assert!(!first.rung());
        parking.ready(QueueId(1), GroupId(7));
        assert!(first.rung() && !second.rung());
    }

    #[test]
    fn the_first_word_of_a_new_queue_rings_those_who_wait_for_its_name() {
        let parking = Parking::new(Arc::default());
        parking.written(QueueId(4), 1);
        let mut sleeper = parking.park(spot(0, "a")).unwrap();
        parking.written(QueueId(3), 1);
        assert!(!sleeper.rung());
        parking.written(QueueId(5), 1);
        assert!(sleeper.rung());
        sleeper.again(Some(QueueId(5)), None);
        assert!(!sleeper.rung());
        parking.changed(QueueId(5));
        assert!(sleeper.rung());
        parking.close();
        assert!(parking.closed() && parking.park(spot(1, "a")).is_none());
    }
}
