//! Reads by offset over HTTP.

use crate::node::Node;
use serde_json::{Value, json};

async fn fetch(node: &Node, body: Value) -> Value {
    let reply = node.post("/api/v1/fetch", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["entries"].clone()
}

#[tokio::test]
async fn a_fetch_reads_from_an_offset_and_takes_no_lease() {
    let node = Node::start().await;
    let item =
        json!({"queue": "q", "partition": "p", "payload": {"total": 42.00}, "transactionId": "t"});
    node.push(json!([item])).await;
    node.push_numbers("q", "p", 3).await;
    let entries = fetch(
        &node,
        json!({"entries": [
            {"queue": "q", "partition": "p", "offset": 0},
            {"queue": "q", "partition": "p", "offset": 3},
            {"queue": "q", "partition": "p", "offset": 4},
            {"queue": "q", "partition": "p", "offset": 5},
            {"queue": "q", "partition": "nobody", "offset": 0},
            {"queue": "none", "partition": null, "offset": 0},
        ]}),
    )
    .await;
    let records = entries[0]["records"].as_array().unwrap();
    assert_eq!(records.len(), 4);
    assert_eq!(
        (&records[0]["transactionId"], &records[0]["payload"]),
        (&json!("t"), &json!({"total": 42.00}))
    );
    assert_eq!(records[0]["ts"].as_str().unwrap().len(), 27);
    assert_eq!(
        (&entries[0]["highWatermark"], &entries[0]["logStartOffset"]),
        (&json!(4), &json!(0))
    );
    assert_eq!(entries[1]["records"][0]["payload"], 2);
    assert_eq!((&entries[2]["records"], entries[2].get("error")), (&json!([]), None));
    assert_eq!(entries[3]["error"], "OFFSET_OUT_OF_RANGE");
    assert_eq!((&entries[4]["records"], entries[4].get("error")), (&json!([]), None));
    assert_eq!(
        (&entries[5]["error"], &entries[5]["partition"]),
        (&json!("UNKNOWN_TOPIC_OR_PARTITION"), &json!("Default"))
    );
    assert_eq!(node.pop("q?batch=100").await["messages"].as_array().unwrap().len(), 4);
    assert_eq!(node.get("/api/v1/resources/queues/none").await.status, 404, "creates nothing");
}

#[tokio::test]
async fn an_entry_stops_at_its_budget_after_one_message() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 10).await;
    let ask = |max: u64| json!({"entries": [{"queue": "q", "partition": "p", "offset": 2, "maxBytes": max}]});
    let count = |entries: &Value| entries[0]["records"].as_array().unwrap().len();
    assert_eq!(count(&fetch(&node, ask(1)).await), 1);
    assert_eq!(count(&fetch(&node, ask(3)).await), 3);
    assert_eq!(count(&fetch(&node, ask(1000)).await), 8);
}

#[tokio::test]
async fn a_waiting_fetch_is_woken_by_a_push() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 1).await;
    node.push_numbers("other", "p", 1).await;
    let ask = json!({"maxWaitMs": 15000, "entries": [
        {"queue": "q", "partition": "p", "offset": 1},
        {"queue": "other", "partition": "p", "offset": 1},
    ]});
    let push = async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        node.push_numbers("q", "elsewhere", 1).await;
        node.push_numbers("other", "p", 1).await;
    };
    let began = std::time::Instant::now();
    let (entries, ()) = tokio::join!(fetch(&node, ask), push);
    assert_eq!(entries[1]["records"].as_array().unwrap().len(), 1);
    assert!(began.elapsed() < std::time::Duration::from_secs(10));
    let quiet =
        json!({"maxWaitMs": 50, "entries": [{"queue": "q", "partition": "p", "offset": 1}]});
    assert_eq!(fetch(&node, quiet).await[0]["records"], json!([]));
}

#[tokio::test]
async fn bad_fetches_are_refused() {
    let node = Node::start().await;
    let entry = json!({"queue": "q", "offset": 0});
    for body in [
        json!({"entries": [{"queue": "q", "offset": -1}]}),
        json!({"entries": vec![entry.clone(); 1025]}),
        json!({"entries": 1}),
        json!({}),
    ] {
        assert_eq!(node.post("/api/v1/fetch", body).await.status, 400);
    }
    let most = json!({"entries": vec![entry; 1024]});
    assert_eq!(node.post("/api/v1/fetch", most).await.status, 200);
}

#[tokio::test]
async fn changed_partitions_are_listed_from_the_safe_time_on() {
    let node = Node::start().await;
    for partition in ["a", "b", "c"] {
        node.push_numbers("q", partition, 1).await;
    }
    let changed = |body: Value| {
        let call = node.post("/api/v1/partitions/changed", body);
        async { call.await.json() }
    };
    let first = changed(json!({"entries": [{"queue": "q", "limit": 2}]})).await;
    assert_eq!(first["safeTimeDegraded"], false);
    let page = &first["entries"][0];
    let names = |page: &Value| -> Vec<String> {
        let rows = page["partitions"].as_array().unwrap().iter();
        rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(page), ["a", "b"]);
    let row = &page["partitions"][0];
    assert_eq!((&row["lastOffset"], &row["logStart"]), (&json!(0), &json!(0)));
    assert!(row["id"].is_string() && row["lastWriteAt"].as_str().unwrap().len() == 27);
    let after = page["next"].clone();
    let second = changed(json!({"entries": [{"queue": "q", "after": after}]})).await;
    assert_eq!(
        (names(&second["entries"][0]), &second["entries"][0]["next"]),
        (vec!["c".to_owned()], &json!(null))
    );
    node.push_numbers("q", "b", 1).await;
    let since = second["safeTime"].clone();
    let later = changed(json!({"entries": [{"queue": "q", "since": since}]})).await;
    assert_eq!(names(&later["entries"][0]).last().unwrap(), "b");
    assert!(later["entries"][0]["partitions"][0]["lastWriteAt"].as_str() >= since.as_str());
    let faults = json!({"entries": [{"queue": "none"}, {"queue": "q", "after": "?"}]});
    let faults = changed(faults).await;
    assert_eq!(faults["entries"][0]["error"], "UNKNOWN_TOPIC_OR_PARTITION");
    assert_eq!(faults["entries"][1]["error"], "BAD_CURSOR");
    let bad = json!({"entries": [{"queue": "q", "since": "yesterday"}]});
    assert_eq!(node.post("/api/v1/partitions/changed", bad).await.status, 400);
    assert!(changed(json!({"entries": []})).await["safeTime"].is_string());
}
