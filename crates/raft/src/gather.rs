//! Proposals that wait to enter the log.
//!
//! Owns: their queue, joining all that wait into one entry, knowing which are still open. Leaves to
//! others: admission (`queen-broker`), the log itself.
//!
//! An entry costs the same whatever it holds, so joining must happen as late as possible: the library is
//! only told that something waits, and takes it when it builds the entry. While one entry is synced, the
//! next one gathers; nothing ever waits on a timer. Alone, the library itself does not go on before the
//! sync. In a group it does (`log_storage`), so there it is told of nothing until the sync is done.
//! Upholds: `proposals-in-order`; a told library always finds something to take.

use crate::NotProposed;
use crate::types::TypeConfig;
use bytes::Bytes;
use openraft::raft::ClientWriteResult;
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot, watch};

/// Says what became of an entry, from the library.
pub(crate) type Fate = oneshot::Receiver<ClientWriteResult<TypeConfig>>;

/// Tells the library that something waits; `None` when it has stopped.
pub(crate) type Tell = Box<dyn Fn(Gathering) -> Option<Fate> + Send + Sync>;

/// An entry that was asked for.
pub(crate) struct Told {
    /// Counts leads: the one in which it was asked for.
    lead: u64,
    outcome: Fate,
}

#[derive(Default)]
struct Waiting {
    proposals: VecDeque<Bytes>,
    /// The library was told and has not taken yet.
    told: bool,
    /// What was taken last is not synced yet. In a group of several only.
    syncing: bool,
    closed: bool,
}

/// The queue; see the module's header.
pub(crate) struct Gather {
    waiting: Mutex<Waiting>,
    tell: OnceLock<Tell>,
    told: UnboundedSender<Told>,
    /// Rises whenever the lead is lost.
    lead: watch::Sender<u64>,
    entry_bytes_max: usize,
    in_group: bool,
    /// Term in which this node leads and is ready, or 0.
    leader_term: AtomicU64,
    /// Entries asked for and not yet applied or lost.
    open: watch::Sender<u64>,
    lost: Notify,
}

impl Gather {
    /// The queue, and what [`follow`] needs.
    pub(crate) fn new(
        entry_bytes_max: usize,
        in_group: bool,
    ) -> (Arc<Self>, UnboundedReceiver<Told>) {
        let (told, outcomes) = unbounded_channel();
        let gather = Self {
            waiting: Mutex::default(),
            tell: OnceLock::new(),
            told,
            lead: watch::channel(0).0,
            entry_bytes_max,
            in_group,
            leader_term: AtomicU64::new(0),
            open: watch::channel(0).0,
            lost: Notify::new(),
        };
        (Arc::new(gather), outcomes)
    }

    /// Connects the library. Nothing can be proposed before.
    pub(crate) fn connect(&self, tell: Tell) {
        let _ = self.tell.set(tell);
    }

    /// Lets proposals in while `term` is not 0.
    pub(crate) fn set_leader_term(&self, term: u64) {
        // No proposal may slip in between a check of the term and being told of the loss.
        let mut waiting = self.waiting.lock();
        let was = self.leader_term.swap(term, Ordering::AcqRel);
        // What was taken for an entry that the library then refused is never synced.
        waiting.syncing = false;
        if term == 0 && was != 0 {
            // The library takes nothing without the lead: what waits would enter the log in a later
            // term, long after it was told to be lost, and nobody would announce it again.
            waiting.proposals.clear();
            waiting.told = false;
            self.lead.send_modify(|lead| *lead += 1);
        }
    }

    /// Whether proposals are let in.
    pub(crate) fn leads(&self) -> bool {
        self.leader_term.load(Ordering::Acquire) != 0
    }

    pub(crate) fn propose(self: &Arc<Self>, proposal: Bytes) -> Result<(), NotProposed> {
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return Err(NotProposed::Stopped);
        }
        if self.leader_term.load(Ordering::Acquire) == 0 {
            return Err(NotProposed::NotLeader);
        }
        waiting.proposals.push_back(proposal);
        if !waiting.told && !waiting.syncing {
            waiting.told = true;
            if !self.tell_library() {
                waiting.proposals.pop_back();
                waiting.closed = true;
                return Err(NotProposed::Stopped);
            }
        }
        Ok(())
    }

    /// What was taken last is synced, or never will be: announces what has gathered meanwhile.
    pub(crate) fn synced(self: &Arc<Self>) {
        let mut waiting = self.waiting.lock();
        waiting.syncing = false;
        if !waiting.told && !waiting.proposals.is_empty() {
            waiting.told = self.tell_library();
        }
    }

    fn tell_library(self: &Arc<Self>) -> bool {
        let lead = *self.lead.borrow();
        let outcome = self.tell.get().and_then(|tell| tell(Gathering(Some(self.clone()))));
        let Some(outcome) = outcome else { return false };
        self.open.send_modify(|open| *open += 1);
        self.told.send(Told { lead, outcome }).is_ok()
    }

    /// Refuses proposals from now on.
    pub(crate) fn close(&self) {
        self.waiting.lock().closed = true;
    }

    /// Number of entries that are neither applied nor lost.
    pub(crate) fn open(&self) -> watch::Receiver<u64> {
        self.open.subscribe()
    }

    /// Waits until an entry was lost: refused by the library, or dropped by it.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }
}

