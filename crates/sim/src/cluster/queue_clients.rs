//! Producers and consumers of the simulated cluster, and whether nothing was lost, invented or mixed up.
//!
//! Owns: pushing in order until it is answered, popping and acking through any node, and what must hold of
//! the answers whatever happens. Leaves to others: who dies when (`run`).

use super::broker::Broker;
use super::door::Door;
use super::forward::Failure;
use super::ledger::Ledger;
use crate::chance::Chance;
use parking_lot::Mutex;
use queen_core::command::{
    Ack, AckItem, Command, GroupStart, LeaseClaim, Pop, Push, PushGroup, Verdict,
};
use queen_core::frame::Frame;
use queen_core::reply::{Claim, Popped, PushedItem, Reply};
use queen_core::{LeaseId, PartitionId, TenantId};
use queen_state::{MemoryStore, QueueLogs as _, query};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const QUEUE: &str = "orders";
const GROUP: &str = "workers";
/// Seconds of a lease.
const LEASE: u32 = 3;
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(60);

/// A record's id and its offset.
type Placed = (String, u64);

/// A pop's share of one partition.
struct Delivery {
    partition: String,
    asked: u64,
    records: Vec<Placed>,
}

#[derive(Default)]
struct Facts {
    sent: BTreeMap<String, Vec<String>>,
    pushed: BTreeMap<String, Vec<Placed>>,
    delivered: Vec<Delivery>,
    acked: BTreeMap<(String, u64), u64>,
}

/// What the clients share.
pub struct QueueClients {
    doors: Vec<Arc<Door>>,
    ledger: Arc<Ledger>,
    facts: Mutex<Facts>,
    /// Producers go on.
    pub produce: AtomicBool,
    /// Consumers go on.
    pub consume: AtomicBool,
}

/// What a claim gave.
struct Share {
    partition: PartitionId,
    name: String,
    records: Vec<Placed>,
}

impl QueueClients {
    /// Clients of these nodes.
    pub fn new(doors: Vec<Arc<Door>>, ledger: Arc<Ledger>) -> Arc<QueueClients> {
        let (produce, consume) = (AtomicBool::new(true), AtomicBool::new(true));
        Arc::new(QueueClients { doors, ledger, facts: Mutex::default(), produce, consume })
    }

    fn door(&self, chance: &mut Chance) -> &Door {
        &self.doors[chance.below(self.doors.len() as u64) as usize]
    }

    /// One producer, in its own partition.
    pub async fn produce(self: Arc<Self>, number: u64, mut chance: Chance) {
        let partition = format!("p{number}");
        let mut next = 0;
        while self.produce.load(Ordering::Relaxed) {
            let count = 1 + chance.below(3);
            let ids: Vec<String> = (next..next + count).map(|n| format!("{number}-{n}")).collect();
            next += count;
            self.facts.lock().sent.entry(partition.clone()).or_default().extend(ids.clone());
            let command = push(&partition, &ids);
            // Sent again under the same ids, to any node, until it is answered.
            loop {
                let command = command.clone();
                let door = self.door(&mut chance);
                let asked = door.call(move |broker| async move { broker.carry(&command).await });
                if let Ok(reply) = asked.await {
                    self.pushed(&partition, &ids, &reply);
                    break;
                }
                tokio::time::sleep(AGAIN).await;
            }
            tokio::time::sleep(Duration::from_millis(20 + chance.below(200))).await;
        }
    }

    fn pushed(&self, partition: &str, ids: &[String], reply: &Reply) {
        self.ledger.note(format_args!("pushed {partition} {ids:?}"));
        let Reply::Push(groups) = reply else {
            return self.ledger.wrong(format!("queue: a push was answered {reply:?}"));
        };
        let mut facts = self.facts.lock();
        let known = facts.pushed.entry(partition.to_owned()).or_default();
        for (n, id) in ids.iter().enumerate() {
            let offset = match groups[0].items.get(n) {
                Some(PushedItem::Queued(offset) | PushedItem::Duplicate { offset, .. }) => offset.0,
                None => groups[0].first_offset.0 + n as u64,
            };
            known.push((id.clone(), offset));
        }
    }

