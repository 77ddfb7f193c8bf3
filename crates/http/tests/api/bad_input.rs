//! Input that no client should send: a clear error, and nothing lost.

use crate::node::{Node, data, receive, send};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_pushes_are_refused_in_words() {
    let node = Node::start().await;
    let long = format!(r#"{{"items":[{{"queue":"{}","payload":1}}]}}"#, "q".repeat(500));
    let cases: [(&[u8], u16, &str, &str); 8] = [
        (b"", 400, "bad_body", "not a push"),
        (b"{\"items\":[", 400, "bad_body", "EOF"),
        (b"{\"items\":[{\"queue\":\"q\",\"payload\":\"\xff\"}]}", 400, "bad_body", "byte 34"),
        (br#"{"items":[{"payload":1}]}"#, 400, "bad_body", "item 0 has no queue"),
        (br#"{"items":[{"queue":"q","data":1}]}"#, 400, "bad_body", "data instead of payload"),
        (br#"{"items":[{"queue":"q","payload":1},{"queue":1}]}"#, 400, "bad_body", "invalid type"),
        (br#"{"items":{}}"#, 400, "bad_body", "invalid type"),
        (long.as_bytes(), 413, "name_too_long", "507"),
    ];
    for (body, status, code, text) in cases {
        let reply = node.call("POST", "/api/v1/push", body).await;
        assert_eq!(reply.status, status, "{}", reply.text());
        let answer = reply.json();
        assert_eq!(answer["code"], code);
        assert!(answer["error"].as_str().unwrap().contains(text), "{answer}");
    }
    assert_eq!(node.get("/api/v1/pop/queue/q").await.status, 204);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_of_sixteen_mebibytes_and_one_nested_deep_are_kept() {
    let node = Node::start().await;
    let large = format!("\"{}\"", "x".repeat(16 << 20));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for payload in [&large, &deep] {
        let body = format!(r#"{{"items":[{{"queue":"q","payload":{payload}}}]}}"#);
        let reply = node.call("POST", "/api/v1/push", body.as_bytes()).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        let popped = node.get("/api/v1/pop/queue/q?autoAck=true").await;
        assert_eq!(popped.status, 200);
        assert!(popped.text().contains(&format!("\"data\":{payload},")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_over_the_limit_is_413_in_plain_text_before_it_is_read() {
    let node = Node::start().await;
    let mut stream = node.connect().await;
    let head = b"POST /api/v1/push HTTP/1.1\r\nhost: test\r\ncontent-length: 134217729\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut stream, head).await.unwrap();
    let reply = receive(&mut stream).await;
    assert_eq!(reply.status, 413);
    assert!(reply.head.contains("content-type: text/plain"));
    assert!(reply.text().contains("67108864"));
    assert!(reply.head.contains("connection: close"), "{}", reply.head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_a_refused_body_to_its_end_goes_on_with_its_connection() {
    let node = Node::start().await;
    let mut stream = node.connect().await;
    let body = vec![b' '; (64 << 20) + 1];
    for (path, status) in [("/api/v1/push", 413), ("/api/v1/nothing", 404)] {
        send(&mut stream, "POST", path, &body).await;
        let reply = receive(&mut stream).await;
        assert_eq!(reply.status, status);
        assert!(!reply.head.contains("connection: close"), "{}", reply.head);
    }
    send(&mut stream, "POST", "/api/v1/push", br#"{"items":[{"queue":"q","payload":1}]}"#).await;
    assert_eq!(receive(&mut stream).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_routes_are_404_with_their_code() {
    let node = Node::start().await;
    for (method, path) in [
        ("GET", "/api/v1/nothing"),
        ("GET", "/api/v1/push"),
        ("POST", "/api/v1/queues/q/clear"),
        ("GET", "/"),
    ] {
        let reply = node.call(method, path, b"").await;
        assert_eq!(reply.status, 404);
        assert_eq!(reply.json(), json!({"error": "Not Found", "code": "no_such_route"}));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_members_are_ignored_and_a_connection_serves_many_requests() {
    let node = Node::start().await;
    let mut stream = node.connect().await;
    let body = br#"{"x":[1],"items":[{"y":{},"queue":"q","payload":1,"transactionId":null,"partition":null}]}"#;
    for offset in 0..3 {
        send(&mut stream, "POST", "/api/v1/push?z=1", body).await;
        let reply = receive(&mut stream).await;
        assert_eq!((reply.status, &reply.json()[0]["offset"]), (201, &json!(offset)));
    }
    send(&mut stream, "GET", "/api/v1/pop/queue/q?batch=3", b"").await;
    assert_eq!(data(&receive(&mut stream).await.json()), [json!(1), json!(1), json!(1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_of_the_node_answer() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 3).await;
    assert_eq!(node.get("/health").await.json()["status"], "healthy");
    assert_eq!(node.get("/status").await.json()["raft"]["leader"], true);
    assert_eq!(node.get("/metrics").await.json()["messages"]["pushed"], 3);
    let page = node.get("/metrics/prometheus").await;
    assert!(page.head.contains("content-type: text/plain"));
    assert!(page.text().contains("\nqueen_process_push_messages_total 3\n"), "{}", page.text());
    let tables = [queen_core::metric::broker::ALL];
    assert_eq!(queen_core::metric::faults_of_page(&page.text(), &tables), Vec::<String>::new());
}
