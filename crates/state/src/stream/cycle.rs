//! Cycles: what a query makes of a batch of one partition, in one step.
//!
//! Owns: the order in which the parts are judged and carried out, how far an ack moves the cursor, how
//! large a partition's state may be. Leaves to others: finding and moving cursors (`ack`), pushes (`push`).
//!
//! Every part is judged against the state before the cycle, and nothing is written before all are; then the
//! ack, the pushes and the changes of state are carried out under one stamp. Upholds `all-or-nothing`.
//!
//! An ack commits up to the message that it names, and no further: what of a batch was not handed out (it
//! could not be read, say) comes again, also when the claim ends. Without a name its count says how far. A
//! cycle that is sent again after its answer got lost finds its lease or its message settled, and is refused.
//! A pushed transaction id that is stored already is not stored again, and undoes nothing.

use super::{owned, partition_state, query_with_id};
use crate::push::Checked;
use crate::step::Step;
use crate::tables::StorageError;
use crate::transaction_id::{HISTORY_BYTES, Resolver};
use crate::{Storage, ack, lease};
use queen_core::command::LeaseClaim;
use queen_core::reply::{AckRefusal, Reply};
use queen_core::row::StreamPartitionRow;
use queen_core::row::stream::{self, StateValue};
use queen_core::stream::{
    Cycle, CycleAck, CycleDone, CycleOutcome, CycleRefusal, STATE_BYTES_MAX, STATE_ROW_BYTES,
    StateOp, StateText, StreamReply,
};
use queen_core::table::Table;
use queen_core::{Code, Error, Offset, PartitionId, Stamp, TenantId};
use std::collections::BTreeMap;

/// Applies all of a cycle or nothing.
pub(crate) fn apply<S: Storage>(
    step: &mut Step<'_, S>,
    cycle: &Cycle<'_>,
) -> Result<Reply, StorageError> {
    let said = |queue: Option<&str>, result| {
        let outcome = CycleOutcome { queue: queue.map(str::to_owned), result };
        Ok(Reply::Stream(StreamReply::Cycle(outcome)))
    };
    let Some(query) = query_with_id(&*step.store, cycle.tenant, cycle.query)? else {
        return said(None, Err(CycleRefusal::NoQuery));
    };
    let Some((queue, _)) = owned(step, cycle.tenant, cycle.partition)? else {
        return said(None, Err(CycleRefusal::NoPartition));
    };
    if queue.row.options.encryption_enabled && cycle.ops.iter().any(in_the_clear) {
        let name = &queue.row.name;
        let text = format!("queue {name:?} is encrypted: state of it is stored sealed only");
        return Ok(Reply::Refused(Error::new(Code::NotSealed, text)));
    }
    let name = Some(&queue.row.name[..]);
    let mut settling = None;
    if let Some(ack) = &cycle.ack {
        let group = query.group(cycle.group);
        match Settling::of(step, cycle.tenant, &group, cycle.partition, ack)? {
            Ok(judged) => settling = Some(judged),
            Err(refusal) => return said(name, Err(CycleRefusal::Ack(refusal))),
        }
    }
    let changes = match Changes::of(step, query.row.state, cycle.partition, &cycle.ops)? {
        Ok(changes) => changes,
        Err(bytes) => return said(name, Err(CycleRefusal::StateFull(bytes))),
    };
    let pushes = match Checked::new(step, cycle.tenant, &cycle.pushes)? {
        Ok(pushes) => pushes,
        Err(refusal) => return Ok(Reply::Refused(refusal)),
    };

    let released = match settling {
        Some(Settling { target, next, ends }) => ack::move_to(step, target, next, ends)?,
        None => false,
    };
    let pushes = pushes.append(step)?;
    changes.carry_out(step);
    said(name, Ok(CycleDone { pushes, released }))
}

fn in_the_clear(op: &StateOp<'_>) -> bool {
    op.value.is_some_and(|value| !value.encrypted)
}

/// A cursor that an ack moves, and where to.
struct Settling {
    target: ack::Target,
    next: Offset,
    /// The claim ends, wherever the cursor is.
    ends: bool,
}

