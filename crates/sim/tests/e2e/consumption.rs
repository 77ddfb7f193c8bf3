//! Consumers through kills: at least once, in order, and nothing acked comes again.

use queen_sim::chance::Chance;
use queen_sim::process::{Answer, Client, Item, Setup};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

const MESSAGES: u64 = 4_000;
const PARTITIONS: u64 = 20;
const KILLS: u64 = 12;

/// What consumers saw of one partition.
#[derive(Default)]
struct Track {
    /// All offsets below this were acked with an answer.
    acked: u64,
    delivered: HashSet<u64>,
    next_new: u64,
}

async fn pushed(client: &Client) -> u64 {
    let mut total = 0;
    while total < MESSAGES {
        let items: Vec<Item> = (total..total + 100)
            .map(|n| Item {
                queue: "work".to_owned(),
                partition: format!("p-{}", n % PARTITIONS),
                transaction_id: Some(format!("m-{n}")),
                payload: n.to_string(),
            })
            .collect();
        client.push(&items).await.unwrap();
        total += 100;
    }
    total
}

fn messages_of(answer: &Answer) -> Vec<Value> {
    answer.json()["messages"].as_array().cloned().unwrap_or_default()
}

/// Takes one answer of a pop apart: checks order and holds it against what was acked.
fn delivered(tracks: &mut HashMap<String, Track>, messages: &[Value]) {
    let mut before: HashMap<&str, u64> = HashMap::new();
    for message in messages {
        let partition = message["partition"].as_str().unwrap();
        let offset = message["offset"].as_u64().unwrap();
        let track = tracks.entry(partition.to_owned()).or_default();
        assert!(offset >= track.acked, "{partition} offset {offset} came again after its ack");
        match before.insert(partition, offset) {
            Some(last) => assert_eq!(offset, last + 1, "{partition} out of order"),
            None => assert!(offset <= track.next_new, "{partition} skipped to {offset}"),
        }
        track.next_new = track.next_new.max(offset + 1);
        track.delivered.insert(offset);
    }
}

/// Acks some of a delivery; an answered success is remembered.
async fn acked(client: &Client, tracks: &mut HashMap<String, Track>, messages: &[Value]) {
    let items: Vec<Value> = messages
        .iter()
        .map(|m| {
            json!({"transactionId": m["transactionId"], "partitionId": m["partitionId"],
                   "leaseId": m["leaseId"], "status": "completed"})
        })
        .collect();
    let body = json!({"acknowledgments": items, "consumerGroup": "g"}).to_string();
    let Ok(answer) = client.post("/api/v1/ack/batch", body).await else { return };
    if answer.status != 200 {
        return;
    }
    let results = answer.json();
    for (message, result) in messages.iter().zip(results.as_array().unwrap()) {
        if result["success"] == true {
            let track = tracks.get_mut(message["partition"].as_str().unwrap()).unwrap();
            track.acked = track.acked.max(message["offset"].as_u64().unwrap() + 1);
        }
    }
}

#[tokio::test]
async fn consumption_is_at_least_once_in_order_and_final_through_kills() {
    let mut chance = Chance::of_the_day("consumption");
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let mut broker = setup.start().await.unwrap();
    let client = broker.client().clone();
    let pop = "/api/v1/pop/queue/work?consumerGroup=g&subscriptionMode=all&batch=50&partitions=5\
               &leaseSeconds=2&wait=true&timeout=3000";
    // The group is there before the first message, and every message is its own.
    assert_eq!(client.get(&pop.replace("timeout=3000", "timeout=10")).await.unwrap().status, 204);
    pushed(&client).await;
    let mut tracks: HashMap<String, Track> = HashMap::new();
    let mut kills = 0;
    let until = Instant::now() + Duration::from_secs(150);
    loop {
        assert!(Instant::now() < until, "not consumed in time\n{}", broker.tail());
        let progress: u64 = tracks.values().map(|t| t.next_new).sum();
        if kills < KILLS && progress >= (kills + 1) * MESSAGES / (KILLS + 2) {
            // At a random moment of the next pops and acks.
            let moment = Duration::from_millis(chance.below(40));
            let killer = async {
                tokio::time::sleep(moment).await;
                broker.kill().unwrap();
            };
            let consumer = async {
                while let Ok(answer) = client.get(pop).await {
                    let messages = messages_of(&answer);
                    delivered(&mut tracks, &messages);
                    acked(&client, &mut tracks, &messages).await;
                }
            };
            tokio::join!(killer, consumer);
            kills += 1;
            broker = setup.start().await.unwrap();
            continue;
        }
        let answer = client.get(pop).await.unwrap();
        assert!(matches!(answer.status, 200 | 204), "{} {}", answer.status, answer.text);
        // Longer than a lease: nothing is leased, nothing is left.
        if answer.status == 204 {
            break;
        }
        let messages = messages_of(&answer);
        delivered(&mut tracks, &messages);
        // Some are left to their lease's end, some are acked in part.
        let take = match chance.below(20) {
            0 => 0,
            1 => messages.len() / 2,
            _ => messages.len(),
        };
        acked(&client, &mut tracks, &messages[..take]).await;
    }
    assert_eq!(kills, KILLS);
    for (partition, track) in &tracks {
        let all = MESSAGES / PARTITIONS;
        assert_eq!(track.delivered.len() as u64, all, "{partition}");
    }
}
