//! Who waits for which command, and how its answer reaches them.
//!
//! Owns: the waiting requests by the origin and the number of their command, and the claim that goes
//! back when nobody is left to take it. Leaves to others: proposing (`proposer`), applying
//! (`machine`), what to do about a command that was lost with a leader (`forward`).

use crate::admission::Permit;
use crate::broker::Shared;
use queen_core::command::{Command, ReturnLease};
use queen_core::entry::EntryHeader;
use queen_core::reply::Reply;
use queen_core::{Code, Error, LeaseId, TenantId};
use std::collections::HashMap;
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
            shared.send(&Command::ReturnLease(ReturnLease { tenant, lease }));
        }
    }
}

/// Whoever is told what became of a command.
pub(crate) enum To {
    /// A request of this node.
    Request(oneshot::Sender<Result<Answered, Error>>),
    /// Another node, which has the reply from its own state: the index of the entry is told.
    Node(oneshot::Sender<Result<u64, Error>>),
}

/// One command on its way.
pub(crate) struct Waiter {
    pub(crate) to: To,
    /// What it takes of the bytes in flight, until it is applied.
    pub(crate) permit: Permit,
}

/// The origin of a command and its number there.
type Name = (u64, u64);

/// Commands on their way.
#[derive(Default)]
pub(crate) struct Waiters {
    all: HashMap<Name, Waiter>,
}

impl Waiters {
    pub(crate) fn insert(&mut self, name: Name, waiter: Waiter) {
        self.all.insert(name, waiter);
    }

    pub(crate) fn remove(&mut self, name: Name) -> Option<Waiter> {
        self.all.remove(&name)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The waiter of an applied entry.
    pub(crate) fn take(&mut self, header: &EntryHeader) -> Option<Waiter> {
        self.all.remove(&(header.origin, header.batch))
    }

    /// All of them: what they proposed may or may not be applied.
    pub(crate) fn take_all(&mut self) -> Vec<Waiter> {
        self.all.drain().map(|(_, waiter)| waiter).collect()
    }

    /// Other nodes', and those of whom nobody waits any more.
    pub(crate) fn take_foreign(&mut self) -> Vec<Waiter> {
        let of_here = |waiter: &Waiter| matches!(&waiter.to, To::Request(to) if !to.is_closed());
        self.all.extract_if(|_, waiter| !of_here(waiter)).map(|(_, waiter)| waiter).collect()
    }
}

impl Waiter {
    /// Answers that the outcome is not known, and gives its bytes back.
    pub(crate) fn lost(self) {
        let text = "the leader changed while the command was on its way, send the same again";
        let error = Error::new(Code::OutcomeUnknown, text);
        // Whoever has gone needs no answer.
        match self.to {
            To::Request(to) => drop(to.send(Err(error))),
            To::Node(to) => drop(to.send(Err(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Admission, Class};
    use crate::counters::Counters;
    use queen_core::Stamp;

    fn header(origin: u64, batch: u64) -> EntryHeader {
        EntryHeader { origin, batch, first_stamp: Stamp(1), count: 1 }
    }

    #[test]
    fn an_applied_entry_finds_its_waiter_by_origin_and_number() {
        let (admission, counters) = (Admission::new(100, 100), Counters::default());
        let permit = || admission.admit(Class::Settle, 9, &counters).unwrap();
        let (mut waiters, mut ends) = (Waiters::default(), Vec::new());
        for name in [(1, 3), (1, 5), (2, 3)] {
            let (to, end) = oneshot::channel();
            waiters.insert(name, Waiter { to: To::Request(to), permit: permit() });
            ends.push(end);
        }
        assert!(waiters.take(&header(2, 5)).is_none());
        waiters.take(&header(2, 3)).unwrap().lost();
        let answer = ends[2].try_recv().unwrap();
        assert!(answer.is_err_and(|e| e.code == Code::OutcomeUnknown));
        assert_eq!((waiters.len(), admission.in_flight()), (2, 18));
    }

    #[test]
    fn a_change_of_leaders_ends_what_is_foreign_or_given_up() {
        let (admission, counters) = (Admission::new(100, 100), Counters::default());
        let permit = || admission.admit(Class::Settle, 9, &counters).unwrap();
        let mut waiters = Waiters::default();
        let (to, _waits) = oneshot::channel();
        waiters.insert((1, 1), Waiter { to: To::Request(to), permit: permit() });
        let (to, gone) = oneshot::channel();
        waiters.insert((1, 2), Waiter { to: To::Request(to), permit: permit() });
        drop(gone);
        let (to, mut node) = oneshot::channel();
        waiters.insert((2, 1), Waiter { to: To::Node(to), permit: permit() });
        waiters.take_foreign().into_iter().for_each(Waiter::lost);
        assert!(node.try_recv().unwrap().is_err());
        assert_eq!((waiters.len(), admission.in_flight()), (1, 9));
        assert!(waiters.remove((1, 1)).is_some());
    }
}
