//! Changes: which partitions of a queue were written to since a stamp.
//!
//! Owns: the pages and their cursor. A page costs what it gives.
//!
//! Partitions come in the order of their last write. One that is written to while the pages are read
//! moves to the end and is met again: none is missed.

use crate::Reading;
use crate::step::{Partition, partition_with_id, parts};
use crate::tables::StorageError;
use queen_core::row::key;
use queen_core::table::Table;
use queen_core::{PartitionId, QueueId, Stamp};

/// Where a page ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    /// Last write of its last partition.
    pub stamp: Stamp,
    /// Its last partition.
    pub partition: PartitionId,
}

impl std::fmt::Display for After {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}-{:x}", self.stamp.0, self.partition.0)
    }
}

impl After {
    /// Reads the text that it displays as.
    pub fn parse(text: &str) -> Option<After> {
        let (stamp, partition) = text.split_once('-')?;
        let number = |part: &str| u64::from_str_radix(part, 16).ok();
        Some(After { stamp: Stamp(number(stamp)?), partition: PartitionId(number(partition)?) })
    }
}

/// Partitions whose last write is at or after `since`, and where the page ended if more follow.
pub fn changed(
    store: &impl Reading,
    queue: QueueId,
    since: Stamp,
    after: Option<After>,
    limit: usize,
) -> Result<(Vec<Partition>, Option<After>), StorageError> {
    let from = match after {
        Some(After { stamp, partition }) if stamp >= since => {
            key::tail(queue, stamp, PartitionId(partition.0.saturating_add(1)))
        }
        _ => key::tail(queue, since, PartitionId(0)),
    };
    let end = key::after_prefix(&key::queue(queue));
    let mut rows = store.scan(Table::Tail, &from, &end, limit + 1)?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let (mut found, mut last) = (Vec::with_capacity(rows.len()), None);
    for (row_key, _) in &rows {
        let (_, stamp, partition) = parts(Table::Tail, row_key, key::tail_parts(row_key))?;
        last = Some(After { stamp, partition });
        found.extend(partition_with_id(store, partition)?);
    }
    Ok((found, last.filter(|_| more)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::World;

    #[test]
    fn pages_list_what_was_written_at_or_after_a_stamp() {
        let mut world = World::new();
        for name in ["a", "b", "c", "d"] {
            world.push("q", name, 1);
        }
        world.push("other", "x", 1);
        let id = world.queue_id("q");
        let names = |since: u64, after, limit| -> (Vec<String>, Option<After>) {
            let (page, next) = changed(&world.store, id, Stamp(since), after, limit).unwrap();
            (page.into_iter().map(|p| p.name.into_string()).collect(), next)
        };
        let (first, next) = names(0, None, 3);
        assert_eq!(first, ["a", "b", "c"]);
        let cursor = After::parse(&next.unwrap().to_string());
        assert_eq!(cursor, next);
        assert_eq!(names(0, cursor, 3), (vec!["d".to_owned()], None));
        assert_eq!(names(world.now - 1, None, 9).0, ["d"]);
        assert_eq!(names(world.now, None, 9).0, [""; 0]);
        world.push("q", "a", 1);
        let (page, _) = changed(&world.store, id, Stamp(world.now), None, 9).unwrap();
        assert_eq!((page.len(), page[0].row.next.0), (1, 2));
        for bad in ["", "x", "1", "1-", "-1", "1-2-3", "g-1"] {
            assert_eq!(After::parse(bad), None, "{bad}");
        }
    }
}
