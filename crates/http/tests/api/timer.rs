//! Timers over HTTP, part B.12, and what the transaction route carries of them.

use crate::node::{Node, Reply, data, messages};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const PATH: &str = "/api/v1/timers";

fn set(key: &str, delay_ms: i64, payload: Value) -> Value {
    json!({"op": "schedule", "queue": "q", "timerKey": key, "delayMs": delay_ms, "txn": key,
        "payload": STANDARD.encode(payload.to_string())})
}

async fn one(node: &Node, operation: Value) -> Value {
    let reply = node.post(PATH, json!({"operations": [operation]})).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["results"][0].clone()
}

/// The next messages of a queue, waited for.
async fn next(node: &Node, rest: &str) -> Value {
    node.pop(&format!("{rest}?wait=true&timeout=20000&consumerGroup=g&subscriptionMode=all")).await
}

fn words<'a>(answer: &'a Value, members: &[&str]) -> Vec<&'a Value> {
    members.iter().map(|name| &answer[*name]).collect()
}

#[tokio::test]
async fn a_timer_wakes_who_waits_for_its_message_as_it_was_promised() {
    let node = Node::start().await;
    let waiting = next(&node, "q/partition/p");
    let setting = async {
        let mut timer = set("a/b", 300, json!({"n": 1}));
        timer["partition"] = json!("p");
        one(&node, timer).await
    };
    let (popped, done) = tokio::join!(waiting, setting);
    let members = ["ok", "status", "queue", "timerKey", "txn", "index", "op"];
    let want = json!([true, "scheduled", "q", "a/b", "a/b", 0, "schedule"]);
    assert_eq!(json!(words(&done, &members)), want);
    let message = &messages(&popped)[0];
    assert_eq!(
        json!(words(message, &["id", "transactionId", "data"])),
        json!([done["messageId"], "a/b", {"n": 1}])
    );
    let (due, made) = (done["deliverAt"].as_str().unwrap(), message["createdAt"].as_str().unwrap());
    assert!(made >= due && due.len() == 27, "due {due}, appended {made}");
    assert_eq!(node.get("/api/v1/timers/q/a/b").await.json()["found"], false);
    let absent = node.call("DELETE", "/api/v1/timers/q/a%2Fb?txn=mine", b"").await.json();
    assert_eq!(
        json!(words(&absent, &["ok", "status", "timerKey", "txn"])),
        json!([false, "absent", "a/b", "mine"])
    );
    // It is counted once its command was answered, which may be after the pop was.
    let fired = "queen_timers_total{outcome=\"fired\"} 1\n";
    let mut page = node.get("/metrics/prometheus").await.text();
    while !page.contains(fired) {
        page = node.get("/metrics/prometheus").await.text();
    }
    for line in ["queen_timers_total{outcome=\"scheduled\"} 1\n", "queen_timers_pending 0\n"] {
        assert!(page.contains(line), "{line} is not in {page}");
    }
}

#[tokio::test]
async fn a_timer_is_replaced_looked_at_and_taken_away() {
    let node = Node::start().await;
    let first = one(&node, set("k", 60_000, json!(1))).await;
    let mut again = set("k", 90_000, json!({"v": 2}));
    again["op"] = json!("reschedule");
    again["txn"] = Value::Null;
    let second = one(&node, again).await;
    assert_eq!(second["status"], "rescheduled");
    assert_eq!(second["txn"], second["messageId"], "which stands for the txn that was not given");
    assert!(second["deliverAt"].as_str() > first["deliverAt"].as_str());
    let peeked = node.get("/api/v1/timers/q/k").await.json();
    let members = [
        "found",
        "queue",
        "timerKey",
        "partition",
        "deliverAt",
        "txn",
        "messageId",
        "payloadZstd",
        "encrypted",
        "producerSub",
        "attempts",
        "lastError",
        "claimed",
    ];
    let want = json!([
        true,
        "q",
        "k",
        "Default",
        second["deliverAt"],
        second["txn"],
        second["messageId"],
        false,
        false,
        null,
        0,
        null,
        false
    ]);
    assert_eq!(json!(words(&peeked, &members)), want);
    assert_eq!(STANDARD.decode(peeked["payload"].as_str().unwrap()).unwrap(), b"{\"v\":2}");
    let cancelled = node.call("DELETE", "/api/v1/timers/q/k", b"").await.json();
    assert_eq!(
        json!(words(&cancelled, &["ok", "status", "txn", "messageId", "deliverAt"])),
        json!([true, "cancelled", second["txn"], second["messageId"], second["deliverAt"]])
    );
    let gone = node.get("/api/v1/timers/q/k").await;
    assert_eq!(
        (gone.status, gone.json()),
        (200, json!({"found": false, "queue": "q", "timerKey": "k"}))
    );
}

