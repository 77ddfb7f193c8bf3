//! Acks: settling delivered messages.
//!
//! Owns: every row of the ack table of the HTTP contract. Leaves to others: finding messages
//! (`transaction_id`), leases (`lease`), filing (`dead_letter`).
//!
//! Acks are judged first and carried out then, so that a transaction can stop between. Each partition
//! is settled by itself, all its items of a call together. Upholds
//! `cursor-never-passes-unsettled`: the cursor passes a message when it or a later one was
//! completed, or when it was filed, and stops at the lowest message that is to be redelivered.

use crate::dead_letter::{self, Failed};
use crate::group;
use crate::lease;
use crate::step::{Partition, Queue, Step, partition_with_id};
use crate::tables::StorageError;
use crate::transaction_id::{HISTORY_BYTES, Resolver};
use crate::{Reading, Storage};
use queen_core::command::{Ack, AckItem, LeaseClaim, Verdict};
use queen_core::reply::{AckOutcome, AckRefusal, Reply};
use queen_core::row::{CursorRow, GroupRow, HeldLease, key};
use queen_core::{Offset, PartitionId, TenantId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Settles the items of a call.
pub(crate) fn apply<S: Storage>(
    step: &mut Step<'_, S>,
    ack: &Ack<'_>,
) -> Result<Reply, StorageError> {
    let mut bounds = Bounds::default();
    let judged = judge(step, ack.tenant, ack.group, &ack.items, &mut bounds)?;
    judged.carry_out(step, &mut bounds).map(Reply::Ack)
}

/// What the acks of one command share.
pub(crate) struct Bounds {
    /// Dead letters filed: the number of the next one.
    letters: u32,
    /// Bytes of consumed log that may still be read.
    history: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { letters: 0, history: HISTORY_BYTES }
    }
}

/// What acks of one group come to, before anything changes.
pub(crate) struct Judged<'i, 'a> {
    group: &'i str,
    items: &'i [AckItem<'a>],
    /// One per item: refusals and settled ones as they stay.
    outcomes: Vec<AckOutcome>,
    accepted: Vec<Accepted>,
    /// See [`Judged::lapsed`].
    lapsed: Option<usize>,
}

/// A partition and its accepted items: their indexes and the offsets they mean.
struct Accepted {
    target: Target,
    items: Vec<(usize, Offset)>,
}

impl Judged<'_, '_> {
    /// The first item that is refused, and why.
    pub(crate) fn refused(&self) -> Option<(usize, AckRefusal)> {
        let refused = |(index, outcome): (usize, &AckOutcome)| Some((index, outcome.refusal?));
        self.outcomes.iter().enumerate().find_map(refused)
    }

    /// The first item whose message was settled before, and that names a lease which does not hold
    /// the message any more: whoever took it since may have settled it.
    pub(crate) fn lapsed(&self) -> Option<usize> {
        self.lapsed
    }
}

/// Judges acks of one group.
pub(crate) fn judge<'i, 'a, S: Storage>(
    step: &mut Step<'_, S>,
    tenant: TenantId,
    group: Option<&'i str>,
    items: &'i [AckItem<'a>],
    bounds: &mut Bounds,
) -> Result<Judged<'i, 'a>, StorageError> {
    let (group, outcomes) = (group::name_of(group), vec![AckOutcome::default(); items.len()]);
    let mut judged = Judged { group, items, outcomes, accepted: Vec::new(), lapsed: None };
    let mut partitions: BTreeMap<PartitionId, Vec<usize>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        match item.partition {
            Some(id) => partitions.entry(id).or_default().push(index),
            None => judged.outcomes[index].refusal = Some(AckRefusal::Unresolvable),
        }
    }
    for (id, indexes) in partitions {
        match target(step, tenant, group, id)? {
            Ok(target) => judged.partition(step, target, &indexes, bounds)?,
            Err(refusal) => {
                indexes.iter().for_each(|&index| judged.outcomes[index].refusal = Some(refusal));
            }
        }
    }
    Ok(judged)
}

/// A partition whose items are settled, and for whom.
pub(crate) struct Target {
    pub(crate) partition: Partition,
    queue: Arc<Queue>,
    pub(crate) group: GroupRow,
    pub(crate) cursor: CursorRow,
}

