//! Groups of several nodes in one process, over real sockets and real log directories.

use crate::cluster::{ClusterOptions, MembershipCode, Peer, Role, Service};
use crate::host::RealHost;
use crate::machine::{Committed, Machine, MachineFailed, SnapshotSink, SnapshotSource};
use crate::mark::Mark;
use crate::wal::{Disk, RealDisk};
use crate::{AskError, NotProposed, RaftNode, RaftOptions};
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Keeps what was applied, in memory; "durable" up to where a test says.
#[derive(Default)]
struct Ledger {
    held: Arc<Mutex<Held>>,
    durable: Mutex<Held>,
    changed: tokio::sync::Notify,
    /// Where it dies when it installs a snapshot.
    trap: Arc<Mutex<Option<Trap>>>,
}

/// A place in the middle of installing a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trap {
    BeforeSwitch,
    AfterSwitch,
}

#[derive(Default, Clone)]
struct Held {
    mark: Option<Vec<u8>>,
    lines: Vec<Bytes>,
    installed: usize,
}

impl Ledger {
    /// What is left after a crash.
    fn reopened(&self) -> Arc<Self> {
        let durable = self.durable.lock().clone();
        Arc::new(Self {
            held: Arc::new(Mutex::new(durable.clone())),
            durable: Mutex::new(durable),
            ..Self::default()
        })
    }

    fn make_durable(&self) -> Vec<u8> {
        let held = self.held.lock().clone();
        *self.durable.lock() = held.clone();
        held.mark.unwrap()
    }

    fn lines(&self) -> Vec<Bytes> {
        self.held.lock().lines.clone()
    }

    fn installed(&self) -> usize {
        self.held.lock().installed
    }
}

impl Machine for Ledger {
    fn applied(&self) -> Option<Vec<u8>> {
        self.durable.lock().mark.clone()
    }

    fn apply(&self, entries: Vec<Committed>) -> Result<(), MachineFailed> {
        let mut held = self.held.lock();
        for entry in entries {
            let last = held.mark.as_ref().map(|mark| Mark::decode(mark).unwrap().id.index);
            assert_eq!(entry.index, last.map_or(0, |last| last + 1), "applied out of order");
            held.lines.extend(entry.proposals.iter().cloned());
            held.mark = Some(entry.mark);
        }
        self.changed.notify_waiters();
        Ok(())
    }

    fn leadership(&self, _: Option<u64>) {}

    fn snapshot(&self) -> Result<Box<dyn SnapshotSource>, MachineFailed> {
        let held = self.held.lock().clone();
        Ok(Box::new(Source { mark: held.mark.unwrap(), lines: held.lines.into() }))
    }

    fn receive(&self) -> Result<Box<dyn SnapshotSink>, MachineFailed> {
        let trap = *self.trap.lock();
        Ok(Box::new(Sink { into: self.held.clone(), came: Vec::new(), trap }))
    }
}

struct Source {
    mark: Vec<u8>,
    lines: std::collections::VecDeque<Bytes>,
}

impl SnapshotSource for Source {
    fn mark(&self) -> &[u8] {
        &self.mark
    }

    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        if into.is_empty() && self.lines.front().is_none() {
            into.extend_from_slice(&0u32.to_le_bytes());
            into.extend_from_slice(&self.mark);
            return Ok(false);
        }
        for line in self.lines.drain(..self.lines.len().min(100)) {
            into.extend_from_slice(&(line.len() as u32).to_le_bytes());
            into.extend_from_slice(&line);
        }
        Ok(true)
    }
}

struct Sink {
    into: Arc<Mutex<Held>>,
    came: Vec<u8>,
    trap: Option<Trap>,
}

impl SnapshotSink for Sink {
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.came.extend_from_slice(piece);
        Ok(())
    }

    fn install(self: Box<Self>) -> Result<(), MachineFailed> {
        let killed = || Err(MachineFailed("killed".into()));
        if self.trap == Some(Trap::BeforeSwitch) {
            return killed();
        }
        let mut rest = &self.came[..];
        let mut lines = Vec::new();
        loop {
            let (length, more) = rest.split_at(4);
            let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
            if length == 0 {
                let mut held = self.into.lock();
                let installed = held.installed + 1;
                *held = Held { mark: Some(more.to_vec()), lines, installed };
                return if self.trap.is_some() { killed() } else { Ok(()) };
            }
            let (line, more) = more.split_at(length);
            lines.push(Bytes::copy_from_slice(line));
            rest = more;
        }
    }
}

