//! The raft routes and health, parts B.15 and G, on a node that is alone.

use crate::node::Node;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_node_is_healthy_and_leads() {
    let node = Node::start().await;
    node.push_numbers("q", "a", 1).await;
    let health = node.get("/health").await;
    assert_eq!(health.status, 200, "{}", health.text());
    let body = health.json();
    assert_eq!((&body["status"], &body["reason"]), (&json!("healthy"), &json!(null)));
    let raft = &body["raft"];
    assert_eq!(
        (&raft["role"], &raft["leader"], &raft["lag"]),
        (&json!("leader"), &json!(true), &json!(0))
    );
    assert_eq!(raft["applied"], raft["commit"]);
    assert_eq!((&raft["storageReady"], &raft["clusterVersion"]), (&json!(true), &json!(1)));
    assert_eq!(raft["apply"], json!({"failure": null, "skipped": 0}));
    let view = node.get("/api/v1/raft/status").await.json();
    assert_eq!((&view["id"], &view["role"]), (&json!(1), &json!("leader")), "{view}");
    assert_eq!((&view["leader"]["id"], &view["refused"]), (&json!(1), &json!(null)), "{view}");
    for path in ["/api/v1/raft/members", "/api/v1/system/raft/membership"] {
        let members = node.get(path).await.json();
        assert_eq!((&members["ok"], &members["voters"]), (&json!(true), &json!([1])), "{members}");
    }
    node.broker.begin_shutdown();
    let stopping = node.get("/health").await;
    assert_eq!((stopping.status, &stopping.json()["status"]), (503, &json!("stopping")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_members_that_cannot_be_are_refused_by_code() {
    let node = Node::start().await;
    let learners = "/api/v1/system/raft/learners";
    let good = json!({"id": 4, "raft": "queen-4:7400", "http": "queen-4:6632"});
    for (method, path, body, word) in [
        ("POST", learners, json!({"id": 0, "raft": "a:1", "http": "a:2"}), "id: "),
        ("POST", learners, json!({"id": 4, "raft": "a", "http": "a:2"}), "raft: "),
        ("POST", learners, json!({"id": 4, "raft": "a:1"}), "http: "),
        ("POST", learners, good, "alone"),
        ("POST", "/api/v1/system/raft/promote", json!({"ids": "4"}), "ids: "),
        ("POST", "/api/v1/system/raft/promote", json!({"ids": [4]}), "alone"),
        ("PUT", "/api/v1/system/raft/voters", json!({"voters": [1, -2]}), "voters: "),
        ("DELETE", "/api/v1/system/raft/members/x", json!({}), "no node id"),
        ("DELETE", "/api/v1/system/raft/members/4", json!({}), "alone"),
        ("POST", learners, json!("no object"), "not a JSON object"),
    ] {
        let reply = node.call(method, path, body.to_string().as_bytes()).await;
        let answer = reply.json();
        assert_eq!(reply.status, 400, "{method} {path} {body}: {answer}");
        assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!("bad_request")));
        assert!(answer["error"].as_str().unwrap().contains(word), "{path} {body}: {answer}");
    }
}
