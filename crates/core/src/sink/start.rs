//! Where the copy of a queue begins: written before anything is skipped, never changed.

use serde::{Deserialize, Serialize};

/// Row `start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Records stamped at or above this are copied, µs since 1970 UTC.
    pub stamp: u64,
    /// `earliest` or `latest`: the setting at the time.
    pub mode: String,
}
super::document!(Start, "start row");

/// Row `on`: when a sink was first turned on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkOn {
    /// µs since 1970 UTC, log clock.
    pub stamp: u64,
}
super::document!(SinkOn, "sink row");
