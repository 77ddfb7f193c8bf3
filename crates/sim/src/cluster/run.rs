//! One run: faults drawn by the seed, then calm, then the verdict.
//!
//! Owns: what happens to nodes, links, disks and clocks, and when; what must hold in the end. Leaves to
//! others: what clients were answered (`kv_clients`, `queue_clients`).

use super::kv_clients::KvClients;
use super::ledger::Ledger;
use super::mutation::Mutation;
use super::net::Net;
use super::node::{Common, Node};
use super::queue_clients::QueueClients;
use super::{entropy, panics};
use crate::chance::Chance;
use crate::faults::kv::is_linearizable;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::Instant;

const SECOND: u64 = 1_000_000;
/// After the last fault every node has to answer a write within this time, µs.
const RECOVERY: u64 = 20 * SECOND;
/// Then all that was pushed has to be delivered, and all nodes have to be equal, within this time.
const DRAIN: u64 = 40 * SECOND;

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Hash of all that happened.
    pub hash: u64,
    /// What did not hold; empty for a good run.
    pub wrong: Vec<String>,
    /// Entries committed.
    pub entries: u64,
    /// Terms that had a leader.
    pub leaders: u64,
    /// Snapshots installed.
    pub snapshots: u64,
    /// Records pushed and answered.
    pub records: u64,
    /// KV calls answered.
    pub calls: u64,
    /// From the end of the faults until every node had answered a write, µs.
    pub recovery: u64,
}

struct Run {
    chance: Chance,
    ledger: Arc<Ledger>,
    net: Net,
    nodes: Vec<Node>,
    /// Where clients run: its clock is right.
    outside: Runtime,
    clock: Instant,
    kv: Arc<KvClients>,
    queue: Arc<QueueClients>,
}

/// Runs a seed; `shown` prints what happens. The same seed gives the same run only as the first of a process:
/// see [`super::apart`].
pub fn run(seed: u64, mutation: Option<Mutation>, shown: bool) -> Outcome {
    panics::watch();
    entropy::seeded(seed, || {
        let mut run = Run::new(seed, mutation, shown);
        run.faults();
        let recovery = run.calm();
        run.judge();
        let (leaders, entries, snapshots) = run.ledger.counts();
        let (records, _) = run.queue.counts();
        let calls = run.kv.calls.lock().values().map(Vec::len).sum::<usize>();
        let mut wrong = run.ledger.take_wrong();
        let (hash, net) = (run.ledger.hash(), run.net.clone());
        drop(run);
        net.close();
        wrong.extend(panics::take().into_iter().map(|text| format!("panic: {text}")));
        let (records, calls) = (records as u64, calls as u64);
        Outcome { seed, hash, wrong, entries, leaders, snapshots, records, calls, recovery }
    })
}

impl Run {
    fn new(seed: u64, mutation: Option<Mutation>, shown: bool) -> Run {
        let mut chance = Chance::new(seed);
        let ledger = Arc::new(Ledger::new(shown));
        let delay = pick(&mut chance, &[1_000, 8_000, 30_000]);
        let loss = pick(&mut chance, &[0, 2, 20]);
        let net = Net::new(Chance::new(chance.draw()), delay, loss);
        let voters = pick(&mut chance, &[3, 3, 3, 3, 5]);
        let common = Common {
            voters,
            net: net.clone(),
            ledger: ledger.clone(),
            mutation,
            hold_bytes: pick(&mut chance, &[0, 2_000, 20_000, 1 << 20]),
            checkpoint_every: Duration::from_millis(pick(&mut chance, &[300, 1_000, 3_000])),
        };
        let skewed = chance.below(2) == 0;
        let nodes: Vec<Node> = (1..=voters)
            .map(|id| {
                let rate = if skewed { 950 + chance.below(101) } else { 1000 };
                let skew = chance.below(4 * SECOND) as i64 - 2 * SECOND as i64;
                Node::new(id, common.clone(), Chance::new(chance.draw()), rate, skew)
            })
            .collect();
        let doors: Vec<_> = nodes.iter().map(|node| node.door.clone()).collect();
        let outside = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let clock = outside.block_on(async { Instant::now() });
        let kv = KvClients::new(doors.clone(), ledger.clone());
        let queue = QueueClients::new(doors, ledger.clone());
        let mut run = Run { chance, ledger, net, nodes, outside, clock, kv, queue };
        run.nodes.iter_mut().for_each(Node::start);
        for _ in 0..3 {
            let chance = Chance::new(run.chance.draw());
            run.outside.spawn(run.kv.clone().work(chance));
        }
        for number in 0..2 {
            let chance = Chance::new(run.chance.draw());
            run.outside.spawn(run.queue.clone().produce(number, chance));
        }
        for _ in 0..2 {
            let chance = Chance::new(run.chance.draw());
            run.outside.spawn(run.queue.clone().consume(chance));
        }
        run
    }

