//! What a Parquet object promises its readers before the first record.
//!
//! Owns: the columns and their types, and every choice of the writer that shows in the bytes: page
//! and dictionary sizes, encodings, statistics, sorting, filter, footer.
//! Leaves to others: when rows are written and row groups end (`super`).
//!
//! Changing anything here raises the encoder revision.

use crate::encode::PageCompression;
use crate::encode::object::ObjectSpec;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::Result;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{
    BloomFilterPosition, EnabledStatistics, WriterProperties, WriterVersion,
};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};
use std::sync::Arc;

/// Ids and payload are plain strings: readers disagree about the types UUID, JSON and VARIANT.
const SCHEMA: &str = "
message queen_record {
    REQUIRED BYTE_ARRAY partition (STRING);
    REQUIRED INT64 offset;
    REQUIRED BYTE_ARRAY transaction_id (STRING);
    REQUIRED INT64 ts (TIMESTAMP(MICROS,true));
    OPTIONAL BYTE_ARRAY payload (STRING);
}";

/// Rows that the library takes at a time. It cuts pages between two such steps.
pub const STEP_ROWS: usize = 1024;
/// Rows of a page; the finest slice that a reader can skip.
const PAGE_ROWS: usize = 8192;
/// Uncompressed bytes at which a page ends.
const PAGE_BYTES: usize = 1 << 20;
/// Distinct partition names above which a row group writes the rest of them plain.
const DICTIONARY_BYTES: usize = 1 << 20;
/// Bytes of a value in statistics and indexes.
const STATISTICS_BYTES: usize = 64;
/// Objects of no more records have no bloom filter: it would outweigh what it saves.
const FILTER_ABOVE_RECORDS: u64 = 10_000;
/// Most rows of a row group, by its weight.
const GROUP_ROWS_MAX: u64 = super::GROUP_WEIGHT / super::WEIGHT_MIN;
/// Share of absent ids that the filter lets through.
const FILTER_MISSES: f64 = 0.01;
/// Names this writer, never the library's version.
const CREATED_BY: &str = "queen-s3 version 1";

/// The columns.
pub fn schema() -> Result<TypePtr> {
    parse_message_type(SCHEMA).map(Arc::new)
}

/// How an object of `records` records is written.
pub fn properties(
    spec: &ObjectSpec,
    compression: PageCompression,
    records: u64,
) -> Result<WriterProperties> {
    let compression = match compression {
        PageCompression::Zstd(level) => Compression::ZSTD(ZstdLevel::try_new(level)?),
        PageCompression::Snappy => Compression::SNAPPY,
    };
    let pair = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    let ascending =
        |column_idx| SortingColumn { column_idx, descending: false, nulls_first: false };
    let column = |name: &str| ColumnPath::from(name);
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(CREATED_BY.to_owned())
        .set_key_value_metadata(Some(vec![
            pair("queen.envelope", "1".to_owned()),
            pair("queen.queue", spec.queue.to_string()),
            pair("queen.tenant", spec.tenant.to_string()),
        ]))
        // By partition, then time, then offset: within a partition the last two rise together, and
        // a reader that cuts by time is told that it may.
        .set_sorting_columns(Some(vec![ascending(0), ascending(3), ascending(1)]))
        .set_compression(compression)
        .set_write_batch_size(STEP_ROWS)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_dictionary_enabled(false)
        .set_column_dictionary_enabled(column("partition"), true)
        .set_encoding(Encoding::PLAIN)
        .set_column_encoding(column("offset"), Encoding::DELTA_BINARY_PACKED)
        .set_column_encoding(column("ts"), Encoding::DELTA_BINARY_PACKED)
        .set_statistics_enabled(EnabledStatistics::Page)
        // Bounds would keep the largest payloads in memory, and nobody asks for a range of payloads.
        .set_column_statistics_enabled(column("payload"), EnabledStatistics::None)
        .set_statistics_truncate_length(Some(STATISTICS_BYTES))
        .set_column_index_truncate_length(Some(STATISTICS_BYTES))
        .set_write_page_header_statistics(false)
        .set_offset_index_disabled(false)
        .set_bloom_filter_enabled(false)
        .set_bloom_filter_position(BloomFilterPosition::AfterRowGroup);
    if records > FILTER_ABOVE_RECORDS {
        // Made for as many ids as a row group may have, folded to what it has.
        let id = column("transaction_id");
        builder = builder
            .set_column_bloom_filter_enabled(id.clone(), true)
            .set_column_bloom_filter_fpp(id.clone(), FILTER_MISSES)
            .set_column_bloom_filter_max_ndv(id, records.min(GROUP_ROWS_MAX));
    }
    Ok(builder.build())
}
