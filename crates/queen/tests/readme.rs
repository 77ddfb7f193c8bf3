//! The examples of README.md and of the guide, run as printed: the push, the start with a bucket, and
//! every example of every reader.
//!
//! A reader's example begins with its name after the fence (```sql duckdb). It must give the three
//! messages of the README, in columns `partition`, `offset` and `payload` among others; or, where its
//! last line is `-- answers …`, just that. Needs the readers and the S3 server that `./test` installs into `.venv`.

#![allow(clippy::unwrap_used)]

mod running;

use queen_core::sink::HourFile;
use running::{Running, until_in_the_lake};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Documents whose readers' examples are run.
const DOCUMENTS: [&str; 2] = ["README.md", "docs/guide/sink.md"];

/// The fenced blocks of all documents with these words after the fence.
fn examples(info: &str) -> Vec<String> {
    let fence = format!("```{info}\n");
    let of = |document| std::fs::read_to_string(repository().join(document)).unwrap();
    let blocks = |text: String| {
        let blocks = text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap());
        blocks.map(str::to_owned).collect::<Vec<_>>()
    };
    DOCUMENTS.into_iter().map(of).flat_map(blocks).collect()
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
fn lake(format: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let args = ["dev", "--port", "0", "--s3-port", "0", "--window-ms", "1000"];
    let mut queen = Running::start(folder.path(), &args, &[("QUEEN_S3_FORMAT", format)]);
    let port = queen.port("broker");
    push(folder.path(), port);
    until_in_the_lake(port, "orders", 3);
    queen.signal(libc::SIGTERM);
    assert!(queen.end().success(), "{}", queen.printed);
    folder
}

/// Writes the hour files that the sink will write when the hour is over.
fn finish_hours(folder: &Path) {
    let queue = "tenant=00000000-0000-0000-0000-000000000001/queue=orders";
    let script = format!(
        "cd queen-dev/lake/queen && mkdir -p _queen/{queue}/hours && ls -d {queue}/dt=*/hour=*"
    );
    for hour in shell(folder, &script).lines() {
        let mut parts = hour.split('/').skip(2).map(|part| part.split_once('=').unwrap().1);
        let name = format!("{}T{}", parts.next().unwrap(), parts.next().unwrap());
        let file = HourFile {
            v: 1,
            tenant: "00000000-0000-0000-0000-000000000001".into(),
            queue: "orders".into(),
            hour: name.clone(),
            first_k: 1,
            last_k: 1,
            windows: 1,
            records: 3,
            bytes: 1,
            complete: true,
        };
        let path = format!("queen-dev/lake/queen/_queen/{queue}/hours/{name}.json");
        std::fs::write(folder.join(path), file.to_json()).unwrap();
    }
}

/// What a reader gave for an example: the names of the columns, and the rows.
#[derive(serde::Deserialize)]
struct Table {
    names: Vec<String>,
    rows: Vec<Vec<Value>>,
}

