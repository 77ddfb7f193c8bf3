//! The readers of the lake: DuckDB, ClickHouse, Polars, PyArrow and Spark over every format.
//!
//! Owns: what each reader must give back, value by value. Leaves to others: the corpus (`corpus`), the
//! lakes (`lakes`), the reading itself (a Python script a reader, in this folder).
//!
//! One test for all readers: writing the lakes costs more than reading them, and Spark starts once.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's unwrap is its failure

mod corpus;
mod lakes;
mod promise;

use lakes::{LAKES, Lakes, PAGES};
use promise::{READERS, Reader};
use queen_sim::process::{repository, tool};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// What a reader is asked to filter for, and how many rows that must give.
struct Asked {
    json: Value,
    filters: Vec<(&'static str, u64)>,
    hour_files: u64,
    queue_rows: u64,
}

fn asked(lakes: &Lakes) -> Asked {
    let orders: Vec<_> = lakes.records.iter().filter(|r| r.queue == corpus::ORDERS).collect();
    let hour = |ts: &str| ts[11..13].parse::<u32>().unwrap();
    // The run may pass an hour, or midnight: ask for the hour of the first.
    let (day, first) = (&orders[0].ts[..10], hour(&orders[0].ts));
    let mut stamps: Vec<&str> = orders.iter().map(|r| &*r.ts).collect();
    stamps.dedup();
    let [_, from, .., to] = stamps[..] else { panic!("three pushes: {stamps:?}") };
    let between = |r: &&&lakes::Record| (from..=to).contains(&&*r.ts);
    let in_hour = |r: &&&lakes::Record| r.ts.starts_with(day) && hour(&r.ts) == first;
    let count = |rows: usize| rows as u64;
    let folder = format!("queue={}/dt={day}/hour={first:02}/", corpus::ORDERS);
    let hour_files = files(lakes, LAKES[0].0).filter(|file| file.contains(&folder)).count() as u64;
    let json = json!({
        "parquet": LAKES.iter().map(|(lake, _)| lake).filter(|l| l.ends_with("parquet")).collect::<Vec<_>>(),
        "queue": corpus::ORDERS, "partition": "cust-1", "from": from, "to": to,
        "pagesPartition": PAGES.1, "dt": day, "hour": first, "otherHour": (first + 5) % 24,
    });
    let filters = vec![
        ("partition", count(orders.iter().filter(|r| r.partition == "cust-1").count())),
        ("ts", count(orders.iter().filter(between).count())),
        ("hour", count(orders.iter().filter(in_hour).count())),
        ("otherHour", 0),
    ];
    Asked { json, filters, hour_files, queue_rows: count(orders.len()) }
}

/// Data files of a lake, relative to the copy of the bucket.
fn files<'a>(lakes: &'a Lakes, lake: &'a str) -> impl Iterator<Item = &'a str> {
    let inside = move |file: &&String| file.starts_with(&format!("{lake}/tenant="));
    lakes.files.iter().filter(inside).map(String::as_str)
}

/// Runs a reader's script and gives what it tells.
fn run(reader: &Reader, lakes: &Lakes, asked: &Asked) -> Result<Value, String> {
    let script = repository().join("crates/sim/tests/readers").join(reader.script);
    let output = Command::new(tool("python3").unwrap())
        .arg(script)
        .args([&lakes.copy.path().display().to_string(), &lakes.s3.endpoint()])
        .arg(asked.json.to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(lakes.copy.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.trim_end().lines().last().unwrap_or_default();
    match serde_json::from_str(last) {
        Ok(told) if output.status.success() => Ok(told),
        _ => Err(format!("{} failed ({}):\n{said}", reader.script, output.status)),
    }
}

/// A row as scripts tell it, by its place: queue, partition, offset.
type Rows = BTreeMap<(Option<String>, String, u64), Vec<Vec<Value>>>;

fn by_place(rows: impl IntoIterator<Item = Vec<Value>>) -> Rows {
    let mut places = Rows::new();
    for row in rows {
        let queue = row[0].as_str().map(str::to_owned);
        let place = (queue, row[1].as_str().unwrap().to_owned(), row[2].as_u64().unwrap());
        places.entry(place).or_default().push(row);
    }
    places.values_mut().for_each(|rows| rows.sort_by_key(|row| json!(row).to_string()));
    places
}

/// Holds the rows that a script told against those that were promised.
fn compare(what: &str, told: &Value, promised: Vec<Vec<Value>>, faults: &mut Vec<String>) {
    let Ok(told) = serde_json::from_value::<Vec<Vec<Value>>>(told.clone()) else {
        return faults.push(format!("{what}: told no rows: {told}"));
    };
    let (told, promised) = (by_place(told), by_place(promised));
    for (place, want) in &promised {
        match told.get(place) {
            Some(found) if found == want => {}
            Some(found) => {
                faults.push(format!("{what}: {place:?}\n    is   {found:?}\n    want {want:?}"));
            }
            None => faults.push(format!("{what}: {place:?} is not there")),
        }
    }
    let strangers = told.keys().filter(|place| !promised.contains_key(place));
    faults.extend(strangers.map(|place| format!("{what}: {place:?} was never pushed")));
}

/// A filter on the partition reads one of the two row groups of a file.
fn check_pages(reader: &Reader, told: &Value, faults: &mut Vec<String>) {
    let want = json!({"rows": PAGES.2, "read_and_all": [1, 2]});
    if !told["pages"].is_null() && told["pages"] != want {
        faults.push(format!("{}: row groups are {}, not {want}", reader.name, told["pages"]));
    }
}

fn check(reader: &Reader, told: &Value, lakes: &Lakes, asked: &Asked, faults: &mut Vec<String>) {
    check_pages(reader, told, faults);
    for (lake, _) in LAKES {
        let told = &told[lake];
        for way in reader.ways(lake) {
            let rows = lakes.records.iter().map(|record| reader.row(lake, way, record));
            let what = format!("{} {lake} {way}", reader.name);
            compare(&what, &told[way], rows.collect(), faults);
        }
        if reader.filters(lake) {
            for (filter, want) in &asked.filters {
                let found = &told["filters"][filter];
                if found.as_u64() != Some(*want) {
                    faults.push(format!(
                        "{} {lake}: {filter} gives {found}, not {want}",
                        reader.name
                    ));
                }
            }
        }
        if reader.prunes(lake) && told["filters"]["files"].as_u64() != Some(asked.hour_files) {
            let (found, want) = (&told["filters"]["files"], asked.hour_files);
            faults.push(format!(
                "{} {lake}: read {found} files of the hour, not {want}",
                reader.name
            ));
        }
        let all = lakes.records.len() as u64;
        for (found, want) in
            told["everywhere"].as_array().into_iter().flatten().zip([all, asked.queue_rows])
        {
            if !found.is_null() && found.as_u64() != Some(want) {
                faults.push(format!("{} {lake}: ** sees {found} rows, not {want}", reader.name));
            }
        }
    }
}

#[tokio::test]
async fn every_reader_gives_back_what_was_pushed_from_every_format() {
    let lakes = lakes::write().await;
    let asked = asked(&lakes);
    let mut faults = Vec::new();
    for reader in READERS {
        match run(reader, &lakes, &asked) {
            Ok(told) => check(reader, &told, &lakes, &asked, &mut faults),
            Err(error) => faults.push(error),
        }
    }
    let shown: Vec<&String> = faults.iter().take(40).collect();
    let text = shown.iter().map(|fault| format!("\n  {fault}")).collect::<String>();
    assert!(faults.is_empty(), "{} faults:{text}", faults.len());
}
