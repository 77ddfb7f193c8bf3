//! The nodes of a run and what befalls them.
//!
//! Owns: carrying out a fault, healing, holding the nodes against each other. Leaves to others: which
//! fault (`schedule`), links (`net`), clocks (`clock`), clients.

use super::history::History;
use super::means::Means;
use super::net::Net;
use super::schedule::{Fault, Kind, Target};
use super::sink::Bucket;
use super::{members, queue, sink};
use crate::chance::Chance;
use crate::process::{Client, Cluster};
use queen_store::{Store, StoreOptions};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// After the last fault every node must be able to commit within this time.
const HEALED: Duration = Duration::from_secs(30);
/// Longest wait for a node to say how it is.
const ANSWERED: Duration = Duration::from_secs(5);
/// Between two leaps of a clock that strobes.
const STROBE: Duration = Duration::from_millis(70);
/// Bytes that a full disk has left.
const LEFT: u64 = 256 << 10;
/// Comparisons of the nodes before a difference counts.
const COMPARISONS: usize = 3;

/// The nodes and what they have.
pub struct Scene {
    /// Goes first: the small disk is mounted within the cluster's folder.
    means: Means,
    cluster: Cluster,
    clients: Vec<Client>,
    history: Arc<History>,
    /// When the bucket is reached again by the node that is cut off from it.
    dark_until: Option<Instant>,
    /// What was found.
    pub wrong: Vec<String>,
}

impl Scene {
    /// Starts the nodes, and waits until all can commit.
    pub async fn start(
        means: Means,
        cluster: Cluster,
        history: &Arc<History>,
    ) -> anyhow::Result<Scene> {
        let clients = cluster.ids().into_iter().map(|id| cluster.client(id));
        let clients = clients.collect::<anyhow::Result<Vec<Client>>>()?;
        let (history, wrong) = (history.clone(), Vec::new());
        let mut scene = Scene { means, cluster, clients, history, dark_until: None, wrong };
        scene.spawn_all().await?;
        Ok(scene)
    }

    async fn spawn_all(&mut self) -> anyhow::Result<()> {
        for id in self.cluster.ids() {
            self.cluster.spawn(id)?;
        }
        for id in self.cluster.ids() {
            self.cluster.ready(id).await?;
        }
        Ok(())
    }

    /// A client of each node.
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// The bucket, if there is one.
    pub fn bucket(&self) -> Option<&Bucket> {
        self.means.bucket.as_ref()
    }

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

    /// One fault, and the peace after it.
    pub async fn befall(&mut self, fault: &Fault) -> anyhow::Result<()> {
        let (leader, term) = self.cluster.leader(0).await?;
        let others: Vec<u64> = self.cluster.ids().into_iter().filter(|id| *id != leader).collect();
        let other = others[(fault.which % others.len() as u64) as usize];
        let target = match fault.kind.target() {
            Target::Leader => leader,
            Target::Follower => other,
            Target::Owner => {
                let place = sink::owner_in_flight(&self.clients).await;
                place.map_or(leader, |place| self.cluster.ids()[place])
            }
            Target::Power => self.means.power.as_ref().map_or(other, |(id, _)| *id),
            Target::Small => self.means.small.as_ref().map_or(other, |(id, _)| *id),
        };
        let told = json!({"kind": fault.kind, "node": target, "leader": leader, "term": term});
        self.history.note("fault", told);
        self.begin(fault, target, other).await?;
        if fault.kind != Kind::CutBucket {
            match fault.kind {
                Kind::StrobeLeader => self.strobe(fault, target).await?,
                _ => sleep(fault.lasting()).await,
            }
            self.look();
            self.end(fault.kind, target).await?;
        }
        self.history.note("peace", json!({"node": target}));
        sleep(fault.peaceful()).await;
        self.look();
        self.lighten()
    }

    async fn begin(&mut self, fault: &Fault, target: u64, other: u64) -> anyhow::Result<()> {
        let others = self.cluster.ids().into_iter().filter(|id| *id != target);
        let both = |a: u64, b: u64| [(a, b), (b, a)];
        let cuts: Vec<(u64, u64)> = match fault.kind {
            Kind::KillLeader | Kind::KillFollower | Kind::KillOwner => {
                return self.cluster.kill(target);
            }
            Kind::StopLeader | Kind::StopFollower => return self.cluster.stop(target).await,
            Kind::PauseLeader | Kind::PauseOwner => {
                return self.cluster.node(target)?.signal(libc::SIGSTOP);
            }
            Kind::SlowLeader => {
                return self.means.net.as_ref().map_or(Ok(()), |net| net.slow(target));
            }
            Kind::CutBucket => return self.darken(target, fault.lasting()),
            Kind::LeapLeader | Kind::LeapFollower => return self.leap(target, fault.leap()),
            Kind::StrobeLeader => return Ok(()),
            Kind::FillDisk => return self.fill(),
            Kind::LosePower => return self.lose_power(target, fault),
            Kind::RestartAll => return self.restart_all().await,
            Kind::ReplaceFollower => {
                return members::replace(&mut self.cluster, target, &self.history).await;
            }
            Kind::CutLeader | Kind::CutFollower => others.flat_map(|id| both(target, id)).collect(),
            Kind::MuteLeader => others.map(|id| (target, id)).collect(),
            Kind::DeafLeader => others.map(|id| (id, target)).collect(),
            Kind::CutPair => both(target, other).to_vec(),
        };
        let Some(net) = &self.means.net else { return Ok(()) };
        cuts.into_iter().try_for_each(|(from, to)| net.cut(from, to))
    }

