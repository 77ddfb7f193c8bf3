//! Sizes of pops that leave them to the broker.
//!
//! Owns: the two rules, and how much each group was handed lately on this node. Leaves to others: the
//! pop itself (`pop`), the words of the request and of the echo (`queen-http`).
//!
//! A batch is what the group was handed in the last whole second, within its bounds: workers that keep up
//! with much get much at once, slow ones little, so that a lease is never longer than their work. The
//! partitions are those that are ready, shared among the pops that wait.

use crate::broker::Broker;
use crate::pop::Delivery;
use parking_lot::Mutex;
use queen_core::command::Pop;
use queen_core::limits::{POP_PARTITIONS_MAX, QUEUE_MODE_GROUP};
use queen_core::{Error, QueueId, Stamp};
use queen_state::query::{group_registered, queue_named, ready_partitions};
use std::collections::BTreeMap;

/// Bounds of a batch.
const BATCH_MIN: u64 = 100;
const BATCH_MAX: u64 = 1000;
/// Groups on queues that are remembered; with more of them the longest silent ones are forgotten.
const GROUPS_KEPT: usize = 4096;
/// Ready partitions counted.
const COUNTED_MAX: usize = 4 * POP_PARTITIONS_MAX as usize;
const SECOND: u64 = 1_000_000;

/// Sizes that a pop is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Messages over all partitions.
    pub batch: u32,
    /// Partitions.
    pub partitions: u32,
}

/// What a group was handed: in the second it was handed something last, and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Handed {
    second: u64,
    now: u64,
    before: u64,
}

impl Handed {
    fn at(&self, second: u64) -> Handed {
        match second.saturating_sub(self.second) {
            0 => *self,
            1 => Handed { second, now: 0, before: self.now },
            _ => Handed { second, ..Handed::default() },
        }
    }
}

/// What groups were handed lately.
#[derive(Default)]
pub(crate) struct Rates(Mutex<BTreeMap<(QueueId, Box<str>), Handed>>);

impl Rates {
    fn add(&self, queue: QueueId, group: &str, messages: u64, now: Stamp) {
        let second = now.0 / SECOND;
        let mut all = self.0.lock();
        if all.len() >= GROUPS_KEPT {
            let oldest = all.values().map(|handed| handed.second).min().unwrap_or(second);
            all.retain(|_, handed| handed.second > oldest.max(second.saturating_sub(2)));
        }
        if all.len() < GROUPS_KEPT {
            let handed = all.entry((queue, group.into())).or_default();
            *handed = handed.at(second);
            handed.now += messages;
        }
    }

    fn last_second(&self, queue: QueueId, group: &str, now: Stamp) -> u64 {
        let all = self.0.lock();
        all.get(&(queue, group.into())).map_or(0, |handed| handed.at(now.0 / SECOND).before)
    }
}

impl Broker {
    /// The sizes that suit a pop now; those that it has itself are not looked at.
    pub fn autopilot(&self, pop: &Pop<'_>) -> Result<Sizes, Error> {
        let (now, group) = (self.now(), pop.group.unwrap_or(QUEUE_MODE_GROUP));
        let least = Sizes { batch: BATCH_MIN as u32, partitions: 1 };
        let found = self.read(|view| {
            let Some(queue) = queue_named(view, pop.tenant, pop.queue)? else { return Ok(None) };
            let ready = match group_registered(view, queue.id, group)? {
                Some(row) if pop.partition.is_none() => {
                    ready_partitions(view, &queue, &row, now, COUNTED_MAX)?
                }
                _ => 0,
            };
            Ok(Some((queue.id, ready)))
        })?;
        let Some((queue, ready)) = found else { return Ok(least) };
        let handed = self.shared.rates.last_second(queue, group, now);
        let sharing = self.parking().parked_of(queue, group) + 1;
        let partitions = ready.div_ceil(sharing).clamp(1, POP_PARTITIONS_MAX as usize);
        let batch = handed.clamp(BATCH_MIN, BATCH_MAX);
        Ok(Sizes { batch: batch as u32, partitions: partitions as u32 })
    }

    /// Remembers what a group was handed of one queue.
    pub fn handed(&self, pop: &Pop<'_>, delivery: &Delivery) {
        if let Some(first) = delivery.claims.first() {
            let group = pop.group.unwrap_or(QUEUE_MODE_GROUP);
            self.shared.rates.add(first.claim.queue, group, delivery.messages(), self.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_the_last_whole_second() {
        let rates = Rates::default();
        let at = |tenths: u64| Stamp(tenths * SECOND / 10);
        let last = |tenths| rates.last_second(QueueId(1), "g", at(tenths));
        rates.add(QueueId(1), "g", 300, at(51));
        rates.add(QueueId(1), "g", 100, at(59));
        assert_eq!((last(59), last(60), last(69), last(70)), (0, 400, 400, 0));
        rates.add(QueueId(1), "g", 7, at(63));
        assert_eq!((last(63), last(70)), (400, 7));
        assert_eq!(rates.last_second(QueueId(2), "g", at(60)), 0);
    }

    #[test]
    fn groups_that_were_long_silent_are_forgotten_first() {
        let rates = Rates::default();
        for id in 0..GROUPS_KEPT as u32 {
            rates.add(QueueId(id), "g", 1, Stamp(SECOND * u64::from(id / 2000)));
        }
        rates.add(QueueId(9999), "g", 5, Stamp(3 * SECOND));
        assert_eq!(rates.last_second(QueueId(9999), "g", Stamp(4 * SECOND)), 5);
        assert!(rates.0.lock().len() < GROUPS_KEPT);
        assert!(rates.0.lock().contains_key(&(QueueId(4095), "g".into())));
    }
}
