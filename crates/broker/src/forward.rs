//! Commands of a cluster: how they get to whoever leads, and what became of them.
//!
//! Owns: the tries of a command within its deadline, asking the leader, what the leader's side does
//! with such an ask, and when a try that may have been taken is safe to repeat. Leaves to others:
//! carrying bytes (`queen-raft`), their form (`queen_core::relay`), the log clock and the waiting
//! (`proposer`, `waiters`).
//!
//! The entry of a command carries the origin and the number that the asking node gave it, and each
//! node applies each entry. So the reply comes from the asker's own state, which then holds what the
//! command did: reads on that node see it, payloads are read there, and a claim whose answer got
//! lost on the way is known and goes back. The leader says only whether it took the command.
//!
//! A try names the term of the leader it is for, and no other takes it. Once a leader of a later
//! term has confirmed itself and this node has applied what that one held, a try that was not
//! applied never will be: it is repeated. Whether it was taken is not known only while the same
//! leader goes on and its answer does not arrive.

use crate::admission::{Class, Permit};
use crate::broker::{Broker, Shared};
use crate::peers;
use crate::proposer::{Proposed, Proposer, write_front};
use crate::waiters::Answered;
use bytes::Bytes;
use queen_core::command::Command;
use queen_core::relay::{Answer, Ask};
use queen_core::reply::Reply;
use queen_core::{Code, Error};
use queen_raft::{AskError, Leader, NotProposed, RaftNode, Service};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

/// How long a request waits for somebody to lead: longer than an election takes.
const LEADERLESS: Duration = Duration::from_secs(6);
/// How long a try whose answer got lost waits for its entry while the same leader goes on.
const UNSETTLED: Duration = Duration::from_secs(5);
/// Between two tries that nobody took, when nothing tells of a change: the first, and the longest.
pub(crate) const AGAIN: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(250));

/// What became of one try.
#[allow(clippy::large_enum_variant)] // lives on one stack for a moment
enum Tried {
    Answered(Result<Answered, Error>),
    /// Nothing of it will ever be applied: it may be repeated. Why.
    NotTaken(Error),
}

/// What is known of a try that may have been taken.
#[allow(clippy::large_enum_variant)] // lives on one stack for a moment
enum Settled {
    Answered(Result<Answered, Error>),
    /// It never will be applied.
    Never,
    Unknown,
}

/// A command on its way, no longer waited for when dropped.
struct OnItsWay<'a> {
    proposer: &'a Proposer,
    proposed: Proposed,
    /// It is in this node's log as the leader's and will be applied: till then it takes its share
    /// of the bytes in flight, whoever still waits for it.
    held: bool,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        if !self.held {
            self.proposer.forget(self.proposed.batch);
        }
    }
}

impl Broker {
    /// Has a command logged by whoever leads, and gives its reply from this node's own state.
    pub(crate) async fn carry(&self, class: Class, entry: Vec<u8>) -> Result<Answered, Error> {
        let shared = &*self.shared;
        let node = shared.node()?;
        let mut load = Bytes::from(entry);
        let mut pause = AGAIN.0;
        loop {
            let leader = leader(node, shared).await?;
            let permit = shared.admission.admit(class, load.len(), &shared.counters)?;
            let tried = match leader.id == shared.node_id {
                true => self.try_here(node, &mut load, permit).await,
                false => self.try_there(node, &leader, class, &mut load, permit).await,
            };
            let why = match tried {
                Tried::Answered(answer) => return answer,
                Tried::NotTaken(why) => why,
            };
            shared.counters.repeated.add(1);
            debug!(leader = leader.id, term = leader.term, %why, "a command is tried again");
            changed(node, &leader, pause).await;
            pause = AGAIN.1.min(pause * 2);
        }
    }

    /// Proposes on this node, which is said to lead.
    async fn try_here(&self, node: &RaftNode, load: &mut Bytes, permit: Permit) -> Tried {
        let proposer = &self.shared.proposer;
        let proposed = match proposer.propose(load, permit) {
            Ok(proposed) => proposed,
            Err(why) => return Tried::NotTaken(why),
        };
        let mut way = OnItsWay { proposer, proposed, held: true };
        let mut leads = node.leadership();
        let term = way.proposed.term;
        tokio::select! {
            biased;
            answer = &mut way.proposed.pending => Tried::Answered(told(answer)),
            // An error says that the log has ended: so says the settling.
            () = async { drop(leads.wait_for(|now| *now != Some(term)).await) } => {
                settled(settle(node, &mut way).await)
            }
        }
    }

