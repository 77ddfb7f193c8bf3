//! Claims of a query: leases with an empty batch, under which one runner at a time closes windows.
//!
//! Owns: which partitions are given. Leaves to others: leases (`lease`), what a group has still to get
//! (`ready`), the cycle that ends the claim ([`super::cycle`]).
//!
//! A partition is given when nobody holds it and the group has read all of it. While it is held, no pop of
//! the group is given what comes in: that waits for the cycle, or for the end of the lease. Upholds
//! `one-live-lease`. A group that is not registered has read nothing: it is not made here, since where it
//! starts is for its first pop to say.

use super::{Query, owned, query_with_id};
use crate::ready::{Visible, visible};
use crate::step::Step;
use crate::tables::StorageError;
use crate::{Storage, group, lease};
use queen_core::reply::Reply;
use queen_core::row::{HeldLease, key};
use queen_core::stream::{
    CLAIM_SECONDS_MAX, ClaimPartitions, ClaimStatus, Claimed, ClaimedPartition, StreamReply,
};
use queen_core::{LeaseId, Offset, PartitionId, TenantId};

/// Leases the partitions that are idle.
pub(crate) fn apply<S: Storage>(
    step: &mut Step<'_, S>,
    asked: &ClaimPartitions<'_>,
) -> Result<Reply, StorageError> {
    let Some(query) = query_with_id(&*step.store, asked.tenant, asked.query)? else {
        return Ok(Reply::Stream(StreamReply::Claimed(None)));
    };
    let group = query.group(asked.group);
    let seconds = asked.seconds.clamp(1, CLAIM_SECONDS_MAX);
    let expires = step.stamp.plus_seconds(u64::from(seconds));
    let lease = HeldLease { id: LeaseId::mint(step.stamp), end: Offset(0), expires };
    let mut partitions = Vec::with_capacity(asked.partitions.len());
    for id in &asked.partitions {
        partitions.push(claim(step, asked.tenant, &query, &group, *id, lease)?);
    }
    let claimed = Claimed { lease: lease.id, stamp: step.stamp, partitions };
    Ok(Reply::Stream(StreamReply::Claimed(Some(claimed))))
}

fn claim<S: Storage>(
    step: &mut Step<'_, S>,
    tenant: TenantId,
    query: &Query,
    group: &str,
    id: PartitionId,
    lease: HeldLease,
) -> Result<ClaimedPartition, StorageError> {
    let owned = owned(step, tenant, id)?;
    let Some((queue, partition)) = owned.filter(|(queue, _)| queue.row.name == query.row.source)
    else {
        return Ok(ClaimedPartition { id, name: "".into(), status: ClaimStatus::Missing });
    };
    let is = |status| Ok(ClaimedPartition { id, name: partition.name.clone(), status });
    let Some(group) = group::registered(&*step.store, queue.id, group)? else {
        return is(ClaimStatus::Backlog);
    };
    let known = group::cursor(&*step.store, group.id, id)?;
    let mut cursor = match known {
        Some(cursor) => cursor,
        None => group::first_cursor(&*step.store, &group, &partition.row)?,
    };
    match lease::live(&cursor, step.stamp) {
        // It was named twice.
        Some(held) if held.id == lease.id => return is(ClaimStatus::Claimed(held.expires)),
        Some(held) => return is(ClaimStatus::Busy(held.expires)),
        None if cursor.lease.is_some() => step.release(group.id, &partition, &mut cursor)?,
        None => {}
    }
    let (row, options) = (&partition.row, &queue.row.options);
    let seen = visible(&*step.store, options, row, cursor.next, step.stamp)?;
    let Visible::Nothing { first } = seen else { return is(ClaimStatus::Backlog) };
    if cursor.next != first {
        // What waited too long, or went, is passed as a pop would pass it.
        (cursor.next, cursor.moved, cursor.attempts) = (first, step.stamp, 0);
        cursor.delivered = cursor.delivered.max(first);
    }
    step.set_ready(group.id, &partition, &mut cursor, None);
    step.hold(group.id, id, &mut cursor, HeldLease { end: first, ..lease });
    step.put(&key::cursor(group.id, id), &cursor);
    is(ClaimStatus::Claimed(lease.expires))
}
