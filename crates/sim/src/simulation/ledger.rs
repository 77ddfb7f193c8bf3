//! What was pushed, and what of it the lake need not hold.
//!
//! Owns: the list of records, and which of them retention or deletion took before the sink could
//! have pinned them.
//! Leaves to others: holding the lake against it (`verdict`).

use crate::twin::{Pushed, SimBroker};
use queen_core::row::key;
use queen_core::sink::{Committed, Intent, RowKind, SinkOn, Start, on_key, row_key};
use queen_core::table::Table;
use queen_core::{QueueId, Stamp};
use queen_sink::settings::StartAt;
use queen_state::MemoryStore;
use queen_state::query::{self, Bounds, LogPosition};
use queen_state::step::scan_prefix;
use std::collections::BTreeSet;

/// A record.
pub struct Entry {
    /// Queue name.
    pub queue: &'static str,
    /// Queue incarnation.
    pub id: QueueId,
    /// The record.
    pub pushed: Pushed,
    /// It was removed before any window that was to be finished held it.
    pub gone: bool,
    /// It was removed before any sink said that it copies the queue.
    pub unseen: bool,
}

/// All records, in order of their stamps.
#[derive(Default)]
pub struct Ledger(pub Vec<Entry>);

/// The rows of one queue's copy.
pub struct Rows {
    /// The pointer.
    pub committed: Option<Committed>,
    intent: Option<Intent>,
    /// Where the copy begins. Until a worker has seen the queue, a sink of all queues says it for
    /// this one too, unless it begins with the oldest record.
    pub start: Option<Start>,
    /// A sink has said that it copies the queue.
    followed: bool,
}

impl Rows {
    /// The rows as they are.
    pub fn of(broker: &SimBroker, queue: &str) -> Rows {
        let row = |kind| broker.row(&row_key("default", queue, kind));
        let committed = row(RowKind::Committed);
        let intent = row(RowKind::Intent);
        let all = broker.row(&on_key("default"));
        let all = all.and_then(|row| SinkOn::from_json(row.as_bytes()).unwrap().all);
        let start = row(RowKind::Start).map(|row| Start::from_json(row.as_bytes()).unwrap());
        let followed = all.is_some() || start.is_some();
        Rows {
            followed,
            committed: committed.map(|row| Committed::from_json(row.as_bytes()).unwrap()),
            intent: intent.map(|row| Intent::from_json(row.as_bytes()).unwrap()),
            start: start.or(all.filter(|all| all.mode == StartAt::Latest.word())),
        }
    }

    /// Number of the last committed window.
    pub fn k(&self) -> u64 {
        self.committed.as_ref().map_or(0, |committed| committed.k)
    }

    /// The window that was begun and is not committed.
    pub fn pending(&self) -> Option<&Intent> {
        self.intent.as_ref().filter(|intent| intent.k == self.k() + 1)
    }

    /// Whether windows that are committed or will be hold the record.
    fn hold(&self, entry: &Entry) -> bool {
        let stamp = entry.pushed.stamp;
        self.committed.as_ref().is_some_and(|committed| stamp < committed.t_end)
            || self.pending().is_some_and(|intent| {
                intent.queue_id == entry.id.0 && (intent.t_start..intent.t_end).contains(&stamp)
            })
    }
}

impl Entry {
    fn remove(&mut self, removed: bool, rows: &Rows) {
        self.gone = removed && !rows.hold(self);
        self.unseen = self.gone && !rows.followed;
    }
}

/// Partition and offset of all that a queue's log holds: also what is kept for the sink alone.
fn kept(store: &MemoryStore, queue: QueueId) -> BTreeSet<(String, u64)> {
    let all = Bounds { runs: usize::MAX, bytes: u64::MAX, before: Stamp::MAX };
    let log = query::timeline(store, queue, LogPosition::default(), all).unwrap();
    let records = log.runs.iter().flat_map(|run| {
        let partition = query::partition_with_id(store, run.header.partition).unwrap().unwrap();
        let offsets = run.header.first_offset.0..run.header.end_offset().0;
        offsets.map(move |offset| (partition.name.to_string(), offset))
    });
    records.collect()
}

/// Segments that are missing between the first and the last of these queues' logs.
pub fn holes(broker: &SimBroker, queues: &[&str]) -> u64 {
    let queues = queues.iter().filter_map(|queue| broker.queue(queue));
    queues.map(|info| broker.look(|store| missing(store, info.id))).sum()
}

fn missing(store: &MemoryStore, queue: QueueId) -> u64 {
    let segments = scan_prefix(store, Table::Segment, &key::queue(queue), usize::MAX).unwrap();
    let numbers = segments.iter().map(|(row_key, _)| key::segment_parts(row_key).unwrap().1);
    let numbers: Vec<u32> = numbers.collect();
    match numbers[..] {
        [first, .., last] => u64::from(last - first) + 1 - numbers.len() as u64,
        _ => 0,
    }
}

impl Ledger {
    /// Adds what a push appended.
    pub fn add(&mut self, queue: &'static str, id: QueueId, pushed: Vec<Pushed>) {
        self.0.extend(pushed.into_iter().map(|pushed| Entry {
            queue,
            id,
            pushed,
            gone: false,
            unseen: false,
        }));
    }

    /// Retention has looked at the queue.
    pub fn trimmed(&mut self, broker: &SimBroker, queue: &str) {
        let Some(info) = broker.queue(queue) else { return };
        let rows = Rows::of(broker, queue);
        let kept = broker.look(|store| kept(store, info.id));
        for entry in self.0.iter_mut().filter(|entry| entry.id == info.id && !entry.gone) {
            let record = (entry.pushed.partition.clone(), entry.pushed.offset);
            entry.remove(!kept.contains(&record), &rows);
        }
    }

    /// The queue was deleted, with these rows.
    pub fn deleted(&mut self, id: QueueId, rows: &Rows) {
        for entry in self.0.iter_mut().filter(|entry| entry.id == id && !entry.gone) {
            entry.remove(true, rows);
        }
    }
}
