//! What each reader is promised to give, and where it cannot.
//!
//! Owns: the exceptions of each reader. The guide (docs/guide/sink.md, "Reading") says the same.

use crate::lakes::Record;
use base64::Engine as _;
use queen_sim::lake::sha256;
use serde_json::{Value, json};

/// Payloads from this length on are told by their hash.
const LONG: usize = 4096;

/// A reader of lakes.
pub struct Reader {
    /// For messages.
    pub name: &'static str,
    /// In the folder of this test.
    pub script: &'static str,
    /// What it makes of the payload of a JSONL row that is read with types; `None` when it has no
    /// such way.
    typed: Option<fn(&str) -> Value>,
    /// Folders whose name stands for a missing value read as such.
    hive_null: HiveNull,
    /// It shows which files of JSONL a filter on folders leaves.
    jsonl_files: bool,
    /// It filters rows of JSONL.
    jsonl_filters: bool,
    /// It reads from S3 here.
    s3: bool,
}

/// What becomes of the folders `queue=__HIVE_DEFAULT_PARTITION__`, for the queue without a name, and
/// `queue=%5F_HIVE_DEFAULT_PARTITION__`, for the queue of that name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HiveNull {
    /// Both are text.
    Text,
    /// The first is null.
    First,
    /// Both are null.
    Both,
}

/// All readers; the slowest to start last.
pub const READERS: &[Reader] = &[
    Reader {
        name: "DuckDB",
        script: "with_duckdb.py",
        typed: Some(duckdb_json),
        hive_null: HiveNull::Text,
        jsonl_files: true,
        jsonl_filters: true,
        s3: true,
    },
    Reader {
        name: "ClickHouse",
        script: "with_clickhouse.py",
        typed: Some(string),
        hive_null: HiveNull::Text,
        jsonl_files: true,
        jsonl_filters: true,
        s3: true,
    },
    Reader {
        name: "Polars",
        script: "with_polars.py",
        typed: None,
        hive_null: HiveNull::Both,
        jsonl_files: false,
        jsonl_filters: true,
        s3: true,
    },
    Reader {
        name: "PyArrow",
        script: "with_pyarrow.py",
        typed: None,
        hive_null: HiveNull::Both,
        jsonl_files: false,
        jsonl_filters: false,
        s3: true,
    },
    Reader {
        name: "Spark",
        script: "with_spark.py",
        typed: Some(string),
        hive_null: HiveNull::First,
        jsonl_files: true,
        jsonl_filters: true,
        s3: false,
    },
];

fn parquet(lake: &str) -> bool {
    lake.ends_with("parquet")
}

impl Reader {
    /// The ways in which its script reads a lake.
    pub fn ways(&self, lake: &str) -> Vec<&'static str> {
        let typed = !parquet(lake) && self.typed.is_some();
        let ways = [("typed", typed), ("lossless", true), ("s3", self.s3)];
        ways.into_iter().filter(|(_, there)| *there).map(|(way, _)| way).collect()
    }

    /// Whether its script filters rows of a lake.
    pub fn filters(&self, lake: &str) -> bool {
        parquet(lake) || self.jsonl_filters
    }

    /// Whether it tells which files a filter on folders leaves to read.
    pub fn prunes(&self, lake: &str) -> bool {
        parquet(lake) || self.jsonl_files
    }

    /// The row that it must give for a record.
    pub fn row(&self, lake: &str, way: &str, record: &Record) -> Vec<Value> {
        let wrapped = !parquet(lake) && wrapped(&record.payload);
        let payload = match (way, self.typed) {
            _ if wrapped => Value::Null,
            _ if parquet(lake) => json!(parquet_text(&record.payload)),
            ("typed", Some(typed)) => typed(&record.payload),
            _ => json!(on_one_line(&record.payload)),
        };
        let base64 = base64::engine::general_purpose::STANDARD.encode(&record.payload);
        let base64 = if wrapped { json!(base64) } else { Value::Null };
        let hour: u32 = record.ts[11..13].parse().unwrap();
        let known = json!([
            self.folder(lake, &record.queue),
            record.partition,
            record.offset,
            record.transaction_id,
            record.ts,
            &record.ts[..10],
            hour,
            short(payload),
            short(base64)
        ]);
        known.as_array().unwrap().clone()
    }

    /// What it makes of the folder of a queue.
    fn folder(&self, lake: &str, queue: &str) -> Option<String> {
        // Polars and PyArrow have the folders of JSONL from the path, where nothing is null.
        let from_path = !parquet(lake) && matches!(self.name, "Polars" | "PyArrow");
        let none = "__HIVE_DEFAULT_PARTITION__";
        match (queue, self.hive_null) {
            ("", HiveNull::Text) => Some(none.to_owned()),
            ("", _) if from_path => Some(none.to_owned()),
            ("", _) => None,
            (queue, HiveNull::Both) if queue == none && !from_path => None,
            (queue, _) => Some(queue.to_owned()),
        }
    }
}

/// Texts of this length and more are told by their hash.
fn short(value: Value) -> Value {
    match value.as_str() {
        Some(text) if text.len() >= LONG => json!(format!("sha256:{}", sha256(text.as_bytes()))),
        _ => value,
    }
}

/// Payloads that go as base64: half a surrogate pair, deeper than 127, longer than 16 MiB.
fn wrapped(payload: &str) -> bool {
    let depth = payload.bytes().take_while(|byte| *byte == b'[').count();
    let half = matches!(payload, r#""\ud800""# | r#""\udc00\ud800""# | r#"{"a":["\ud83d"]}"#);
    half || depth > 127 || payload.len() > 16 << 20
}

/// A payload in Parquet: itself, unless it looks like one that went as base64.
fn parquet_text(payload: &str) -> String {
    let head = "{\"queen.payloadBase64\":\"";
    if !payload.starts_with(head) {
        return payload.to_owned();
    }
    let base64 = base64::engine::general_purpose::STANDARD.encode(payload);
    format!("{head}{base64}\"}}")
}

fn on_one_line(payload: &str) -> String {
    payload.replace(['\r', '\n'], " ")
}

/// A payload read as a string by ClickHouse or Spark: the text itself, but a JSON string loses its
/// quotes and escapes, and null is no value.
fn string(payload: &str) -> Value {
    match serde_json::from_str::<Value>(payload) {
        Ok(Value::Null) => Value::Null,
        Ok(Value::String(text)) => json!(text),
        _ => json!(on_one_line(payload)),
    }
}

/// A payload read as JSON by DuckDB: the same value written anew, so that digits of fractions,
/// spaces and escapes change; null is no value.
fn duckdb_json(payload: &str) -> Value {
    match payload {
        "null" => Value::Null,
        _ => json!(duckdb_text(payload)),
    }
}

fn duckdb_text(payload: &str) -> String {
    let number = |text: &str| {
        Some(match text {
            "-0" => "0",
            "42.00" => "42.0",
            "50000.0000000000000001" => "50000.0",
            "1e-400" => "0.0",
            _ => return None,
        })
    };
    let inner = payload.strip_prefix("{\"a\":").and_then(|rest| rest.strip_suffix('}'));
    match (number(payload), inner.and_then(number)) {
        (Some(number), _) => number.to_owned(),
        (None, Some(number)) => format!("{{\"a\":{number}}}"),
        _ => payload
            .replace(['\r', '\n'], "")
            .replace("  ", "")
            .replace("\"a\": [", "\"a\":[")
            .replace("\\/", "/")
            .replace("\\u00e9", "é")
            .replace("\\ud83d\\ude00", "\u{1f600}")
            .replace("42.00", "42.0"),
    }
}
