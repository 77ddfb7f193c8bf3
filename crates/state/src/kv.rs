//! The KV store: conditional writes, counters, expiry, reads.
//!
//! Owns: every rule of the KV operations and the rows they touch. Leaves to others: limits of a
//! request (`queen-broker`), JSON (`queen-http`), what a write of the sink pins ([`crate::pin`]).
//!
//! A batch is decided operation by operation, each write and check against what the ones before it
//! left, and applied whole or, when a required one is lost, not at all. Reads of a batch see the
//! state after all its writes: never half of them. A row is gone from its expiry stamp on, whether
//! swept or not. Upholds `kv-versions-rise`: one counter serves every key of every tenant.

use crate::pin;
use crate::tables::{StorageError, Tables, TablesMut};
use bytes::Bytes;
use queen_core::command::KvBatch;
use queen_core::decimal::Decimal;
use queen_core::kv::{KvLoss, KvOp, KvOpKind, KvOutcome, KvResult, KvRow};
use queen_core::row::kv::{self as row, KvValue};
use queen_core::table::Table;
use queen_core::{Stamp, TenantId};
use std::collections::BTreeMap;

/// Bytes of values that the `getMany` and `getPrefix` of one batch give together.
pub const READ_BYTES_MAX: usize = 4 << 20;

/// Rows looked at in one step of a listing.
const SCAN_STEP: usize = 256;

/// Applies a batch under its stamp.
///
/// Costs one row read per operation, and three row writes at most per write that takes effect.
pub fn apply<S: TablesMut>(
    batch: &KvBatch<'_>,
    stamp: Stamp,
    store: &mut S,
) -> Result<KvOutcome, StorageError> {
    match Decided::new(batch.tenant, batch.ops.iter(), stamp, store)? {
        Ok(decided) => decided.carry_out(batch.tenant, stamp, store).map(KvOutcome::Done),
        Err(Lost { index, reason, row }) => Ok(KvOutcome::Precondition { index, reason, row }),
    }
}

/// A required operation that is lost.
pub(crate) struct Lost {
    /// Which of the operations.
    pub(crate) index: usize,
    pub(crate) reason: KvLoss,
    /// The row as it is, if it exists.
    pub(crate) row: Option<KvRow>,
}

/// Operations of which nothing required is lost. Making it changes nothing.
pub(crate) struct Decided<'o, 'a> {
    writes: Writes,
    /// Each with its result, unless it is a read.
    ops: Vec<(&'o KvOp<'a>, Option<KvResult>)>,
}

impl<'o, 'a: 'o> Decided<'o, 'a> {
    /// Decides operations one by one, each against what the ones before it leave.
    pub(crate) fn new<S: Tables>(
        tenant: TenantId,
        ops: impl Iterator<Item = &'o KvOp<'a>>,
        stamp: Stamp,
        tables: &S,
    ) -> Result<Result<Decided<'o, 'a>, Lost>, StorageError> {
        let writes = Writes { last_version: last_version(tables)?, rows: BTreeMap::new() };
        let mut decided = Decided { writes, ops: Vec::with_capacity(ops.size_hint().0) };
        for (index, op) in ops.enumerate() {
            let result = decide(tenant, op, stamp, tables, &mut decided.writes)?;
            if let (true, Some(KvResult::Lost { reason, row })) = (op.required, &result) {
                return Ok(Err(Lost { index, reason: *reason, row: row.clone() }));
            }
            decided.ops.push((op, result));
        }
        Ok(Ok(decided))
    }

    /// Writes what was decided, and answers the reads; one result per operation.
    pub(crate) fn carry_out<S: TablesMut>(
        self,
        tenant: TenantId,
        stamp: Stamp,
        store: &mut S,
    ) -> Result<Vec<KvResult>, StorageError> {
        self.writes.store(stamp, store)?;
        let mut budget = READ_BYTES_MAX;
        let done = self.ops.into_iter().map(|(op, result)| match result {
            Some(result) => Ok(result),
            None => read(tenant, op, stamp, store, &mut budget),
        });
        done.collect()
    }
}

/// Answers a batch that only reads, as of `now`; `None` when it has a write or a check.
///
/// All reads see one state: the caller holds `tables` still.
pub fn answer_reads<S: Tables>(
    batch: &KvBatch<'_>,
    now: Stamp,
    tables: &S,
) -> Result<Option<Vec<KvResult>>, StorageError> {
    if !only_reads(batch) {
        return Ok(None);
    }
    let mut budget = READ_BYTES_MAX;
    let results = batch.ops.iter().map(|op| read(batch.tenant, op, now, tables, &mut budget));
    results.collect::<Result<_, _>>().map(Some)
}

