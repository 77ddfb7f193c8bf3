//! TLS on the listener: HTTP/1.1 and HTTP/2 over it, those who do not speak it, and the stop.

use crate::node::Node;
use queen_http::ServerOptions;
use queen_http::tls::Tls;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A node with a certificate of its own, and a client that trusts that alone.
async fn behind_tls() -> (Node, reqwest::ClientBuilder) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = Some(Arc::new(Tls::new(cert, key).unwrap()));
    let node = Node::start_behind(ServerOptions { tls, ..ServerOptions::default() }).await;
    let trusted = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder()
        .no_proxy()
        .resolve("localhost", node.addr)
        .tls_certs_only([trusted]);
    (node, client)
}

#[tokio::test]
async fn both_versions_of_http_are_spoken_over_tls() {
    let (node, client) = behind_tls().await;
    let second = client.build().unwrap();
    let url = format!("https://localhost:{}/health", node.addr.port());
    let answer = second.get(&url).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, reqwest::Version::HTTP_2));
    let body = answer.text().await.unwrap();
    assert!(body.contains("healthy"), "{body}");

    let (node, client) = behind_tls().await;
    let first = client.http1_only().build().unwrap();
    let url = format!("https://localhost:{}/api/v1/push", node.addr.port());
    let items = serde_json::json!({"items": [{"queue": "q", "payload": 1}]});
    let answer = first.post(&url).json(&items).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (201, reqwest::Version::HTTP_11));
}

#[tokio::test]
async fn who_speaks_in_the_clear_is_told_to_use_tls() {
    let (node, _) = behind_tls().await;
    let reply = node.get("/health").await;
    assert_eq!(reply.status, 400);
    assert!(reply.json()["error"].as_str().unwrap().contains("https://"), "{}", reply.text());
}

#[tokio::test]
async fn a_caller_that_says_nothing_does_not_hold_up_the_stop() {
    let (node, _) = behind_tls().await;
    let silent = node.connect().await;
    // The node has taken the silent one when it answers one that came later.
    assert_eq!(node.get("/health").await.status, 400);
    let from = Instant::now();
    node.stop().await;
    assert!(from.elapsed() < Duration::from_secs(5), "{:?}", from.elapsed());
    drop(silent);
}
