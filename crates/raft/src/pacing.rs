//! When this node stands for election, and whether it may go on leading.
//!
//! Owns: the pulses of a leader, the patience of a voter, the question to the others before an election,
//! the leader's majority. Leaves to others: the election itself (the library), answering (`exchange`).
//!
//! The library's own election timer is off: it would disturb a group that works whenever a node comes
//! back, and its lease would have to be as long as its timeouts.

use crate::cluster::{Leader, Peer};
use crate::exchange::Exchange;
use crate::message::{self, Ballot, Canvass, Pulse};
use crate::net::frame::Kind;
use crate::net::greeting::Purpose;
use crate::types::Id;
use openraft::ServerState;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often all of this is looked at.
const TICK: Duration = Duration::from_millis(50);
/// How often a leader says that it lives.
const PULSE: Duration = Duration::from_millis(250);
const PULSE_LIMIT: Duration = Duration::from_millis(1000);
/// How often a leader repeats what is committed.
const COMMITTED: Duration = Duration::from_secs(1);
/// A leader whose majority is silent for this long takes no more proposals.
const QUORUM: Duration = Duration::from_secs(3);
/// A leader says that a node is silent after this long.
const SILENT: Duration = Duration::from_secs(2);
/// A voter whose connection to the leader broke stands after a time in this range.
const BROKEN: (Duration, Duration) = (Duration::from_millis(150), Duration::from_millis(600));

struct Pacer {
    exchange: Arc<Exchange>,
    patience: Duration,
    broken: Duration,
    /// No election before.
    not_before: Instant,
    pulsed: Instant,
    repeated: Instant,
    leads_in: Option<u64>,
    /// Nodes that were said to be silent by this leader.
    silent: BTreeSet<u64>,
}

/// Runs for as long as the node does.
pub(crate) async fn run(exchange: Arc<Exchange>) {
    tokio::join!(tell(exchange.clone()), pace(exchange));
}

/// Tells watchers which other node leads: as soon as the library knows, however long a question to the
/// others takes meanwhile.
async fn tell(exchange: Arc<Exchange>) {
    let Some(mut server) = exchange.raft.get().map(|raft| raft.server_metrics()) else { return };
    let mut tick = ticks();
    loop {
        let now = server.borrow_and_update().clone();
        if now.state != ServerState::Leader || !now.vote.committed {
            exchange.tell_leader(now.current_leader, now.vote.leader_id.term);
        }
        tokio::select! {
            _ = tick.tick() => {}
            changed = server.changed() => if changed.is_err() { return },
        }
    }
}

fn ticks() -> tokio::time::Interval {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    tick
}

async fn pace(exchange: Arc<Exchange>) {
    let now = Instant::now();
    let mut pacer = Pacer {
        patience: exchange.draw(exchange.options.election),
        broken: exchange.draw(BROKEN),
        not_before: now,
        pulsed: now,
        repeated: now,
        leads_in: None,
        silent: BTreeSet::new(),
        exchange,
    };
    let mut tick = ticks();
    loop {
        tick.tick().await;
        pacer.look().await;
    }
}

impl Pacer {
    async fn look(&mut self) {
        let Some(raft) = self.exchange.raft.get() else { return };
        let server = raft.server_metrics().borrow().clone();
        let term = server.vote.leader_id.term;
        if server.state == ServerState::Leader && server.vote.committed {
            self.lead(term);
            return;
        }
        if self.leads_in.take().is_some() {
            self.exchange.acks.lock().clear();
            self.exchange.quorum.send_replace(true);
            *self.exchange.heard.lock() =
                crate::exchange::Heard { at: Instant::now(), leader: None, lost: false };
        }
        let members = server.membership_config.membership().clone();
        if members.voter_ids().any(|id| id == self.exchange.me) {
            self.maybe_stand(members.get_joint_config()).await;
        }
    }

    fn lead(&mut self, term: u64) {
        let (now, exchange) = (Instant::now(), &self.exchange);
        let others = exchange.others();
        if self.leads_in != Some(term) {
            self.leads_in = Some(term);
            self.silent.clear();
            // A majority has just voted.
            *exchange.acks.lock() = others.iter().map(|id| (*id, now)).collect();
            self.pulsed = now - PULSE;
        }
        {
            // A new member has as long to answer as any other.
            let mut acks = exchange.acks.lock();
            for id in &others {
                let at = *acks.entry(*id).or_insert(now);
                if now.saturating_duration_since(at) < SILENT {
                    if self.silent.remove(id) {
                        tracing::info!(node = id, "a node answers again");
                    }
                } else if self.silent.insert(*id) {
                    tracing::warn!(node = id, "a node does not answer");
                }
            }
        }
        if now >= self.pulsed + PULSE {
            self.pulsed = now;
            let held = exchange.held();
            others.iter().for_each(|id| self.pulse(*id, term, held.clone()));
        }
        if now >= self.repeated + COMMITTED && !exchange.is_stepping_down() {
            self.repeated = now;
            if let Some(raft) = exchange.raft.get().cloned() {
                exchange.runtime.spawn(async move { raft.trigger().heartbeat().await });
            }
        }
        let lives = exchange.quorum_age().is_none_or(|age| age < QUORUM);
        let quorum = lives && !exchange.is_stepping_down();
        exchange.quorum.send_if_modified(|was| {
            let changed = *was != quorum;
            if changed && !lives {
                tracing::warn!(term, "no majority answers, proposals are refused");
            }
            *was = quorum;
            changed
        });
    }

