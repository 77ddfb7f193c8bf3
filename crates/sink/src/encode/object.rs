//! One data object, record by record, whatever its format.
//!
//! Owns: the one interface through which a window is encoded.
//! Leaves to others: each format's bytes (`jsonl`, `parquet`), which records make an object (`produce`).
//! Upholds: `window-is-final`.

use super::jsonl::JsonlObject;
use super::parquet::ParquetObject;
use super::pieces::{Finished, Pieces};
use super::{Encoding, Record};
use queen_core::{Stamp, TenantId};
use std::io;
use std::sync::Arc;

/// All that decides an object's bytes besides its records.
#[derive(Clone, Debug)]
pub struct ObjectSpec {
    /// Format and compression.
    pub encoding: Encoding,
    /// Payloads that readers cannot survive are wrapped.
    pub wrap: bool,
    /// Tenant, as a file says by itself whose records it holds.
    pub tenant: TenantId,
    /// Queue, unescaped, for the same.
    pub queue: Arc<str>,
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
    Jsonl(Box<JsonlObject<P>>),
    /// Columns.
    Parquet(Box<ParquetObject<P>>),
}

impl<P: Pieces> ObjectEncoder<P> {
    /// Begins an object of exactly `records` records; its bytes go to `pieces`.
    pub fn new(spec: &ObjectSpec, records: u64, pieces: P) -> io::Result<ObjectEncoder<P>> {
        match spec.encoding {
            Encoding::Jsonl(compression) => {
                let object = JsonlObject::new(compression, spec.wrap, pieces)?;
                Ok(ObjectEncoder::Jsonl(Box::new(object)))
            }
            Encoding::Parquet(compression) => {
                let object = ParquetObject::new(spec, compression, records, pieces)?;
                Ok(ObjectEncoder::Parquet(Box::new(object)))
            }
        }
    }

    /// The records that follow are of this partition. Call it for the first of each partition.
    pub fn partition(&mut self, name: &str) {
        match self {
            ObjectEncoder::Jsonl(object) => object.partition(name),
            ObjectEncoder::Parquet(object) => object.partition(name),
        }
    }

    /// The records that follow have this stamp.
    pub fn stamp(&mut self, stamp: Stamp) {
        match self {
            ObjectEncoder::Jsonl(object) => object.stamp(stamp),
            ObjectEncoder::Parquet(object) => object.stamp(stamp),
        }
    }

    /// Appends a record.
    pub fn push(&mut self, record: &Record<'_>) -> io::Result<()> {
        match self {
            ObjectEncoder::Jsonl(object) => object.push(record),
            ObjectEncoder::Parquet(object) => object.push(record),
        }
    }

    /// Ends the object, hands over its last piece and gives back what took the pieces.
    pub fn finish(self) -> io::Result<(Encoded, P)> {
        match self {
            ObjectEncoder::Jsonl(object) => object.finish(),
            ObjectEncoder::Parquet(object) => object.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::wrap::BUG;
    use crate::encode::{Compression, PageCompression, TransactionId};
    use crate::testing::All;

    /// Row 60 of the public pains: neither the record nor those around it wait for a release without
    /// the bug.
    #[test]
    fn a_record_that_shows_a_bug_of_the_encoder_is_wrapped_and_stops_nothing() {
        let formats =
            [Encoding::Jsonl(Compression::ZSTD), Encoding::Parquet(PageCompression::ZSTD)];
        for encoding in formats {
            let (tenant, queue) = (TenantId::DEFAULT, "orders".into());
            let spec = ObjectSpec { encoding, wrap: true, tenant, queue };
            let mut object = ObjectEncoder::new(&spec, 3, All::default()).unwrap();
            object.partition("p");
            object.stamp(Stamp(1_792_837_434_910_988));
            for (offset, payload) in ["1", BUG, "2"].into_iter().enumerate() {
                let (offset, payload) = (offset as u64, payload.as_bytes());
                let transaction_id = TransactionId::Minted([7; 16]);
                object.push(&Record { offset, transaction_id, payload }).unwrap();
            }
            let (encoded, All(pieces)) = object.finish().unwrap();
            assert_eq!(encoded.wrapped, 1, "{encoding:?}");
            assert_eq!(encoded.finished.bytes, pieces.concat().len() as u64);
        }
    }
}
