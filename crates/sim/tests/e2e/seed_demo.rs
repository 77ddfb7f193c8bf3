//! The demo of the seed, with its own settings and its own requests.

use queen_core::Stamp;
use queen_sim::lake::whole_lake;
use queen_sim::lake::{Accepted, Expected};
use queen_sim::process::{ACCESS_KEY, Pushed, SECRET_KEY, Seaweed, Setup};
use std::time::Duration;

/// The body of the seed's curl, byte for byte.
const BODY: &str = r#"{"items":[
  {"queue":"orders","partition":"cust-1","payload":{"order":1,"status":"new","total":42.00}},
  {"queue":"orders","partition":"cust-2","payload":{"order":2,"status":"new","total":17.50}},
  {"queue":"orders","partition":"cust-1","payload":{"order":1,"status":"paid","total":42.00}}
]}"#;

const PAYLOADS: [(&str, u64, &str); 3] = [
    ("cust-1", 0, r#"{"order":1,"status":"new","total":42.00}"#),
    ("cust-2", 0, r#"{"order":2,"status":"new","total":17.50}"#),
    ("cust-1", 1, r#"{"order":1,"status":"paid","total":42.00}"#),
];

#[tokio::test]
async fn the_demo_of_the_seed_gives_what_the_seed_shows() {
    let s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).with([
        ("QUEEN_S3_EMBEDDED", "true"),
        ("QUEEN_S3_QUEUES", "orders"),
        ("QUEEN_S3_ENDPOINT", &s3.endpoint()),
        ("QUEEN_S3_REGION", "us-east-1"),
        ("QUEEN_S3_PATH_STYLE", "true"),
        ("QUEEN_S3_BUCKET", "lake"),
        ("QUEEN_S3_ACCESS_KEY", ACCESS_KEY),
        ("QUEEN_S3_SECRET_KEY", SECRET_KEY),
        ("QUEEN_S3_START", "earliest"),
        ("QUEEN_S3_MAX_WINDOW_MS", "10000"),
    ]);
    let mut broker = setup.start().await.unwrap();
    let answer = broker.client().post("/api/v1/push", BODY).await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text);
    let pushed: Vec<Pushed> = serde_json::from_str(&answer.text).unwrap();
    let mut expected = Expected::new();
    for (result, (partition, offset, payload)) in pushed.iter().zip(PAYLOADS) {
        assert_eq!((result.status.as_str(), result.offset), ("queued", Some(offset)));
        assert_eq!(result.transaction_id, result.message_id);
        expected.accepted.push(Accepted {
            queue: "orders".to_owned(),
            partition: partition.to_owned(),
            offset,
            transaction_id: result.transaction_id.clone(),
            payload: payload.as_bytes().to_vec(),
        });
    }
    assert_eq!(pushed.len(), 3);
    let (files, report) =
        whole_lake(&s3.endpoint(), &expected, Duration::from_secs(40)).await.unwrap();
    assert!(report.faults.is_empty(), "{}", report.text());
    assert_eq!((report.windows, report.records), (1, 3));

    let keys: Vec<&String> = files.0.keys().collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
    let tenant = "tenant=00000000-0000-0000-0000-000000000001/queue=orders";
    assert_eq!(*keys[0], format!("queen/_queen/{tenant}/windows/0000000001.json"));
    let manifest: serde_json::Value = serde_json::from_slice(&files.0[keys[0]]).unwrap();
    let (start, end) = (manifest["tStart"].as_u64().unwrap(), manifest["tEnd"].as_u64().unwrap());
    assert_eq!(start % 3_600_000_000, 0, "the window starts at the hour");
    let hour = Stamp(start).to_iso();
    let folder = format!("queen/{tenant}/dt={}/hour={}", &hour[..10], &hour[11..13]);
    assert_eq!(*keys[1], format!("{folder}/w-0000000001-{start:016}-{end:016}.jsonl.zst"));

    let text = zstd::stream::decode_all(&files.0[keys[1]][..]).unwrap();
    let ts = Stamp(manifest["minTs"].as_u64().unwrap()).to_iso();
    let line = |at: usize| {
        let (partition, offset, payload) = PAYLOADS[at];
        let id = &pushed[at].transaction_id;
        format!(
            "{{\"partition\":\"{partition}\",\"offset\":{offset},\"transactionId\":\"{id}\",\
             \"ts\":\"{ts}\",\"payload\":{payload}}}\n"
        )
    };
    let want = [line(0), line(2), line(1)].concat();
    assert_eq!(String::from_utf8(text).unwrap(), want);

    // The commit pointer moves after the manifest is there: the status may be a moment behind.
    let mut sink = broker.client().sink_status().await.unwrap();
    for _ in 0..100 {
        if sink["sinks"][0]["queues"][0]["state"] == "filling" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        sink = broker.client().sink_status().await.unwrap();
    }
    let queue = &sink["sinks"][0]["queues"][0];
    let shown = ["state", "k", "windowsCommitted", "records"].map(|field| queue[field].clone());
    let want = serde_json::json!(["filling", 1, 1, 3]);
    assert_eq!(serde_json::json!(shown), want, "{sink}");
    assert!(!sink.to_string().contains(SECRET_KEY) && !broker.output().contains(SECRET_KEY));
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}
