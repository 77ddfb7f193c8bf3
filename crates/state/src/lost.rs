//! Loss: what retention or a deletion took before a sink had copied it.
//!
//! Owns: which sinks copy a queue and how far each has come, the rows of `Lost`, and which window's
//! manifest lists them. Leaves to others: the removal itself (`retention`, `gone`), which records it
//! here in the same command; the manifest (`queen-sink`).
//! Upholds: `loss-is-listed`, `once-in-the-lake`.
//!
//! A sink copies a queue from the stamp of its `start` row on, and has copied what is stamped below
//! the `tEnd` of its `committed` row. A record above that, removed outside a pin, is lost to it. The
//! range goes to the first window whose intent is not written yet; the commit of that window removes
//! it. So what an intent's window lists never changes: a redo writes the same manifest.

use crate::kv;
use crate::step::{Step, decode, get, parts, scan_prefix};
use crate::tables::{StorageError, Tables, TablesMut};
use crate::{Reading, Storage};
use queen_core::limits::SINK_NAMESPACE;
use queen_core::reply::Event;
use queen_core::row::kv as kv_row;
use queen_core::row::lost::{self as row, RANGES_MAX};
use queen_core::row::{LostRow, LostWindowRow, QueueRow, key};
use queen_core::sink::{LossReason, LostRange, RowKind, SinkOn, Start, on_key, row_key};
use queen_core::table::Table;
use queen_core::{Offset, PartitionId, QueueId, Stamp, TenantId};
use serde::Deserialize;

/// Names the word for a copy that begins with the oldest record.
const EARLIEST: &str = "earliest";

/// Sinks of a tenant that are asked; none has so many.
const SINKS_MAX: usize = 256;

/// Windows whose lists a range may join: 1,280,000 ranges.
const WINDOWS_ASKED: u64 = 128;

/// A sink that copies a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    /// Its name.
    pub sink: String,
    /// It still has to copy records stamped at or above this.
    pub from: Stamp,
}

/// A range of a partition that goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range<'a> {
    pub(crate) queue: QueueId,
    pub(crate) partition: PartitionId,
    pub(crate) name: &'a str,
    pub(crate) from: Offset,
    pub(crate) end: Offset,
    pub(crate) reason: LossReason,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Committed {
    k: u64,
    t_end: u64,
}

#[derive(Deserialize)]
struct Intent {
    k: u64,
}

/// Reads a document of a sink's row; `None` when there is no live row, or it does not read.
fn document<T: for<'d> Deserialize<'d>>(
    tables: &impl Tables,
    tenant: TenantId,
    key: &str,
    now: Stamp,
) -> Result<Option<T>, StorageError> {
    let row = kv::live(tenant, SINK_NAMESPACE, key, now, tables)?;
    Ok(row.and_then(|row| serde_json::from_slice(&row.value).ok()))
}

/// The stamp from which on a sink still has to copy a queue; `None` when it does not copy it.
pub fn position(
    tables: &impl Tables,
    sink: &str,
    queue: &QueueRow,
    now: Stamp,
) -> Result<Option<Stamp>, StorageError> {
    let (tenant, name) = (queue.tenant, &queue.name);
    let committed = row_key(sink, name, RowKind::Committed);
    if let Some(done) = document::<Committed>(tables, tenant, &committed, now)? {
        return Ok(Some(Stamp(done.t_end)));
    }
    let start = row_key(sink, name, RowKind::Start);
    if let Some(start) = document::<Start>(tables, tenant, &start, now)? {
        return Ok(Some(Stamp(start.stamp)));
    }
    let on: Option<SinkOn> = document(tables, tenant, &on_key(sink), now)?;
    Ok(on.and_then(|on| on.all).map(|all| match all.mode.as_str() {
        EARLIEST => Stamp::ZERO,
        _ => Stamp(all.stamp).max(queue.created),
    }))
}

