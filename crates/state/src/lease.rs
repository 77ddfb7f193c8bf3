//! Leases: holding a batch, extending, giving back, expiring.
//!
//! Owns: the `Lease` and `LeaseExpiry` rows and the lease in a cursor. Leaves to others: claiming
//! (`pop`), settling (`ack`).
//!
//! Upholds `one-live-lease`: a cursor holds at most one, and only a cursor without one is claimed.
//! A lease is live while commands are stamped before its end, swept or not.

use crate::Storage;
use crate::group;
use crate::step::{Partition, Step, partition_with_id, parts, scan_prefix};
use crate::tables::StorageError;
use queen_core::command::{ExtendLease, ReturnLease};
use queen_core::reply::{LeaseExtended, Reply};
use queen_core::row::{CursorRow, HeldLease, key};
use queen_core::table::Table;
use queen_core::{GroupId, LeaseId, PartitionId, Stamp, TenantId};

/// Claims that a lease can have: one pop or claim of a stream takes at most as many partitions.
const CLAIMS_MAX: usize = queen_core::stream::CLAIM_PARTITIONS_MAX;
const _: () = assert!(CLAIMS_MAX >= queen_core::limits::POP_PARTITIONS_MAX as usize);

/// The lease of a cursor that is live at a stamp.
pub fn live(cursor: &CursorRow, now: Stamp) -> Option<HeldLease> {
    cursor.lease.filter(|lease| lease.expires > now)
}

impl<S: Storage> Step<'_, S> {
    /// Gives a cursor a lease, whose rows this writes; the caller stores the cursor.
    pub(crate) fn hold(
        &mut self,
        group: GroupId,
        partition: PartitionId,
        cursor: &mut CursorRow,
        lease: HeldLease,
    ) {
        debug_assert!(cursor.lease.is_none() && cursor.ready.is_none());
        self.store.insert(Table::Lease, &key::lease(lease.id, group, partition), &[]);
        let expiry = key::lease_expiry(lease.expires, group, partition);
        self.store.insert(Table::LeaseExpiry, &expiry, &[]);
        cursor.lease = Some(lease);
        // What is extended may be the first to end, and what is new may end before all others.
        self.memo.no_lease_ends_before = self.memo.no_lease_ends_before.min(lease.expires);
    }

    /// Takes a cursor's lease away, live or not; the caller stores the cursor, and puts the
    /// partition where it belongs in `Ready`.
    pub(crate) fn drop_lease(
        &mut self,
        group: GroupId,
        partition: PartitionId,
        cursor: &mut CursorRow,
    ) {
        if let Some(lease) = cursor.lease.take() {
            self.store.delete(Table::Lease, &key::lease(lease.id, group, partition));
            let expiry = key::lease_expiry(lease.expires, group, partition);
            self.store.delete(Table::LeaseExpiry, &expiry);
        }
    }

    /// Ends a cursor's lease and makes the partition ready again.
    pub(crate) fn release(
        &mut self,
        group: GroupId,
        partition: &Partition,
        cursor: &mut CursorRow,
    ) -> Result<(), StorageError> {
        self.drop_lease(group, partition.row.id, cursor);
        self.place_ready(group, partition, cursor)?;
        self.put(&key::cursor(group, partition.row.id), cursor);
        Ok(())
    }
}

/// Ends at most `limit` leases whose time is over; whether more are due.
pub(crate) fn sweep<S: Storage>(
    step: &mut Step<'_, S>,
    limit: usize,
) -> Result<bool, StorageError> {
    if step.stamp < step.memo.no_lease_ends_before {
        return Ok(false);
    }
    let (from, end) = (key::lease_expiry(Stamp::ZERO, GroupId(0), PartitionId(0)), [u8::MAX; 21]);
    let mut due = step.store.scan(Table::LeaseExpiry, &from, &end, limit + 1)?;
    let mut ends = Vec::with_capacity(due.len());
    for (expiry_key, _) in &due {
        ends.push(parts(Table::LeaseExpiry, expiry_key, key::lease_expiry_parts(expiry_key))?.0);
    }
    due.truncate(ends.iter().take(limit).filter(|at| **at <= step.stamp).count());
    step.memo.no_lease_ends_before = ends.get(due.len()).copied().unwrap_or(Stamp::MAX);
    let more = ends.get(due.len()).is_some_and(|at| *at <= step.stamp);
    for (expiry_key, _) in &due {
        let found = key::lease_expiry_parts(expiry_key);
        let (_, group, partition) = parts(Table::LeaseExpiry, expiry_key, found)?;
        let cursor = group::cursor(&*step.store, group, partition)?;
        let partition = partition_with_id(&*step.store, partition)?;
        match (cursor, partition) {
            (Some(mut cursor), Some(partition)) => step.release(group, &partition, &mut cursor)?,
            _ => step.store.delete(Table::LeaseExpiry, expiry_key),
        }
    }
    Ok(more)
}

/// The claims of a tenant's lease that are live.
fn claims<S: Storage>(
    step: &mut Step<'_, S>,
    tenant: TenantId,
    lease: LeaseId,
) -> Result<Vec<(GroupId, Partition, CursorRow, HeldLease)>, StorageError> {
    let mut claims = Vec::new();
    for (lease_key, _) in scan_prefix(&*step.store, Table::Lease, &lease.0, CLAIMS_MAX)? {
        let found = key::lease_parts(&lease_key);
        let (_, group, partition) = parts(Table::Lease, &lease_key, found)?;
        let cursor = group::cursor(&*step.store, group, partition)?;
        let partition = partition_with_id(&*step.store, partition)?;
        if let (Some(cursor), Some(partition)) = (cursor, partition)
            && let Some(held) = live(&cursor, step.stamp).filter(|held| held.id == lease)
            && let Some(queue) = step.queue_with_id(partition.queue)?
            && queue.row.tenant == tenant
        {
            claims.push((group, partition, cursor, held));
        }
    }
    Ok(claims)
}

/// Moves the end of a lease, never to an earlier stamp.
pub(crate) fn extend<S: Storage>(
    step: &mut Step<'_, S>,
    command: &ExtendLease,
) -> Result<Reply, StorageError> {
    let wanted = step.stamp.plus_seconds(u64::from(command.seconds.max(1)));
    let claims = claims(step, command.tenant, command.lease)?;
    let mut extended = LeaseExtended { claims: claims.len() as u32, expires_at: Stamp::ZERO };
    for (group, partition, mut cursor, held) in claims {
        let lease = HeldLease { expires: held.expires.max(wanted), ..held };
        extended.expires_at = lease.expires;
        if lease != held {
            let id = partition.row.id;
            step.drop_lease(group, id, &mut cursor);
            step.hold(group, id, &mut cursor, lease);
            step.put(&key::cursor(group, id), &cursor);
        }
    }
    Ok(Reply::Lease(extended))
}

/// Ends a lease whose batch was not delivered, as if it had not been claimed. The reply tells how
/// many claims there were.
pub(crate) fn give_back<S: Storage>(
    step: &mut Step<'_, S>,
    command: &ReturnLease,
) -> Result<Reply, StorageError> {
    let claims = claims(step, command.tenant, command.lease)?;
    let given = LeaseExtended { claims: claims.len() as u32, expires_at: step.stamp };
    for (group, partition, mut cursor, _) in claims {
        cursor.attempts = cursor.attempts.saturating_sub(1);
        step.release(group, &partition, &mut cursor)?;
    }
    Ok(Reply::Lease(given))
}
