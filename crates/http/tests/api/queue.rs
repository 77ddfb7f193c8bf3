//! Queues over HTTP: configure, delete, list, detail, depth.

use crate::node::Node;
use serde_json::{Value, json};

/// The members of an object that are missing or null.
fn lacking(object: &Value, names: &[&str]) -> Vec<String> {
    let missing = names.iter().filter(|name| object.get(**name).is_none_or(Value::is_null));
    missing.map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn configure_echoes_all_options() {
    let node = Node::start().await;
    let body = json!({"queue": "q", "namespace": null, "task": null,
        "options": {"leaseTime": 60, "priority": 7, "minPopWaitTime": 90000}});
    let reply = node.post("/api/v1/configure", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer = reply.json();
    assert_eq!((&answer["configured"], &answer["queue"]), (&json!(true), &json!("q")));
    assert_eq!((&answer["storage"], answer.get("error")), (&json!("segments"), None));
    assert_eq!(answer["queueId"].as_str().unwrap().len(), 36);
    let options = answer["options"].as_object().unwrap();
    assert_eq!(options.len(), 21);
    assert_eq!((&options["leaseTime"], &options["minPopWaitTime"]), (&json!(60), &json!(60000)));
    let flat = json!({"queue": "q", "retryLimit": 9});
    let merged = node.post("/api/v1/configure", flat).await.json();
    assert_eq!(
        (&merged["options"]["retryLimit"], &merged["options"]["leaseTime"]),
        (&json!(9), &json!(60))
    );
    let replaced = json!({"queue": "q", "mode": "replace", "options": {}});
    let replaced = node.post("/api/v1/configure", replaced).await.json();
    assert_eq!(
        (&replaced["options"]["retryLimit"], &replaced["options"]["leaseTime"]),
        (&json!(3), &json!(300))
    );
}

#[tokio::test]
async fn a_bad_configure_says_what_is_wrong_and_changes_nothing() {
    let node = Node::start().await;
    for (body, part) in [
        (json!({"options": {}}), "queue"),
        (json!({"queue": "q", "mode": "other"}), "other"),
        (json!({"queue": "q", "options": {"leaseTime": "long"}}), "leaseTime"),
        (json!({"queue": "q", "retryLimit": -1}), "retryLimit"),
        (json!({"queue": "q", "options": {"noSuchOption": 1}}), "noSuchOption"),
        (json!({"queue": "q", "options": {"retentionSinkHold": "a b"}}), "retentionSinkHold"),
        (json!({"queue": "q", "options": {"retentionSinkHold": "lake"}}), "retentionSinkHoldForce"),
        (json!({"queue": "q", "retentionSinkHoldForce": 1}), "neither true nor false"),
    ] {
        let reply = node.post("/api/v1/configure", body).await;
        assert_eq!(reply.status, 400);
        assert!(reply.json()["error"].as_str().unwrap().contains(part), "{}", reply.text());
    }
    assert_eq!(node.get("/api/v1/resources/queues").await.json(), json!({"queues": []}));
    let forced = json!({"queue": "q", "options": {"retentionSinkHold": "lake",
        "retentionSinkHoldForce": true}});
    let reply = node.post("/api/v1/configure", forced).await;
    assert_eq!(
        (reply.status, &reply.json()["options"]["retentionSinkHold"]),
        (200, &json!("lake"))
    );
}

#[tokio::test]
async fn a_queue_is_listed_shown_and_deleted() {
    let node = Node::start().await;
    node.push_numbers("ns.task.q/1", "a", 3).await;
    node.push_numbers("ns.task.q/1", "b", 1).await;
    let listed = node.get("/api/v1/resources/queues").await.json();
    let row = &listed["queues"][0];
    let keys = [
        "id",
        "name",
        "namespace",
        "task",
        "createdAt",
        "partitions",
        "retainedBytes",
        "segments",
        "messages",
    ];
    assert_eq!(lacking(row, &keys), [""; 0]);
    assert_eq!((&row["namespace"], &row["task"]), (&json!("ns"), &json!("task")));
    assert_eq!(row["messages"], json!({"total": 4, "pending": 4, "processing": 0}));
    assert_eq!((&row["partitions"], &row["segments"]["messages"]), (&json!(2), &json!(4)));
    let detail = node.get("/api/v1/resources/queues/ns.task.q%2F1").await.json();
    assert_eq!(lacking(&detail, &["id", "createdAt", "totals", "partitions", "options"]), [""; 0]);
    let partition = &detail["partitions"][0];
    assert_eq!(
        lacking(partition, &["id", "name", "createdAt", "oldestMessage", "newestMessage"]),
        [""; 0]
    );
    let stats = json!({"total": 3, "pending": 3, "processing": 0, "completed": 0, "failed": null,
        "deadLetter": 0});
    assert_eq!((&partition["name"], &partition["stats"]), (&json!("a"), &stats));
    assert_eq!(detail["totals"]["total"], 4);
    let deleted = node.call("DELETE", "/api/v1/resources/queues/ns.task.q%2F1", b"").await.json();
    assert_eq!(deleted, json!({"deleted": true, "queue": "ns.task.q/1", "existed": true}));
    let again = node.call("DELETE", "/api/v1/resources/queues/ns.task.q%2F1", b"").await;
    assert_eq!((again.status, &again.json()["existed"]), (200, &json!(false)));
    let gone = node.get("/api/v1/resources/queues/ns.task.q%2F1").await;
    assert_eq!((gone.status, gone.json()), (404, json!({"error": "Queue not found"})));
}

async fn depth(node: &Node) -> Value {
    node.get("/api/v1/resources/queues/q/depth?group=g").await.json()
}

#[tokio::test]
async fn the_depth_of_a_group_falls_as_it_settles() {
    let node = Node::start().await;
    node.push_numbers("q", "a", 5).await;
    let before = depth(&node).await;
    assert_eq!((&before["pending"], &before["ready"]), (&json!(5), &json!(5)));
    assert_eq!((&before["partitionsPending"], &before["effectivePending"]), (&json!(1), &json!(5)));
    let popped = node.pop("q?consumerGroup=g&subscriptionMode=all&batch=2").await;
    let during = depth(&node).await;
    assert_eq!(
        (&during["pending"], &during["processing"], &during["ready"]),
        (&json!(3), &json!(2), &json!(0))
    );
    node.settle(&popped, "completed").await;
    let after = depth(&node).await;
    assert_eq!(
        after["partitions"],
        json!([{"partition": "a", "pending": 3, "processing": 0, "ready": 3}])
    );
    assert_eq!(node.get("/api/v1/resources/queues/none/depth").await.status, 404);
}

#[tokio::test]
async fn the_console_pages_have_their_members() {
    let node = Node::start().await;
    node.push_numbers("ns.t.busy", "busy", 3).await;
    node.push_numbers("ns.t.quiet", "quiet", 1).await;
    let partitions = node.get("/api/v1/resources/partitions").await.json();
    let names: Vec<_> = partitions["partitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["partition"].clone())
        .collect();
    assert_eq!(names, ["busy", "quiet"]);
    assert_eq!(
        lacking(
            &partitions["partitions"][0],
            &["queue", "id", "pending", "processing", "lagSeconds"]
        ),
        [""; 0]
    );
    let overview = node.get("/api/v1/resources/overview").await.json();
    assert_eq!(
        (&overview["queues"], &overview["namespaces"], &overview["tasks"]),
        (&json!(2), &json!(1), &json!(1))
    );
    assert_eq!(overview["messages"]["total"], 4);
    assert!(overview["lag"]["time"]["avg"].is_u64());
    let namespaces = node.get("/api/v1/resources/namespaces").await.json();
    assert_eq!(
        namespaces["namespaces"],
        json!([{"namespace": "ns", "queues": 2, "partitions": 2, "messages": {"total": 4, "pending": 4}}])
    );
    assert_eq!(node.get("/api/v1/resources/tasks").await.json()["tasks"][0]["task"], "t");
}
