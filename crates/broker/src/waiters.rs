//! Who waits for which command, and how its answer reaches them.
//!
//! Owns: the queue of waiting requests in log order, and the claim that goes back when nobody is
//! left to take it. Leaves to others: proposing (`proposer`), applying (`machine`).
//!
//! Commands are applied in the order in which they were proposed, so the first waiter is the next to
//! be answered; one that was passed over was lost with a leader.

use crate::admission::Permit;
use crate::broker::Shared;
use queen_core::command::{Command, ReturnLease};
use queen_core::reply::Reply;
use queen_core::{Code, Error, LeaseId, TenantId};
use std::collections::VecDeque;
use std::sync::Weak;
use tokio::sync::oneshot;

/// A reply on its way to whom it is for.
pub(crate) struct Answered {
    pub(crate) reply: Reply,
    /// Set when the reply hands out a lease.
    pub(crate) undelivered: Option<Undelivered>,
}

/// A claim that no consumer holds yet: dropped, it goes back to the queue.
pub struct Undelivered {
    shared: Weak<Shared>,
    claim: Option<(TenantId, LeaseId)>,
}

impl Undelivered {
    pub(crate) fn new(shared: Weak<Shared>, tenant: TenantId, lease: LeaseId) -> Undelivered {
        Undelivered { shared, claim: Some((tenant, lease)) }
    }

    /// The consumer has it: it ends by ack or expiry.
    pub fn delivered(mut self) {
        self.claim = None;
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        let Some((tenant, lease)) = self.claim.take() else { return };
        if let Some(shared) = self.shared.upgrade() {
            shared.counters.returned_leases.add(1);
            shared.proposer.send(&Command::ReturnLease(ReturnLease { tenant, lease }));
        }
    }
}

/// One proposed command.
pub(crate) struct Waiter {
    pub(crate) batch: u64,
    /// None when nobody asks what became of it.
    pub(crate) to: Option<oneshot::Sender<Result<Answered, Error>>>,
    /// What it takes of the bytes in flight, until it is applied.
    pub(crate) permit: Option<Permit>,
}

/// Proposed commands in log order.
#[derive(Default)]
pub(crate) struct Waiters {
    queue: VecDeque<Waiter>,
}

impl Waiters {
    pub(crate) fn push(&mut self, waiter: Waiter) {
        debug_assert!(self.queue.back().is_none_or(|last| last.batch < waiter.batch));
        self.queue.push_back(waiter);
    }

    pub(crate) fn pop_last(&mut self) -> Option<Waiter> {
        self.queue.pop_back()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The waiter of an applied batch; those before it lost their command.
    pub(crate) fn take(&mut self, batch: u64) -> (Vec<Waiter>, Option<Waiter>) {
        let mut lost = Vec::new();
        while let Some(first) = self.queue.front() {
            if first.batch > batch {
                return (lost, None);
            }
            let found = first.batch == batch;
            let Some(waiter) = self.queue.pop_front() else { break };
            if found {
                return (lost, Some(waiter));
            }
            lost.push(waiter);
        }
        (lost, None)
    }

    /// All of them: what they proposed may or may not be applied.
    pub(crate) fn take_all(&mut self) -> VecDeque<Waiter> {
        std::mem::take(&mut self.queue)
    }
}

impl Waiter {
    /// Answers, and gives its bytes back. A claim that nobody takes any more goes back by itself.
    pub(crate) fn answer(self, answer: Result<Answered, Error>) {
        drop(self.permit);
        if let Some(to) = self.to {
            // A refused send drops the answer, and with it an undelivered claim.
            drop(to.send(answer));
        }
    }

    /// Answers that the outcome is not known.
    pub(crate) fn lost(self) {
        let text = "the leader changed while the command was on its way, send the same again";
        self.answer(Err(Error::new(Code::OutcomeUnknown, text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(batch: u64) -> (Waiter, oneshot::Receiver<Result<Answered, Error>>) {
        let (to, from) = oneshot::channel();
        (Waiter { batch, to: Some(to), permit: None }, from)
    }

    #[test]
    fn an_applied_batch_finds_its_waiter_and_those_passed_over() {
        let mut waiters = Waiters::default();
        let mut ends = Vec::new();
        for batch in [3, 5, 9] {
            let (one, end) = waiter(batch);
            waiters.push(one);
            ends.push(end);
        }
        assert!(waiters.take(2).1.is_none());
        let (lost, found) = waiters.take(5);
        assert_eq!(lost.len(), 1);
        assert_eq!(found.unwrap().batch, 5);
        lost.into_iter().for_each(Waiter::lost);
        let answer = ends[0].try_recv().unwrap();
        assert!(answer.is_err_and(|e| e.code == Code::OutcomeUnknown));
        assert_eq!(waiters.take_all().len(), 1);
    }
}
