//! The examples of README.md, run as printed: the push, the start with a bucket, and each reader.
//!
//! Needs the readers and the S3 server that `./test` installs into `.venv`.

#![allow(clippy::unwrap_used)]

mod running;

use running::{Running, until_in_the_lake};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The fenced block of the README that begins with this word after the fence.
fn block(info: &str, with: &str) -> String {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let fence = format!("```{info}\n");
    let mut blocks = readme.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap());
    let found = blocks.find(|block| block.contains(with));
    found.unwrap_or_else(|| panic!("README.md has no {info} block with {with:?}")).to_owned()
}

fn venv(program: &str) -> PathBuf {
    let home = std::env::var_os("QUEEN_TEST_VENV").map(PathBuf::from);
    let path = home.unwrap_or_else(|| repository().join(".venv")).join("bin").join(program);
    assert!(path.exists(), "{} is not there: run ./test once, it installs it", path.display());
    path
}

fn shell(folder: &Path, script: &str) -> String {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}\nfailed: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The README's push, to this port.
fn push(folder: &Path, port: u16) {
    let curl = block("sh", "api/v1/push").replace("localhost:6632", &format!("127.0.0.1:{port}"));
    let answer: Value = serde_json::from_str(&shell(folder, &curl)).unwrap();
    let statuses: Vec<&str> =
        answer.as_array().unwrap().iter().map(|item| item["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["queued"; 3]);
}

/// A folder in which `queen dev` has run and the README's three messages are in the lake.
fn lake() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let args = ["dev", "--port", "0", "--s3-port", "0", "--window-ms", "1000"];
    let mut queen = Running::start(folder.path(), &args, &[]);
    let port = queen.port("broker");
    push(folder.path(), port);
    until_in_the_lake(port, "orders", 3);
    queen.signal(libc::SIGTERM);
    assert!(queen.end().success(), "{}", queen.printed);
    folder
}

/// Runs a Python program over an example, and gives the rows that it prints as JSON.
fn rows(folder: &Path, program: &str, example: &str) -> Vec<(String, u64, Value)> {
    use std::io::Write;
    let mut python = Command::new(venv("python"))
        .args(["-c", program])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(example.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{example}\nfailed");
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<(String, u64, Value)> =
        serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap();
    // Readers give a payload as text or as a structure; both must say the same.
    let parsed = |payload: Value| match payload.as_str() {
        Some(text) => serde_json::from_str(text).unwrap(),
        None => payload,
    };
    rows.into_iter().map(|(partition, offset, p)| (partition, offset, parsed(p))).collect()
}

fn the_three_messages() -> Vec<(String, u64, Value)> {
    vec![
        ("cust-1".into(), 0, json!({"order": 1, "status": "new", "total": 42.0})),
        ("cust-1".into(), 1, json!({"order": 1, "status": "paid", "total": 42.0})),
        ("cust-2".into(), 0, json!({"order": 2, "status": "new", "total": 17.5})),
    ]
}

#[test]
fn duckdb_reads_the_lake_as_the_readme_says() {
    let folder = lake();
    let program = "\
import sys, json, duckdb
found = duckdb.sql(sys.stdin.read()).fetchall()
print(json.dumps([[r[0], r[1], r[3]] for r in found]))";
    let found = rows(folder.path(), program, &block("sql duckdb", "read_json_auto"));
    assert_eq!(found, the_three_messages());
}

#[test]
fn clickhouse_reads_the_lake_as_the_readme_says() {
    let folder = lake();
    let program = "\
import sys, json, chdb
found = json.loads(str(chdb.query(sys.stdin.read().strip().rstrip(';'), 'JSONCompact')))['data']
print(json.dumps([[r[0], int(r[1]), r[3]] for r in found]))";
    let found = rows(folder.path(), program, &block("sql clickhouse", "FROM file"));
    assert_eq!(found, the_three_messages());
}

#[test]
fn spark_reads_the_lake_as_the_readme_says() {
    let folder = lake();
    let program = "\
import sys, json
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')
    .config('spark.driver.memory', '1g').config('spark.driver.bindAddress', '127.0.0.1')
    .config('spark.driver.host', '127.0.0.1').config('spark.sql.session.timeZone', 'UTC')
    .getOrCreate())
exec(sys.stdin.read())
print(json.dumps([[r.partition, r.offset, r.payload] for r in rows.collect()]))";
    let found = rows(folder.path(), program, &block("python spark", "spark.read"));
    assert_eq!(found, the_three_messages());
}

#[test]
fn polars_reads_the_lake_as_the_readme_says() {
    let folder = lake();
    let program = "\
import sys, json
exec(sys.stdin.read())
print(json.dumps([[r['partition'], r['offset'], r['payload']] for r in rows.to_dicts()]))";
    let found = rows(folder.path(), program, &block("python polars", "scan_ndjson"));
    assert_eq!(found, the_three_messages());
}

#[test]
fn the_broker_with_a_bucket_starts_as_the_readme_says_and_shows_what_it_shows() {
    // The S3 server of another process's demo is the service that the README takes for given.
    let bucket = tempfile::tempdir().unwrap();
    let args = ["dev", "--port", "0", "--s3-port", "0"];
    let mut other = Running::start(bucket.path(), &args, &[]);
    let s3 = other.port("bucket");
    let folder = tempfile::tempdir().unwrap();
    let endpoint = format!("http://127.0.0.1:{s3}");
    let exports = block("sh", "QUEEN_S3_EMBEDDED");
    let exports = exports.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('='));
    let mut variables: Vec<(&str, &str)> = exports.collect();
    variables.retain(|(name, _)| *name != "QUEEN_S3_ENDPOINT");
    variables.extend([
        ("QUEEN_S3_ENDPOINT", endpoint.as_str()),
        ("PORT", "0"),
        ("QUEEN_BIND_ADDR", "127.0.0.1"),
    ]);
    let mut queen = Running::start(folder.path(), &["serve"], &variables);
    let port = queen.port("listening");
    push(folder.path(), port);
    until_in_the_lake(port, "orders", 3);
    let ask = block("sh", "jq -c").replace("localhost:6632", &format!("127.0.0.1:{port}"));
    let promised = ask.lines().find_map(|line| line.strip_prefix("# ")).unwrap().to_owned();
    assert_eq!(shell(folder.path(), &ask).trim(), promised);
    let listing = shell(bucket.path(), "cd queen-dev/lake && find . -type f | sort");
    let lines: Vec<&str> = listing.lines().collect();
    let tenant = "tenant=00000000-0000-0000-0000-000000000001/queue=orders";
    assert_eq!(lines.len(), 2, "{listing}");
    assert_eq!(lines[0], format!("./queen/_queen/{tenant}/windows/0000000001.json"));
    assert!(lines[1].starts_with(&format!("./queen/{tenant}/dt=")), "{listing}");
    assert!(lines[1].contains("/w-0000000001-") && lines[1].ends_with(".jsonl.zst"), "{listing}");
    queen.signal(libc::SIGTERM);
    assert!(queen.end().success(), "{}", queen.printed);
}
