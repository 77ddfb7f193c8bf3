//! kill -9 at random moments and at each step of a commit: each record once in the lake.

use queen_sim::chance::Chance;
use queen_sim::lake::damage::Damage;
use queen_sim::lake::whole_lake;
use queen_sim::lake::{Accepted, Expected, Layout, Unanswered, check, sha256};
use queen_sim::process::{Client, Item, Seaweed, Setup, bucket, sink_settings};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const PARTITIONS: u64 = 1_000;
const PRODUCERS: usize = 4;
/// Records of a push.
const BATCH: usize = 100;
const STEPS: [&str; 5] =
    ["after_intent", "mid_upload", "after_upload", "before_commit", "after_commit"];

/// One client that pushes until its share is answered.
struct Producer {
    number: usize,
    chance: Chance,
    next: u64,
    expected: Expected,
    /// Sent, not answered, to be sent again.
    open: Option<Vec<Item>>,
}

impl Producer {
    fn batch(&mut self) -> Vec<Item> {
        let mut items = Vec::with_capacity(BATCH);
        // Few partitions in a push, each with several records, as real producers do.
        for _ in 0..BATCH / 5 {
            let partition = format!("p-{:03}", self.chance.below(PARTITIONS));
            for _ in 0..5 {
                self.next += 1;
                let id = format!("{}-{}", self.number, self.next);
                let filling = "x".repeat(self.chance.below(200) as usize);
                items.push(Item {
                    queue: "orders".to_owned(),
                    partition: partition.clone(),
                    payload: format!(
                        "{{\"id\":\"{id}\",\"total\":{}.00,\"f\":\"{filling}\"}}",
                        self.next
                    ),
                    transaction_id: Some(id),
                });
            }
        }
        items
    }

