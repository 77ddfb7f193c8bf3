//! Each setting of the sink, against a real S3 server: what it promises is what lies in the bucket.

use queen_sim::lake::whole_lake_of;
use queen_sim::lake::{Accepted, Align, Expected, Files, Layout};
use queen_sim::process::{ACCESS_KEY, Broker, Item, SECRET_KEY, Seaweed, Setup, sink_settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_secs(60);

fn item(queue: &str, partition: &str, payload: &str) -> Item {
    Item {
        queue: queue.to_owned(),
        partition: partition.to_owned(),
        transaction_id: None,
        payload: payload.to_owned(),
    }
}

async fn push(broker: &Broker, items: &[Item], expected: &mut Expected) {
    let pushed = broker.client().push(items).await.unwrap();
    for (item, result) in items.iter().zip(pushed) {
        expected.accepted.push(Accepted {
            queue: item.queue.clone(),
            partition: item.partition.clone(),
            offset: result.offset.unwrap(),
            transaction_id: result.transaction_id,
            payload: item.payload.clone().into_bytes(),
        });
    }
}

/// A broker whose sink has these settings beside the usual ones, and windows of half a second.
async fn broker(dir: &tempfile::TempDir, s3: &Seaweed, change: &[(&str, &str)]) -> Broker {
    let setup = Setup::new(dir.path()).with(sink_settings(&s3.endpoint(), "orders"));
    let setup = setup.with([("QUEEN_S3_MAX_WINDOW_MS", "500")]).with(change.iter().copied());
    let unset = change.iter().filter(|(_, value)| value.is_empty());
    unset.fold(setup, |setup, (name, _)| setup.without(name)).start().await.unwrap()
}

/// What three records in two partitions become under these settings, each run below a prefix of its
/// own: the names of the data files, and all files.
async fn copied(
    s3: &Seaweed,
    prefix: &str,
    align: Align,
    change: &[(&str, &str)],
) -> (Vec<String>, Files) {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(&dir, s3, &[change, &[("QUEEN_S3_PREFIX", prefix)]].concat()).await;
    let mut expected = Expected::new();
    let items = [
        item("orders", "cust-1", r#"{"total":42.00,"mark":"a-mark-to-look-for"}"#),
        item("orders", "cust-2", r#"{"total":17.50,"mark":"a-mark-to-look-for"}"#),
        item("orders", "cust-1", r#"{"total":1e3,"mark":"a-mark-to-look-for"}"#),
    ];
    push(&broker, &items, &mut expected).await;
    let prefix = prefix.trim_matches('/');
    let layout = Layout { prefix, align, ..Layout::default() };
    let lake = whole_lake_of(&s3.endpoint(), layout, &expected, PATIENCE).await;
    let (files, report) = lake.unwrap();
    assert!(report.faults.is_empty(), "{change:?}: {}\n{}", report.text(), broker.tail());
    assert_eq!(report.records, 3, "{change:?}");
    let data = files.0.keys().filter(|key| !key.contains("/_queen/"));
    (data.cloned().collect(), files)
}

#[tokio::test]
async fn each_codec_has_its_ending_and_the_same_records() {
    let s3 = Seaweed::start().await.unwrap();
    for (word, ending) in
        [("zstd", ".jsonl.zst"), ("GZ", ".jsonl.gz"), ("off", ".jsonl"), ("", ".jsonl.zst")]
    {
        let prefix = format!("codec-{word}");
        let change = [("QUEEN_S3_COMPRESSION", word), ("QUEEN_S3_FORMAT", "jsonl")];
        let (data, _) = copied(&s3, &prefix, Align::Hour, &change).await;
        assert_eq!(data.len(), 1, "{data:?}");
        assert!(data[0].ends_with(ending) && data[0].starts_with(&prefix), "{word}: {data:?}");
    }
}

#[tokio::test]
async fn parquet_is_written_with_the_codec_that_is_asked_for() {
    let s3 = Seaweed::start().await.unwrap();
    let bucket = queen_sim::process::bucket(&s3.endpoint()).unwrap();
    for (word, codec) in [("", "zstd"), ("SNAP", "snappy")] {
        let dir = tempfile::tempdir().unwrap();
        let prefix = format!("parquet-{codec}");
        let change = [
            ("QUEEN_S3_FORMAT", "Parquet"),
            ("QUEEN_S3_PARQUET_CODEC", word),
            ("QUEEN_S3_PREFIX", prefix.as_str()),
        ];
        let broker = broker(&dir, &s3, &change).await;
        push(&broker, &[item("orders", "p", "42.00")], &mut Expected::new()).await;
        let until = Instant::now() + PATIENCE;
        let manifest = loop {
            let files = Files::of_bucket(&bucket).await.unwrap();
            let mut below = files.0.into_iter().filter(|(key, _)| key.starts_with(&prefix));
            if let Some((_, manifest)) = below.find(|(key, _)| key.contains("/windows/")) {
                let (key, data) = below.next().expect("a manifest comes after its data");
                assert!(key.ends_with(".parquet"), "{key}");
                assert!(data.starts_with(b"PAR1") && data.ends_with(b"PAR1"), "{key}");
                break manifest;
            }
            assert!(Instant::now() < until, "{}", broker.tail());
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let said = (&manifest["format"], &manifest["compression"], &manifest["records"]);
        assert_eq!(said, (&"parquet".into(), &codec.into(), &1.into()), "{manifest}");
    }
}

#[tokio::test]
async fn layout_alignment_and_prefix_are_in_the_names() {
    let s3 = Seaweed::start().await.unwrap();
    let layout = [("QUEEN_S3_LAYOUT", "per-partition")];
    let (data, _) = copied(&s3, "/team/lake/", Align::Hour, &layout).await;
    assert_eq!(data.len(), 2, "a file for each partition: {data:?}");
    assert!(data[0].starts_with("team/lake/tenant=") && data[0].contains("-p-cust-1-"), "{data:?}");
    let align = [("QUEEN_S3_ALIGN", "daily")];
    let (data, _) = copied(&s3, "day", Align::Day, &align).await;
    assert!(data[0].contains("/dt=") && !data[0].contains("/hour="), "{data:?}");
    let align = [("QUEEN_S3_ALIGN", "none")];
    let (data, files) = copied(&s3, "none", Align::None, &align).await;
    assert!(data[0].contains("/hour="), "{data:?}");
    let manifest = files.0.iter().find(|(key, _)| key.contains("/windows/")).unwrap().1;
    let manifest: serde_json::Value = serde_json::from_slice(manifest).unwrap();
    assert_eq!(manifest["tStart"], manifest["minTs"], "it starts at its first record");
}

#[tokio::test]
async fn a_queue_starts_where_the_setting_says() {
    let s3 = Seaweed::start().await.unwrap();
    for (start, records) in [("", 1), ("latest", 1), ("earliest", 2)] {
        let dir = tempfile::tempdir().unwrap();
        let mut before = Setup::new(dir.path()).start().await.unwrap();
        push(&before, &[item("orders", "p", "1")], &mut Expected::new()).await;
        before.stop().await.unwrap();
        let prefix = format!("start-{start}");
        let change = [("QUEEN_S3_START", start), ("QUEEN_S3_PREFIX", prefix.as_str())];
        let broker = broker(&dir, &s3, &change).await;
        push(&broker, &[item("orders", "p", "2")], &mut Expected::new()).await;
        assert_eq!(records_in_the_lake(&s3, &prefix, 2).await, records, "{start:?}");
    }
}

/// Records that the manifests below a prefix list, once one of them holds offset `through - 1`.
async fn records_in_the_lake(s3: &Seaweed, prefix: &str, through: u64) -> u64 {
    let bucket = queen_sim::process::bucket(&s3.endpoint()).unwrap();
    let until = Instant::now() + PATIENCE;
    loop {
        let files = Files::of_bucket(&bucket).await.unwrap();
        let below = files.0.iter().filter(|(key, _)| key.starts_with(&format!("{prefix}/")));
        let (mut records, mut last) = (0, None);
        for (key, bytes) in below {
            if key.contains("/windows/") {
                let manifest: serde_json::Value = serde_json::from_slice(bytes).unwrap();
                records += manifest["records"].as_u64().unwrap();
            } else if key.ends_with(".zst") {
                let text = String::from_utf8(zstd::stream::decode_all(&bytes[..]).unwrap());
                let line: serde_json::Value =
                    serde_json::from_str(text.unwrap().lines().last().unwrap()).unwrap();
                last = last.max(line["offset"].as_u64());
            }
        }
        if last == Some(through - 1) && records > 0 {
            return records;
        }
        assert!(Instant::now() < until, "offset {} is not in the lake", through - 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn the_queues_of_the_list_are_copied_and_no_others_and_a_star_copies_later_ones() {
    let s3 = Seaweed::start().await.unwrap();
    for (queues, wanted) in [("orders, invoices", 2), ("*", 3)] {
        let dir = tempfile::tempdir().unwrap();
        let prefix = if wanted == 2 { "list" } else { "star" };
        let change = [("QUEEN_S3_QUEUES", queues), ("QUEEN_S3_PREFIX", prefix)];
        let broker = broker(&dir, &s3, &change).await;
        let mut expected = Expected::new();
        let named = ["other", "orders", "invoices"].map(|queue| item(queue, "p", "1"));
        if wanted == 2 {
            push(&broker, &named[..1], &mut Expected::new()).await;
            push(&broker, &named[1..], &mut expected).await;
        } else {
            push(&broker, &named, &mut expected).await;
        }
        let layout = Layout { prefix, ..Layout::default() };
        let (_, report) = whole_lake_of(&s3.endpoint(), layout, &expected, PATIENCE).await.unwrap();
        assert!(report.faults.is_empty(), "{queues}: {}\n{}", report.text(), broker.tail());
        assert_eq!(report.records, wanted, "{queues}");
    }
}

#[tokio::test]
async fn a_window_closes_at_its_size_and_a_long_object_goes_up_in_parts() {
    let s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let change = [
        ("QUEEN_S3_MAX_WINDOW_MS", "3600000"),
        ("QUEEN_S3_TARGET_MB", "6"),
        ("QUEEN_S3_COMPRESSION", "none"),
        ("QUEEN_S3_MULTIPART_THRESHOLD_MB", "5"),
        ("QUEEN_S3_ALIGN", "none"),
    ];
    let broker = broker(&dir, &s3, &change).await;
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    for _ in 0..8 {
        push(&broker, &[item("orders", "p", &long)], &mut Expected::new()).await;
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let queue = broker.client().sink_status().await.unwrap()["sinks"][0]["queues"][0].clone();
        if queue["windowsCommitted"].as_u64() == Some(1) {
            // Six of a MiB and their frames are over the target.
            assert_eq!(queue["records"], 5, "{queue}");
            break;
        }
        assert!(Instant::now() < until, "{queue}\n{}", broker.tail());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let metrics = broker.client().get("/metrics/prometheus").await.unwrap().text;
    let parts = metrics
        .lines()
        .any(|line| line.contains("op=\"multipart_complete\"") && line.ends_with(" 1"));
    assert!(parts, "{metrics}");
}

#[tokio::test]
async fn the_bucket_encrypts_as_it_is_told() {
    let s3 = Seaweed::start().await.unwrap();
    let none = ("QUEEN_S3_COMPRESSION", "none");
    copied(&s3, "sse-aes", Align::Hour, &[none, ("QUEEN_S3_SSE", "aes256")]).await;
    let kms = [none, ("QUEEN_S3_SSE", "aws:kms"), ("QUEEN_S3_SSE_KMS_KEY_ID", "alias/queen")];
    copied(&s3, "sse-kms", Align::Hour, &kms).await;
    let mark = b"a-mark-to-look-for";
    assert!(!s3.holds(mark).unwrap(), "a record lies on the server's disk as it was written");
    copied(&s3, "plain", Align::Hour, &[none]).await;
    assert!(s3.holds(mark).unwrap(), "the look finds what is not encrypted");
}

/// Passes connections on to `to`, and counts them.
async fn pipe(to: String) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let to = to.clone();
            tokio::spawn(async move {
                if let Ok(mut server) = TcpStream::connect(to).await {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    (here, count)
}

#[tokio::test]
async fn the_bucket_may_be_in_the_host_and_requests_go_through_the_proxy() {
    let s3 = Seaweed::start().await.unwrap();
    let address = s3.endpoint().strip_prefix("http://").unwrap().to_owned();
    let port = address.rsplit(':').next().unwrap();
    // Nothing resolves lake.localhost here: the proxy is asked for it, and passes it on.
    let (proxy, count) = pipe(address.clone()).await;
    let endpoint = format!("http://localhost:{port}");
    let host = [("QUEEN_S3_ENDPOINT", endpoint.as_str()), ("QUEEN_S3_PATH_STYLE", "")];
    let change = [&host[..], &[("HTTP_PROXY", proxy.as_str())]].concat();
    copied(&s3, "host", Align::Hour, &change).await;
    assert!(count.load(Ordering::SeqCst) > 0);
    let before = count.load(Ordering::SeqCst);
    let change = [("HTTP_PROXY", proxy.as_str()), ("NO_PROXY", "127.0.0.1")];
    copied(&s3, "no-proxy", Align::Hour, &change).await;
    assert_eq!(count.load(Ordering::SeqCst), before);
}

#[tokio::test]
async fn credentials_come_from_the_environment_or_a_profile() {
    let s3 = Seaweed::start().await.unwrap();
    let none = [("QUEEN_S3_ACCESS_KEY", ""), ("QUEEN_S3_SECRET_KEY", "")];
    let environment = [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)];
    copied(&s3, "environment", Align::Hour, &[&none[..], &environment].concat()).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    let text =
        format!("[lake]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let profile = [("QUEEN_S3_PROFILE", "lake"), ("AWS_SHARED_CREDENTIALS_FILE", file.as_str())];
    copied(&s3, "profile", Align::Hour, &[&none[..], &profile].concat()).await;
}

#[tokio::test]
async fn a_metadata_service_that_never_answers_stops_nothing_else() {
    let s3 = Seaweed::start().await.unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = (format!("http://{}", silent.local_addr().unwrap()), silent);
    let dir = tempfile::tempdir().unwrap();
    let change = [
        ("QUEEN_S3_ACCESS_KEY", ""),
        ("QUEEN_S3_SECRET_KEY", ""),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", silent.0.as_str()),
        ("HOME", "/nonexistent"),
    ];
    let broker = broker(&dir, &s3, &change).await;
    push(&broker, &[item("orders", "p", "1")], &mut Expected::new()).await;
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let sink = broker.client().sink_status().await.unwrap().to_string();
        if sink.contains("hop limit must be 2") {
            assert!(sink.contains("set QUEEN_S3_ACCESS_KEY and QUEEN_S3_SECRET_KEY"), "{sink}");
            break;
        }
        assert!(Instant::now() < until, "{sink}\n{}", broker.tail());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let begun = Instant::now();
    push(&broker, &[item("orders", "p", "2")], &mut Expected::new()).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}
