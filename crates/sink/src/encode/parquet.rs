//! A Parquet object: records into columns, columns into row groups, row groups into the object.
//!
//! Owns: where steps and row groups end, how a payload becomes a value.
//! Leaves to others: columns and properties (`schema`), pages and footer (the parquet library),
//! hashing and cutting (`pieces`).
//! Upholds: `window-is-final`, `memory-bounded`.
//!
//! A row group ends by what it holds, never by how the records came: at 64 MiB of weight, or earlier
//! when its pages compress so badly that they would fill the memory. A step ends at a fixed number of
//! rows, or earlier at large records. All three depend on the records alone, and so do the bytes.
//!
//! A payload is the producer's JSON text as it is, line breaks too: no reader parses a column of
//! strings. Only bytes that are no UTF-8 would break one. They go as
//! `{"queen.payloadBase64":"…"}`, and so does a payload that begins like that by itself: whatever
//! begins so is base64. An absent payload is NULL; the JSON value null is the text `null`.

mod chunk;
mod rows;
mod schema;

use super::PageCompression;
use super::object::{Encoded, ObjectSpec};
use super::pieces::{Cutter, Pieces};
use super::record::{ID_TEXT_BYTES, Record, TransactionId, id_text};
use super::wrap::guarded;
use base64::Engine as _;
use bytes::Bytes;
use chunk::Chunk;
use parquet::column::writer::{
    ColumnCloseResult, ColumnWriterImpl, get_column_writer, get_typed_column_writer,
};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::SchemaDescriptor;
use queen_core::Stamp;
use rows::Rows;
use std::io;
use std::sync::Arc;

/// Weight at which a row group ends, bytes.
const GROUP_WEIGHT: u64 = 64 << 20;
/// Weight of a record besides its texts, bytes.
const WEIGHT_MIN: u64 = 64;
/// Compressed bytes at which a row group ends: its pages wait in memory.
const GROUP_BYTES: u64 = 32 << 20;
/// Memory that an open row group takes: its pages, those being filled, rows, compressors.
pub const GROUP_MEMORY: u64 = GROUP_BYTES + (16 << 20);
/// Bytes of a record besides its texts: offset and ts.
const NUMBERS_BYTES: u64 = 16;

const WRAPPED_HEAD: &str = "{\"queen.payloadBase64\":\"";
const WRAPPED_END: &str = "\"}";

/// A column of the open row group.
struct Column<T: DataType> {
    writer: ColumnWriterImpl<'static, T>,
    chunk: Chunk,
}

impl<T: DataType> Column<T> {
    fn new(schema: &SchemaDescriptor, properties: &WriterPropertiesPtr, at: usize) -> Column<T> {
        let chunk = Chunk::default();
        let pages = chunk.page_writer();
        let writer = get_column_writer(schema.column(at), properties.clone(), pages);
        Column { writer: get_typed_column_writer(writer), chunk }
    }

    fn write(&mut self, values: &[T::T], levels: Option<&[i16]>) -> Result<()> {
        self.writer.write_batch(values, levels, None).map(drop)
    }

    fn close(self) -> Result<(Chunk, ColumnCloseResult)> {
        Ok((self.chunk, self.writer.close()?))
    }
}

/// The open row group.
struct Group {
    partition: Column<ByteArrayType>,
    offset: Column<Int64Type>,
    transaction_id: Column<ByteArrayType>,
    ts: Column<Int64Type>,
    payload: Column<ByteArrayType>,
    /// Absent payloads.
    nulls: u64,
    weight: u64,
}

impl Group {
    fn new(schema: &SchemaDescriptor, properties: &WriterPropertiesPtr) -> Group {
        Group {
            partition: Column::new(schema, properties, 0),
            offset: Column::new(schema, properties, 1),
            transaction_id: Column::new(schema, properties, 2),
            ts: Column::new(schema, properties, 3),
            payload: Column::new(schema, properties, 4),
            nulls: 0,
            weight: 0,
        }
    }

    fn write(&mut self, rows: &mut Rows) -> Result<()> {
        self.partition.write(&rows.partitions, None)?;
        self.offset.write(&rows.offsets, None)?;
        self.transaction_id.write(rows.ids.values(), None)?;
        self.ts.write(&rows.stamps, None)?;
        self.nulls += rows.levels.iter().filter(|level| **level == 0).count() as u64;
        self.payload.write(rows.payloads.values(), Some(&rows.levels))
    }

    fn full(&self) -> bool {
        let chunks = [&self.partition.chunk, &self.transaction_id.chunk, &self.payload.chunk];
        let numbers = [&self.offset.chunk, &self.ts.chunk];
        let waiting: u64 = chunks.iter().chain(&numbers).map(|chunk| chunk.bytes()).sum();
        self.weight >= GROUP_WEIGHT || waiting >= GROUP_BYTES
    }

    /// The finished columns, in their order.
    fn close(self) -> Result<[(Chunk, ColumnCloseResult); 5]> {
        let (payloads, mut payload) = self.payload.close()?;
        let nulls = ValueStatistics::<ByteArray>::new(None, None, None, Some(self.nulls), false);
        let metadata = payload.metadata.into_builder();
        payload.metadata = metadata.set_statistics(Statistics::ByteArray(nulls)).build()?;
        Ok([
            self.partition.close()?,
            self.offset.close()?,
            self.transaction_id.close()?,
            self.ts.close()?,
            (payloads, payload),
        ])
    }
}

