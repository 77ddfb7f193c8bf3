//! Producers and consumers of a queue, and whether nothing was lost, invented or mixed up.
//!
//! Owns: pushing in order until it is answered, popping and acking through any node, and the rules
//! that hold whatever happens: see `judge` and `judge_log`. Leaves to others: who dies when.

use super::history::History;
use crate::chance::Chance;
use crate::lake::{Accepted, Expected};
use crate::process::{Client, Item};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The queue.
pub const QUEUE: &str = "faults";
/// Its partitions, each with a producer of its own.
const PARTITIONS: u64 = 4;
const CONSUMERS: u64 = 3;
/// Records of a push.
const BATCH: u64 = 3;
/// Longest wait for one answer before the next node is asked.
const PATIENCE: Duration = Duration::from_secs(8);
/// Between two tries that failed at once.
const AGAIN: Duration = Duration::from_millis(50);
/// Asks for one ack before the lease decides.
const ACK_TRIES: usize = 3;

/// A record's producer id and its offset.
type Placed = (String, u64);

/// Partition and offset.
type Spot = (String, u64);

/// A pop's share of one partition.
#[derive(Clone, Debug)]
struct Delivery {
    partition: String,
    /// When the pop was sent, in microseconds since the run began.
    asked: u64,
    records: Vec<Placed>,
}

/// What the clients know.
#[derive(Default)]
pub struct Facts {
    /// Ids that were sent, in order, by partition.
    sent: BTreeMap<String, Vec<String>>,
    /// What was answered 201, by partition.
    pushed: BTreeMap<String, Vec<Placed>>,
    /// In the order in which the answers came.
    delivered: Vec<Delivery>,
    /// When the ack of a record was answered as a success.
    acked: BTreeMap<Spot, u64>,
    /// Answers that cannot be.
    strange: Vec<String>,
}

impl Facts {
    /// Records that were answered 201.
    pub fn answered(&self) -> usize {
        self.pushed.values().map(Vec::len).sum()
    }

    /// Records whose ack was answered.
    pub fn settled(&self) -> usize {
        self.acked.len()
    }

    /// What a copy of the queue must hold.
    pub fn expected(&self) -> Expected {
        let mut expected = Expected::new();
        for (partition, records) in &self.pushed {
            expected.accepted.extend(records.iter().map(|(id, offset)| Accepted {
                queue: QUEUE.to_owned(),
                partition: partition.clone(),
                offset: *offset,
                transaction_id: id.clone(),
                payload: payload_of(id).into_bytes(),
            }));
        }
        expected
    }

    /// Whether all that was answered has been delivered.
    fn drained(&self) -> bool {
        let delivered = self.delivered_ids();
        self.pushed.values().flatten().all(|(id, _)| delivered.contains(id.as_str()))
    }

    fn delivered_ids(&self) -> BTreeSet<&str> {
        let records = self.delivered.iter().flat_map(|delivery| &delivery.records);
        records.map(|(id, _)| id.as_str()).collect()
    }

    /// What is wrong with what was delivered.
    pub fn judge(&self) -> Vec<String> {
        let mut wrong = self.strange.clone();
        let sent: BTreeSet<&String> = self.sent.values().flatten().collect();
        let delivered = self.delivered_ids();
        for (id, offset) in self.pushed.values().flatten() {
            if !delivered.contains(id.as_str()) {
                wrong.push(format!("lost: {id} was answered 201 at {offset} and never popped"));
            }
        }
        let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
        for Delivery { partition, asked, records } in &self.delivered {
            let next = reached.entry(partition).or_default();
            for (n, (id, offset)) in records.iter().enumerate() {
                if !sent.contains(id) {
                    wrong.push(format!("invented: {id} was popped and never pushed"));
                }
                if n > 0 && records[n - 1].1 + 1 != *offset {
                    wrong.push(format!("order: {partition}: {records:?} in one answer"));
                }
                if let Some(acked) = self.acked.get(&(partition.clone(), *offset))
                    && acked < asked
                {
                    wrong.push(format!(
                        "again: {partition} {offset} was popped at {asked}, its ack answered at {acked}"
                    ));
                }
                if offset > next {
                    wrong.push(format!("order: {partition}: {offset} before {next}"));
                }
                *next = (*next).max(offset + 1);
            }
        }
        wrong
    }

