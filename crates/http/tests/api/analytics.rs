//! Status and analytics over HTTP, part B.15.

use crate::node::{Node, messages};
use serde_json::{Value, json};

async fn get(node: &Node, path: &str) -> Value {
    let reply = node.get(&format!("/api/v1/{path}")).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply.json()
}

/// A node that was pushed 5 messages and delivered and settled 2 of them.
async fn busy() -> Node {
    let node = Node::start().await;
    // What is counted is what was done since the first look.
    get(&node, "status").await;
    node.push_numbers("ns.q", "p", 5).await;
    let popped = node.pop("ns.q?batch=2").await;
    assert_eq!(messages(&popped).len(), 2);
    node.settle(&popped, "completed").await;
    node
}

fn total(series: &Value, name: &str) -> u64 {
    series.as_array().unwrap().iter().map(|point| point[name].as_u64().unwrap()).sum()
}

#[tokio::test]
async fn the_status_says_what_was_done_and_what_there_is() {
    let node = busy().await;
    node.pop("ns.q?batch=1").await;
    let status = get(&node, "status").await;
    for name in ["bucketMinutes", "pointCount", "statsAge"] {
        assert!(status[name].is_u64(), "{name}: {status}");
    }
    assert!(status["timeRange"]["from"].as_str() < status["timeRange"]["to"].as_str());
    assert_eq!(status["pointCount"], status["throughput"].as_array().unwrap().len());
    assert_eq!(total(&status["throughput"], "ingested"), 5);
    assert_eq!(total(&status["throughput"], "processed"), 3);
    assert_eq!(total(&status["throughput"], "acked"), 2);
    let want = json!({"total": 5, "pending": 2, "processing": 1, "completed": 2, "deadLetter": 0});
    assert_eq!(status["messages"], want);
    assert_eq!(status["queues"], json!({"total": 1, "withPending": 1}));
    assert_eq!(
        (&status["leases"], &status["deadLetterQueue"]),
        (&json!({"active": 1}), &json!({"total": 0}))
    );
    assert_eq!(status["workers"][0]["workerId"], "1");
    assert_eq!(status["errors"], json!({"overloaded": 0, "storageFull": 0, "timeouts": 0}));
    let old = get(&node, "status?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z").await;
    assert_eq!((&old["throughput"], &old["bucketMinutes"]), (&json!([]), &json!(12)));
    assert_eq!(node.get("/api/v1/status?from=soon").await.status, 400);
    assert_eq!(node.get("/api/v1/status?interval=week").await.status, 400);
}

#[tokio::test]
async fn the_series_hold_real_figures() {
    let node = busy().await;
    let analytics = get(&node, "status/analytics").await;
    assert!(analytics["from"].is_string() && analytics["to"].is_string());
    assert_eq!(analytics["interval"], "1m");
    assert_eq!(total(&analytics["dataPoints"], "ingested"), 5);
    assert_eq!(total(&analytics["dataPoints"], "pushRequests"), 1);
    assert!(analytics["dataPoints"][0]["ingestedPerSecond"].as_f64() > Some(0.0));

    let system = get(&node, "analytics/system-metrics").await;
    let replica = &system["replicas"][0];
    assert_eq!((&replica["replicaId"], system["bucketMinutes"].is_u64()), (&json!("1"), true));
    let points = replica["timeSeries"].as_array().unwrap();
    assert_eq!(system["pointCount"], points.len());
    assert!(points[0]["memoryBytes"].as_u64() > Some(1 << 20), "{system}");
    assert!(points[0]["cpuPercent"].is_number());

    let workers = get(&node, "analytics/worker-metrics").await;
    let summary = &workers["summary"];
    assert_eq!((&summary["ingested"], &summary["acked"]), (&json!(5), &json!(2)));
    assert_eq!(total(&workers["timeSeries"], "processed"), 2);
    assert!(workers["workers"].is_array() && workers["queues"].is_array());

    let overview = get(&node, "resources/overview").await;
    assert!(overview["throughput"]["ingestedPerSecond"].is_u64(), "{overview}");
}

#[tokio::test]
async fn queues_are_counted_page_by_page_with_their_options() {
    let node = busy().await;
    node.push_numbers("other", "p", 1).await;
    node.push_numbers("ns.a", "p", 1).await;
    let names = |page: &Value| -> Vec<Value> {
        page["queues"].as_array().unwrap().iter().map(|queue| queue["name"].clone()).collect()
    };
    let all = get(&node, "status/queues").await;
    assert_eq!(names(&all), ["ns.a", "ns.q", "other"]);
    assert_eq!(all["pagination"], json!({"limit": 100, "offset": 0, "total": 3}));
    let page = get(&node, "status/queues?limit=1&offset=1").await;
    assert_eq!((names(&page), &page["pagination"]["total"]), (vec![json!("ns.q")], &json!(3)));
    assert_eq!(page["queues"][0]["messages"]["completed"], 2);
    assert_eq!(names(&get(&node, "status/queues?namespace=ns&task=a").await), ["ns.a"]);

    let one = get(&node, "status/queues/ns.q").await;
    assert_eq!(
        (&one["queue"]["name"], &one["queue"]["config"]["leaseTime"]),
        (&json!("ns.q"), &json!(60))
    );
    for option in ["retryLimit", "retryDelay", "ttl", "maxSize"] {
        assert!(one["queue"]["config"][option].is_number(), "{option}");
    }
    assert_eq!((&one["totals"]["total"], &one["partitions"][0]["name"]), (&json!(5), &json!("p")));
    let unknown = node.get("/api/v1/status/queues/none").await;
    assert_eq!((unknown.status, &unknown.json()["error"]), (404, &json!("Queue not found")));
}

#[tokio::test]
async fn a_refresh_needs_no_body_and_has_nothing_to_do() {
    let node = Node::start().await;
    let reply = node.call("POST", "/api/v1/stats/refresh", b"").await;
    assert_eq!((reply.status, &reply.json()["success"]), (200, &json!(true)));
}