/// The sinks of a tenant that have any row.
pub fn sinks(tables: &impl Tables, tenant: TenantId) -> Result<Vec<String>, StorageError> {
    let (mut from, to) = kv_row::prefix_range(tenant, SINK_NAMESPACE, "s3:");
    let mut found = Vec::new();
    while found.len() < SINKS_MAX {
        let Some((row_key, _)) = tables.scan(Table::Kv, &from, &to, 1)?.pop() else { break };
        let (_, _, key) = kv_row::parse_key(&row_key)?;
        let rest = key.strip_prefix("s3:").unwrap_or_default();
        let sink = rest.split(':').next().unwrap_or_default();
        // ';' is the byte after ':': the next sink's rows come at or after it.
        from = kv_row::key(tenant, SINK_NAMESPACE, &format!("s3:{sink};"));
        found.push(sink.to_owned());
    }
    Ok(found)
}

/// Whether a sink was ever turned on for a tenant.
pub fn is_known(tables: &impl Tables, tenant: TenantId, sink: &str) -> Result<bool, StorageError> {
    let key = kv_row::key(tenant, SINK_NAMESPACE, &on_key(sink));
    Ok(tables.get(Table::Kv, &key)?.is_some())
}

/// The sinks that copy a queue.
pub fn followers(
    tables: &impl Tables,
    queue: &QueueRow,
    now: Stamp,
) -> Result<Vec<Follower>, StorageError> {
    let mut found = Vec::new();
    for sink in sinks(tables, queue.tenant)? {
        if let Some(from) = position(tables, &sink, queue, now)? {
            found.push(Follower { sink, from });
        }
    }
    Ok(found)
}

/// The first window whose intent is not written yet.
fn next_window(
    tables: &impl Tables,
    tenant: TenantId,
    sink: &str,
    queue: &str,
    now: Stamp,
) -> Result<u64, StorageError> {
    let key = |kind| row_key(sink, queue, kind);
    let done: Option<Committed> = document(tables, tenant, &key(RowKind::Committed), now)?;
    let begun: Option<Intent> = document(tables, tenant, &key(RowKind::Intent), now)?;
    let (done, begun) = (done.map_or(0, |done| done.k), begun.map_or(0, |begun| begun.k));
    Ok(done.max(begun).saturating_add(1))
}

/// Records that a range is lost to a sink of the queue `queue`.
pub(crate) fn record<S: Storage>(
    step: &mut Step<'_, S>,
    queue: &QueueRow,
    sink: &str,
    range: Range<'_>,
) -> Result<(), StorageError> {
    if range.from >= range.end {
        return Ok(());
    }
    let prefix = row::queue_prefix(queue.tenant, sink, &queue.name);
    let next = next_window(&*step.store, queue.tenant, sink, &queue.name, step.stamp)?;
    let mut window = newest_window(&*step.store, &prefix)?.max(next);
    let records = range.end.0 - range.from.0;
    // A sink that is off lists nothing: what goes of a partition joins what went of it before.
    for open in next.max(window.saturating_sub(WINDOWS_ASKED))..=window {
        if let Some((at, lost)) = grown(&*step.store, &prefix, open, &range)? {
            step.put(&at, &LostRow { end: range.end, ..lost });
            let key = row::window_key(&prefix, open);
            if let Some(counts) = get::<LostWindowRow>(&*step.store, &key)? {
                step.put(&key, &LostWindowRow { records: counts.records + records, ..counts });
            }
            return Ok(());
        }
    }
    let mut key = row::window_key(&prefix, window);
    let mut counts = get::<LostWindowRow>(&*step.store, &key)?;
    if counts.is_some_and(|counts| counts.ranges >= RANGES_MAX) {
        window += 1;
        key = row::window_key(&prefix, window);
        counts = None;
    }
    if counts.is_none() {
        // Whoever waits for something to ship looks again.
        step.events.push(Event::QueueChanged { queue: range.queue });
    }
    let fresh = LostWindowRow { since: step.stamp, ranges: 0, records: 0 };
    let counts = counts.unwrap_or(fresh);
    let (ranges, records) = (counts.ranges + 1, counts.records + records);
    step.put(&key, &LostWindowRow { ranges, records, ..counts });
    let Range { queue, partition, name, from, end, reason } = range;
    let at = row::range_key(&prefix, window, partition, from);
    step.put(&at, &LostRow { queue, partition: name.into(), end, reason });
    Ok(())
}