struct Member {
    id: u64,
    dir: tempfile::TempDir,
    node: Option<RaftNode>,
    machine: Arc<Ledger>,
}

impl Member {
    fn node(&self) -> &RaftNode {
        self.node.as_ref().unwrap()
    }

    /// As a process that is killed ends: nothing is handed over.
    async fn kill(&mut self) {
        let node = self.node.take().unwrap();
        node.shared.stop.send_replace(true);
        node.stopped().await;
        self.machine = self.machine.reopened();
    }

    fn isolate(&self, isolated: bool) {
        self.node().shared.exchange.as_ref().unwrap().isolate(isolated);
    }
}

struct Group {
    peers: BTreeMap<u64, Peer>,
    members: Vec<Member>,
    token: String,
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Group {
    fn of(count: u64) -> Self {
        let address = || format!("127.0.0.1:{}", free_port());
        let peer = |id| (id, Peer { raft: address(), http: format!("node-{id}:80") });
        let members = (1..=count).map(|id| Member {
            id,
            dir: tempfile::tempdir().unwrap(),
            node: None,
            machine: Arc::default(),
        });
        let members = members.collect();
        Self { peers: (1..=count).map(peer).collect(), members, token: "a token".into() }
    }

    async fn started(count: u64) -> Self {
        let mut group = Self::of(count);
        for at in 0..count as usize {
            group.start(at).await;
        }
        group.leader().await;
        group
    }

    fn options(&self, at: usize) -> RaftOptions {
        let id = self.members[at].id;
        let listen: SocketAddr = self.peers[&id].raft.parse().unwrap();
        let mut options = RaftOptions::new(self.members[at].dir.path());
        options.node_id = id;
        options.wal.segment_bytes = 64 << 10;
        options.wal.first_segment_bytes = 16 << 10;
        options.wal.hold_bytes = 0;
        options.cluster = Some(ClusterOptions {
            peers: self.peers.clone(),
            join: false,
            listen,
            token: self.token.clone(),
            tls: None,
            election: ClusterOptions::ELECTION,
        });
        options
    }

    async fn start(&mut self, at: usize) {
        let options = self.options(at);
        self.start_with(at, options).await;
    }

    async fn start_with(&mut self, at: usize, options: RaftOptions) {
        let machine = self.members[at].machine.clone();
        self.members[at].node = Some(RaftNode::start(options, machine).await.unwrap());
    }

    /// Position of the node that leads, once one does.
    async fn leader(&self) -> usize {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            for (at, member) in self.members.iter().enumerate() {
                if member.node.as_ref().is_some_and(|node| node.leadership().borrow().is_some()) {
                    return at;
                }
            }
            assert!(Instant::now() < until, "nobody leads");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn leader_but(&self, not: usize) -> usize {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let at = self.leader().await;
            if at != not {
                return at;
            }
            assert!(Instant::now() < until, "no other node leads");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Proposes on the leader and waits until it has applied.
    async fn write(&self, lines: impl IntoIterator<Item = String>) {
        let at = self.leader().await;
        let leader = &self.members[at];
        let mut last = None;
        for line in lines {
            let line = Bytes::from(line);
            leader.node().propose(line.clone()).unwrap();
            last = Some(line);
        }
        if let Some(last) = last {
            self.holds(at, &last).await;
        }
    }

    /// Waits until the node at `at` has applied `line`.
    async fn holds(&self, at: usize, line: &Bytes) {
        let machine = &self.members[at].machine;
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let changed = machine.changed.notified();
            if machine.held.lock().lines.iter().rev().any(|held| held == line) {
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "node {} never applied {line:?}", self.members[at].id);
            // A snapshot changes the lines without a word.
            let _ = tokio::time::timeout(left.min(Duration::from_millis(50)), changed).await;
        }
    }

    async fn all_hold(&self, line: &str) {
        for at in 0..self.members.len() {
            if self.members[at].node.is_some() {
                self.holds(at, &Bytes::copy_from_slice(line.as_bytes())).await;
            }
        }
    }

    async fn stop(&mut self) {
        for member in &mut self.members {
            if let Some(node) = member.node.take() {
                node.shutdown().await;
            }
        }
    }
}

fn lines(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{what} {number}")).collect()
}

async fn within<T>(limit_ms: u64, what: &str, work: impl Future<Output = T>) -> T {
    let limit = Duration::from_millis(limit_ms);
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| panic!("{what}: not in {limit:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_hold_the_same() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 300)).await;
    group.all_hold("a 299").await;
    let first = group.members[0].machine.lines();
    assert_eq!(first.len(), 300);
    for member in &group.members {
        assert_eq!(member.machine.lines(), first);
        let standing = member.node().standing();
        assert_eq!(standing.members.voters, [1, 2, 3].into());
        assert_eq!(standing.members.peers, group.peers);
        assert_eq!(standing.refused, None);
    }
    let at = group.leader().await;
    assert_eq!(group.members[at].node().standing().role, Role::Leader);
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_others_go_on_when_the_leader_is_killed_and_it_catches_up() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 10)).await;
    let old = group.leader().await;
    group.members[old].kill().await;
    let began = Instant::now();
    let new = group.leader_but(old).await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(group.members[new].machine.lines().len(), 10, "an answered line is lost");
    group.write(lines("b", 10)).await;
    group.start(old).await;
    group.all_hold("b 9").await;
    assert_eq!(group.members[old].machine.lines(), group.members[new].machine.lines());
    assert_eq!(group.members[old].machine.installed(), 0);
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_for_long_is_sent_a_snapshot_while_it_runs() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 10)).await;
    group.all_hold("a 9").await;
    let leader = group.leader().await;
    let away = (leader + 1) % 3;
    group.members[away].kill().await;
    for round in 0..20 {
        group.write([format!("{round}: {}", "x".repeat(20 << 10))]).await;
        let member = &group.members[leader];
        member.node().checkpointed(&member.machine.make_durable());
    }
    group.write(lines("b", 5)).await;
    // Files go a moment after a checkpoint, and those of a busy moment with the next one.
    let member = &group.members[leader];
    let wal = member.dir.path().join("wal");
    let purged = async {
        while std::fs::read_dir(&wal).unwrap().count() >= 10 {
            member.node().checkpointed(&member.machine.make_durable());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(10_000, "purging", purged).await;
    group.start(away).await;
    group.all_hold("b 4").await;
    assert_eq!(group.members[away].machine.installed(), 1);
    group.write(lines("c", 5)).await;
    group.all_hold("c 4").await;
    assert_eq!(group.members[away].machine.lines(), group.members[leader].machine.lines());
    // What was installed is durable, and the log goes on behind it.
    group.members[away].machine.make_durable();
    group.members[away].kill().await;
    group.start(away).await;
    group.write(lines("d", 5)).await;
    group.all_hold("d 4").await;
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_refuses_and_follows_when_it_is_back() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 10)).await;
    let old = group.leader().await;
    let cut = group.members[old].node().clone();
    group.members[old].isolate(true);
    cut.propose(Bytes::from_static(b"never committed")).unwrap();
    let mut leads = cut.leadership();
    within(6000, "stepping down", leads.wait_for(Option::is_none)).await.unwrap();
    assert_eq!(cut.propose(Bytes::from_static(b"x")), Err(NotProposed::NotLeader));
    assert_eq!(cut.read_index().await, Err(NotProposed::NotLeader));
    assert_eq!(cut.standing().role, Role::Candidate);
    group.leader_but(old).await;
    group.write(lines("b", 10)).await;
    group.members[old].isolate(false);
    group.all_hold("b 9").await;
    let held = group.members[old].machine.lines();
    assert!(!held.contains(&Bytes::from_static(b"never committed")));
    assert_eq!(held.len(), 20);
    group.stop().await;
}

