//! Ephemeral queues over HTTP, part B.13: shapes, refusals, waiting.

use crate::node::{Node, Reply, messages};
use serde_json::{Value, json};
use std::time::Duration;

const PUSH: &str = "/api/v1/ephemeral/push";
const POP: &str = "/api/v1/ephemeral/pop";
const ACK: &str = "/api/v1/ephemeral/ack";
const CONFIGURE: &str = "/api/v1/ephemeral/configure";
const SWITCH: &str = "/api/v1/system/ephemeral";

async fn push(node: &Node, queue: &str, payloads: &[Value]) -> Reply {
    let messages: Value = payloads.iter().map(|payload| json!({ "payload": payload })).collect();
    node.post(PUSH, json!({"queue": queue, "messages": messages})).await
}

async fn pushed(node: &Node, queue: &str, payloads: &[Value]) {
    let reply = push(node, queue, payloads).await;
    assert_eq!((reply.status, reply.json()), (201, json!({"pushed": payloads.len()})));
}

async fn pop(node: &Node, query: &str) -> Value {
    let reply = node.get(&format!("{POP}?{query}")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn payloads(popped: &Value) -> Vec<Value> {
    messages(popped).iter().map(|message| message["payload"].clone()).collect()
}

async fn ack(node: &Node, group: Option<&str>, popped: &Value, status: &str) -> Vec<Value> {
    let item = |message: &Value| json!({"id": message["id"], "status": status, "error": "boom"});
    let acks: Value = messages(popped).iter().map(item).collect();
    let reply =
        node.post(ACK, json!({"queue": popped["queue"], "group": group, "acks": acks})).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let results = reply.json()["results"].as_array().cloned().unwrap();
    results.iter().map(|result| result["outcome"].clone()).collect()
}

fn refused(reply: &Reply) -> Value {
    let body = reply.json();
    assert!(body["error"].as_str().is_some_and(|text| text.len() > 10), "{body}");
    json!([reply.status, body["code"]])
}

#[tokio::test]
async fn what_is_pushed_is_popped_byte_for_byte_and_acked_by_its_id() {
    let node = Node::start().await;
    let body = br#"{"queue":"in box","partition":"a:b","messages":[{"payload":{"b": 1.50,"a":[ ]}},{"payload":null}]}"#;
    let reply = node.call("POST", PUSH, body).await;
    assert_eq!((reply.status, reply.json()), (201, json!({"pushed": 2})));
    let reply = node.get(&format!("{POP}?queue=in%20box&partition=a:b&batch=9&group=g%26h")).await;
    let text = reply.text();
    assert!(text.contains("\"payload\":{\"b\": 1.50,\"a\":[ ]}"), "{text}");
    let popped = reply.json();
    assert_eq!(popped["queue"], "in box");
    let first = &messages(&popped)[0];
    assert_eq!(json!([first["partition"], first["attempts"]]), json!(["a:b", 1]));
    let id = first["id"].as_str().unwrap();
    assert!(id.starts_with("e:") && id.ends_with(":a:b:1"), "{id}");
    assert_eq!(ack(&node, None, &popped, "completed").await, ["unknown", "unknown"]);
    assert_eq!(ack(&node, Some("g&h"), &popped, "completed").await, ["acked", "acked"]);
    assert_eq!(ack(&node, Some("g&h"), &popped, "completed").await, ["unknown", "unknown"]);
    let none = pop(&node, "queue=in%20box&partition=a:b&group=g%26h").await;
    assert_eq!(none, json!({"queue": "in box", "messages": []}));
}

#[tokio::test]
async fn a_pop_without_sizes_takes_one_of_the_default_partition() {
    let node = Node::start().await;
    pushed(&node, "q", &[json!(1), json!(2)]).await;
    let popped = pop(&node, "queue=q").await;
    assert_eq!(
        json!([payloads(&popped), messages(&popped)[0]["partition"]]),
        json!([[1], "Default"])
    );
    assert_eq!(payloads(&pop(&node, "queue=q&partition=Default").await), [json!(2)]);
    assert_eq!(payloads(&pop(&node, "queue=q&group=own&batch=9").await), [json!(1), json!(2)]);
    // The durable queue of the same name is another.
    assert_eq!(node.get("/api/v1/resources/queues").await.json()["queues"], json!([]));
}

#[tokio::test]
async fn a_message_that_fails_comes_again_until_it_is_given_up() {
    let node = Node::start().await;
    let options = json!({"queue": "q", "options": {"retryLimit": 1}});
    assert_eq!(node.post(CONFIGURE, options).await.status, 201);
    pushed(&node, "q", &[json!(1)]).await;
    let popped = pop(&node, "queue=q").await;
    assert_eq!(ack(&node, None, &popped, "no such word").await, ["redelivered"]);
    let again = pop(&node, "queue=q&wait=true&timeout=20000").await;
    let of = |popped: &Value| messages(popped)[0].clone();
    assert_eq!(json!([of(&again)["id"], of(&again)["attempts"]]), json!([of(&popped)["id"], 2]));
    assert_eq!(ack(&node, None, &again, "failed").await, ["acked"]);
    assert_eq!(payloads(&pop(&node, "queue=q").await), [""; 0]);
    let page = node.get("/metrics/prometheus").await.text();
    assert!(page.contains("queen_ephemeral_dropped_total{cause=\"retry\"} 1\n"), "{page}");
    assert!(page.contains("queen_ephemeral_dropped_total{cause=\"ttl\"} 0\n"));
}

#[tokio::test]
async fn what_is_committed_at_delivery_needs_no_ack() {
    let node = Node::start().await;
    for name in ["autoAck", "commitOnDelivery"] {
        pushed(&node, "q", &[json!(1)]).await;
        let popped = pop(&node, &format!("queue=q&{name}=true")).await;
        assert_eq!(payloads(&popped), [json!(1)]);
        assert_eq!(ack(&node, None, &popped, "completed").await, ["unknown"]);
    }
    let depth = node.get("/api/v1/ephemeral/queues/q/depth").await.json();
    assert_eq!(json!([depth["depth"], depth["bytes"]]), json!([0, 0]));
}

#[tokio::test]
async fn a_pop_that_waits_is_woken_by_a_push_and_by_the_end_of_a_lease() {
    let node = Node::start().await;
    let options = json!({"queue": "q", "options": {"leaseSeconds": 1}});
    node.post(CONFIGURE, options).await;
    let waiting = pop(&node, "queue=q&wait=true&timeout=60000");
    let one = [json!(1)];
    let (popped, ()) = tokio::join!(waiting, pushed(&node, "q", &one));
    assert_eq!(payloads(&popped), [json!(1)]);
    let again = pop(&node, "queue=q&wait=true&timeout=60000").await;
    assert_eq!(json!([payloads(&again), messages(&again)[0]["attempts"]]), json!([[1], 2]));
    assert_eq!(payloads(&pop(&node, "queue=q&wait=true&timeout=30").await), [""; 0]);
}

#[tokio::test]
async fn each_of_many_that_wait_is_given_another_message() {
    let node = Node::start().await;
    let waits = || pop(&node, "queue=q&wait=true&timeout=60000&autoAck=true");
    let all: Vec<Value> = (0..4).map(|n| json!(n)).collect();
    let (a, b, c, d, ()) =
        tokio::join!(waits(), waits(), waits(), waits(), pushed(&node, "q", &all));
    let mut got: Vec<u64> =
        [a, b, c, d].iter().map(|popped| payloads(popped)[0].as_u64().unwrap()).collect();
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_waiting_pop_gathers_as_the_queue_says() {
    let node = Node::start().await;
    let window = json!({"queue": "q", "options": {"windowBuffer": {"ms": 60_000, "count": 2}}});
    node.post(CONFIGURE, window).await;
    let pushes = async {
        pushed(&node, "q", &[json!(1)]).await;
        pushed(&node, "q", &[json!(2)]).await;
    };
    let (popped, ()) = tokio::join!(pop(&node, "queue=q&batch=9&wait=true&timeout=60000"), pushes);
    assert_eq!(payloads(&popped), [json!(1), json!(2)]);
    pushed(&node, "q", &[json!(3)]).await;
    let late = pop(&node, "queue=q&batch=9&wait=true&timeout=40").await;
    assert_eq!(payloads(&late), [json!(3)], "its own time ends the gathering");
}

#[tokio::test]
async fn a_full_queue_refuses_or_drops_as_it_says() {
    let node = Node::start().await;
    for (queue, policy) in [("r", "reject"), ("d", "dropOldest")] {
        let options = json!({"maxLength": 2, "policy": policy});
        let reply = node.post(CONFIGURE, json!({"queue": queue, "options": options})).await;
        assert_eq!(
            (reply.status, reply.json()),
            (201, json!({"queue": queue, "options": options}))
        );
        pushed(&node, queue, &[json!(1), json!(2)]).await;
    }
    let reply = push(&node, "r", &[json!(3)]).await;
    assert_eq!(refused(&reply), json!([429, "queue_full"]));
    assert!(reply.head.contains("retry-after: 1"), "{}", reply.head);
    pushed(&node, "d", &[json!(3)]).await;
    assert_eq!(payloads(&pop(&node, "queue=r&batch=9").await), [json!(1), json!(2)]);
    assert_eq!(payloads(&pop(&node, "queue=d&batch=9").await), [json!(2), json!(3)]);
    let reply = push(&node, "d", &[json!(1), json!(2), json!(3)]).await;
    assert_eq!(refused(&reply), json!([413, "push_too_large"]));
}

#[tokio::test]
async fn queues_are_shown_emptied_and_deleted() {
    let node = Node::start().await;
    node.post(CONFIGURE, json!({"queue": "reply/42", "options": {"leaseSeconds": 9}})).await;
    pushed(&node, "implicit", &[json!("abc"), json!(1)]).await;
    pop(&node, "queue=implicit&group=g").await;
    let shown = node.get("/api/v1/ephemeral/queues").await.json();
    let want = json!({"total": 2, "queues": [
        {"queue": "implicit", "declared": false, "depth": 2, "bytes": 6, "partitions": 1},
        {"queue": "reply/42", "declared": true, "depth": 0, "bytes": 0, "partitions": 0}]});
    assert_eq!(shown, want);
    let depth = node.get("/api/v1/ephemeral/queues/implicit/depth").await.json();
    assert_eq!(depth["groups"], json!([{"group": "g", "pending": 1, "leased": 1}]));
    let depth = node.get("/api/v1/ephemeral/queues/reply%2F42/depth").await.json();
    let holds = &depth["options"];
    assert_eq!(
        json!([holds["leaseSeconds"], holds["retryLimit"], holds["policy"]]),
        json!([9, 5, "reject"])
    );
    let none = node.get("/api/v1/ephemeral/queues/none/depth").await;
    assert_eq!(refused(&none), json!([404, "ephemeral_queue_not_found"]));

    let reset = |queue| node.post("/api/v1/ephemeral/reset", json!({ "queue": queue }));
    assert_eq!(reset("implicit").await.json(), json!({"queue": "implicit", "dropped": 2}));
    assert_eq!(reset("none").await.json(), json!({"queue": "none", "dropped": 0}));
    for (path, queue, was, declared) in [
        ("reply%2F42", "reply/42", true, true),
        ("reply%2F42", "reply/42", false, false),
        ("implicit", "implicit", true, false),
    ] {
        let reply = node.call("DELETE", &format!("/api/v1/ephemeral/queue/{path}"), b"").await;
        let want = json!({"queue": queue, "deleted": was, "declared": declared});
        assert_eq!((reply.status, reply.json()), (200, want));
    }
    assert_eq!(node.get("/api/v1/ephemeral/queues").await.json()["total"], 0);
    let page = node.get("/metrics/prometheus").await.text();
    for line in [
        "queen_ephemeral_bytes 0\n",
        "queen_ephemeral_wipes_total{cause=\"reset\"} 1\n",
        "queen_ephemeral_wipes_total{cause=\"deleted\"} 0\n",
        "queen_ephemeral_wipes_total{cause=\"owner\"} 0\n",
    ] {
        assert!(page.contains(line), "{line} is not in {page}");
    }
}

#[tokio::test]
async fn a_deleted_queue_lets_those_go_who_wait_there() {
    let node = Node::start().await;
    let waiting = pop(&node, "queue=q&wait=true&timeout=60000");
    let deleting = async {
        // Once somebody waits there the queue is shown.
        while node.get("/api/v1/ephemeral/queues").await.json()["total"] == 0 {}
        node.call("DELETE", "/api/v1/ephemeral/queue/q", b"").await
    };
    let (popped, _) =
        tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(waiting, deleting) })
            .await
            .unwrap();
    assert_eq!(popped, json!({"queue": "q", "messages": []}));
}

#[tokio::test]
async fn a_restart_keeps_what_is_declared_and_loses_what_was_pushed() {
    let node = Node::start().await;
    node.post(CONFIGURE, json!({"queue": "q", "options": {"maxLength": 1}})).await;
    pushed(&node, "q", &[json!(1)]).await;
    let popped = pop(&node, "queue=q").await;
    let node = node.restart().await;
    assert_eq!(ack(&node, None, &popped, "completed").await, ["stale"]);
    assert_eq!(payloads(&pop(&node, "queue=q").await), [""; 0]);
    pushed(&node, "q", &[json!(2)]).await;
    assert_eq!(refused(&push(&node, "q", &[json!(3)]).await), json!([429, "queue_full"]));
    assert_eq!(ack(&node, None, &popped, "completed").await, ["stale"]);
}

#[tokio::test]
async fn what_no_call_may_hold_is_refused() {
    let node = Node::start().await;
    let long = "n".repeat(412);
    let bodies = [
        (PUSH, json!({"messages": []}), 400, "bad_request"),
        (PUSH, json!({"queue": "q"}), 400, "bad_request"),
        (PUSH, json!({"queue": "q", "messages": [{}]}), 400, "bad_request"),
        (PUSH, json!({"queue": 7, "messages": []}), 400, "bad_body"),
        (PUSH, json!({"queue": long, "messages": []}), 413, "name_too_long"),
        (ACK, json!({"queue": "q"}), 400, "bad_request"),
        (ACK, json!({"queue": "q", "acks": [{"status": "completed"}]}), 400, "bad_request"),
        (CONFIGURE, json!({"queue": "q", "options": {"ttlSecond": 1}}), 400, "bad_request"),
        (CONFIGURE, json!({"queue": "q", "options": []}), 400, "bad_request"),
        (CONFIGURE, json!({"options": {}}), 400, "bad_request"),
        ("/api/v1/ephemeral/reset", json!({}), 400, "bad_request"),
        (SWITCH, json!({}), 400, "bad_request"),
        (SWITCH, json!({"enabled": 1}), 400, "bad_request"),
    ];
    for (path, body, status, code) in bodies {
        let reply = node.post(path, body.clone()).await;
        assert_eq!(refused(&reply), json!([status, code]), "{path} {body}");
    }
    for query in
        ["", "queue=", "queue=q&batch=0", "queue=q&batch=x", "queue=q&wait=true&timeout=-1"]
    {
        let reply = node.get(&format!("{POP}?{query}")).await;
        assert_eq!(refused(&reply), json!([400, "bad_request"]), "{query}");
    }
    assert_eq!(push(&node, "q", &[]).await.json(), json!({"pushed": 0}));
    assert_eq!(node.get("/api/v1/ephemeral/queues").await.json()["total"], 0);
}

#[tokio::test]
async fn the_switch_stops_calls_wakes_who_waits_and_is_kept() {
    let node = Node::start().await;
    assert_eq!(node.get(SWITCH).await.json(), json!({"enabled": true}));
    pushed(&node, "q", &[json!(1)]).await;
    let waiting = async {
        let reply = node.get(&format!("{POP}?queue=other&wait=true&timeout=60000")).await;
        refused(&reply)
    };
    let turning = async {
        while node.get("/api/v1/ephemeral/queues").await.json()["total"] == 1 {}
        node.post(SWITCH, json!({"enabled": false})).await.json()
    };
    let (waited, turned) = tokio::join!(waiting, turning);
    assert_eq!((waited, turned), (json!([503, "ephemeral_disabled"]), json!({"enabled": false})));
    for reply in [
        push(&node, "q", &[json!(2)]).await,
        node.get(&format!("{POP}?queue=q")).await,
        node.post(ACK, json!({"queue": "q", "acks": [{"id": "e:1:p:1"}]})).await,
        node.post(CONFIGURE, json!({"queue": "q"})).await,
    ] {
        assert_eq!(refused(&reply), json!([503, "ephemeral_disabled"]));
    }
    assert_eq!(node.get("/api/v1/ephemeral/queues/q/depth").await.json()["depth"], 1);
    let node = node.restart().await;
    assert_eq!(node.get(SWITCH).await.json(), json!({"enabled": false}));
    node.post(SWITCH, json!({"enabled": true})).await;
    pushed(&node, "q", &[json!(3)]).await;
    let other = node.get("/api/v1/system/kv-timers").await.json();
    assert_eq!(other, json!({"kv": true, "timersSchedule": true, "timersFire": true}));
}
