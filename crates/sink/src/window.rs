//! A closed window: what it is and what must hold of it.
//!
//! Owns: the type, and the invariants `windows-tile` and `window-is-final` as functions.
//! Leaves to others: when a window closes (`plan`), its life in the bucket (`commit`).

use crate::host::Place;
pub use queen_core::sink::Shape;
use queen_core::{QueueId, Stamp};

/// Why a window closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The next push no longer fitted.
    Size,
    /// Its first record was old enough.
    Age,
    /// The next hour or day began.
    Boundary,
    /// It has no record: it lists loss.
    Loss,
}

/// A closed window of one queue incarnation: a contiguous part of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Queue incarnation.
    pub queue: QueueId,
    /// First stamp that may be in it.
    pub t_start: Stamp,
    /// First stamp that is not.
    pub t_end: Stamp,
    /// Stamp of its first record; its start when it has none.
    pub first: Stamp,
    /// Where its first run begins.
    pub from: Place,
    /// Where its last run ends; `from` when it has none.
    pub to: Place,
    /// Records in it.
    pub records: u64,
    /// Their weight, bytes.
    pub weight: u64,
    /// What it needs to be encoded follows from this.
    pub shape: Shape,
    /// Why it closed.
    pub why: Closed,
}

/// `windows-tile`: a window is not empty, unless it lists loss, and begins where the one before ended
/// or later.
pub fn windows_tile(end_before: Option<Stamp>, window: &Window) -> Result<(), String> {
    let Window { t_start, t_end, first, from, to, .. } = *window;
    if end_before.is_some_and(|end| t_start < end) {
        return Err(format!(
            "windows-tile: a window starts at {} before {end_before:?}",
            t_start.0
        ));
    }
    let holds = from < to || (window.why == Closed::Loss && from == to);
    if !(t_start <= first && first < t_end && holds) {
        return Err(format!("windows-tile: a window is empty or turned round: {window:?}"));
    }
    Ok(())
}

/// `window-is-final`: every stamp below the end is known, so that no record can join.
pub fn window_is_final(window: &Window, applied: Stamp) -> Result<(), String> {
    if applied < window.t_end {
        let (end, applied) = (window.t_end.0, applied.0);
        return Err(format!("window-is-final: a window ends at {end}, applied is only {applied}"));
    }
    Ok(())
}
