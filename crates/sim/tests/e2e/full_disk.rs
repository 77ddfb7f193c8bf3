//! A full disk: 507, and work goes on by itself when there is space again.

use queen_sim::lake::{Accepted, Expected, whole_lake};
use queen_sim::process::{Broker, Item, Seaweed, Setup, SmallDisk, sink_settings};
use std::time::{Duration, Instant};

/// A small disk, with the folder at which it is mounted.
fn small_disk() -> (tempfile::TempDir, SmallDisk) {
    let folder = tempfile::tempdir().unwrap();
    let disk =
        SmallDisk::mount(folder.path(), 400).expect("this test mounts a tmpfs: run it as root");
    (folder, disk)
}

fn item(n: u64, len: usize) -> Item {
    Item {
        queue: "q".to_owned(),
        partition: "p".to_owned(),
        transaction_id: Some(format!("t-{n}")),
        payload: format!("\"{}\"", "x".repeat(len)),
    }
}

/// Pushes until the broker says 507; gives the number of messages that were answered 201.
async fn pushed_until_full(broker: &Broker, from: u64) -> u64 {
    let until = Instant::now() + Duration::from_secs(60);
    let mut n = from;
    loop {
        assert!(Instant::now() < until, "never full after {n} pushes\n{}", broker.tail());
        let body = queen_sim::process::push_body(&[item(n, 100_000)]).unwrap();
        let answer = broker.client().post("/api/v1/push", body).await.unwrap();
        match answer.status {
            201 => n += 1,
            507 => {
                assert_eq!(answer.json()["code"], "storage_full", "{}", answer.text);
                return n;
            }
            // A write that failed halfway: its outcome is open, the next answer is 507.
            503 => {}
            other => panic!("{other} {}\n{}", answer.text, broker.tail()),
        }
    }
}

