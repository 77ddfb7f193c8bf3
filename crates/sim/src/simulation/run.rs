//! One run: steps drawn by the seed, then calm, then the verdict.
//!
//! Owns: what happens to nodes, queues, clock and bucket, and when. Leaves to others: the fates of
//! single requests (`fates`), what must hold in the end (`verdict`).

use super::fates::Seeded;
use super::ledger::{self, Ledger, Rows};
use super::mutation::{Mutation, Starts};
use super::plan::Plan;
use super::trace::Trace;
use super::verdict;
use crate::chance::Chance;
use crate::twin::{Owner, World};
use queen_sink::Wish;
use queen_sink::bucket::ErrorKind;
use queen_sink::settings::Settings;
use queen_state::MemoryStore;
use std::sync::Arc;
use std::time::Duration;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Hash of all that happened.
    pub hash: u64,
    /// What did not hold; empty for a good run.
    pub wrong: Vec<String>,
    /// Requests of all owners.
    pub requests: u64,
    /// Windows in the lake.
    pub windows: u64,
    /// Records in the lake.
    pub records: u64,
    /// Times that retention took whole segments behind a pinned window.
    pub passed: u64,
}

/// A node, and the owner that runs on it.
struct Node {
    name: String,
    settings: Settings,
    owner: Option<Owner>,
}

/// A backup: the broker's state, and how far each queue was.
struct Backup {
    store: MemoryStore,
    rows: Vec<Rows>,
}

pub(super) struct Run {
    pub(super) world: World,
    pub(super) fates: Arc<Seeded>,
    pub(super) plan: Plan,
    pub(super) ledger: Ledger,
    pub(super) starts: Starts,
    chance: Chance,
    mutation: Option<Mutation>,
    nodes: Vec<Node>,
    /// Owners that another has replaced on their node, and that live on.
    replaced: Vec<Owner>,
    owners: u64,
    release: u32,
    /// Queues made so far: names of partitions differ between incarnations.
    made: u64,
    backup: Option<Backup>,
    passed: u64,
    /// Steps for which the bucket stays away while hours pass.
    outage: u64,
    pub(super) wrong: Vec<String>,
}

/// Runs a seed; `shown` prints what happens.
pub fn run(seed: u64, mutation: Option<Mutation>, shown: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut run = Run::new(seed, mutation, shown);
        run.faults().await;
        run.calm().await;
        let (windows, records) = run.judge().await;
        let mut wrong = run.wrong;
        wrong.extend(run.fates.wrong());
        let (hash, requests) = (run.fates.trace().hash(), run.fates.requests());
        Outcome { seed, hash, wrong, requests, windows, records, passed: run.passed }
    })
}

macro_rules! note {
    ($run:expr, $($what:tt)*) => { $run.fates.trace().note(format_args!($($what)*)) };
}

impl Run {
    fn new(seed: u64, mutation: Option<Mutation>, shown: bool) -> Run {
        let mut chance = Chance::new(seed);
        let plan = Plan::new(&mut chance);
        let (fate, trace) = (Chance::new(chance.draw()), Trace::new(shown));
        let fates = Arc::new(Seeded::new(fate, plan.upgrades, trace));
        let world = World::new();
        if mutation == Some(Mutation::IntentNotPinned) {
            world.broker.forget_pins();
        }
        let mut run = Run {
            world,
            fates,
            plan,
            ledger: Ledger::default(),
            starts: Starts::default(),
            chance,
            mutation,
            nodes: Vec::new(),
            replaced: Vec::new(),
            owners: 0,
            release: 0,
            made: 0,
            backup: None,
            passed: 0,
            outage: 0,
            wrong: Vec::new(),
        };
        for number in 0..run.plan.nodes {
            let name = format!("n{number}");
            let settings = run.plan.settings(&mut run.chance, &name, 0);
            run.nodes.push(Node { name, settings, owner: None });
        }
        run
    }

