//! Transactions: acks, pushes and riders together, or nothing of them.
//!
//! Owns: the order in which the parts are decided and carried out, and what undoes all of them. Leaves
//! to others: each part (`ack`, `push`, `kv`, `timer`, `group_admin`), a transaction's form (`queen-http`).
//!
//! Every part is decided against the state before the transaction, and nothing is written before all
//! are: acks, then pushes, then positions, then KV operations, then those on timers. A part is carried out as its own command
//! would be, all of them under one stamp. Upholds `all-or-nothing`.
//!
//! An ack of a message that was settled before holds, as it does alone, with one exception: it is
//! refused when it names a lease that does not hold the message any more. The consumer that took the
//! message over may have handed it on already, and this one's pushes would be a second handing on. It
//! is refused only after the pushes, since a transaction that is sent again after its answer got lost
//! looks the same: that one is told of its own messages, which are there.

use crate::kv::{Decided, Lost};
use crate::push::Checked;
use crate::step::{Partition, Step, partition_named};
use crate::tables::StorageError;
use crate::{Storage, ack, group, group_admin, timer};
use queen_core::QueueId;
use queen_core::kv::KvOp;
use queen_core::reply::{AckRefusal, Reply};
use queen_core::timer::TimerOp;
use queen_core::transaction::{
    Committed, Position, Rider, RiderResult, RolledBack, Transaction, TransactionOutcome,
};

/// Applies all of a transaction or nothing.
pub(crate) fn apply<S: Storage>(
    step: &mut Step<'_, S>,
    transaction: &Transaction<'_>,
) -> Result<Reply, StorageError> {
    let tenant = transaction.tenant;
    let mut bounds = ack::Bounds::default();
    let mut acks = Vec::with_capacity(transaction.acks.len());
    for of in &transaction.acks {
        acks.push(ack::judge(step, tenant, of.group, &of.items, &mut bounds)?);
    }
    if let Some((group, (item, refusal))) = first(&acks, ack::Judged::refused) {
        return rolled_back(step, RolledBack::Ack { group, item, refusal });
    }
    let pushes = match Checked::new(step, tenant, &transaction.pushes)? {
        Ok(pushes) => pushes,
        Err(refusal) => return Ok(Reply::Refused(refusal)),
    };
    if let Some((group, item)) = pushes.stored_duplicate(step)? {
        return rolled_back(step, RolledBack::Duplicate { group, item });
    }
    if let Some((group, item)) = first(&acks, ack::Judged::lapsed) {
        let refusal = AckRefusal::Lease;
        return rolled_back(step, RolledBack::Ack { group, item, refusal });
    }
    for (rider, position) in positions(transaction) {
        if place(step, transaction, position)?.is_none() {
            return rolled_back(step, RolledBack::NoPartition { rider });
        }
    }
    let (places, ops): (Vec<usize>, Vec<&KvOp<'_>>) = operations(transaction).unzip();
    let kv = match Decided::new(tenant, ops.into_iter(), step.stamp, &*step.store)? {
        Ok(kv) => kv,
        Err(Lost { index, reason, row }) => {
            return rolled_back(
                step,
                RolledBack::Precondition { rider: places[index], reason, row },
            );
        }
    };

    if let Some(refusal) = timer::unsealed(step, tenant, timers(transaction).map(|(_, op)| op))? {
        return Ok(Reply::Refused(refusal));
    }

    let acks = acks.into_iter().map(|judged| judged.carry_out(step, &mut bounds));
    let acks = acks.collect::<Result<_, _>>()?;
    let pushes = pushes.append(step)?;
    let mut riders = vec![RiderResult::Position(None); transaction.riders.len()];
    for (rider, position) in positions(transaction) {
        riders[rider] = RiderResult::Position(set_position(step, transaction, position)?);
    }
    let results = kv.carry_out(tenant, step.stamp, step.store)?;
    for (rider, result) in places.into_iter().zip(results) {
        riders[rider] = RiderResult::Kv(result);
    }
    let set = timer::carry_out(step, tenant, timers(transaction).map(|(_, op)| op))?;
    for ((rider, _), result) in timers(transaction).zip(set) {
        riders[rider] = RiderResult::Timer(result);
    }
    outcome(step, Ok(Committed { acks, pushes, riders }))
}

/// The first of the acks of which `find` finds something, with its group.
fn first<J, T>(acks: &[J], find: impl Fn(&J) -> Option<T>) -> Option<(usize, T)> {
    acks.iter().enumerate().find_map(|(group, judged)| Some((group, find(judged)?)))
}

fn rolled_back<S: Storage>(step: &Step<'_, S>, why: RolledBack) -> Result<Reply, StorageError> {
    outcome(step, Err(why))
}

fn outcome<S: Storage>(
    step: &Step<'_, S>,
    result: Result<Committed, RolledBack>,
) -> Result<Reply, StorageError> {
    Ok(Reply::Transaction(TransactionOutcome { stamp: step.stamp, result }))
}

/// The KV operations among the riders, each with its place among these.
fn operations<'t, 'a>(
    transaction: &'t Transaction<'a>,
) -> impl Iterator<Item = (usize, &'t KvOp<'a>)> {
    transaction.riders.iter().enumerate().filter_map(|(at, rider)| match rider {
        Rider::Kv(op) => Some((at, op)),
        Rider::Position(_) | Rider::Timer(_) => None,
    })
}

/// The operations on timers among the riders, each with its place among these.
fn timers<'t, 'a>(
    transaction: &'t Transaction<'a>,
) -> impl Iterator<Item = (usize, &'t TimerOp<'a>)> {
    transaction.riders.iter().enumerate().filter_map(|(at, rider)| match rider {
        Rider::Timer(op) => Some((at, op)),
        Rider::Kv(_) | Rider::Position(_) => None,
    })
}

/// The positions among the riders, each with its place among these.
fn positions<'t, 'a>(
    transaction: &'t Transaction<'a>,
) -> impl Iterator<Item = (usize, &'t Position<'a>)> {
    transaction.riders.iter().enumerate().filter_map(|(at, rider)| match rider {
        Rider::Position(position) => Some((at, position)),
        Rider::Kv(_) | Rider::Timer(_) => None,
    })
}

/// The queue and the partition that a position names.
fn place<S: Storage>(
    step: &mut Step<'_, S>,
    transaction: &Transaction<'_>,
    position: &Position<'_>,
) -> Result<Option<(QueueId, Partition)>, StorageError> {
    let Some(queue) = step.queue(transaction.tenant, position.queue)? else { return Ok(None) };
    let partition = partition_named(&*step.store, queue.id, position.partition)?;
    Ok(partition.map(|partition| (queue.id, partition)))
}

fn set_position<S: Storage>(
    step: &mut Step<'_, S>,
    transaction: &Transaction<'_>,
    position: &Position<'_>,
) -> Result<Option<queen_core::Offset>, StorageError> {
    // The acks and pushes of the transaction may have moved both.
    let Some((queue, partition)) = place(step, transaction, position)? else { return Ok(None) };
    let group = group::register(step, queue, position.group, position.start, false)?.id;
    let moved = position.offset.map(|to| group_admin::move_cursor(step, group, &partition, to));
    moved.transpose()
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
