//! The disk's marks: pushes stop above the high one and go on below the low one.
//!
//! Owns: asking how full the disk is, ten times a second. Leaves to others: refusing (`admission`).

use crate::broker::Broker;
use std::path::PathBuf;
use std::time::Duration;
use tracing::{info, warn};

/// How often the system is asked. What is pushed between two looks may go beyond the high mark: at a
/// gigabyte a second that is a tenth of one, where all that is above the mark may be less than one.
const EVERY: Duration = Duration::from_millis(100);

/// Shares of the disk in use, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskMarks {
    /// Writes are refused from here on; 85.
    pub high_percent: u8,
    /// Until less than this is in use; 80.
    pub low_percent: u8,
}

impl Default for DiskMarks {
    fn default() -> DiskMarks {
        DiskMarks { high_percent: 85, low_percent: 80 }
    }
}

impl DiskMarks {
    /// Whether writes are refused, given that they were or were not.
    fn full(self, was: bool, used_percent: u8) -> bool {
        used_percent >= if was { self.low_percent } else { self.high_percent }
    }
}

/// Runs until the broker stops.
pub(crate) async fn watch(broker: Broker, dir: PathBuf, marks: DiskMarks) {
    let mut stop = broker.shared.stop.subscribe();
    loop {
        check(&broker, &dir, marks);
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

pub(crate) fn check(broker: &Broker, dir: &std::path::Path, marks: DiskMarks) {
    let shared = &broker.shared;
    let was = shared.admission.storage_full();
    let used = match queen_store::space(dir) {
        Ok(space) => space.used_percent(),
        Err(e) => return warn!(error = %e, "cannot ask how full the disk is"),
    };
    let log_waits = shared.proposer.node().is_some_and(|node| *node.storage_full().borrow());
    let full = marks.full(was, used) || log_waits || shared.store.storage_full();
    if shared.admission.set_storage_full(full) != full {
        match full {
            true => warn!(used_percent = used, "the disk is full, pushes are refused"),
            false => info!(used_percent = used, "the disk has space again, pushes are taken"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_the_marks_things_stay_as_they_are() {
        let marks = DiskMarks::default();
        assert!(!marks.full(false, 84) && marks.full(false, 85));
        assert!(marks.full(true, 80) && !marks.full(true, 79));
    }
}
