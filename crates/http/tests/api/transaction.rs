//! Transactions over HTTP, part B.4.

use crate::node::{Node, ack, data, messages};
use serde_json::{Value, json};

const PATH: &str = "/api/v1/transaction";

async fn commit(node: &Node, body: Value) -> Value {
    let reply = node.post(PATH, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// Checks that a transaction was rolled back, and why.
fn rolled_back(answer: &Value, reason: &str, text: &str) {
    assert_eq!(
        (&answer["success"], &answer["reason"]),
        (&json!(false), &json!(reason)),
        "{answer}"
    );
    assert_eq!(answer["results"], json!([]));
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains(text) && error.ends_with("transaction rolled back"), "{error}");
    assert_eq!(answer["transactionId"].as_str().unwrap().len(), 36);
}

/// The ack operation of a delivered message.
fn settle(message: &Value) -> Value {
    let mut operation = ack(message, "completed");
    operation["type"] = json!("ack");
    operation["consumerGroup"] = message["consumerGroup"].clone();
    operation
}

#[tokio::test]
async fn a_handoff_is_answered_as_the_clients_read_it() {
    let node = Node::start().await;
    node.push(json!([{"queue": "in", "payload": 1, "transactionId": "m"}])).await;
    let taken = node.pop("in?consumerGroup=g&subscriptionMode=all").await;
    let message = &messages(&taken)[0];
    let trace = "6f1a3d0e-0000-7000-8000-000000000000";
    let answer = commit(
        &node,
        json!({
            "operations": [
                settle(message),
                {"type": "push", "items": [
                    {"queue": "out", "payload": {"n": 2}, "transactionId": "r", "traceId": trace},
                    {"queue": "out", "payload": 3, "transactionId": "r"},
                ]},
                {"type": "push", "queue": "out", "partition": "p", "data": 4},
            ],
            "requiredLeases": [message["leaseId"]],
            "kv": [
                {"op": "put", "ns": "shop", "key": "k", "value": {"a": 1.50}, "forever": true},
                {"op": "get", "ns": "shop", "key": "k"},
            ],
            "positions": [{"queue": "in", "consumerGroup": "other", "offset": 1}],
        }),
    )
    .await;
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(answer["transactionId"].as_str().unwrap().len(), 36);
    let results = answer["results"].as_array().unwrap();
    let kinds: Vec<_> = results.iter().map(|result| result["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ack", "push", "push", "push", "kv", "kv", "position"]);
    let indexes: Vec<_> = results.iter().map(|result| result["index"].as_u64().unwrap()).collect();
    assert_eq!(indexes, [0, 1, 2, 3, 4, 5, 6]);
    let want = json!({"index": 0, "type": "ack", "success": true, "transactionId": "m",
        "error": null, "dlq": false, "noop": false});
    assert_eq!(results[0], want);
    let (first, repeat) = (&results[1], &results[2]);
    assert_eq!((&first["transactionId"], &first["queueName"]), (&json!("r"), &json!("out")));
    assert_eq!((&first["duplicate"], &repeat["duplicate"]), (&Value::Null, &json!(true)));
    assert_eq!(first["messageId"], repeat["messageId"]);
    assert_eq!(results[3]["transactionId"], results[3]["messageId"]);
    assert_eq!((&results[4]["applied"], &results[4]["opIndex"]), (&json!(true), &json!(0)));
    assert_eq!((&results[5]["value"], &results[5]["opIndex"]), (&json!({"a": 1.5}), &json!(1)));
    assert_eq!((&results[6]["offset"], &results[6]["opIndex"]), (&json!(1), &json!(0)));
    let next = node.pop("out/partition/Default").await;
    assert_eq!(data(&next), [json!({"n": 2})]);
    assert_eq!(messages(&next)[0]["traceId"], trace);
    assert_eq!(messages(&next)[0]["id"], first["messageId"]);
    assert_eq!(data(&node.pop("out/partition/p").await), [json!(4)]);
    for group in ["g", "other"] {
        assert_eq!(node.pop(&format!("in?consumerGroup={group}")).await, Value::Null);
    }
    let page = node.get("/metrics/prometheus").await.text();
    assert!(page.contains("queen_transactions_total{outcome=\"committed\"} 1\n"), "{page}");
}

#[tokio::test]
async fn nothing_of_a_rolled_back_transaction_is_there() {
    let node = Node::start().await;
    node.push(json!([{"queue": "in", "payload": 1, "transactionId": "m"}])).await;
    let taken = node.pop("in").await;
    let good = settle(&messages(&taken)[0]);
    let mut lapsed = good.clone();
    lapsed["leaseId"] = json!("01a0b1c2-1111-7000-8000-0000000000aa");
    let push = json!({"type": "push", "queue": "out", "payload": 1, "transactionId": "r"});
    let put = json!({"op": "put", "ns": "shop", "key": "k", "value": 1, "forever": true});
    let with = |ack: &Value, kv: Value| json!({"operations": [push, ack], "kv": kv});

    let answer = commit(&node, with(&lapsed, json!([put]))).await;
    rolled_back(&answer, "rejected_ack", "QTXN ack rejected: invalid or expired lease");
    assert_eq!(answer["failedIndex"], 1);
    let bogus = json!({"type": "ack", "transactionId": "m",
        "partitionId": "00000000-0000-7000-8000-000000000000"});
    let answer = commit(&node, with(&bogus, json!([put]))).await;
    rolled_back(&answer, "bad_request", "partitionId");
    let gate = json!({"op": "check", "ns": "shop", "key": "gate", "expect": 7, "required": true});
    let answer = commit(&node, with(&good, json!([put, gate]))).await;
    rolled_back(&answer, "kv_precondition", "");
    let verdict = ["ok", "failedIndex", "kvReason", "version", "value"].map(|key| &answer[key]);
    assert_eq!(json!(verdict), json!([false, 3, "absent", 0, null]));
    let nowhere = json!([{"queue": "none", "consumerGroup": "g", "offset": 0}]);
    let answer =
        commit(&node, json!({"operations": [push, good], "positions": nowhere, "kv": [put]})).await;
    rolled_back(&answer, "queue_not_found", "position");
    assert_eq!(answer["failedIndex"], 3);

    assert_eq!(node.pop("out").await, Value::Null);
    assert_eq!(node.get("/api/v1/kv/shop/k").await.json()["found"], false);
    let done = commit(&node, with(&good, json!([put]))).await;
    assert_eq!(done["success"], true, "{done}");
    let again = commit(&node, with(&good, json!([put]))).await;
    rolled_back(&again, "duplicate", "QDUP");
    assert_eq!(
        (again["error"].as_str().unwrap().find("QDUP"), &again["failedIndex"]),
        (Some(0), &json!(0))
    );
    assert_eq!(data(&node.pop("out").await), [json!(1)]);
}

#[tokio::test]
async fn what_is_malformed_is_a_400_with_its_code() {
    let node = Node::start().await;
    let prefix = json!([{"op": "getPrefix", "ns": "n", "prefix": "p"}]);
    let large = json!([{"op": "get", "ns": "n", "key": "k".repeat(513)}]);
    for (body, status, field, word) in [
        (json!({"operations": "x"}), 400, "code", "bad_body"),
        (json!({}), 400, "code", "bad_request"),
        (json!({"operations": [{"type": "timer"}]}), 400, "code", "bad_request"),
        (json!({"timers": [{}]}), 400, "error", "timers_bad_request"),
        (json!({"kv": prefix}), 400, "error", "kv_get_prefix_not_allowed_in_transaction"),
        (json!({"kv": [{"op": "get", "ns": "n"}]}), 400, "error", "kv_bad_request"),
        (json!({"kv": large}), 413, "error", "kv_key_too_large"),
    ] {
        let reply = node.post(PATH, body.clone()).await;
        assert_eq!((reply.status, &reply.json()[field]), (status, &json!(word)), "{body}");
    }
}

#[tokio::test]
async fn a_transaction_outlives_a_restart_whole() {
    let node = Node::start().await;
    node.push_numbers("in", "p", 2).await;
    let taken = node.pop("in").await;
    let operations: Vec<_> = messages(&taken)
        .iter()
        .flat_map(|message| {
            [settle(message), json!({"type": "push", "queue": "out", "payload": message["data"]})]
        })
        .collect();
    let put = json!({"op": "incr", "ns": "shop", "key": "n", "delta": 2, "forever": true});
    let done = commit(&node, json!({"operations": operations, "kv": [put]})).await;
    assert_eq!(done["success"], true, "{done}");
    let node = node.restart().await;
    assert_eq!(node.pop("in").await, Value::Null);
    assert_eq!(data(&node.pop("out").await), [json!(0), json!(1)]);
    assert_eq!(node.get("/api/v1/kv/shop/n").await.json()["value"], 2);
}
