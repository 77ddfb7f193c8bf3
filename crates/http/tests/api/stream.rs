//! The broker's side of stream runtimes over HTTP, part B.14.

use crate::node::{Node, messages};
use serde_json::{Value, json};

async fn call(node: &Node, route: &str, body: Value) -> Value {
    let reply = node.post(&format!("/streams/v1/{route}"), body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

async fn query(node: &Node, reset: bool) -> Value {
    let body = json!({"name": "totals", "source_queue": "in", "sink_queue": "out",
        "config_hash": "h1", "reset": reset});
    call(node, "queries", body).await
}

/// Pops for the query's group: one partition, all of it.
async fn take(node: &Node) -> Value {
    node.pop("in?consumerGroup=streams.totals&subscriptionMode=all&leaseSeconds=30").await
}

/// The cycle that is done with the first `count` messages of a pop.
fn cycle(query: &Value, popped: &Value, count: usize) -> Value {
    let last = &messages(popped)[count - 1];
    json!({
        "query_id": query["query_id"],
        "partition_id": popped["partitionId"],
        "consumer_group": "streams.totals",
        "state_ops": [],
        "push_items": [],
        "ack": {"transactionId": last["transactionId"], "leaseId": last["leaseId"],
            "status": "completed", "count": count},
        "release_lease": true,
    })
}

fn keys(answer: &Value) -> Vec<&str> {
    let rows = answer["rows"].as_array().unwrap();
    rows.iter().map(|row| row["key"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_query_is_registered_found_again_and_reset() {
    let node = Node::start().await;
    let first = query(&node, false).await;
    let want = json!({"success": true, "query_id": first["query_id"], "name": "totals",
        "config_hash": "h1", "fresh": true, "reset": false});
    assert_eq!((&first, first["query_id"].as_str().unwrap().len()), (&want, 36));
    let again = query(&node, false).await;
    assert_eq!((&again["query_id"], &again["fresh"]), (&first["query_id"], &json!(false)));

    let mut other = json!({"name": "totals", "source_queue": "in", "config_hash": "h2"});
    let reply = node.post("/streams/v1/queries", other.clone()).await;
    let answer = reply.json();
    assert_eq!((reply.status, &answer["success"]), (409, &json!(false)));
    assert_eq!((&answer["query_id"], &answer["name"]), (&first["query_id"], &json!("totals")));
    assert!(answer["error"].as_str().unwrap().starts_with("config_hash mismatch: "), "{answer}");
    other["reset"] = json!(true);
    let reset = call(&node, "queries", other.clone()).await;
    assert_eq!((&reset["query_id"], &reset["reset"]), (&first["query_id"], &json!(true)));
    let node = node.restart().await;
    other["reset"] = json!(false);
    assert_eq!(call(&node, "queries", other).await["query_id"], first["query_id"]);
}

#[tokio::test]
async fn a_cycle_commits_state_pushes_and_the_ack_and_answers_in_the_clients_form() {
    let node = Node::start().await;
    let query = query(&node, false).await;
    node.push_numbers("in", "p", 3).await;
    let popped = take(&node).await;
    let mut asked = cycle(&query, &popped, 3);
    asked["state_ops"] = json!([
        {"type": "upsert", "key": "t\u{1f}w\u{1f}u", "value": {"acc": 1.50, "windowEnd": 1000}},
        {"type": "upsert", "key": "gone", "value": 1},
        {"type": "delete", "key": "gone"},
    ]);
    asked["push_items"] = json!([
        {"queue": "out", "partition": "p", "payload": {"sum": 3}, "transactionId": "r"},
        {"queue": "out", "partition": "p", "payload": {"sum": 4}},
        {"queue": "out", "partition": "", "data": 5},
    ]);
    let mut lost = asked.clone();
    lost["push_items"][1]["queue"] = json!("");
    let refused = node.post("/streams/v1/cycle", lost).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!(refused.json()["error"], "push_items 1: it names no queue");
    let answer = call(&node, "cycle", asked.clone()).await;
    let want = json!({
        "success": true,
        "query_id": query["query_id"],
        "partition_id": popped["partitionId"],
        "queueName": "in",
        "state_ops_applied": 3,
        "push_results": [
            {"queue": "out", "partition": "p", "status": "queued", "baseOffset": 0, "count": 2},
            {"queue": "out", "partition": "Default", "status": "queued", "baseOffset": 0, "count": 1},
        ],
        "ack_result": {"success": true, "count": 3, "lease_released": true, "dlq": false},
    });
    assert_eq!(answer, want);
    let out = node.pop("out/partition/p").await;
    assert_eq!(messages(&out)[0]["transactionId"], "r");
    assert_eq!(messages(&out)[1]["data"], json!({"sum": 4}));
    assert_eq!(take(&node).await, Value::Null, "the batch is settled");

    // Sent again it does nothing, and says why.
    let refused = call(&node, "cycle", asked.clone()).await;
    assert_eq!((&refused["success"], &refused["ack_result"]), (&json!(false), &Value::Null));
    assert_eq!(refused["error"], "invalid or expired lease");
    assert_eq!((&refused["queueName"], &refused["push_results"]), (&json!("in"), &json!([])));
    // Without an ack no lease is asked for; what is stored already is not stored again.
    asked["ack"] = Value::Null;
    asked["push_items"] =
        json!([{"queue": "out", "partition": "p", "payload": 0, "transactionId": "r"}]);
    let flushed = call(&node, "cycle", asked.clone()).await;
    assert_eq!(flushed["ack_result"], Value::Null);
    let stored = &flushed["push_results"][0];
    assert_eq!((&stored["status"], &stored["baseOffset"]), (&json!("duplicate"), &json!(0)));

    let get =
        json!({"query_id": query["query_id"], "partition_id": popped["partitionId"], "keys": []});
    let node = node.restart().await;
    let state = call(&node, "state/get", get).await;
    let row = &state["rows"][0];
    assert_eq!((&state["success"], keys(&state).len()), (&json!(true), 1));
    assert_eq!(row["value"], json!({"acc": 1.50, "windowEnd": 1000}));
    assert!(row["updated_at"].as_str().unwrap().ends_with('Z'));

    for (name, value) in [("partition_id", json!("999")), ("query_id", json!("none"))] {
        let mut lost = asked.clone();
        lost[name] = value;
        let answer = call(&node, "cycle", lost).await;
        assert_eq!((&answer["success"], &answer["queueName"]), (&json!(false), &Value::Null));
        assert!(answer["error"].as_str().unwrap().contains(name), "{answer}");
    }
}

#[tokio::test]
async fn a_gate_keeps_its_lease_and_a_failed_cycle_gives_it_back() {
    let node = Node::start().await;
    let query = query(&node, false).await;
    node.push_numbers("in", "p", 4).await;
    let popped = take(&node).await;
    let mut gate = cycle(&query, &popped, 2);
    gate["release_lease"] = json!(false);
    let kept = call(&node, "cycle", gate.clone()).await;
    assert_eq!(kept["ack_result"]["lease_released"], false, "{kept}");
    assert_eq!(take(&node).await, Value::Null);
    assert_eq!(call(&node, "cycle", gate).await["error"], "already committed");
    let mut failed = cycle(&query, &popped, 4);
    failed["ack"]["status"] = json!("failed");
    assert_eq!(call(&node, "cycle", failed).await["ack_result"]["lease_released"], true);
    let again = take(&node).await;
    assert_eq!(crate::node::data(&again), [json!(2), json!(3)]);
    assert_eq!(messages(&again)[0]["deliveryAttempt"], 2);
}

#[tokio::test]
async fn state_is_read_by_key_by_prefix_and_by_the_end_of_its_window() {
    let node = Node::start().await;
    let query = query(&node, false).await;
    node.push_numbers("in", "p", 1).await;
    let popped = take(&node).await;
    let mut asked = cycle(&query, &popped, 1);
    let upsert = |key: &str, value: Value| json!({"type": "upsert", "key": key, "value": value});
    asked["state_ops"] = json!([
        upsert("a:1", json!({"windowEnd": 1000})),
        upsert("a:2", json!({"windowEnd": 2000.5})),
        upsert("b:1", json!({"windowEnd": "1000"})),
        upsert("b:2", json!(7)),
    ]);
    call(&node, "cycle", asked).await;
    let get = async |more: Value| {
        let mut body =
            json!({"query_id": query["query_id"], "partition_id": popped["partitionId"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call(&node, "state/get", body).await
    };
    assert_eq!(keys(&get(json!({})).await), ["a:1", "a:2", "b:1", "b:2"]);
    assert_eq!(keys(&get(json!({"keys": ["b:2", "x", "a:1"]})).await), ["b:2", "a:1"]);
    assert_eq!(keys(&get(json!({"key_prefix": "b"})).await), ["b:1", "b:2"]);
    assert_eq!(keys(&get(json!({"keys": ["a:1", "b:1"], "key_prefix": "a"})).await), ["a:1"]);
    assert_eq!(keys(&get(json!({"ripe_at_or_before": 2000})).await), ["a:1"]);
    assert_eq!(keys(&get(json!({"ripe_at_or_before": 2000.5})).await), ["a:1", "a:2"]);
    let none = get(json!({"key_prefix": "b", "ripe_at_or_before": 9000})).await;
    assert_eq!(keys(&none), Vec::<&str>::new());
    assert_eq!(get(json!({"partition_id": "x"})).await["rows"], json!([]));
}

#[tokio::test]
async fn quiet_partitions_are_found_claimed_and_closed_once() {
    let node = Node::start().await;
    let query = query(&node, false).await;
    let id = &query["query_id"];
    let mut partitions = Vec::new();
    for name in ["p", "r", "s"] {
        node.push_numbers("in", name, 1).await;
        let popped = take(&node).await;
        let mut asked = cycle(&query, &popped, 1);
        asked["state_ops"] = json!([{"type": "upsert", "key": "w", "value": {"n": 1}}]);
        call(&node, "cycle", asked).await;
        partitions.push(popped["partitionId"].clone());
    }
    let found = call(&node, "state/partitions", json!({"query_id": id, "limit": 2})).await;
    assert_eq!((&found["success"], &found["next"]), (&json!(true), &partitions[1]));
    let first = &found["partitions"][0];
    let want = json!({"partition_id": partitions[0], "partition": "p", "queue": "in",
        "updated_at": first["updated_at"]});
    assert_eq!(first, &want);
    let rest = json!({"query_id": id, "limit": 2, "after": found["next"]});
    let rest = call(&node, "state/partitions", rest).await;
    assert_eq!((&rest["partitions"][0]["partition"], &rest["next"]), (&json!("s"), &Value::Null));
    let touched = json!({"query_id": id, "untouched_for_ms": 60_000});
    assert_eq!(call(&node, "state/partitions", touched).await["partitions"], json!([]));

    node.push_numbers("in", "r", 1).await;
    let ask = json!({"query_id": id, "partition_ids": [partitions[0], partitions[1], "x", "77"],
        "lease_seconds": 5000});
    let claimed = call(&node, "claim", ask.clone()).await;
    assert_eq!((&claimed["success"], &claimed["lease_seconds"]), (&json!(true), &json!(600)));
    assert!(claimed["now_ms"].as_u64().unwrap() > 1_700_000_000_000);
    let words = |claimed: &Value| -> Vec<Value> {
        let all = claimed["partitions"].as_array().unwrap();
        all.iter().map(|one| one["status"].clone()).collect()
    };
    assert_eq!(words(&claimed), ["claimed", "backlog", "missing", "missing"]);
    let one = &claimed["partitions"][0];
    assert_eq!((&one["partition_id"], &one["partition"]), (&partitions[0], &json!("p")));
    assert!(one["lease_expires_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(claimed["partitions"][2]["partition_id"], "x");
    assert_eq!(words(&call(&node, "claim", ask).await)[0], "busy");

    let close = json!({"query_id": id, "partition_id": partitions[0], "consumer_group": "streams.totals",
        "state_ops": [{"type": "delete", "key": "w"}], "push_items": [{"queue": "out", "payload": 1}],
        "ack": {"transactionId": "", "leaseId": claimed["lease_id"], "status": "completed", "count": 0},
        "release_lease": true});
    let closed = call(&node, "cycle", close.clone()).await;
    assert_eq!(closed["ack_result"]["lease_released"], true, "{closed}");
    let again = call(&node, "cycle", close).await;
    assert_eq!(
        (&again["success"], &again["error"]),
        (&json!(false), &json!("invalid or expired lease"))
    );
    assert_eq!(messages(&node.pop("out").await).len(), 1);
    let left = call(&node, "state/partitions", json!({"query_id": id})).await;
    assert_eq!(left["partitions"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn what_a_call_must_have_is_asked_for_by_name() {
    let node = Node::start().await;
    let id = query(&node, false).await["query_id"].clone();
    let unknown = "01890a5d-ac96-7000-8000-000000000000";
    let register = json!({"name": "n", "source_queue": "q", "config_hash": "h"});
    let cases = [
        ("queries", register.clone(), "name"),
        ("queries", register.clone(), "source_queue"),
        ("queries", register, "config_hash"),
        ("state/get", json!({"query_id": id, "partition_id": "1"}), "query_id"),
        ("state/get", json!({"query_id": id, "partition_id": "1"}), "partition_id"),
        ("state/partitions", json!({"query_id": id}), "query_id"),
        ("claim", json!({"query_id": id, "partition_ids": []}), "query_id"),
        ("cycle", json!({"query_id": id, "partition_id": "1"}), "query_id"),
        ("cycle", json!({"query_id": id, "partition_id": "1"}), "partition_id"),
    ];
    for (route, good, name) in cases {
        let path = format!("/streams/v1/{route}");
        assert_eq!(node.post(&path, good.clone()).await.status, 200, "{route}");
        for nothing in [Value::Null, json!("")] {
            let mut bad = good.clone();
            bad[name] = nothing;
            let reply = node.post(&path, bad).await;
            let want = json!({"success": false, "error": format!("{name} is required"), "code": "bad_request"});
            assert_eq!((reply.status, reply.json()), (400, want), "{route}");
        }
    }
    let bad = [
        ("queries", json!({"name": 1, "source_queue": "q", "config_hash": "h"}), "name"),
        (
            "queries",
            json!({"name": "n", "source_queue": "q", "config_hash": "h", "reset": 1}),
            "reset",
        ),
        ("state/get", json!({"query_id": unknown, "partition_id": "1"}), "no query"),
        ("state/get", json!({"query_id": id, "partition_id": "1", "keys": "k"}), "keys"),
        (
            "state/get",
            json!({"query_id": id, "partition_id": "1", "ripe_at_or_before": "1"}),
            "ripe",
        ),
        ("state/partitions", json!({"query_id": unknown}), "no query"),
        ("state/partitions", json!({"query_id": id, "after": "x"}), "after"),
        ("state/partitions", json!({"query_id": id, "limit": "x"}), "limit"),
        ("claim", json!({"query_id": unknown, "partition_ids": ["1"]}), "no query"),
        ("claim", json!({"query_id": id, "partition_ids": vec!["1"; 257]}), "partition_ids"),
        ("claim", json!({"query_id": id, "partition_ids": [null]}), "partition_ids"),
        ("cycle", json!([]), "list"),
        (
            "cycle",
            json!({"query_id": id, "partition_id": "1", "state_ops": [{"type": "x", "key": "k"}]}),
            "state_ops 0",
        ),
        (
            "cycle",
            json!({"query_id": id, "partition_id": "1", "state_ops": [{"type": "delete"}]}),
            "state_ops 0",
        ),
    ];
    for (route, body, text) in bad {
        let reply = node.post(&format!("/streams/v1/{route}"), body.clone()).await;
        let error = reply.json()["error"].as_str().unwrap().to_owned();
        assert!(reply.status == 400 && error.contains(text), "{route} {body}: {error}");
    }
    let long = json!({"name": "n".repeat(500), "source_queue": "q", "config_hash": "h"});
    let reply = node.post("/streams/v1/queries", long).await;
    assert_eq!((reply.status, &reply.json()["code"]), (413, &json!("name_too_long")));
}
