//! Parquet objects, read back by the library's reader; their bytes, held against golden hashes.

use super::*;
use crate::encode::pieces::sha256_hex;
use crate::encode::{Encoding, ObjectEncoder};
use crate::testing::All;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::record::{Field, RowAccessor};
use proptest::prelude::*;
use queen_core::TenantId;

/// A record, as it goes in and as it comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    partition: String,
    offset: u64,
    id: String,
    stamp: u64,
    payload: Option<Vec<u8>>,
}

const ZSTD: PageCompression = PageCompression::ZSTD;
const STAMP: u64 = 1_792_837_434_910_988;

fn spec(compression: PageCompression, wrap: bool) -> ObjectSpec {
    let encoding = Encoding::Parquet(compression);
    ObjectSpec { encoding, wrap, tenant: TenantId::DEFAULT, queue: "orders".into() }
}

/// Encodes rows; `told` says before which rows partition and stamp are named though they are the
/// same, as where a run ends.
fn encode(spec: &ObjectSpec, rows: &[Row], told: impl Fn(usize) -> bool) -> (Encoded, Bytes) {
    let mut object = ObjectEncoder::new(spec, rows.len() as u64, All::default()).unwrap();
    let mut before: Option<&Row> = None;
    for (n, row) in rows.iter().enumerate() {
        if told(n) || before.is_none_or(|b| b.partition != row.partition) {
            object.partition(&row.partition);
        }
        if told(n) || before.is_none_or(|b| b.stamp != row.stamp) {
            object.stamp(Stamp(row.stamp));
        }
        before = Some(row);
        let transaction_id = TransactionId::Own(&row.id);
        let payload = row.payload.as_deref().unwrap_or_default();
        object.push(&Record { offset: row.offset, transaction_id, payload }).unwrap();
    }
    let (encoded, all) = object.finish().unwrap();
    let bytes = Bytes::from(all.0.concat());
    assert_eq!(encoded.finished.bytes, bytes.len() as u64);
    assert_eq!(encoded.finished.sha256, sha256_hex(&bytes));
    (encoded, bytes)
}

fn object(rows: &[Row]) -> Bytes {
    encode(&spec(ZSTD, true), rows, |_| false).1
}

fn read(bytes: &Bytes) -> Vec<Row> {
    let reader = SerializedFileReader::new(bytes.clone()).unwrap();
    let rows = reader.get_row_iter(None).unwrap().map(|row| {
        let row = row.unwrap();
        let Some((_, Field::TimestampMicros(stamp))) = row.get_column_iter().nth(3) else {
            panic!("ts is {:?}", row.get_column_iter().nth(3));
        };
        Row {
            partition: row.get_string(0).unwrap().clone(),
            offset: row.get_long(1).unwrap() as u64,
            id: row.get_string(2).unwrap().clone(),
            stamp: *stamp as u64,
            payload: row.get_string(4).ok().map(|text| text.clone().into_bytes()),
        }
    });
    rows.collect()
}

fn metadata(bytes: &Bytes) -> ParquetMetaData {
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    reader.try_parse(bytes).unwrap();
    reader.finish().unwrap()
}

/// Well-spread numbers from no random source.
struct Spread(u64);

impl Spread {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }
}

/// `count` rows of some partitions, sorted as a window is; some payloads are absent, one is `null`.
fn rows(count: usize, partitions: usize) -> Vec<Row> {
    let mut spread = Spread(7);
    let share = count.div_ceil(partitions);
    let row = |n: usize| {
        let (number, drawn) = (n / share, spread.next());
        let offset = (n % share) as u64;
        let payload = match drawn % 97 {
            0 => None,
            1 => Some(b"null".to_vec()),
            _ => Some(format!("{{\"n\":{n},\n \"v\":\"{drawn:x}\",\"é\":42.00}}").into_bytes()),
        };
        let id = format!("{drawn:032x}");
        let partition = format!("cust-{number:04}");
        Row { partition, offset, id, stamp: STAMP + offset * 1000 + number as u64, payload }
    };
    (0..count).map(row).collect()
}

