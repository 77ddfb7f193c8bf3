//! The bytes of the sink's documents, held against golden lines.

use super::*;
use proptest::prelude::*;

fn intent() -> Intent {
    Intent {
        queue_id: 7,
        k: 1,
        t_start: 1_792_836_000_000_000,
        t_end: 1_792_837_437_745_538,
        log_from: LogPlace(1, 0),
        log_to: LogPlace(1, 371),
        shape: Shape {
            records: 3,
            weight: 290,
            runs: 2,
            run_bytes_max: 251,
            partitions: 2,
            name_bytes: 12,
        },
        format: "jsonl".into(),
        compression: "zstd".into(),
        level: 3,
        wrap: true,
        layout: "merged".into(),
        align: "hour".into(),
        encoder: 1,
        writer: "queen-s3/0.1.0 jsonl+zstd".into(),
        prefix: "queen".into(),
        key: "queen/tenant=t/queue=orders/x.jsonl.zst".into(),
        bucket: "lake".into(),
        at: 1_792_837_437_745_540,
        prev: String::new(),
    }
}

fn committed() -> Committed {
    Committed {
        k: 1,
        t_end: 1_792_837_437_745_538,
        manifest: "queen/_queen/x/0000000001.json".into(),
        manifest_sha256: "ab".repeat(32),
        records: 3,
        bytes: 171,
        records_lost: 0,
        gaps: 0,
        queue_id: 7,
        log_to: LogPlace(1, 371),
        hour: OpenHour { hour: 1_792_836_000_000_000, first_k: 1, records: 3, bytes: 171 },
    }
}

fn manifest() -> Manifest {
    let object = |partition: Option<&str>| ObjectEntry {
        key: "queen/x.jsonl.zst".into(),
        bytes: 171,
        records: 3,
        sha256: "cd".repeat(32),
        partition: partition.map(Into::into),
        first_offset: partition.map(|_| 0),
        last_offset: partition.map(|_| 1),
    };
    Manifest {
        sink: "default".into(),
        tenant: crate::TenantId::DEFAULT.to_string(),
        queue: "or/ders".into(),
        k: 1,
        t_start: 1_792_836_000_000_000,
        t_end: 1_792_837_437_745_538,
        format: "jsonl".into(),
        compression: "zstd".into(),
        layout: "merged".into(),
        objects: vec![object(None), object(Some("cust-1"))],
        records: 3,
        bytes: 171,
        partitions: 2,
        min_ts: Some(1_792_837_434_910_988),
        max_ts: Some(1_792_837_434_910_988),
        lost: vec![LostRange {
            partition: "p".into(),
            incarnation: 7,
            from: 1,
            to: 2,
            reason: LossReason::DiskFull,
        }],
        writer: "queen-s3/0.1.0 jsonl+zstd".into(),
        committed_at: "2026-10-24T10:23:57.745540Z".into(),
        v: 1,
        encoder: 1,
        queue_id: 7,
        wrapped: 1,
        max_record_bytes: 140,
        ranges: vec![PartitionRange {
            partition: "cust-1".into(),
            first_offset: 0,
            last_offset: 1,
            records: 2,
        }],
        ranges_object: None,
        ranges_sha256: None,
        prev: String::new(),
    }
}

/// One document per line, in the order of this list.
fn samples() -> Vec<String> {
    vec![
        Start { stamp: 1_792_836_000_000_000, mode: "earliest".into() }.to_json(),
        SinkOn { stamp: 5, all: None }.to_json(),
        Lease { instance: "node-1@h".into(), incarnation: "00ff".into(), since: 9 }.to_json(),
        Presence { instance: "node-1@h".into(), incarnation: "00ff".into(), reachable: true }
            .to_json(),
        intent().to_json(),
        committed().to_json(),
        manifest().to_json(),
        PartitionsFile { v: 1, k: 1, ranges: manifest().ranges }.to_json(),
        HourFile {
            v: 1,
            tenant: "t".into(),
            queue: "q".into(),
            hour: "2026-10-24T10".into(),
            first_k: 1,
            last_k: 2,
            windows: 2,
            records: 9,
            bytes: 300,
            complete: true,
        }
        .to_json(),
        Uploads { v: 1, uploads: vec![OpenUpload { key: "a/b".into(), id: "x".into() }] }.to_json(),
    ]
}

#[test]
fn the_bytes_of_every_document_are_fixed() {
    let golden = include_str!("../../golden/sink-v1.jsonl");
    let samples = samples();
    assert_eq!(samples.join("\n"), golden.trim_end());
}

#[test]
fn the_fields_of_the_reference_are_those_of_the_documents_in_their_order() {
    let golden: Vec<&str> = include_str!("../../golden/sink-v1.jsonl").lines().collect();
    let documents = [
        (golden[6], Manifest::FIELDS, &["rangesObject", "rangesSha256"][..]),
        (golden[7], PartitionsFile::FIELDS, &[]),
        (golden[8], HourFile::FIELDS, &[]),
    ];
    for (document, fields, absent) in documents {
        let mut from = 0;
        for name in fields.iter().map(Field::camel_name) {
            let found = document[from..].find(&format!("\"{name}\":"));
            assert_eq!(found.is_none(), absent.contains(&&*name), "{name}");
            from += found.unwrap_or(0);
        }
        let value: serde_json::Value = serde_json::from_str(document).unwrap();
        assert_eq!(value.as_object().unwrap().len(), fields.len() - absent.len());
    }
}

#[test]
fn documents_read_back_as_written() {
    let golden: Vec<&[u8]> =
        include_bytes!("../../golden/sink-v1.jsonl").split(|b| *b == b'\n').collect();
    assert_eq!(Intent::from_json(golden[4]), Ok(intent()));
    assert_eq!(Committed::from_json(golden[5]), Ok(committed()));
    assert_eq!(Manifest::from_json(golden[6]), Ok(manifest()));
    assert!(Intent::from_json(b"{\"k\":1}").is_err());
    assert!(Start::from_json(b"\xff").is_err());
}

#[test]
fn keys_are_escaped_bytewise() {
    assert_eq!(
        row_key("default", "or/dérs:x", RowKind::Intent),
        "s3:default:or%2Fd%C3%A9rs%3Ax:intent"
    );
    assert_eq!(escape(".."), "%2E%2E");
    assert_eq!(escape("a..b"), "a..b");
    assert_eq!(unescape("%2e"), None);
    assert_eq!(unescape("%4"), None);
}

#[test]
fn folders_of_names_that_readers_take_for_no_value_are_text_and_distinct() {
    assert_eq!(folder_value(""), "__HIVE_DEFAULT_PARTITION__");
    assert_eq!(folder_value("__HIVE_DEFAULT_PARTITION__"), "%5F_HIVE_DEFAULT_PARTITION__");
    assert_eq!(folder_value("null"), "%6Eull");
    assert_eq!(folder_value("NULL"), "%4EULL");
    assert_eq!(folder_value("nullable"), "nullable");
    assert_eq!(folder_value(".."), "%2E%2E");
}

proptest! {
    #[test]
    fn escaped_names_are_safe_and_read_back(name in ".{0,60}") {
        let escaped = escape(&name);
        prop_assert!(escaped.bytes().all(|b| b.is_ascii_alphanumeric() || b"%._-".contains(&b)));
        prop_assert_eq!(unescape(&escaped), Some(name));
    }
}
