//! Push, B.1.

use crate::node::{Node, data, messages};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_get_consecutive_offsets_per_partition_in_request_order() {
    let node = Node::start().await;
    let results = node
        .push(json!([
            {"queue": "q", "partition": "a", "payload": 1},
            {"queue": "q", "partition": "b", "payload": 2},
            {"queue": "q", "partition": "a", "payload": 3},
            {"queue": "q", "payload": null},
        ]))
        .await;
    let offsets: Vec<_> = results.as_array().unwrap().iter().map(|r| &r["offset"]).collect();
    assert_eq!(offsets, [&json!(0), &json!(0), &json!(1), &json!(0)]);
    for (index, result) in results.as_array().unwrap().iter().enumerate() {
        assert_eq!(result["index"], index);
        assert_eq!((&result["status"], &result["queueName"]), (&json!("queued"), &json!("q")));
        assert_eq!(result["transaction_id"], result["message_id"]);
    }
    assert_eq!(node.push(json!([])).await, json!([]));
    let popped = node.pop("q/partition/Default").await;
    assert_eq!(data(&popped), [json!(null)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_transaction_id_is_a_duplicate_of_the_stored_message() {
    let node = Node::start().await;
    let item = json!({"queue": "q", "payload": 1, "transactionId": "t"});
    let first = node.push(json!([item, item])).await;
    assert_eq!((&first[0]["status"], &first[1]["status"]), (&json!("queued"), &json!("duplicate")));
    assert_eq!(first[0]["message_id"], first[1]["message_id"]);
    let again = node.push(json!([item, {"queue": "q", "payload": 2}])).await;
    assert_eq!((&again[0]["status"], &again[0]["offset"]), (&json!("duplicate"), &json!(0)));
    assert_eq!(again[0]["message_id"], first[0]["message_id"]);
    assert_eq!((&again[1]["status"], &again[1]["offset"]), (&json!("queued"), &json!(1)));
    let other =
        node.push(json!([{"queue": "q", "partition": "p", "payload": 1, "transactionId": "t"}]));
    assert_eq!(other.await[0]["status"], "queued");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_pushes_of_one_transaction_id_are_stored_once() {
    let node = Node::start().await;
    let pushes =
        (0..16).map(|i| node.push(json!([{"queue": "q", "payload": i, "transactionId": "same"}])));
    let results = futures::future::join_all(pushes).await;
    let queued = results.iter().filter(|r| r[0]["status"] == "queued").count();
    assert_eq!(queued, 1);
    assert!(results.iter().all(|r| r[0]["message_id"] == results[0][0]["message_id"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payload_bytes_and_odd_names_come_back_as_they_were_sent() {
    let node = Node::start().await;
    let payload = r#"{ "z":1.00,"a":[1e3 , "\u00e4"],"z":42.0000000000000000001}"#;
    let body =
        format!(r#"{{"items":[{{"queue":"a/b c%:ä","partition":"p/ä","payload":{payload}}}]}}"#);
    assert_eq!(node.call("POST", "/api/v1/push", body.as_bytes()).await.status, 201);
    let path = "/api/v1/pop/queue/a%2Fb%20c%25%3A%C3%A4/partition/p%2F%c3%a4";
    let reply = node.get(path).await;
    assert_eq!(reply.status, 200);
    assert!(reply.text().contains(&format!("\"data\":{payload},")), "{}", reply.text());
    assert_eq!(
        (&reply.json()["queue"], &reply.json()["partition"]),
        (&json!("a/b c%:ä"), &json!("p/ä"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_there_after_a_restart() {
    let node = Node::start().await;
    let before = node.push_numbers("q", "p", 250).await;
    let node = node.restart().await;
    let again = node.push(json!([{"queue": "q", "partition": "p", "payload": "x"}])).await;
    assert_eq!(again[0]["offset"], 250);
    let popped = node.pop("q?batch=300").await;
    assert_eq!(messages(&popped).len(), 251);
    assert_eq!(messages(&popped)[7]["id"], before[7]["message_id"]);
    assert_eq!(data(&popped)[249], 249);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_of_a_hundred_partitions_answers_every_item_in_order() {
    let node = Node::start().await;
    let items: serde_json::Value = (0..100)
        .map(|i| json!({"queue": "wide", "partition": format!("p{i}"), "payload": i}))
        .collect();
    for round in 0..3 {
        let results = node.push(items.clone()).await;
        let all = results.as_array().unwrap();
        assert_eq!(all.len(), 100);
        assert!(all.iter().enumerate().all(|(i, r)| r["index"] == i && r["offset"] == round));
    }
    let popped = node.pop("wide/partition/p42").await;
    assert_eq!(data(&popped), [json!(42), json!(42), json!(42)]);
}