    /// Asks the leader.
    async fn try_there(
        &self,
        node: &RaftNode,
        leader: &Leader,
        class: Class,
        load: &mut Bytes,
        permit: Permit,
    ) -> Tried {
        let shared = &*self.shared;
        let writes = class == Class::Write;
        let (proposed, head) = shared.proposer.expect(leader.term, writes, permit);
        let mut way = OnItsWay { proposer: &shared.proposer, proposed, held: false };
        write_front(load, &head.bytes());
        shared.counters.forwarded.add(1);
        let mut known = node.leader();
        tokio::select! {
            biased;
            answer = &mut way.proposed.pending => Tried::Answered(told(answer)),
            asked = node.ask_leader(load.clone()) => match asked.map(|bytes| Answer::decode(&bytes)) {
                Ok(Ok(Answer::Applied(index))) => arrived(node, &mut way, index).await,
                Ok(Ok(Answer::Refused(why))) => match why.code {
                    Code::NoLeader | Code::Retry => Tried::NotTaken(why),
                    Code::OutcomeUnknown | Code::Timeout => settled(settle(node, &mut way).await),
                    _ => Tried::Answered(Err(why)),
                },
                Ok(Ok(Answer::Clock(_) | Answer::Ephemeral(_))) => {
                    Tried::Answered(Err(strange("something else")))
                }
                Ok(Err(bad)) => Tried::Answered(Err(strange(&bad.to_string()))),
                Err(AskError::NoLeader) => Tried::NotTaken(no_leader()),
                Err(AskError::NotSent(why)) => Tried::NotTaken(Error::new(Code::Retry, why)),
                Err(AskError::OutcomeUnknown(why)) => {
                    debug!(leader = leader.id, why, "the leader's answer did not arrive");
                    settled(settle(node, &mut way).await)
                }
            },
            // The one that is asked has been followed by another.
            _ = followed(&mut known, leader.term) => {
                settled(settle(node, &mut way).await)
            }
        }
    }

    /// Whether this node leads and takes commands.
    pub(crate) fn leads(&self) -> bool {
        self.shared.proposer.node().is_some_and(|node| node.leadership().borrow().is_some())
    }

    /// Whoever leads, as this node knows.
    pub fn leader(&self) -> Option<Leader> {
        self.shared.proposer.node().and_then(|node| node.leader().borrow().clone())
    }

    /// Waits until this node has applied all that was committed when this was called; on a single
    /// node that is so. What is read afterwards is as new as every answer that was given before.
    ///
    /// Errors: `NoLeader`, `Timeout`, `Retry`.
    pub async fn barrier(&self) -> Result<(), Error> {
        let shared = &*self.shared;
        if !shared.clustered {
            return Ok(());
        }
        #[cfg(feature = "planted-bugs")]
        if queen_raft::planted("read-without-barrier") {
            return Ok(());
        }
        let node = shared.node()?;
        let confirmed = async {
            loop {
                let leader = leader(node, shared).await?;
                match confirmed(node).await {
                    Ok(()) => return Ok(()),
                    Err(NotProposed::Stopped) => return Err(stopped()),
                    Err(NotProposed::NotLeader) => {}
                }
                changed(node, &leader, AGAIN.0).await;
            }
        };
        timeout(shared.deadline, confirmed).await.unwrap_or_else(|_| {
            let text = format!("the leader was not confirmed within {:?}", shared.deadline);
            Err(Error::new(Code::Timeout, text))
        })
    }
}

impl Shared {
    /// The log.
    pub(crate) fn node(&self) -> Result<&RaftNode, Error> {
        self.proposer.node().ok_or_else(stopped)
    }

