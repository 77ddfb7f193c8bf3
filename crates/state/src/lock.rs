//! Locks and semaphores: who gets a permit, keeps it, and has lost it.
//!
//! Owns: what is in a permit's row, and every rule of the lock operations. Leaves to others: the row's
//! life, version and end (`kv`: a take is a put that expects nothing there, a renewal one that expects
//! a version, a release a delete that does), limits (`queen-broker`), JSON (`queen-http`).
//!
//! A permit whose time is over is free, swept or not. One command decides its takes one after the other
//! under one stamp, so no two callers ever race for a permit.

use crate::kv::{self, Page, READ_BYTES_MAX};
use crate::tables::{StorageError, Tables, TablesMut};
use queen_core::command::KvBatch;
use queen_core::kv::{KvOp, KvOpKind, KvOutcome, KvResult, KvRow};
use queen_core::lock::{
    Holder, LOCK_NAMESPACE, LockOp, LockOpKind, LockResult, Locks, PERMITS_MAX, permit_key,
    permits_prefix,
};
use queen_core::{MessageId, Offset, PartitionId, Stamp, TenantId};
use serde::{Deserialize, Serialize};

/// Rows of one lock that are looked at: all permits, and some that were written by hand.
const ROWS_MAX: usize = 2 * PERMITS_MAX as usize;

/// A permit's value.
#[derive(Default, Deserialize, Serialize)]
struct Permit {
    #[serde(default)]
    owner: Option<String>,
    /// When it was taken, ISO 8601.
    #[serde(default)]
    since: Option<String>,
}

/// Carries out operations under a stamp; one result per operation.
pub(crate) fn apply<S: TablesMut>(
    locks: &Locks<'_>,
    stamp: Stamp,
    store: &mut S,
) -> Result<Vec<LockResult>, StorageError> {
    let mut results = Vec::with_capacity(locks.ops.len());
    for (number, op) in (0..).zip(&locks.ops) {
        let mut call = Call { tenant: locks.tenant, name: op.name, stamp, store: &mut *store };
        results.push(match op.kind {
            LockOpKind::Acquire { owner, ttl_seconds, limit } => {
                let made_up = MessageId::mint(stamp, PartitionId(u64::MAX - 3), Offset(number));
                let owner = owner.map_or_else(|| made_up.to_string(), str::to_owned);
                call.acquire(owner, ttl_seconds, limit)?
            }
            LockOpKind::Renew { slot, token, owner, ttl_seconds } => {
                call.renew(slot, token, owner, ttl_seconds)?
            }
            LockOpKind::Release { slot, token } => call.release(slot, token)?,
            LockOpKind::Get => LockResult::Holders(call.holders()?),
        });
    }
    Ok(results)
}

/// Whether no operation changes anything.
pub fn only_gets(ops: &[LockOp<'_>]) -> bool {
    ops.iter().all(|op| op.kind == LockOpKind::Get)
}

/// Who holds a lock as of `now`, by slot.
pub fn holders<S: Tables>(
    tenant: TenantId,
    name: &str,
    now: Stamp,
    tables: &S,
) -> Result<Vec<Holder>, StorageError> {
    let prefix = permits_prefix(name);
    let page = Page { prefix: &prefix, after: None, limit: ROWS_MAX, keys_only: false };
    let mut budget = READ_BYTES_MAX;
    let (rows, _) = kv::list(tenant, LOCK_NAMESPACE, &page, now, tables, &mut budget)?;
    let mut holders: Vec<Holder> =
        rows.iter().filter_map(|row| holder(row, &row.key[prefix.len()..])).collect();
    holders.sort_unstable_by_key(|holder| holder.slot);
    Ok(holders)
}

/// What a row says of its permit; `None` when its key is no permit's.
fn holder(row: &KvRow, slot: &str) -> Option<Holder> {
    let slot = slot.parse().ok().filter(|number: &u32| number.to_string() == slot)?;
    let permit: Permit = serde_json::from_slice(&row.value).unwrap_or_default();
    Some(Holder {
        slot,
        owner: permit.owner,
        token: row.version,
        since: permit.since.as_deref().and_then(Stamp::parse_iso),
        renewed: row.updated_at,
        expires: row.expires_at,
    })
}

/// One operation under way.
struct Call<'c, S> {
    tenant: TenantId,
    name: &'c str,
    stamp: Stamp,
    store: &'c mut S,
}

