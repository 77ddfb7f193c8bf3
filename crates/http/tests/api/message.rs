//! Messages over HTTP: browsing, and one of them.

use crate::node::{Node, messages};
use queen_broker::keyring::{Keyring, SecretKey};
use serde_json::{Value, json};

async fn browsed(node: &Node, query: &str) -> Value {
    let reply = node.get(&format!("/api/v1/messages{query}")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let page = reply.json();
    assert_eq!(page["total"], page["messages"].as_array().unwrap().len(), "{page}");
    page
}

fn data(page: &Value) -> Vec<Value> {
    page["messages"].as_array().unwrap().iter().map(|row| row["data"].clone()).collect()
}

async fn push(node: &Node, queue: &str, partition: &str, payload: Value) {
    let id = format!("t-{payload}").replace('"', "");
    let item = json!({"queue": queue, "partition": partition, "payload": payload,
        "transactionId": id});
    node.push(json!([item])).await;
}

#[tokio::test]
async fn messages_are_browsed_newest_first_by_queue_partition_and_label() {
    let node = Node::start().await;
    for (queue, partition, payload) in
        [("ns.a", "x", 1), ("ns.b", "y", 2), ("ns.a", "z", 3), ("ns.a", "x", 4), ("other", "x", 5)]
    {
        push(&node, queue, partition, json!(payload)).await;
    }
    assert_eq!(data(&browsed(&node, "").await), [5, 4, 3, 2, 1]);
    assert_eq!(data(&browsed(&node, "?queue=ns.a").await), [4, 3, 1]);
    assert_eq!(data(&browsed(&node, "?queue=ns.a&partition=x").await), [4, 1]);
    assert_eq!(data(&browsed(&node, "?partition=x").await), [5, 4, 1]);
    assert_eq!(data(&browsed(&node, "?namespace=ns").await), [4, 3, 2, 1]);
    assert_eq!(data(&browsed(&node, "?ns=ns&task=b").await), [2]);
    assert_eq!(data(&browsed(&node, "?limit=2&offset=1").await), [4, 3]);
    assert_eq!(data(&browsed(&node, "?queue=none").await), [0; 0]);
    assert_eq!(data(&browsed(&node, "?to=2020-01-01T00:00:00Z").await), [0; 0]);
    let row = &browsed(&node, "?queue=ns.b").await["messages"][0];
    for (name, want) in [
        ("transactionId", json!("t-2")),
        ("queuePath", json!("ns.b/y")),
        ("partition", json!("y")),
        ("namespace", json!("ns")),
        ("task", json!("b")),
        ("status", json!("pending")),
        ("queueStatus", json!(null)),
        ("busStatus", json!({"consumedBy": 0, "totalGroups": 0})),
        ("payload", json!(2)),
        ("payloadAvailable", json!(true)),
        ("segment", json!({"seq": 1, "frameIdx": 0})),
        ("leaseExpiresAt", json!(null)),
    ] {
        assert_eq!(row[name], want, "{name}: {row}");
    }
    for bad in ["?status=done", "?limit=x", "?from=soon"] {
        assert_eq!(node.get(&format!("/api/v1/messages{bad}")).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn messages_are_browsed_by_what_became_of_them() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 6).await;
    let popped = node.pop("q?batch=2&consumerGroup=g&subscriptionMode=all").await;
    node.settle(&popped, "completed").await;
    let popped = node.pop("q?batch=1&consumerGroup=g").await;
    node.settle(&popped, "dlq").await;
    node.pop("q?batch=1&consumerGroup=g").await;
    let by = async |status: &str| data(&browsed(&node, &format!("?status={status}")).await);
    assert_eq!(by("completed").await, [1, 0]);
    assert_eq!(by("dead_letter").await, [2]);
    assert_eq!(by("processing").await, [3]);
    assert_eq!(by("pending").await, [5, 4]);
    let all = browsed(&node, "?queue=q").await;
    assert_eq!(all["mode"], json!({"hasQueueMode": false, "busGroupsCount": 1, "type": "bus"}));
    assert_eq!(all["messages"][5]["busStatus"], json!({"consumedBy": 1, "totalGroups": 1}));
    assert!(all["messages"][2]["leaseExpiresAt"].is_string());
    node.pop("q?batch=1&autoAck=true").await;
    let all = browsed(&node, "?queue=q&limit=1&offset=5").await;
    assert_eq!(all["mode"]["type"], "hybrid");
    assert_eq!(all["messages"][0]["queueStatus"], "completed");
}

#[tokio::test]
async fn a_page_ends_where_its_bytes_are_used_up_and_says_so() {
    let node = Node::start().await;
    let large = "x".repeat(6 << 20);
    for n in 0..4 {
        let payload = json!({"n": n, "large": large});
        node.push(json!([{"queue": "q", "partition": "p", "payload": payload}])).await;
    }
    let page = browsed(&node, "?queue=q").await;
    let shown: Vec<_> = data(&page).iter().map(|data| data["n"].clone()).collect();
    assert_eq!((json!(shown), &page["truncated"]), (json!([3, 2, 1]), &json!(true)));
    let rest = browsed(&node, "?queue=q&offset=3").await;
    assert_eq!((data(&rest)[0]["n"].clone(), &rest["truncated"]), (json!(0), &json!(false)));
}

async fn detail(node: &Node, message: &Value) -> Value {
    let (partition, id) = (&message["partitionId"], message["transactionId"].as_str().unwrap());
    let id = id.replace('/', "%2F");
    let path = format!("/api/v1/messages/{}/{id}", partition.as_str().unwrap());
    let reply = node.get(&path).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply.json()
}

#[tokio::test]
async fn a_message_is_shown_with_where_each_group_is() {
    let node = Node::start().await;
    push(&node, "a.b", "p", json!("a/b")).await;
    let popped = node.pop("a.b?consumerGroup=g&subscriptionMode=all").await;
    let message = &messages(&popped)[0];
    let shown = detail(&node, message).await;
    for (name, want) in [
        ("id", message["id"].clone()),
        ("queue", json!("a.b")),
        ("partition", json!("p")),
        ("queuePath", json!("a.b/p")),
        ("namespace", json!("a")),
        ("task", json!("b")),
        ("status", json!("processing")),
        ("data", json!("a/b")),
        ("payload", json!("a/b")),
        ("isEncrypted", json!(false)),
        ("errorMessage", json!(null)),
        ("retryCount", json!(0)),
        ("createdAt", message["createdAt"].clone()),
    ] {
        assert_eq!(shown[name], want, "{name}: {shown}");
    }
    assert_eq!(shown["queueConfig"]["leaseTime"], 60);
    let held = &shown["consumerGroups"][0];
    assert_eq!((&held["name"], &held["consumed"]), (&json!("g"), &json!(false)));
    assert_eq!(held["leaseExpiresAt"], shown["leaseExpiresAt"]);
    assert!(held["leaseExpiresAt"].is_string());

    node.settle(&popped, "failed").await;
    let again = node.pop("a.b?consumerGroup=g").await;
    assert_eq!(detail(&node, message).await["retryCount"], 1);
    node.settle(&again, "dlq").await;
    let dead = detail(&node, message).await;
    assert_eq!((&dead["status"], &dead["retryCount"]), (&json!("dead_letter"), &json!(1)));
    assert_eq!(dead["errorMessage"], "Retries exhausted");
    assert_eq!(dead["consumerGroups"][0]["consumed"], true);

    for unknown in ["1/none", "x/t", "99/t"] {
        let reply = node.get(&format!("/api/v1/messages/{unknown}")).await;
        assert_eq!((reply.status, &reply.json()["error"]), (404, &json!("Message not found")));
    }
}

#[tokio::test]
async fn a_message_without_an_id_of_its_own_is_found_by_the_minted_one() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 3).await;
    let popped = node.pop("q?autoAck=true&batch=2").await;
    let second = &messages(&popped)[1];
    let shown = detail(&node, second).await;
    assert_eq!((&shown["data"], &shown["offset"]), (&json!(1), &json!(1)));
    let groups = json!([{"name": "__QUEUE_MODE__", "group": "__QUEUE_MODE__", "consumed": true,
        "leaseExpiresAt": null}]);
    assert_eq!((&shown["consumerGroups"], &shown["status"]), (&groups, &json!("completed")));
}

#[tokio::test]
async fn an_encrypted_message_is_shown_in_the_clear_with_its_key_and_named_without() {
    let key = || Keyring::new(Some(&SecretKey::new([7; 32])), &[]).unwrap();
    let node = Node::start_with(key()).await;
    let body = json!({"queue": "q", "options": {"encryptionEnabled": true}});
    assert_eq!(node.post("/api/v1/configure", body).await.status, 200);
    push(&node, "q", "p", json!("secret")).await;
    let row = browsed(&node, "").await["messages"][0].clone();
    assert_eq!(row["data"], "secret");
    let shown = detail(&node, &row).await;
    assert_eq!((&shown["data"], &shown["isEncrypted"]), (&json!("secret"), &json!(true)));
    let node = node.restart().await;
    let row = browsed(&node, "").await["messages"][0].clone();
    assert_eq!((&row["data"], &row["payloadAvailable"]), (&json!(null), &json!(false)));
    assert_eq!(row["transactionId"], "t-secret");
    assert!(row["unreadable"].as_str().unwrap().contains("key"), "{row}");
}