#[tokio::test]
async fn a_queues_timers_are_paged_and_counted() {
    let node = Node::start().await;
    let batch: Vec<Value> = (0..5).map(|n| set(&format!("a:{n}"), 60_000, json!(n))).collect();
    let reply = node.post(PATH, json!(batch)).await.json();
    let keys: Vec<_> = (0..5).map(|n| reply["results"][n]["timerKey"].clone()).collect();
    assert_eq!(keys, ["a:0", "a:1", "a:2", "a:3", "a:4"]);
    one(&node, set("b", 60_000, json!(9))).await;
    let page = node.get("/api/v1/timers/q?limit=2").await.json();
    assert_eq!(json!(words(&page, &["truncated", "nextAfter"])), json!([true, "a:1"]));
    assert_eq!(page["rows"][1]["timerKey"], "a:1");
    assert!(page["rows"][1].get("payload").is_none());
    let page = node.get("/api/v1/timers/q?after=a:1&limit=0&prefix=a").await.json();
    assert_eq!(
        (&page["rows"][0]["timerKey"], page["rows"].as_array().unwrap().len()),
        (&json!("a:2"), 1)
    );
    let page = node.get("/api/v1/timers/q?after=a:4").await.json();
    assert_eq!(json!(words(&page, &["truncated", "nextAfter"])), json!([false, null]));
    for (query, count) in
        [("mode=count", 6), ("mode=count&prefix=a:", 5), ("mode=count&prefix=x", 0)]
    {
        let counted = node.get(&format!("/api/v1/timers/q?{query}")).await.json();
        assert_eq!(counted["count"], count, "{query}");
    }
    assert_eq!(node.get("/api/v1/timers/none?mode=count").await.json()["count"], 0);
    assert_eq!(node.get("/api/v1/timers/none").await.json()["rows"], json!([]));
}

fn refused(reply: &Reply) -> Value {
    let body = reply.json();
    assert!(body["reason"].is_string() && body["detail"].is_string(), "{body}");
    json!([reply.status, body["error"]])
}

#[tokio::test]
async fn what_no_timer_takes_is_refused_and_nothing_of_the_call_is_set() {
    let node = Node::start().await;
    let good = set("good", 60_000, json!(1));
    let twice = json!([good, set("k", 1, json!(1)), set("k", 2, json!(2))]);
    assert_eq!(refused(&node.post(PATH, twice).await), json!([400, "timers_bad_request"]));
    let far = set("far", 90 * 86_400_000 + 1, json!(1));
    assert_eq!(
        refused(&node.post(PATH, json!([good, far])).await),
        json!([403, "timer_horizon_exceeded"])
    );
    let large = set("large", 1, json!("x".repeat(1 << 20)));
    assert_eq!(
        refused(&node.post(PATH, json!([good, large])).await),
        json!([413, "timer_payload_too_large"])
    );
    let mut forged = set("forged", 1, json!(1));
    forged["producerSub"] = json!("billing");
    assert_eq!(
        refused(&node.post(PATH, json!([good, forged])).await),
        json!([400, "timers_bad_request"])
    );
    assert_eq!(
        refused(&node.post(PATH, json!({"ops": []})).await),
        json!([400, "timers_bad_request"])
    );
    assert_eq!(node.get("/api/v1/timers/q?mode=count").await.json()["count"], 0);
    assert_eq!(node.get("/api/v1/resources/queues").await.json()["queues"], json!([]));
}

#[tokio::test]
async fn timers_ride_in_a_transaction() {
    let node = Node::start().await;
    one(&node, set("there", 60_000, json!(1))).await;
    let cancel = json!({"op": "cancel", "queue": "q", "timerKey": "there"});
    let gate = |expect: u64| {
        json!({"op": "put", "ns": "shop", "key": "k", "value": 1, "forever": true,
        "expect": expect, "required": true})
    };
    let bundle = |expect: u64| {
        json!({
            "operations": [{"type": "push", "queue": "other", "payload": 1}],
            "kv": [gate(expect)],
            "timers": [set("new", -5, json!({"n": 7})), cancel],
            "positions": [{"queue": "other", "consumerGroup": "h", "offset": null}],
        })
    };
    node.push(json!([{"queue": "other", "payload": 0}])).await;
    let lost = node.post("/api/v1/transaction", bundle(3)).await.json();
    assert_eq!(json!(words(&lost, &["success", "failedIndex"])), json!([false, 1]));
    assert_eq!(node.get("/api/v1/timers/q?mode=count").await.json()["count"], 1);
    let done = node.post("/api/v1/transaction", bundle(0)).await.json();
    assert_eq!(done["success"], true, "{done}");
    let kinds: Vec<_> = (0..5)
        .map(|at| json!(words(&done["results"][at], &["index", "type", "opIndex", "status"])))
        .collect();
    let want = json!([
        [0, "push", null, null],
        [1, "kv", 0, null],
        [2, "timer", 0, "scheduled"],
        [3, "timer", 1, "cancelled"],
        [4, "position", 0, null]
    ]);
    assert_eq!(json!(kinds), want);
    let popped = next(&node, "q").await;
    assert_eq!(data(&popped), [json!({"n": 7})]);
    assert_eq!(messages(&popped)[0]["id"], done["results"][2]["messageId"]);
    assert_eq!(node.get("/api/v1/timers/q?mode=count").await.json()["count"], 0);
}

