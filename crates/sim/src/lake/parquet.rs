//! A Parquet object, read as strictly as it is promised.
//!
//! Owns: the columns and their types, what the footer must say, the statistics held against the rows.
//! Leaves to others: decoding pages (the parquet library's reader), what the values must be
//! (`window`, `records`). The library's reader is common with the tests of the sink, no code of the
//! sink is.

use super::line::Line;
use super::manifest::Manifest;
use anyhow::{Context, bail, ensure};
use base64::Engine;
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader,
};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::{Field, Row};
use parquet::schema::parser::parse_message_type;
use parquet::schema::printer::print_schema;
use queen_core::Stamp;
use std::collections::BTreeMap;
use std::sync::Arc;

const SCHEMA: &str = "message queen_record {
  REQUIRED BYTE_ARRAY partition (STRING);
  REQUIRED INT64 offset;
  REQUIRED BYTE_ARRAY transaction_id (STRING);
  REQUIRED INT64 ts (TIMESTAMP(MICROS,true));
  OPTIONAL BYTE_ARRAY payload (STRING);
}
";
const WRAPPED: (&str, &str) = ("{\"queen.payloadBase64\":\"", "\"}");
/// More records than this have a filter of their transaction ids.
const FILTER_ABOVE: usize = 10_000;

/// A file's rows and its footer.
pub struct ParquetFile {
    /// The rows, in the order of the file.
    pub rows: Vec<Line>,
    metadata: ParquetMetaData,
}

/// Reads all rows.
pub fn read(object: &[u8]) -> anyhow::Result<ParquetFile> {
    let bytes = bytes::Bytes::copy_from_slice(object);
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    reader.try_parse(&bytes)?;
    let metadata = reader.finish()?;
    let mut schema = Vec::new();
    print_schema(&mut schema, metadata.file_metadata().schema());
    let schema = String::from_utf8(schema)?;
    ensure!(schema == SCHEMA, "the columns are\n{schema}");
    let reader = SerializedFileReader::new(bytes)?;
    let rows = reader.get_row_iter(None)?;
    let rows = rows.map(|row| line(&row?)).collect::<anyhow::Result<_>>()?;
    Ok(ParquetFile { rows, metadata })
}

fn line(row: &Row) -> anyhow::Result<Line> {
    let fields: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
    let [
        Field::Str(partition),
        Field::Long(offset),
        Field::Str(transaction_id),
        Field::TimestampMicros(ts),
        payload,
    ] = fields.as_slice()
    else {
        bail!("a row is {fields:?}");
    };
    let text = match payload {
        Field::Str(text) => text.as_str(),
        Field::Null => "",
        other => bail!("a payload is {other:?}"),
    };
    let inner = text.strip_prefix(WRAPPED.0).and_then(|text| text.strip_suffix(WRAPPED.1));
    let payload = match inner {
        Some(inner) => base64::engine::general_purpose::STANDARD.decode(inner)?,
        None => text.as_bytes().to_vec(),
    };
    Ok(Line {
        length: (16 + partition.len() + transaction_id.len() + text.len()) as u64,
        partition: partition.clone(),
        offset: u64::try_from(*offset)?,
        transaction_id: transaction_id.clone(),
        stamp: Stamp(u64::try_from(*ts)?),
        payload,
        wrapped: inner.is_some(),
        as_pushed: true,
    })
}