/// A Parquet object being encoded.
pub struct ParquetObject<P: Pieces> {
    file: SerializedFileWriter<Cutter<P>>,
    group: Option<Group>,
    rows: Rows,
    wrap: bool,
    partition: ByteArray,
    stamp: i64,
    wrapped: u64,
    record_bytes_max: u64,
}

impl<P: Pieces> ParquetObject<P> {
    /// Begins an object of so many records.
    pub fn new(
        spec: &ObjectSpec,
        compression: PageCompression,
        records: u64,
        pieces: P,
    ) -> io::Result<ParquetObject<P>> {
        let properties = schema::properties(spec, compression, records).map_err(broken)?;
        let schema = schema::schema().map_err(broken)?;
        let file = SerializedFileWriter::new(Cutter::new(pieces), schema, Arc::new(properties));
        Ok(ParquetObject {
            file: file.map_err(broken)?,
            group: None,
            rows: Rows::default(),
            wrap: spec.wrap,
            partition: ByteArray::from(Bytes::new()),
            stamp: 0,
            wrapped: 0,
            record_bytes_max: 0,
        })
    }

    /// The records that follow are of this partition.
    pub fn partition(&mut self, name: &str) {
        self.partition = ByteArray::from(Bytes::copy_from_slice(name.as_bytes()));
    }

    /// The records that follow have this stamp.
    pub fn stamp(&mut self, stamp: Stamp) {
        self.stamp = stamp.0.cast_signed();
    }

    /// Appends a record.
    pub fn push(&mut self, record: &Record<'_>) -> io::Result<()> {
        let rows = &mut self.rows;
        rows.partitions.push(self.partition.clone());
        rows.offsets.push(record.offset.cast_signed());
        rows.stamps.push(self.stamp);
        let id_bytes = match record.transaction_id {
            TransactionId::Own(id) => {
                rows.ids.push(id.as_bytes());
                id.len()
            }
            TransactionId::Minted(id) => {
                rows.ids.push(&id_text(&id));
                ID_TEXT_BYTES
            }
        };
        let payload_bytes = match record.payload {
            [] => {
                rows.levels.push(0);
                0
            }
            payload if self.wrap && guarded(payload, true, must_wrap) => {
                let text = wrapped(payload);
                self.wrapped += 1;
                rows.levels.push(1);
                rows.payloads.push(text.as_bytes());
                text.len()
            }
            payload => {
                rows.levels.push(1);
                rows.payloads.push(payload);
                payload.len()
            }
        };
        let texts = (self.partition.len() + id_bytes + payload_bytes) as u64;
        self.record_bytes_max = self.record_bytes_max.max(NUMBERS_BYTES + texts);
        let full = self.rows.full();
        self.group().weight += WEIGHT_MIN + texts;
        if full { self.step().map_err(broken) } else { Ok(()) }
    }

    /// The open row group; opened if there is none.
    fn group(&mut self) -> &mut Group {
        let (schema, properties) = (self.file.schema_descr(), self.file.properties());
        self.group.get_or_insert_with(|| Group::new(schema, properties))
    }

    /// Writes the rows that wait, and ends the row group if it is full.
    fn step(&mut self) -> Result<()> {
        let Some(mut group) = self.group.take() else { return Ok(()) };
        if !self.rows.is_empty() {
            group.write(&mut self.rows)?;
            self.rows.clear();
        }
        if group.full() {
            return self.end_group(group);
        }
        self.group = Some(group);
        Ok(())
    }

    fn end_group(&mut self, group: Group) -> Result<()> {
        let columns = group.close()?;
        let mut out = self.file.next_row_group()?;
        for (chunk, closed) in columns {
            out.append_column(&chunk, closed)?;
        }
        out.close().map(drop)
    }

    /// Ends the object, hands over its last piece and gives back what took the pieces.
    pub fn finish(mut self) -> io::Result<(Encoded, P)> {
        self.step().map_err(broken)?;
        if let Some(group) = self.group.take() {
            self.end_group(group).map_err(broken)?;
        }
        let (finished, pieces) = self.file.into_inner().map_err(broken)?.finish()?;
        let Self { wrapped, record_bytes_max, .. } = self;
        Ok((Encoded { finished, wrapped, record_bytes_max }, pieces))
    }
}

fn must_wrap(payload: &[u8]) -> bool {
    payload.starts_with(WRAPPED_HEAD.as_bytes()) || std::str::from_utf8(payload).is_err()
}

fn wrapped(payload: &[u8]) -> String {
    let mut text = String::with_capacity(payload.len() / 3 * 4 + 40);
    text.push_str(WRAPPED_HEAD);
    base64::engine::general_purpose::STANDARD.encode_string(payload, &mut text);
    text.push_str(WRAPPED_END);
    text
}

/// The library's error as one of output: only what takes the pieces can fail.
fn broken(err: ParquetError) -> io::Error {
    match err {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(err) => *err,
            Err(other) => io::Error::other(other),
        },
        err => io::Error::other(err),
    }
}

#[cfg(test)]
#[path = "parquet_tests.rs"]
mod tests;