    fn start(&mut self, node: usize) {
        self.owners += 1;
        let line = self.world.line(self.owners, self.fates.clone());
        let (mut host, mut bucket) = (line.host(), line.bucket());
        let settings = self.nodes[node].settings.clone();
        if let Some(mutation) = self.mutation {
            (host, bucket) = mutation.around(host, bucket, &settings, &self.starts);
        }
        let Settings { encoding, layout, align, prefix, wrap, encoder, .. } = &settings;
        note!(
            self,
            "owner {} starts on {node}: {encoding:?} {layout:?} {align:?} {prefix} {wrap} {encoder}",
            self.owners
        );
        self.nodes[node].owner = Some(Owner::start(line, settings, host, bucket));
    }

    fn change_settings(&mut self, node: usize) {
        if self.plan.upgrades && self.chance.below(3) == 0 {
            self.release += 1;
        }
        let name = self.nodes[node].name.clone();
        self.nodes[node].settings = self.plan.settings(&mut self.chance, &name, self.release);
    }

    async fn faults(&mut self) {
        if self.chance.below(2) == 0 {
            self.push();
        }
        for node in 0..self.nodes.len() {
            self.start(node);
        }
        for _ in 0..self.plan.steps {
            self.step();
            let most =
                self.chance.pick(&[0, 50, 3_000, 20_000, 40_000]).copied().unwrap_or_default();
            let time = self.chance.below(most + 1);
            tokio::time::sleep(Duration::from_millis(time)).await;
            self.world.broker.tick_if_due();
        }
    }

    fn step(&mut self) {
        if self.outage > 0 {
            return self.outage();
        }
        let node = self.chance.below(self.nodes.len() as u64) as usize;
        match self.chance.below(100) {
            0..35 => self.push(),
            35..45 => self.retention(),
            45..48 => self.delete(),
            48..63 => self.restart(node),
            63..68 => self.kill(node),
            68..71 => self.drain(node),
            71..78 => self.freeze(node),
            78..83 => self.thaw(),
            83..88 => self.leap(),
            88..91 => self.bucket(true),
            91..95 => self.bucket(false),
            95..97 => {
                self.push();
                self.bucket(true);
                self.outage = 2 + self.chance.below(4);
            }
            _ => self.back_up(),
        }
        if self.plan.encrypted && self.chance.below(8) == 0 {
            self.encryption();
        }
    }

