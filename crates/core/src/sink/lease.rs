//! Which node copies a queue, and which nodes are there.

use serde::{Deserialize, Serialize};

/// Row `lease`. Its life is the row's own expiry, on the log clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Name of the node.
    pub instance: String,
    /// 16 hex digits, new for each claim.
    pub incarnation: String,
    /// Log clock at the claim, µs.
    pub since: u64,
}
super::document!(Lease, "lease row");

/// Presence row of a node. Its life is the row's own expiry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Name of the node.
    pub instance: String,
    /// 16 hex digits, new for each start.
    pub incarnation: String,
    /// The node could reach the bucket when it last tried.
    pub reachable: bool,
}
super::document!(Presence, "presence row");