/// A disk that syncs nothing while it is held.
#[derive(Default)]
struct HeldDisk {
    held: Mutex<bool>,
    freed: parking_lot::Condvar,
}

impl HeldDisk {
    fn hold(&self, held: bool) {
        *self.held.lock() = held;
        self.freed.notify_all();
    }
}

impl Disk for HeldDisk {
    fn write(&self, file: &std::fs::File, bytes: &[u8], position: u64) -> io::Result<()> {
        RealDisk.write(file, bytes, position)
    }

    fn sync(&self, file: &std::fs::File) -> io::Result<()> {
        self.freed.wait_while(&mut self.held.lock(), |held| *held);
        RealDisk.sync(file)
    }

    fn reserve(&self, file: &std::fs::File, bytes: u64) -> io::Result<()> {
        RealDisk.reserve(file, bytes)
    }

    fn sync_dir(&self, dir: &std::path::Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_leader_has_not_synced_goes_to_the_others_and_is_applied_by_nobody() {
    let mut group = Group::of(3);
    let disks: Vec<Arc<HeldDisk>> = (0..3).map(|_| Arc::default()).collect();
    for (at, disk) in disks.iter().enumerate() {
        let (options, machine) = (group.options(at), group.members[at].machine.clone());
        let host = RealHost::new(options.dir.clone(), disk.clone());
        let node = RaftNode::start_on(options, machine, Arc::new(host)).await.unwrap();
        group.members[at].node = Some(node);
    }
    group.write(lines("a", 10)).await;
    group.all_hold("a 9").await;
    let leader = group.leader().await;
    disks[leader].hold(true);
    let node = group.members[leader].node().clone();
    let before = node.standing().last;
    node.propose(Bytes::from_static(b"waits")).unwrap();
    let synced_by_the_others = async {
        while node.standing().matched.values().filter(|at| **at > before).count() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(5000, "the others", synced_by_the_others).await;
    // A majority without the leader holds it, and the library counts the leader too.
    let line = Bytes::from_static(b"waits");
    let applied = futures::future::select_all((0..3).map(|at| Box::pin(group.holds(at, &line))));
    let early = tokio::time::timeout(Duration::from_millis(1500), applied).await.is_ok();
    assert!(!early, "applied before the leader has synced it");
    disks[leader].hold(false);
    group.all_hold("waits").await;
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_confirms_no_read_once_another_leads() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 10)).await;
    let old = group.leader().await;
    let cut = group.members[old].node().clone();
    group.members[old].isolate(true);
    let exchange = cut.shared.exchange.clone().unwrap();
    let others: Vec<usize> = (0..3).filter(|at| *at != old).collect();
    let leads = |at: &usize| group.members[*at].node().leadership().borrow().is_some();
    let new = async {
        while !others.iter().any(leads) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        *others.iter().find(|at| leads(at)).unwrap()
    };
    let new = within(20_000, "another leader", new).await;
    let line = Bytes::from_static(b"later");
    group.members[new].node().propose(line.clone()).unwrap();
    group.holds(new, &line).await;
    // Whether it has noticed by now or not.
    let read = tokio::time::timeout(Duration::from_secs(5), exchange.confirmed_index()).await;
    assert!(matches!(read, Ok(Err(NotProposed::NotLeader))), "{read:?}");
    group.members[old].isolate(false);
    group.all_hold("later").await;
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_restarts_applies_nothing_that_no_majority_had() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 10)).await;
    let old = group.leader().await;
    group.members[old].isolate(true);
    let lost = Bytes::from_static(b"never committed");
    let node = group.members[old].node().clone();
    let before = node.standing().last;
    node.propose(lost.clone()).unwrap();
    let appended = async {
        while node.standing().last == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(5000, "appending", appended).await;
    group.members[old].kill().await;
    group.leader_but(old).await;
    group.write(lines("b", 10)).await;
    group.start(old).await;
    group.all_hold("b 9").await;
    assert!(!group.members[old].machine.lines().contains(&lost));
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_does_not_disturb_its_group() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 10)).await;
    let leader = group.leader().await;
    let term = group.members[leader].node().standing().term;
    let away = (leader + 1) % 3;
    group.members[away].isolate(true);
    // Longer than its patience.
    tokio::time::sleep(Duration::from_millis(3500)).await;
    group.members[away].isolate(false);
    group.write(lines("b", 10)).await;
    group.all_hold("b 9").await;
    assert_eq!(group.members[leader].node().standing().term, term);
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_stop_hands_the_lead_over_at_once() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 10)).await;
    let old = group.leader().await;
    let node = group.members[old].node.take().unwrap();
    // The old leader lives on, so nobody stands because its connections broke.
    let mut leads = node.leadership();
    let began = Instant::now();
    node.hand_over().await;
    assert!(leads.borrow_and_update().is_none(), "it leads on");
    let new = group.leader().await;
    let took = began.elapsed();
    println!("hand-over: {took:?}");
    assert!(took < Duration::from_millis(900), "{took:?}: that was an election after a timeout");
    group.write(lines("b", 10)).await;
    assert_eq!(group.members[new].machine.lines().len(), 20);
    node.shutdown().await;
    group.stop().await;
}

