//! Clients of transactions: producers of jobs, workers that hand them on, a reader of the rows.
//!
//! Owns: what is asked, when it is given up, and reading what each node holds at the end. Leaves to
//! others: what is right (`transaction`).

use super::asked::{Told, post};
use super::history::History;
use super::queue::read_log;
use super::transaction::{ACCOUNTS, Books, End, Facts, Holding, Job, Look, Try};
use crate::chance::Chance;
use crate::process::{Client, Item};
use anyhow::Context;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const JOBS: &str = "jobs";
const DONE: &str = "done";
const GROUP: &str = "movers";
const NAMESPACE: &str = "money";
/// Partitions, each with a producer of its own.
const LANES: u64 = 2;
const WORKERS: u64 = 3;
/// Length of a lease.
const LEASE: Duration = Duration::from_secs(4);
/// Longest wait for one answer before the next node is asked.
const PATIENCE: Duration = Duration::from_secs(8);
/// Between two tries that failed at once.
const AGAIN: Duration = Duration::from_millis(50);
/// A job that no node takes for so long is a fault.
const STUCK: Duration = Duration::from_secs(60);
/// Transactions whose answer was lost may have their effect so long after the last was asked for.
const SETTLED: Duration = Duration::from_secs(40);

/// Clients at work.
pub struct Workload {
    shared: Arc<Shared>,
    producing: Vec<JoinHandle<()>>,
    working: Vec<JoinHandle<()>>,
}

struct Shared {
    clients: Vec<Client>,
    history: Arc<History>,
    facts: Mutex<Facts>,
    produces: AtomicBool,
    works: AtomicBool,
    tries: AtomicU64,
}

fn account(number: usize) -> String {
    format!("account-{number}")
}

impl Workload {
    /// Starts them; each asks any node.
    pub fn start(clients: &[Client], seed: u64, history: &Arc<History>) -> Workload {
        let shared = Arc::new(Shared {
            clients: clients.to_vec(),
            history: history.clone(),
            facts: Mutex::default(),
            produces: true.into(),
            works: true.into(),
            tries: AtomicU64::new(0),
        });
        let chance = |salt: u64| Chance::new(seed ^ 0x7478 ^ salt << 32);
        let produce = |lane| tokio::spawn(shared.clone().produce(lane, chance(lane)));
        let work = |n| tokio::spawn(shared.clone().work(chance(1000 + n)));
        let producing = (0..LANES).map(produce).collect();
        let mut working: Vec<JoinHandle<()>> = (0..WORKERS).map(work).collect();
        working.push(tokio::spawn(shared.clone().look(chance(2000))));
        Workload { shared, producing, working }
    }

    /// Ends the producers, waits until all jobs are done or `patience` is over, ends the workers, and
    /// reads what each node holds once nothing is on its way any more.
    pub async fn stop(self, patience: Duration) -> anyhow::Result<Facts> {
        let shared = self.shared;
        shared.produces.store(false, Ordering::Relaxed);
        for produced in self.producing {
            produced.await?;
        }
        let begin = Instant::now();
        while !shared.drained() && begin.elapsed() < patience {
            sleep(AGAIN).await;
        }
        shared.works.store(false, Ordering::Relaxed);
        for worked in self.working {
            worked.await?;
        }
        let holdings = shared.settle().await;
        let mut facts = std::mem::take(&mut *shared.facts.lock());
        facts.holdings = holdings;
        Ok(facts)
    }
}

impl Shared {
    fn client(&self, chance: &mut Chance) -> (u64, &Client) {
        let at = chance.below(self.clients.len() as u64);
        (at + 1, &self.clients[at as usize])
    }

    /// Whether a look saw as many jobs done as were pushed.
    fn drained(&self) -> bool {
        let facts = self.facts.lock();
        let seen = facts.looks.last().map_or(0, |look| look.books.count);
        usize::try_from(seen).is_ok_and(|seen| seen >= facts.answered.len())
    }