/// Finds the cursor that acks settle; the refusal says what is missing.
pub(crate) fn target<S: Storage>(
    step: &mut Step<'_, S>,
    tenant: TenantId,
    name: &str,
    id: PartitionId,
) -> Result<Result<Target, AckRefusal>, StorageError> {
    let Some(partition) = partition_with_id(&*step.store, id)? else {
        return Ok(Err(AckRefusal::Unresolvable));
    };
    let queue = step.queue_with_id(partition.queue)?;
    let Some(queue) = queue.filter(|queue| queue.row.tenant == tenant) else {
        return Ok(Err(AckRefusal::Unresolvable));
    };
    let Some(group) = group::registered(&*step.store, queue.id, name)? else {
        return Ok(Err(AckRefusal::NoConsumer));
    };
    let Some(cursor) = group::cursor(&*step.store, group.id, id)? else {
        return Ok(Err(AckRefusal::NoConsumer));
    };
    Ok(Ok(Target { partition, queue, group, cursor }))
}

impl Judged<'_, '_> {
    /// Judges all items that are of one partition.
    fn partition<S: Storage>(
        &mut self,
        step: &Step<'_, S>,
        target: Target,
        indexes: &[usize],
        bounds: &mut Bounds,
    ) -> Result<(), StorageError> {
        let held = lease::live(&target.cursor, step.stamp);
        let mut accepted: Vec<(usize, Offset)> = Vec::with_capacity(indexes.len());
        let mut resolver =
            Resolver::new(&target.partition, target.cursor, step.stamp, &mut bounds.history);
        for &index in indexes {
            let item = &self.items[index];
            match verdict(&*step.store, &mut resolver, &target.cursor, held, item)? {
                Found::Accepted(offset) => accepted.push((index, offset)),
                Found::Settled { holds } => {
                    self.outcomes[index].noop = true;
                    if !holds {
                        self.lapsed = Some(self.lapsed.map_or(index, |first| first.min(index)));
                    }
                }
                Found::Refused(refusal) => self.outcomes[index].refusal = Some(refusal),
            }
        }
        if !accepted.is_empty() {
            self.accepted.push(Accepted { target, items: accepted });
        }
        Ok(())
    }

    /// Settles what was accepted; one outcome per item. Nothing may have changed since it was judged.
    pub(crate) fn carry_out<S: Storage>(
        mut self,
        step: &mut Step<'_, S>,
        bounds: &mut Bounds,
    ) -> Result<Vec<AckOutcome>, StorageError> {
        for Accepted { target, items } in std::mem::take(&mut self.accepted) {
            let held = lease::live(&target.cursor, step.stamp);
            let settlement = Settlement::of(&target, self.items, &items);
            let passed = settlement.passed(&target);
            for (&offset, error) in &settlement.letters {
                let (retries, group) = (target.cursor.failures, self.group);
                let failed = Failed { partition: &target.partition, group, offset, retries, error };
                dead_letter::file(step, &failed, bounds.letters)?;
                bounds.letters += 1;
            }
            let target_conflates = target.group.conflation;
            let released = settlement.store(step, target)?;
            for (index, offset) in items {
                self.outcomes[index].lease_released = released && held.is_some();
                self.outcomes[index].dead_lettered = settlement.letters.contains_key(&offset);
                if target_conflates && offset.plus(1) == settlement.next {
                    self.outcomes[index].conflated = passed;
                }
            }
        }
        Ok(self.outcomes)
    }
}

/// What an item comes to by itself.
enum Found {
    Accepted(Offset),
    /// Its message was settled before; whether the lease it names holds the message, or it names none.
    Settled {
        holds: bool,
    },
    Refused(AckRefusal),
}

fn verdict(
    store: &impl Reading,
    resolver: &mut Resolver<'_>,
    cursor: &CursorRow,
    held: Option<HeldLease>,
    item: &AckItem<'_>,
) -> Result<Found, StorageError> {
    let Some(offset) = resolver.resolve(store, item.transaction_id)? else {
        return Ok(Found::Refused(AckRefusal::Unresolvable));
    };
    let holds = match item.lease {
        LeaseClaim::None => true,
        LeaseClaim::Id(id) => held.is_some_and(|held| held.id == id && offset < held.end),
        LeaseClaim::Foreign(_) => false,
    };
    Ok(match item.verdict {
        Verdict::Completed if offset < cursor.next => Found::Settled { holds },
        _ if offset < cursor.next => Found::Refused(AckRefusal::Committed),
        _ if holds => Found::Accepted(offset),
        _ => Found::Refused(AckRefusal::Lease),
    })
}

