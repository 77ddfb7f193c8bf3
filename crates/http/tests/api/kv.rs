//! KV over HTTP.

use crate::node::Node;
use serde_json::{Value, json};
use std::time::Duration;

async fn batch(node: &Node, operations: Value) -> Value {
    let reply = node.post("/api/v1/kv", json!({ "operations": operations })).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[tokio::test]
async fn a_batch_is_answered_in_its_order() {
    let node = Node::start().await;
    let answer = batch(
        &node,
        json!([
            {"op": "put", "ns": "shop", "key": "a/b", "value": {"x": [1, 2.50]}, "forever": true},
            {"op": "get", "ns": "shop", "key": "none"},
            {"op": "incr", "ns": "shop", "key": "n", "delta": 2, "ttlSeconds": 60},
            {"op": "putIfAbsent", "ns": "shop", "key": "once", "value": null, "ttlSeconds": 60},
        ]),
    )
    .await;
    let results = answer["results"].as_array().unwrap();
    let indexes: Vec<_> = results.iter().map(|result| result["index"].clone()).collect();
    assert_eq!(indexes, [0, 1, 2, 3]);
    assert_eq!((&results[0]["applied"], &results[0]["key"]), (&json!(true), &json!("a/b")));
    assert_eq!(results[1], json!({"index": 1, "op": "get", "found": false, "key": "none"}));
    assert_eq!((&results[2]["value"], &results[3]["applied"]), (&json!(2), &json!(true)));
    let again = batch(
        &node,
        json!([
            {"op": "putIfAbsent", "ns": "shop", "key": "once", "value": 1, "ttlSeconds": 60},
            {"op": "delete", "ns": "shop", "key": "none"},
        ]),
    )
    .await;
    assert_eq!(again["results"][0]["reason"], "exists");
    assert_eq!(again["results"][0]["version"], results[3]["version"]);
    assert_eq!(
        (&again["results"][1]["reason"], &again["results"][1]["version"]),
        (&json!("absent"), &json!(0))
    );
}

#[tokio::test]
async fn a_lost_required_operation_applies_nothing() {
    let node = Node::start().await;
    let answer = batch(
        &node,
        json!([
            {"op": "put", "ns": "shop", "key": "a", "value": 1, "forever": true},
            {"op": "check", "ns": "shop", "key": "b", "expect": 7, "required": true},
        ]),
    )
    .await;
    let want = json!({"ok": false, "reason": "kv_precondition", "failedIndex": 1,
        "kvReason": "absent", "version": 0, "value": null});
    assert_eq!(answer, want);
    let read = batch(&node, json!([{"op": "get", "ns": "shop", "key": "a"}])).await;
    assert_eq!(read["results"][0]["found"], false);
}

#[tokio::test]
async fn a_batch_of_reads_and_lost_writes_is_answered_in_no_time() {
    let node = Node::start().await;
    batch(&node, json!([{"op": "put", "ns": "shop", "key": "a", "value": 1, "forever": true}]))
        .await;
    let operations = json!([
        {"op": "get", "ns": "shop", "key": "a"},
        {"op": "putIfAbsent", "ns": "shop", "key": "a", "value": 2, "ttlSeconds": 60},
        {"op": "put", "ns": "shop", "key": "b", "value": 2, "expect": 7, "forever": true},
        {"op": "delete", "ns": "shop", "key": "c"},
        {"op": "get", "ns": "shop", "key": "b"},
    ]);
    // Much less than what a client waits for an answer.
    let patience = Duration::from_secs(10);
    let answer = tokio::time::timeout(patience, batch(&node, operations)).await.unwrap();
    let results = answer["results"].as_array().unwrap();
    assert_eq!((&results[0]["value"], &results[4]["found"]), (&json!(1), &json!(false)));
    for lost in &results[1..4] {
        assert_eq!(lost["applied"], false, "{lost}");
    }
}

#[tokio::test]
async fn a_batch_of_reads_sees_a_batch_of_writes_whole_or_not_at_all() {
    const LAST: u64 = 300;
    let node = Node::start().await;
    let write = async {
        for n in 1..=LAST {
            let put =
                |key| json!({"op": "put", "ns": "n", "key": key, "value": n, "forever": true});
            batch(&node, json!([put("a"), put("b")])).await;
        }
    };
    let read = async {
        let get = |key| json!({"op": "get", "ns": "n", "key": key});
        let mut looks = 0;
        loop {
            let answer = batch(&node, json!([get("a"), get("b"), get("a")])).await;
            let values: Vec<_> = (0..3).map(|at| answer["results"][at]["value"].clone()).collect();
            assert!(values[0] == values[1] && values[1] == values[2], "{values:?}");
            looks += 1;
            if values[0] == LAST {
                break looks;
            }
        }
    };
    let ((), looks) = tokio::join!(write, read);
    assert!(looks > 10, "the reader saw {looks} states only");
}

#[tokio::test]
async fn the_path_form_takes_any_key_and_gives_an_etag() {
    let node = Node::start().await;
    let path = "/api/v1/kv/shop/a/b%20c%2Fd";
    let body = json!({"value": 42.5, "forever": true}).to_string();
    let put = node.call("PUT", path, body.as_bytes()).await;
    assert_eq!(put.status, 200, "{}", put.text());
    let put = put.json();
    assert_eq!((&put["applied"], &put["key"]), (&json!(true), &json!("a/b c/d")));
    let get = node.get(path).await;
    assert!(get.head.contains(&format!("etag: \"{}\"", put["version"])), "{}", get.head);
    assert_eq!((&get.json()["found"], &get.json()["value"]), (&json!(true), &json!(42.5)));
    let stale = node.call("DELETE", path, br#"{"expect":99999}"#).await;
    assert_eq!((stale.status, &stale.json()["reason"]), (200, &json!("version")));
    assert_eq!(node.call("DELETE", path, b"").await.json()["applied"], true);
    let miss = node.get(path).await;
    assert_eq!((miss.status, &miss.json()["found"]), (200, &json!(false)));
    assert!(!miss.head.contains("etag"));
    for (method, path, body) in [
        ("GET", "/api/v1/kv/shop/k?x=1", ""),
        ("PUT", "/api/v1/kv/shop/k", r#"{"key":"k","value":1,"forever":true}"#),
    ] {
        let reply = node.call(method, path, body.as_bytes()).await;
        assert_eq!((reply.status, &reply.json()["error"]), (400, &json!("kv_bad_request")));
    }
}

#[tokio::test]
async fn refusals_carry_identifiers() {
    let node = Node::start().await;
    let cases = [
        (json!({"op": "get", "ns": "NO", "key": "k"}), 400, "kv_bad_request", "kv_bad_namespace"),
        (
            json!({"op": "put", "ns": "n", "key": "k", "value": 1}),
            400,
            "kv_bad_request",
            "kv_expiry_not_specified",
        ),
        (
            json!({"op": "put", "ns": "n", "key": "k", "value": 1, "ttlSeconds": 0}),
            400,
            "kv_bad_request",
            "kv_bad_ttl",
        ),
        (
            json!({"op": "put", "ns": "n", "key": "k".repeat(513), "value": 1, "forever": true}),
            413,
            "kv_key_too_large",
            "kv_key_too_large",
        ),
        (
            json!({"op": "put", "ns": "n", "key": "k", "value": "v".repeat(65_535), "forever": true}),
            413,
            "kv_value_too_large",
            "kv_value_too_large",
        ),
    ];
    for (operation, status, error, reason) in cases {
        let reply = node.post("/api/v1/kv", json!([operation])).await;
        let body = reply.json();
        assert_eq!(
            (reply.status, &body["error"], &body["reason"]),
            (status, &json!(error), &json!(reason))
        );
        assert!(body["detail"].as_str().unwrap().contains("operation 0"));
    }
}

#[tokio::test]
async fn keys_and_namespaces_are_browsed_and_outlive_a_restart() {
    let node = Node::start().await;
    for (ns, key) in [("a", "k1"), ("a", "k2"), ("b", "k")] {
        batch(&node, json!([{"op": "put", "ns": ns, "key": key, "value": 7, "forever": true}]))
            .await;
    }
    let node = node.restart().await;
    let body = json!({"namespace": "a", "prefix": "", "limit": 1, "keysOnly": false});
    let listed = node.post("/api/v1/resources/kv/list", body).await.json();
    assert_eq!((&listed["truncated"], &listed["nextAfter"]), (&json!(true), &json!("k1")));
    assert_eq!((&listed["rows"][0]["value"], &listed["bytes"]), (&json!(7), &json!(1)));
    let namespaces = node.get("/api/v1/resources/kv/namespaces").await.json();
    assert_eq!(
        namespaces["namespaces"],
        json!([{"namespace": "a", "keys": 2}, {"namespace": "b", "keys": 1}])
    );
}

#[tokio::test]
async fn an_expired_key_is_gone_at_once() {
    let node = Node::start().await;
    batch(&node, json!([{"op": "put", "ns": "n", "key": "k", "value": 1, "ttlSeconds": 1}])).await;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let read = batch(&node, json!([{"op": "get", "ns": "n", "key": "k"}])).await;
    assert_eq!(read["results"][0]["found"], false);
    let again = json!([{"op": "putIfAbsent", "ns": "n", "key": "k", "value": 2, "ttlSeconds": 60}]);
    assert_eq!(batch(&node, again).await["results"][0]["applied"], true);
}
