//! Disks that went back in time under their own name, and deaths in the middle of a snapshot.

use super::*;
use crate::message::{self, Canvass};
use crate::net::frame::Kind;
use crate::net::greeting::{Caller, Purpose};
use crate::net::listener::Answers;
use crate::transport::Network;
use openraft::network::RPCOption;
use openraft::raft::VoteRequest;
use openraft::{RaftNetwork, RaftNetworkFactory};

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), &target).unwrap()),
        }
    }
}

impl Group {
    /// Stops the node at `at` as a kill does, and copies all that it has on its disk.
    async fn copied(&mut self, at: usize) -> (tempfile::TempDir, Arc<Ledger>) {
        self.members[at].kill().await;
        let kept = tempfile::tempdir().unwrap();
        copy(self.members[at].dir.path(), kept.path());
        let machine = self.members[at].machine.reopened();
        self.start(at).await;
        (kept, machine)
    }

    /// Puts the copy in the place of a disk and starts the node on it.
    async fn restored(&mut self, at: usize, (dir, machine): (tempfile::TempDir, Arc<Ledger>)) {
        self.members[at].kill().await;
        (self.members[at].dir, self.members[at].machine) = (dir, machine);
        self.start(at).await;
    }

    fn exchange(&self, at: usize) -> Arc<crate::exchange::Exchange> {
        self.members[at].node().shared.exchange.clone().unwrap()
    }

    fn last(&self, at: usize) -> Option<crate::types::Id> {
        self.members[at].node().shared.raft.data_metrics().borrow().last_log
    }

    /// Waits until the node at `by` knows that the one at `of` held what it holds now.
    async fn known(&self, by: usize, of: usize) {
        let (exchange, disk) = (self.exchange(by), self.exchange(of).disk());
        let (id, last) = (self.members[of].id, self.last(of).unwrap());
        let known = async {
            while exchange.holdings.misses(id, disk, None).is_none_or(|upto| upto < last) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within(10_000, "hearing what others hold", known).await;
    }

    /// What the node at `to` answers one at `from` that asks whether it would be elected, or to be.
    async fn asked(
        &self,
        from: usize,
        to: usize,
        kind: Kind,
        body: Bytes,
    ) -> Result<Bytes, String> {
        let (from, to) = (self.exchange(from), self.exchange(to));
        let caller = Caller {
            purpose: Purpose::Control,
            from: from.me,
            to: to.me,
            disk: from.disk(),
            expects: from.address(to.me).unwrap().disk,
        };
        to.answer(caller, Default::default(), kind, body).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_went_back_in_time_is_told_by_its_leader_and_takes_no_part_from_then_on() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 10)).await;
    group.all_hold("a 9").await;
    let leader = group.leader().await;
    let back = (leader + 1) % 3;
    let kept = group.copied(back).await;
    group.write(lines("b", 50)).await;
    group.all_hold("b 49").await;
    let id = group.members[back].id;
    let name = group.exchange(back).disk();
    group.restored(back, kept).await;
    let mut refused = group.exchange(back).refused.subscribe();
    within(10_000, "being told", refused.wait_for(Option::is_some)).await.unwrap();
    let words = group.members[back].node().standing().refused.unwrap();
    assert!(words.contains("went back in time") && words.contains("add it again"), "{words}");
    assert_ne!(group.exchange(back).disk(), name);
    // Whoever asks it over a connection of before is refused, and after a start it is no other.
    let body = message::encode(&Canvass { last: group.last(leader) });
    assert!(group.asked(leader, back, Kind::Canvass, body).await.is_err());
    group.members[back].kill().await;
    group.start(back).await;
    assert_ne!(group.exchange(back).disk(), name);
    let mut refused = group.exchange(back).refused.subscribe();
    within(10_000, "refusing", refused.wait_for(Option::is_some)).await.unwrap();

