//! Input that nobody should send: a clear answer, and nothing lost.

use queen_sim::process::{Client, Item, Setup, push_body};

async fn refused(client: &Client, what: &str, body: impl Into<reqwest::Body>) -> String {
    let answer = client.post("/api/v1/push", body).await.unwrap();
    assert_eq!(answer.status, 400, "{what}: {} {}", answer.status, answer.text);
    let json = answer.json();
    assert!(json["error"].is_string() && json["code"].is_string(), "{what}: {}", answer.text);
    answer.text
}

async fn pushed(client: &Client, partition: &str, payload: String) -> u64 {
    let item = Item {
        queue: "orders".to_owned(),
        partition: partition.to_owned(),
        transaction_id: None,
        payload,
    };
    client.push(&[item]).await.unwrap()[0].offset.unwrap()
}

#[tokio::test]
async fn bad_bodies_are_refused_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Setup::new(dir.path()).start().await.unwrap();
    let client = broker.client();
    let one = |rest: &str| format!("{{\"items\":[{{\"queue\":\"orders\"{rest}}}]}}");
    refused(client, "malformed", "{\"items\":[").await;
    refused(client, "no object", "42").await;
    refused(client, "empty", "").await;
    refused(client, "no items", "{}").await;
    refused(client, "no queue", "{\"items\":[{\"payload\":1}]}").await;
    refused(client, "no payload", one("")).await;
    refused(client, "queue of a wrong type", "{\"items\":[{\"queue\":7,\"payload\":1}]}").await;
    refused(client, "partition of a wrong type", one(",\"partition\":[],\"payload\":1")).await;
    refused(client, "data instead of payload", one(",\"data\":1")).await;
    refused(
        client,
        "long id",
        one(&format!(",\"payload\":1,\"transactionId\":\"{}\"", "x".repeat(65_536))),
    )
    .await;
    let mut bytes = one(",\"payload\":\"?\"").into_bytes();
    let at = bytes.iter().position(|b| *b == b'?').unwrap();
    bytes[at] = 0xff;
    let text = refused(client, "invalid UTF-8", bytes).await;
    assert!(text.contains(&at.to_string()), "the byte {at} is named: {text}");
    let names = one(&format!(",\"partition\":\"{}\",\"payload\":1", "p".repeat(420)));
    let answer = client.post("/api/v1/push", names).await.unwrap();
    assert_eq!((answer.status, answer.json()["code"].as_str()), (413, Some("name_too_long")));
    let answer = client.post("/api/v1/push", "{\"items\":[]}").await.unwrap();
    assert_eq!((answer.status, answer.text.as_str()), (201, "[]"));
    assert_eq!(pushed(client, "Default", "1".to_owned()).await, 0, "nothing was appended before");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).with([("QUEEN_MAX_BODY_BYTES", "100000")]);
    let broker = setup.start().await.unwrap();
    let item = |len: usize| Item {
        queue: "orders".to_owned(),
        partition: "p".to_owned(),
        transaction_id: None,
        payload: format!("\"{}\"", "x".repeat(len)),
    };
    let body = push_body(&[item(200_000)]).unwrap();
    let answer = broker.client().post("/api/v1/push", body).await.unwrap();
    assert_eq!(answer.status, 413, "{}", answer.text);
    // On the connection that was refused before.
    broker.client().push(&[item(90_000)]).await.unwrap();
}

#[tokio::test]
async fn odd_payloads_and_names_come_back_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let mut broker = setup.start().await.unwrap();
    let payloads = [
        "42.00".to_owned(),
        "12345678901234567890.10e-2".to_owned(),
        "{\"b\":1,\"a\":2,\"b\":3}".to_owned(),
        "\"\\ud800 \\u00e9 é\"".to_owned(),
        "null".to_owned(),
        "\"\"".to_owned(),
        format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
        format!("\"{}\"", "x".repeat(16 << 20)),
    ];
    let partition = "a/b c%2F:é\"\\\n\u{1f41d}";
    for (want, payload) in payloads.iter().enumerate() {
        assert_eq!(pushed(broker.client(), partition, payload.clone()).await, want as u64);
    }
    for restart in [false, true] {
        if restart {
            broker.kill().unwrap();
            broker = setup.start().await.unwrap();
        }
        for (offset, payload) in payloads.iter().enumerate() {
            let body = serde_json::json!({"entries": [{"queue": "orders", "partition": partition,
                "offset": offset, "maxBytes": 1}]});
            let answer = broker.client().post("/api/v1/fetch", body.to_string()).await.unwrap();
            let want = format!("\"payload\":{payload},");
            let found =
                answer.text.contains(&want) || answer.text.contains(&want.replace("},", "}"));
            let start: String = payload.chars().take(40).collect();
            assert!(found, "{start} at {offset} (restart {restart}) is not as it was pushed");
        }
    }
}

#[tokio::test]
async fn options_out_of_range_are_refused_and_keep_the_old_ones() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Setup::new(dir.path()).start().await.unwrap();
    let configure = |options: &str| format!("{{\"queue\":\"q\",\"options\":{options}}}");
    let client = broker.client();
    let answer = client.post("/api/v1/configure", configure("{\"leaseTime\":7}")).await.unwrap();
    assert_eq!((answer.status, &answer.json()["configured"]), (200, &true.into()));
    for bad in [
        "{\"leaseTime\":\"soon\"}",
        "{\"retentionSinkHoldMaxSeconds\":1}",
        "{\"retentionSinkHold\":\"no/such name\"}",
        "{\"deadLetterQueue\":3}",
    ] {
        let answer = client.post("/api/v1/configure", configure(bad)).await.unwrap();
        assert_eq!(answer.status, 400, "{bad}: {}", answer.text);
        assert!(answer.json()["error"].is_string(), "{bad}: {}", answer.text);
    }
    let answer = client.get("/api/v1/resources/queues/q").await.unwrap();
    assert_eq!(answer.json()["options"]["leaseTime"], 7, "{}", answer.text);
    let answer = client.get("/api/v1/no/such/route").await.unwrap();
    assert_eq!((answer.status, answer.json()["code"].as_str()), (404, Some("no_such_route")));
}