impl<S: TablesMut> Call<'_, S> {
    fn holders(&self) -> Result<Vec<Holder>, StorageError> {
        holders(self.tenant, self.name, self.stamp, self.store)
    }

    fn acquire(
        &mut self,
        owner: String,
        ttl_seconds: u64,
        limit: u32,
    ) -> Result<LockResult, StorageError> {
        let holders = self.holders()?;
        if let Some(own) = holders.iter().find(|one| one.owner.as_deref() == Some(&*owner)) {
            let (slot, token) = (own.slot, own.token);
            return Ok(LockResult::Acquired { slot, token, owner, already: true });
        }
        let taken = |slot: &u32| holders.iter().any(|holder| holder.slot == *slot);
        let Some(slot) = (0..limit).find(|slot| !taken(slot)) else {
            return Ok(LockResult::Held(holders));
        };
        let since = Some(self.stamp.to_iso());
        let permit = Permit { owner: Some(owner.clone()), since };
        Ok(match self.write(slot, 0, &permit, ttl_seconds)? {
            Some(token) => LockResult::Acquired { slot, token, owner, already: false },
            None => LockResult::Held(holders),
        })
    }

    fn renew(
        &mut self,
        slot: u32,
        token: u64,
        owner: Option<&str>,
        ttl_seconds: u64,
    ) -> Result<LockResult, StorageError> {
        let holders = self.holders()?;
        let Some(held) = holders.iter().find(|holder| holder.slot == slot) else {
            return Ok(LockResult::Lost(holders));
        };
        // The answer to an earlier renewal of its own may have been lost on the way.
        let own = owner.is_some() && held.owner.as_deref() == owner && token < held.token;
        if held.token != token && !own {
            return Ok(LockResult::Lost(holders));
        }
        let permit = Permit { owner: held.owner.clone(), since: held.since.map(Stamp::to_iso) };
        Ok(match self.write(slot, held.token, &permit, ttl_seconds)? {
            Some(token) => LockResult::Renewed { slot, token },
            None => LockResult::Lost(holders),
        })
    }

    fn release(&mut self, slot: u32, token: u64) -> Result<LockResult, StorageError> {
        let key = permit_key(self.name, slot);
        match self.change(KvOpKind::Delete { key: &key, expect: Some(token) })? {
            KvResult::Applied(_) => Ok(LockResult::Released { slot }),
            _ => Ok(LockResult::Lost(self.holders()?)),
        }
    }

    /// Writes a permit that has this version, 0 for none; gives its new one.
    fn write(
        &mut self,
        slot: u32,
        expect: u64,
        permit: &Permit,
        ttl_seconds: u64,
    ) -> Result<Option<u64>, StorageError> {
        let value = serde_json::to_string(permit).map_err(|e| StorageError(e.to_string()))?;
        let (key, ttl_seconds) = (permit_key(self.name, slot), Some(ttl_seconds));
        let put = KvOpKind::Put { key: &key, value: &value, ttl_seconds, expect: Some(expect) };
        Ok(match self.change(put)? {
            KvResult::Applied(row) => row.map(|row| row.version),
            _ => None,
        })
    }

    fn change(&mut self, kind: KvOpKind<'_>) -> Result<KvResult, StorageError> {
        let op = KvOp { ns: LOCK_NAMESPACE, kind, required: false };
        let batch = KvBatch { tenant: self.tenant, ops: vec![op] };
        match kv::apply(&batch, self.stamp, self.store)? {
            KvOutcome::Done(results) => results.into_iter().next(),
            KvOutcome::Precondition { .. } => None,
        }
        .ok_or_else(|| StorageError("a KV batch of one operation has no result".to_owned()))
    }
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