/// Waits until the broker has seen that the disk is over its mark.
async fn until_known(broker: &Broker) {
    let until = Instant::now() + Duration::from_secs(30);
    while broker.client().get("/status").await.unwrap().json()["storageFull"] != true {
        assert!(Instant::now() < until, "the mark was not seen\n{}", broker.tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn pushed_again(broker: &Broker, n: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    while let Err(error) = broker.client().push(&[item(n, 1000)]).await {
        assert!(Instant::now() < until, "did not recover: {error}\n{}", broker.tail());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Every message that was answered 201 is there, in order, once.
async fn all_there(broker: &Broker, answered: u64) {
    let mut offset = 0;
    let mut ids = Vec::new();
    loop {
        let body = serde_json::json!({"entries": [{"queue": "q", "partition": "p", "offset": offset,
            "maxBytes": 8 << 20}]});
        let answer = broker.client().post("/api/v1/fetch", body.to_string()).await.unwrap();
        let entry = answer.json()["entries"][0].clone();
        let records = entry["records"].as_array().cloned().unwrap_or_default();
        if records.is_empty() {
            break;
        }
        for record in &records {
            assert_eq!(record["offset"], offset);
            offset += 1;
            ids.push(record["transactionId"].as_str().unwrap().to_owned());
        }
    }
    let want: Vec<String> = (0..answered).map(|n| format!("t-{n}")).collect();
    assert_eq!(ids, want);
}

#[tokio::test]
async fn a_disk_over_its_high_mark_answers_507_and_recovers_by_itself() {
    let (_folder, disk) = small_disk();
    let setup = Setup::new(&disk.path().join("data"))
        .with([("QUEEN_RAFT_DISK_HIGH_PCT", "85"), ("QUEEN_RAFT_DISK_LOW_PCT", "80")]);
    let broker = setup.start().await.unwrap();
    broker.client().push(&[item(0, 1000)]).await.unwrap();
    disk.fill(40 << 20).unwrap();
    until_known(&broker).await;
    let answered = pushed_until_full(&broker, 1).await;
    assert_eq!(answered, 1, "the mark is known before a push");
    // There is space below the mark: claims and acks go on.
    let pop = broker.client().get("/api/v1/pop/queue/q?batch=1").await.unwrap();
    assert_eq!(pop.status, 200, "{}", pop.text);
    disk.clear().unwrap();
    pushed_again(&broker, answered).await;
    all_there(&broker, answered + 1).await;
}

#[tokio::test]
async fn a_disk_without_a_byte_left_answers_507_and_loses_nothing() {
    let (_folder, disk) = small_disk();
    let setup = Setup::new(&disk.path().join("data"));
    let mut broker = setup.start().await.unwrap();
    broker.client().push(&[item(0, 1000)]).await.unwrap();
    disk.fill(1 << 20).unwrap();
    let answered = pushed_until_full(&broker, 1).await;
    disk.clear().unwrap();
    pushed_again(&broker, answered).await;
    all_there(&broker, answered + 1).await;
    broker.kill().unwrap();
    let broker = setup.start().await.unwrap();
    all_there(&broker, answered + 1).await;
}

/// Pushes one record; `false` when the broker says 507.
async fn accepted(broker: &Broker, expected: &mut Expected, item: Item) -> bool {
    let pushed = match broker.client().push(std::slice::from_ref(&item)).await {
        Ok(mut pushed) => pushed.remove(0),
        Err(refused) => {
            let refused = refused.to_string();
            assert!(refused.contains("507") && refused.contains("storage_full"), "{refused}");
            return false;
        }
    };
    expected.accepted.push(Accepted {
        queue: item.queue,
        partition: item.partition,
        offset: pushed.offset.unwrap(),
        transaction_id: pushed.transaction_id,
        payload: item.payload.into_bytes(),
    });
    true
}

async fn whole(s3: &Seaweed, broker: &Broker, expected: &Expected) -> queen_sim::lake::Files {
    let patience = Duration::from_secs(120);
    let (files, report) = whole_lake(&s3.endpoint(), expected, patience).await.unwrap();
    assert!(report.faults.is_empty(), "{}\n{}", report.text(), broker.tail());
    files
}

async fn sink_state(broker: &Broker) -> String {
    let sink = broker.client().sink_status().await.unwrap();
    sink["sinks"][0]["queues"][0]["state"].as_str().unwrap_or_default().to_owned()
}

/// The bucket goes in the middle of a window, and nothing may be removed meanwhile: retention is off.
#[tokio::test]
async fn a_disk_filled_while_a_window_is_pinned_refuses_and_the_window_is_finished_as_it_was_begun()
{
    let (folder, _disk) = small_disk();
    let mut s3 = Seaweed::start().await.unwrap();
    let setup = Setup::new(&folder.path().join("data"))
        .with(sink_settings(&s3.endpoint(), "q"))
        .with([("QUEEN_RAFT_DISK_HIGH_PCT", "60"), ("QUEEN_RAFT_DISK_LOW_PCT", "55")])
        .with([("QUEEN_S3_MAX_WINDOW_MS", "500"), ("RETENTION_INTERVAL", "200")]);
    let mut broker = setup.start().await.unwrap();
    let mut expected = Expected::new();
    assert!(accepted(&broker, &mut expected, item(0, 10)).await);
    whole(&s3, &broker, &expected).await;
    s3.stop().unwrap();
    assert!(accepted(&broker, &mut expected, item(1, 10)).await);
    let until = Instant::now() + Duration::from_secs(60);
    while sink_state(&broker).await != "upload" {
        assert!(Instant::now() < until, "no window was begun\n{}", broker.tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut n = 2;
    while accepted(&broker, &mut expected, item(n, 1_000_000)).await {
        n += 1;
        assert!(n < 400, "never full\n{}", broker.tail());
    }
    until_known(&broker).await;
    assert_eq!(broker.client().get("/health").await.unwrap().status, 200, "{}", broker.tail());
    // It starts on the full disk, with settings that the window was not begun with.
    broker.kill().unwrap();
    let setup = setup.with([("QUEEN_S3_COMPRESSION", "none")]);
    let mut broker = setup.start().await.unwrap();
    until_known(&broker).await;
    assert!(!accepted(&broker, &mut expected, item(n, 1_000_000)).await);
    s3.begin().await.unwrap();
    let files = whole(&s3, &broker, &expected).await;
    let data = files.0.keys().filter(|key| !key.contains("/_queen/"));
    let (old, new): (Vec<_>, Vec<_>) = data.partition(|key| key.ends_with(".jsonl.zst"));
    assert_eq!(old.len(), 2, "the first window, and the one that was begun: {old:?}");
    assert!(!new.is_empty() && new.iter().all(|key| key.ends_with(".jsonl")), "{new:?}");
    // What is copied may go; then there is space.
    let options = serde_json::json!({"retentionEnabled": true, "retentionSeconds": 1});
    let body = serde_json::json!({"queue": "q", "options": options}).to_string();
    let answer = broker.client().post("/api/v1/configure", body).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    let until = Instant::now() + Duration::from_secs(60);
    while !accepted(&broker, &mut expected, item(n, 1_000)).await {
        assert!(Instant::now() < until, "did not recover\n{}", broker.tail());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    whole(&s3, &broker, &expected).await;
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}