    /// What is wrong with a node's log of a partition.
    fn judge_log(&self, node: u64, partition: &str, log: &[Placed]) -> Vec<String> {
        let mut wrong = Vec::new();
        if !log.iter().map(|(_, offset)| *offset).eq(0..log.len() as u64) {
            wrong.push(format!("gap: node {node}, {partition}: the offsets are not 0 to the end"));
        }
        let none = Vec::new();
        for (id, offset) in self.pushed.get(partition).unwrap_or(&none) {
            if log.get(*offset as usize).is_none_or(|(there, _)| there != id) {
                wrong.push(format!(
                    "lost: node {node}, {partition}: {id} was answered at {offset} and is not there"
                ));
            }
        }
        // In the order of the producer, each once, none but its own.
        let mut sent = self.sent.get(partition).into_iter().flatten();
        for (id, offset) in log {
            if !sent.any(|next| next == id) {
                wrong.push(format!("order: node {node}, {partition}: {id} at {offset}"));
            }
        }
        wrong
    }
}

/// Reads the log of each partition through each node, and says what is wrong.
pub async fn read_logs(clients: &[Client], facts: &Facts) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (node, client) in (1..).zip(clients) {
        for partition in facts.sent.keys() {
            let records = read_log(client, QUEUE, partition).await?;
            let log = placed(&Value::from(records));
            wrong.extend(facts.judge_log(node, partition, &log));
        }
    }
    Ok(wrong)
}

/// The records of a partition, as a node's log has them.
pub async fn read_log(client: &Client, queue: &str, partition: &str) -> anyhow::Result<Vec<Value>> {
    let mut log: Vec<Value> = Vec::new();
    loop {
        let entry = json!({"queue": queue, "partition": partition, "offset": log.len()});
        let body = json!({"entries": [entry]}).to_string();
        let answer = client.post("/api/v1/fetch", body).await?;
        anyhow::ensure!(answer.status == 200, "fetch: {}", answer.text);
        match answer.json()["entries"][0]["records"].as_array() {
            Some(records) if !records.is_empty() => log.extend_from_slice(records),
            _ => return Ok(log),
        }
    }
}

/// The payload of a record: its number.
fn payload_of(id: &str) -> String {
    id.split('-').next_back().unwrap_or_default().to_owned()
}

fn placed(records: &Value) -> Vec<Placed> {
    let one = |record: &Value| {
        Some((record["transactionId"].as_str()?.to_owned(), record["offset"].as_u64()?))
    };
    records.as_array().into_iter().flatten().filter_map(one).collect()
}

/// Clients at work.
pub struct Workload {
    shared: Arc<Shared>,
    producing: Vec<JoinHandle<()>>,
    consuming: Vec<JoinHandle<()>>,
}

struct Shared {
    clients: Vec<Client>,
    history: Arc<History>,
    facts: Mutex<Facts>,
    produces: AtomicBool,
    consumes: AtomicBool,
}

impl Workload {
    /// Starts them; each asks any node.
    pub fn start(clients: &[Client], seed: u64, history: &Arc<History>) -> Workload {
        let shared = Arc::new(Shared {
            clients: clients.to_vec(),
            history: history.clone(),
            facts: Mutex::default(),
            produces: true.into(),
            consumes: true.into(),
        });
        let chance = |salt: u64| Chance::new(seed ^ 0x7175 ^ salt << 32);
        let produce = |n| tokio::spawn(shared.clone().produce(n, chance(n)));
        let consume = |n| tokio::spawn(shared.clone().consume(chance(1000 + n)));
        let producing = (0..PARTITIONS).map(produce).collect();
        let consuming = (0..CONSUMERS).map(consume).collect();
        Workload { shared, producing, consuming }
    }

    /// Ends the producers, waits until all has been delivered or `patience` is over, and ends.
    pub async fn stop(self, patience: Duration) -> anyhow::Result<Facts> {
        self.shared.produces.store(false, Ordering::Relaxed);
        for work in self.producing {
            work.await?;
        }
        let begin = Instant::now();
        while !self.shared.facts.lock().drained() && begin.elapsed() < patience {
            tokio::time::sleep(AGAIN).await;
        }
        self.shared.consumes.store(false, Ordering::Relaxed);
        for work in self.consuming {
            work.await?;
        }
        Ok(std::mem::take(&mut *self.shared.facts.lock()))
    }

