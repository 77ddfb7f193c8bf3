//! What is known to be damaged of the queue logs.
//!
//! Owns: the places, telling of each once. Leaves to others: finding them (`scrub`, whoever reads),
//! what is answered where one is touched (`queen-broker`).

use crate::log_files::SegmentId;
use crate::store::Store;
use parking_lot::Mutex;
use queen_core::QueueId;
use queen_core::row::key;
use queen_core::table::Table;
use queen_state::{Place, Tables};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Places kept; a disk that has more of them is lost anyway.
const PLACES_MAX: usize = 1024;

/// Something in a queue log that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The segment file.
    pub file: PathBuf,
    /// Byte position in it: of a run, or of what was to be read.
    pub position: u64,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Finding { file, position, what } = self;
        write!(f, "the queue log {} is damaged at byte {position}: {what}", file.display())
    }
}

/// The places.
#[derive(Default)]
pub(crate) struct Damage(Mutex<BTreeMap<(SegmentId, u64), Finding>>);

impl Damage {
    /// Keeps a place; the first time, an operator is told.
    pub(crate) fn note(&self, id: SegmentId, finding: Finding) {
        let mut known = self.0.lock();
        if known.len() >= PLACES_MAX || known.contains_key(&(id, finding.position)) {
            return;
        }
        let Finding { file, position, what } = &finding;
        tracing::error!(
            queue = id.queue.0,
            file = %file.display(),
            position,
            what,
            "a queue log is damaged: what lies there cannot be read until the file is restored"
        );
        known.insert((id, finding.position), finding);
    }

    /// Whether damage is known at a place.
    pub(crate) fn knows(&self, id: SegmentId, position: u64) -> bool {
        self.0.lock().contains_key(&(id, position))
    }

    /// A segment was found to be as it was written, or is gone.
    pub(crate) fn clear(&self, id: SegmentId) {
        self.0.lock().retain(|&(of, _), _| of != id);
    }

    fn list(&self) -> Vec<(SegmentId, Finding)> {
        self.0.lock().iter().map(|(&(id, _), finding)| (id, finding.clone())).collect()
    }
}

impl Store {
    /// The places of the queue logs that are known to be damaged, in order; not those that
    /// retention has taken since.
    pub fn damage(&self) -> Vec<Finding> {
        let view = self.read();
        let damage = view.damage();
        let mut findings = Vec::new();
        for (id, finding) in damage.list() {
            match view.get(Table::Segment, &key::segment(id.queue, id.segment)) {
                Ok(None) => damage.clear(id),
                // Rows that cannot be read say nothing of the file.
                Ok(Some(_)) | Err(_) => findings.push(finding),
            }
        }
        findings
    }

    /// Whether a place of a queue's log is known to be damaged.
    pub fn is_damaged(&self, queue: QueueId) -> bool {
        let view = self.read();
        let known = view.damage().0.lock();
        let from = (SegmentId { queue, segment: 0 }, 0);
        known.range(from..).next().is_some_and(|((id, _), _)| id.queue == queue)
    }

    /// Keeps what a reader found: the bytes at `place` are not those that were written.
    pub fn found_damaged(&self, place: Place, what: String) -> Finding {
        let Place { queue, segment, position } = place;
        let finding = Finding { file: self.segment_path(queue, segment), position, what };
        self.read().damage().note(SegmentId { queue, segment }, finding.clone());
        finding
    }
}
