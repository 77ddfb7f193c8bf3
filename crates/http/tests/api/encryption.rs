//! Encrypted queues over HTTP: what lies on the disk, what is handed out, and what is refused.

use crate::node::{Node, messages};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use queen_broker::keyring::{Keyring, SecretKey};
use serde_json::{Value, json};
use std::path::Path;

const MARKER: &str = "the-plain-secret";

fn key(byte: u8) -> SecretKey {
    SecretKey::new([byte; 32])
}

fn ring(current: u8, previous: &[u8]) -> Keyring {
    let previous: Vec<SecretKey> = previous.iter().map(|byte| key(*byte)).collect();
    Keyring::new(Some(&key(current)), &previous).unwrap()
}

async fn configure(node: &Node, queue: &str, on: bool) -> crate::node::Reply {
    let body = json!({"queue": queue, "options": {"encryptionEnabled": on, "leaseTime": 60}});
    node.post("/api/v1/configure", body).await
}

async fn encrypted(node: &Node, queue: &str) {
    let reply = configure(node, queue, true).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["options"]["encryptionEnabled"], true);
}

async fn push(node: &Node, queue: &str, partition: &str, id: &str) -> Value {
    node.push(json!([{"queue": queue, "partition": partition, "transactionId": id,
        "payload": {"id": id, "secret": MARKER}}]))
        .await
}

async fn fetch(node: &Node, queue: &str, partition: &str, offset: u64) -> Value {
    let entry = json!({"queue": queue, "partition": partition, "offset": offset});
    let reply = node.post("/api/v1/fetch", json!({"entries": [entry]})).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["entries"][0].clone()
}