#[test]
fn the_bytes_of_parquet_objects_are_fixed() {
    let rows = rows(30_000, 40);
    let mut got = Vec::new();
    for compression in [ZSTD, PageCompression::Snappy] {
        let (encoded, _) = encode(&spec(compression, true), &rows, |_| false);
        let word = Encoding::Parquet(compression).compression();
        got.push(format!("{word} {} {}", encoded.finished.bytes, encoded.finished.sha256));
    }
    let golden = include_str!("../../golden/parquet-r1.txt");
    let want: Vec<_> = golden.lines().collect();
    assert_eq!(got, want, "raise ENCODER_REVISION with a new golden file");
}

#[test]
fn bytes_do_not_depend_on_where_runs_end() {
    let rows = rows(5_000, 3);
    let whole = object(&rows);
    for every in [1, 7, 1024] {
        let (_, bytes) = encode(&spec(ZSTD, true), &rows, |n| n % every == 0);
        assert!(bytes == whole, "runs of {every}");
    }
}

#[test]
fn the_file_says_what_it_is_and_nothing_of_who_wrote_it() {
    let bytes = object(&rows(10, 2));
    let metadata = metadata(&bytes);
    let file = metadata.file_metadata();
    assert_eq!(file.created_by(), Some("queen-s3 version 1"));
    let pairs = file.key_value_metadata().unwrap().iter();
    let pairs: Vec<_> = pairs.map(|p| (p.key.as_str(), p.value.as_deref().unwrap())).collect();
    let tenant = TenantId::DEFAULT.to_string();
    let want =
        [("queen.envelope", "1"), ("queen.queue", "orders"), ("queen.tenant", tenant.as_str())];
    assert_eq!(pairs, want);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(!text.contains("parquet-rs") && !text.contains("60."), "the library's version shows");
    let sorting = metadata.row_group(0).sorting_columns().unwrap();
    let sorting: Vec<_> = sorting.iter().map(|c| (c.column_idx, c.descending)).collect();
    assert_eq!(sorting, [(0, false), (3, false), (1, false)]);
    let columns = metadata.row_group(0).columns().iter();
    let shown: Vec<_> = columns
        .map(|c| (c.column_path().string(), c.column_descr().logical_type_ref().cloned()))
        .map(|(name, kind)| format!("{name} {kind:?}"))
        .collect();
    let string = "Some(String)";
    assert_eq!(shown[0], format!("partition {string}"));
    assert_eq!(shown[1], "offset None");
    assert_eq!(shown[2], format!("transaction_id {string}"));
    assert!(shown[3].contains("is_adjusted_to_u_t_c: true") && shown[3].contains("MICROS"));
    assert_eq!(shown[4], format!("payload {string}"));
}

#[test]
fn statistics_are_there_where_a_query_uses_them() {
    let rows = rows(1_000, 2);
    let metadata = metadata(&object(&rows));
    let index = metadata.page_index_for_row_group(0);
    for (number, column) in metadata.row_group(0).columns().iter().enumerate() {
        let range = column.statistics().unwrap();
        let nulls = rows.iter().filter(|row| row.payload.is_none() && number == 4).count() as u64;
        assert_eq!(range.null_count_opt(), Some(nulls), "column {number}");
        assert!(index.offset_index(number).is_some(), "column {number}");
        // Nobody asks for a range of payloads, and the bounds would hold the largest in memory.
        let bounds = number != 4;
        assert_eq!(range.min_bytes_opt().is_some(), bounds, "column {number}");
        assert_eq!(range.max_bytes_opt().is_some(), bounds, "column {number}");
        let index = index.column_index(number).is_some_and(|i| i.num_pages() > 0);
        assert_eq!(index, bounds, "column {number}");
    }
}

#[test]
fn ten_records_take_less_than_8_kib_and_no_filter() {
    let bytes = object(&rows(10, 2));
    assert!(bytes.len() < 8 << 10, "{} bytes", bytes.len());
    let metadata = metadata(&bytes);
    assert_eq!(metadata.row_group(0).column(2).bloom_filter_offset(), None);
}

