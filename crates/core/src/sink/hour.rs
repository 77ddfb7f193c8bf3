//! The file that says that an hour of a queue is whole.

use serde::{Deserialize, Serialize};

super::fields! {
/// Object `hours/<dt>T<HH>.json`: no record of the hour will come any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HourFile {
    /// Format version: 1.
    pub v: u32,
    /// Tenant.
    pub tenant: String,
    /// Queue, unescaped.
    pub queue: String,
    /// `2026-10-24T10`.
    pub hour: String,
    /// First window of the hour.
    pub first_k: u64,
    /// Last window of the hour.
    pub last_k: u64,
    /// Number of windows.
    pub windows: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of their data objects.
    pub bytes: u64,
    /// Always true.
    pub complete: bool,
}
}
super::document!(HourFile, "hour file");