/// Whether no operation of the batch is a write or a check.
pub fn only_reads(batch: &KvBatch<'_>) -> bool {
    batch.ops.iter().all(|op| {
        matches!(
            op.kind,
            KvOpKind::Get { .. } | KvOpKind::GetMany { .. } | KvOpKind::GetPrefix { .. }
        )
    })
}

/// Removes at most `limit` rows whose time is over; whether more are due.
pub fn sweep<S: TablesMut>(
    stamp: Stamp,
    limit: usize,
    store: &mut S,
) -> Result<bool, StorageError> {
    let end = row::expiry_key(Stamp(stamp.0.saturating_add(1)), &[]);
    let due = store.scan(Table::KvExpiry, &[], &end, limit)?;
    for (key, _) in &due {
        let (expires, row_key) = row::parse_expiry_key(key)?;
        store.delete(Table::KvExpiry, key);
        let old =
            store.get(Table::Kv, row_key)?.map(|bytes| KvValue::decode(&bytes)).transpose()?;
        if let Some(old) = old.filter(|old| old.expires == expires) {
            store.delete(Table::Kv, row_key);
            count(row_key, -1, store)?;
            pin::key_changed(row_key, Some(&old), stamp, store)?;
        }
    }
    Ok(due.len() == limit)
}

/// The last version given to any row.
fn last_version<S: Tables>(tables: &S) -> Result<u64, StorageError> {
    Ok(row::decode_number(tables.get(Table::Meta, row::VERSION_KEY)?.as_ref())?)
}

/// What a batch is going to write, held back until nothing required can be lost any more.
struct Writes {
    last_version: u64,
    rows: BTreeMap<Vec<u8>, Written>,
}

struct Written {
    /// The row in the tables, live or expired.
    stored: Option<KvValue>,
    /// The row as the batch leaves it; `None` = deleted.
    now: Option<KvValue>,
}

impl Writes {
    /// The live row at a key as the batch has left it so far, and what is stored there.
    fn look_up<S: Tables>(
        &self,
        key: &[u8],
        stamp: Stamp,
        tables: &S,
    ) -> Result<(Option<KvValue>, Option<KvValue>), StorageError> {
        if let Some(written) = self.rows.get(key) {
            return Ok((written.now.clone(), written.stored.clone()));
        }
        let stored =
            tables.get(Table::Kv, key)?.map(|bytes| KvValue::decode(&bytes)).transpose()?;
        Ok((stored.clone().filter(|row| row.expires > stamp), stored))
    }

    fn put(
        &mut self,
        key: Vec<u8>,
        stored: Option<KvValue>,
        value: &str,
        expires: Stamp,
        stamp: Stamp,
    ) -> KvValue {
        self.last_version += 1;
        let now = KvValue {
            version: self.last_version,
            expires,
            updated: stamp,
            value: Bytes::copy_from_slice(value.as_bytes()),
        };
        self.rows.insert(key, Written { stored, now: Some(now.clone()) });
        now
    }

    fn store<S: TablesMut>(self, stamp: Stamp, store: &mut S) -> Result<(), StorageError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        store.put(Table::Meta, row::VERSION_KEY, &row::encode_number(self.last_version));
        for (key, Written { stored, now }) in &self.rows {
            let expiry = |row: &Option<KvValue>| {
                row.as_ref().map(|row| row.expires).filter(|at| *at != Stamp::MAX)
            };
            let (old, new) = (expiry(stored), expiry(now));
            if let (Some(at), true) = (old, old != new) {
                store.delete(Table::KvExpiry, &row::expiry_key(at, key));
            }
            if let (Some(at), true) = (new, old != new) {
                store.insert(Table::KvExpiry, &row::expiry_key(at, key), &[]);
            }
            match now {
                Some(row) => store.put(Table::Kv, key, &row.encode()),
                None => store.delete(Table::Kv, key),
            }
            count(key, i64::from(now.is_some()) - i64::from(stored.is_some()), store)?;
        }
        for (key, Written { stored, .. }) in &self.rows {
            pin::key_changed(key, stored.as_ref(), stamp, store)?;
        }
        Ok(())
    }
}

/// Moves the count of a row's namespace.
fn count<S: TablesMut>(row_key: &[u8], by: i64, store: &mut S) -> Result<(), StorageError> {
    if by == 0 {
        return Ok(());
    }
    let (tenant, ns, _) = row::parse_key(row_key)?;
    let key = row::namespace_key(tenant, ns);
    let old = row::decode_number(store.get(Table::KvNamespace, &key)?.as_ref())?;
    match old.saturating_add_signed(by) {
        0 => store.delete(Table::KvNamespace, &key),
        new => store.put(Table::KvNamespace, &key, &row::encode_number(new)),
    }
    Ok(())
}