#[test]
fn only_many_records_get_a_filter_and_it_fits_their_number() {
    let small = metadata(&object(&rows(10_000, 2)));
    assert_eq!(small.row_group(0).column(2).bloom_filter_offset(), None);
    let rows = rows(10_001, 2);
    let bytes = object(&rows);
    let large = metadata(&bytes);
    let group = large.row_group(0);
    let bits = 8 * group.column(2).bloom_filter_length().unwrap() as usize;
    assert!((8 * rows.len()..20 * rows.len()).contains(&bits), "{bits} bits");
    let with = (0..5).filter(|i| group.column(*i).bloom_filter_offset().is_some());
    assert_eq!(with.collect::<Vec<_>>(), [2]);
    let filter = {
        let properties = parquet::file::properties::ReaderProperties::builder();
        let properties = properties.set_read_bloom_filter(true).build();
        let options = parquet::file::serialized_reader::ReadOptionsBuilder::new()
            .with_reader_properties(properties);
        SerializedFileReader::new_with_options(bytes, options.build()).unwrap()
    };
    let group = filter.get_row_group(0).unwrap();
    let filter = group.get_column_bloom_filter(2).unwrap();
    assert!(rows.iter().all(|row| filter.check(&ByteArray::from(row.id.as_str()))));
    let misses = (0..10_000).filter(|n| filter.check(&ByteArray::from(&*format!("absent {n}"))));
    assert!(misses.count() < 300);
}

#[test]
fn one_partition_and_a_span_of_time_are_found_by_the_page_index_alone() {
    let rows = rows(100_000, 4);
    let metadata = metadata(&object(&rows));
    assert_eq!(metadata.num_row_groups(), 1);
    let partition = metadata.row_group(0).column(0).statistics().unwrap();
    let Statistics::ByteArray(range) = partition else { panic!("{partition:?}") };
    assert_eq!(range.min_opt().unwrap().data(), b"cust-0000");
    assert_eq!(range.max_opt().unwrap().data(), b"cust-0003");
    let index = metadata.page_index_for_row_group(0);
    let pages = |column: usize, holds: &dyn Fn(&[u8], &[u8]) -> bool| {
        let pages = index.page_locations(column).unwrap().len();
        let held = (0..pages).filter(|page| match index.column_index(column).unwrap() {
            ColumnIndexMetaData::BYTE_ARRAY(index) => {
                holds(index.min_value(*page).unwrap(), index.max_value(*page).unwrap())
            }
            ColumnIndexMetaData::INT64(index) => {
                let bytes = |value: Option<&i64>| value.unwrap().to_be_bytes();
                holds(&bytes(index.min_value(*page)), &bytes(index.max_value(*page)))
            }
            other => panic!("{other:?}"),
        });
        (held.count(), pages)
    };
    let wanted = b"cust-0001";
    let (held, all) = pages(0, &|min, max| min <= &wanted[..] && &wanted[..] <= max);
    // A quarter of the rows, and the pages that hold its first and last ones.
    assert!(all >= 13 && held <= all / 4 + 2, "partition: {held} of {all} pages");
    // The first tenth of each partition's time: 4 stretches of 2,500 rows in pages of 8,192.
    let (from, to) = (STAMP as i64, STAMP as i64 + 2_499_999);
    let (held, all) =
        pages(3, &|min, max| min <= &to.to_be_bytes()[..] && &from.to_be_bytes()[..] <= max);
    assert!(held <= 4 + 3 && all >= 13, "ts: {held} of {all} pages");
}

#[test]
fn row_groups_end_by_weight() {
    let filling = "x".repeat(1 << 20);
    let row = |n: u64| Row {
        partition: "p".to_owned(),
        offset: n,
        id: n.to_string(),
        stamp: STAMP + n,
        payload: Some(format!("\"{n}{filling}\"").into_bytes()),
    };
    let rows: Vec<Row> = (0..130).map(row).collect();
    let bytes = object(&rows);
    let metadata = metadata(&bytes);
    let counts: Vec<_> = metadata.row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(counts, [64, 64, 2]);
    // Each has a range of offsets of its own, so that a reader skips the others.
    let firsts = metadata.row_groups().iter().map(|group| match group.column(1).statistics() {
        Some(Statistics::Int64(range)) => *range.min_opt().unwrap(),
        other => panic!("{other:?}"),
    });
    assert_eq!(firsts.collect::<Vec<_>>(), [0, 64, 128]);
    assert!(read(&bytes) == rows);
}

