//! What was pushed, and what of it the lake need not hold.
//!
//! Owns: the list of records, and which of them retention or deletion took before the sink could
//! have pinned them.
//! Leaves to others: holding the lake against it (`verdict`).

use crate::twin::{Pushed, SimBroker};
use queen_core::QueueId;
use queen_core::sink::{Committed, Intent, RowKind, SinkOn, Start, on_key, row_key};
use queen_state::query;

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
    /// Where the copy begins.
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
        let followed = all.is_some() || row(RowKind::Start).is_some();
        Rows {
            followed,
            committed: committed.map(|row| Committed::from_json(row.as_bytes()).unwrap()),
            intent: intent.map(|row| Intent::from_json(row.as_bytes()).unwrap()),
            start: row(RowKind::Start).map(|row| Start::from_json(row.as_bytes()).unwrap()),
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
        for entry in self.0.iter_mut().filter(|entry| entry.id == info.id && !entry.gone) {
            let start = broker.look(|store| {
                let name = &entry.pushed.partition;
                query::partition_named(store, entry.id, name)
                    .unwrap()
                    .map(|found| found.row.log_start)
            });
            let kept = start.is_some_and(|start| start.0 <= entry.pushed.offset);
            entry.remove(!kept, &rows);
        }
    }

    /// The queue was deleted, with these rows.
    pub fn deleted(&mut self, id: QueueId, rows: &Rows) {
        for entry in self.0.iter_mut().filter(|entry| entry.id == id && !entry.gone) {
            entry.remove(true, rows);
        }
    }
}
