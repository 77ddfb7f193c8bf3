//! One data object, record by record, whatever its format.
//!
//! Owns: the one interface through which a window is encoded.
//! Leaves to others: each format's bytes (`jsonl`), which records make an object (`produce`).
//! Upholds: `window-is-final`.

use super::jsonl::JsonlObject;
use super::pieces::{Finished, Pieces};
use super::{Encoding, Record};
use queen_core::Stamp;
use std::io;

/// All that decides an object's bytes besides its records.
#[derive(Clone, Copy, Debug)]
pub struct ObjectSpec {
    /// Format and compression.
    pub encoding: Encoding,
    /// Payloads that readers cannot survive are wrapped.
    pub wrap: bool,
}

/// What is known of a finished object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Its length and hash.
    pub finished: Finished,
    /// Records whose payload was wrapped.
    pub wrapped: u64,
    /// Longest record, bytes, as the format counts them.
    pub record_bytes_max: u64,
}

/// The object being encoded.
pub enum ObjectEncoder<P: Pieces> {
    /// Lines of JSON.
    Jsonl(JsonlObject<P>),
}

impl<P: Pieces> ObjectEncoder<P> {
    /// Begins an object whose bytes go to `pieces`.
    pub fn new(spec: &ObjectSpec, pieces: P) -> io::Result<ObjectEncoder<P>> {
        match spec.encoding {
            Encoding::Jsonl(compression) => {
                JsonlObject::new(compression, spec.wrap, pieces).map(ObjectEncoder::Jsonl)
            }
        }
    }

    /// The records that follow are of this partition. Call it for the first of each partition.
    pub fn partition(&mut self, name: &str) {
        match self {
            ObjectEncoder::Jsonl(object) => object.partition(name),
        }
    }

    /// The records that follow have this stamp.
    pub fn stamp(&mut self, stamp: Stamp) {
        match self {
            ObjectEncoder::Jsonl(object) => object.stamp(stamp),
        }
    }

    /// Appends a record.
    pub fn push(&mut self, record: &Record<'_>) -> io::Result<()> {
        match self {
            ObjectEncoder::Jsonl(object) => object.push(record),
        }
    }

    /// Ends the object, hands over its last piece and gives back what took the pieces.
    pub fn finish(self) -> io::Result<(Encoded, P)> {
        match self {
            ObjectEncoder::Jsonl(object) => object.finish(),
        }
    }
}