    /// Has a command logged whose outcome nobody waits for: at once if this node leads, else by the
    /// leader. Lost when there is none for long.
    pub(crate) fn send(self: &Arc<Self>, command: &Command<'_>) {
        let Ok(entry) = Proposer::encode(command, 64) else { return };
        if !self.clustered {
            self.proposer.send(entry);
            return;
        }
        // From whatever thread: the log's own may be the one that finds a claim undelivered.
        let broker = Broker { shared: Arc::clone(self) };
        self.runtime.spawn(async move {
            let deadline = broker.shared.deadline;
            let carried = timeout(deadline, broker.carry(Class::Settle, entry)).await;
            if let Ok(Err(why)) = carried {
                debug!(%why, "a claim or a message could not be given back, its lease will end");
            }
        });
    }
}

/// Whoever leads, as soon as somebody does: nearly always at once.
pub(crate) async fn leader(node: &RaftNode, shared: &Shared) -> Result<Leader, Error> {
    let mut known = node.leader();
    if let Some(leader) = known.borrow().clone() {
        return Ok(leader);
    }
    let mut stop = shared.stop.subscribe();
    let somebody = known.wait_for(Option::is_some);
    tokio::select! {
        // An error says that the log has ended: nobody leads it.
        _ = timeout(LEADERLESS, somebody) => {}
        // While this node stops nobody waits for an election.
        _ = stop.wait_for(|stop| *stop) => {}
    }
    let found = node.leader().borrow().clone();
    found.ok_or_else(no_leader)
}

/// Waits until another leader is known or this one begins to lead here, or for `pause`: a leader
/// elsewhere that is not ready yet tells nobody when it is.
pub(crate) async fn changed(node: &RaftNode, leader: &Leader, pause: Duration) {
    let (mut known, mut leads) = (node.leader(), node.leadership());
    let term = *leads.borrow_and_update();
    let other = async {
        tokio::select! {
            _ = known.wait_for(|now| now.as_ref() != Some(leader)) => {}
            _ = leads.wait_for(|now| *now != term) => {}
        }
    };
    drop(timeout(pause, other).await);
}

/// Waits until a leader has confirmed itself and this node holds all that it held then.
pub(crate) async fn confirmed(node: &RaftNode) -> Result<(), NotProposed> {
    let index = node.read_index().await?;
    node.applied_at_least(index).await
}

/// The leader says that the entry is applied there: it will be here.
async fn arrived(node: &RaftNode, way: &mut OnItsWay<'_>, index: u64) -> Tried {
    let pending = &mut way.proposed.pending;
    tokio::select! {
        biased;
        answer = &mut *pending => Tried::Answered(told(answer)),
        _ = node.applied_at_least(index) => match pending.try_recv() {
            Ok(answer) => Tried::Answered(answer),
            Err(_) => Tried::Answered(Err(Error::new(
                Code::OutcomeUnknown,
                "the command was applied, but this node has caught up by a snapshot and has no \
                 answer to it, send the same again",
            ))),
        },
    }
}

/// Finds out what became of a try that may have been taken.
async fn settle(node: &RaftNode, way: &mut OnItsWay<'_>) -> Settled {
    way.held = false;
    let Proposed { term, pending, .. } = &mut way.proposed;
    let mut known = node.leader();
    let mut until = Instant::now() + UNSETTLED;
    loop {
        tokio::select! {
            biased;
            answer = &mut *pending => return Settled::Answered(told(answer)),
            going = followed(&mut known, *term) => if !going { return Settled::Unknown },
            // As long as nobody leads there is nothing to be found out, and nothing to give up for.
            () = tokio::time::sleep_until(until) => match leads_on(node, *term) {
                true => return Settled::Unknown,
                false => {
                    until = Instant::now() + AGAIN.1;
                    continue;
                }
            }
        }
        tokio::select! {
            biased;
            answer = &mut *pending => return Settled::Answered(told(answer)),
            confirmed = confirmed(node) => match confirmed {
                Ok(()) => return match pending.try_recv() {
                    Ok(answer) => Settled::Answered(answer),
                    Err(_) => Settled::Never,
                },
                Err(NotProposed::Stopped) => return Settled::Unknown,
                Err(NotProposed::NotLeader) => sleep(AGAIN.0).await,
            },
        }
    }
}