    let node = group.members[group.leader().await].node();
    node.remove(id).await.unwrap();
    node.add_learner(id, group.peers[&id].clone()).await.unwrap();
    node.promote(vec![id]).await.unwrap();
    group.write(lines("c", 5)).await;
    group.all_hold("c 4").await;
    assert_eq!(group.members[back].machine.lines().len(), 65);
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_knows_without_a_leader_that_another_lost_what_it_had_answered_for() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 10)).await;
    group.all_hold("a 9").await;
    let leader = group.leader().await;
    let (back, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let kept = group.copied(back).await;
    group.write(lines("b", 50)).await;
    group.all_hold("b 49").await;
    group.known(other, back).await;
    group.members[leader].kill().await;
    group.restored(back, kept).await;
    assert!(group.last(back) < group.last(other));
    // It may not be elected, and its own vote counts for nothing.
    let last = group.last(back);
    let vote = openraft::Vote::new(1_000_000, group.members[back].id);
    let ask = message::encode(&VoteRequest::new(vote, last));
    let canvass = message::encode(&Canvass { last });
    for (kind, body) in [(Kind::Vote, ask), (Kind::Canvass, canvass)] {
        let words = group.asked(back, other, kind, body).await.unwrap_err();
        assert!(words.contains("went back in time"), "{kind:?}: {words}");
    }
    let mut network = Network(Some(group.exchange(other)));
    let mut client = network.new_client(group.members[back].id, &Default::default()).await;
    // Of a term that is over: nobody is elected by it.
    let request = VoteRequest::new(openraft::Vote::new(0, 1), group.last(other));
    let words = client.vote(request, RPCOption::new(Duration::from_secs(5))).await.unwrap_err();
    assert!(words.to_string().contains("went back in time"), "{words}");

    // The one that had led holds all of it: with that one there is a majority, and the old copy is
    // filled up like any node that was away.
    group.start(leader).await;
    group.leader().await;
    group.write(lines("c", 5)).await;
    for at in [leader, other] {
        group.holds(at, &Bytes::from_static(b"c 4")).await;
        assert_eq!(group.members[at].machine.lines().len(), 65);
    }
    group.stop().await;
}

/// Where a node dies that installs a snapshot.
async fn dies_while_installing(trap: Trap) {
    let mut group = Group::started(3).await;
    group.write(lines("a", 10)).await;
    group.all_hold("a 9").await;
    let leader = group.leader().await;
    let away = (leader + 1) % 3;
    group.members[away].kill().await;
    let wal = group.members[leader].dir.path().join("wal");
    let member = &group.members[leader];
    let purged = async {
        for round in 0.. {
            group.write([format!("{round}: {}", "x".repeat(20 << 10))]).await;
            member.node().checkpointed(&member.machine.make_durable());
            let first = std::fs::read_dir(&wal).unwrap().count();
            if round > 20 && first < 10 {
                return;
            }
        }
    };
    within(20_000, "purging", purged).await;
    let machine = group.members[away].machine.clone();
    *machine.trap.lock() = Some(trap);
    group.start(away).await;
    let ended = group.members[away].node().stopped();
    println!("{:?}", within(20_000, "dying", ended).await);
    assert!(group.members[away].dir.path().join("installing").exists());
    // All that is left of the machine is what it had put in place.
    if trap == Trap::AfterSwitch {
        machine.make_durable();
    }
    group.members[away].node = None;
    group.members[away].machine = machine.reopened();
    group.start(away).await;
    group.write(lines("c", 5)).await;
    group.all_hold("c 4").await;
    assert_eq!(group.members[away].machine.lines(), group.members[leader].machine.lines());
    let gone = async {
        while group.members[away].dir.path().join("installing").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(10_000, "the last step", gone).await;
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_killed_before_a_snapshot_is_in_place_asks_for_it_again() {
    dies_while_installing(Trap::BeforeSwitch).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_killed_after_a_snapshot_is_in_place_goes_on_behind_it() {
    dies_while_installing(Trap::AfterSwitch).await;
}

/// Answers nothing, and tells when it is asked.
struct Mute(Arc<tokio::sync::Notify>);

impl Service for Mute {
    fn answer(&self, _: Bytes) -> BoxFuture<'static, Bytes> {
        self.0.notify_one();
        Box::pin(std::future::pending())
    }

    fn consulted(&self, request: Bytes) -> BoxFuture<'static, Bytes> {
        self.answer(request)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_whose_connection_breaks_has_an_unknown_outcome() {
    let mut group = Group::started(3).await;
    group.write(lines("a", 1)).await;
    let leader = group.leader().await;
    let asked = Arc::<tokio::sync::Notify>::default();
    group.members[leader].node().serve(Arc::new(Mute(asked.clone())));
    let asker = group.members[(leader + 1) % 3].node().clone();
    within(5000, "knowing the leader", asker.leader().wait_for(Option::is_some)).await.unwrap();
    let asking = tokio::spawn({
        let asker = asker.clone();
        async move { asker.ask_leader(Bytes::from_static(b"?")).await }
    });
    within(5000, "asking", asked.notified()).await;
    group.members[leader].kill().await;
    let answer = within(10_000, "knowing", asking).await.unwrap();
    assert!(matches!(answer, Err(AskError::OutcomeUnknown(_))), "{answer:?}");
    group.stop().await;
}
