//! One run: a cluster, clients at work, faults one after the other, peace, and a verdict.
//!
//! Owns: carrying out the schedule, healing, holding the nodes against each other. Leaves to others:
//! which faults (`schedule`), the clients and their rules (`queue`, `kv`), links (`net`).

use super::history::History;
use super::net::Net;
use super::schedule::{Fault, Kind, draw};
use super::{kv, queue};
use crate::process::{Client, Cluster};
use queen_store::{Store, StoreOptions};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// After the last fault every node must be able to commit within this time.
const HEALED: Duration = Duration::from_secs(30);
/// And all that was pushed must be delivered within this one: leases last five seconds.
const DRAINED: Duration = Duration::from_secs(30);
/// Longest search for an order of one key's calls.
const SEARCH: Duration = Duration::from_secs(60);

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Draws faults and requests.
    pub seed: u64,
    /// How long faults go on.
    pub length: Duration,
    /// Where histories are kept.
    pub folder: PathBuf,
    /// Settings of all nodes beside the usual ones.
    pub variables: Vec<(String, String)>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// What is wrong; nothing, if all is well.
    pub wrong: Vec<String>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
    /// The faults.
    pub faults: Vec<String>,
    /// Records that were answered, records settled, calls of KV.
    pub counts: (usize, usize, usize),
    /// The history.
    pub history: PathBuf,
}

impl Report {
    /// As text for people; a failing one says how to run it again.
    pub fn text(&self, length: Duration) -> String {
        let (pushed, settled, calls) = self.counts;
        let mut text = format!(
            "seed {}: {} faults ({}), {pushed} records pushed, {settled} acked, {calls} KV calls\n",
            self.seed,
            self.faults.len(),
            self.faults.join(" ")
        );
        for one in &self.left_out {
            text.push_str(&format!("  left out: {one}\n"));
        }
        for wrong in self.wrong.iter().take(20) {
            text.push_str(&format!("  WRONG {wrong}\n"));
        }
        if !self.wrong.is_empty() {
            text.push_str(&format!(
                "{} wrong; history: {}\nagain: cargo run -p queen-sim -- faults --seed {} --seconds {}\n",
                self.wrong.len(),
                self.history.display(),
                self.seed,
                length.as_secs()
            ));
        }
        text
    }
}

/// The nodes and their links.
struct Scene {
    cluster: Cluster,
    net: Option<Net>,
    history: Arc<History>,
    wrong: Vec<String>,
}

/// Runs a seed. An error is a fault of the harness's surroundings, or a cluster that never began.
pub async fn run(options: &Options) -> anyhow::Result<Report> {
    let seed = options.seed;
    let history = Arc::new(History::new(&options.folder, seed)?);
    let mut left_out = Vec::new();
    let net = match Net::new(3) {
        Ok(net) => Some(net),
        Err(why) => {
            left_out.push(format!("cut and slow links: no network namespaces: {why:#}"));
            None
        }
    };
    let slows = net.as_ref().is_some_and(Net::slows);
    if net.is_some() && !slows {
        left_out.push("slow and lossy links: the kernel has no netem discipline".to_owned());
    }
    let schedule = draw(seed, options.length, net.is_some(), slows);
    history.note("schedule", json!({"seed": seed, "faults": schedule, "left out": left_out}));
    let variables = options.variables.clone();
    let mut cluster = match &net {
        Some(net) => Cluster::at(&net.homes(), variables)?,
        None => Cluster::new(3, variables)?,
    };
    for id in cluster.ids() {
        cluster.spawn(id)?;
    }
    for id in cluster.ids() {
        cluster.ready(id).await?;
    }
    let clients = cluster.ids().into_iter().map(|id| cluster.client(id));
    let clients = clients.collect::<anyhow::Result<Vec<Client>>>()?;
    let queue = queue::Workload::start(&clients, seed, &history);
    let registers = kv::Workload::start(&clients, seed, &history);
    let mut scene = Scene { cluster, net, history: history.clone(), wrong: Vec::new() };
    for fault in &schedule {
        // A verdict in the middle of a run ends its faults, not its judgement.
        if let Err(why) = scene.befall(fault).await {
            scene.wrong.push(format!("fault: {:?}: {why:#}", fault.kind));
            break;
        }
    }
    scene.heal().await;
    let calls = registers.stop().await?;
    let facts = queue.stop(DRAINED).await?;
    let mut wrong = std::mem::take(&mut scene.wrong);
    wrong.extend(facts.judge());
    wrong.extend(scene.compare(&clients, &facts).await);
    let counts = (facts.answered(), facts.settled(), calls.values().map(Vec::len).sum());
    wrong.extend(judge_calls(calls).await);
    history.note("verdict", json!(wrong));
    let faults = schedule.iter().map(|fault| format!("{:?}", fault.kind)).collect();
    let history = history.path().to_owned();
    Ok(Report { seed, wrong, left_out, faults, counts, history })
}

async fn judge_calls(calls: BTreeMap<String, Vec<kv::Call>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (key, calls) in calls {
        let count = calls.len();
        let (found, answer) = tokio::sync::oneshot::channel();
        // A thread of its own: a search that is given up must not hold up the end of the program.
        std::thread::spawn(move || found.send(kv::is_linearizable(&calls)));
        match timeout(SEARCH, answer).await.map(Result::unwrap_or_default) {
            Ok(true) => {}
            Ok(false) => wrong.push(format!("not linearizable: {key}, {count} calls")),
            Err(_) => wrong.push(format!("undecided: {key}, {count} calls, {SEARCH:?}")),
        }
    }
    wrong
}