impl Settling {
    fn of<S: Storage>(
        step: &mut Step<'_, S>,
        tenant: TenantId,
        group: &str,
        partition: PartitionId,
        asked: &CycleAck<'_>,
    ) -> Result<Result<Settling, AckRefusal>, StorageError> {
        let target = match ack::target(step, tenant, group, partition)? {
            Ok(target) => target,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let held = lease::live(&target.cursor, step.stamp);
        let Some(held) = held.filter(|held| asked.lease == LeaseClaim::Id(held.id)) else {
            return Ok(Err(AckRefusal::Lease));
        };
        let first = target.cursor.next;
        if !asked.completed {
            return Ok(Ok(Settling { target, next: first, ends: true }));
        }
        let next = match asked.transaction_id {
            // Of a group that conflates one message is all of its batch.
            "" if target.group.conflation && asked.count > 0 => held.end,
            "" => Offset(first.0.saturating_add(asked.count)).min(held.end),
            id => {
                let mut history = HISTORY_BYTES;
                let (partition, cursor) = (&target.partition, target.cursor);
                let mut resolver = Resolver::new(partition, cursor, step.stamp, &mut history);
                match resolver.resolve(&*step.store, id)? {
                    None => return Ok(Err(AckRefusal::Unresolvable)),
                    Some(offset) if offset < first => return Ok(Err(AckRefusal::Committed)),
                    Some(offset) if offset >= held.end => return Ok(Err(AckRefusal::Lease)),
                    Some(offset) => offset.plus(1),
                }
            }
        };
        Ok(Ok(Settling { target, next, ends: asked.release }))
    }
}

/// Changes of what a state holds of a partition.
struct Changes<'c> {
    state: Stamp,
    partition: PartitionId,
    /// By key: what there is afterwards, and whether there was something before.
    rows: BTreeMap<&'c str, (Option<StateText<'c>>, bool)>,
    /// How much there is afterwards.
    after: StreamPartitionRow,
}

impl<'c> Changes<'c> {
    /// What operations come to; the error is how many bytes there would be.
    fn of<S: Storage>(
        step: &Step<'_, S>,
        state: Stamp,
        partition: PartitionId,
        ops: &[StateOp<'c>],
    ) -> Result<Result<Changes<'c>, u64>, StorageError> {
        let last: BTreeMap<_, _> = ops.iter().map(|op| (op.key, op.value)).collect();
        let before = partition_state(&*step.store, state, partition)?.unwrap_or_default();
        let mut after = StreamPartitionRow { updated: step.stamp, ..before };
        let mut rows = BTreeMap::new();
        for (key, value) in last {
            let bytes = |value: usize| (key.len() + value) as u64 + STATE_ROW_BYTES;
            let row_key = stream::state(partition, state, key);
            let old = step.store.get(Table::StreamState, &row_key)?;
            if let Some(old) = &old {
                after.rows = after.rows.saturating_sub(1);
                let old = bytes(StateValue::decode(old)?.value.len());
                after.bytes = after.bytes.saturating_sub(old);
            }
            if let Some(value) = value {
                after.rows += 1;
                after.bytes += bytes(value.bytes.len());
            }
            rows.insert(key, (value, old.is_some()));
        }
        if after.bytes > STATE_BYTES_MAX && after.bytes > before.bytes {
            return Ok(Err(after.bytes));
        }
        Ok(Ok(Changes { state, partition, rows, after }))
    }

    fn carry_out<S: Storage>(self, step: &mut Step<'_, S>) {
        let Changes { state, partition, rows, after } = self;
        if rows.is_empty() {
            return;
        }
        for (key, (value, known)) in rows {
            let row_key = stream::state(partition, state, key);
            match value {
                Some(value) => {
                    let row = StateValue::encode(step.stamp, &value);
                    step.store.put(Table::StreamState, &row_key, &row);
                }
                None if known => step.store.delete(Table::StreamState, &row_key),
                None => {}
            }
        }
        let row_key = stream::partition(state, partition);
        match after.rows {
            0 => step.store.delete(Table::StreamPartition, &row_key),
            _ => step.put(&row_key, &after),
        }
    }
}
