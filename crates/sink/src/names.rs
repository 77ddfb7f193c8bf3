//! Lengths of partition names, which count towards a window's weight.
//!
//! Owns: what is remembered of them while a window fills.
//! Leaves to others: the weight (`plan`), the names in the objects (`read`).
//! Upholds: `memory-bounded`.
//!
//! Many windows fill at a time, and for long. So what is remembered has a budget of its own: nobody
//! waits for it, and who gets nothing looks the names up again with each page.

use crate::context::{Context, Stop};
use crate::host::{TimelinePage, blocking};
use crate::memory::{Budget, Grant};
use crate::window::{Shape, Window};
use queen_core::{PartitionId, QueueId};
use std::collections::HashMap;

/// Memory of a name's length, bytes: a slot, and those that a table leaves empty.
const LENGTH_BYTES: u64 = 40;

/// Lengths of the names of the partitions seen while a window fills.
pub struct NameLengths {
    lengths: HashMap<PartitionId, usize>,
    memory: Grant,
    /// Partitions looked up, and the bytes of their names.
    looked_up: (u64, u64),
}

impl NameLengths {
    /// Of no partition yet; `budget` is that of all windows that fill.
    pub fn new(budget: &Budget) -> NameLengths {
        NameLengths { lengths: HashMap::new(), memory: budget.sparing(0), looked_up: (0, 0) }
    }

    /// Bytes of the name of each run's partition.
    pub async fn of(
        &mut self,
        context: &Context,
        queue: QueueId,
        page: &TimelinePage,
    ) -> Result<Vec<usize>, Stop> {
        let ids = page.runs.iter().map(|run| run.header.partition);
        let mut unknown: Vec<PartitionId> =
            ids.filter(|id| !self.lengths.contains_key(id)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        if !unknown.is_empty() {
            let host = context.host.clone();
            let asked = unknown.clone();
            let names = blocking(&*context.host, move || host.partition_names(queue, &asked));
            let names = names.await?;
            self.looked_up.0 += names.len() as u64;
            self.looked_up.1 += names.iter().map(|name| name.len() as u64).sum::<u64>();
            self.lengths.extend(unknown.into_iter().zip(names.iter().map(|name| name.len())));
        }
        let length = |id| self.lengths.get(&id).copied().unwrap_or_default();
        let lengths = page.runs.iter().map(|run| length(run.header.partition)).collect();
        let more = (self.lengths.len() as u64 * LENGTH_BYTES).saturating_sub(self.memory.bytes());
        if !self.memory.grow(more) {
            self.lengths = HashMap::new();
            self.memory.shrink();
        }
        Ok(lengths)
    }

    /// The window with the partitions that were seen while it filled.
    pub fn shaped(&self, window: Window) -> Window {
        let (partitions, name_bytes) = self.looked_up;
        Window { shape: Shape { partitions, name_bytes, ..window.shape }, ..window }
    }
}
