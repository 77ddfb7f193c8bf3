//! Consumer groups over HTTP.

use crate::node::{Node, data};
use serde_json::{Value, json};

const POP: &str = "q?consumerGroup=g&subscriptionMode=all&batch=100";

async fn drained(node: &Node) -> Vec<Value> {
    let popped = node.pop(POP).await;
    if !popped.is_null() {
        node.settle(&popped, "completed").await;
    }
    data(&popped)
}

#[tokio::test]
async fn a_group_is_listed_with_its_lag() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 3).await;
    assert_eq!(node.get("/api/v1/consumer-groups/g").await.json(), json!({}));
    let popped = node.pop("q?consumerGroup=g&subscriptionMode=all&batch=1").await;
    node.settle(&popped, "completed").await;
    let rows = node.get("/api/v1/consumer-groups").await.json();
    let row = &rows[0];
    for (name, want) in [
        ("name", json!("g")),
        ("topics", json!(["q"])),
        ("queueName", json!("q")),
        ("partitionCursors", json!(1)),
        ("partitionsWithLag", json!(1)),
        ("totalLag", json!(2)),
        ("state", json!("Stable")),
        ("subscriptionMode", json!("all")),
        ("conflation", json!(false)),
    ] {
        assert_eq!(row[name], want, "{name}");
    }
    let detail = node.get("/api/v1/consumer-groups/g").await.json();
    let lane = &detail["q"]["partitions"][0];
    assert_eq!((&lane["partition"], &lane["totalConsumed"]), (&json!("p"), &json!(1)));
    assert_eq!((&lane["offsetLag"], &lane["leaseActive"]), (&json!(2), &json!(false)));
    assert!(lane.get("workerId").is_some() && lane["timeLagSeconds"].is_u64());
    let lagging = node.get("/api/v1/consumer-groups/lagging?minLagSeconds=0").await.json();
    assert_eq!(
        (&lagging[0]["consumer_group"], &lagging[0]["offset_lag"]),
        (&json!("g"), &json!(2))
    );
    assert!(lagging[0]["partition_id"].is_string() && lagging[0]["lag_hours"].is_number());
    assert_eq!(node.get("/api/v1/consumer-groups/lagging").await.json(), json!([]));
}

#[tokio::test]
async fn a_seek_to_the_epoch_replays_and_to_the_end_skips() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 3).await;
    assert_eq!(drained(&node).await, [0, 1, 2]);
    let path = "/api/v1/consumer-groups/g/queues/q/seek";
    let reply = node.post(path, json!({"timestamp": "1970-01-01T00:00:00Z"})).await.json();
    let want = json!({"success": true, "consumerGroup": "g", "queueName": "q", "seekToEnd": false,
        "targetTimestamp": "1970-01-01T00:00:00Z", "partitionsUpdated": 1});
    assert_eq!(reply, want);
    assert_eq!(drained(&node).await, [0, 1, 2]);
    node.push_numbers("q", "p", 2).await;
    assert_eq!(node.post(path, json!({"toEnd": true})).await.json()["success"], true);
    assert_eq!(drained(&node).await, [0; 0]);
    for body in [json!({"position": "earliest"}), json!({}), json!({"timestamp": "soon"})] {
        assert_eq!(node.post(path, body).await.status, 400);
    }
    let unknown =
        node.post("/api/v1/consumer-groups/g/queues/none/seek", json!({"toEnd": true})).await;
    assert_eq!((unknown.status, &unknown.json()["success"]), (404, &json!(false)));
}

#[tokio::test]
async fn a_seek_wakes_a_waiting_pop() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 1).await;
    drained(&node).await;
    let path = format!("{POP}&wait=true&timeout=15000");
    let waiting = node.pop(&path);
    let seek = async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let body = json!({"timestamp": "1970-01-01T00:00:00Z"});
        node.post("/api/v1/consumer-groups/g/queues/q/seek", body).await
    };
    let began = std::time::Instant::now();
    let (popped, _) = tokio::join!(waiting, seek);
    assert_eq!(data(&popped), [0]);
    assert!(began.elapsed() < std::time::Duration::from_secs(10));
}

#[tokio::test]
async fn one_partition_is_sought_by_offset_or_to_its_end() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 3).await;
    let path = "/api/v1/consumer-groups/g/queues/q/partitions/p/seek";
    let reply = node.post(path, json!({"offset": 1})).await.json();
    assert_eq!((&reply["partitionName"], &reply["updated"]), (&json!("p"), &json!(true)));
    assert_eq!(drained(&node).await, [1, 2]);
    node.post(path, json!({"offset": 0})).await;
    assert_eq!(node.call("POST", path, b"").await.json()["seekToEnd"], true);
    assert_eq!(drained(&node).await, [0; 0]);
}

#[tokio::test]
async fn a_subscription_is_moved_and_its_time_echoed_byte_for_byte() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 1).await;
    drained(&node).await;
    let path = "/api/v1/consumer-groups/g/subscription";
    let body = json!({"subscriptionTimestamp": "2026-01-01T00:00:00.5+01:00"});
    let reply = node.post(path, body).await.json();
    let want = json!({"success": true, "consumerGroup": "g",
        "newTimestamp": "2026-01-01T00:00:00.5+01:00", "rowsUpdated": 1});
    assert_eq!(reply, want);
    assert_eq!(node.post(path, json!({})).await.status, 400);
}

#[tokio::test]
async fn a_deleted_group_behaves_as_never_seen() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 2).await;
    assert_eq!(drained(&node).await, [0, 1]);
    let one = "/api/v1/consumer-groups/g/queues/q?deleteMetadata=true";
    let reply = node.call("DELETE", one, b"").await.json();
    let want = json!({"success": true, "consumerGroup": "g", "queueName": "q",
        "deletedPartitions": 1, "metadataDeleted": true});
    assert_eq!(reply, want);
    assert_eq!(drained(&node).await, [0, 1]);
    let all = node.call("DELETE", "/api/v1/consumer-groups/g", b"").await.json();
    assert_eq!(all["deletedPartitions"], 1);
    assert_eq!(drained(&node).await, [0, 1]);
}
