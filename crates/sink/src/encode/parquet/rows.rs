//! Records on their way into columns: as many as the library takes at a time.
//!
//! Owns: their values, copied once out of the run. Leaves to others: writing them (`super`).
//!
//! Texts of a step share one buffer, so that a record costs no allocation.

use super::schema::STEP_ROWS;
use bytes::BytesMut;
use parquet::data_type::ByteArray;

/// Bytes of texts at which a step is full before it has all its rows.
const STEP_BYTES: usize = 1 << 20;

/// The rows of one step.
#[derive(Default)]
pub struct Rows {
    pub partitions: Vec<ByteArray>,
    pub offsets: Vec<i64>,
    pub stamps: Vec<i64>,
    pub ids: Texts,
    pub payloads: Texts,
    /// 1 for each payload, 0 for each that is absent.
    pub levels: Vec<i16>,
}

impl Rows {
    /// Whether the step is to be written now. Depends on the records alone.
    pub fn full(&self) -> bool {
        let texts = self.ids.buffer.len() + self.payloads.buffer.len();
        self.offsets.len() >= STEP_ROWS || texts >= STEP_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Forgets the rows, keeps the room.
    pub fn clear(&mut self) {
        self.partitions.clear();
        self.offsets.clear();
        self.stamps.clear();
        self.levels.clear();
        self.ids.values.clear();
        self.payloads.values.clear();
    }
}

/// Texts of one column.
#[derive(Default)]
pub struct Texts {
    buffer: BytesMut,
    ends: Vec<usize>,
    values: Vec<ByteArray>,
}

impl Texts {
    /// Appends a value.
    pub fn push(&mut self, text: &[u8]) {
        self.buffer.extend_from_slice(text);
        self.ends.push(self.buffer.len());
    }

    /// The values since the last call, as the library takes them.
    pub fn values(&mut self) -> &[ByteArray] {
        let texts = self.buffer.split().freeze();
        let mut from = 0;
        self.values.extend(self.ends.drain(..).map(|end| {
            let value = texts.slice(from..end);
            from = end;
            ByteArray::from(value)
        }));
        if texts.len() > STEP_BYTES * 2 {
            // One huge record must not keep its room for the rest of the window.
            self.buffer = BytesMut::new();
        }
        &self.values
    }
}
