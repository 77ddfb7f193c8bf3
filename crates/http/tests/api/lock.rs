//! Locks over HTTP, part B.11.

use crate::node::{Node, data};
use serde_json::{Value, json};

async fn one(node: &Node, operation: Value) -> Value {
    let reply = node.post("/api/v1/locks", json!({"operations": [operation]})).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["results"][0].clone()
}

fn acquire(owner: &str, limit: u32) -> Value {
    json!({"op": "acquire", "name": "n", "ttlSeconds": 30, "owner": owner, "limit": limit})
}

#[tokio::test]
async fn a_lock_is_answered_as_the_clients_read_it() {
    let node = Node::start().await;
    let taken = one(&node, acquire("a", 1)).await;
    let token = taken["token"].as_u64().unwrap();
    let guard = json!({"op": "check", "ns": "queen-locks", "key": "n#0", "expect": token,
        "required": true});
    let mut want = json!({"index": 0, "op": "acquire", "name": "n", "acquired": true, "slot": 0,
        "token": token, "owner": "a", "guard": guard});
    assert_eq!(taken, want);
    want["already"] = json!(true);
    assert_eq!(one(&node, acquire("a", 1)).await, want);
    let holders = json!([{"slot": 0, "owner": "a"}]);
    let held = json!({"index": 0, "op": "acquire", "name": "n", "acquired": false,
        "reason": "held", "holders": holders});
    assert_eq!(one(&node, acquire("b", 1)).await, held);
    let row = node.get("/api/v1/kv/queen-locks/n%230").await.json();
    assert_eq!((&row["version"], &row["value"]["owner"]), (&json!(token), &json!("a")));

    let renew = json!({"op": "renew", "name": "n", "ttlSeconds": 30, "token": token});
    let renewed = one(&node, renew.clone()).await;
    let next = renewed["token"].as_u64().unwrap();
    assert!(next > token && renewed["guard"]["expect"] == next, "{renewed}");
    assert_eq!((&renewed["renewed"], &renewed["slot"]), (&json!(true), &json!(0)));
    let lost = json!({"index": 0, "op": "renew", "name": "n", "renewed": false, "reason": "lost",
        "holders": holders});
    assert_eq!(one(&node, renew).await, lost);

    let got = one(&node, json!({"op": "get", "name": "n"})).await;
    let holder = &got["holders"][0];
    assert_eq!(
        (&got["held"], &holder["token"], &holder["owner"]),
        (&json!(true), &json!(next), &json!("a"))
    );
    for time in ["since", "renewedAt", "expiresAt"] {
        assert!(holder[time].as_str().unwrap().ends_with("+00:00"), "{holder}");
    }
    let release = json!({"op": "release", "name": "n", "token": next});
    let released = json!({"index": 0, "op": "release", "name": "n", "released": true, "slot": 0});
    assert_eq!(one(&node, release.clone()).await, released);
    let lost = json!({"index": 0, "op": "release", "name": "n", "released": false,
        "reason": "lost", "holders": []});
    assert_eq!(one(&node, release).await, lost);
    let free = json!({"index": 0, "op": "get", "name": "n", "held": false, "holders": []});
    assert_eq!(one(&node, json!({"op": "get", "name": "n"})).await, free);
}

#[tokio::test]
async fn operations_of_a_call_are_answered_in_its_order_in_either_form() {
    let node = Node::start().await;
    let operations = json!([
        {"op": "acquire", "name": "a", "ttlSeconds": 9},
        {"op": "get", "name": "b"},
        {"op": "release", "name": "c", "token": 1},
    ]);
    for body in [operations.clone(), json!({"operations": operations})] {
        let reply = node.post("/api/v1/locks", body).await;
        let results = reply.json()["results"].clone();
        let names: Vec<_> = (0..3).map(|at| results[at]["name"].clone()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(results[2]["index"], 2);
    }
    let twice = json!([{"op": "get", "name": "a"}, {"op": "get", "name": "a"}]);
    for body in [twice, json!([{"op": "get", "name": "a#b"}]), json!([{"op": "take"}]), json!(1)] {
        let reply = node.post("/api/v1/locks", body.clone()).await;
        let answer = reply.json();
        assert_eq!((reply.status, &answer["error"]), (400, &json!("locks_bad_request")), "{body}");
        assert!(answer["reason"].is_string() && answer["detail"].is_string(), "{answer}");
    }
}

#[tokio::test]
async fn a_guarded_transaction_applies_only_while_the_lock_is_held() {
    let node = Node::start().await;
    let step = |guard: &Value, n: u32| json!({"kv": [guard], "operations": [{"type": "push", "queue": "out", "payload": n}]});
    let first = one(&node, acquire("a", 1)).await;
    let done = node.post("/api/v1/transaction", step(&first["guard"], 1)).await.json();
    assert_eq!(done["success"], true, "{done}");
    let release = json!({"op": "release", "name": "n", "token": first["token"]});
    assert_eq!(one(&node, release).await["released"], true);
    let second = one(&node, acquire("b", 1)).await;
    assert!(second["token"].as_u64() > first["token"].as_u64());
    let stale = node.post("/api/v1/transaction", step(&first["guard"], 2)).await.json();
    let lost =
        [&stale["reason"], &stale["failedIndex"], &stale["kvReason"], &stale["value"]["owner"]];
    assert_eq!(json!(lost), json!(["kv_precondition", 1, "version", "b"]));
    let done = node.post("/api/v1/transaction", step(&second["guard"], 3)).await.json();
    assert_eq!(done["success"], true, "{done}");
    assert_eq!(data(&node.pop("out").await), [json!(1), json!(3)]);
}
