//! Credentials that end while the broker runs.

use queen_sim::double::{Double, Op};
use queen_sim::process::{Broker, Item, Setup, sink_settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// What an orchestrator gives a container: another key each time it is asked, for an hour.
struct Keys {
    url: String,
    given: Arc<AtomicUsize>,
}

impl Keys {
    async fn start() -> Keys {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/credentials", listener.local_addr().unwrap());
        let given = Arc::new(AtomicUsize::new(0));
        let count = given.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let _ = socket.read(&mut request).await;
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                let body = serde_json::json!({"AccessKeyId": format!("key-{number}"),
                    "SecretAccessKey": "hush-hush", "Token": format!("token-{number}"),
                    "Expiration": "2099-01-01T00:00:00Z"})
                .to_string();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n", body.len());
                let answer = format!("{head}connection: close\r\n\r\n{body}");
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        Keys { url, given }
    }
}

async fn push(broker: &Broker) {
    let item = Item {
        queue: "orders".to_owned(),
        partition: "p".to_owned(),
        transaction_id: None,
        payload: "1".to_owned(),
    };
    broker.client().push(&[item]).await.unwrap();
}

async fn windows(double: &Double, number: usize) {
    let manifests = double.until(|events| {
        let done = events.iter().filter(|event| event.status == Some(200));
        done.filter(|e| e.request.op == Op::Put && e.request.key.contains("/windows/")).count()
            >= number
    });
    let patience = Duration::from_secs(20);
    tokio::time::timeout(patience, manifests).await.expect("the window is in the bucket");
}

#[tokio::test]
async fn keys_that_expire_while_the_broker_runs_are_replaced_without_a_pause() {
    let double = Double::start().await.unwrap();
    double.forget_keys();
    double.accept_key("key-1", "hush-hush", Some("token-1"));
    let keys = Keys::start().await;
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).with(sink_settings(double.endpoint(), "orders")).with([
        ("QUEEN_S3_MAX_WINDOW_MS", "300"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", keys.url.as_str()),
        ("HOME", "/nonexistent"),
    ]);
    let setup = setup.without("QUEEN_S3_ACCESS_KEY").without("QUEEN_S3_SECRET_KEY");
    let broker = setup.start().await.unwrap();
    push(&broker).await;
    windows(&double, 1).await;
    assert_eq!(keys.given.load(Ordering::SeqCst), 1);
    double.accept_key("key-2", "hush-hush", Some("token-2"));
    double.expire_key("key-1");
    push(&broker).await;
    // A refusal is waited out for a minute: longer than this waits.
    windows(&double, 2).await;
    assert_eq!(keys.given.load(Ordering::SeqCst), 2);
    let sink = broker.client().sink_status().await.unwrap();
    assert!(sink["sinks"][0]["queues"][0]["lastError"].is_null(), "{sink}");
    for secret in ["hush-hush", "token-1", "token-2"] {
        assert!(!broker.output().contains(secret) && !sink.to_string().contains(secret));
    }
}
