//! Lease extension, B.5.

use crate::node::{Node, messages};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_lease_is_extended_without_a_body_and_never_shortened() {
    let node = Node::start().await;
    node.push_numbers("q", "a", 1).await;
    node.push_numbers("q", "b", 1).await;
    let popped = node.pop("q?partitions=5&leaseSeconds=30").await;
    let path = format!("/api/v1/lease/{}/extend", popped["leaseId"].as_str().unwrap());
    let reply = node.call("POST", &path, b"").await;
    let first = reply.json();
    assert_eq!(
        (reply.status, &first["success"], &first["renewed"]),
        (200, &json!(true), &json!(2))
    );
    assert_eq!(first["leaseId"], popped["leaseId"]);
    let until = first["newExpiresAt"].as_str().unwrap();
    assert!(until.len() == 27 && first["expiresAt"] == until && first["lease_expires_at"] == until);
    let shorter = node.post(&path, json!({"seconds": 1})).await.json();
    assert!(shorter["expiresAt"].as_str().unwrap() >= until);
    let longer = node.post(&path, json!({"seconds": 900})).await.json();
    assert!(longer["expiresAt"].as_str().unwrap() > until);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_or_unknown_lease_is_not_extended() {
    let node = Node::start().await;
    node.push_numbers("q", "a", 1).await;
    let popped = node.pop("q").await;
    assert_eq!(messages(&popped).len(), 1);
    node.settle(&popped, "completed").await;
    for lease in [popped["leaseId"].as_str().unwrap(), "nonsense"] {
        let reply = node.call("POST", &format!("/api/v1/lease/{lease}/extend"), b"{}").await;
        let body = reply.json();
        assert_eq!(
            (reply.status, &body["success"], &body["renewed"]),
            (200, &json!(false), &json!(0))
        );
        assert_eq!((&body["expiresAt"], &body["newExpiresAt"]), (&Value::Null, &Value::Null));
    }
}
