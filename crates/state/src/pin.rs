//! Pins: the part of a queue's log that a sink's intent needs until its commit.
//!
//! Owns: how the sink's KV rows become `Pin` rows, and the question what is pinned. Leaves to
//! others: keeping retention and deletion off what is pinned, and the rest of the sink's rows.
//!
//! A pin is a function of two KV rows of the namespace `queen-s3`: it exists while
//! `s3:<sink>:<queue>:intent` names a window that `s3:<sink>:<queue>:committed` has not reached.
//! It is moved in the same command that writes either row, so that no removal can come between. An
//! intent that comes after its queue's deletion pins nothing: all that it names is lost already.

use crate::tables::{StorageError, Tables, TablesMut};
use crate::{gone, kv, lost};
use queen_core::limits::SINK_NAMESPACE;
use queen_core::row::kv::{self as kv_row, KvValue};
use queen_core::row::pin::{self as row, PinValue};
use queen_core::row::{QueueRow, Row, key};
use queen_core::sink::unescape;
use queen_core::table::Table;
use queen_core::{QueueId, Stamp, TenantId};
use serde::Deserialize;

/// What this module reads of an intent; the sink keeps more in it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Intent {
    queue_id: u32,
    k: u64,
    t_start: u64,
    t_end: u64,
}

#[derive(Deserialize)]
struct Committed {
    k: u64,
}

/// Brings the pin up to date after the KV row at `row_key` changed; `before` is what it held.
pub(crate) fn key_changed<S: TablesMut>(
    row_key: &[u8],
    before: Option<&KvValue>,
    stamp: Stamp,
    store: &mut S,
) -> Result<(), StorageError> {
    let (tenant, ns, key) = kv_row::parse_key(row_key)?;
    let Some((sink, documents, word)) = sink_key(ns, key) else { return Ok(()) };
    let document =
        |word: &str, store: &S| kv::live(tenant, ns, &format!("{documents}{word}"), stamp, store);
    let done = document("committed", store)?.as_ref().and_then(read::<Committed>);
    if let (Some(done), "committed") = (&done, word)
        && let Some(queue) = queue_of(documents, sink)
    {
        lost::listed(store, tenant, sink, &queue, done.k)?;
    }
    let mut held = None;
    if word == "intent"
        && let Some(old) = before.and_then(read::<Intent>)
    {
        let key = row::key(QueueId(old.queue_id), sink);
        held = store.get(Table::Pin, &key)?.map(|bytes| PinValue::decode(&bytes)).transpose()?;
        unpin(QueueId(old.queue_id), sink, store)?;
    }
    let Some(intent) = document("intent", store)?.as_ref().and_then(read::<Intent>) else {
        return Ok(());
    };
    let queue = QueueId(intent.queue_id);
    if done.is_some_and(|done| done.k >= intent.k) {
        return unpin(queue, sink, store);
    }
    let pin = PinValue { window: intent.k, from: Stamp(intent.t_start), to: Stamp(intent.t_end) };
    // Of a queue that is deleted already all is lost: nothing is left to pin, but what was pinned
    // before the deletion.
    let owned = owned(tenant, queue, store)?;
    if owned.is_some_and(|row| row.deleted.is_none() || held == Some(pin)) {
        store.put(Table::Pin, &row::key(queue, sink), &pin.encode());
    }
    Ok(())
}

/// The queue of `s3:<sink>:<queue>:`.
fn queue_of(documents: &str, sink: &str) -> Option<String> {
    unescape(
        documents.strip_prefix("s3:")?.strip_prefix(sink)?.strip_prefix(':')?.strip_suffix(':')?,
    )
}

/// Splits `s3:<sink>:<queue>:<word>`, word `intent` or `committed`, into sink, all before the word, word.
fn sink_key<'k>(ns: &str, key: &'k str) -> Option<(&'k str, &'k str, &'k str)> {
    if ns != SINK_NAMESPACE {
        return None;
    }
    let (sink, rest) = key.strip_prefix("s3:")?.split_once(':')?;
    let (_, word) = rest.rsplit_once(':')?;
    let known = matches!(word, "intent" | "committed");
    known.then(|| (sink, &key[..key.len() - word.len()], word))
}

fn read<'d, T: Deserialize<'d>>(row: &'d KvValue) -> Option<T> {
    serde_json::from_slice(&row.value).ok()
}

fn unpin<S: TablesMut>(queue: QueueId, sink: &str, store: &mut S) -> Result<(), StorageError> {
    store.delete(Table::Pin, &row::key(queue, sink));
    gone::released(store, queue)
}

/// A tenant pins its own queues only.
fn owned<S: Tables>(
    tenant: TenantId,
    queue: QueueId,
    tables: &S,
) -> Result<Option<QueueRow>, StorageError> {
    let row = tables.get(Table::Queue, &key::queue(queue))?;
    let row = row.map(|bytes| QueueRow::decode(&bytes)).transpose()?;
    Ok(row.filter(|row| row.tenant == tenant))
}

/// The pins of a queue, one per sink at most.
pub fn pins<S: Tables>(queue: QueueId, tables: &S) -> Result<Vec<PinValue>, StorageError> {
    let (from, to) = row::range(queue);
    let rows = tables.scan(Table::Pin, &from, &to, usize::MAX)?;
    rows.iter().map(|(_, value)| Ok(PinValue::decode(value)?)).collect()
}

/// What a sink's pin keeps of a queue.
pub fn pin_of<S: Tables>(
    queue: QueueId,
    sink: &str,
    tables: &S,
) -> Result<Option<PinValue>, StorageError> {
    let bytes = tables.get(Table::Pin, &row::key(queue, sink))?;
    Ok(bytes.map(|bytes| PinValue::decode(&bytes)).transpose()?)
}

/// Whether any pin needs a part of the log whose stamps lie in `first..=last`.
pub fn pinned(pins: &[PinValue], first: Stamp, last: Stamp) -> bool {
    pins.iter().any(|pin| pin.from <= last && first < pin.to)
}