    /// Records answered so far.
    pub fn answered(&self) -> usize {
        self.shared.facts.lock().answered()
    }
}

impl Shared {
    fn client(&self, chance: &mut Chance) -> (u64, &Client) {
        let at = chance.below(self.clients.len() as u64);
        (at + 1, &self.clients[at as usize])
    }

    async fn produce(self: Arc<Shared>, number: u64, mut chance: Chance) {
        let partition = format!("p-{number}");
        let mut next = 0;
        while self.produces.load(Ordering::Relaxed) {
            let item = |n: u64| {
                let id = format!("{number}-{n}");
                let (queue, partition) = (QUEUE.to_owned(), partition.clone());
                let payload = payload_of(&id);
                Item { queue, partition, transaction_id: Some(id), payload }
            };
            let items: Vec<Item> = (next..next + BATCH).map(item).collect();
            next += BATCH;
            let ids = items.iter().filter_map(|item| item.transaction_id.clone());
            self.facts.lock().sent.entry(partition.clone()).or_default().extend(ids);
            let begin = Instant::now();
            // Sent again under the same ids, to any node, until it is answered.
            while !self.push(&partition, &items, &mut chance).await {
                if begin.elapsed() > Duration::from_secs(60) {
                    let text = format!("stuck: {partition}: no push was answered for a minute");
                    self.facts.lock().strange.push(text);
                    return;
                }
                tokio::time::sleep(AGAIN).await;
            }
            tokio::time::sleep(Duration::from_millis(10 + chance.below(60))).await;
        }
    }

    async fn push(&self, partition: &str, items: &[Item], chance: &mut Chance) -> bool {
        let (node, client) = self.client(chance);
        let begin = self.history.now();
        let pushed = match tokio::time::timeout(PATIENCE, client.push(items)).await {
            Ok(Ok(pushed)) => pushed,
            Ok(Err(error)) => {
                let why = error.to_string();
                let first = &items[0].transaction_id;
                self.history.note("no push", json!({"node": node, "first": first, "why": why}));
                return false;
            }
            Err(_) => return false,
        };
        let results = pushed.iter().map(|p| (p.transaction_id.clone(), p.offset));
        let results: Vec<_> = results.collect();
        let told = json!({"node": node, "begin": begin, "partition": partition, "at": results});
        self.history.note("pushed", told);
        let mut facts = self.facts.lock();
        for (result, (id, offset)) in pushed.iter().zip(results) {
            match (result.status.as_str(), offset) {
                ("queued" | "duplicate", Some(offset)) => {
                    facts.pushed.entry(partition.to_owned()).or_default().push((id, offset));
                }
                _ => facts.strange.push(format!("a push was answered {result:?}")),
            }
        }
        true
    }

