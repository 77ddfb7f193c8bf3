//! What encoding costs: each part alone and the whole path, in MB of lines per CPU second.
//!
//! `cargo bench -p queen-sink --bench encode -- [MiB of payloads]`; 256 by default. Records of 266 to
//! 394 bytes from a fixed seed. The least that JSONL can cost is formatting, compressing and hashing
//! alone; the least that Parquet can cost is the library's writer with the same options, fed whole
//! columns that were made before.

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use queen_core::{Stamp, TenantId};
use queen_sink::encode::pieces::Pieces;
use queen_sink::encode::{
    Compression, Encoding as Format, ObjectEncoder, ObjectSpec, PageCompression, Record,
    TransactionId,
};
use std::sync::Arc;

/// Takes an object's bytes, and keeps them if asked.
#[derive(Default)]
struct Taken {
    keep: bool,
    bytes: Vec<u8>,
}

impl Pieces for Taken {
    fn piece(&mut self, piece: Bytes) -> std::io::Result<()> {
        if self.keep {
            self.bytes.extend_from_slice(&piece);
        }
        Ok(())
    }
}

/// CPU seconds of this thread.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux says");
    let nanoseconds: f64 = text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number");
    nanoseconds / 1e9
}

const PER_PARTITION: usize = 1000;

fn payloads(bytes: usize) -> Vec<Vec<u8>> {
    let mut state = 7u64;
    let mut draw = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        state >> 16
    };
    let (mut all, mut sum) = (Vec::new(), 0);
    while sum < bytes {
        let mut text = format!("{{\"order\":{},\"status\":\"new\",\"note\":\"", all.len());
        let length = 264 + (draw() % 129) as usize;
        while text.len() < length {
            text.push_str(["alpha ", "queue ", "lake ", "42.00 "][(draw() % 4) as usize]);
            text.push_str(&format!("{:x} ", draw() & 0xfff));
        }
        text.truncate(length);
        text.push_str("\"}");
        sum += text.len();
        all.push(text.into_bytes());
    }
    all
}

fn whole(encoding: Format, payloads: &[Vec<u8>], keep: bool) -> Vec<u8> {
    let tenant = TenantId::DEFAULT;
    let spec = ObjectSpec { encoding, wrap: true, tenant, queue: "orders".into() };
    let mut object =
        ObjectEncoder::new(&spec, payloads.len() as u64, Taken { keep, bytes: Vec::new() })
            .expect("begins");
    for (n, payload) in payloads.iter().enumerate() {
        if n % PER_PARTITION == 0 {
            object.partition(&format!("cust-{:06}", n / PER_PARTITION));
        }
        object.stamp(Stamp(1_792_837_434_910_988 + n as u64));
        let id = (n as u128 * 0x9e37_79b9_7f4a_7c15_f39c_0cc5).to_be_bytes();
        let transaction_id = TransactionId::Minted(id);
        let offset = (n % PER_PARTITION) as u64;
        object.push(&Record { offset, transaction_id, payload }).expect("writes");
    }
    object.finish().expect("ends").1.bytes
}

/// The library's writer, a column after the other from values made before.
struct Columns(Vec<ByteArray>, Vec<i64>, Vec<ByteArray>, Vec<i64>, Vec<ByteArray>);

fn columns(payloads: &[Vec<u8>]) -> Columns {
    let all = 0..payloads.len();
    let number = |n: usize| n / PER_PARTITION;
    let id = |n: usize| format!("{:036x}", n as u128 * 0x9e37_79b9_7f4a_7c15_f39c_0cc5);
    Columns(
        all.clone().map(|n| ByteArray::from(&*format!("cust-{:06}", number(n)))).collect(),
        all.clone().map(|n| (n % PER_PARTITION) as i64).collect(),
        all.clone().map(|n| ByteArray::from(&*id(n))).collect(),
        all.map(|n| 1_792_837_434_910_988 + n as i64).collect(),
        payloads.iter().map(|p| ByteArray::from(p.clone())).collect(),
    )
}

