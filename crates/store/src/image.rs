//! An image: what one durable checkpoint holds, unchanged while others write, merge and remove.
//!
//! Owns: holding the files, and reading tables and segments as *sections*, streams of bytes that
//! are the same on every node. Leaves to others: sending them (`export`), comparing (`digest`).
//!
//! Rows and not files stand for a table: two nodes have cut their trees into other files, and yet
//! hold the same rows.

use crate::disk::Disk;
use crate::error::ImageError;
use crate::log_files::SegmentId;
use crate::lsm::{applied_of, row_key, rows_from};
use crate::recovery;
use crate::snapshot::Snapshot;
use crate::store::Applied;
use queen_core::table::Table;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of a section that are read at once; a data block of the stream holds no more.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Keeps files that no row names any more.
struct Pin {
    disk: Arc<Disk>,
    number: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.disk.pins.release(self.number, &self.disk.files);
    }
}

/// What a checkpoint holds.
pub(crate) struct Image {
    pin: Pin,
    snapshot: Arc<Snapshot>,
    pub(crate) applied: Applied,
    /// Segments and their lengths. Files may be longer.
    pub(crate) segments: BTreeMap<SegmentId, u64>,
}

impl Image {
    /// What the last durable checkpoint holds; [`ImageError::Empty`] before the first.
    pub(crate) fn take(disk: Arc<Disk>) -> Result<Image, ImageError> {
        // The order matters: see `pins`.
        let pin = Pin { number: disk.pins.hold(), disk };
        let snapshot = pin.disk.lsm.snapshot();
        let applied = applied_of(&snapshot).map_err(ImageError::Tables)?;
        let segments = recovery::segments(&snapshot).map_err(ImageError::Tables)?;
        let applied = applied.ok_or(ImageError::Empty)?;
        Ok(Image { pin, snapshot, applied, segments })
    }

    /// Bytes of the tables' files, near enough.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.pin.disk.lsm.file_bytes()
    }

    /// All sections in their order: tables, then segments.
    pub(crate) fn sections(&self) -> impl Iterator<Item = Section> + '_ {
        let tables = Table::ALL.iter().map(|&table| Section::Table(table));
        tables.chain(self.segments.iter().map(|(&id, &bytes)| Section::Segment { id, bytes }))
    }
}

/// A table or a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Table(Table),
    Segment { id: SegmentId, bytes: u64 },
}

/// Reads one section from its begin to its end.
pub(crate) struct SectionReader {
    section: Section,
    /// In a table: where the next row is looked for; `None` at the end.
    next: Option<Vec<u8>>,
    hash: Box<Xxh3>,
    /// Bytes read.
    pub(crate) bytes: u64,
    /// Rows read.
    pub(crate) rows: u64,
}

impl SectionReader {
    pub(crate) fn new(section: Section) -> SectionReader {
        SectionReader { section, next: Some(Vec::new()), hash: Box::default(), bytes: 0, rows: 0 }
    }

    /// Appends the next bytes; `false` when there are none left.
    pub(crate) fn read(&mut self, image: &Image, into: &mut Vec<u8>) -> Result<bool, ImageError> {
        let begin = into.len();
        match self.section {
            Section::Table(table) => self.read_rows(image, table, into)?,
            Section::Segment { id, bytes } => self.read_file(image, id, bytes, into)?,
        }
        self.hash.update(&into[begin..]);
        self.bytes += (into.len() - begin) as u64;
        Ok(into.len() > begin)
    }

    /// The hash of what was read.
    pub(crate) fn hash(&self) -> u128 {
        self.hash.digest128()
    }

    fn read_rows(
        &mut self,
        image: &Image,
        table: Table,
        into: &mut Vec<u8>,
    ) -> Result<(), ImageError> {
        let Some(from) = self.next.take() else { return Ok(()) };
        let begin = into.len();
        for row in rows_from(&image.snapshot, table, &from) {
            let (key, value) = row.map_err(|error| ImageError::Tables(error.to_string()))?;
            let key = row_key(&key);
            into.extend_from_slice(&(key.len() as u32).to_le_bytes());
            into.extend_from_slice(&(value.len() as u32).to_le_bytes());
            into.extend_from_slice(key);
            into.extend_from_slice(&value);
            self.rows += 1;
            if into.len() - begin >= CHUNK_BYTES {
                // The next key there can be.
                self.next = Some([key, &[0]].concat());
                break;
            }
        }
        Ok(())
    }

    fn read_file(
        &mut self,
        image: &Image,
        id: SegmentId,
        bytes: u64,
        into: &mut Vec<u8>,
    ) -> Result<(), ImageError> {
        let length = (bytes - self.bytes).min(CHUNK_BYTES as u64) as usize;
        if length == 0 {
            return Ok(());
        }
        let files = &image.pin.disk.files;
        let io = |source| ImageError::Io { what: "read", path: files.path(id), source };
        let file = files.existing(id).map_err(io)?;
        let begin = into.len();
        into.resize(begin + length, 0);
        file.read_exact_at(&mut into[begin..], self.bytes).map_err(io)
    }
}