/// What the library carries to the place where it builds an entry.
#[derive(Clone)]
pub struct Gathering(Option<Arc<Gather>>);

impl Gathering {
    /// All that waits, up to the size of an entry. What is left is announced again: now, or after the sync.
    pub(crate) fn take(self) -> Arc<[Bytes]> {
        let Some(gather) = self.0 else { return Arc::new([]) };
        let mut waiting = gather.waiting.lock();
        waiting.told = false;
        let mut bytes = 0usize;
        let few = waiting.proposals.iter().take_while(|one| {
            bytes = bytes.saturating_add(one.len() + 4);
            bytes <= gather.entry_bytes_max
        });
        let count = few.count().max(1).min(waiting.proposals.len());
        let taken = waiting.proposals.drain(..count).collect();
        waiting.syncing = gather.in_group;
        if !waiting.proposals.is_empty() && !waiting.syncing {
            waiting.told = gather.tell_library();
        }
        taken
    }
}

/// A gathering never leaves its node, but the library asks every proposal to be serialisable.
impl Serialize for Gathering {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("a gathering of proposals stays on its node"))
    }
}

impl<'de> Deserialize<'de> for Gathering {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("a gathering of proposals stays on its node"))
    }
}

impl std::fmt::Debug for Gathering {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Gathering")
    }
}

/// What becomes of entries, in the order in which they were asked for; counts them off.
pub(crate) async fn follow(gather: Arc<Gather>, mut told: UnboundedReceiver<Told>) {
    while let Some(Told { lead, mut outcome }) = told.recv().await {
        let mut leads = gather.lead.subscribe();
        tokio::select! {
            outcome = &mut outcome => {
                gather.open.send_modify(|open| *open = open.saturating_sub(1));
                if !matches!(outcome, Ok(Ok(_))) {
                    gather.lost.notify_one();
                }
            }
            // Lost with the lead: what was open was told to be unknown.
            _ = leads.wait_for(|now| *now != lead) => {
                gather.open.send_modify(|open| *open = open.saturating_sub(1));
                tokio::spawn(outcome);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_when_the_lead_is_lost_enters_no_later_term() {
        let (gather, _outcomes) = Gather::new(1 << 20, false);
        let told = Arc::new(Mutex::new(Vec::new()));
        let teller = told.clone();
        gather.connect(Box::new(move |gathering| {
            teller.lock().push(gathering);
            Some(oneshot::channel().1)
        }));
        gather.set_leader_term(3);
        gather.propose(Bytes::from_static(b"old")).unwrap();
        // The library refuses what it was told of, since another node leads.
        told.lock().clear();
        gather.set_leader_term(0);
        assert_eq!(gather.propose(Bytes::from_static(b"none")), Err(NotProposed::NotLeader));
        gather.set_leader_term(5);
        gather.propose(Bytes::from_static(b"new")).unwrap();
        let announced = told.lock().pop().expect("nobody told the library of it");
        assert_eq!(*announced.take(), [Bytes::from_static(b"new")]);
    }

    #[test]
    fn in_a_group_what_gathers_while_an_entry_is_synced_is_one_entry() {
        let (gather, _outcomes) = Gather::new(1 << 20, true);
        let told = Arc::new(Mutex::new(Vec::new()));
        let teller = told.clone();
        gather.connect(Box::new(move |gathering| {
            teller.lock().push(gathering);
            Some(oneshot::channel().1)
        }));
        let announced = || told.lock().pop();
        let propose = |text: &'static str| gather.propose(Bytes::from_static(text.as_bytes()));
        gather.set_leader_term(3);
        propose("a").unwrap();
        assert_eq!(*announced().unwrap().take(), ["a"]);
        propose("b").unwrap();
        propose("c").unwrap();
        assert!(announced().is_none());
        gather.synced();
        assert_eq!(*announced().unwrap().take(), ["b", "c"]);
        gather.synced();
        assert!(announced().is_none());
        // Taken for an entry that the library refuses, which is never synced.
        propose("d").unwrap();
        drop(announced().unwrap().take());
        gather.set_leader_term(0);
        gather.set_leader_term(5);
        propose("e").unwrap();
        assert_eq!(*announced().unwrap().take(), ["e"]);
    }
}
