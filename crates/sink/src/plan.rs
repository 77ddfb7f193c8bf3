//! Decides when an open window closes, from the log alone.
//!
//! Owns: the close rule (size, age from the first record, boundary), the start and end of a window,
//! and when loss gets a window of its own.
//! Leaves to others: reading the timeline (`worker`), what is done with a window (`commit`).
//! Upholds: `windows-tile`.
//!
//! Pure: two nodes that see the same runs close the same windows, however the runs come in pages
//! and whenever they look.

use crate::host::{Loss, Place, TimelineRun};
use crate::layout::Align;
use crate::window::{Closed, Shape, Window};
use queen_core::{QueueId, Stamp};

/// Added to the lengths of partition, transaction id and payload for the weight of a record.
const RECORD_WEIGHT: u64 = 64;

/// A longer record has a window to itself: readers that give up at it read all others.
const HUGE_RECORD_BYTES: u32 = 8 << 20;

/// Whether the run is one huge record. Of several records the lengths are not known here.
fn is_huge(run: &TimelineRun) -> bool {
    run.header.count == 1 && run.header.text_bytes > HUGE_RECORD_BYTES
}

/// When a window closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseRule {
    /// Most weight, bytes; a single heavier push makes a window of its own.
    pub target_bytes: u64,
    /// Longest age, µs from the first record.
    pub max_window_us: u64,
    /// No window crosses these boundaries.
    pub align: Align,
}

/// Weight of a run of a partition whose name has this many bytes.
pub fn weight(run: &TimelineRun, partition_bytes: usize) -> u64 {
    u64::from(run.header.count) * (RECORD_WEIGHT + partition_bytes as u64)
        + u64::from(run.header.text_bytes)
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    to: Place,
    records: u64,
    weight: u64,
    runs: u64,
    run_bytes_max: u64,
}