    async fn end(&mut self, kind: Kind, target: u64) -> anyhow::Result<()> {
        match kind {
            Kind::KillLeader
            | Kind::KillFollower
            | Kind::KillOwner
            | Kind::LosePower
            | Kind::StopLeader
            | Kind::StopFollower => self.cluster.spawn(target),
            Kind::PauseLeader | Kind::PauseOwner => {
                self.cluster.node(target)?.signal(libc::SIGCONT)
            }
            Kind::FillDisk => self.means.small.as_ref().map_or(Ok(()), |(_, disk)| disk.clear()),
            _ => self.means.net.as_ref().map_or(Ok(()), Net::heal),
        }
    }

    fn lose_power(&mut self, target: u64, fault: &Fault) -> anyhow::Result<()> {
        self.cluster.kill(target)?;
        let Some((_, power)) = &self.means.power else { return Ok(()) };
        let undone = power.lose(&mut Chance::new(fault.which))?;
        self.history.note("power", json!({"node": target, "writes lost": undone}));
        Ok(())
    }

    /// Leaves a few blocks of the small disk.
    fn fill(&self) -> anyhow::Result<()> {
        self.means.small.as_ref().map_or(Ok(()), |(_, disk)| disk.fill(LEFT))
    }

    /// Stops and starts each node, with none away for longer than that takes.
    async fn restart_all(&mut self) -> anyhow::Result<()> {
        for id in self.cluster.ids() {
            self.cluster.stop(id).await?;
            self.cluster.spawn(id)?;
            self.cluster.ready(id).await?;
        }
        Ok(())
    }

    /// Cuts a node off from the bucket, and any other no longer.
    fn darken(&mut self, target: u64, lasting: Duration) -> anyhow::Result<()> {
        let Some(net) = &self.means.net else { return Ok(()) };
        net.heal_bucket()?;
        net.cut_bucket(target)?;
        self.dark_until = Some(Instant::now() + lasting);
        Ok(())
    }

    /// Lets the bucket be reached again when it is time.
    fn lighten(&mut self) -> anyhow::Result<()> {
        if self.dark_until.take_if(|until| *until <= Instant::now()).is_some() {
            self.history.note("bucket", json!({"reached": true}));
            self.means.net.as_ref().map_or(Ok(()), Net::heal_bucket)?;
        }
        Ok(())
    }

    /// Sets a node's wall clock so far from the right time.
    fn leap(&mut self, target: u64, by: i64) -> anyhow::Result<()> {
        let Some(clocks) = &mut self.means.clocks else { return Ok(()) };
        self.history.note("clock", json!({"node": target, "ahead": by}));
        clocks.set(target, by)
    }

    /// Sets it there and back as long as the fault lasts.
    async fn strobe(&mut self, fault: &Fault, target: u64) -> anyhow::Result<()> {
        let Some(clocks) = &mut self.means.clocks else { return Ok(()) };
        let before = clocks.moved(target);
        let end = Instant::now() + fault.lasting();
        while Instant::now() < end {
            for by in [fault.leap(), before] {
                clocks.set(target, by)?;
                sleep(STROBE).await;
            }
        }
        Ok(())
    }

    /// Ends whatever was begun, and waits until each node can commit.
    pub async fn heal(&mut self) {
        let healed = self.means.net.as_ref().map(|net| net.heal().and_then(|()| net.heal_bucket()));
        if let Some(Err(why)) = healed {
            self.wrong.push(format!("fault: heal the links: {why:#}"));
        }
        if let Some(Err(why)) = self.means.small.as_ref().map(|(_, disk)| disk.clear()) {
            self.wrong.push(format!("fault: give a disk its space back: {why:#}"));
        }
        for id in self.cluster.ids() {
            if let Err(why) = self.leap(id, 0) {
                self.wrong.push(format!("fault: set a clock right: {why:#}"));
            }
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

    /// Notes what the nodes say of themselves.
    pub async fn note_state(&mut self) {
        for (id, client) in self.cluster.ids().into_iter().zip(&self.clients) {
            for path in ["/status", "/metrics"] {
                let asked = timeout(ANSWERED, client.get(path)).await;
                let said = asked.ok().and_then(Result::ok).map(|answer| answer.json());
                self.history.note("state", json!({"node": id, "path": path, "said": said}));
            }
            if let Ok(node) = self.cluster.node(id) {
                self.history.note("output", json!({"node": id, "tail": node.tail()}));
            }
        }
    }

    /// Holds the nodes against what was answered and against each other; stops them.
    pub async fn compare(&mut self, facts: &queue::Facts) -> Vec<String> {
        self.look();
        let mut wrong = std::mem::take(&mut self.wrong);
        if !wrong.is_empty() {
            return wrong;
        }
        match self.alike(facts).await {
            Ok(found) => wrong.extend(found),
            Err(why) => wrong.push(format!("compare: {why:#}")),
        }
        wrong
    }

    async fn alike(&mut self, facts: &queue::Facts) -> anyhow::Result<Vec<String>> {
        self.cluster.level().await?;
        let mut wrong = queue::read_logs(&self.clients, facts).await?;
        for tries_left in (0..COMPARISONS).rev() {
            let unlike = self.unlike().await?;
            if unlike.is_empty() || tries_left == 0 {
                wrong.extend(unlike);
                break;
            }
            // What was logged when one had stopped is no difference, if it is caught up with.
            for id in self.cluster.ids() {
                self.cluster.setup(id)?.variables.remove("QUEEN_S3_EMBEDDED");
            }
            self.spawn_all().await?;
            self.cluster.level().await?;
        }
        Ok(wrong)
    }

    /// Stops all nodes and says whose stores differ from the first one's.
    async fn unlike(&mut self) -> anyhow::Result<Vec<String>> {
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
        let mut wrong = Vec::new();
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