    /// Lets a short time pass everywhere.
    fn turn(&mut self) {
        let span = 1_000 + self.chance.below(7_000);
        let now = self.ledger.now() + span;
        self.ledger.set_now(now);
        self.net.deliver(now);
        let first = self.chance.below(self.nodes.len() as u64) as usize;
        for at in 0..self.nodes.len() {
            let count = self.nodes.len();
            self.nodes[(first + at) % count].turn(span);
        }
        self.clock += Duration::from_micros(span);
        let clock = self.clock;
        self.outside.block_on(async { tokio::time::sleep_until(clock).await });
        for node in &mut self.nodes {
            if node.is_down() && now >= node.restart_at {
                node.start();
            }
        }
    }

    fn pass(&mut self, span: u64) {
        let until = self.ledger.now() + span;
        while self.ledger.now() < until {
            self.turn();
        }
    }

    /// Whether `done` holds within `span`.
    fn pass_until(&mut self, span: u64, mut done: impl FnMut(&Run) -> bool) -> bool {
        let until = self.ledger.now() + span;
        while self.ledger.now() < until {
            if done(self) {
                return true;
            }
            self.turn();
        }
        done(self)
    }

    fn faults(&mut self) {
        let begin = SECOND + self.chance.below(4 * SECOND);
        self.pass(begin);
        let end = self.ledger.now() + (5 + self.chance.below(10)) * SECOND;
        while self.ledger.now() < end {
            let most = pick(&mut self.chance, &[100_000, 500_000, 2 * SECOND]);
            let span = self.chance.below(most);
            self.pass(span);
            self.fault();
        }
    }

    /// A node, and every other time the one that leads.
    fn some_node(&mut self) -> usize {
        let leader = self.nodes.iter().position(Node::leads);
        let any = self.chance.below(self.nodes.len() as u64) as usize;
        if self.chance.below(2) == 0 { leader.unwrap_or(any) } else { any }
    }

    fn fault(&mut self) {
        let at = self.some_node();
        let id = self.nodes[at].id;
        let ledger = self.ledger.clone();
        match self.chance.below(100) {
            0..26 => {
                let most = pick(&mut self.chance, &[1, 10, 60]);
                let (effects, silent) = (self.chance.below(most), self.chance.below(2) == 0);
                ledger.note(format_args!("node {id} dies after {effects}, silent: {silent}"));
                self.nodes[at].die_after(effects, silent);
            }
            26..28 => {
                ledger.note(format_args!("all die"));
                for node in &mut self.nodes {
                    node.die_after(self.chance.below(20), true);
                }
            }
            28..36 => {
                ledger.note(format_args!("node {id} is stopped"));
                self.nodes[at].stop();
            }
            36..46 => {
                ledger.note(format_args!("node {id} freezes"));
                self.nodes[at].freeze();
            }
            46..56 => self.nodes.iter_mut().for_each(Node::thaw),
            56..74 => self.cut(id),
            74..82 => {
                ledger.note(format_args!("links are whole"));
                self.net.heal();
            }
            82..87 => {
                let more = pick(&mut self.chance, &[50_000, 400_000, 2 * SECOND]);
                ledger.note(format_args!("links of node {id} take up to {more} µs"));
                for other in self.others(id) {
                    self.net.slow(id, other, more);
                    self.net.slow(other, id, more);
                }
            }
            87..94 => {
                let slow = pick(&mut self.chance, &[3_000, 30_000, 300_000, 2 * SECOND]);
                ledger.note(format_args!("syncs of node {id} take up to {slow} µs"));
                self.nodes[at].disk.set_slow(slow);
            }
            _ => {
                // Stamps never fall, so a lease may last this much longer.
                let leap = self.chance.below(10 * SECOND) as i64 - 5 * SECOND as i64;
                ledger.note(format_args!("the clock of node {id} leaps to {leap} µs"));
                self.nodes[at].leap(leap);
            }
        }
    }

