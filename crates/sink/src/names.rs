//! Lengths of partition names, which count towards a window's weight.
//!
//! Owns: what is remembered of them while a window fills.
//! Leaves to others: the weight (`plan`), the names in the objects (`read`).

use crate::context::{Context, Stop};
use crate::host::{TimelinePage, blocking};
use crate::window::{Shape, Window};
use queen_core::{PartitionId, QueueId};
use std::collections::HashMap;

/// Lengths remembered while a window fills.
const NAMES_MAX: usize = 200_000;

/// Lengths of the names of the partitions seen while a window fills.
#[derive(Default)]
pub struct NameLengths {
    lengths: HashMap<PartitionId, usize>,
    /// Partitions looked up, and the bytes of their names.
    looked_up: (u64, u64),
}

impl NameLengths {
    /// Bytes of the name of each run's partition.
    pub async fn of(
        &mut self,
        context: &Context,
        queue: QueueId,
        page: &TimelinePage,
    ) -> Result<Vec<usize>, Stop> {
        if self.lengths.len() > NAMES_MAX {
            self.lengths.clear();
        }
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
        Ok(page.runs.iter().map(|run| length(run.header.partition)).collect())
    }

    /// The window with the partitions that were seen while it filled.
    pub fn shaped(&self, window: Window) -> Window {
        let (partitions, name_bytes) = self.looked_up;
        Window { shape: Shape { partitions, name_bytes, ..window.shape }, ..window }
    }
}