/// The newest window that has anything to list; 0 when there is none.
fn newest_window(tables: &impl Reading, prefix: &[u8]) -> Result<u64, StorageError> {
    let rows = tables.scan_back(Table::Lost, prefix, &key::after_prefix(prefix), 1)?;
    let Some((row_key, _)) = rows.first() else { return Ok(0) };
    let (window, _) = tail(row_key, prefix)?;
    Ok(window)
}

/// What a key says behind its prefix: a window, and of a range its partition and first offset.
type Tail = (u64, Option<(PartitionId, Offset)>);

fn tail(row_key: &[u8], prefix: &[u8]) -> Result<Tail, StorageError> {
    let tail = row_key.get(prefix.len()..).and_then(row::parse_tail);
    parts(Table::Lost, row_key, tail)
}

/// The range of the window that ends where this one begins.
fn grown(
    tables: &impl Reading,
    prefix: &[u8],
    window: u64,
    range: &Range<'_>,
) -> Result<Option<(Vec<u8>, LostRow)>, StorageError> {
    let first = row::range_key(prefix, window, range.partition, Offset(0));
    let to = row::range_key(prefix, window, range.partition, range.from);
    let Some((row_key, value)) = tables.scan_back(Table::Lost, &first, &to, 1)?.pop() else {
        return Ok(None);
    };
    let lost: LostRow = decode(&row_key, &value)?;
    let same = lost.end == range.from && lost.reason == range.reason;
    Ok(same.then(|| (row_key.to_vec(), lost)))
}

/// Forgets what the windows up to `k` list: their manifests are in the bucket.
pub(crate) fn listed<S: TablesMut>(
    store: &mut S,
    tenant: TenantId,
    sink: &str,
    queue: &str,
    k: u64,
) -> Result<(), StorageError> {
    let prefix = row::queue_prefix(tenant, sink, queue);
    let to = row::window_key(&prefix, k.saturating_add(1));
    // At most RANGES_MAX rows a window, and a commit follows each window.
    for (row_key, _) in store.scan(Table::Lost, &prefix, &to, usize::MAX)? {
        store.delete(Table::Lost, &row_key);
    }
    Ok(())
}

/// Loss that waits to be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Queue incarnation of the first of it.
    pub queue: QueueId,
    /// Stamp at which the first of it went.
    pub since: Stamp,
    /// More went than one window lists.
    pub more: bool,
    /// Ranges that the window lists as of now.
    pub ranges: u64,
    /// Records in them.
    pub records: u64,
}

/// What window `k` of a queue has to list as of now; `None` when nothing.
pub fn waiting(
    tables: &impl Reading,
    tenant: TenantId,
    sink: &str,
    queue: &str,
    k: u64,
) -> Result<Option<Waiting>, StorageError> {
    let prefix = row::queue_prefix(tenant, sink, queue);
    // The oldest row is that of a window: it sorts before its ranges.
    let rows = scan_prefix(tables, Table::Lost, &prefix, 2)?;
    let [(window_key, counts), (range_key, range)] = &rows[..] else { return Ok(None) };
    let (window, _) = tail(window_key, &prefix)?;
    let LostWindowRow { since, ranges, records } = decode(window_key, counts)?;
    let LostRow { queue, .. } = decode(range_key, range)?;
    let more = newest_window(tables, &prefix)? > window;
    let found = Waiting { queue, since, more, ranges: ranges.into(), records };
    Ok((window <= k).then_some(found))
}

/// The last window of a queue that a sink has committed; 0 before the first.
pub fn committed(
    tables: &impl Tables,
    tenant: TenantId,
    sink: &str,
    queue: &str,
    now: Stamp,
) -> Result<u64, StorageError> {
    let key = row_key(sink, queue, RowKind::Committed);
    Ok(document::<Committed>(tables, tenant, &key, now)?.map_or(0, |done| done.k))
}

