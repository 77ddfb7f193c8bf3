//! Commands of a simulated node: how they get to whoever leads, and what became of them.
//!
//! Owns: the rule of the broker's own `forward` in short, over the same messages: a try names its term, no
//! other leader takes it, and it is repeated only when it provably never will be applied. Leaves to
//! others: admission, parking, claims that go back (`queen-broker`, which its tests and the fault
//! harness cover).

use super::broker::{Broker, Pending, Unknown};
use super::mutation::Mutation;
use bytes::Bytes;
use queen_core::command::{Command, KvBatch, Tick};
use queen_core::kv::{KvOp, KvOpKind, KvOutcome, KvResult};
use queen_core::relay::{Answer, Ask, AskHead};
use queen_core::reply::Reply;
use queen_core::{Code, Error, Stamp};
use queen_raft::{AskError, Leader, NotProposed, RaftNode, Service};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// How long a request waits for somebody to lead.
const LEADERLESS: Duration = Duration::from_secs(6);
/// How long a try whose answer got lost waits for its entry while the same leader goes on.
const UNSETTLED: Duration = Duration::from_secs(5);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(20);

/// A command has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing of it will ever be applied.
    NotDone,
    /// It may have been applied, or be applied later.
    Unknown,
}

enum Tried {
    Answered(Result<Reply, Failure>),
    NotTaken,
}

/// A command on its way.
struct OnItsWay<'a> {
    broker: &'a Broker,
    term: u64,
    batch: u64,
    pending: Pending,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.broker.forget(self.batch);
    }
}

impl Broker {
    /// Has a command logged by whoever leads, and gives its reply from this node's own state.
    pub async fn carry(&self, command: &[u8]) -> Result<Reply, Failure> {
        let node = self.node().ok_or(Failure::NotDone)?;
        loop {
            let leader = leader(node).await.ok_or(Failure::NotDone)?;
            let tried = match leader.id == self.id {
                true => self.try_here(node, command).await,
                false => self.try_there(node, &leader, command).await,
            };
            if let Tried::Answered(answer) = tried {
                return answer;
            }
            sleep(AGAIN).await;
        }
    }

    async fn try_here(&self, node: &RaftNode, command: &[u8]) -> Tried {
        let Some((term, batch, pending)) = self.propose(command) else { return Tried::NotTaken };
        if self.mutation == Some(Mutation::AnswerBeforeMajority)
            && let Some(reply) = self.foretold(command)
        {
            return Tried::Answered(Ok(reply));
        }
        let mut way = OnItsWay { broker: self, term, batch, pending };
        let mut leads = node.leadership();
        tokio::select! {
            biased;
            answer = &mut way.pending => Tried::Answered(told(answer)),
            () = async { drop(leads.wait_for(|now| *now != Some(term)).await) } => {
                settle(node, &mut way).await
            }
        }
    }

    /// What a command will be answered, where that can be told before it is applied.
    fn foretold(&self, command: &[u8]) -> Option<Reply> {
        let Ok(Command::Kv(KvBatch { ops, .. })) = Command::decode(command) else { return None };
        let plain = |op: &KvOp<'_>| matches!(op.kind, KvOpKind::Put { expect: None, .. });
        ops.iter().all(plain).then(|| Reply::Kv(KvOutcome::Done(vec![KvResult::Applied(None)])))
    }

    async fn try_there(&self, node: &RaftNode, leader: &Leader, command: &[u8]) -> Tried {
        let (batch, pending) = self.expect();
        let mut way = OnItsWay { broker: self, term: leader.term, batch, pending };
        let head = AskHead { term: leader.term, origin: self.origin, batch, writes: true };
        let ask: Bytes = [&head.bytes()[..], command].concat().into();
        let mut known = node.leader();
        let asked = tokio::select! {
            biased;
            answer = &mut way.pending => return Tried::Answered(told(answer)),
            asked = node.ask_leader(ask) => asked,
            _ = followed(&mut known, leader.term) => {
                return settle(node, &mut way).await;
            }
        };
        match asked.map(|bytes| Answer::decode(&bytes)) {
            Ok(Ok(Answer::Applied(index))) => {
                tokio::select! {
                    biased;
                    answer = &mut way.pending => Tried::Answered(told(answer)),
                    _ = node.applied_at_least(index) => match way.pending.try_recv() {
                        Ok(answer) => Tried::Answered(told(Ok(answer))),
                        // This node has caught up by a snapshot.
                        Err(_) => Tried::Answered(Err(Failure::Unknown)),
                    },
                }
            }
            Ok(Ok(Answer::Refused(why))) if why.code == Code::NoLeader => Tried::NotTaken,
            Err(AskError::NoLeader | AskError::NotSent(_)) => Tried::NotTaken,
            _ => settle(node, &mut way).await,
        }
    }

