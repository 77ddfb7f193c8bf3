//! Lengths of partition names, which count towards a window's weight.
//!
//! Owns: what is remembered of them while a window fills.
//! Leaves to others: the weight (`plan`), the names in the objects (`read`).

use crate::context::{Context, Stop};
use crate::host::{TimelinePage, blocking};
use queen_core::{PartitionId, QueueId};
use std::collections::HashMap;

/// Lengths remembered while a window fills.
const NAMES_MAX: usize = 200_000;

/// Lengths of the names of the partitions seen while a window fills.
#[derive(Default)]
pub struct NameLengths(HashMap<PartitionId, usize>);

impl NameLengths {
    /// Bytes of the name of each run's partition.
    pub async fn of(
        &mut self,
        context: &Context,
        queue: QueueId,
        page: &TimelinePage,
    ) -> Result<Vec<usize>, Stop> {
        if self.0.len() > NAMES_MAX {
            self.0.clear();
        }
        let ids = page.runs.iter().map(|run| run.header.partition);
        let mut unknown: Vec<PartitionId> = ids.filter(|id| !self.0.contains_key(id)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        if !unknown.is_empty() {
            let host = context.host.clone();
            let asked = unknown.clone();
            let names = blocking(&*context.host, move || host.partition_names(queue, &asked));
            let names = names.await?;
            self.0.extend(unknown.into_iter().zip(names.iter().map(|name| name.len())));
        }
        let length = |id| self.0.get(&id).copied().unwrap_or_default();
        Ok(page.runs.iter().map(|run| length(run.header.partition)).collect())
    }
}
