//! One hash of all that the store holds, to compare nodes by.
//!
//! Owns: what is hashed, and saying where two differ. Leaves to others: reading it (`image`).
//! Upholds: `apply-deterministic` can be seen: at the same position every node has the same digest.

use crate::error::ImageError;
use crate::image::{Image, Section, SectionReader};
use crate::store::Store;
use queen_core::QueueId;
use queen_core::table::Table;
use std::collections::BTreeMap;
use std::fmt;
use xxhash_rust::xxh3::Xxh3;

/// A table, or a segment of a queue's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// A table.
    Table(Table),
    /// A segment.
    Segment(QueueId, u32),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Table(table) => write!(f, "table {}", table.name()),
            Part::Segment(queue, segment) => write!(f, "segment {segment} of queue {queue}"),
        }
    }
}

/// How much a part holds, and its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartDigest {
    /// Rows of a table; 0 for a segment.
    pub rows: u64,
    /// Bytes of all keys and values with 8 for each row, or of the segment.
    pub bytes: u64,
    /// xxh3-128 of them.
    pub hash: u128,
}

/// The hashes of all parts at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The applied position.
    pub index: u64,
    /// Each table and each live segment.
    pub parts: BTreeMap<Part, PartDigest>,
}

impl Digest {
    /// One hash of all.
    pub fn total(&self) -> u128 {
        let mut total = Xxh3::new();
        total.update(&self.index.to_le_bytes());
        for (part, digest) in &self.parts {
            match part {
                Part::Table(table) => total.update(&[0, *table as u8]),
                Part::Segment(queue, segment) => {
                    total.update(&[1]);
                    total.update(&queue.0.to_le_bytes());
                    total.update(&segment.to_le_bytes());
                }
            }
            total.update(&digest.bytes.to_le_bytes());
            total.update(&digest.hash.to_le_bytes());
        }
        total.digest128()
    }

    /// Where the two differ, one line each; nothing when they are the same.
    pub fn differences(&self, other: &Digest) -> Vec<String> {
        let mut lines = Vec::new();
        if self.index != other.index {
            lines.push(format!("applied up to {} here, {} there", self.index, other.index));
        }
        let say = |digest: Option<&PartDigest>| {
            digest.map_or("nothing".to_owned(), |digest| {
                format!("{} rows, {} bytes, {:032x}", digest.rows, digest.bytes, digest.hash)
            })
        };
        let parts = self.parts.keys().chain(other.parts.keys());
        for part in parts.collect::<std::collections::BTreeSet<_>>() {
            let (here, there) = (self.parts.get(part), other.parts.get(part));
            if here != there {
                lines.push(format!("{part}: {} here, {} there", say(here), say(there)));
            }
        }
        lines
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:032x}", self.index, self.total())
    }
}

impl Store {
    /// The digest of all that is applied now: makes a checkpoint and reads all data.
    ///
    /// Apply does not wait for it. [`ImageError::Empty`] when nothing was ever applied.
    pub fn digest(&self) -> Result<Digest, ImageError> {
        self.checkpoint().map_err(ImageError::Store)?;
        let image = Image::take(self.shared.disk())?;
        let mut parts = BTreeMap::new();
        let mut chunk = Vec::new();
        for section in image.sections() {
            let mut reader = SectionReader::new(section);
            while reader.read(&image, &mut chunk)? {
                chunk.clear();
            }
            let part = match section {
                Section::Table(table) => Part::Table(table),
                Section::Segment { id, .. } => Part::Segment(id.queue, id.segment),
            };
            let (rows, bytes, hash) = (reader.rows, reader.bytes, reader.hash());
            parts.insert(part, PartDigest { rows, bytes, hash });
        }
        Ok(Digest { index: image.applied.index, parts })
    }
}
