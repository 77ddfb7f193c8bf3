//! Getting a call on an ephemeral queue to whoever owns it.
//!
//! Owns: the tries of a call, passing it on to the leader, taking calls that other nodes pass on.
//! Leaves to others: what the call does (`calls`), carrying bytes (`queen-raft`), their form
//! (`queen_core::relay`), why the leader is the owner (the module above).
//!
//! A push or an ack is tried again only when nobody can have carried it out. A pop that waits asks the owner for a
//! few seconds at a time, so that a node that dies leaves nobody waiting there for long: what such a
//! pop is given comes again when its lease ends. Only so many wait there at once; others wait here for
//! their turn.

use crate::Class;
use crate::broker::{Broker, Shared};
use crate::forward::{AGAIN, changed, leader};
use crate::queues::unexpected;
use bytes::Bytes;
use queen_core::command::Command;
use queen_core::ephemeral::{
    DeclareEphemeral, EphemeralAnswer, EphemeralAsk, EphemeralCall, EphemeralOptions, EphemeralPop,
    EphemeralRefusal, RefusalKind, WAIT_MS_MAX,
};
use queen_core::relay::{Answer, ephemeral_ask};
use queen_core::reply::Reply;
use queen_core::{Code, Error, TenantId};
use queen_raft::{AskError, RaftNode};
use queen_state::ephemeral;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long one ask of a waiting pop waits at the owner.
const SLICE: Duration = Duration::from_secs(5);

impl Broker {
    /// Has a call carried out by the owner of the queue.
    ///
    /// A refusal of kind `Unknown` says that it may have been; any other that it was not.
    pub async fn ephemeral(
        &self,
        call: &EphemeralCall<'_>,
    ) -> Result<EphemeralAnswer, EphemeralRefusal> {
        let answer = match self.shared.clustered {
            false => self.ephemeral_here(call).await,
            true => self.tries(call).await?,
        };
        match answer {
            EphemeralAnswer::Refused(refusal) => Err(refusal),
            EphemeralAnswer::NotMine => Err(unavailable("this node has stopped".to_owned())),
            answer => Ok(answer),
        }
    }

    /// Tries until somebody carries it out.
    async fn tries(&self, call: &EphemeralCall<'_>) -> Result<EphemeralAnswer, EphemeralRefusal> {
        let shared = &*self.shared;
        let node = shared.node().map_err(|error| unavailable(error.text))?;
        let pop = match &call.ask {
            EphemeralAsk::Pop(pop) => Some(pop).filter(|pop| pop.wait_ms > 0),
            _ => None,
        };
        let wait = Duration::from_millis(pop.map_or(0, |pop| pop.wait_ms.min(WAIT_MS_MAX)));
        let end = Instant::now() + wait;
        let give_up = end + shared.deadline;
        let mut pause = AGAIN.0;
        loop {
            let owner = leader(node, shared).await.map_err(|error| unavailable(error.text))?;
            let tried = match (owner.id == shared.node_id, pop) {
                (true, Some(pop)) => {
                    Some(self.ephemeral_here(&waiting(call, pop, left(end))).await)
                }
                (true, None) => Some(self.ephemeral_here(call).await),
                (false, Some(pop)) => self.wait_there(node, call, pop, end).await?,
                (false, None) => pass_on(shared, node, call).await?,
            };
            match tried {
                Some(EphemeralAnswer::NotMine) | None => {}
                Some(answer) => return Ok(answer),
            }
            if Instant::now() >= give_up {
                let text = format!("no node took the call within {:?}", shared.deadline);
                return Err(unavailable(text));
            }
            changed(node, &owner, pause).await;
            pause = AGAIN.1.min(pause * 2);
        }
    }

    /// Waits at the owner, a while at a time; `None` when nobody took the ask.
    async fn wait_there(
        &self,
        node: &RaftNode,
        call: &EphemeralCall<'_>,
        pop: &EphemeralPop<'_>,
        end: Instant,
    ) -> Result<Option<EphemeralAnswer>, EphemeralRefusal> {
        let shared = &*self.shared;
        let nothing = EphemeralAnswer::Popped(Vec::new());
        let mut stop = shared.stop.subscribe();
        loop {
            let turn = timeout_at(end, shared.ephemeral.passed_on.acquire());
            let Ok(Ok(_turn)) = turn.await else { return Ok(Some(nothing)) };
            let (began, slice) = (Instant::now(), left(end).min(SLICE));
            let asked = waiting(call, pop, slice);
            let answer = tokio::select! {
                answer = pass_on(shared, node, &asked) => answer?,
                _ = stop.wait_for(|stop| *stop) => return Ok(Some(nothing)),
            };
            // One that came back before its time has a reason: the queue was deleted, the owner stops.
            let over = left(end).is_zero() || began.elapsed() < slice;
            if over || answer.as_ref() != Some(&nothing) {
                return Ok(answer);
            }
        }
    }