impl Totals {
    fn and(self, run: &TimelineRun, weight: u64) -> Totals {
        Totals {
            to: Place { at: run.place.at + run.header.run_len(), ..run.place },
            records: self.records + u64::from(run.header.count),
            weight: self.weight.saturating_add(weight),
            runs: self.runs + 1,
            run_bytes_max: self.run_bytes_max.max(run.header.run_len()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Open {
    first: Stamp,
    from: Place,
    limit: Stamp,
    by_boundary: bool,
    /// Everything below `stamp`; without records as long as the first push is being read.
    settled: Totals,
    /// `settled` and what was read of the push stamped `stamp`.
    current: Totals,
    stamp: Stamp,
    /// `current` holds a huge record.
    huge: bool,
}

/// The window being filled.
#[derive(Clone, Debug)]
pub struct Planner {
    rule: CloseRule,
    queue: QueueId,
    end_before: Option<Stamp>,
    open: Option<Open>,
}

impl Planner {
    /// Plans the window after the one that ended at `end_before`; `None` when nothing came before
    /// it and its start is free to fall on a boundary.
    pub fn new(rule: CloseRule, queue: QueueId, end_before: Option<Stamp>) -> Planner {
        Planner { rule, queue, end_before, open: None }
    }

    /// Takes the next run of the log, of weight `weight`; gives the window that it closes. The run
    /// is then not part of it, nor are those of the same push before it: the next window is planned
    /// from [`Window::to`].
    pub fn add(&mut self, run: &TimelineRun, weight: u64) -> Option<Window> {
        let stamp = run.header.stamp;
        let Some(open) = &mut self.open else {
            self.open = Some(self.opened(run, Totals::default().and(run, weight)));
            return None;
        };
        debug_assert!(stamp >= open.stamp, "a timeline rises");
        if stamp > open.stamp {
            open.settled = open.current;
            open.stamp = stamp;
        }
        if stamp >= open.limit {
            return self.closed(None);
        }
        let own = open.settled.records == 0;
        let full = open.current.weight.saturating_add(weight) > self.rule.target_bytes;
        if !own && (full || open.huge || is_huge(run)) {
            return self.closed(Some(stamp));
        }
        open.huge |= is_huge(run);
        open.current = open.current.and(run, weight);
        None
    }

    fn opened(&self, run: &TimelineRun, current: Totals) -> Open {
        let first = run.header.stamp;
        let age = Stamp(first.0.saturating_add(self.rule.max_window_us.max(1)));
        let boundary = self.rule.align.above(first).unwrap_or(Stamp::MAX);
        Open {
            first,
            from: run.place,
            limit: age.min(boundary),
            by_boundary: boundary <= age,
            settled: Totals::default(),
            current,
            huge: is_huge(run),
            stamp: first,
        }
    }

    /// The stamp at which the open window closes at the latest; `None` when nothing is open.
    pub fn limit(&self) -> Option<Stamp> {
        self.open.map(|open| open.limit)
    }

    /// Stamp of the first record of the open window.
    pub fn first(&self) -> Option<Stamp> {
        self.open.map(|open| open.first)
    }

    /// Weight of the open window so far, bytes.
    pub fn weight(&self) -> u64 {
        self.open.map_or(0, |open| open.current.weight)
    }

    /// Closes the open window by age or boundary, when every record stamped at or below `through`
    /// was given to [`Planner::add`].
    pub fn close_through(&mut self, through: Stamp) -> Option<Window> {
        let open = self.open.as_mut().filter(|open| open.limit <= through)?;
        open.settled = open.current;
        self.closed(None)
    }

    /// The stamp at which loss gets a window without records, as long as no record opens one: as old
    /// as a record would have to be, or at once when there is more than one window can list.
    pub fn loss_limit(&self, loss: &Loss) -> Stamp {
        let age = Stamp(loss.since.0.saturating_add(self.rule.max_window_us.max(1)));
        let boundary = self.rule.align.above(loss.since).unwrap_or(Stamp::MAX);
        let limit = if loss.more { loss.since } else { age.min(boundary) };
        limit.max(Stamp(self.start_at(loss.since).0.saturating_add(1)))
    }

    /// Cuts a window without records for loss that is due, when nothing is open and every record
    /// stamped at or below `through` was given to [`Planner::add`]. The log was read up to `at`.
    pub fn close_empty(&self, loss: &Loss, through: Stamp, at: Place) -> Option<Window> {
        let (t_start, t_end) = (self.start_at(loss.since), self.loss_limit(loss));
        let due = self.open.is_none() && t_end <= through;
        due.then_some(Window {
            queue: self.queue,
            t_start,
            t_end,
            first: t_start,
            from: at,
            to: at,
            records: 0,
            weight: 0,
            shape: Shape::default(),
            why: Closed::Loss,
        })
    }

    /// Where a window starts whose first record or loss has this stamp.
    fn start_at(&self, first: Stamp) -> Stamp {
        match (self.end_before, self.rule.align.below(first)) {
            (Some(end), Some(boundary)) => end.max(boundary),
            (Some(end), None) => end,
            (None, boundary) => boundary.unwrap_or(first),
        }
    }

    /// `at`: by size; otherwise at the limit.
    fn closed(&mut self, at: Option<Stamp>) -> Option<Window> {
        let open = self.open.take()?;
        let why = match at {
            Some(_) => Closed::Size,
            None if open.by_boundary => Closed::Boundary,
            None => Closed::Age,
        };
        Some(Window {
            queue: self.queue,
            t_start: self.start_at(open.first),
            t_end: at.unwrap_or(open.limit),
            first: open.first,
            from: open.from,
            to: open.settled.to,
            records: open.settled.records,
            weight: open.settled.weight,
            shape: Shape {
                records: open.settled.records,
                runs: open.settled.runs,
                run_bytes_max: open.settled.run_bytes_max,
                weight: open.settled.weight,
                ..Shape::default()
            },
            why,
        })
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
