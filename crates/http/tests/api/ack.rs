//! Ack, B.3: each row of its table.

use crate::node::{Node, ack, data, messages};
use serde_json::{Value, json};

async fn single(node: &Node, item: Value) -> Value {
    let reply = node.post("/api/v1/ack", item).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let results = reply.json();
    assert_eq!(results.as_array().unwrap().len(), 1);
    assert_eq!(results[0].as_object().unwrap().len(), 7);
    results[0].clone()
}

fn error(result: &Value) -> &str {
    assert_eq!(result["success"], false, "{result}");
    result["error"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completing_moves_the_cursor_and_the_last_one_ends_the_lease() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 3).await;
    let batch = messages(&node.pop("q").await);
    let middle = single(&node, ack(&batch[1], "completed")).await;
    assert_eq!(
        middle,
        json!({"index": 0, "transactionId": batch[1]["transactionId"], "success": true,
            "error": null, "leaseReleased": false, "dlq": false, "noop": false})
    );
    let below = single(&node, ack(&batch[0], "success")).await;
    assert_eq!((&below["success"], &below["noop"]), (&json!(true), &json!(true)));
    assert_eq!(node.pop("q").await, Value::Null);
    let last = single(&node, ack(&batch[2], "ok")).await;
    assert_eq!((&last["success"], &last["leaseReleased"]), (&json!(true), &json!(true)));
    let late = single(&node, ack(&batch[1], "failed")).await;
    assert!(error(&late).contains("lease") || error(&late).contains("committed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_message_comes_again_and_the_cursor_stops_below_it() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 4).await;
    let popped = node.pop("q").await;
    let batch = messages(&popped);
    let items =
        json!([ack(&batch[0], "completed"), ack(&batch[1], "failed"), ack(&batch[2], "completed")]);
    let reply = node.post("/api/v1/ack/batch", json!({"acknowledgments": items})).await.json();
    assert_eq!(reply.as_array().unwrap().len(), 3);
    assert_eq!((&reply[1]["success"], &reply[1]["dlq"]), (&json!(true), &json!(false)));
    assert!(reply.as_array().unwrap().iter().any(|r| r["leaseReleased"] == true));
    let again = node.pop("q").await;
    assert_eq!(data(&again), [json!(1), json!(2), json!(3)]);
    assert_eq!(messages(&again)[0]["deliveryAttempt"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fourth_failure_goes_to_the_dead_letters_and_retry_never_does() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 1).await;
    for attempt in 1..=5 {
        let popped = node.pop("q").await;
        assert_eq!(messages(&popped)[0]["deliveryAttempt"], attempt);
        let result = node.settle(&popped, "retry").await;
        assert_eq!((&result[0]["success"], &result[0]["dlq"]), (&json!(true), &json!(false)));
    }
    for failure in 1..=4 {
        let popped = node.pop("q").await;
        let result = node.settle(&popped, "failed").await;
        assert_eq!(result[0]["dlq"], failure == 4, "failure {failure}: {result}");
        assert_eq!(result[0]["leaseReleased"], true);
    }
    assert_eq!(node.pop("q").await, Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dlq_files_at_once_and_the_cursor_passes() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 2).await;
    let batch = messages(&node.pop("q").await);
    let result = single(&node, ack(&batch[0], "dlq")).await;
    assert_eq!((&result["success"], &result["dlq"]), (&json!(true), &json!(true)));
    assert_eq!(result["leaseReleased"], true);
    assert_eq!(data(&node.pop("q").await), [json!(1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_not_the_holders_is_refused_and_none_is_accepted() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 1).await;
    let message = messages(&node.pop("q").await)[0].clone();
    for lease in ["01a0b1c2-1111-7000-8000-0000000000aa", "nonsense"] {
        let mut item = ack(&message, "completed");
        item["leaseId"] = json!(lease);
        assert_eq!(error(&single(&node, item).await), "invalid or expired lease");
    }
    let mut item = ack(&message, "completed");
    item["leaseId"] = Value::Null;
    item["consumerGroup"] = Value::Null;
    item["error"] = Value::Null;
    assert_eq!(single(&node, item).await["success"], true);
    assert_eq!(node.pop("q").await, Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_resolved_is_refused_and_the_lease_lives_on() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 1).await;
    let message = messages(&node.pop("q").await)[0].clone();
    let mut item = ack(&message, "completed");
    item["transactionId"] = json!("never stored");
    assert!(error(&single(&node, item).await).contains("unresolv"));
    let mut item = ack(&message, "completed");
    item["consumerGroup"] = json!("stranger");
    item["leaseId"] = Value::Null;
    assert_eq!(error(&single(&node, item).await), "consumer not found");
    assert_eq!(single(&node, ack(&message, "completed")).await["success"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_below_the_cursor_says_committed() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 3).await;
    let batch = messages(&node.pop("q").await);
    single(&node, ack(&batch[1], "completed")).await;
    for status in ["failed", "retry", "dlq"] {
        assert!(error(&single(&node, ack(&batch[0], status)).await).contains("committed"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_ack_body_is_400() {
    let node = Node::start().await;
    for (path, body) in [
        ("ack", "{"),
        ("ack", "{}"),
        ("ack/batch", "[]"),
        ("ack/batch", "{}"),
        ("ack/batch", r#"{"acknowledgments":[{"partitionId":"1"}]}"#),
    ] {
        let reply = node.call("POST", &format!("/api/v1/{path}"), body.as_bytes()).await;
        assert_eq!((reply.status, &reply.json()["code"]), (400, &json!("bad_body")), "{body}");
    }
    let empty = node.post("/api/v1/ack/batch", json!({"acknowledgments": []})).await;
    assert_eq!((empty.status, empty.json()), (200, json!([])));
}
