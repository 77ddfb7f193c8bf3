//! Tokens over HTTP: who gets in, what refuses the others, and whose a pushed message is.

use crate::node::{Node, Reply, messages};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use queen_http::ServerOptions;
use queen_http::auth::{Auth, AuthOptions, Secret};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn options() -> AuthOptions {
    AuthOptions {
        signature: Some("HS256"),
        secret: Some(Secret(SECRET.to_owned())),
        public_key: None,
        published_at: None,
        issuer: None,
        audience: None,
        clock_skew: Duration::from_secs(30),
        allow_endless: false,
        open_paths: ["/health", "/metrics", "/metrics/prometheus", "/"].map(str::to_owned).into(),
        role_claim: "role".to_owned(),
        roles_claim: "roles".to_owned(),
        admin: "admin".to_owned(),
        read_write: "read-write".to_owned(),
        read_only: "read-only".to_owned(),
        write_only: "write-only".to_owned(),
    }
}

async fn guarded() -> Node {
    let auth = Some(Auth::new(options()).unwrap());
    Node::start_behind(ServerOptions { auth, ..ServerOptions::default() }).await
}

fn token(subject: &str, role: &str) -> String {
    let exp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 600;
    let claims = json!({"sub": subject, "role": role, "exp": exp}).to_string();
    let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let message = format!("{}.{}", b64(br#"{"alg":"HS256","typ":"JWT"}"#), b64(claims.as_bytes()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = b64(hmac::sign(&key, message.as_bytes()).as_ref());
    format!("{message}.{signature}")
}

async fn call_as(node: &Node, token: &str, method: &str, path: &str, body: Value) -> Reply {
    let headers = format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    node.call_with(method, path, &headers, body.as_bytes()).await
}

/// One route of each level, with a body that it takes.
fn routes() -> [(&'static str, &'static str, Value, &'static str); 8] {
    let item = json!({"items": [{"queue": "q", "payload": 1}]});
    [
        ("GET", "/status", Value::Null, "ro"),
        ("GET", "/api/v1/resources/queues", Value::Null, "ro"),
        ("POST", "/api/v1/fetch", json!({"entries": []}), "ro"),
        ("POST", "/api/v1/push", item, "wo"),
        ("GET", "/api/v1/pop/queue/q", Value::Null, "rw"),
        ("POST", "/api/v1/configure", json!({"queue": "q"}), "rw"),
        ("DELETE", "/api/v1/resources/queues/other", Value::Null, "admin"),
        ("GET", "/api/v1/raft/status", Value::Null, "admin"),
    ]
}

#[tokio::test]
async fn a_request_without_a_good_token_is_turned_away() {
    let node = guarded().await;
    let forged = token("alice", "admin").replace('.', ".x");
    for (method, path, body, _) in routes() {
        let without = node.call(method, path, body.to_string().as_bytes()).await;
        let bad = call_as(&node, &forged, method, path, body).await;
        for reply in [without, bad] {
            assert_eq!(reply.status, 401, "{method} {path}");
            assert!(reply.head.contains("www-authenticate: bearer"), "{}", reply.head);
            let error = reply.json();
            assert!(error["error"].is_string() && error.as_object().unwrap().len() == 1, "{error}");
        }
    }
    for open in ["/health", "/metrics", "/metrics/prometheus"] {
        assert_eq!(node.get(open).await.status, 200, "{open}");
    }
    let unknown = node.get("/api/v1/nothing").await;
    assert_eq!((unknown.status, &unknown.json()["code"]), (404, &json!("no_such_route")));
}

#[tokio::test]
async fn each_role_reaches_the_routes_of_its_levels() {
    let node = guarded().await;
    for (role, may) in [
        ("admin", &["ro", "wo", "rw", "admin"][..]),
        ("read-write", &["ro", "wo", "rw"]),
        ("read-only", &["ro"]),
        ("write-only", &["wo"]),
        ("guest", &[]),
    ] {
        let token = token("alice", role);
        for (method, path, body, level) in routes() {
            let reply = call_as(&node, &token, method, path, body).await;
            if may.contains(&level) {
                assert!(reply.status < 300, "{role}: {method} {path}: {}", reply.text());
            } else {
                assert_eq!(reply.status, 403, "{role}: {method} {path}: {}", reply.text());
                assert_eq!(reply.json(), json!({"error": "Insufficient permissions"}));
            }
        }
    }
}

#[tokio::test]
async fn a_token_that_only_reads_or_pushes_moves_and_deletes_no_dead_letter() {
    let node = guarded().await;
    let worker = token("alice", "read-write");
    let push = json!({"items": [{"queue": "q", "payload": 1, "transactionId": "t-1"}]});
    assert_eq!(call_as(&node, &worker, "POST", "/api/v1/push", push).await.status, 201);
    let popped = call_as(&node, &worker, "GET", "/api/v1/pop/queue/q", Value::Null).await.json();
    let bury = crate::node::ack(&messages(&popped)[0], "dlq");
    assert_eq!(call_as(&node, &worker, "POST", "/api/v1/ack", bury).await.json()[0]["dlq"], true);
    let list = async || call_as(&node, &worker, "GET", "/api/v1/dlq", Value::Null).await.json();
    let letter = list().await["messages"][0].clone();
    let (id, partition) = (letter["id"].as_str().unwrap(), letter["partitionId"].as_str().unwrap());
    let replay = format!("/api/v1/dlq/{id}/replay");
    let ways = [
        ("POST", replay.clone()),
        ("DELETE", "/api/v1/dlq?queue=q".to_owned()),
        ("POST", format!("/api/v1/messages/{partition}/t-1/retry")),
        ("DELETE", format!("/api/v1/messages/{partition}/t-1")),
    ];
    for role in ["read-only", "write-only"] {
        let token = token("bob", role);
        for (method, path) in &ways {
            let reply = call_as(&node, &token, method, path, Value::Null).await;
            assert_eq!(reply.status, 403, "{role}: {method} {path}: {}", reply.text());
            // Spelled otherwise it is no route, rather than one of another level.
            for path in [path.replacen("/api", "//api", 1), path.replacen("v1", "V1", 1)] {
                let reply = call_as(&node, &token, method, &path, Value::Null).await;
                assert_eq!(reply.status, 404, "{role}: {method} {path}: {}", reply.text());
            }
        }
    }
    assert_eq!(list().await["messages"], json!([letter]));
    let moved = call_as(&node, &worker, "POST", &replay, Value::Null).await;
    assert_eq!(moved.json()["result"], "moved", "{}", moved.text());
}

#[tokio::test]
async fn a_message_is_its_token_s_whatever_the_body_says() {
    let node = guarded().await;
    let token = token("alice ✓", "read-write");
    let item = |queue: &str, payload: u32| json!({"queue": queue, "payload": payload, "producerSub": "mallory"});
    let push = json!({"items": [item("q", 1), item("q", 2)]});
    assert_eq!(call_as(&node, &token, "POST", "/api/v1/push", push).await.status, 201);
    let operations = json!([{"type": "push", "items": [item("q", 3)]}]);
    let body = json!({ "operations": operations });
    let reply = call_as(&node, &token, "POST", "/api/v1/transaction", body).await;
    assert_eq!(reply.json()["success"], true, "{}", reply.text());
    let binary =
        [&b"QPB1\0\x01\0\0\0\x01\0q\x07\0Default\x01\0\0\0"[..], &b"\x01\0\0\x004"[..]].concat();
    let headers =
        format!("authorization: Bearer {token}\r\ncontent-type: application/x-queen-push\r\n");
    let reply = node.call_with("POST", "/api/v1/push", &headers, &binary).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let popped = call_as(&node, &token, "GET", "/api/v1/pop/queue/q?batch=9", Value::Null).await;
    let popped = messages(&popped.json());
    assert_eq!(popped.iter().map(|m| m["data"].clone()).collect::<Value>(), json!([1, 2, 3, 4]));
    for message in &popped {
        assert_eq!(message["producerSub"], "alice ✓", "{message}");
    }
    let bury = json!({"transactionId": popped[0]["transactionId"], "status": "dlq",
        "partitionId": popped[0]["partitionId"], "leaseId": popped[0]["leaseId"]});
    assert_eq!(call_as(&node, &token, "POST", "/api/v1/ack", bury).await.json()[0]["dlq"], true);
    let letters = call_as(&node, &token, "GET", "/api/v1/dlq", Value::Null).await.json();
    assert_eq!(letters["messages"][0]["producerSub"], "alice ✓", "{letters}");
}

#[tokio::test]
async fn without_authentication_a_token_is_not_looked_at() {
    let node = Node::start().await;
    let body = json!({"items": [{"queue": "q", "payload": 1, "producerSub": "mallory"}]});
    assert_eq!(call_as(&node, "nonsense", "POST", "/api/v1/push", body).await.status, 201);
    assert_eq!(messages(&node.pop("q").await)[0]["producerSub"], Value::Null);
}

#[tokio::test]
async fn tokens_are_not_refused_for_good_while_their_keys_cannot_be_fetched() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/keys", nobody.local_addr().unwrap());
    drop(nobody);
    let auth = Auth::new(AuthOptions { signature: None, published_at: Some(url), ..options() });
    let auth = Some(auth.unwrap());
    let node = Node::start_behind(ServerOptions { auth, ..ServerOptions::default() }).await;
    let by_secret = token("alice", "read-only");
    let reply = call_as(&node, &by_secret, "GET", "/status", Value::Null).await;
    assert_eq!(reply.status, 200, "a key that is set needs no fetch: {}", reply.text());
    let header = URL_SAFE_NO_PAD.encode(br#"{"alg":"EdDSA"}"#);
    let by_published = by_secret.replacen(by_secret.split('.').next().unwrap(), &header, 1);
    let reply = call_as(&node, &by_published, "GET", "/status", Value::Null).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.head.contains("retry-after: 1"), "{}", reply.head);
}