    async fn produce(self: Arc<Shared>, lane: u64, mut chance: Chance) {
        for number in 0.. {
            if !self.produces.load(Ordering::Relaxed) {
                return;
            }
            let from = chance.below(ACCOUNTS as u64) as usize;
            let to = (from + 1 + chance.below(ACCOUNTS as u64 - 1) as usize) % ACCOUNTS;
            let job = Job { id: (lane, number), from, to, amount: 1 + chance.below(100) as i64 };
            self.facts.lock().sent.insert(job.id, job.clone());
            let item = Item {
                queue: JOBS.to_owned(),
                partition: lane.to_string(),
                transaction_id: Some(format!("{lane}-{number}")),
                payload: json!(job).to_string(),
            };
            let begin = Instant::now();
            // Sent again under the same id, to any node, until it is answered.
            loop {
                let (_, client) = self.client(&mut chance);
                let pushed = timeout(PATIENCE, client.push(std::slice::from_ref(&item))).await;
                if matches!(pushed, Ok(Ok(_))) {
                    break;
                }
                if begin.elapsed() > STUCK {
                    let text = format!("stuck: job {:?} was not taken in {STUCK:?}", job.id);
                    self.facts.lock().strange.push(text);
                    return;
                }
                sleep(AGAIN).await;
            }
            self.facts.lock().answered.insert(job.id);
            sleep(Duration::from_millis(50 + chance.below(150))).await;
        }
    }

    async fn work(self: Arc<Shared>, mut chance: Chance) {
        let path = format!(
            "/api/v1/pop/queue/{JOBS}?consumerGroup={GROUP}&subscriptionMode=all&batch=4\
             &partitions=1&leaseSeconds={}&wait=true&timeout=1000",
            LEASE.as_secs()
        );
        while self.works.load(Ordering::Relaxed) {
            let (_, client) = self.client(&mut chance);
            let answer = match timeout(PATIENCE, client.get(&path)).await {
                Ok(Ok(answer)) if answer.status == 200 => answer.json(),
                Ok(Ok(answer)) if answer.status == 204 => continue,
                _ => {
                    sleep(AGAIN).await;
                    continue;
                }
            };
            // In their order: an ack settles all that come before it.
            for message in answer["messages"].as_array().into_iter().flatten() {
                let ends = !self.produces.load(Ordering::Relaxed);
                match chance.below(200) {
                    // What is left at the end is not held up.
                    _ if ends => {}
                    // Now and then a worker dies with what it holds,
                    0 => break,
                    // or takes longer than it may, and then another has its jobs.
                    1 => sleep(LEASE + Duration::from_millis(chance.below(3000))).await,
                    _ => {}
                }
                if !matches!(self.hand_on(message, &mut chance).await, End::Done { .. }) {
                    break;
                }
            }
        }
    }

    /// One job in one transaction, asked for a second time when the first answer is lost.
    async fn hand_on(&self, message: &Value, chance: &mut Chance) -> End {
        let Ok(job) = serde_json::from_value::<Job>(message["data"].clone()) else {
            self.facts.lock().strange.push(format!("invented: this is no job: {message}"));
            return End::Undone;
        };
        let number = self.tries.fetch_add(1, Ordering::Relaxed);
        let handed = format!("{}-{}-{number}", job.id.0, job.id.1);
        let body = transaction(&job, &handed, message);
        let asked = self.history.now();
        let (mut node, client) = self.client(chance);
        let mut end = self.ask(client, &body).await;
        if end == End::Unknown && chance.below(2) == 0 {
            let (other, client) = self.client(chance);
            node = other;
            // A refusal may come of the first one's effect.
            end = match self.ask(client, &body).await {
                End::Undone => End::Unknown,
                known => known,
            };
        }
        let one = Try { handed, job: job.id, asked, end };
        self.history.note("transaction", json!({"node": node, "try": one}));
        self.facts.lock().tries.push(one);
        end
    }

    async fn ask(&self, client: &Client, body: &Value) -> End {
        match post(client, "/api/v1/transaction", body, PATIENCE).await {
            Told::Answered(answer) if answer["success"] == true => {
                // A push and an ack come first, then the rows; the count is the last of them.
                match answer["results"][5]["value"].as_i64() {
                    Some(count) => End::Done { count, told: self.history.now() },
                    None => {
                        let text = format!("strange: a transaction was answered {answer}");
                        self.facts.lock().strange.push(text);
                        End::Unknown
                    }
                }
            }
            Told::Answered(answer) => {
                self.history.note("rolled back", answer);
                End::Undone
            }
            Told::Refused => End::Undone,
            Told::Unknown => End::Unknown,
        }
    }

