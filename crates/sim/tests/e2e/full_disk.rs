//! A full disk: 507, and work goes on by itself when there is space again.

use queen_sim::process::{Broker, Item, Setup, SmallDisk};
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
