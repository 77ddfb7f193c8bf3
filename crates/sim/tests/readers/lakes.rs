//! One broker, one S3 server, the same records copied in every format.
//!
//! Owns: pushing the corpus, one sink after the other, a copy of the bucket as files.

use crate::corpus;
use queen_sim::lake::Files;
use queen_sim::process::{Broker, Item, Seaweed, Setup, bucket, sink_settings};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::path::Path;
use std::time::{Duration, Instant};

/// A lake: its prefix in the bucket, which is also how names of its files end, and its settings.
pub const LAKES: &[(&str, &[(&str, &str)])] = &[
    ("jsonl.zst", &[]),
    ("jsonl.gz", &[("QUEEN_S3_COMPRESSION", "gzip")]),
    ("jsonl", &[("QUEEN_S3_COMPRESSION", "none")]),
    ("zstd.parquet", &[("QUEEN_S3_FORMAT", "parquet")]),
    ("snappy.parquet", &[("QUEEN_S3_FORMAT", "parquet"), ("QUEEN_S3_PARQUET_CODEC", "snappy")]),
];

/// A lake whose only file has two row groups: the partition that the first holds alone, and its rows.
pub const PAGES: (&str, &str, u64) = ("pages.parquet", "bulk-0", 18);

/// A record that the broker took.
#[derive(Clone, Debug)]
pub struct Record {
    /// Queue.
    pub queue: String,
    /// Partition.
    pub partition: String,
    /// Offset.
    pub offset: u64,
    /// The producer's id, or the broker's.
    pub transaction_id: String,
    /// Stamp, as the broker's own API shows it.
    pub ts: String,
    /// JSON text.
    pub payload: String,
}

/// Every format's copy of the same records.
pub struct Lakes {
    /// The S3 server with the bucket.
    pub s3: Seaweed,
    /// The bucket as files.
    pub copy: tempfile::TempDir,
    /// Its files, relative to the copy.
    pub files: Vec<String>,
    /// What was pushed.
    pub records: Vec<Record>,
}

#[derive(Deserialize)]
struct Fetched<'a> {
    #[serde(borrow)]
    entries: Vec<FetchedEntry<'a>>,
}

#[derive(Deserialize)]
struct FetchedEntry<'a> {
    #[serde(borrow)]
    records: Vec<FetchedRecord<'a>>,
}

#[derive(Deserialize)]
struct FetchedRecord<'a> {
    ts: String,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// When the record was taken, as the broker tells it.
async fn stamp(
    broker: &Broker,
    queue: &str,
    partition: &str,
    offset: u64,
    payload: &str,
) -> String {
    let entry = serde_json::json!({"queue": queue, "partition": partition, "offset": offset, "maxBytes": 1});
    let body = serde_json::json!({"entries": [entry]}).to_string();
    let answer = broker.client().post("/api/v1/fetch", body).await.unwrap();
    let fetched: Fetched<'_> = serde_json::from_str(&answer.text).unwrap();
    let record = &fetched.entries[0].records[0];
    assert_eq!(record.payload.get(), payload, "the broker itself gives back what was pushed");
    record.ts.clone()
}

async fn push_corpus(broker: &Broker) -> Vec<Record> {
    let mut records = Vec::new();
    for items in corpus::pushes() {
        let pushed = broker.client().push(&items).await.unwrap();
        for (item, pushed) in items.into_iter().zip(pushed) {
            assert_eq!(pushed.status, "queued", "{item:?}");
            let offset = pushed.offset.unwrap();
            let ts = stamp(broker, &item.queue, &item.partition, offset, &item.payload).await;
            records.push(Record {
                queue: item.queue,
                partition: item.partition,
                offset,
                transaction_id: pushed.transaction_id,
                ts,
                payload: item.payload,
            });
        }
    }
    records
}

/// Waits until the sink says that so many records are in the bucket.
async fn copied(broker: &Broker, records: u64) {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let sink = broker.client().sink_status().await.unwrap();
        let queues = sink["sinks"][0]["queues"].as_array().cloned().unwrap_or_default();
        let sum: u64 = queues.iter().filter_map(|queue| queue["records"].as_u64()).sum();
        if sum >= records {
            return assert_eq!(sum, records, "{sink}");
        }
        assert!(Instant::now() < until, "{sum} of {records} records: {sink}\n{}", broker.tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Writes every lake.
pub async fn write() -> Lakes {
    let s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let mut broker = setup.start().await.unwrap();
    let records = push_corpus(&broker).await;
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
    for (lake, settings) in LAKES {
        let setup = sink(&setup, &s3, lake, "*").with(settings.iter().copied());
        let mut broker = setup.start().await.unwrap();
        copied(&broker, records.len() as u64).await;
        assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
    }
    write_pages(&setup, &s3).await;
    let copy = tempfile::Builder::new().prefix("queen-lakes-").tempdir().unwrap();
    let files = download(&s3, copy.path()).await;
    Lakes { s3, copy, files, records }
}

/// With a sink of its own for this lake.
fn sink(setup: &Setup, s3: &Seaweed, lake: &str, queues: &str) -> Setup {
    let name = lake.replace('.', "-");
    let own =
        [("QUEEN_S3_SINK", &*name), ("QUEEN_S3_PREFIX", lake), ("QUEEN_S3_MAX_WINDOW_MS", "1000")];
    setup.clone().with(sink_settings(&s3.endpoint(), queues)).with(own)
}

/// 72 MiB of one push, hence one window; row groups end at 64 MiB.
async fn write_pages(setup: &Setup, s3: &Seaweed) {
    let (lake, _, rows) = PAGES;
    let setup = sink(setup, s3, lake, "bulk")
        .with([("QUEEN_S3_FORMAT", "parquet"), ("QUEEN_MAX_BODY_BYTES", "134217728")]);
    let mut broker = setup.start().await.unwrap();
    let item = |n: u64| Item {
        queue: "bulk".to_owned(),
        partition: format!("bulk-{}", n / rows),
        transaction_id: None,
        payload: format!("\"{}\"", "x".repeat(512 << 10)),
    };
    broker.client().push(&(0..8 * rows).map(item).collect::<Vec<_>>()).await.unwrap();
    copied(&broker, 8 * rows).await;
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}

async fn download(s3: &Seaweed, to: &Path) -> Vec<String> {
    let files = Files::of_bucket(&bucket(&s3.endpoint()).unwrap()).await.unwrap();
    for (key, bytes) in &files.0 {
        let path = to.join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    files.0.into_keys().collect()
}
