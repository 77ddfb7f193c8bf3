//! Starts that must fail with a sentence, and ends that must be clean.

use queen_sim::process::{Broker, Item, Setup};
use std::time::Duration;

fn item(n: u64) -> Item {
    Item { queue: "q".into(), partition: "p".into(), payload: n.to_string(), ..Item::default() }
}

/// Waits for a start to fail and gives what it printed.
async fn refused(mut broker: Broker) -> String {
    let status = broker.end(Duration::from_secs(30)).await.unwrap();
    assert!(!status.success(), "it started and ended well:\n{}", broker.tail());
    let output = broker.output();
    assert!(!output.contains("panicked"), "{output}");
    output
}

#[tokio::test]
async fn a_second_process_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = Setup::new(dir.path()).start().await.unwrap();
    let output = refused(Setup::new(dir.path()).spawn().unwrap()).await;
    assert!(output.contains(&dir.path().display().to_string()), "{output}");
    assert!(output.contains("another") || output.contains("in use"), "{output}");
    first.client().push(&[item(1)]).await.unwrap();
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = Setup::new(dirs[0].path());
    let _running = first.start().await.unwrap();
    let port = first.port.to_string();
    let second = Setup::new(dirs[1].path()).with([("PORT", port.as_str())]);
    let output = refused(second.spawn().unwrap()).await;
    assert!(output.contains(&port) && output.contains("in use"), "{output}");
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    // A file where the directory should be: root, who runs tests in CI, can write anywhere else.
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for path in [file.clone(), file.join("below"), "/proc/queen".into()] {
        let output = refused(Setup::new(&path).spawn().unwrap()).await;
        assert!(output.contains(&path.display().to_string()), "{output}");
    }
}

#[tokio::test]
async fn bad_settings_are_all_named_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).with([
        ("PORT", "http"),
        ("QUEEN_S3_EMBEDDED", "true"),
        ("QUEEN_S3_QUEUES", "orders"),
        ("QUEEN_S3_FORMAT", "csv"),
        ("QUEEN_S3_MAX_WINDOW_MSS", "1000"),
    ]);
    let output = refused(setup.spawn().unwrap()).await;
    let wanted = [
        "PORT",
        "QUEEN_S3_FORMAT",
        "csv",
        "QUEEN_S3_ENDPOINT",
        "QUEEN_S3_BUCKET",
        "QUEEN_S3_MAX_WINDOW_MSS",
        "QUEEN_S3_MAX_WINDOW_MS",
    ];
    for name in wanted {
        assert!(output.contains(name), "{name} is not in {output}");
    }
}

#[tokio::test]
async fn a_stop_drains_says_so_and_leaves_everything_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut broker = setup.start().await.unwrap();
        broker.client().push(&[item(1)]).await.unwrap();
        let client = broker.client().clone();
        // A long poll must not hold the stop up.
        let poll = tokio::spawn(async move {
            client.get("/api/v1/pop/queue/empty?wait=true&timeout=50000").await
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        broker.signal(signal).unwrap();
        let status = broker.end(Duration::from_secs(20)).await.unwrap();
        assert!(status.success(), "{status}\n{}", broker.tail());
        let output = broker.output();
        assert!(output.contains("stopping") && output.contains("stopped"), "{output}");
        let _ = poll.await.unwrap();
    }
    let broker = setup.start().await.unwrap();
    let body = r#"{"entries":[{"queue":"q","partition":"p","offset":0}]}"#;
    let answer = broker.client().post("/api/v1/fetch", body).await.unwrap();
    assert_eq!(answer.json()["entries"][0]["highWatermark"], 2, "{}", answer.text);
}
