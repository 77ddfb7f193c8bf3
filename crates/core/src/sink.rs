//! Documents of the sink: its KV rows and its objects beside the data.
//!
//! Owns: the JSON of `start`, `lease`, `intent`, `committed` and `uploads` rows, of presence rows, of window
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
mod uploads;

pub use committed::{Committed, OpenHour};
pub use hour::HourFile;
pub use intent::{Intent, LogPlace, Shape};
pub use keys::{RowKind, escape, folder_value, node_key, node_prefix, on_key, row_key, unescape};
pub use lease::{Lease, Presence};
pub use manifest::{LossReason, LostRange, Manifest, ObjectEntry, PartitionRange, PartitionsFile};
pub use start::{SinkOn, Start};
pub use uploads::{OpenUpload, Uploads};

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

/// A field of a document, as the reference shows it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in the code; in the document the same in camel case.
    pub name: &'static str,
    /// Its type in the code.
    pub kind: &'static str,
    /// What it says.
    pub says: &'static str,
}

impl Field {
    /// Its name in the document.
    pub fn camel_name(&self) -> String {
        let mut words = self.name.split('_');
        let mut name = words.next().unwrap_or_default().to_owned();
        for word in words {
            name.push_str(&word[..1].to_uppercase());
            name.push_str(&word[1..]);
        }
        name
    }
}

/// Takes a struct as it is and keeps its fields as data, so that the reference cannot differ.
macro_rules! fields {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[doc = $says:literal])+ $(#[serde($($serde:tt)*)])? pub $field:ident: $kind:ty,)*
    }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[doc = $says])+ $(#[serde($($serde)*)])? pub $field: $kind,)*
        }

        impl $name {
            /// Its fields, in the order of the document.
            pub const FIELDS: &'static [super::Field] = &[$(super::Field {
                name: stringify!($field),
                kind: stringify!($kind),
                says: concat!($($says),+),
            }),*];
        }
    };
}
use fields;

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