    /// One consumer.
    pub async fn consume(self: Arc<Self>, mut chance: Chance) {
        while self.consume.load(Ordering::Relaxed) {
            let asked = self.ledger.now();
            let popped = self.door(&mut chance).call(pop).await;
            let (lease, shares) = match popped {
                Ok((Some(lease), shares)) => (lease, shares),
                Ok((None, _)) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
                Err(_) => {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            for Share { partition, name, records } in shares {
                self.ledger.note(format_args!("popped {name} {records:?}"));
                let delivery =
                    Delivery { partition: name.clone(), asked, records: records.clone() };
                self.facts.lock().delivered.push(delivery);
                // Now and then a consumer dies with what it holds: the lease ends.
                if chance.below(20) > 0 {
                    self.ack(partition, &name, lease, &records, &mut chance).await;
                }
            }
        }
    }

    async fn ack(
        &self,
        partition: PartitionId,
        name: &str,
        lease: LeaseId,
        records: &[Placed],
        chance: &mut Chance,
    ) {
        let command = ack(partition, lease, records);
        for _ in 0..3 {
            let command = command.clone();
            let door = self.door(chance);
            let asked = door.call(move |broker| async move { broker.carry(&command).await });
            match asked.await {
                Ok(Reply::Ack(outcomes)) => {
                    let now = self.ledger.now();
                    let mut facts = self.facts.lock();
                    for ((_, offset), outcome) in records.iter().zip(outcomes) {
                        if outcome.refusal.is_none() {
                            facts.acked.entry((name.to_owned(), *offset)).or_insert(now);
                        }
                    }
                    return;
                }
                Ok(other) => return self.ledger.wrong(format!("queue: an ack gave {other:?}")),
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// Whether all that was answered has been delivered.
    pub fn drained(&self) -> bool {
        let facts = self.facts.lock();
        let delivered = facts.delivered_ids();
        facts.pushed.values().flatten().all(|(id, _)| delivered.contains(id.as_str()))
    }

    /// Records answered, and records acked.
    pub fn counts(&self) -> (usize, usize) {
        let facts = self.facts.lock();
        (facts.pushed.values().map(Vec::len).sum(), facts.acked.len())
    }

    /// What is wrong with what was answered, and with the logs of the end.
    pub fn judge(&self, store: &MemoryStore) -> Vec<String> {
        let facts = self.facts.lock();
        let mut wrong = facts.judge();
        for (partition, sent) in &facts.sent {
            let log = log_of(store, partition);
            wrong.extend(facts.judge_log(partition, sent, &log));
        }
        wrong
    }
}

impl Facts {
    fn delivered_ids(&self) -> BTreeSet<&str> {
        let records = self.delivered.iter().flat_map(|delivery| &delivery.records);
        records.map(|(id, _)| id.as_str()).collect()
    }

    fn judge(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let sent: BTreeSet<&String> = self.sent.values().flatten().collect();
        let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
        for Delivery { partition, asked, records } in &self.delivered {
            let next = reached.entry(partition).or_default();
            for (id, offset) in records {
                if !sent.contains(id) {
                    wrong.push(format!("invented: {id} was popped and never pushed"));
                }
                let acked = self.acked.get(&(partition.clone(), *offset));
                if let Some(acked) = acked.filter(|acked| *acked < asked) {
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

    fn judge_log(&self, partition: &str, sent: &[String], log: &[Placed]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (id, offset) in self.pushed.get(partition).into_iter().flatten() {
            if log.get(*offset as usize).is_none_or(|(there, at)| there != id || at != offset) {
                wrong.push(format!("lost: {partition}: {id} was answered at {offset}"));
            }
        }
        // In the order of the producer, each once, none but its own.
        let mut sent = sent.iter();
        for (id, offset) in log {
            if !sent.any(|next| next == id) {
                wrong.push(format!("order: {partition}: {id} at {offset}"));
            }
        }
        wrong
    }
}

fn push(partition: &str, ids: &[String]) -> Vec<u8> {
    let (mut frames, mut text_bytes) = (Vec::new(), 0);
    for id in ids {
        let payload = format!("\"{id}\"");
        let frame =
            Frame { transaction_id: Some(id), payload: payload.as_bytes(), ..Frame::default() };
        text_bytes += frame.text_bytes() as u32;
        frame.encode(&mut frames);
    }
    let count = ids.len() as u32;
    let group = PushGroup {
        queue: QUEUE,
        partition,
        count,
        has_transaction_ids: true,
        text_bytes,
        frames: &frames,
    };
    Command::Push(Push { tenant: TenantId::DEFAULT, groups: vec![group] }).encode()
}

async fn pop(broker: Arc<Broker>) -> Result<(Option<LeaseId>, Vec<Share>), Failure> {
    let pop = Pop {
        tenant: TenantId::DEFAULT,
        queue: QUEUE,
        partition: None,
        group: Some(GROUP),
        batch: 10,
        partitions: 1,
        lease_seconds: Some(LEASE),
        auto_ack: false,
        start: GroupStart::All,
    };
    let reply = broker.carry(&Command::Pop(pop).encode()).await?;
    let Reply::Pop(Popped { lease, claims, .. }) = reply else { return Ok((None, Vec::new())) };
    let shares = broker.look(|store| claims.iter().map(|claim| share(store, claim)).collect());
    Ok((lease, shares))
}

fn share(store: &MemoryStore, claim: &Claim) -> Share {
    let records = records(store, claim.partition, claim.first.0, claim.end.0);
    Share { partition: claim.partition, name: claim.partition_name.to_string(), records }
}

/// Ids and offsets of a partition's records `first..end`.
fn records(store: &MemoryStore, partition: PartitionId, first: u64, end: u64) -> Vec<Placed> {
    use queen_core::Offset;
    let located = query::messages(store, partition, Offset(first), Offset(end)).unwrap();
    let mut out = Vec::new();
    for run in located {
        let bytes = store.read(run.place, run.len).unwrap();
        for (n, frame) in (0..).zip(queen_core::run::frames(&bytes)) {
            let offset = run.run_first.0 + n;
            if (run.first.0..run.end.0).contains(&offset) {
                out.push((frame.unwrap().transaction_id.unwrap_or_default().to_owned(), offset));
            }
        }
    }
    out
}

fn log_of(store: &MemoryStore, partition: &str) -> Vec<Placed> {
    let queue = query::queue_named(store, TenantId::DEFAULT, QUEUE).unwrap();
    let found = queue.and_then(|q| query::partition_named(store, q.id, partition).unwrap());
    found.map(|found| records(store, found.row.id, 0, u64::MAX)).unwrap_or_default()
}

fn ack(partition: PartitionId, lease: LeaseId, records: &[Placed]) -> Vec<u8> {
    let items = records.iter().map(|(id, _)| AckItem {
        transaction_id: id,
        partition: Some(partition),
        verdict: Verdict::Completed,
        lease: LeaseClaim::Id(lease),
        error: None,
    });
    let items = items.collect();
    Command::Ack(Ack { tenant: TenantId::DEFAULT, group: Some(GROUP), items }).encode()
}
