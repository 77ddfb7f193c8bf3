//! The framed answer of a pop, read as the layout says.

use crate::node::{Node, data};
use serde_json::{Value, json};

/// Reads little-endian numbers and texts.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn number(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn text(&mut self) -> &'a str {
        let length = self.number(2) as usize;
        std::str::from_utf8(self.take(length)).unwrap()
    }

    fn block(&mut self) -> &'a [u8] {
        let length = self.number(4) as usize;
        self.take(length)
    }
}

/// What a framed answer says, as the JSON one would.
fn unpack(bytes: &[u8]) -> Value {
    let mut all = Reader(bytes);
    assert_eq!(all.take(5), b"QPF1\x01");
    let mut answer: Value = serde_json::from_slice(all.block()).unwrap();
    answer["queue"] = json!(all.text());
    answer["leaseId"] = json!(all.text());
    answer["consumerGroup"] = json!(all.text());
    let mut messages = Vec::new();
    for _ in 0..all.number(4) {
        let (partition, name) = (all.number(8), all.text());
        let (first, last, attempt) = (all.number(8), all.number(8), all.number(4));
        for _ in 0..all.number(4) {
            let (base, created, count) = (all.number(8), all.number(8), all.number(4));
            assert_eq!(all.number(1), 0);
            let mut record = Reader(all.block());
            for offset in base..base + count {
                assert!((first..=last).contains(&offset));
                let mut message = Reader(record.block());
                let flags = message.number(1);
                let id: [u8; 16] = message.take(16).try_into().unwrap();
                let trace = (flags & 1 == 1).then(|| message.take(16));
                messages.push(json!({
                    "id": queen_core::MessageId(id).to_string(),
                    "traced": trace.is_some(),
                    "transactionId": message.text(),
                    "createdAt": queen_core::Stamp(created).to_iso(),
                    "partitionId": partition.to_string(),
                    "partition": name,
                    "offset": offset,
                    "deliveryAttempt": attempt,
                    "data": serde_json::from_slice::<Value>(message.0).unwrap(),
                }));
            }
            assert!(record.0.is_empty());
        }
    }
    assert!(all.0.is_empty());
    answer["messages"] = json!(messages);
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_framed_answer_says_what_the_json_one_says() {
    let node = Node::start().await;
    node.push_numbers("q", "a", 3).await;
    node.push(json!([{"queue": "q", "partition": "a", "payload": {"x": 1}, "transactionId": "t"}]))
        .await;
    let trace = "01a0b1c2-0000-7000-8000-000000000001";
    let item = json!({"queue": "q", "partition": "b", "payload": null, "traceId": trace});
    let push = json!({"operations": [{"type": "push", "items": [item]}]});
    assert_eq!(node.post("/api/v1/transaction", push).await.json()["success"], true);
    let path = "q?consumerGroup=g&subscriptionMode=all&partitions=9&batch=100&autopilot=true";
    let reply = node.get(&format!("/api/v1/pop/queue/{path}&frames=true")).await;
    assert!(reply.head.contains("application/x-queen-pop"), "{}", reply.head);
    let framed = unpack(&reply.body);
    let plain = node.pop(&path.replace("Group=g", "Group=h")).await;
    assert_eq!(data(&framed), data(&plain));
    assert_eq!(data(&framed).len(), 5);
    for (one, other) in
        framed["messages"].as_array().unwrap().iter().zip(plain["messages"].as_array().unwrap())
    {
        for name in [
            "id",
            "transactionId",
            "createdAt",
            "partitionId",
            "partition",
            "offset",
            "deliveryAttempt",
        ] {
            assert_eq!(one[name], other[name], "{name}");
        }
        assert_eq!(one["traced"], json!(other["traceId"] == trace));
    }
    assert_eq!((&framed["queue"], &framed["consumerGroup"]), (&json!("q"), &json!("g")));
    assert_eq!(framed["autopilot"], plain["autopilot"]);
    let lease = framed["leaseId"].as_str().unwrap();
    let extended = node.call("POST", &format!("/api/v1/lease/{lease}/extend"), b"").await.json();
    assert_eq!(extended["renewed"], 2, "{extended}");
    let rest = node.get("/api/v1/pop/queue/q?consumerGroup=g&frames=true").await;
    assert_eq!(rest.status, 204, "nothing has no frames");
}