/// Version of the row of a queue's last intent; 0 before the first. It rises with each intent.
pub fn begun(
    tables: &impl Tables,
    tenant: TenantId,
    sink: &str,
    queue: &str,
    now: Stamp,
) -> Result<u64, StorageError> {
    let key = row_key(sink, queue, RowKind::Intent);
    let row = kv::live(tenant, SINK_NAMESPACE, &key, now, tables)?;
    Ok(row.map_or(0, |row| row.version))
}

/// A part of a listing, short enough to be made under one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What was found.
    pub found: Vec<T>,
    /// Where the rest begins; `None` at the end.
    pub next: Option<Vec<u8>>,
}

/// The ranges that window `k` of a queue lists, by partition and offset: final from its intent on,
/// gone with its commit.
pub fn ranges(
    tables: &impl Reading,
    tenant: TenantId,
    sink: &str,
    queue: &str,
    k: u64,
) -> Result<Vec<LostRange>, StorageError> {
    Ok(ranges_from(tables, tenant, sink, (queue, k), None, usize::MAX)?.found)
}

/// At most `rows_max` rows of [`ranges`] of a queue and a window, from the start or where a page before
/// ended.
pub fn ranges_from(
    tables: &impl Reading,
    tenant: TenantId,
    sink: &str,
    (queue, k): (&str, u64),
    from: Option<Vec<u8>>,
    rows_max: usize,
) -> Result<Page<LostRange>, StorageError> {
    let prefix = row::queue_prefix(tenant, sink, queue);
    let to = row::window_key(&prefix, k.saturating_add(1));
    let rows = tables.scan(Table::Lost, from.as_ref().unwrap_or(&prefix), &to, rows_max)?;
    let mut found = Vec::new();
    for (row_key, value) in &rows {
        let (_, Some((_, from))) = tail(row_key, &prefix)? else { continue };
        let lost: LostRow = decode(row_key, value)?;
        found.push(LostRange {
            partition: lost.partition.into(),
            incarnation: lost.queue.0,
            from: from.0,
            to: lost.end.0.saturating_sub(1),
            reason: lost.reason,
        });
    }
    let last = rows.last().filter(|_| rows.len() == rows_max);
    Ok(Page { found, next: last.map(|(row_key, _)| [row_key, &[0][..]].concat()) })
}

/// The queues of which a sink has loss to list, with the incarnation of the first of it; at most
/// `queues_max` of them, from the start or where a page before ended.
pub fn queues(
    tables: &impl Reading,
    tenant: TenantId,
    sink: &str,
    from: Option<Vec<u8>>,
    queues_max: usize,
) -> Result<Page<(String, QueueId)>, StorageError> {
    let prefix = row::sink_prefix(tenant, sink);
    let to = key::after_prefix(&prefix);
    let mut from = from.unwrap_or_else(|| prefix.clone());
    let mut found = Vec::new();
    while found.len() < queues_max {
        // The row of a window and its first range.
        let rows = tables.scan(Table::Lost, &from, &to, 2)?;
        let Some((row_key, _)) = rows.first() else { return Ok(Page { found, next: None }) };
        let rest = row_key.get(prefix.len()..).unwrap_or_default();
        let len = rest.iter().position(|byte| *byte == b':');
        let name = len.and_then(|len| std::str::from_utf8(&rest[..len]).ok());
        let name = parts(Table::Lost, row_key, name)?;
        if let (Some(queue), Some((key, value))) = (queen_core::sink::unescape(name), rows.get(1)) {
            found.push((queue, decode::<LostRow>(key, value)?.queue));
        }
        from = key::after_prefix(&[&prefix, name.as_bytes(), b":"].concat());
    }
    Ok(Page { found, next: Some(from) })
}

#[cfg(test)]
#[path = "lost_tests.rs"]
mod tests;