    fn queue(&mut self) -> &'static str {
        self.chance.pick(&self.plan.queues).copied().unwrap_or("orders")
    }

    fn push(&mut self) {
        let queue = self.queue();
        let broker = self.world.broker.clone();
        if broker.queue(queue).is_none() {
            self.made += 1;
            broker.configure(queue, 0);
        }
        let Some(info) = broker.queue(queue) else { return };
        for _ in 0..=self.chance.below(3) {
            let items: Vec<(String, String)> =
                (0..=self.chance.below(3)).map(|_| self.record(info.id.0)).collect();
            let items: Vec<(&str, &str)> = items.iter().map(|(p, t)| (&**p, &**t)).collect();
            let pushed = broker.push(queue, &items);
            note!(self, "push {queue} {items:?}");
            self.ledger.add(queue, info.id, pushed);
        }
    }

    fn record(&mut self, incarnation: u32) -> (String, String) {
        let name = self.chance.pick(&["a", "b/ä", "c"]).copied().unwrap_or("a");
        let payload = match self.chance.below(6) {
            0 => "\"\\ud800\"".to_owned(),
            1 => format!("{{\"text\":\"{}\"}}", "x".repeat(self.chance.below(300) as usize)),
            _ => self.chance.below(1_000_000).to_string(),
        };
        (format!("{name}.{incarnation}"), payload)
    }

    fn retention(&mut self) {
        let queue = self.queue();
        if self.world.broker.queue(queue).is_none() {
            return;
        }
        if self.chance.below(2) == 0 {
            let seconds = self.chance.pick(&[0, 1, 30, 300]).copied().unwrap_or_default();
            note!(self, "retention of {queue}: {seconds} s");
            self.world.broker.configure(queue, seconds);
        }
        self.trim();
    }

    fn trim(&mut self) {
        note!(self, "retention");
        let before = ledger::holes(&self.world.broker, &self.plan.queues);
        self.world.broker.tick();
        let holes = ledger::holes(&self.world.broker, &self.plan.queues);
        self.passed += u64::from(holes > before);
        for queue in self.plan.queues.clone() {
            self.ledger.trimmed(&self.world.broker, queue);
        }
    }

    /// An hour of a long outage: a window may be pinned, and more of the log comes behind it; in the
    /// end retention comes for all of it.
    fn outage(&mut self) {
        self.outage -= 1;
        note!(self, "an hour later");
        self.world.broker.leap(3_600_000_000);
        self.push();
        if self.outage == 0 {
            for queue in self.plan.queues.clone() {
                if self.world.broker.queue(queue).is_some() {
                    self.world.broker.configure(queue, 30);
                }
            }
            self.trim();
        }
    }

    fn delete(&mut self) {
        let queue = self.queue();
        let Some(info) = self.world.broker.queue(queue) else { return };
        note!(self, "delete {queue}");
        let rows = Rows::of(&self.world.broker, queue);
        self.world.broker.delete(queue);
        self.ledger.deleted(info.id, &rows);
    }

    fn kill(&mut self, node: usize) {
        if let Some(owner) = self.nodes[node].owner.take() {
            note!(self, "kill {node}");
            self.look_for_bugs(&owner);
        }
    }

    fn drain(&mut self, node: usize) {
        if let Some(owner) = self.nodes[node].owner.take() {
            note!(self, "drain {node}");
            owner.sink.wish(Wish::Drain);
            self.replaced.push(owner);
        }
    }

    /// Starts an owner where there is none, and sometimes beside the one that is there.
    fn restart(&mut self, node: usize) {
        let running = self.nodes[node].owner.as_ref().is_some_and(|owner| !owner.is_dead());
        if running && (self.plan.upgrades || self.chance.below(4) != 0) {
            return;
        }
        if let Some(owner) = self.nodes[node].owner.take() {
            self.look_for_bugs(&owner);
            if running {
                self.replaced.push(owner);
            }
        }
        if self.chance.below(2) == 0 {
            self.change_settings(node);
        }
        self.start(node);
    }

    /// Owners of an older release are dead when a newer one comes: what they send late would be
    /// other bytes.
    fn freeze(&mut self, node: usize) {
        if self.plan.upgrades {
            return;
        }
        if let Some(owner) = &self.nodes[node].owner {
            note!(self, "freeze {node}");
            owner.freeze();
        }
    }

    fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.nodes.iter().filter_map(|node| node.owner.as_ref()).chain(&self.replaced)
    }

    fn thaw(&mut self) {
        note!(self, "thaw");
        let at = self.chance.below(self.owners().count() as u64) as usize;
        if let Some(owner) = self.owners().nth(at) {
            owner.thaw();
        }
    }

    fn leap(&mut self) {
        let most = self.chance.pick(&[60, 3_600, 10_800]).copied().unwrap_or(60);
        let seconds = self.chance.below(most) as i64;
        let back = self.chance.below(4) == 0;
        let leap = if back { -(seconds % 120) } else { seconds };
        note!(self, "the clock leaps {leap} s");
        self.world.broker.leap(leap * 1_000_000);
    }

    fn bucket(&mut self, down: bool) {
        let kinds = [ErrorKind::Unreachable, ErrorKind::Throttled, ErrorKind::Forbidden];
        let kind = self.chance.pick(&kinds).copied().filter(|_| down);
        note!(self, "the bucket is {kind:?}");
        self.world.store.fail(kind);
    }

    /// A queue is encrypted from now on, a key is new, or the sink's nodes have lost their keys.
    fn encryption(&mut self) {
        let (queue, broker) = (self.queue(), self.world.broker.clone());
        let what = self.chance.below(4);
        note!(self, "encryption of {queue}: {what}");
        match what {
            0 | 1 if broker.queue(queue).is_some() => drop(broker.encrypt(queue)),
            0 | 1 => {}
            2 => broker.rotate_key(),
            _ => broker.give_keys(self.chance.below(2) == 0),
        }
    }

    fn back_up(&mut self) {
        if self.plan.restored && self.backup.is_none() {
            note!(self, "backup");
            let queues = self.plan.queues.iter();
            let rows = queues.map(|queue| Rows::of(&self.world.broker, queue)).collect();
            self.backup = Some(Backup { store: self.world.broker.backup(), rows });
        }
    }

    /// Ends all faults, and waits until everything is copied.
    async fn calm(&mut self) {
        note!(self, "calm");
        self.fates.calm();
        self.world.store.fail(None);
        self.world.broker.give_keys(true);
        for owner in self.owners() {
            owner.thaw();
        }
        self.start_missing();
        // Longest: a refused queue's minute, a lease, a backward leap, a request 20 minutes late.
        for _ in 0..1200 {
            if self.world.under_way() == 0 && verdict::waiting(self) == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
            // The fate of a request from before may have been its owner's death.
            self.start_missing();
            self.world.broker.tick_if_due();
        }
        let waiting = verdict::waiting(self);
        if waiting > 0 {
            let states = self.states();
            self.wrong.push(format!(
                "not-copied: {waiting} records or lists of loss wait for ever: {states}"
            ));
        }
    }

    fn start_missing(&mut self) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].owner.as_ref().is_none_or(Owner::is_dead) {
                self.nodes[node].owner = None;
                self.start(node);
            }
        }
    }

    /// What each owner says of itself.
    fn states(&self) -> String {
        let mut text = String::new();
        for owner in self.owners() {
            for queue in &self.plan.queues {
                let line = owner.queue(queue);
                let (state, error) = (&line["state"], &line["lastError"]["message"]);
                text.push_str(&format!("[{queue} {state} {error}] "));
            }
        }
        text
    }

    /// A panic in the sink's work on a queue is caught and shown there.
    fn look_for_bugs(&mut self, owner: &Owner) {
        for queue in &self.plan.queues {
            let line = owner.queue(queue);
            let error = line["lastError"]["message"].as_str().unwrap_or_default();
            let ours = ["a bug stopped", "windows-tile", "window-is-final", "the bytes changed"];
            if ours.iter().any(|text| error.contains(text)) {
                self.wrong.push(format!("the sink says: {error}"));
            }
        }
    }

    async fn judge(&mut self) -> (u64, u64) {
        let owners: Vec<Owner> = std::mem::take(&mut self.replaced);
        let running = self.nodes.iter_mut().filter_map(|node| node.owner.take());
        for owner in owners.into_iter().chain(running.collect::<Vec<_>>()) {
            self.look_for_bugs(&owner);
        }
        let report = verdict::lake(self);
        if self.wrong.is_empty()
            && let Some(backup) = self.backup.take()
        {
            self.restore(backup).await;
        }
        report
    }

    /// The broker is restored from a backup that knows less than the bucket.
    async fn restore(&mut self, backup: Backup) {
        let queue = self.plan.queues[0];
        let (then, now) = (&backup.rows[0], Rows::of(&self.world.broker, queue));
        let known = then.k() + u64::from(then.pending().is_some());
        if now.k() <= known {
            return;
        }
        note!(self, "restore: {} windows known, {} in the bucket", known, now.k());
        self.world.broker.restore(backup.store);
        self.fates.forget_holders();
        let before = self.world.store.objects();
        if self.world.broker.queue(queue).is_none() {
            self.world.broker.configure(queue, 0);
        }
        self.start(0);
        for _ in 0..20 {
            let Some(info) = self.world.broker.queue(queue) else { return };
            let (partition, payload) = self.record(info.id.0);
            self.world.broker.push(queue, &[(&partition, &payload)]);
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        let state = self.nodes[0].owner.as_ref().map(|owner| owner.queue(queue)["state"].clone());
        if state.as_ref().and_then(|state| state.as_str()) != Some("diverged") {
            let text =
                format!("the bucket is ahead of a restored broker, and the state is {state:?}");
            self.wrong.push(text);
        }
        let after = self.world.store.objects();
        let scope = format!("queue={queue}/");
        let same = after
            .iter()
            .filter(|(key, _)| key.contains(&scope))
            .all(|(key, object)| before.get(key).is_some_and(|old| old.bytes == object.bytes));
        if !same {
            self.wrong.push("a restored broker wrote to a bucket that is ahead of it".to_owned());
        }
    }
}
