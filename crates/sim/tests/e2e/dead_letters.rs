//! Dead letters through kills: each is filed once, with the payload that was pushed.

use queen_sim::chance::Chance;
use queen_sim::process::{Client, Item, Setup};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const MESSAGES: u64 = 400;
const PARTITIONS: u64 = 4;
const KILLS: usize = 8;

fn payload(n: u64) -> String {
    format!("{{\"n\":{n},\"text\":\"{}\"}}", "not to be lost é ".repeat(40))
}

async fn pushed(client: &Client) {
    let item = |n| Item {
        queue: "work".to_owned(),
        partition: format!("p-{}", n % PARTITIONS),
        transaction_id: Some(format!("m-{n}")),
        payload: payload(n),
    };
    client.push(&(0..MESSAGES).map(item).collect::<Vec<_>>()).await.unwrap();
}

/// Gives up some messages; how many it was given, `None` when an answer was lost.
async fn buried(client: &Client) -> Option<usize> {
    let pop = "/api/v1/pop/queue/work?consumerGroup=g&subscriptionMode=all&batch=3\
               &leaseSeconds=1&wait=true&timeout=2000";
    let answer = client.get(pop).await.ok()?;
    assert!(matches!(answer.status, 200 | 204), "{} {}", answer.status, answer.text);
    let messages = answer.json()["messages"].as_array().cloned().unwrap_or_default();
    let item = |m: &Value| {
        json!({"transactionId": m["transactionId"], "partitionId": m["partitionId"],
               "leaseId": m["leaseId"], "status": "dlq"})
    };
    let items: Vec<Value> = messages.iter().map(item).collect();
    if !items.is_empty() {
        let body = json!({"acknowledgments": items, "consumerGroup": "g"}).to_string();
        client.post("/api/v1/ack/batch", body).await.ok()?;
    }
    Some(messages.len())
}

/// The payload of each letter by its message's id.
async fn letters(client: &Client) -> BTreeMap<String, Value> {
    let answer = client.get("/api/v1/dlq?queue=work&limit=1000").await.unwrap();
    let page = answer.json();
    let rows = page["messages"].as_array().unwrap();
    let letters: BTreeMap<String, Value> = rows
        .iter()
        .map(|row| (row["transactionId"].as_str().unwrap().to_owned(), row["data"].clone()))
        .collect();
    assert_eq!(letters.len(), rows.len(), "a message was filed twice");
    letters
}

#[tokio::test]
async fn dead_letters_are_filed_once_with_their_payloads_through_kills() {
    let mut chance = Chance::of_the_day("dead letters");
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let mut broker = setup.start().await.unwrap();
    let client = broker.client().clone();
    pushed(&client).await;
    for _ in 0..KILLS {
        let moment = Duration::from_millis(5 + chance.below(60));
        let killer = async {
            tokio::time::sleep(moment).await;
            broker.kill().unwrap();
        };
        let consumer = async { while buried(&client).await.is_some() {} };
        tokio::join!(killer, consumer);
        broker = setup.start().await.unwrap();
    }
    // A pop waits for longer than a lease: at its end nothing is leased and nothing is left.
    while buried(&client).await.unwrap() > 0 {}
    let want: BTreeMap<String, Value> = (0..MESSAGES)
        .map(|n| (format!("m-{n}"), serde_json::from_str(&payload(n)).unwrap()))
        .collect();
    assert_eq!(letters(&client).await, want);
    broker.kill().unwrap();
    let broker = setup.start().await.unwrap();
    assert_eq!(letters(broker.client()).await, want, "after a kill with nothing on its way");
}
