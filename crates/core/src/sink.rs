//! Documents of the sink: its KV rows and its objects beside the data.
//!
//! Owns: the JSON of `start`, `lease`, `intent` and `committed` rows, of presence rows, of window
//! manifests and of hour files. Every field is written; unknown fields are ignored when read.
//! Leaves to others: when each is written (`queen-sink`), what a pin does (`queen-state`).
//!
//! The state machine reads `queueId`, `k`, `tStart` and `tEnd` of an intent, `k` and `tEnd` of a
//! committed row, and all of the `start` and `on` rows: those names and their types are fixed.

mod committed;
mod hour;
mod intent;
mod keys;
mod lease;
mod manifest;
mod start;

pub use committed::{Committed, OpenHour};
pub use hour::HourFile;
pub use intent::{Intent, LogPlace};
pub use keys::{RowKind, escape, folder_value, node_key, node_prefix, on_key, row_key, unescape};
pub use lease::{Lease, Presence};
pub use manifest::{LossReason, LostRange, Manifest, ObjectEntry, PartitionRange, PartitionsFile};
pub use start::{SinkOn, Start};

/// A document cannot be read: which, and why.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("bad {what}: {why}")]
pub struct BadDocument {
    /// Kind of document.
    pub what: &'static str,
    /// What is wrong with it.
    pub why: String,
}

fn read<'a, T: serde::Deserialize<'a>>(
    what: &'static str,
    bytes: &'a [u8],
) -> Result<T, BadDocument> {
    serde_json::from_slice(bytes).map_err(|err| BadDocument { what, why: err.to_string() })
}

/// None of the documents holds a map with keys other than strings, or a number that JSON lacks.
#[allow(clippy::expect_used)]
fn write<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("a plain struct is always JSON")
}

macro_rules! document {
    ($name:ident, $what:literal) => {
        impl $name {
            /// Reads the document.
            pub fn from_json(bytes: &[u8]) -> Result<$name, super::BadDocument> {
                super::read($what, bytes)
            }

            /// The document's bytes: compact JSON, fields in a fixed order.
            pub fn to_json(&self) -> String {
                super::write(self)
            }
        }
    };
}
use document;

#[cfg(test)]
mod tests;