/// What is wrong with a footer.
pub fn footer(file: &ParquetFile, manifest: &Manifest) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut hold = |what: &str, is: String, must: String| {
        if is != must {
            wrong.push(format!("{what} is {is}, not {must}"));
        }
    };
    let of_file = file.metadata.file_metadata();
    hold(
        "created_by",
        format!("{:?}", of_file.created_by()),
        "Some(\"queen-s3 version 1\")".into(),
    );
    let pairs = of_file.key_value_metadata().into_iter().flatten();
    let pairs: BTreeMap<_, _> = pairs.map(|pair| (pair.key.clone(), pair.value.clone())).collect();
    let must = [("envelope", "1"), ("queue", &manifest.queue), ("tenant", &manifest.tenant)];
    let must = must.map(|(key, value)| (format!("queen.{key}"), Some(value.to_owned())));
    hold("metadata", format!("{pairs:?}"), format!("{:?}", BTreeMap::from(must)));
    let codec = match manifest.compression.as_str() {
        "snappy" => Compression::SNAPPY,
        _ => Compression::ZSTD(Default::default()),
    };
    let mut rows = file.rows.as_slice();
    for (number, group) in file.metadata.row_groups().iter().enumerate() {
        let (now, later) = rows.split_at((group.num_rows() as usize).min(rows.len()));
        rows = later;
        let sorting = group.sorting_columns().into_iter().flatten();
        let sorting: Vec<_> =
            sorting.map(|c| (c.column_idx, c.descending, c.nulls_first)).collect();
        let must = [(0, false, false), (3, false, false), (1, false, false)];
        hold("sorting", format!("{sorting:?}"), format!("{must:?}"));
        let sorted = now.is_sorted_by_key(|l| (l.partition.as_bytes(), l.stamp, l.offset));
        hold("the promised order", sorted.to_string(), "true".into());
        for (at, column) in group.columns().iter().enumerate() {
            let name = column.column_path().string();
            // The level is in no footer.
            let kind = std::mem::discriminant(&column.compression());
            let same = kind == std::mem::discriminant(&codec);
            hold(&format!("codec of {name} is right"), same.to_string(), "true".into());
            let range = format!("{:?}", range_of(column));
            hold(&format!("range of {name}"), range, format!("{:?}", range_in(at, now)));
            let index = file.metadata.page_index_for_row_group(number);
            let indexed = (index.column_index(at).is_some(), index.offset_index(at).is_some());
            let must = format!("{:?}", (at != 4, true));
            hold(&format!("index of {name}"), format!("{indexed:?}"), must);
            let filter = column.bloom_filter_offset().is_some();
            let must = at == 2 && file.rows.len() > FILTER_ABOVE;
            hold(&format!("filter of {name}"), filter.to_string(), must.to_string());
            let encoded = |encoding| column.encodings().any(|e| e == encoding);
            let encoding = match at {
                0 => encoded(Encoding::RLE_DICTIONARY),
                1 | 3 => encoded(Encoding::DELTA_BINARY_PACKED),
                _ => encoded(Encoding::PLAIN) && !encoded(Encoding::RLE_DICTIONARY),
            };
            hold(&format!("encoding of {name} is right"), encoding.to_string(), "true".into());
        }
    }
    wrong
}

/// Smallest and largest value, and the nulls, as the statistics of a column say. Long texts are cut
/// there, so that only their beginnings count.
fn range_of(column: &ColumnChunkMetaData) -> Option<(Vec<u8>, Vec<u8>, u64)> {
    let statistics = column.statistics()?;
    let nulls = statistics.null_count_opt()?;
    Some(match statistics {
        Statistics::Int64(range) => {
            let bytes = |value: Option<&i64>| value.map(|v| v.to_be_bytes().to_vec());
            (bytes(range.min_opt())?, bytes(range.max_opt())?, nulls)
        }
        Statistics::ByteArray(range) => {
            let bytes = |value: Option<&ByteArray>, exact: bool| match (value, exact) {
                (Some(value), true) => value.data().to_vec(),
                (Some(value), false) => value.data()[..value.data().len().min(48)].to_vec(),
                (None, _) => Vec::new(),
            };
            let exact = (range.min_is_exact(), range.max_is_exact());
            (bytes(range.min_opt(), exact.0), bytes(range.max_opt(), exact.1), nulls)
        }
        _ => return None,
    })
}

fn range_in(column: usize, rows: &[Line]) -> Option<(Vec<u8>, Vec<u8>, u64)> {
    let value = |line: &Line| match column {
        0 => line.partition.clone().into_bytes(),
        1 => line.offset.to_be_bytes().to_vec(),
        2 => line.transaction_id.clone().into_bytes(),
        3 => line.stamp.0.to_be_bytes().to_vec(),
        _ => Vec::new(),
    };
    let cut = |text: Vec<u8>| if text.len() > 64 { text[..48].to_vec() } else { text };
    let nulls = rows.iter().filter(|line| column == 4 && line.payload.is_empty()).count() as u64;
    Some((cut(rows.iter().map(value).min()?), cut(rows.iter().map(value).max()?), nulls))
}

/// A file of these rows, for damage: readable, but with none of the promises of the footer.
pub fn write(rows: &[Line]) -> anyhow::Result<Vec<u8>> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    let mut group = file.next_row_group()?;
    let texts = |of: fn(&Line) -> &[u8]| -> Vec<ByteArray> {
        rows.iter().map(|line| ByteArray::from(of(line).to_vec())).collect()
    };
    let numbers =
        |of: fn(&Line) -> u64| -> Vec<i64> { rows.iter().map(|line| of(line) as i64).collect() };
    column::<ByteArrayType>(&mut group, &texts(|l| l.partition.as_bytes()), None)?;
    column::<Int64Type>(&mut group, &numbers(|l| l.offset), None)?;
    column::<ByteArrayType>(&mut group, &texts(|l| l.transaction_id.as_bytes()), None)?;
    column::<Int64Type>(&mut group, &numbers(|l| l.stamp.0), None)?;
    let levels = vec![1; rows.len()];
    column::<ByteArrayType>(&mut group, &texts(|l| &l.payload), Some(&levels))?;
    group.close()?;
    Ok(file.into_inner()?)
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> anyhow::Result<()> {
    let mut column = group.next_column()?.context("a column too many")?;
    column.typed::<T>().write_batch(values, levels, None)?;
    Ok(column.close()?)
}