/// Decides a write or a check; `None` for a read.
fn decide<S: Tables>(
    tenant: TenantId,
    op: &KvOp<'_>,
    stamp: Stamp,
    tables: &S,
    writes: &mut Writes,
) -> Result<Option<KvResult>, StorageError> {
    let (key, expect) = match op.kind {
        KvOpKind::Put { key, expect, .. } | KvOpKind::Delete { key, expect } => (key, expect),
        KvOpKind::Check { key, expect } => (key, Some(expect)),
        KvOpKind::Incr { key, .. } => (key, None),
        KvOpKind::Get { .. } | KvOpKind::GetMany { .. } | KvOpKind::GetPrefix { .. } => {
            return Ok(None);
        }
    };
    let row_key = row::key(tenant, op.ns, key);
    let (current, stored) = writes.look_up(&row_key, stamp, tables)?;
    let shown = |row: KvValue| shown(key, row, false);
    let lost = |reason, row: Option<KvValue>| KvResult::Lost { reason, row: row.map(shown) };
    if let Some(reason) = expect.and_then(|version| unmet(version, current.as_ref())) {
        return Ok(Some(lost(reason, current)));
    }
    Ok(Some(match op.kind {
        KvOpKind::Put { value, ttl_seconds, .. } => {
            let row = writes.put(row_key, stored, value, expiry(stamp, ttl_seconds), stamp);
            KvResult::Applied(Some(shown(row)))
        }
        KvOpKind::Delete { .. } if current.is_none() => lost(KvLoss::Absent, None),
        KvOpKind::Delete { .. } => {
            writes.rows.insert(row_key, Written { stored, now: None });
            KvResult::Applied(None)
        }
        KvOpKind::Incr { delta, min, max, ttl_seconds, .. } => {
            match sum(current.as_ref(), delta, min, max) {
                Err(reason) => lost(reason, current),
                Ok(sum) => {
                    let expires = match &current {
                        Some(row) => row.expires,
                        None => expiry(stamp, ttl_seconds),
                    };
                    let row = writes.put(row_key, stored, &sum.to_string(), expires, stamp);
                    KvResult::Applied(Some(shown(row)))
                }
            }
        }
        _ => KvResult::Applied(current.map(shown)),
    }))
}

/// Why a key does not have this version: 0 = must not exist.
fn unmet(version: u64, current: Option<&KvValue>) -> Option<KvLoss> {
    match (version, current) {
        (0, None) => None,
        (0, Some(_)) => Some(KvLoss::Exists),
        (_, None) => Some(KvLoss::Absent),
        (version, Some(row)) if row.version == version => None,
        _ => Some(KvLoss::Version),
    }
}

fn expiry(stamp: Stamp, ttl_seconds: Option<u64>) -> Stamp {
    ttl_seconds.map_or(Stamp::MAX, |seconds| stamp.plus_seconds(seconds))
}

/// The counter after `delta`, or why it stays as it is.
fn sum(
    current: Option<&KvValue>,
    delta: &str,
    min: Option<&str>,
    max: Option<&str>,
) -> Result<Decimal, KvLoss> {
    let old = match current {
        None => Decimal::ZERO,
        Some(row) => {
            std::str::from_utf8(&row.value).ok().and_then(Decimal::parse).ok_or(KvLoss::Type)?
        }
    };
    let number = |text| Decimal::parse(text).ok_or(KvLoss::Type);
    let sum = old.plus(number(delta)?).ok_or(KvLoss::Limit)?;
    let below = min.map(number).transpose()?.is_some_and(|min| sum.below(min));
    let above = max.map(number).transpose()?.is_some_and(|max| max.below(sum));
    if below || above { Err(KvLoss::Limit) } else { Ok(sum) }
}

/// Answers a read as of `now`; a write or a check answers no row.
fn read<S: Tables>(
    tenant: TenantId,
    op: &KvOp<'_>,
    now: Stamp,
    tables: &S,
    budget: &mut usize,
) -> Result<KvResult, StorageError> {
    match &op.kind {
        KvOpKind::GetMany { keys } => get_many(tenant, op.ns, keys, now, tables, budget),
        KvOpKind::GetPrefix { prefix, after, limit, keys_only } => {
            let page =
                Page { prefix, after: *after, limit: *limit as usize, keys_only: *keys_only };
            let (rows, truncated) = list(tenant, op.ns, &page, now, tables, budget)?;
            Ok(KvResult::Rows { rows, missing: Vec::new(), truncated })
        }
        KvOpKind::Get { key }
        | KvOpKind::Put { key, .. }
        | KvOpKind::Delete { key, .. }
        | KvOpKind::Incr { key, .. }
        | KvOpKind::Check { key, .. } => Ok(KvResult::Row(
            live(tenant, op.ns, key, now, tables)?.map(|row| shown(key, row, false)),
        )),
    }
}

