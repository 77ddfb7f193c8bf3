//! Binary pushes and transactions over HTTP, part B.1.1.

use crate::node::{Node, ack, data, messages};
use serde_json::{Value, json};

fn text16(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
}

fn counted32(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

/// One group of messages with transaction ids, framed and packed.
fn framed(queue: &str, messages: &[(&str, &str)]) -> Vec<u8> {
    let mut frames = Vec::new();
    for (id, payload) in messages {
        let mut frame = vec![0];
        frame.extend([7; 16]);
        text16(&mut frame, id);
        frame.extend(payload.as_bytes());
        counted32(&mut frames, &frame);
    }
    let mut out = 1u32.to_le_bytes().to_vec();
    text16(&mut out, queue);
    text16(&mut out, "Default");
    out.extend((messages.len() as u32).to_le_bytes());
    counted32(&mut out, &zstd::bulk::compress(&frames, 1).unwrap());
    out
}

fn push_body(flags: u8, groups: &[u8]) -> Vec<u8> {
    [b"QPB1", &[flags][..], groups].concat()
}

#[tokio::test]
async fn a_binary_push_is_answered_as_its_json_twin_or_with_counts() {
    let node = Node::start().await;
    let groups = framed("q", &[("a", "{\"n\": 1.0}"), ("a", "2"), ("b", "null")]);
    let reply = node.post_binary("/api/v1/push", &push_body(8, &groups)).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let results = reply.json();
    let statuses: Vec<_> = (0..3).map(|at| results[at]["status"].clone()).collect();
    assert_eq!(statuses, ["queued", "duplicate", "queued"]);
    assert_eq!(results[2]["transaction_id"], "b");
    let again = node.post_binary("/api/v1/push", &push_body(8 | 2, &groups)).await;
    let counts = json!({"count": 3, "queued": 0, "duplicate": 3, "error": 0});
    assert_eq!((again.status, again.json()), (201, counts));
    let none = node.post_binary("/api/v1/push", &push_body(0, &[0; 4])).await;
    assert_eq!((none.status, none.json()), (201, json!([])));
    let bad = node.post_binary("/api/v1/push", b"{\"items\":[]}").await;
    assert_eq!((bad.status, &bad.json()["code"]), (400, &json!("bad_body")));
    let popped = node.pop("q").await;
    assert_eq!(data(&popped), [json!({"n": 1.0}), Value::Null]);
    assert_eq!(messages(&popped)[0]["id"], results[0]["message_id"]);
}

#[tokio::test]
async fn a_binary_transaction_answers_its_head_first_and_then_its_pushes() {
    let node = Node::start().await;
    node.push_numbers("in", "p", 2).await;
    let taken = messages(&node.pop("in").await);
    let body = |message: &Value, flags: u8, id: &str| {
        let mut settle = ack(message, "completed");
        settle["type"] = json!("ack");
        let put = json!({"op": "incr", "ns": "shop", "key": "n", "forever": true});
        let head = json!({"operations": [settle], "kv": [put]}).to_string();
        let mut body = [b"QTB1", &[flags][..]].concat();
        counted32(&mut body, head.as_bytes());
        body.extend(framed("out", &[(id, "1"), (id, "2")]));
        body
    };
    let path = "/api/v1/transaction";
    let reply = node.post_binary(path, &body(&taken[0], 0, "r")).await;
    let answer = reply.json();
    assert_eq!((reply.status, &answer["success"]), (200, &json!(true)), "{answer}");
    let kinds: Vec<_> = (0..4).map(|at| answer["results"][at]["type"].clone()).collect();
    assert_eq!(kinds, ["ack", "push", "push", "kv"]);
    assert_eq!(answer["results"][2]["duplicate"], true);
    let refused = node.post_binary(path, &body(&taken[1], 0, "r")).await.json();
    assert_eq!((&refused["reason"], &refused["failedIndex"]), (&json!("duplicate"), &json!(1)));
    let counted = node.post_binary(path, &body(&taken[1], 2, "s")).await.json();
    let counts = ["pushed", "duplicate", "acked"].map(|name| &counted[name]);
    assert_eq!(json!(counts), json!([1, 1, 1]), "{counted}");
    let results = counted["results"].as_array().unwrap();
    assert_eq!(
        (results.len(), &results[0]["index"], &results[0]["value"]),
        (1, &json!(3), &json!(2))
    );
    assert_eq!(data(&node.pop("out").await), [json!(1), json!(1)]);
    let mut bare = b"QTB1\0\0\0\0\0".to_vec();
    bare.extend(framed("out", &[("t", "3")]));
    assert_eq!(node.post_binary(path, &bare).await.json()["success"], true);
    assert_eq!(node.post_binary(path, b"QTB1").await.status, 400);
}
