//! `queen dev` from outside: whatever a queue is called, its records are files of the folder.

#![allow(clippy::unwrap_used)]

mod running;

use running::{Running, post, until_in_the_lake};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

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

#[test]
fn queues_of_long_and_odd_names_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["dev", "--port", "0", "--s3-port", "0", "--window-ms", "300"];
    let mut queen = Running::start(folder.path(), &args, &[]);
    let port = queen.port("broker");
    let long = "orders-of-a-name".repeat(13)[..200].to_owned();
    let names = [long.as_str(), "a b/c/d \u{e9}\u{4e2d}%2F..", "..", "orders"];
    // 306 bytes of a file's name; and 1230 of an object's: such names are shortened.
    let (no_file, no_object) = ("x".repeat(300), "\u{e9}".repeat(205));
    let shortened = [no_file.as_str(), &no_object];
    for queue in names.into_iter().chain(shortened) {
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
    for queue in shortened {
        until_in_the_lake(port, queue, 2);
    }
    // A data object and a manifest of each queue, and nothing else.
    assert_eq!(files(&lake).len(), 2 * (names.len() + shortened.len()));
    queen.signal(libc::SIGTERM);
    assert!(queen.end().success(), "{}", queen.printed);
}