    async fn look(self: Arc<Shared>, mut chance: Chance) {
        while self.works.load(Ordering::Relaxed) {
            let (node, client) = self.client(&mut chance);
            let asked = self.history.now();
            if let Some(books) = books(client).await {
                let look = Look { asked, told: self.history.now(), books };
                self.history.note("books", json!({"node": node, "look": look}));
                self.facts.lock().looks.push(look);
            }
            sleep(Duration::from_millis(50 + chance.below(200))).await;
        }
    }

    /// What each node holds, once all hold the same and it is whole, or after a time.
    async fn settle(&self) -> Vec<Holding> {
        let until = Instant::now() + SETTLED;
        loop {
            let mut holdings = Vec::new();
            for client in &self.clients {
                holdings.push(holding(client).await);
            }
            let first = holdings.first().and_then(|first| first.as_ref().ok());
            let whole = first.is_some_and(Holding::settled);
            let all = holdings.iter().all(|holding| holding.as_ref().ok() == first);
            if (whole && all) || Instant::now() > until {
                let mut facts = self.facts.lock();
                let unread = holdings.iter().filter_map(|holding| holding.as_ref().err());
                facts.strange.extend(unread.map(|why| format!("unread: {why:#}")));
                return holdings.into_iter().flatten().collect();
            }
            sleep(AGAIN).await;
        }
    }
}

/// What a node holds.
async fn holding(client: &Client) -> anyhow::Result<Holding> {
    let books = books(client).await.context("the accounts cannot be read")?;
    let mut log = Vec::new();
    for lane in 0..LANES {
        log.extend(done(client, lane).await?);
    }
    Ok(Holding { books, log })
}

fn transaction(job: &Job, handed: &str, message: &Value) -> Value {
    let item = json!({"queue": DONE, "partition": job.id.0.to_string(),
        "transactionId": handed, "payload": job});
    let ack = json!({"type": "ack", "transactionId": message["transactionId"],
        "partitionId": message["partitionId"], "leaseId": message["leaseId"],
        "consumerGroup": GROUP, "status": "completed"});
    let more = |key: String, delta: i64| json!({"op": "incr", "ns": NAMESPACE, "key": key, "delta": delta, "forever": true});
    let rows = [
        more(account(job.from), -job.amount),
        more(account(job.to), job.amount),
        more("moved".to_owned(), job.amount),
        more("count".to_owned(), 1),
    ];
    json!({"operations": [{"type": "push", "items": [item]}, ack], "kv": rows})
}

/// All rows at once, through one node; `None` without an answer.
async fn books(client: &Client) -> Option<Books> {
    let keys: Vec<String> =
        (0..ACCOUNTS).map(account).chain(["moved".to_owned(), "count".to_owned()]).collect();
    let read = json!({"op": "getMany", "ns": NAMESPACE, "keys": keys});
    let body = json!({"operations": [read]});
    let Told::Answered(answer) = post(client, "/api/v1/kv", &body, PATIENCE).await else {
        return None;
    };
    let rows = answer["results"][0]["rows"].as_array()?;
    // What was never written is 0.
    let value = |key: &str| {
        let row = rows.iter().find(|row| row["key"] == key);
        row.map_or(Some(0), |row| row["value"].as_i64())
    };
    let accounts = (0..ACCOUNTS).map(|n| value(&account(n))).collect::<Option<Vec<i64>>>()?;
    Some(Books { accounts, moved: value("moved")?, count: value("count")? })
}

/// What a node's log says is done of a lane.
async fn done(client: &Client, lane: u64) -> anyhow::Result<Vec<(String, Job)>> {
    let records = read_log(client, DONE, &lane.to_string()).await?;
    let one = |record: &Value| {
        let handed = record["transactionId"].as_str().unwrap_or_default().to_owned();
        Ok((handed, serde_json::from_value(record["payload"].clone())?))
    };
    records.iter().map(one).collect()
}