fn get_many<S: Tables>(
    tenant: TenantId,
    ns: &str,
    keys: &[&str],
    now: Stamp,
    tables: &S,
    budget: &mut usize,
) -> Result<KvResult, StorageError> {
    let (mut rows, mut missing, mut truncated) = (Vec::new(), Vec::new(), false);
    for key in keys {
        match live(tenant, ns, key, now, tables)? {
            None => missing.push((*key).to_owned()),
            Some(row) if !spend(budget, row.value.len()) => truncated = true,
            Some(row) => rows.push(shown(key, row, false)),
        }
    }
    Ok(KvResult::Rows { rows, missing, truncated })
}

/// One page of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Keys that begin so; empty = all.
    pub prefix: &'a str,
    /// Only keys after this one.
    pub after: Option<&'a str>,
    /// Most rows.
    pub limit: usize,
    /// Leave out values.
    pub keys_only: bool,
}

/// Live rows of a namespace in key order, and whether more would have matched.
///
/// Values beyond `budget` bytes end the page. Costs what it gives, and the expired rows between that
/// no sweep has removed yet.
pub fn list<S: Tables>(
    tenant: TenantId,
    ns: &str,
    page: &Page<'_>,
    now: Stamp,
    tables: &S,
    budget: &mut usize,
) -> Result<(Vec<KvRow>, bool), StorageError> {
    let (mut from, to) = row::prefix_range(tenant, ns, page.prefix);
    if let Some(after) = page.after {
        let mut next = row::key(tenant, ns, after);
        next.push(0);
        from = from.max(next);
    }
    let mut rows = Vec::new();
    loop {
        let step = tables.scan(Table::Kv, &from, &to, SCAN_STEP.min(page.limit + 1))?;
        let Some((last, _)) = step.last() else { return Ok((rows, false)) };
        from = last.to_vec();
        from.push(0);
        for (key, bytes) in &step {
            let row = KvValue::decode(bytes)?;
            if row.expires <= now {
                continue;
            }
            let size = if page.keys_only { 0 } else { row.value.len() };
            if rows.len() == page.limit || !spend(budget, size) {
                return Ok((rows, true));
            }
            let (_, _, key) = row::parse_key(key)?;
            rows.push(shown(key, row, page.keys_only));
        }
    }
}

/// A tenant's namespaces and their rows, expired ones included until they are swept.
pub fn namespaces<S: Tables>(
    tenant: TenantId,
    limit: usize,
    tables: &S,
) -> Result<Vec<(String, u64)>, StorageError> {
    let from = row::namespace_key(tenant, "");
    // Namespaces are ASCII.
    let mut to = from.clone();
    to.push(0xff);
    let rows = tables.scan(Table::KvNamespace, &from, &to, limit)?;
    let named = rows.iter().map(|(key, count)| {
        let name = String::from_utf8_lossy(key.get(16..).unwrap_or_default()).into_owned();
        Ok((name, row::decode_number(Some(count))?))
    });
    named.collect()
}

/// The row at a key, unless its time is over.
pub(crate) fn live<S: Tables>(
    tenant: TenantId,
    ns: &str,
    key: &str,
    now: Stamp,
    tables: &S,
) -> Result<Option<KvValue>, StorageError> {
    let bytes = tables.get(Table::Kv, &row::key(tenant, ns, key))?;
    let stored = bytes.map(|bytes| KvValue::decode(&bytes)).transpose()?;
    Ok(stored.filter(|row| row.expires > now))
}

/// Takes `bytes` from the budget; false, and nothing taken, when it has not so many.
fn spend(budget: &mut usize, bytes: usize) -> bool {
    let left = budget.checked_sub(bytes);
    *budget = left.unwrap_or(*budget);
    left.is_some()
}

fn shown(key: &str, row: KvValue, keys_only: bool) -> KvRow {
    KvRow {
        key: key.to_owned(),
        value: if keys_only { Bytes::new() } else { row.value },
        version: row.version,
        expires_at: (row.expires != Stamp::MAX).then_some(row.expires),
        updated_at: row.updated,
    }
}

#[cfg(test)]
#[path = "kv_tests.rs"]
mod tests;