    /// Refuses when an operator has turned ephemeral queues off.
    pub fn ephemeral_is_on(&self) -> Result<(), EphemeralRefusal> {
        if self.switches().ephemeral {
            return Ok(());
        }
        let text = "ephemeral queues are turned off: POST /api/v1/system/ephemeral {\"enabled\":true} \
                    turns them on again";
        Err(EphemeralRefusal::new(RefusalKind::Disabled, text))
    }

    /// Declares a queue: its options take the place of all that were. Whether it was declared before.
    pub async fn declare_ephemeral(
        &self,
        tenant: TenantId,
        queue: &str,
        options: EphemeralOptions,
    ) -> Result<bool, Error> {
        let declare = DeclareEphemeral { tenant, queue, options: Some(options) };
        self.declare(declare).await
    }

    /// Takes the declaration of a queue away; whether there was one.
    pub async fn undeclare_ephemeral(&self, tenant: TenantId, queue: &str) -> Result<bool, Error> {
        self.barrier().await?;
        if self.read(|view| ephemeral::declared(view, tenant, queue))?.is_none() {
            return Ok(false);
        }
        self.declare(DeclareEphemeral { tenant, queue, options: None }).await
    }

    async fn declare(&self, declare: DeclareEphemeral<'_>) -> Result<bool, Error> {
        match self.submit(Class::Settle, &Command::DeclareEphemeral(declare)).await? {
            Reply::Declared(before) => Ok(before),
            other => Err(unexpected(&other)),
        }
    }

    /// Bytes that the ephemeral queues of this node take.
    pub fn ephemeral_bytes(&self) -> u64 {
        self.shared.ephemeral.bytes()
    }
}

fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

/// The pop of a call, waiting for so long.
fn waiting<'a>(
    call: &EphemeralCall<'a>,
    pop: &EphemeralPop<'a>,
    wait: Duration,
) -> EphemeralCall<'a> {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(WAIT_MS_MAX);
    let pop = EphemeralPop { wait_ms, ..pop.clone() };
    EphemeralCall { tenant: call.tenant, ask: EphemeralAsk::Pop(pop) }
}

/// Asks the leader; `None` when it did not take the call.
async fn pass_on(
    shared: &Shared,
    node: &RaftNode,
    call: &EphemeralCall<'_>,
) -> Result<Option<EphemeralAnswer>, EphemeralRefusal> {
    shared.counters.forwarded.add(1);
    let asked = node.ask_leader(Bytes::from(ephemeral_ask(call))).await;
    let refused = match asked.map(|bytes| Answer::decode(&bytes)) {
        Ok(Ok(Answer::Ephemeral(answer))) => return Ok(Some(answer)),
        Ok(Ok(Answer::Refused(why))) if matches!(why.code, Code::NoLeader | Code::Retry) => {
            return Ok(None);
        }
        Err(AskError::NoLeader | AskError::NotSent(_)) => return Ok(None),
        Ok(Ok(Answer::Refused(why))) => why.text,
        Ok(Ok(_)) => "it answers something else".to_owned(),
        Ok(Err(bad)) => bad.to_string(),
        Err(AskError::OutcomeUnknown(why)) => {
            // Of the others none does harm twice: what a lost answer delivered comes again.
            if !matches!(call.ask, EphemeralAsk::Push { .. } | EphemeralAsk::Ack { .. }) {
                return Ok(None);
            }
            let text = format!("the answer of the queue's owner got lost ({why}): it may be done");
            return Err(EphemeralRefusal::new(RefusalKind::Unknown, text));
        }
    };
    let text =
        format!("the queue's owner does not take the call: {refused}; is another release there?");
    Err(unavailable(text))
}

fn unavailable(text: String) -> EphemeralRefusal {
    EphemeralRefusal::new(RefusalKind::Unavailable, text)
}

#[cfg(test)]
#[path = "owner_tests.rs"]
mod tests;