#[test]
fn row_groups_that_hardly_compress_end_before_they_fill_the_memory() {
    let mut spread = Spread(1);
    let mut noise = || (0..8_000).map(|_| format!("{:016x}", spread.next())).collect::<String>();
    let row = |n: u64| Row {
        partition: "p".to_owned(),
        offset: n,
        id: n.to_string(),
        stamp: STAMP + n,
        payload: Some(format!("\"{}\"", noise()).into_bytes()),
    };
    let rows: Vec<Row> = (0..400).map(row).collect();
    let (_, bytes) = encode(&spec(PageCompression::Snappy, true), &rows, |_| false);
    let metadata = metadata(&bytes);
    let sizes: Vec<_> = metadata.row_groups().iter().map(|group| group.compressed_size()).collect();
    assert!(sizes.len() == 2 && (32 << 20..34 << 20).contains(&sizes[0]), "{sizes:?}");
}

#[test]
fn records_of_many_mib_stand_among_small_ones() {
    let sized = |n: u64, bytes: usize| Row {
        partition: "p".to_owned(),
        offset: n,
        id: n.to_string(),
        stamp: STAMP + n,
        payload: Some(format!("\"{}\"", "x".repeat(bytes)).into_bytes()),
    };
    let rows = vec![sized(0, 10), sized(1, 17 << 20), sized(2, 40 << 20), sized(3, 10)];
    let (encoded, bytes) = encode(&spec(ZSTD, true), &rows, |_| false);
    assert_eq!(encoded.wrapped, 0);
    assert_eq!(encoded.record_bytes_max, 16 + 1 + 1 + (40 << 20) + 2);
    assert!(read(&bytes) == rows);
}

#[test]
fn payloads_that_break_strings_are_wrapped_and_restored_bit_by_bit() {
    let bad: [&[u8]; 5] = [
        b"\"\xff\xfe\"",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"{\"queen.payloadBase64\":\"eA==\"}",
        b"{\"a\xff",
    ];
    let fine: [&[u8]; 5] = [
        br#""\ud800""#,
        br#""a\u0000b""#,
        b"1e400",
        b"{\"queen.payloadBase64\": \"eA==\"}",
        b"null",
    ];
    let row = |(n, payload): (usize, &&[u8])| Row {
        partition: "p".to_owned(),
        offset: n as u64,
        id: String::new(),
        stamp: STAMP,
        payload: Some(payload.to_vec()),
    };
    let rows: Vec<Row> = bad.iter().chain(&fine).enumerate().map(row).collect();
    let (encoded, bytes) = encode(&spec(ZSTD, true), &rows, |_| false);
    assert_eq!(encoded.wrapped, bad.len() as u64);
    let restored = read(&bytes).into_iter().map(|mut row| {
        let payload = row.payload.unwrap();
        let inner = payload.strip_prefix(WRAPPED_HEAD.as_bytes());
        row.payload = Some(match inner.and_then(|p| p.strip_suffix(WRAPPED_END.as_bytes())) {
            Some(inner) => base64::engine::general_purpose::STANDARD.decode(inner).unwrap(),
            None => payload,
        });
        row
    });
    assert_eq!(restored.collect::<Vec<_>>(), rows);
    let (plain, _) = encode(&spec(ZSTD, false), &rows, |_| false);
    assert_eq!(plain.wrapped, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_records_read_back(
        drawn in proptest::collection::vec(
            (".{0,20}", any::<u32>(), ".{0,40}", 0..i64::MAX as u64, proptest::option::of(".{1,200}"), any::<bool>()),
            1..300,
        ),
        snappy in any::<bool>(),
    ) {
        let rows: Vec<Row> = drawn.iter().map(|(partition, offset, id, stamp, payload, _)| Row {
            partition: partition.clone(), offset: u64::from(*offset), id: id.clone(), stamp: *stamp,
            payload: payload.as_ref().map(|p| p.clone().into_bytes()),
        }).collect();
        let compression = if snappy { PageCompression::Snappy } else { ZSTD };
        let (_, bytes) = encode(&spec(compression, true), &rows, |n| drawn[n].5);
        prop_assert_eq!(read(&bytes), rows);
    }
}