    fn pulse(&self, id: u64, term: u64, held: Vec<(u64, Id)>) {
        let exchange = self.exchange.clone();
        let Some(link) = exchange.link(id, Purpose::Control) else { return };
        self.exchange.runtime.spawn(async move {
            let sent = Instant::now();
            let body = message::encode(&Pulse { term, leader: exchange.me, held });
            let answer = link.ask(Kind::Pulse, body, PULSE_LIMIT).await;
            let knows: Option<u64> = answer.ok().and_then(|answer| message::decode(&answer));
            if knows.is_some_and(|knows| knows <= term) {
                exchange.acks.lock().insert(id, sent);
                exchange.answered.notify_waiters();
            }
        });
    }

    async fn maybe_stand(&mut self, configs: &[BTreeSet<u64>]) {
        let exchange = self.exchange.clone();
        let heard = *exchange.heard.lock();
        let patience = if heard.lost { self.broken } else { self.patience };
        let now = Instant::now();
        let alone = configs.iter().all(|voters| voters.iter().all(|id| *id == exchange.me));
        if !alone && (now < heard.at + patience || now < self.not_before) {
            return;
        }
        if now < self.not_before {
            return;
        }
        self.patience = exchange.draw(exchange.options.election);
        self.broken = exchange.draw(BROKEN);
        let Some(raft) = exchange.raft.get() else { return };
        if !alone && !self.canvass(configs).await {
            // Soon enough for those who were not heard, rarely enough to be no burden.
            self.not_before = Instant::now() + exchange.draw(BROKEN);
            return;
        }
        tracing::info!(node = exchange.me, "stands for election");
        let _ = raft.trigger().elect().await;
        self.not_before = Instant::now() + self.patience / 2;
    }

    /// Whether a majority would vote for this node.
    async fn canvass(&self, configs: &[BTreeSet<u64>]) -> bool {
        let exchange = &self.exchange;
        let Some(raft) = exchange.raft.get() else { return false };
        let last = raft.data_metrics().borrow().last_log;
        let voters: BTreeSet<u64> = configs.iter().flatten().copied().collect();
        let asked = voters.into_iter().filter(|id| *id != exchange.me).filter_map(|id| {
            let link = exchange.link(id, Purpose::Control)?;
            Some(async move {
                let body = message::encode(&Canvass { last });
                let answer = link.ask(Kind::Canvass, body, BROKEN.1).await.ok()?;
                let Ballot { granted, last } = message::decode(&answer)?;
                (granted && exchange.bars(id, last).is_none()).then_some(id)
            })
        });
        let mut asked: futures::stream::FuturesUnordered<_> = asked.collect();
        let mut granted = BTreeSet::from([exchange.me]);
        while let Some(answer) = futures::StreamExt::next(&mut asked).await {
            granted.extend(answer);
            if configs.iter().all(|voters| is_majority(voters, |id| granted.contains(id))) {
                return true;
            }
        }
        false
    }
}

fn is_majority(voters: &BTreeSet<u64>, has: impl Fn(&u64) -> bool) -> bool {
    voters.iter().filter(|id| has(id)).count() * 2 > voters.len()
}

impl Exchange {
    /// Tells watchers which other node leads, if it lives.
    fn tell_leader(&self, leader: Option<u64>, term: u64) {
        let heard = *self.heard.lock();
        let alive = !heard.lost && heard.at.elapsed() < self.options.election.1;
        let leader = leader.filter(|id| *id != self.me && alive);
        let leader = leader.map(|id| {
            let Peer { raft, http } = self.address(id).unwrap_or_default().peer;
            Leader { id, term, raft, http }
        });
        self.leader.send_if_modified(|now| {
            let changed = *now != leader;
            *now = leader;
            changed
        });
    }

    /// On the leader: the newest committed entry that each other node is known to hold. Not what
    /// this one holds: that may be committed by the others before it is synced here.
    fn held(&self) -> Vec<(u64, Id)> {
        let Some(raft) = self.raft.get() else { return Vec::new() };
        let metrics = raft.data_metrics();
        let now = metrics.borrow();
        let Some(applied) = now.last_applied else { return Vec::new() };
        let others = now.replication.iter().flatten();
        let others = others.filter_map(|(id, at)| Some((*id, (*at)?.min(applied))));
        others.filter(|(id, _)| *id != self.me).collect()
    }

    /// A time in `range`, drawn.
    fn draw(&self, range: (Duration, Duration)) -> Duration {
        let span = range.1.saturating_sub(range.0).as_micros() as u64;
        range.0 + Duration::from_micros(self.host.draw() % (span + 1))
    }

    /// How long ago a majority last answered; `None` when this node is a majority by itself.
    pub(crate) fn quorum_age(&self) -> Option<Duration> {
        let raft = self.raft.get()?;
        let metrics = raft.server_metrics();
        let configs = metrics.borrow().membership_config.membership().get_joint_config().clone();
        let acks = self.acks.lock();
        let ages = configs.iter().filter_map(|voters| {
            let mut ages: Vec<Duration> = voters
                .iter()
                .map(|id| match acks.get(id) {
                    _ if *id == self.me => Duration::ZERO,
                    Some(at) => at.elapsed(),
                    None => Duration::MAX,
                })
                .collect();
            ages.sort_unstable();
            // Of three, the second youngest answer makes a majority.
            ages.get(voters.len() / 2).copied()
        });
        ages.max().filter(|age| *age > Duration::ZERO)
    }
}
