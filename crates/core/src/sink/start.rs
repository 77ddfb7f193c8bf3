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
    /// Where the copy of a queue begins that has no `start` row yet; absent when the sink copies
    /// named queues only. `stamp`: when it began to copy all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub all: Option<Start>,
}
super::document!(SinkOn, "sink row");
