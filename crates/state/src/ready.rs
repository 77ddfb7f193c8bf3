//! Readiness: what a group may be given of a partition, and when.
//!
//! Owns: the rules of delay, quiet and age, and the `Ready` rows. Leaves to others: claims (`pop`).
//!
//! A partition is in a group's `Ready` table at most once, under the stamp its cursor names, and
//! never while it is leased.

use crate::run;
use crate::step::{Partition, Step};
use crate::tables::StorageError;
use crate::{Reading, Storage};
use queen_core::options::QueueOptions;
use queen_core::reply::Event;
use queen_core::row::{CursorRow, PartitionRow, key};
use queen_core::table::Table;
use queen_core::{GroupId, Offset, Stamp};

/// What there is for a group in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visible {
    /// Messages to deliver now: `first..end`, not empty.
    Now {
        /// First offset.
        first: Offset,
        /// The offset after the last.
        end: Offset,
    },
    /// Messages from this offset on that may be delivered at this stamp.
    Later {
        /// First offset.
        first: Offset,
        /// When.
        at: Stamp,
    },
    /// Nothing from this offset on.
    Nothing {
        /// The offset that is next.
        first: Offset,
    },
}

fn seconds(option: i64) -> u64 {
    option.max(0) as u64
}

/// What a group that is at `next` may be given of a partition at `now`.
pub fn visible(
    store: &impl Reading,
    options: &QueueOptions,
    partition: &PartitionRow,
    next: Offset,
    now: Stamp,
) -> Result<Visible, StorageError> {
    let mut first = next.max(partition.log_start);
    if options.max_wait_time_seconds > 0 && first < partition.next {
        let oldest = now.minus_seconds(seconds(options.max_wait_time_seconds));
        first = run::first_stamped(store, partition, first, oldest)?;
    }
    if first >= partition.next {
        return Ok(Visible::Nothing { first });
    }
    let quiet_at = match options.window_buffer {
        0 => Stamp::ZERO,
        buffer => partition.last.plus_seconds(seconds(buffer)),
    };
    let mut end = partition.next;
    if options.delayed_processing > 0 {
        let delay = seconds(options.delayed_processing);
        if partition.last.plus_seconds(delay) > now {
            let newest = Stamp(now.minus_seconds(delay).0 + 1);
            end = run::first_stamped(store, partition, first, newest)?;
        }
        if end <= first {
            let stamp = run::kept_at(store, partition.id, first)?.row.stamp;
            let at = stamp.plus_seconds(delay).max(quiet_at);
            return Ok(Visible::Later { first, at });
        }
    }
    if quiet_at > now {
        return Ok(Visible::Later { first, at: quiet_at });
    }
    Ok(Visible::Now { first, end })
}

impl<S: Storage> Step<'_, S> {
    /// Puts a partition that is not leased where it belongs in a group's `Ready` table, or takes it
    /// out; changes the cursor, which the caller stores.
    pub(crate) fn place_ready(
        &mut self,
        group: GroupId,
        partition: &Partition,
        cursor: &mut CursorRow,
    ) -> Result<(), StorageError> {
        let at = match self.queue_with_id(partition.queue)? {
            Some(queue) => {
                let (row, options) = (&partition.row, &queue.row.options);
                match visible(&*self.store, options, row, cursor.next, self.stamp)? {
                    Visible::Now { .. } => {
                        let already = cursor.ready.filter(|at| *at <= self.stamp);
                        Some(already.unwrap_or(self.stamp))
                    }
                    Visible::Later { at, .. } => Some(at),
                    Visible::Nothing { .. } => None,
                }
            }
            None => None,
        };
        self.set_ready(group, partition, cursor, at);
        Ok(())
    }

    /// Moves a partition in a group's `Ready` table to a stamp, or takes it out.
    pub(crate) fn set_ready(
        &mut self,
        group: GroupId,
        partition: &Partition,
        cursor: &mut CursorRow,
        at: Option<Stamp>,
    ) {
        let id = partition.row.id;
        if cursor.ready == at {
            return;
        }
        if let Some(old) = cursor.ready {
            self.store.delete(Table::Ready, &key::ready(group, old, id));
        }
        if let Some(new) = at {
            self.store.insert(Table::Ready, &key::ready(group, new, id), &[]);
            self.events.push(Event::Ready { queue: partition.queue, group });
        }
        cursor.ready = at;
    }
}