fn library(columns: &Columns) {
    let schema = parse_message_type(
        "message m { required binary partition (string); required int64 offset;
         required binary id (string); required int64 ts; optional binary payload (string); }",
    );
    let zstd = parquet::basic::ZstdLevel::try_new(3).expect("a level");
    let properties = WriterProperties::builder()
        .set_compression(parquet::basic::Compression::ZSTD(zstd))
        .set_data_page_row_count_limit(8192)
        .set_dictionary_enabled(false)
        .set_column_dictionary_enabled("partition".into(), true)
        .set_column_encoding("offset".into(), Encoding::DELTA_BINARY_PACKED)
        .set_column_encoding("ts".into(), Encoding::DELTA_BINARY_PACKED)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_column_statistics_enabled("payload".into(), EnabledStatistics::None)
        .set_column_bloom_filter_enabled("id".into(), true)
        .set_column_bloom_filter_fpp("id".into(), 0.01)
        .set_column_bloom_filter_max_ndv("id".into(), 600_000)
        .build();
    let schema = Arc::new(schema.expect("a schema"));
    let mut file =
        SerializedFileWriter::new(std::io::sink(), schema, Arc::new(properties)).expect("begins");
    let rows = 150_000;
    for from in (0..columns.1.len()).step_by(rows) {
        let range = from..(from + rows).min(columns.1.len());
        let levels = vec![1; range.len()];
        let mut group = file.next_row_group().expect("a group");
        let mut number = 0;
        while let Some(mut column) = group.next_column().expect("a column") {
            let texts = [&columns.0, &columns.0, &columns.2, &columns.2, &columns.4][number];
            let numbers = if number == 1 { &columns.1 } else { &columns.3 };
            let levels = (number == 4).then_some(&levels[..]);
            let written = match number {
                1 | 3 => {
                    column.typed::<Int64Type>().write_batch(&numbers[range.clone()], None, None)
                }
                _ => {
                    column.typed::<ByteArrayType>().write_batch(&texts[range.clone()], levels, None)
                }
            };
            written.expect("writes");
            column.close().expect("ends");
            number += 1;
        }
        group.close().expect("ends");
    }
    file.close().expect("ends");
}

fn main() {
    let mib = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(256usize);
    let payloads = payloads(mib << 20);
    let lines = whole(Format::Jsonl(Compression::None), &payloads, true);
    let object = whole(Format::Jsonl(Compression::ZSTD), &payloads, true);
    let megabytes = lines.len() as f64 / 1e6;
    println!("{} records, {megabytes:.0} MB of lines, {} of zstd", payloads.len(), object.len());
    let show = |what: &str, run: &dyn Fn()| {
        let begun = cpu_seconds();
        run();
        let seconds = cpu_seconds() - begun;
        println!("{what:<46} {seconds:7.3} s {:8.0} MB/s", megabytes / seconds);
        seconds
    };
    let sha256 = |bytes: &[u8]| {
        std::hint::black_box(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes));
    };
    let zstd = show("zstd-3 of the lines alone", &|| {
        let mut out = zstd::stream::write::Encoder::new(std::io::sink(), 3).expect("begins");
        lines.chunks(128 << 10).for_each(|step| {
            std::io::Write::write_all(&mut out, step).expect("writes");
        });
        out.finish().expect("ends");
    });
    let hash = show("SHA-256 of the object alone", &|| sha256(&object));
    let of_lines = show("SHA-256 of the lines alone", &|| sha256(&lines));
    let plain = show("JSONL without compression, SHA-256 included", &|| {
        whole(Format::Jsonl(Compression::None), &payloads, false);
    });
    let jsonl = show("JSONL zstd-3, whole path", &|| {
        whole(Format::Jsonl(Compression::ZSTD), &payloads, false);
    });
    println!("JSONL: {:.2} x its parts alone", jsonl / (zstd + hash + plain - of_lines));
    let made = columns(&payloads);
    let least = show("Parquet zstd-3, the library alone", &|| library(&made));
    let parquet = show("Parquet zstd-3, whole path", &|| {
        whole(Format::Parquet(PageCompression::ZSTD), &payloads, false);
    });
    println!("Parquet: {:.2} x the library alone", parquet / least);
}
