//! Dead letters over HTTP.

use crate::node::{Node, messages};
use serde_json::{Value, json};

/// Pushes a message and has group `g` give it up; gives the delivered message.
async fn bury(node: &Node, queue: &str, id: &str) -> Value {
    let item =
        json!({"queue": queue, "partition": "p", "payload": {"id": id}, "transactionId": id});
    node.push(json!([item])).await;
    let popped = node.pop(&format!("{queue}?consumerGroup=g&subscriptionMode=all")).await;
    let message = messages(&popped)[0].clone();
    let body = json!({"transactionId": id, "partitionId": message["partitionId"],
        "leaseId": message["leaseId"], "consumerGroup": "g", "status": "dlq", "error": "no good"});
    let acked = node.post("/api/v1/ack", body).await.json();
    assert_eq!(acked[0]["dlq"], true, "{acked}");
    message
}

async fn listed(node: &Node, query: &str) -> Value {
    let reply = node.get(&format!("/api/v1/dlq{query}")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn ids(page: &Value) -> Vec<&str> {
    let rows = page["messages"].as_array().unwrap();
    rows.iter().map(|row| row["transactionId"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn dead_letters_are_listed_newest_first_with_their_reason() {
    let node = Node::start().await;
    let first = bury(&node, "q", "t-1").await;
    bury(&node, "q", "t-2").await;
    bury(&node, "r", "t-3").await;
    let all = listed(&node, "").await;
    assert_eq!((ids(&all), &all["total"]), (vec!["t-3", "t-2", "t-1"], &json!(3)));
    let row = &all["messages"][2];
    for (name, want) in [
        ("partitionId", first["partitionId"].clone()),
        ("queue", json!("q")),
        ("partition", json!("p")),
        ("consumerGroup", json!("g")),
        ("errorMessage", json!("no good")),
        ("data", json!({"id": "t-1"})),
        ("producerSub", json!(null)),
    ] {
        assert_eq!(row[name], want, "{name}");
    }
    assert!(row["retryCount"].is_u64() && row["id"].is_string() && row["failedAt"].is_string());
    let page = listed(&node, "?limit=1&offset=1").await;
    assert_eq!((ids(&page), &page["total"]), (vec!["t-2"], &json!(3)));
    assert_eq!(page["pagination"], json!({"limit": 1, "offset": 1}));
    assert_eq!(ids(&listed(&node, "?queue=q&consumerGroup=g").await), ["t-2", "t-1"]);
    assert_eq!(ids(&listed(&node, "?queue=q&consumerGroup=h").await), [""; 0]);
    assert_eq!(ids(&listed(&node, "?queue=none").await), [""; 0]);
    assert_eq!(ids(&listed(&node, "?to=2020-01-01T00:00:00Z").await), [""; 0]);
}

#[tokio::test]
async fn a_replay_moves_the_letter_back_to_the_tail() {
    let node = Node::start().await;
    bury(&node, "q", "t-1").await;
    let id = listed(&node, "").await["messages"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/dlq/{id}/replay");
    let reply = node.call("POST", &path, b"").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let moved = reply.json();
    assert_eq!((&moved["result"], &moved["dlqId"]), (&json!("moved"), &json!(id)));
    assert_eq!(
        (&moved["originalTransactionId"], &moved["dlqRowRemoved"]),
        (&json!("t-1"), &json!(true))
    );
    let copy = &moved["replayedAs"];
    assert_eq!(
        (&copy["status"], &copy["transaction_id"]),
        (&json!("queued"), &json!(format!("dlq:{id}")))
    );
    let popped = node.pop("q?consumerGroup=g").await;
    let message = &messages(&popped)[0];
    assert_eq!((&message["id"], &message["data"]), (&copy["message_id"], &json!({"id": "t-1"})));
    let gone = node.call("POST", &path, b"").await;
    assert_eq!((gone.status, &gone.json()["result"]), (404, &json!("gone")));
    assert_eq!(node.call("POST", "/api/v1/dlq/nonsense/replay", b"").await.status, 404);
}

#[tokio::test]
async fn a_letter_is_retried_or_deleted_by_its_message_and_a_live_message_is_neither() {
    let node = Node::start().await;
    let message = bury(&node, "q", "a/b").await;
    bury(&node, "q", "t-2").await;
    let partition = message["partitionId"].as_str().unwrap();
    let retry = format!("/api/v1/messages/{partition}/a%2Fb/retry");
    assert_eq!(node.call("POST", &retry, b"").await.json()["result"], "moved");
    assert_eq!(node.call("POST", &retry, b"").await.status, 404);
    let delete = format!("/api/v1/messages/{partition}/t-2");
    let deleted = node.call("DELETE", &delete, b"").await;
    assert_eq!((deleted.status, &deleted.json()["transactionId"]), (200, &json!("t-2")));
    let live = node.call("DELETE", &delete, b"").await;
    assert_eq!((live.status, &live.json()["error"]), (404, &json!("Message not found")));
}

#[tokio::test]
async fn a_purge_needs_a_queue() {
    let node = Node::start().await;
    bury(&node, "q", "t-1").await;
    bury(&node, "q", "t-2").await;
    let refused = node.call("DELETE", "/api/v1/dlq", b"").await;
    assert_eq!((refused.status, &refused.json()["error"]), (400, &json!("queue is required")));
    let purged = node.call("DELETE", "/api/v1/dlq?queue=q", b"").await.json();
    assert_eq!((&purged["deleted"], &purged["consumerGroup"]), (&json!(2), &json!(null)));
    assert_eq!(listed(&node, "").await["total"], 0);
}