#[tokio::test]
async fn the_binary_form_of_a_transaction_carries_timers_in_its_head() {
    let node = Node::start().await;
    let head = json!({"timers": [set("k", 0, json!([1]))]}).to_string();
    let mut body = b"QTB1\x00".to_vec();
    body.extend((head.len() as u32).to_le_bytes());
    body.extend(head.as_bytes());
    body.extend(0u32.to_le_bytes());
    let reply = node.post_binary("/api/v1/transaction", &body).await;
    assert_eq!(reply.json()["results"][0]["status"], "scheduled", "{}", reply.text());
    assert_eq!(data(&next(&node, "q").await), [json!([1])]);
}

#[tokio::test]
async fn timers_outlive_a_restart_and_those_that_fell_due_meanwhile_fire_once() {
    let node = Node::start().await;
    let keys: Vec<String> = (0..300).map(|n| format!("k{n:03}")).collect();
    for some in keys.chunks(150) {
        let set: Vec<Value> = some.iter().map(|key| set(key, 1_000, json!(key))).collect();
        assert_eq!(node.post(PATH, json!(set)).await.status, 200);
    }
    one(&node, set("never", 3_600_000, json!(0))).await;
    let node = node.restart().await;
    let mut got = Vec::new();
    while got.len() < keys.len() {
        let popped = next(&node, "q").await;
        got.extend(data(&popped));
        node.settle(&popped, "completed").await;
    }
    assert_eq!(got, keys, "in the order in which they fell due");
    let node = node.restart().await;
    assert_eq!(node.pop("q?consumerGroup=g").await, Value::Null);
    assert_eq!(node.get("/api/v1/timers/q?mode=count").await.json()["count"], 1);
}

#[tokio::test]
async fn switches_stop_setting_and_firing_and_kv_and_are_kept() {
    let node = Node::start().await;
    const SWITCHES: &str = "/api/v1/system/kv-timers";
    let all_on = json!({"kv": true, "timersSchedule": true, "timersFire": true});
    assert_eq!(node.get(SWITCHES).await.json(), all_on);
    one(&node, set("before", 300, json!(1))).await;
    let reply = node.post(SWITCHES, json!({"timersFire": false, "timersSchedule": false})).await;
    let off = json!({"kv": true, "timersSchedule": false, "timersFire": false});
    assert_eq!((reply.status, reply.json()), (200, off.clone()));
    let node = node.restart().await;
    assert_eq!(node.get(SWITCHES).await.json(), off);
    assert_eq!(
        refused(&node.post(PATH, json!([set("k", 0, json!(1))])).await),
        json!([503, "timers_disabled"])
    );
    let rider = json!({"timers": [set("k", 0, json!(1))]});
    let reply = node.post("/api/v1/transaction", rider).await;
    assert_eq!(refused(&reply), json!([503, "timers_disabled"]));
    assert_eq!(node.call("DELETE", "/api/v1/timers/q/none", b"").await.json()["status"], "absent");
    // One that fell due meanwhile is there still.
    assert_eq!(node.pop("q?wait=true&timeout=1500&consumerGroup=g").await, Value::Null);
    assert_eq!(node.get("/api/v1/timers/q/before").await.json()["found"], true);
    node.post(SWITCHES, json!({"timersFire": true, "kv": false})).await;
    assert_eq!(data(&next(&node, "q").await), [json!(1)]);
    let put = json!([{"op": "put", "ns": "n", "key": "k", "value": 1, "forever": true}]);
    let reply = node.post("/api/v1/kv", put.clone()).await;
    assert_eq!(refused(&reply), json!([503, "kv_disabled"]));
    for reply in [
        node.get("/api/v1/kv/n/k").await,
        node.post("/api/v1/transaction", json!({"kv": put})).await,
        node.get("/api/v1/resources/kv/namespaces").await,
    ] {
        assert_eq!(refused(&reply), json!([503, "kv_disabled"]));
    }
    let lock = json!([{"op": "acquire", "name": "n", "ttlSeconds": 9}]);
    assert_eq!(node.post("/api/v1/locks", lock).await.json()["results"][0]["acquired"], true);
    for body in [json!({}), json!({"kv": "yes"}), json!([])] {
        assert_eq!(node.post(SWITCHES, body).await.status, 400);
    }
}
