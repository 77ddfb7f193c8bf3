//! `queen dev` from outside: whatever a queue is called, its records are files of the folder.

#![allow(clippy::unwrap_used)]

mod running;

use running::{PATIENCE, Running, get, post, until_in_the_lake};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

fn escaped(name: &str) -> String {
    let kept = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let spell = |b| if kept(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    name.bytes().map(spell).collect()
}

/// State and last error of a queue's line, once it is in this state.
fn until_state(port: u16, queue: &str, state: &str) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let body = get(port, "/status");
        let status: Value = serde_json::from_str(&body).unwrap_or_default();
        let lines = status["s3"]["sinks"][0]["queues"].as_array().cloned().unwrap_or_default();
        let line = lines.into_iter().find(|line| line["name"] == queue).unwrap_or_default();
        if line["state"] == state {
            return line["lastError"]["message"].as_str().unwrap_or_default().to_owned();
        }
        assert!(Instant::now() < until, "{queue} is not {state}: {body}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn queues_of_long_and_odd_names_arrive_and_names_no_file_can_have_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["dev", "--port", "0", "--s3-port", "0", "--window-ms", "300"];
    let mut queen = Running::start(folder.path(), &args, &[]);
    let port = queen.port("broker");
    let long = "orders-of-a-name".repeat(13)[..200].to_owned();
    let names = [long.as_str(), "a b/c/d \u{e9}\u{4e2d}%2F..", "..", "orders"];
    // 306 bytes of a file's name; and 1230 of an object's.
    let (no_file, no_object) = ("x".repeat(300), "\u{e9}".repeat(205));
    for queue in names.into_iter().chain([no_file.as_str(), &no_object]) {
        let items = json!({"items": [
            {"queue": queue, "partition": "p", "payload": {"of": queue, "n": 1}},
            {"queue": queue, "partition": "p", "payload": {"of": queue, "n": 2}},
        ]});
        let answer = post(port, "/api/v1/push", &items.to_string());
        assert_eq!(answer.matches("\"queued\"").count(), 2, "{answer}");
    }
    let lake = folder.path().join("queen-dev/lake");
    let tenant = "tenant=00000000-0000-0000-0000-000000000001";
    for queue in names {
        until_in_the_lake(port, queue, 2);
        let spelled = if queue == ".." { "%2E%2E".to_owned() } else { escaped(queue) };
        let found = files(&lake.join(format!("queen/{tenant}/queue={spelled}")));
        assert_eq!(found.len(), 1, "{found:?}");
        let text = zstd::stream::decode_all(std::fs::File::open(&found[0]).unwrap()).unwrap();
        let lines: Vec<Value> = String::from_utf8(text)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let payloads: Vec<&Value> = lines.iter().map(|line| &line["payload"]).collect();
        assert_eq!(
            payloads,
            [&json!({"of": queue, "n": 1}), &json!({"of": queue, "n": 2})],
            "{queue}"
        );
    }
    let said = until_state(port, &no_file, "failed");
    assert!(said.contains("at most 255 bytes"), "{said}");
    let said = until_state(port, &no_object, "failed");
    assert!(said.contains("too long for S3") && said.contains("1024"), "{said}");
    // A data object and a manifest of each queue, and nothing else.
    assert_eq!(files(&lake).len(), 2 * names.len());
    queen.signal(libc::SIGTERM);
    assert!(queen.end().success(), "{}", queen.printed);
}
