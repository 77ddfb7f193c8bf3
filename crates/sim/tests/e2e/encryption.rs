//! An encrypted queue, from the push to the lake: nothing in the clear on the disk, nothing sealed
//! in the lake, whatever the keys.

use queen_sim::lake::whole_lake;
use queen_sim::lake::{Accepted, Expected};
use queen_sim::process::{Broker, Item, Seaweed, Setup, sink_settings};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

const MARKER: &str = "the-plain-secret-";
const KEYS: [&str; 3] = [
    "1111111111111111111111111111111111111111111111111111111111111111",
    "2222222222222222222222222222222222222222222222222222222222222222",
    "3333333333333333333333333333333333333333333333333333333333333333",
];
/// A stuck queue is tried again each minute.
const PATIENCE: Duration = Duration::from_secs(75);

/// Files below a directory that hold the text.
fn holding(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            if bytes.windows(text.len()).any(|part| part == text.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

fn keys(setup: &Setup, key: Option<&str>, previous: &[&str]) -> Setup {
    let setup =
        setup.clone().without("QUEEN_ENCRYPTION_KEY").without("QUEEN_ENCRYPTION_KEY_PREVIOUS");
    let setup = setup.with(key.map(|key| ("QUEEN_ENCRYPTION_KEY", key)));
    setup.with([("QUEEN_ENCRYPTION_KEY_PREVIOUS", previous.join(","))])
}

async fn encrypted(broker: &Broker, queue: &str) {
    let body = format!("{{\"queue\":\"{queue}\",\"options\":{{\"encryptionEnabled\":true}}}}");
    let answer = broker.client().post("/api/v1/configure", body).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// Pushes so many secrets, over three partitions.
async fn push(broker: &Broker, queue: &str, numbers: std::ops::Range<u64>, to: &mut Expected) {
    let items: Vec<Item> = numbers
        .map(|n| Item {
            queue: queue.to_owned(),
            partition: format!("p{}", n % 3),
            transaction_id: (n % 2 == 0).then(|| format!("t-{n}")),
            payload: format!("{{\"n\":{n},  \"secret\":\"{MARKER}{n}\",\"total\":42.00}}"),
        })
        .collect();
    for (item, pushed) in items.iter().zip(broker.client().push(&items).await.unwrap()) {
        assert_eq!(pushed.status, "queued");
        to.accepted.push(Accepted {
            queue: item.queue.clone(),
            partition: item.partition.clone(),
            offset: pushed.offset.unwrap(),
            transaction_id: pushed.transaction_id,
            payload: item.payload.clone().into_bytes(),
        });
    }
}

async fn fetch(broker: &Broker, queue: &str, partition: &str) -> Value {
    let body = format!(
        "{{\"entries\":[{{\"queue\":\"{queue}\",\"partition\":\"{partition}\",\"offset\":0}}]}}"
    );
    let answer = broker.client().post("/api/v1/fetch", body).await.unwrap();
    answer.json()["entries"][0].clone()
}

/// Waits until the sink says that a queue is in this state, and gives its line.
async fn state(broker: &Broker, queue: &str, wanted: &str) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let sink = broker.client().sink_status().await.unwrap();
        let lines = sink["sinks"][0]["queues"].as_array().cloned().unwrap_or_default();
        let line = lines.into_iter().find(|line| line["name"] == queue).unwrap_or_default();
        if line["state"] == wanted {
            return line;
        }
        assert!(Instant::now() < until, "{queue} is not {wanted}: {sink}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn whole(s3: &Seaweed, expected: &Expected, broker: &Broker) {
    let (files, report) = whole_lake(&s3.endpoint(), expected, PATIENCE).await.unwrap();
    assert!(report.faults.is_empty(), "{}\n{}", report.text(), broker.tail());
    assert!(!files.0.is_empty());
}

#[tokio::test]
async fn nothing_is_in_the_clear_on_the_disk_and_nothing_sealed_in_the_lake() {
    let s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let pairs = sink_settings(&s3.endpoint(), "secrets,open");
    let plain = Setup::new(dir.path()).with(pairs).with([("QUEEN_S3_MAX_WINDOW_MS", "500")]);
    let mut expected = Expected::new();

    let mut broker = keys(&plain, Some(KEYS[0]), &[]).start().await.unwrap();
    encrypted(&broker, "secrets").await;
    push(&broker, "secrets", 0..300, &mut expected).await;
    whole(&s3, &expected, &broker).await;
    push(&broker, "secrets", 300..320, &mut expected).await;
    broker.kill().unwrap();
    assert_eq!(holding(dir.path(), MARKER), [""; 0], "after kill -9");

    // A new key, the old one for reading: old and new are whole.
    let mut broker = keys(&plain, Some(KEYS[1]), &[KEYS[0]]).start().await.unwrap();
    push(&broker, "secrets", 320..330, &mut expected).await;
    whole(&s3, &expected, &broker).await;
    let entry = fetch(&broker, "secrets", "p0").await;
    assert_eq!(entry["records"].as_array().unwrap().len(), 110, "{entry}");
    assert_eq!(entry["records"][0]["payload"]["secret"], format!("{MARKER}0"));
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
    let output = broker.output();
    assert!(output.contains("sealed") && KEYS.iter().all(|key| !output.contains(key)), "{output}");
    assert_eq!(holding(dir.path(), MARKER), [""; 0], "after a checkpoint");

    // What was pushed under the new key opens with it alone, what the old one sealed does not.
    let mut broker = keys(&plain, Some(KEYS[1]), &[]).start().await.unwrap();
    let entry = fetch(&broker, "secrets", "p0").await;
    assert_eq!(entry["error"], "UNDECRYPTABLE", "{entry}");
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}

#[tokio::test]
async fn what_was_sealed_is_in_the_clear_in_a_parquet_lake() {
    let s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let pairs = sink_settings(&s3.endpoint(), "secrets");
    let parquet = [("QUEEN_S3_MAX_WINDOW_MS", "500"), ("QUEEN_S3_FORMAT", "parquet")];
    let setup = keys(&Setup::new(dir.path()).with(pairs).with(parquet), Some(KEYS[0]), &[]);
    let mut expected = Expected::new();
    let mut broker = setup.start().await.unwrap();
    encrypted(&broker, "secrets").await;
    push(&broker, "secrets", 0..300, &mut expected).await;
    let (files, report) = whole_lake(&s3.endpoint(), &expected, PATIENCE).await.unwrap();
    assert!(report.faults.is_empty(), "{}\n{}", report.text(), broker.tail());
    assert!(files.0.keys().any(|key| key.ends_with(".parquet")));
    broker.kill().unwrap();
    assert_eq!(holding(dir.path(), MARKER), [""; 0], "after kill -9");
}

#[tokio::test]
async fn a_wrong_key_stops_the_queue_alone_and_the_right_one_lets_it_go_on() {
    let s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let plain = Setup::new(dir.path());
    let pairs = sink_settings(&s3.endpoint(), "secrets,open");
    let sinking = plain.clone().with(pairs).with([("QUEEN_S3_MAX_WINDOW_MS", "500")]);
    let mut sealed = Expected::new();
    let mut broker = keys(&plain, Some(KEYS[0]), &[]).start().await.unwrap();
    encrypted(&broker, "secrets").await;
    push(&broker, "secrets", 0..30, &mut sealed).await;
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());

    let mut open = Expected::new();
    let mut broker = keys(&sinking, Some(KEYS[2]), &[]).start().await.unwrap();
    push(&broker, "open", 0..30, &mut open).await;
    let line = state(&broker, "secrets", "undecryptable").await;
    let message = line["lastError"]["message"].as_str().unwrap();
    for part in ["offset 0", "\"p0\"", "QUEEN_ENCRYPTION_KEY", "QUEEN_ENCRYPTION_KEY_PREVIOUS"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    let pop = "/api/v1/pop/queue/secrets?consumerGroup=g&subscriptionMode=all";
    let answer = broker.client().get(pop).await.unwrap();
    assert_eq!((answer.status, &answer.json()["code"]), (503, &"undecryptable".into()));
    // The other queue is whole, and of this one nothing is there.
    whole(&s3, &open, &broker).await;
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());

    let mut broker = keys(&sinking, Some(KEYS[2]), &[KEYS[0]]).start().await.unwrap();
    sealed.accepted.extend(open.accepted);
    whole(&s3, &sealed, &broker).await;
    let answer = broker.client().get(&format!("{pop}&wait=true&timeout=15000")).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}

#[tokio::test]
async fn a_malformed_key_stops_the_start_and_is_not_printed() {
    let dir = tempfile::tempdir().unwrap();
    let secret = "hunter2hunter2hunter2";
    let mut broker = keys(&Setup::new(dir.path()), Some(secret), &[KEYS[0]]).spawn().unwrap();
    let status = broker.end(Duration::from_secs(30)).await.unwrap();
    let output = broker.output();
    assert!(!status.success(), "{output}");
    for part in ["QUEEN_ENCRYPTION_KEY", "64 hex digits", "openssl rand -hex 32"] {
        assert!(output.contains(part), "{part} is not in {output}");
    }
    assert!(!output.contains(secret) && !output.contains(KEYS[0]), "{output}");
}
