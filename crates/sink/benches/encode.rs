//! What encoding costs: each part alone and the whole path, in MB of payload per CPU second.
//!
//! `cargo bench -p queen-sink --bench encode -- [MiB of payloads]`; 256 by default. Records of 266 to
//! 394 bytes from a fixed seed. Single-threaded, so that time is CPU time on a quiet machine.

use bytes::Bytes;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use queen_core::{Stamp, TenantId};
use queen_sink::encode::pieces::Pieces;
use queen_sink::encode::{
    Compression, Encoding, ObjectEncoder, ObjectSpec, PageCompression, Record, TransactionId,
};
use std::sync::Arc;
use std::time::Instant;

struct Gone;

impl Pieces for Gone {
    fn piece(&mut self, _: Bytes) -> std::io::Result<()> {
        Ok(())
    }
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

fn whole(encoding: Encoding, payloads: &[Vec<u8>]) {
    let tenant = TenantId::DEFAULT;
    let spec = ObjectSpec { encoding, wrap: true, tenant, queue: "orders".into() };
    let mut object = ObjectEncoder::new(&spec, payloads.len() as u64, Gone).expect("begins");
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
    object.finish().expect("ends");
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
        .set_dictionary_enabled(false)
        .set_column_dictionary_enabled("partition".into(), true)
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
    let megabytes = payloads.iter().map(Vec::len).sum::<usize>() as f64 / 1e6;
    let text = payloads.concat();
    let made = columns(&payloads);
    let show = |what: &str, run: &dyn Fn()| {
        let begun = Instant::now();
        run();
        println!("{what:<42} {:8.0} MB/s", megabytes / begun.elapsed().as_secs_f64());
    };
    show("zstd-3 alone", &|| {
        let mut out = zstd::stream::write::Encoder::new(std::io::sink(), 3).expect("begins");
        text.chunks(128 << 10).for_each(|step| {
            std::io::Write::write_all(&mut out, step).expect("writes");
        });
        out.finish().expect("ends");
    });
    show("SHA-256 alone", &|| {
        std::hint::black_box(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &text));
    });
    show("JSONL without compression, with SHA-256", &|| {
        whole(Encoding::Jsonl(Compression::None), &payloads);
    });
    show("JSONL zstd-3, whole path", &|| whole(Encoding::Jsonl(Compression::ZSTD), &payloads));
    show("Parquet zstd-3, the library alone", &|| library(&made));
    show("Parquet zstd-3, whole path", &|| {
        whole(Encoding::Parquet(PageCompression::ZSTD), &payloads);
    });
}