    async fn consume(self: Arc<Shared>, mut chance: Chance) {
        let path = format!(
            "/api/v1/pop/queue/{QUEUE}?consumerGroup=workers&subscriptionMode=all&batch=20\
             &partitions=2&leaseSeconds=5&wait=true&timeout=1000"
        );
        while self.consumes.load(Ordering::Relaxed) {
            let (node, client) = self.client(&mut chance);
            let asked = self.history.now();
            let answer = match tokio::time::timeout(PATIENCE, client.get(&path)).await {
                Ok(Ok(answer)) if answer.status == 200 => answer.json(),
                Ok(Ok(answer)) if answer.status == 204 => {
                    self.history.note("popped", json!({"node": node, "asked": asked}));
                    continue;
                }
                other => {
                    let why = other.map(|answer| answer.map(|answer| answer.text));
                    let why = why.map_or("no answer".to_owned(), |why| match why {
                        Ok(text) => text,
                        Err(error) => error.to_string(),
                    });
                    self.history.note("no pop", json!({"node": node, "asked": asked, "why": why}));
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            let messages = answer["messages"].as_array().cloned().unwrap_or_default();
            let mut parts: BTreeMap<String, Vec<Value>> = BTreeMap::new();
            for message in messages {
                let partition = message["partition"].as_str().unwrap_or_default().to_owned();
                parts.entry(partition).or_default().push(message);
            }
            for (partition, messages) in parts {
                let records = placed(&Value::from(messages.clone()));
                let told = json!({"node": node, "asked": asked, "partition": partition,
                    "records": records});
                self.history.note("popped", told);
                let delivery = Delivery { partition: partition.clone(), asked, records };
                self.facts.lock().delivered.push(delivery);
                // Now and then a consumer dies with what it holds: the lease ends.
                if chance.below(40) > 0 {
                    self.ack(&partition, &messages, &mut chance).await;
                }
            }
        }
    }

    async fn ack(&self, partition: &str, messages: &[Value], chance: &mut Chance) {
        let one = |message: &Value| {
            json!({"transactionId": message["transactionId"],
                "partitionId": message["partitionId"], "leaseId": message["leaseId"],
                "status": "completed"})
        };
        let acks: Vec<Value> = messages.iter().map(one).collect();
        let body = json!({"acknowledgments": acks, "consumerGroup": "workers"}).to_string();
        for _ in 0..ACK_TRIES {
            let (node, client) = self.client(chance);
            let asked = client.post("/api/v1/ack/batch", body.clone());
            let answer = match tokio::time::timeout(PATIENCE, asked).await {
                Ok(Ok(answer)) if answer.status == 200 => answer.json(),
                _ => {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            let at = self.history.now();
            let results = answer.as_array().cloned().unwrap_or_default();
            let done = messages.iter().zip(&results);
            let done = done.filter(|(_, result)| result["success"] == true);
            let offsets: Vec<u64> = done.filter_map(|(m, _)| m["offset"].as_u64()).collect();
            let told = json!({"node": node, "partition": partition, "offsets": offsets});
            self.history.note("acked", told);
            let mut facts = self.facts.lock();
            for offset in offsets {
                facts.acked.entry((partition.to_owned(), offset)).or_insert(at);
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(records: &[(&str, u64)]) -> Facts {
        let records = || records.iter().map(|(id, at)| ((*id).to_owned(), *at));
        let mut facts = Facts::default();
        facts.sent.insert("p".into(), records().map(|(id, _)| id).collect());
        facts.pushed.insert("p".into(), records().collect());
        facts
    }

    fn delivery(asked: u64, records: &[(&str, u64)]) -> Delivery {
        let records = records.iter().map(|(id, at)| ((*id).to_owned(), *at)).collect();
        Delivery { partition: "p".into(), asked, records }
    }

    fn first_word(wrong: &[String]) -> Vec<&str> {
        wrong.iter().filter_map(|text| text.split(':').next()).collect()
    }

    #[test]
    fn each_rule_of_delivery_finds_its_fault() {
        let all = [("a", 0), ("b", 1)];
        let judged = |delivered: Vec<Delivery>, acked: Option<u64>| {
            let mut facts = facts(&all);
            facts.delivered = delivered;
            facts.acked.extend(acked.map(|at| (("p".to_owned(), 0), at)));
            facts.judge()
        };
        assert!(judged(vec![delivery(1, &all)], None).is_empty());
        assert!(judged(vec![delivery(1, &all), delivery(3, &all)], Some(4)).is_empty());
        let again = judged(vec![delivery(1, &all), delivery(5, &all)], Some(4));
        assert_eq!(first_word(&again), ["again"]);
        assert_eq!(first_word(&judged(vec![delivery(1, &all[..1])], None)), ["lost"]);
        let mixed = judged(vec![delivery(1, &all[1..]), delivery(2, &all[..1])], None);
        assert_eq!(first_word(&mixed), ["order"]);
        let invented = judged(vec![delivery(1, &[("a", 0), ("b", 1), ("c", 2)])], None);
        assert_eq!(first_word(&invented), ["invented"]);
    }

    #[test]
    fn each_rule_of_the_log_finds_its_fault() {
        let facts = facts(&[("a", 0), ("b", 1)]);
        let judged = |log: &[(&str, u64)]| {
            let log: Vec<Placed> = log.iter().map(|(id, at)| ((*id).to_owned(), *at)).collect();
            facts.judge_log(1, "p", &log)
        };
        assert!(judged(&[("a", 0), ("b", 1)]).is_empty());
        assert_eq!(first_word(&judged(&[("a", 0)])), ["lost"]);
        assert!(first_word(&judged(&[("a", 0), ("b", 2)])).contains(&"gap"));
        assert!(first_word(&judged(&[("b", 0), ("a", 1)])).contains(&"order"));
        assert!(first_word(&judged(&[("a", 0), ("b", 1), ("b", 2)])).contains(&"order"));
    }
}