impl Scene {
    /// A node that ended by itself is wrong whatever it was told.
    fn look(&mut self) {
        for id in self.cluster.ids() {
            let Ok(node) = self.cluster.node(id) else { continue };
            if let Ok(Some(status)) = node.ended() {
                let tail = node.tail();
                let last = tail.lines().last().unwrap_or_default().to_owned();
                self.history.note("ended", json!({"node": id, "output": tail}));
                self.wrong.push(format!("dead: node {id} ended by itself ({status}): {last}"));
                let _ = self.cluster.kill(id);
            }
        }
    }

    async fn befall(&mut self, fault: &Fault) -> anyhow::Result<()> {
        let (leader, term) = self.cluster.leader(0).await?;
        let others: Vec<u64> = self.cluster.ids().into_iter().filter(|id| *id != leader).collect();
        let other = others[(fault.which % others.len() as u64) as usize];
        let target = if fault.kind.leads() { leader } else { other };
        let told = json!({"kind": fault.kind, "node": target, "leader": leader, "term": term});
        self.history.note("fault", told);
        self.begin(fault.kind, target, other, &others).await?;
        sleep(fault.lasting()).await;
        self.look();
        self.end(fault.kind, target).await?;
        self.history.note("peace", json!({"node": target}));
        sleep(fault.peaceful()).await;
        self.look();
        Ok(())
    }

    async fn begin(
        &mut self,
        kind: Kind,
        target: u64,
        other: u64,
        others: &[u64],
    ) -> anyhow::Result<()> {
        let everybody = self.cluster.ids();
        let rest = everybody.into_iter().filter(|id| *id != target);
        let both = |a: u64, b: u64| [(a, b), (b, a)];
        let cuts: Vec<(u64, u64)> = match kind {
            Kind::KillLeader | Kind::KillFollower => return self.cluster.kill(target),
            Kind::StopLeader | Kind::StopFollower => return self.cluster.stop(target).await,
            Kind::PauseLeader => return self.cluster.node(target)?.signal(libc::SIGSTOP),
            Kind::SlowLeader => return self.net.as_ref().map_or(Ok(()), |net| net.slow(target)),
            Kind::CutLeader | Kind::CutFollower => rest.flat_map(|id| both(target, id)).collect(),
            Kind::MuteLeader => others.iter().map(|id| (target, *id)).collect(),
            Kind::DeafLeader => others.iter().map(|id| (*id, target)).collect(),
            Kind::CutPair => both(target, other).to_vec(),
        };
        let Some(net) = &self.net else { return Ok(()) };
        cuts.into_iter().try_for_each(|(from, to)| net.cut(from, to))
    }

    async fn end(&mut self, kind: Kind, target: u64) -> anyhow::Result<()> {
        match kind {
            Kind::KillLeader | Kind::KillFollower | Kind::StopLeader | Kind::StopFollower => {
                self.cluster.spawn(target)
            }
            Kind::PauseLeader => self.cluster.node(target)?.signal(libc::SIGCONT),
            _ => self.net.as_ref().map_or(Ok(()), Net::heal),
        }
    }

    /// Ends whatever was begun, and waits until each node can commit.
    async fn heal(&mut self) {
        if let Some(Err(why)) = self.net.as_ref().map(Net::heal) {
            self.wrong.push(format!("fault: heal the links: {why:#}"));
        }
        self.look();
        for id in self.cluster.ids() {
            if let Ok(node) = self.cluster.node(id) {
                let _ = node.signal(libc::SIGCONT);
            } else if let Err(why) = self.cluster.spawn(id) {
                self.wrong.push(format!("fault: start node {id}: {why:#}"));
            }
        }
        self.history.note("healing", json!({}));
        for id in self.cluster.ids() {
            match timeout(HEALED, self.cluster.ready(id)).await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => self.wrong.push(format!("not healed: {why:#}")),
                Err(_) => {
                    let text = format!("not healed: node {id} is not ready after {HEALED:?}");
                    self.history.note("not healed", json!({"tails": self.cluster.tails()}));
                    self.wrong.push(text);
                }
            }
        }
        self.history.note("healed", json!({}));
    }

    /// Holds the nodes against what was answered and against each other; stops them.
    async fn compare(&mut self, clients: &[Client], facts: &queue::Facts) -> Vec<String> {
        self.look();
        let mut wrong = std::mem::take(&mut self.wrong);
        if !wrong.is_empty() {
            return wrong;
        }
        match self.alike(clients, facts).await {
            Ok(found) => wrong.extend(found),
            Err(why) => wrong.push(format!("compare: {why:#}")),
        }
        wrong
    }

    async fn alike(
        &mut self,
        clients: &[Client],
        facts: &queue::Facts,
    ) -> anyhow::Result<Vec<String>> {
        self.cluster.level().await?;
        let mut wrong = queue::read_logs(clients, facts).await?;
        self.cluster.level().await?;
        let ids = self.cluster.ids();
        for id in &ids {
            self.cluster.stop(*id).await?;
        }
        let mut digests = Vec::new();
        for id in &ids {
            let dir = self.cluster.dir(*id).join("store");
            let (store, _) = Store::open(&dir, StoreOptions::default())?;
            digests.push((id, store.digest()?.parts));
        }
        let Some((_, first)) = digests.first() else { return Ok(wrong) };
        for (id, other) in &digests {
            let differ = first.iter().filter(|(part, digest)| other.get(*part) != Some(*digest));
            let differ: Vec<String> = differ.map(|(part, _)| part.to_string()).collect();
            if first != other {
                wrong.push(format!("unlike: node 1 and node {id} differ: {differ:?}"));
            }
        }
        Ok(wrong)
    }
}