fn settled(settled: Settled) -> Tried {
    match settled {
        Settled::Answered(answer) => Tried::Answered(answer),
        Settled::Never => {
            let text = "the leader changed before the command was logged";
            Tried::NotTaken(Error::new(Code::Retry, text))
        }
        Settled::Unknown => Tried::Answered(Err(unknown())),
    }
}

/// Waits for a leader of a later term; false when the log has ended.
async fn followed(known: &mut watch::Receiver<Option<Leader>>, term: u64) -> bool {
    known.wait_for(|now| later(now.as_ref(), term)).await.is_ok()
}

/// Whether the leader of this term is still the one that is known.
fn leads_on(node: &RaftNode, term: u64) -> bool {
    node.leader().borrow().as_ref().is_some_and(|leader| leader.term == term)
}

fn later(leader: Option<&Leader>, term: u64) -> bool {
    leader.is_some_and(|leader| leader.term > term)
}

type Told = Result<Result<Answered, Error>, tokio::sync::oneshot::error::RecvError>;

/// An answer that came, or that none can come.
pub(crate) fn told(answer: Told) -> Result<Answered, Error> {
    match answer {
        Ok(Ok(Answered { reply: Reply::Refused(error), .. })) => Err(error),
        Ok(answer) => answer,
        Err(_) => Err(unknown()),
    }
}

fn unknown() -> Error {
    let text = "it is not known whether the command was carried out, send the same again";
    Error::new(Code::OutcomeUnknown, text)
}

fn no_leader() -> Error {
    Error::new(Code::NoLeader, "no node of the cluster leads now: is a majority running?")
}

fn stopped() -> Error {
    Error::new(Code::Retry, "the log of this node has stopped")
}

fn strange(what: &str) -> Error {
    let text = format!("the leader answered {what}: is another release running there?");
    Error::new(Code::OutcomeUnknown, text)
}

/// What other nodes ask: of the leader, but for the time.
pub(crate) struct Desk(pub(crate) Weak<Shared>);

impl Service for Desk {
    fn answer(&self, ask: Bytes) -> futures::future::BoxFuture<'static, Bytes> {
        let shared = self.0.clone();
        Box::pin(async move {
            let answer = match shared.upgrade() {
                Some(shared) => answer(&shared, ask).await,
                None => Answer::Refused(stopped()),
            };
            Bytes::from(answer.encode())
        })
    }

    fn consulted(&self, ask: Bytes) -> futures::future::BoxFuture<'static, Bytes> {
        let answer = match (self.0.upgrade(), Ask::decode(&ask)) {
            (Some(shared), Ok(Ask::Time)) => peers::time(&shared),
            (None, _) => Answer::Refused(stopped()),
            _ => Answer::Refused(Error::new(Code::BadRequest, "only the leader answers this")),
        };
        Box::pin(std::future::ready(Bytes::from(answer.encode())))
    }
}

async fn answer(shared: &Arc<Shared>, ask: Bytes) -> Answer {
    let head = match Ask::decode(&ask) {
        Ok(Ask::Command(head, _)) => head,
        Ok(Ask::Report(report)) => {
            shared.peers.report(report);
            return peers::time(shared);
        }
        Ok(Ask::Time) => return peers::time(shared),
        Ok(Ask::Ephemeral(call)) => {
            shared.counters.served.add(1);
            let broker = Broker { shared: Arc::clone(shared) };
            return Answer::Ephemeral(broker.ephemeral_here(&call).await);
        }
        Err(bad) => {
            warn!(%bad, "another node asks what cannot be read");
            return Answer::Refused(Error::new(Code::BadRequest, bad.to_string()));
        }
    };
    let class = if head.writes { Class::Write } else { Class::Settle };
    let proposed = shared
        .admission
        .admit(class, ask.len(), &shared.counters)
        .and_then(|permit| shared.proposer.serve(&head, ask, permit));
    let pending = match proposed {
        Ok(pending) => pending,
        Err(why) => return Answer::Refused(why),
    };
    shared.counters.served.add(1);
    match pending.await {
        Ok(Ok(index)) => Answer::Applied(index),
        Ok(Err(why)) => Answer::Refused(why),
        Err(_) => Answer::Refused(unknown()),
    }
}

#[cfg(test)]
#[path = "forward_tests.rs"]
pub(crate) mod tests;
