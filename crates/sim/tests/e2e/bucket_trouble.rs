//! A bucket that cannot be written: said in `/status` in words, and nothing lost.

use queen_sim::lake::whole_lake;
use queen_sim::lake::{Accepted, Expected};
use queen_sim::process::{Broker, Item, Seaweed, Setup, sink_settings};
use serde_json::Value;
use std::time::{Duration, Instant};

fn item() -> Item {
    Item {
        queue: "orders".to_owned(),
        partition: "p".to_owned(),
        transaction_id: Some("t-1".to_owned()),
        payload: "{\"total\":42.00}".to_owned(),
    }
}

async fn push_one(broker: &Broker) -> Expected {
    let pushed = broker.client().push(&[item()]).await.unwrap();
    let mut expected = Expected::new();
    expected.accepted.push(Accepted {
        queue: item().queue,
        partition: item().partition,
        offset: pushed[0].offset.unwrap(),
        transaction_id: "t-1".to_owned(),
        payload: item().payload.into_bytes(),
    });
    expected
}

/// Everything the sink says about its troubles.
fn words(sink: &Value) -> String {
    let of = &sink["sinks"][0];
    let queues = of["queues"].as_array().cloned().unwrap_or_default();
    let errors = queues.iter().map(|queue| queue["lastError"].to_string());
    format!("{} {} {}", of["error"], of["bucket"]["error"], errors.collect::<Vec<_>>().join(" "))
}

/// Waits until `/status` speaks of a trouble with all of these words in one of the lists.
async fn said(broker: &Broker, any_of: &[&str]) -> String {
    let until = Instant::now() + Duration::from_secs(40);
    loop {
        let sink = broker.client().sink_status().await.unwrap();
        let words = words(&sink).to_lowercase();
        if any_of.iter().any(|word| words.contains(word)) {
            return words;
        }
        assert!(Instant::now() < until, "none of {any_of:?} in {sink}\n{}", broker.tail());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn settings(endpoint: &str) -> Vec<(String, String)> {
    let mut pairs = sink_settings(endpoint, "orders");
    pairs.push(("QUEEN_S3_MAX_WINDOW_MS".to_owned(), "500".to_owned()));
    pairs
}

#[tokio::test]
async fn a_missing_bucket_is_said_in_words() {
    let s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).with(settings(&s3.endpoint()));
    let mut broker = setup.with([("QUEEN_S3_BUCKET", "nowhere")]).start().await.unwrap();
    push_one(&broker).await;
    let words = said(&broker, &["does not exist", "no bucket", "nosuchbucket", "missing"]).await;
    assert!(words.contains("nowhere"), "the bucket is named: {words}");
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}

#[tokio::test]
async fn a_wrong_key_is_said_in_words_and_never_printed() {
    let s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).with(settings(&s3.endpoint()));
    let secret = "not-the-secret-of-this-bucket";
    let mut broker = setup.with([("QUEEN_S3_SECRET_KEY", secret)]).start().await.unwrap();
    push_one(&broker).await;
    let words = said(&broker, &["refuse", "denied", "signature", "secret", "key"]).await;
    assert!(words.contains("key") || words.contains("credential"), "{words}");
    let sink = broker.client().sink_status().await.unwrap();
    assert!(!sink.to_string().contains(secret) && !broker.output().contains(secret));
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}

#[tokio::test]
async fn a_bucket_that_is_down_is_said_and_catches_up_when_it_returns() {
    let mut s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    s3.stop().unwrap();
    let setup = Setup::new(dir.path()).with(settings(&s3.endpoint()));
    let mut broker = setup.start().await.unwrap();
    let expected = push_one(&broker).await;
    said(&broker, &["connect", "reach", "refused", "answer"]).await;
    let sink = broker.client().sink_status().await.unwrap();
    assert_eq!(sink["sinks"][0]["bucket"]["reachable"], false, "{sink}");
    s3.begin().await.unwrap();
    let (_, report) = whole_lake(&s3.endpoint(), &expected, Duration::from_secs(75)).await.unwrap();
    assert!(report.faults.is_empty(), "{}\n{}", report.text(), broker.tail());
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}