/// Runs a Python program over examples, given as a list of texts; it prints a table for each.
fn run(folder: &Path, program: &str, examples: &[String]) -> Vec<Table> {
    use std::io::Write;
    let mut python = Command::new(venv("python"))
        .args(["-c", program])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(json!(examples).to_string().as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{examples:#?}\nfailed");
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap()
}

/// The messages of a table, as (partition, offset, payload).
fn messages(table: &Table) -> Vec<(String, u64, Value)> {
    let place = |name: &str| table.names.iter().position(|known| known == name).unwrap();
    let [partition, offset, payload] = ["partition", "offset", "payload"].map(place);
    // Readers give a number as text, and a payload as text or as a structure; they must say the same.
    let parsed = |value: &Value| match value.as_str() {
        Some(text) => serde_json::from_str(text).unwrap(),
        None => value.clone(),
    };
    let message = |row: &Vec<Value>| {
        let partition = row[partition].as_str().unwrap().to_owned();
        (partition, parsed(&row[offset]).as_u64().unwrap(), parsed(&row[payload]))
    };
    table.rows.iter().map(message).collect()
}

/// Runs every example of a reader over the lake that it is written for, at least `least`.
fn every_example(info: &str, program: &str, least: usize) {
    let (parquet, jsonl): (Vec<_>, Vec<_>) =
        examples(info).into_iter().partition(|example| example.contains("parquet"));
    assert!(parquet.len() + jsonl.len() >= least, "examples of {info} are missing");
    for (format, examples) in [("jsonl", jsonl), ("parquet", parquet)] {
        let folder = lake(format);
        finish_hours(folder.path());
        for (example, table) in examples.iter().zip(run(folder.path(), program, &examples)) {
            match example.trim_end().rsplit_once("-- answers ") {
                Some((_, promised)) => assert_eq!(
                    json!(table.rows).to_string(),
                    promised.replace(", ", ","),
                    "{example}"
                ),
                None => assert_eq!(messages(&table), the_three_messages(), "{example}"),
            }
        }
    }
}

fn the_three_messages() -> Vec<(String, u64, Value)> {
    vec![
        ("cust-1".into(), 0, json!({"order": 1, "status": "new", "total": 42.0})),
        ("cust-1".into(), 1, json!({"order": 1, "status": "paid", "total": 42.0})),
        ("cust-2".into(), 0, json!({"order": 2, "status": "new", "total": 17.5})),
    ]
}

#[test]
fn duckdb_runs_every_example_of_the_documents() {
    let program = "\
import sys, json, duckdb
def run(example):
    found = duckdb.sql(example)
    return {'names': found.columns, 'rows': found.fetchall()}
print(json.dumps([run(example) for example in json.load(sys.stdin)], default=str))";
    every_example("sql duckdb", program, 6);
}

#[test]
fn clickhouse_runs_every_example_of_the_documents() {
    let program = "\
import sys, json, chdb
def run(example):
    found = json.loads(str(chdb.query(example.strip().rstrip(';'), 'JSONCompact')))
    return {'names': [column['name'] for column in found['meta']], 'rows': found['data']}
print(json.dumps([run(example) for example in json.load(sys.stdin)]))";
    every_example("sql clickhouse", program, 3);
}

/// A program that runs Python examples, each of which leaves its answer in `rows`.
fn python(before: &str, dicts: &str) -> String {
    format!(
        "\
import sys, json
{before}
def run(example):
    scope = dict(globals())
    exec(example, scope)
    rows = {dicts}
    names = list(rows[0])
    return {{'names': names, 'rows': [[row[name] for name in names] for row in rows]}}
print(json.dumps([run(example) for example in json.load(sys.stdin)], default=str))"
    )
}

#[test]
fn spark_runs_every_example_of_the_documents() {
    let before = "\
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')
    .config('spark.driver.memory', '1g').config('spark.driver.bindAddress', '127.0.0.1')
    .config('spark.driver.host', '127.0.0.1').config('spark.sql.session.timeZone', 'UTC')
    .getOrCreate())";
    let program = python(before, "[row.asDict() for row in scope['rows'].collect()]");
    every_example("python spark", &program, 3);
}

#[test]
fn polars_runs_every_example_of_the_documents() {
    every_example("python polars", &python("", "scope['rows'].to_dicts()"), 2);
}

#[test]
fn pyarrow_runs_every_example_of_the_documents() {
    every_example("python pyarrow", &python("", "scope['rows'].to_pylist()"), 2);
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

/// The first three digits or more of ports that are free when 1, 2 and 3 are appended.
fn free_ports(from: u16) -> u16 {
    let free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    let begin = from + (std::process::id() % 300) as u16;
    (begin..from + 700).find(|ports| (1..=3).all(|n| free(ports * 10 + n))).unwrap()
}

#[test]
fn three_nodes_answer_as_the_readme_says() {
    let folder = tempfile::tempdir().unwrap();
    let (raft, http) = (free_ports(1200), free_ports(2000));
    let here = |script: String| {
        script
            .replace("localhost:740", &format!("localhost:{raft}"))
            .replace("664$n", &format!("{http}$n"))
            .replace("localhost:664", &format!("localhost:{http}"))
            .replace("./queen ", &format!("{} ", env!("CARGO_BIN_EXE_queen")))
    };
    let push = block("sh", "api/v1/push").replace("localhost:6632", "localhost:6643");
    let script = [
        // How full the disk is that tests run on says nothing about the broker.
        "export QUEEN_RAFT_DISK_HIGH_PCT=100 QUEEN_RAFT_DISK_LOW_PCT=100\n",
        "trap 'kill $(jobs -p); wait' EXIT\n",
        &block("sh", "QUEEN_RAFT_PEERS"),
        "for n in 1 2 3; do timeout 60 bash -c \
         \"until curl -fs localhost:664$n/health >health; do sleep 0.1; done\"; done\n",
        &push,
        "echo\n",
        &block("sh", "cluster status"),
    ]
    .concat();
    let said = shell(folder.path(), &here(script));
    let lines: Vec<&str> = said.lines().collect();
    let answer: Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(answer.as_array().unwrap().len(), 3, "{said}");
    assert!(lines[1].starts_with("ID  ROLE"), "{said}");
    let up = lines[2..].iter().filter(|line| line.ends_with("  up")).count();
    let leading = lines[2..].iter().filter(|line| line.contains("  leader  ")).count();
    assert_eq!((lines.len(), up, leading), (5, 3, 1), "{said}");
}
