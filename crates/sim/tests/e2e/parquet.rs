//! A lake of Parquet on a real S3 server, held against what was pushed.

use object_store::{Attribute, ObjectStoreExt};
use queen_sim::lake::whole_lake;
use queen_sim::lake::{Accepted, Expected};
use queen_sim::process::{Item, Seaweed, Setup, bucket, sink_settings};
use std::time::Duration;

/// Payloads that are hard for one reader or another, all of them JSON.
fn payloads() -> Vec<String> {
    let nested = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let large = format!("\"{}\"", "x".repeat(17 << 20));
    let hard = [
        "{\r\n \"a\": [1,\n2] }",
        "42.00",
        "1e400",
        "null",
        "\"\"",
        "\"\\ud800\"",
        "\"a\\u0000b\"",
        "{\"a\":1,\"a\":2}",
        "{\"queen.payloadBase64\":\"eA==\"}",
        "\"\u{2028}\u{1f41d}\"",
    ];
    hard.into_iter().map(str::to_owned).chain([nested, large]).collect()
}

async fn lake(codec: &str, layout: &str) {
    let s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut pairs = sink_settings(&s3.endpoint(), "orders");
    for (name, value) in [
        ("QUEEN_S3_FORMAT", "parquet"),
        ("QUEEN_S3_PARQUET_CODEC", codec),
        ("QUEEN_S3_LAYOUT", layout),
        ("QUEEN_S3_MAX_WINDOW_MS", "1000"),
    ] {
        pairs.push((name.to_owned(), value.to_owned()));
    }
    let mut broker = Setup::new(dir.path()).with(pairs).start().await.unwrap();
    let mut expected = Expected::new();
    for partition in ["cust-1", "cust-2", "a.parquet"] {
        let payloads = payloads().into_iter().enumerate();
        let items = payloads.map(|(n, payload)| Item {
            queue: "orders".to_owned(),
            partition: partition.to_owned(),
            transaction_id: (n % 2 == 0).then(|| format!("id \"{n}\"")),
            payload,
        });
        let items: Vec<Item> = items.collect();
        let pushed = broker.client().push(&items).await.unwrap();
        expected.accepted.extend(items.into_iter().zip(pushed).map(|(item, result)| Accepted {
            queue: item.queue,
            partition: item.partition,
            offset: result.offset.unwrap(),
            transaction_id: result.transaction_id,
            payload: item.payload.into_bytes(),
        }));
    }
    let patience = Duration::from_secs(60);
    let (files, report) = whole_lake(&s3.endpoint(), &expected, patience).await.unwrap();
    assert!(report.faults.is_empty(), "{}\n{}", report.text(), broker.tail());
    assert_eq!(report.records, expected.accepted.len() as u64);
    let (key, manifest) = files.0.iter().find(|(key, _)| key.contains("/windows/")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(manifest).unwrap();
    assert_eq!((&manifest["format"], &manifest["compression"]), (&"parquet".into(), &codec.into()));
    let writer = manifest["writer"].as_str().unwrap();
    assert!(writer.ends_with(&format!("parquet/60 {codec}")), "{key}: {writer}");
    let object = manifest["objects"][0]["key"].as_str().unwrap();
    let found = bucket(&s3.endpoint()).unwrap().get(&object.into()).await.unwrap();
    let kind = found.attributes.get(&Attribute::ContentType).map(|kind| kind.as_ref().to_owned());
    assert_eq!(kind.as_deref(), Some("application/vnd.apache.parquet"));
    assert_eq!(found.attributes.get(&Attribute::ContentEncoding), None);
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}

#[tokio::test]
async fn hard_payloads_are_in_a_parquet_lake_byte_for_byte() {
    lake("zstd", "merged").await;
}

#[tokio::test]
async fn hard_payloads_are_in_a_parquet_lake_of_one_object_per_partition() {
    lake("snappy", "per-partition").await;
}