    /// Waits until this node has applied all that was committed when this was called.
    pub async fn barrier(&self) -> Result<(), Failure> {
        if self.mutation == Some(Mutation::ReadWithoutBarrier) {
            return Ok(());
        }
        let node = self.node().ok_or(Failure::NotDone)?;
        loop {
            leader(node).await.ok_or(Failure::NotDone)?;
            match confirmed(node).await {
                Ok(()) => return Ok(()),
                Err(NotProposed::Stopped) => return Err(Failure::NotDone),
                Err(NotProposed::NotLeader) => sleep(AGAIN).await,
            }
        }
    }

    /// Lets time pass, on the node that leads.
    pub async fn ticks(self: Arc<Self>) {
        loop {
            sleep(Duration::from_millis(500)).await;
            let Some(node) = self.node() else { return };
            let due: Option<Stamp> =
                self.look(|store| queen_state::query::tick_due_at(store).unwrap());
            if node.leadership().borrow().is_some() && due.is_some_and(|due| due <= self.now()) {
                let tick = Command::Tick(Tick::default()).encode();
                let _ = timeout(UNSETTLED, self.carry(&tick)).await;
            }
        }
    }
}

async fn leader(node: &RaftNode) -> Option<Leader> {
    let mut known = node.leader();
    let _ = timeout(LEADERLESS, known.wait_for(Option::is_some)).await;
    known.borrow_and_update().clone()
}

async fn confirmed(node: &RaftNode) -> Result<(), NotProposed> {
    let index = node.read_index().await?;
    node.applied_at_least(index).await
}

/// Finds out what became of a try that may have been taken.
async fn settle(node: &RaftNode, way: &mut OnItsWay<'_>) -> Tried {
    let unknown = Tried::Answered(Err(Failure::Unknown));
    let term = way.term;
    let mut known: watch::Receiver<Option<Leader>> = node.leader();
    let mut until = Instant::now() + UNSETTLED;
    loop {
        tokio::select! {
            biased;
            answer = &mut way.pending => return Tried::Answered(told(answer)),
            going = followed(&mut known, term) => if !going { return unknown },
            () = tokio::time::sleep_until(until) => {
                if node.leader().borrow().as_ref().is_some_and(|leader| leader.term == term) {
                    return unknown;
                }
                until = Instant::now() + AGAIN;
                continue;
            }
        }
        tokio::select! {
            biased;
            answer = &mut way.pending => return Tried::Answered(told(answer)),
            confirmed = confirmed(node) => match confirmed {
                Ok(()) => return match way.pending.try_recv() {
                    Ok(answer) => Tried::Answered(told(Ok(answer))),
                    Err(_) => Tried::NotTaken,
                },
                Err(NotProposed::Stopped) => return unknown,
                Err(NotProposed::NotLeader) => sleep(AGAIN).await,
            },
        }
    }
}

/// Waits for a leader of a later term; false when the log has ended.
async fn followed(known: &mut watch::Receiver<Option<Leader>>, term: u64) -> bool {
    known.wait_for(|now| later(now.as_ref(), term)).await.is_ok()
}

fn later(leader: Option<&Leader>, term: u64) -> bool {
    leader.is_some_and(|leader| leader.term > term)
}

fn told(
    answer: Result<Result<Reply, Unknown>, tokio::sync::oneshot::error::RecvError>,
) -> Result<Reply, Failure> {
    match answer {
        // A command that is refused has no effect.
        Ok(Ok(Reply::Refused(_))) => Err(Failure::NotDone),
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(Unknown)) | Err(_) => Err(Failure::Unknown),
    }
}

/// The leader's side: what other nodes ask.
pub struct Desk(pub Weak<Broker>);

impl Service for Desk {
    fn answer(&self, ask: Bytes) -> futures::future::BoxFuture<'static, Bytes> {
        let broker = self.0.clone();
        Box::pin(async move {
            let refused = |code| Answer::Refused(Error::new(code, "refused"));
            let answer = match (broker.upgrade(), Ask::decode(&ask)) {
                (Some(broker), Ok(Ask::Command(head, command))) => {
                    match broker.serve(head.term, (head.origin, head.batch), command) {
                        Some(pending) => match pending.await {
                            Ok(index) => Answer::Applied(index),
                            Err(_) => refused(Code::OutcomeUnknown),
                        },
                        None => refused(Code::NoLeader),
                    }
                }
                _ => refused(Code::OutcomeUnknown),
            };
            answer.encode().into()
        })
    }

    /// Each node's clock here is its own.
    fn consulted(&self, _: Bytes) -> futures::future::BoxFuture<'static, Bytes> {
        let refused = Answer::Refused(Error::new(Code::NoLeader, "refused"));
        Box::pin(std::future::ready(refused.encode().into()))
    }
}
