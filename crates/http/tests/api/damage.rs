//! A queue log that was damaged under a running node: told, and never answered as if nothing were there.

use crate::node::{Node, messages};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// The one segment file of the first queue.
fn log_file(node: &Node) -> PathBuf {
    node.dir().join("store/queues/1/0000000001.log")
}

/// Flips a bit in the last byte of a text.
fn flip_in(file: &PathBuf, text: &str) {
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.windows(text.len()).rposition(|window| window == text.as_bytes()).unwrap();
    bytes[at + text.len() - 1] ^= 1;
    fs::write(file, bytes).unwrap();
}

async fn push(node: &Node, partition: &str, payloads: &[&str]) {
    for payload in payloads {
        node.push(json!([{"queue": "q", "partition": partition, "payload": payload}])).await;
    }
}

fn payloads(popped: &Value) -> Vec<Value> {
    messages(popped).iter().map(|message| message["data"].clone()).collect()
}

async fn refused(node: &Node, path: &str, offset: u64) {
    let reply = node.get(path).await;
    let text = reply.text();
    assert_eq!(reply.status, 500, "{path}: {text}");
    for part in ["0000000001.log", "partition \\\"p\\\"", &format!("offset {offset} ")] {
        assert!(text.contains(part), "{path}: {part} is not in {text}");
    }
}

#[tokio::test]
async fn a_flipped_bit_is_an_error_that_names_it_and_loses_nothing_else() {
    for commits in ["", "&autoAck=true"] {
        let node = Node::start().await;
        let options = json!({"queue": "q", "options": {"leaseTime": 5}});
        assert_eq!(node.post("/api/v1/configure", options).await.status, 200);
        push(&node, "p", &["one", "two", "bad-payload", "four"]).await;
        let file = log_file(&node);
        let good = fs::read(&file).unwrap();
        flip_in(&file, "bad-payload");
        // What lies before it is delivered, what does not is an error.
        let popped = node.pop(&format!("q?batch=10{commits}")).await;
        assert_eq!(payloads(&popped), ["one", "two"], "{commits}");
        if commits.is_empty() {
            node.settle(&popped, "completed").await;
            let first = messages(&popped)[0].clone();
            assert!(first["leaseId"].is_string(), "{first}");
        }
        for _ in 0..3 {
            refused(&node, &format!("/api/v1/pop/queue/q?batch=10{commits}"), 2).await;
        }
        // Others are served meanwhile.
        push(&node, "other", &["five"]).await;
        let popped = node.pop(&format!("q?batch=10{commits}")).await;
        assert_eq!(payloads(&popped), ["five"], "{commits}");
        refused(&node, &format!("/api/v1/pop/queue/q/partition/p?batch=10{commits}"), 2).await;

        let health = node.get("/health").await;
        assert_eq!((health.status, &health.json()["damagedFiles"]), (200, &json!(1)));
        let status = node.get("/status").await.json();
        let damage = status["damage"].as_array().unwrap();
        assert_eq!(damage.len(), 1, "{status}");
        assert_eq!(damage[0]["file"], json!(file));
        assert!(damage[0]["position"].as_u64().unwrap() > 0);
        assert!(damage[0]["what"].as_str().unwrap().contains("checksum"), "{status}");
        let page = node.get("/metrics/prometheus").await.text();
        assert!(page.contains("\nqueen_store_damaged_files 1\n"), "{page}");

        // Once the file is what it was, everything comes.
        fs::write(&file, good).unwrap();
        let wait = format!("q?batch=10&wait=true&timeout=30000{commits}");
        let popped = node.pop(&wait).await;
        assert_eq!(payloads(&popped), ["bad-payload", "four"], "{commits}");
    }
}

#[tokio::test]
async fn a_fetch_of_what_is_damaged_says_so() {
    let node = Node::start().await;
    push(&node, "p", &["one", "two", "bad-payload", "four"]).await;
    push(&node, "other", &["five"]).await;
    flip_in(&log_file(&node), "bad-payload");
    let entry =
        |partition: &str, offset| json!({"queue": "q", "partition": partition, "offset": offset});
    let asked = [entry("p", 0), entry("p", 2), entry("p", 3), entry("other", 0)];
    let reply = node.post("/api/v1/fetch", json!({"entries": asked})).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let entries = reply.json()["entries"].clone();
    let counts: Vec<_> = (0..4).map(|i| entries[i]["records"].as_array().unwrap().len()).collect();
    assert_eq!(counts, [2, 0, 1, 1], "{entries}");
    assert_eq!(entries[1]["error"], "CORRUPT_MESSAGE");
    let text = entries[1]["errorMessage"].as_str().unwrap();
    assert!(text.contains("0000000001.log") && text.contains("offset 2 "), "{text}");
    assert!([0, 2, 3].iter().all(|&i| entries[i].get("error").is_none()), "{entries}");
}

#[tokio::test]
async fn a_file_that_is_gone_or_cut_is_no_empty_queue() {
    for gone in [true, false] {
        let node = Node::start().await;
        push(&node, "p", &["one", "two", "three"]).await;
        let file = log_file(&node);
        // The node holds the file open: cut, it is short for it at once.
        fs::File::options().write(true).open(&file).unwrap().set_len(0).unwrap();
        if gone {
            fs::remove_file(&file).unwrap();
        }
        for path in [
            "q?batch=10",
            "q?batch=10&autoAck=true",
            "q?batch=10&consumerGroup=g&subscriptionMode=all",
        ] {
            refused(&node, &format!("/api/v1/pop/queue/{path}"), 0).await;
        }
        assert_eq!(node.get("/health").await.json()["damagedFiles"], 1);
    }
}
