//! Clients of KV on the simulated cluster.
//!
//! Owns: registers and counters asked for through any node, and the record of what was answered. Leaves to
//! others: whether that can have happened (`crate::faults::kv`).

use super::broker::Broker;
use super::door::Door;
use super::forward::Failure;
use super::ledger::Ledger;
use crate::chance::Chance;
use crate::faults::kv::{Call, Op};
use parking_lot::Mutex;
use queen_core::TenantId;
use queen_core::command::{Command, KvBatch};
use queen_core::kv::{KvOp, KvOpKind, KvOutcome, KvResult, KvRow};
use queen_core::reply::Reply;
use queen_core::row::kv::{KvValue, key as row_key};
use queen_core::table::Table;
use queen_state::Tables as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

const NAMESPACE: &str = "sim";

/// What the clients share.
pub struct KvClients {
    /// Where each node is asked.
    pub doors: Vec<Arc<Door>>,
    /// For the time, and what cannot be.
    pub ledger: Arc<Ledger>,
    /// Calls by key.
    pub calls: Mutex<BTreeMap<String, Vec<Call>>>,
    /// They end.
    pub stop: AtomicBool,
    values: AtomicI64,
}

/// Value and version.
type Seen = (Option<i64>, u64);

impl KvClients {
    /// Clients of these nodes.
    pub fn new(doors: Vec<Arc<Door>>, ledger: Arc<Ledger>) -> Arc<KvClients> {
        let (calls, stop, values) = (Mutex::default(), AtomicBool::new(false), AtomicI64::new(0));
        Arc::new(KvClients { doors, ledger, calls, stop, values })
    }

    /// One client at work.
    pub async fn work(self: Arc<Self>, mut chance: Chance) {
        let mut known = BTreeMap::new();
        while !self.stop.load(Ordering::Relaxed) {
            let number = chance.below(2);
            let counts = chance.below(3) == 0;
            let key = format!("{}{number}", if counts { "counter" } else { "register" });
            let node = chance.below(self.doors.len() as u64) as usize;
            let reads = chance.below(2) == 0;
            self.once(&key, counts, reads, node, &mut known).await;
            tokio::time::sleep(Duration::from_millis(10 + chance.below(120))).await;
        }
    }

    /// Reads every key through every node, once.
    pub async fn read_all(self: Arc<Self>) {
        let keys: Vec<String> = self.calls.lock().keys().cloned().collect();
        for node in 0..self.doors.len() {
            for key in &keys {
                self.once(key, false, true, node, &mut BTreeMap::new()).await;
            }
        }
    }

    /// Writes through one node until that is answered.
    pub async fn until_written(self: Arc<Self>, node: usize) {
        let command = write("probe", Some(0), None);
        loop {
            let command = command.clone();
            let asked =
                self.doors[node].call(move |broker| async move { broker.carry(&command).await });
            match asked.await {
                Ok(_) => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn once(
        &self,
        key: &str,
        counts: bool,
        reads: bool,
        node: usize,
        known: &mut BTreeMap<String, Seen>,
    ) {
        let begin = self.ledger.now();
        let seen = known.remove(key);
        let door = &self.doors[node];
        let (op, done) = if reads {
            let name = key.to_owned();
            match door.call(move |broker| read(broker, name)).await {
                Ok((value, version)) => {
                    known.insert(key.to_owned(), (value, version));
                    (Op::Get(value), true)
                }
                Err(_) => return,
            }
        } else {
            let value = 1 + self.values.fetch_add(1, Ordering::Relaxed);
            let (kind, op) = match seen {
                _ if counts => (write(key, None, None), Op::Incr(None)),
                Some((from, version)) => {
                    let op = Op::PutAt { from, to: value, answer: None };
                    (write(key, Some(value), Some(version)), op)
                }
                None => (write(key, Some(value), None), Op::Put(value)),
            };
            match door.call(move |broker| async move { broker.carry(&kind).await }).await {
                Ok(reply) => (self.learn(op, &reply), true),
                Err(Failure::NotDone) => return,
                Err(Failure::Unknown) => (op, false),
            }
        };
        let end = done.then(|| self.ledger.now());
        self.ledger.note(format_args!("kv {key} at node {}: {op:?} since {begin}", node + 1));
        self.calls.lock().entry(key.to_owned()).or_default().push(Call { begin, end, op });
    }

    fn learn(&self, op: Op, reply: &Reply) -> Op {
        let result = match reply {
            Reply::Kv(KvOutcome::Done(results)) => results.first(),
            _ => None,
        };
        match (op, result) {
            (Op::Put(value), Some(KvResult::Applied(_))) => Op::Put(value),
            (Op::PutAt { from, to, .. }, Some(KvResult::Applied(_))) => {
                Op::PutAt { from, to, answer: Some(Ok(())) }
            }
            (Op::PutAt { from, to, .. }, Some(KvResult::Lost { row, .. })) => {
                Op::PutAt { from, to, answer: Some(Err(row.as_ref().and_then(number))) }
            }
            (Op::Incr(_), Some(KvResult::Applied(Some(row)))) => Op::Incr(number(row)),
            (op, _) => {
                // The clock of a leader that is set back may make a stamp that is refused.
                self.ledger.wrong(format!("kv: {op:?} was answered {reply:?}"));
                op
            }
        }
    }
}

fn number(row: &KvRow) -> Option<i64> {
    std::str::from_utf8(&row.value).ok()?.parse().ok()
}

/// The bytes of a put, or of an increment.
fn write(key: &str, value: Option<i64>, expect: Option<u64>) -> Vec<u8> {
    let text = value.map(|value| value.to_string()).unwrap_or_default();
    let kind = match value {
        Some(_) => KvOpKind::Put { key, value: &text, ttl_seconds: None, expect },
        None => KvOpKind::Incr { key, delta: "1", min: None, max: None, ttl_seconds: None },
    };
    let ops = vec![KvOp { ns: NAMESPACE, kind, required: false }];
    Command::Kv(KvBatch { tenant: TenantId::DEFAULT, ops }).encode()
}

async fn read(broker: Arc<Broker>, key: String) -> Result<Seen, Failure> {
    broker.barrier().await?;
    let row_key = row_key(TenantId::DEFAULT, NAMESPACE, &key);
    let found = broker.look(|store| store.get(Table::Kv, &row_key).unwrap());
    let Some(found) = found else { return Ok((None, 0)) };
    let row = KvValue::decode(&found).unwrap();
    Ok((std::str::from_utf8(&row.value).unwrap().parse().ok(), row.version))
}
