//! Traces over HTTP, part B.8.

use crate::node::{Node, messages};
use serde_json::{Value, json};

async fn record(node: &Node, body: &Value) -> Value {
    let reply = node.post("/api/v1/traces", body.clone()).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let answer = reply.json();
    assert_eq!((&answer["success"], answer["traceId"].is_string()), (&json!(true), true));
    answer["traceId"].clone()
}

async fn get(node: &Node, path: &str) -> Value {
    let reply = node.get(&format!("/api/v1/traces/{path}")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[tokio::test]
async fn what_is_recorded_of_a_message_is_found_by_it_and_by_name() {
    let node = Node::start().await;
    node.push(json!([{"queue": "q", "partition": "p", "payload": 1, "transactionId": "a/b"}]))
        .await;
    let message = messages(&node.pop("q").await)[0].clone();
    let event = |names: Value, data: Value| {
        json!({"transactionId": "a/b", "partitionId": message["partitionId"], "data": data,
            "traceNames": names})
    };
    let first = record(&node, &event(json!(["import", "x y"]), json!({"step": 1}))).await;
    let mut second = event(json!("import"), json!("text"));
    second["eventType"] = json!("error");
    second["consumerGroup"] = json!("g");
    let second = record(&node, &second).await;
    let third = record(&node, &event(Value::Null, json!([1]))).await;

    let partition = message["partitionId"].as_str().unwrap();
    let of_message = get(&node, &format!("{partition}/a%2Fb")).await;
    let traces = of_message["traces"].as_array().unwrap();
    let ids: Vec<_> = traces.iter().map(|trace| &trace["id"]).collect();
    assert_eq!(ids, [&first, &second, &third]);
    let created = &traces[0]["created_at"];
    assert_eq!(
        traces[0],
        json!({"id": first, "event_type": "info", "data": {"step": 1}, "consumer_group": null,
            "worker_id": null, "created_at": created, "trace_names": ["import", "x y"]})
    );
    assert_eq!(
        (&traces[1]["event_type"], &traces[1]["consumer_group"]),
        (&json!("error"), &json!("g"))
    );
    assert_eq!(get(&node, &format!("{partition}/none")).await["traces"], json!([]));

    let named = get(&node, "by-name/import").await;
    assert_eq!((&named["total"], named["traces"].as_array().unwrap().len()), (&json!(2), 2));
    let newest = &named["traces"][0];
    for (name, want) in [
        ("id", second),
        ("transaction_id", json!("a/b")),
        ("partition_id", json!(partition)),
        ("queue_name", json!("q")),
        ("partition_name", json!("p")),
        ("message_payload", Value::Null),
        ("data", json!("text")),
    ] {
        assert_eq!(newest[name], want, "{name}");
    }
    let older = get(&node, "by-name/import?limit=1&offset=1").await;
    assert_eq!((&older["traces"][0]["id"], &older["total"]), (&first, &json!(2)));
    assert_eq!(older["pagination"], json!({"limit": 1, "offset": 1}));
    assert_eq!(get(&node, "by-name/x%20y").await["total"], 1);
    assert_eq!(get(&node, "by-name/import?offset=5").await["traces"], json!([]));

    let names = get(&node, "names").await;
    let counts: Vec<_> = (0..2)
        .map(|at| {
            let row = &names["trace_names"][at];
            json!([row["trace_name"], row["trace_count"], row["message_count"]])
        })
        .collect();
    assert_eq!(counts, [json!(["import", 2, 1]), json!(["x y", 1, 1])]);
    assert_eq!((&names["total"], &names["pagination"]["limit"]), (&json!(2), &json!(50)));
    let some = get(&node, "names?search=x&limit=1").await;
    assert_eq!((&some["total"], &some["trace_names"][0]["trace_name"]), (&json!(1), &json!("x y")));

    let node = node.restart().await;
    assert_eq!(get(&node, "by-name/import").await["total"], 2);
}

#[tokio::test]
async fn what_a_trace_must_have_is_asked_for_by_name() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 1).await;
    let message = messages(&node.pop("q").await)[0].clone();
    let good = json!({"transactionId": message["transactionId"], "data": {},
        "partitionId": message["partitionId"]});
    record(&node, &good).await;
    for name in ["transactionId", "partitionId", "data"] {
        let mut bad = good.clone();
        bad[name] = Value::Null;
        let reply = node.post("/api/v1/traces", bad).await;
        let want = json!(format!("{name} is required"));
        assert_eq!((reply.status, &reply.json()["error"]), (400, &want));
    }
    for (name, value) in
        [("partitionId", json!("x")), ("traceNames", json!([1])), ("eventType", json!(3))]
    {
        let mut bad = good.clone();
        bad[name] = value;
        let reply = node.post("/api/v1/traces", bad).await;
        assert_eq!(reply.status, 400);
        assert!(reply.json()["error"].as_str().unwrap().starts_with(name), "{}", reply.text());
    }
    let mut unknown = good;
    unknown["partitionId"] = json!("99");
    assert_eq!(node.post("/api/v1/traces", unknown).await.status, 404);
}