/// Files below a directory that hold the marker.
fn holding(dir: &Path, marker: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, marker));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            if bytes.windows(marker.len()).any(|part| part == marker.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

/// Pops one message of group `g` and gives the dead letter's id after giving it up.
async fn bury(node: &Node, queue: &str) -> String {
    let popped = node.pop(&format!("{queue}?consumerGroup=g&subscriptionMode=all&batch=1")).await;
    let message = messages(&popped)[0].clone();
    let body = json!({"transactionId": message["transactionId"], "consumerGroup": "g",
        "partitionId": message["partitionId"], "leaseId": message["leaseId"], "status": "dlq"});
    assert_eq!(node.post("/api/v1/ack", body).await.json()[0]["dlq"], true);
    let listed = node.get(&format!("/api/v1/dlq?queue={queue}")).await.json();
    listed["messages"][0]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn payloads_lie_sealed_on_the_disk_and_come_out_as_they_went_in() {
    let node = Node::start_with(ring(1, &[])).await;
    encrypted(&node, "q").await;
    assert_eq!(push(&node, "q", "p", "a").await[0]["status"], "queued");
    let again = push(&node, "q", "p", "a").await;
    assert_eq!((&again[0]["status"], &again[0]["offset"]), (&json!("duplicate"), &json!(0)));
    let both = json!([{"queue": "q", "partition": "p", "transactionId": "a", "payload": 1},
        {"queue": "q", "partition": "p", "transactionId": "b", "payload": {"secret": MARKER}},
        {"queue": "open", "payload": "not-encrypted-here"}]);
    assert_eq!(node.push(both).await[1]["status"], "queued");
    let want = json!({"id": "a", "secret": MARKER});
    assert_eq!(fetch(&node, "q", "p", 0).await["records"][0]["payload"], want);
    let popped = node.pop("q?batch=9").await;
    assert_eq!(messages(&popped).len(), 2);
    assert_eq!(messages(&popped)[0]["data"], want);
    bury(&node, "q").await;
    let listed = node.get("/api/v1/dlq?queue=q").await.json();
    assert_eq!(listed["messages"][0]["data"], want);
    assert_eq!(holding(node.dir(), MARKER), [""; 0]);
    let node = node.restart_with(ring(1, &[])).await;
    assert_eq!(holding(node.dir(), MARKER), [""; 0], "after a checkpoint");
    assert!(
        !holding(node.dir(), "not-encrypted-here").is_empty(),
        "the search finds what is there"
    );
    assert_eq!(fetch(&node, "q", "p", 1).await["records"][0]["payload"]["secret"], MARKER);
}

#[tokio::test]
async fn what_a_transaction_pushes_is_sealed_too() {
    let node = Node::start_with(ring(1, &[])).await;
    encrypted(&node, "q").await;
    let operations = json!([{"type": "push", "items": [
        {"queue": "q", "payload": {"secret": MARKER}},
        {"queue": "open", "payload": "not-encrypted-here"}]}]);
    let reply = node.post("/api/v1/transaction", json!({"operations": operations})).await;
    assert_eq!((reply.status, &reply.json()["success"]), (200, &json!(true)), "{}", reply.text());
    assert_eq!(messages(&node.pop("q").await)[0]["data"]["secret"], MARKER);
    assert_eq!(holding(node.dir(), MARKER), [""; 0]);
    assert!(!holding(node.dir(), "not-encrypted-here").is_empty());
}

#[tokio::test]
async fn what_timers_become_is_sealed_from_the_start_and_what_was_set_before_when_it_is_due() {
    let node = Node::start_with(ring(1, &[])).await;
    let payload = STANDARD.encode(json!({"secret": MARKER}).to_string());
    let set = |queue: &str, key: &str, delay: i64| {
        json!({"op": "schedule", "queue": queue,
        "timerKey": key, "delayMs": delay, "payload": payload})
    };
    let post = async |operation: Value| {
        let reply = node.post("/api/v1/timers", json!([operation])).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    encrypted(&node, "q").await;
    post(set("q", "k", 60_000)).await;
    let peeked = node.get("/api/v1/timers/q/k").await.json();
    let envelope = STANDARD.decode(peeked["payload"].as_str().unwrap()).unwrap();
    assert_eq!(peeked["encrypted"], true);
    assert!(!envelope.windows(MARKER.len()).any(|part| part == MARKER.as_bytes()));
    let rider = json!({"timers": [set("q", "rider", 0)]});
    let done = node.post("/api/v1/transaction", rider).await.json();
    assert_eq!(done["success"], true, "{done}");
    let popped = node.pop("q?wait=true&timeout=20000&consumerGroup=g&subscriptionMode=all").await;
    assert_eq!(messages(&popped)[0]["data"]["secret"], MARKER);
    assert_eq!(holding(node.dir(), MARKER), [""; 0]);

    post(set("later", "k", 500)).await;
    encrypted(&node, "later").await;
    let popped = node.pop("later?wait=true&timeout=20000").await;
    assert_eq!(messages(&popped)[0]["data"]["secret"], MARKER);
    let log = holding(&node.dir().join("store/queues"), MARKER);
    assert_eq!(log, [""; 0], "no queue's log has it in the clear");
}

#[tokio::test]
async fn what_a_cycle_pushes_to_and_remembers_of_encrypted_queues_is_sealed() {
    let node = Node::start_with(ring(1, &[])).await;
    encrypted(&node, "in").await;
    encrypted(&node, "out").await;
    node.push(json!([{"queue": "in", "payload": 1}])).await;
    let partition = node.pop("in").await["partitionId"].clone();
    let query = json!({"name": "n", "source_queue": "in", "config_hash": "h"});
    let query = node.post("/streams/v1/queries", query).await.json();
    let cycle = json!({"query_id": query["query_id"], "partition_id": partition,
        "state_ops": [{"type": "upsert", "key": "k", "value": MARKER}],
        "push_items": [{"queue": "out", "payload": {"secret": MARKER}}]});
    let answer = node.post("/streams/v1/cycle", cycle).await.json();
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(messages(&node.pop("out").await)[0]["data"]["secret"], MARKER);
    assert_eq!(holding(node.dir(), MARKER), [""; 0]);
    let get = json!({"query_id": query["query_id"], "partition_id": partition});
    let node = node.restart_with(ring(1, &[])).await;
    let state = node.post("/streams/v1/state/get", get.clone()).await.json();
    assert_eq!(state["rows"][0]["value"], MARKER);
    let node = node.restart_with(ring(2, &[])).await;
    let reply = node.post("/streams/v1/state/get", get).await;
    let text = reply.text();
    assert!(reply.status == 503 && text.contains("QUEEN_ENCRYPTION_KEY"), "{text}");
    assert!(!text.contains(MARKER));
}

#[tokio::test]
async fn pushes_that_race_a_configure_are_all_kept_and_those_after_it_are_sealed() {
    let node = Node::start_with(ring(1, &[])).await;
    node.push(json!([{"queue": "q", "payload": 0}])).await;
    let pushes = async {
        for n in 0..40 {
            node.push(json!([{"queue": "q", "payload": n}])).await;
        }
    };
    let configured = async {
        encrypted(&node, "q").await;
        push(&node, "q", "p", "after").await
    };
    let (_, after) = tokio::join!(pushes, configured);
    assert_eq!(after[0]["status"], "queued");
    assert_eq!(fetch(&node, "q", "Default", 0).await["highWatermark"], 41);
    assert_eq!(holding(node.dir(), MARKER), [""; 0]);
}

#[tokio::test]
async fn encryption_without_a_key_is_refused_with_the_variable() {
    let node = Node::start().await;
    let reply = configure(&node, "q", true).await;
    assert_eq!((reply.status, &reply.json()["code"]), (400, &json!("bad_request")));
    let text = reply.json()["error"].as_str().unwrap().to_owned();
    for part in ["encryptionEnabled", "\"q\"", "QUEEN_ENCRYPTION_KEY", "openssl rand -hex 32"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(configure(&node, "q", false).await.status, 200);
}

#[tokio::test]
async fn an_encrypted_queue_whose_key_is_gone_takes_and_gives_nothing() {
    let node = Node::start_with(ring(1, &[])).await;
    encrypted(&node, "q").await;
    push(&node, "q", "p", "a").await;
    let node = node.restart_with(Keyring::none()).await;
    let items = json!({"items": [{"queue": "q", "payload": MARKER}]});
    let reply = node.post("/api/v1/push", items).await;
    assert_eq!((reply.status, &reply.json()["code"]), (503, &json!("no_encryption_key")));
    assert!(reply.text().contains("QUEEN_ENCRYPTION_KEY"), "{}", reply.text());
    let id = key(1).id().to_string();
    let reply = node.get("/api/v1/pop/queue/q?consumerGroup=g&subscriptionMode=all").await;
    assert_eq!((reply.status, &reply.json()["code"]), (503, &json!("undecryptable")));
    let text = reply.json()["error"].as_str().unwrap().to_owned();
    for part in ["\"q\"", "\"p\"", "offset 0", &id, "QUEEN_ENCRYPTION_KEY", "_KEY_PREVIOUS"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let entry = fetch(&node, "q", "p", 0).await;
    assert_eq!((&entry["error"], &entry["records"]), (&json!("UNDECRYPTABLE"), &json!([])));
    assert_eq!(entry["errorMessage"], text.as_str());
    assert_eq!(holding(node.dir(), MARKER), [""; 0]);
    // With the key back, nothing is lost: not even what a pop was refused.
    let node = node.restart_with(ring(2, &[1])).await;
    let popped = node.pop("q?consumerGroup=g&wait=true&timeout=15000").await;
    assert_eq!(messages(&popped)[0]["data"]["secret"], MARKER);
}

#[tokio::test]
async fn other_partitions_go_on_beside_one_that_does_not_open() {
    for commit in ["", "&autoAck=true"] {
        let node = Node::start_with(ring(1, &[])).await;
        encrypted(&node, "q").await;
        push(&node, "q", "old", "a").await;
        let node = node.restart_with(ring(2, &[])).await;
        push(&node, "q", "new", "b").await;
        push(&node, "q", "new", "c").await;
        let pop = format!("q?consumerGroup=g&subscriptionMode=all&batch=1{commit}");
        let reply = node.get(&format!("/api/v1/pop/queue/{pop}")).await;
        assert_eq!(reply.status, 503, "{}", reply.text());
        let popped = node.pop(&pop).await;
        assert_eq!(messages(&popped)[0]["transactionId"], "b");
        assert_eq!(popped["leaseId"] == "", !commit.is_empty(), "{popped}");
        if !commit.is_empty() {
            assert_eq!(messages(&node.pop(&pop).await)[0]["transactionId"], "c");
        }
        // Nothing was skipped: the key comes back, and with it the message.
        let node = node.restart_with(ring(2, &[1])).await;
        let path = format!("{pop}&partitions=2&wait=true&timeout=15000");
        assert_eq!(messages(&node.pop(&path).await)[0]["transactionId"], "a");
    }
}

#[tokio::test]
async fn a_pop_over_partitions_is_given_those_that_open_and_as_far_as_they_do() {
    let node = Node::start_with(ring(1, &[])).await;
    encrypted(&node, "q").await;
    push(&node, "q", "old", "a").await;
    let node = node.restart_with(ring(2, &[1])).await;
    push(&node, "q", "mixed", "b").await;
    let node = node.restart_with(ring(3, &[2])).await;
    push(&node, "q", "old", "a2").await;
    push(&node, "q", "mixed", "c").await;
    let node = node.restart_with(ring(2, &[])).await;
    let path = "q?consumerGroup=g&subscriptionMode=all&partitions=9&batch=9&autoAck=true";
    let popped = node.pop(path).await;
    let ids: Vec<_> = messages(&popped).iter().map(|m| m["transactionId"].clone()).collect();
    assert_eq!(ids, ["b"]);
    let node = node.restart_with(ring(3, &[1, 2])).await;
    let popped = node.pop(&format!("{path}&wait=true&timeout=15000")).await;
    let mut ids: Vec<_> = messages(&popped).iter().map(|m| m["transactionId"].clone()).collect();
    ids.sort_by_key(Value::to_string);
    assert_eq!(ids, ["a", "a2", "c"]);
}

#[tokio::test]
async fn what_a_queue_encrypted_before_is_not_lost_to_a_pop_that_commits() {
    let node = Node::start_with(ring(1, &[])).await;
    encrypted(&node, "q").await;
    push(&node, "q", "p", "a").await;
    let node = node.restart_with(Keyring::none()).await;
    assert_eq!(configure(&node, "q", false).await.status, 200);
    push(&node, "q", "other", "b").await;
    let pop = "q?consumerGroup=g&subscriptionMode=all&autoAck=true";
    let reply = node.get(&format!("/api/v1/pop/queue/{pop}")).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(messages(&node.pop(pop).await)[0]["transactionId"], "b");
    let reply = node.get(&format!("/api/v1/pop/queue/{pop}")).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    let reply = node.get(&format!("/api/v1/pop/queue/{pop}")).await;
    assert_eq!(reply.status, 204, "held back: {}", reply.text());
    let node = node.restart_with(ring(1, &[])).await;
    let popped = node.pop(&format!("{pop}&wait=true&timeout=15000")).await;
    assert_eq!(messages(&popped)[0]["data"]["secret"], MARKER);
}

#[tokio::test]
async fn a_dead_letter_stays_sealed_wherever_it_is_replayed() {
    let node = Node::start_with(ring(1, &[])).await;
    encrypted(&node, "q").await;
    for (id, target) in [
        ("a", json!({})),
        ("b", json!({"queue": "open"})),
        ("c", json!({"partition": "elsewhere"})),
    ] {
        push(&node, "q", "p", id).await;
        let letter = bury(&node, "q").await;
        let reply = node.post(&format!("/api/v1/dlq/{letter}/replay"), target.clone()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let body = reply.json();
        let (queue, partition) = (body["queue"].as_str().unwrap(), body["partition"].as_str());
        let offset = body["replayedAs"]["offset"].as_u64().unwrap();
        let entry = fetch(&node, queue, partition.unwrap(), offset).await;
        assert_eq!(entry["records"][0]["payload"], json!({"id": id, "secret": MARKER}), "{entry}");
        // The copy in its own partition is in the way of the next letter.
        node.get("/api/v1/pop/queue/q?consumerGroup=g&autoAck=true&batch=9").await;
    }
    assert_eq!(holding(node.dir(), MARKER), [""; 0]);
}

#[tokio::test]
async fn a_dead_letter_that_does_not_open_is_listed_without_its_payload() {
    let node = Node::start_with(ring(1, &[])).await;
    encrypted(&node, "q").await;
    push(&node, "q", "p", "a").await;
    let letter = bury(&node, "q").await;
    let node = node.restart_with(ring(2, &[])).await;
    let listed = node.get("/api/v1/dlq").await.json()["messages"][0].clone();
    assert_eq!((&listed["id"], &listed["data"]), (&json!(letter), &Value::Null));
    let text = listed["undecryptable"].as_str().unwrap();
    assert!(text.contains("QUEEN_ENCRYPTION_KEY") && text.contains("offset 0"), "{text}");
    let path = format!("/api/v1/dlq/{letter}/replay");
    let reply = node.post(&path, json!({"queue": "open"})).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    let listed = node.get("/api/v1/dlq").await.json();
    assert_eq!(listed["total"], 1, "it is still there");
    assert_eq!(node.post(&path, json!({})).await.status, 200, "back to where it opens");
}