struct Echo(u64);

impl Service for Echo {
    fn answer(&self, request: Bytes) -> BoxFuture<'static, Bytes> {
        let answer = Bytes::from([&self.0.to_le_bytes(), &request[..]].concat());
        Box::pin(std::future::ready(answer))
    }

    fn consulted(&self, request: Bytes) -> BoxFuture<'static, Bytes> {
        self.answer(request)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_asks_the_leader_or_another_and_reads_what_was_answered() {
    let mut group = Group::started(3).await;
    for member in &group.members {
        member.node().serve(Arc::new(Echo(member.id)));
    }
    group.write(lines("a", 10)).await;
    let leader = group.leader().await;
    let id = group.members[leader].id;
    for (at, member) in group.members.iter().enumerate() {
        let node = member.node();
        within(5000, "knowing the leader", node.leader().wait_for(Option::is_some)).await.unwrap();
        let known = node.leader().borrow().clone().unwrap();
        assert_eq!((known.id, &known.raft), (id, &group.peers[&id].raft));
        let questions = (0..200u32).map(|number| {
            let question = Bytes::copy_from_slice(&number.to_le_bytes());
            async move { (node.ask_leader(question.clone()).await.unwrap(), question) }
        });
        for (answer, question) in futures::future::join_all(questions).await {
            assert_eq!(answer[..8], id.to_le_bytes());
            assert_eq!(answer[8..], question);
        }
        for other in group.members.iter().filter(|other| other.id != member.id) {
            let answer = node.consult(other.id, Bytes::from_static(b"you?")).await.unwrap();
            assert_eq!((&answer[..8], &answer[8..]), (&other.id.to_le_bytes()[..], &b"you?"[..]));
        }
        let nobody = node.consult(9, Bytes::new()).await;
        assert!(matches!(nobody, Err(AskError::NotSent(_))), "{nobody:?}");
        group.write([format!("read by {at}")]).await;
        let index = node.read_index().await.unwrap();
        node.applied_at_least(index).await.unwrap();
        assert!(member.machine.lines().contains(&Bytes::from(format!("read by {at}"))));
    }
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_without_a_leader_says_that_nothing_was_sent() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 1)).await;
    let leader = group.leader().await;
    for at in 0..3 {
        if at != leader {
            group.members[at].kill().await;
        }
    }
    let node = group.members[leader].node().clone();
    node.serve(Arc::new(Echo(1)));
    let mut leads = node.leadership();
    within(6000, "stepping down", leads.wait_for(Option::is_none)).await.unwrap();
    assert_eq!(node.ask_leader(Bytes::new()).await, Err(AskError::NoLeader));
    // A node without a majority stops all the same.
    within(10_000, "stopping", group.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_node_grows_to_three_under_load() {
    let mut group = Group::of(3);
    let alone = RaftOptions { cluster: None, ..group.options(0) };
    group.start_with(0, alone).await;
    group.write(lines("alone", 10)).await;
    group.members[0].node.take().unwrap().shutdown().await;
    group.members[0].machine = Arc::default();
    group.start(0).await;
    for at in 1..3 {
        let mut options = group.options(at);
        options.cluster.as_mut().unwrap().join = true;
        group.start_with(at, options).await;
    }
    group.leader().await;
    let node = group.members[0].node().clone();
    let load = tokio::spawn(async move {
        for line in lines("load", 400) {
            node.propose(line.into()).unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let node = group.members[0].node();
    for id in [2, 3] {
        let members = node.add_learner(id, group.peers[&id].clone()).await.unwrap();
        assert!(members.learners.contains(&id));
    }
    let unknown = node.promote(vec![9]).await.unwrap_err();
    assert_eq!(unknown.code, MembershipCode::NotALearner);
    let members = node.promote(vec![2, 3]).await.unwrap();
    assert_eq!(members.voters, [1, 2, 3].into());
    assert_eq!(members.peers, group.peers);
    load.await.unwrap();
    group.all_hold("load 399").await;
    assert_eq!(group.members[2].machine.lines().len(), 410);
    // Each can be lost now.
    group.members[0].kill().await;
    group.leader_but(0).await;
    group.write(lines("after", 5)).await;
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_with_a_wiped_disk_takes_no_part_until_it_is_added_again() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 10)).await;
    group.all_hold("a 9").await;
    let leader = group.leader().await;
    let (wiped, other) = ((leader + 1) % 3, (leader + 2) % 3);
    group.members[wiped].kill().await;
    group.members[wiped].dir = tempfile::tempdir().unwrap();
    group.members[wiped].machine = Arc::default();
    group.start(wiped).await;
    let node = group.members[wiped].node().clone();
    let exchange = node.shared.exchange.clone().unwrap();
    let mut refused = exchange.refused.subscribe();
    within(5000, "refusing", refused.wait_for(Option::is_some)).await.unwrap();
    let words = node.standing().refused.unwrap();
    assert!(words.contains("remove node") && words.contains("add it again"), "{words}");
    // With the wiped node there would be two of three: it must not count.
    group.members[other].kill().await;
    let last = group.members[leader].node().clone();
    let mut leads = last.leadership();
    within(6000, "stepping down", leads.wait_for(Option::is_none)).await.unwrap();
    assert!(group.members[wiped].machine.lines().is_empty());
    group.start(other).await;
    let leader = group.leader().await;
    let (node, id) = (group.members[leader].node(), group.members[wiped].id);
    node.remove(id).await.unwrap();
    node.add_learner(id, group.peers[&id].clone()).await.unwrap();
    let members = node.promote(vec![id]).await.unwrap();
    assert_eq!(members.voters, [1, 2, 3].into());
    group.write(lines("b", 10)).await;
    group.all_hold("b 9").await;
    assert_eq!(group.members[wiped].machine.lines().len(), 20);
    let mut refused = exchange.refused.subscribe();
    within(5000, "clearing", refused.wait_for(Option::is_none)).await.unwrap();
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_empty_disks_found_no_second_group() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 10)).await;
    for at in [0, 1] {
        group.members[at].kill().await;
        group.members[at].dir = tempfile::tempdir().unwrap();
        group.members[at].machine = Arc::default();
        group.start(at).await;
    }
    for at in [0, 1] {
        let exchange = group.members[at].node().shared.exchange.clone().unwrap();
        let mut refused = exchange.refused.subscribe();
        within(5000, "refusing", refused.wait_for(Option::is_some)).await.unwrap();
        assert_eq!(group.members[at].node().standing().last, None);
    }
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_token_is_no_part_of_the_group() {
    let mut group = Group::of(3);
    group.start(0).await;
    group.start(1).await;
    group.token = "another token".into();
    group.start(2).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for member in &group.members {
        assert_eq!(member.node().standing().last, None, "founded with another token");
    }
    group.members[2].kill().await;
    group.token = "a token".into();
    group.start(2).await;
    group.leader().await;
    group.stop().await;
}

/// An authority, and a certificate of it for this machine.
fn tls_files(dir: &std::path::Path, names: &[&str]) -> crate::TlsFiles {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    crate::TlsFiles {
        ca: write("ca.pem", authority.pem()),
        cert: write("cert.pem", cert.pem()),
        key: write("key.pem", key.serialize_pem()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_certificates_of_one_authority_speak_and_others_do_not() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut group = Group::of(3);
    let (good, other) =
        (tls_files(ours.path(), &["127.0.0.1"]), tls_files(theirs.path(), &["127.0.0.1"]));
    for (at, files) in [(0, &good), (1, &good), (2, &other)] {
        let mut options = group.options(at);
        options.cluster.as_mut().unwrap().tls = Some(files.clone());
        group.start_with(at, options).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    for member in &group.members {
        assert_eq!(member.node().standing().last, None, "founded with a strange certificate");
    }
    group.members[2].kill().await;
    let mut options = group.options(2);
    options.cluster.as_mut().unwrap().tls = Some(good);
    group.start_with(2, options).await;
    group.write(lines("a", 10)).await;
    group.all_hold("a 9").await;
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_on_the_port_are_closed_and_the_group_goes_on() {
    let mut group = Group::started(3).await;
    let at = group.peers[&1].raft.clone();
    let garbage = vec![0xa5; 1 << 20];
    let http = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec();
    let almost = b"QNET\x01\0\x02\0\x01\0\0\0\0\0\0\0".repeat(20);
    for said in [garbage, http, almost, Vec::new()] {
        for _ in 0..20 {
            let mut stream = tokio::net::TcpStream::connect(&at).await.unwrap();
            let _ = stream.write_all(&said).await;
            if !said.is_empty() {
                let mut answer = Vec::new();
                let closed = stream.read_to_end(&mut answer);
                let _ = within(5000, "closing a stranger", closed).await;
                assert!(answer.len() <= 112, "{}", answer.len());
            }
        }
    }
    group.write(lines("a", 10)).await;
    group.all_hold("a 9").await;
    group.stop().await;
}

#[path = "old_disk_tests.rs"]
mod old_disk_tests;