    fn others(&self, id: u64) -> Vec<u64> {
        self.nodes.iter().map(|node| node.id).filter(|other| *other != id).collect()
    }

    fn cut(&mut self, id: u64) {
        let kind = self.chance.below(4);
        self.ledger.note(format_args!("node {id} is cut off: {kind}"));
        for other in self.others(id) {
            // Both directions, one, the other, or one neighbour alone.
            if kind != 1 {
                self.net.cut(id, other, true);
            }
            if kind != 2 {
                self.net.cut(other, id, true);
            }
            if kind == 3 {
                break;
            }
        }
    }

    /// Ends all faults; gives the time until every node has answered a write.
    fn calm(&mut self) -> u64 {
        self.ledger.note(format_args!("calm"));
        self.net.heal();
        for node in &mut self.nodes {
            node.thaw();
            node.disk.set_slow(3_000);
            node.restart_at = 0;
        }
        let begin = self.ledger.now();
        let probes: Vec<_> = (0..self.nodes.len())
            .map(|node| self.outside.spawn(self.kv.clone().until_written(node)))
            .collect();
        let recovered =
            self.pass_until(RECOVERY, |_| probes.iter().all(|probe| probe.is_finished()));
        let recovery = self.ledger.now() - begin;
        if !recovered {
            let late = (1..).zip(&probes).filter(|(_, probe)| !probe.is_finished());
            let late: Vec<u64> = late.map(|(id, _)| id).collect();
            self.ledger.wrong(format!("liveness: nodes {late:?} answered no write"));
        }
        recovery
    }

    fn judge(&mut self) {
        if self.ledger.has_wrong() {
            return;
        }
        let (kv, queue) = (self.kv.clone(), self.queue.clone());
        kv.stop.store(true, Ordering::Relaxed);
        queue.produce.store(false, Ordering::Relaxed);
        if !self.pass_until(DRAIN, |_| queue.drained()) {
            self.ledger.wrong("lost: not all that was answered was delivered".into());
        }
        queue.consume.store(false, Ordering::Relaxed);
        let reads = self.outside.spawn(kv.clone().read_all());
        let read = self.pass_until(DRAIN, |_| reads.is_finished());
        let equal = self.pass_until(DRAIN, |run| {
            let mut applied = run.nodes.iter().map(|node| node.broker()?.applied_index());
            let first = applied.next().flatten();
            first.is_some() && applied.all(|index| index == first)
        });
        if !read || !equal {
            return self.ledger.wrong(format!("liveness: read {read}, equal {equal}"));
        }
        let mut stores = self
            .nodes
            .iter()
            .filter_map(|node| node.broker().map(|broker| broker.look(|store| store.clone())));
        let Some(one) = stores.next() else { return };
        if !stores.all(|other| other == one) {
            self.ledger.wrong("apply-deterministic: the nodes' states differ".into());
        }
        if let Err(violation) = queen_state::invariants::check_all(&one) {
            self.ledger.wrong(violation.to_string());
        }
        queue.judge(&one).into_iter().for_each(|wrong| self.ledger.wrong(wrong));
        for (key, calls) in kv.calls.lock().iter() {
            if !is_linearizable(calls) {
                self.ledger.wrong(format!("linearizable: the calls to {key} have no order"));
            }
        }
    }
}

fn pick(chance: &mut Chance, items: &[u64]) -> u64 {
    chance.pick(items).copied().unwrap_or_default()
}