    /// Pushes until `share` more records are answered, or until no answer came for long.
    async fn run(mut self, client: Client, share: usize) -> Producer {
        let mut answered = 0;
        let until = Instant::now() + Duration::from_secs(60);
        while answered < share && Instant::now() < until {
            let items = match self.open.take() {
                Some(items) => items,
                None => self.batch(),
            };
            match client.push(&items).await {
                Ok(pushed) => {
                    answered += items.len();
                    for (item, result) in items.into_iter().zip(pushed) {
                        assert!(
                            matches!(result.status.as_str(), "queued" | "duplicate"),
                            "{result:?}"
                        );
                        self.expected.accepted.push(Accepted {
                            queue: item.queue,
                            partition: item.partition,
                            offset: result.offset.unwrap(),
                            transaction_id: result.transaction_id,
                            payload: item.payload.into_bytes(),
                        });
                    }
                }
                // May be in or not. Sent again it is in, once; given up it may still be in, once.
                Err(error) => {
                    let http = error.downcast_ref::<reqwest::Error>();
                    let never_sent = http.is_some_and(reqwest::Error::is_connect);
                    if never_sent || self.chance.below(3) > 0 {
                        self.open = Some(items);
                    } else {
                        self.give_up(items);
                    }
                    // The broker is down: the next one comes when the test starts it.
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
            }
        }
        self
    }

    fn give_up(&mut self, items: Vec<Item>) {
        self.expected.unanswered.extend(items.into_iter().map(|item| Unanswered {
            queue: item.queue,
            partition: item.partition,
            transaction_id: item.transaction_id.unwrap_or_default(),
            payload: item.payload.into_bytes(),
        }));
    }
}

/// Every object ever seen, with the hash it had: none may ever have another.
#[derive(Default)]
struct Seen {
    tags: HashMap<String, String>,
    hashes: HashMap<String, String>,
}

impl Seen {
    async fn look(&mut self, endpoint: &str) {
        use futures::TryStreamExt;
        use object_store::{ObjectStore, ObjectStoreExt};
        let bucket = bucket(endpoint).unwrap();
        let listed: Vec<_> = bucket.list(None).try_collect().await.unwrap();
        for object in listed {
            let key = object.location.to_string();
            let tag = format!("{:?} {}", object.e_tag, object.last_modified);
            if self.tags.get(&key) == Some(&tag) {
                continue;
            }
            let bytes = bucket.get(&object.location).await.unwrap().bytes().await.unwrap();
            let hash = sha256(&bytes);
            let before = self.hashes.insert(key.clone(), hash.clone());
            assert!(before.is_none_or(|b| b == hash), "{key} was rewritten with other bytes");
            self.tags.insert(key, tag);
        }
    }
}

/// Waits until the sink says that it has written so many records, or for a while.
async fn written(client: &Client, records: u64) {
    let until = Instant::now() + Duration::from_secs(90);
    while Instant::now() < until {
        let sink = client.sink_status().await.unwrap();
        if sink["sinks"][0]["queues"][0]["records"].as_u64() >= Some(records) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn each_record_is_in_the_lake_once_through_fifty_kills() {
    each_once(100_000, 50, &[]).await;
}

#[tokio::test]
async fn each_record_is_in_the_parquet_lake_once_through_ten_kills() {
    each_once(20_000, 10, &[("QUEEN_S3_FORMAT", "parquet")]).await;
}

/// Pushes so many records through so many kills of a sink with these settings too.
async fn each_once(records: usize, kills: usize, settings: &[(&str, &str)]) {
    let mut chance = Chance::of_the_day("kill test");
    let s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut pairs = sink_settings(&s3.endpoint(), "orders");
    for (name, value) in [
        ("QUEEN_S3_MAX_WINDOW_MS", "400"),
        ("QUEEN_S3_TARGET_MB", "1"),
        ("QUEEN_S3_LEASE_TTL_MS", "3000"),
    ]
    .iter()
    .chain(settings)
    {
        pairs.push(((*name).to_owned(), (*value).to_owned()));
    }
    let setup = Setup::new(dir.path()).with(pairs);
    let client = Client::new(&format!("http://127.0.0.1:{}", setup.port)).unwrap();
    let mut producers: Vec<Producer> = (0..PRODUCERS)
        .map(|number| Producer {
            number,
            chance: Chance::new(chance.draw()),
            next: 0,
            expected: Expected::new(),
            open: None,
        })
        .collect();
    let share = records / (kills + 1) / PRODUCERS + 1;
    let mut seen = Seen::default();
    let mut steps_hit = HashMap::new();
    let begin = Instant::now();
    for kill in 0..=kills {
        let step = (kill % 2 == 1).then(|| STEPS[kill / 2 % STEPS.len()]);
        let setup = match step {
            Some(step) if kill < kills => setup.clone().with([("QUEEN_S3_CRASH_AT", step)]),
            _ => setup.clone(),
        };
        let working: Vec<_> = producers
            .drain(..)
            .map(|producer| tokio::spawn(producer.run(client.clone(), share)))
            .collect();
        // With a crash point the process may end while it starts: that is a kill like another.
        let mut broker = setup.spawn().unwrap();
        if kill == kills {
            broker.ready().await.unwrap();
        } else if let Some(step) = step {
            match broker.end(Duration::from_secs(20)).await {
                Ok(_) => *steps_hit.entry(step).or_insert(0) += 1,
                Err(error) => panic!("QUEEN_S3_CRASH_AT={step} was never reached: {error}"),
            }
        } else {
            let moment = Duration::from_millis(100 + chance.below(1500));
            tokio::time::sleep(moment).await;
            let died = broker.ended().unwrap();
            assert!(died.is_none(), "the broker died by itself: {died:?}\n{}", broker.tail());
        }
        if kill < kills {
            broker.kill().unwrap();
            seen.look(&s3.endpoint()).await;
            // The next broker answers those who still wait.
            broker = setup.without("QUEEN_S3_CRASH_AT").start().await.unwrap();
        }
        for work in working {
            producers.push(work.await.unwrap());
        }
        if kill < kills {
            broker.kill().unwrap();
            continue;
        }
        let mut expected = Expected::new();
        for producer in &mut producers {
            if let Some(items) = producer.open.take() {
                producer.give_up(items);
            }
            expected.accepted.append(&mut producer.expected.accepted);
            expected.unanswered.append(&mut producer.expected.unanswered);
        }
        println!(
            "{} answered, {} unanswered, {:?} after {:?}",
            expected.accepted.len(),
            expected.unanswered.len(),
            steps_hit,
            begin.elapsed()
        );
        assert!(expected.accepted.len() >= records);
        written(&client, expected.accepted.len() as u64).await;
        let (files, report) =
            whole_lake(&s3.endpoint(), &expected, Duration::from_secs(90)).await.unwrap();
        assert!(report.faults.is_empty(), "{}\n{}", report.text(), broker.tail());
        seen.look(&s3.endpoint()).await;
        assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
        for damage in Damage::ALL {
            let damaged = damage.done_to(&files, "queen", &mut chance).unwrap();
            let report = check(&damaged, Layout::default(), &expected);
            assert!(report.has(damage.found_as()), "{damage:?} was not seen: {}", report.text());
        }
        println!("{} windows, {} records", report.windows, report.records);
    }
}