/// What the accepted items of a partition come to together.
struct Settlement<'a> {
    /// Where the cursor goes.
    next: Offset,
    /// Messages to file, and why.
    letters: BTreeMap<Offset, Option<&'a str>>,
    /// A unit of the retry budget goes.
    charged: bool,
    /// The claim ends, wherever the cursor is.
    ends: bool,
}

/// Moves a cursor on within its batch, for a cycle of a stream; with `ends` the claim ends wherever that is.
/// Whether it ended.
pub(crate) fn move_to<S: Storage>(
    step: &mut Step<'_, S>,
    target: Target,
    next: Offset,
    ends: bool,
) -> Result<bool, StorageError> {
    Settlement { next, letters: BTreeMap::new(), charged: false, ends }.store(step, target)
}

/// How heavy a verdict weighs against others on one message.
fn weight(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Completed => 0,
        Verdict::Retry => 1,
        Verdict::Failed => 2,
        Verdict::DeadLetter => 3,
    }
}

impl<'a> Settlement<'a> {
    fn of(target: &Target, items: &[AckItem<'a>], accepted: &[(usize, Offset)]) -> Settlement<'a> {
        let mut verdicts: BTreeMap<Offset, (Verdict, Option<&'a str>)> = BTreeMap::new();
        for &(index, offset) in accepted {
            let (verdict, error) = (items[index].verdict, items[index].error);
            match verdicts.get(&offset) {
                Some((other, _)) if weight(*other) >= weight(verdict) => {}
                _ => drop(verdicts.insert(offset, (verdict, error))),
            }
        }
        let spent = i64::from(target.cursor.failures) >= target.queue.row.options.retry_limit;
        let files = target.queue.row.options.dead_letters();
        let mut settlement = Settlement {
            next: target.cursor.next,
            letters: BTreeMap::new(),
            charged: false,
            ends: false,
        };
        let mut stopped = false;
        for (offset, (verdict, error)) in verdicts {
            let given_up = verdict == Verdict::DeadLetter || verdict == Verdict::Failed && spent;
            settlement.ends |= verdict != Verdict::Completed;
            settlement.charged |= verdict == Verdict::Failed && !spent;
            if stopped {
                // Redelivered with the message below that stopped the cursor.
            } else if given_up || verdict == Verdict::Completed {
                settlement.next = offset.plus(1);
                if given_up && files {
                    settlement.letters.insert(offset, error);
                }
            } else {
                settlement.next = offset;
                stopped = true;
            }
        }
        settlement
    }

    /// Messages that the cursor passes below the one that it comes to stand behind.
    fn passed(&self, target: &Target) -> u64 {
        self.next.0.saturating_sub(target.cursor.next.0 + 1)
    }

    /// Moves the cursor; whether the batch is over.
    fn store<S: Storage>(
        &self,
        step: &mut Step<'_, S>,
        target: Target,
    ) -> Result<bool, StorageError> {
        let Target { partition, group, mut cursor, .. } = target;
        let held = lease::live(&cursor, step.stamp);
        if cursor.next != self.next {
            cursor.moved = step.stamp;
        }
        cursor.next = self.next;
        cursor.failures += u32::from(self.charged);
        let end = held.map_or(cursor.delivered, |held| held.end);
        let complete = cursor.next >= end;
        if complete {
            cursor.failures = 0;
        }
        if cursor.next >= cursor.delivered {
            cursor.attempts = 0;
            cursor.delivered = cursor.next;
        }
        let over = self.ends || complete;
        if over || held.is_none() {
            step.release(group.id, &partition, &mut cursor)?;
        } else {
            step.put(&key::cursor(group.id, partition.row.id), &cursor);
        }
        Ok(over)
    }
}

#[cfg(test)]
#[path = "ack_tests.rs"]
mod tests;
