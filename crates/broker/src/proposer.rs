//! From a command to the log: stamps, order, and the place among the waiting.
//!
//! Owns: the stamp of each command, the entry around it. Leaves to others: what time it is (`clock`),
//! joining what waits for the same sync (`queen-raft` does, while a sync is running, and never waits
//! for more), commands that another node must propose (`forward`).
//! Upholds: `stamps-rise` on the way in; `queen-state` checks it again.
//!
//! A command is proposed in the term in which this node was found to lead, or not at all: so one
//! that was not applied when a later term began never will be.

use crate::admission::Permit;
use crate::clock::{LogClock, Moment};
use crate::counters::Counters;
use crate::waiters::{Answered, To, Waiter, Waiters};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use queen_core::command::Command;
use queen_core::entry::{EntryHeader, HEADER_BYTES};
use queen_core::relay::{AskHead, HEAD_BYTES};
use queen_core::{Code, Error, Stamp, limits};
use queen_raft::{NotProposed, RaftNode};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::oneshot;

/// Bytes in front of a command: the entry's header and the command's length, or an ask's head.
const FRONT: usize = HEAD_BYTES;

pub(crate) struct Proposer {
    origin: u64,
    node: OnceLock<RaftNode>,
    line: Mutex<Line>,
    counters: Arc<Counters>,
}

struct Line {
    clock: LogClock,
    batch: u64,
    /// The term in which this node leads and takes commands.
    term: Option<u64>,
    /// The term in which it leads, but has no stamps to give yet.
    begins: Option<u64>,
    waiters: Waiters,
}

/// Where the answer to a command arrives.
pub(crate) type Pending = oneshot::Receiver<Result<Answered, Error>>;
/// Where another node's command is told to be applied, with the index of its entry.
pub(crate) type PendingIndex = oneshot::Receiver<Result<u64, Error>>;

/// A command of this node on its way.
pub(crate) struct Proposed {
    /// The term in which it may enter the log.
    pub(crate) term: u64,
    /// Its number.
    pub(crate) batch: u64,
    pub(crate) pending: Pending,
}

impl Proposer {
    pub(crate) fn new(origin: u64, counters: Arc<Counters>) -> Proposer {
        let clock = LogClock::new(Moment::now());
        let line = Line { clock, batch: 0, term: None, begins: None, waiters: Waiters::default() };
        Proposer { origin, node: OnceLock::new(), line: Mutex::new(line), counters }
    }

    /// The log, once it runs.
    pub(crate) fn attach(&self, node: RaftNode) {
        // A second node would be a second broker: the first one stays.
        drop(self.node.set(node));
    }

    /// The log.
    pub(crate) fn node(&self) -> Option<&RaftNode> {
        self.node.get()
    }

    /// The command's bytes behind room for what stands before them in an entry or an ask.
    pub(crate) fn encode(command: &Command<'_>, size_hint: usize) -> Result<Vec<u8>, Error> {
        let mut entry = Vec::with_capacity(FRONT + size_hint);
        entry.resize(FRONT, 0);
        let entry = command.encode_after(entry);
        check_size(&entry)?;
        Ok(entry)
    }

    /// Proposes what [`Proposer::encode`] made; never blocks on I/O. Only while this node leads.
    /// The bytes stay with the caller, who may have to propose them again.
    pub(crate) fn propose(&self, entry: &mut Bytes, permit: Permit) -> Result<Proposed, Error> {
        let (to, pending) = oneshot::channel();
        let waiter = Waiter { to: To::Request(to), permit };
        let mut line = self.line.lock();
        let term = line.term.ok_or_else(|| refused(NotProposed::NotLeader))?;
        line.batch += 1;
        let batch = line.batch;
        self.put(&mut line, (self.origin, batch), entry, Some(waiter))?;
        Ok(Proposed { term, batch, pending })
    }

    /// Proposes a command that another node asks for, if this node leads in the term it names.
    pub(crate) fn serve(
        &self,
        head: &AskHead,
        mut entry: Bytes,
        permit: Permit,
    ) -> Result<PendingIndex, Error> {
        check_size(&entry)?;
        let (to, pending) = oneshot::channel();
        let waiter = Waiter { to: To::Node(to), permit };
        let mut line = self.line.lock();
        if line.term != Some(head.term) {
            return Err(refused(NotProposed::NotLeader));
        }
        self.put(&mut line, (head.origin, head.batch), &mut entry, Some(waiter))?;
        Ok(pending)
    }

    /// Proposes a command whose outcome nobody waits for; whether the log took it.
    pub(crate) fn send(&self, entry: Vec<u8>) -> bool {
        let mut entry = Bytes::from(entry);
        let mut line = self.line.lock();
        if line.term.is_none() {
            return false;
        }
        line.batch += 1;
        let batch = line.batch;
        self.put(&mut line, (self.origin, batch), &mut entry, None).is_ok()
    }

    /// Puts an entry into the log, the line being locked: log, stamps and waiters have one order.
    fn put(
        &self,
        line: &mut Line,
        (origin, batch): (u64, u64),
        entry: &mut Bytes,
        waiter: Option<Waiter>,
    ) -> Result<(), Error> {
        let node = self.node.get().ok_or_else(|| refused(NotProposed::NotLeader))?;
        let first_stamp = line.clock.stamp(Moment::now());
        let header = EntryHeader { origin, batch, first_stamp, count: 1 };
        let len = (entry.len() - FRONT) as u32;
        let mut front = [0; FRONT];
        front[..HEADER_BYTES].copy_from_slice(&header.bytes());
        front[HEADER_BYTES..].copy_from_slice(&len.to_le_bytes());
        write_front(entry, &front);
        if let Some(waiter) = waiter {
            line.waiters.insert((origin, batch), waiter);
        }
        if let Err(e) = node.propose(entry.clone()) {
            line.waiters.remove((origin, batch));
            return Err(refused(e));
        }
        self.counters.proposed.add(1);
        Ok(())
    }

    /// A place for the answer to a command that the leader of `term` will be asked for, and what
    /// to write in front of the command for it.
    pub(crate) fn expect(&self, term: u64, writes: bool, permit: Permit) -> (Proposed, AskHead) {
        let (to, pending) = oneshot::channel();
        let mut line = self.line.lock();
        line.batch += 1;
        let batch = line.batch;
        line.waiters.insert((self.origin, batch), Waiter { to: To::Request(to), permit });
        (Proposed { term, batch, pending }, AskHead { term, origin: self.origin, batch, writes })
    }

    /// Nobody waits for this command any more. A claim that it may still come to goes back.
    pub(crate) fn forget(&self, batch: u64) {
        drop(self.line.lock().waiters.remove((self.origin, batch)));
    }

    /// The waiter of an applied entry, if somebody here waits for it.
    pub(crate) fn applied(&self, header: &EntryHeader) -> Option<Waiter> {
        let mut line = self.line.lock();
        line.clock.applied(header.stamp(header.count.saturating_sub(1)), Moment::now());
        line.waiters.take(header)
    }

    /// Whether this process asked for the entry.
    pub(crate) fn is_ours(&self, header: &EntryHeader) -> bool {
        header.origin == self.origin
    }

    /// This node leads in `term`, or does not. What other nodes wait for here they must find out
    /// from the next leader. Whether it takes commands at once: not while it does not know the log
    /// clock, unless nobody else can.
    #[must_use]
    pub(crate) fn leads(&self, term: Option<u64>, alone: bool) -> bool {
        let mut line = self.line.lock();
        let at_once = alone || term.is_none() || line.clock.known();
        (line.term, line.begins) = if at_once { (term, None) } else { (None, term) };
        if at_once {
            line.clock.leads(term.is_some(), Moment::now());
        }
        let foreign = line.waiters.take_foreign();
        drop(line);
        foreign.into_iter().for_each(Waiter::lost);
        at_once
    }

    /// From here on this node takes commands, by the clock that it has, if it leads in `term` still.
    pub(crate) fn begin(&self, term: u64) {
        let mut line = self.line.lock();
        if line.begins == Some(term) {
            (line.term, line.begins) = (Some(term), None);
            line.clock.leads(true, Moment::now());
        }
    }

    /// What is on its way may never arrive: everybody is told so.
    pub(crate) fn lose_all(&self) {
        let all = self.line.lock().waiters.take_all();
        all.into_iter().for_each(Waiter::lost);
    }

    /// Sets the clock after a replay.
    pub(crate) fn seen(&self, stamp: Stamp) {
        self.line.lock().clock.applied(stamp, Moment::now());
    }

    /// What another node says the log clock is, and when it was asked.
    pub(crate) fn heard(&self, stamp: Stamp, asked: Instant) {
        self.line.lock().clock.heard(stamp, asked, Moment::now());
    }

    /// The log clock, if this node knows it.
    pub(crate) fn known_time(&self) -> Option<Stamp> {
        let mut line = self.line.lock();
        line.clock.known().then(|| line.clock.read(Moment::now()))
    }

    /// The log clock: what the next stamp will be at least. On a node that does not lead, the
    /// leader's clock as last heard, and the time that has passed since on this machine.
    pub(crate) fn now(&self) -> Stamp {
        self.line.lock().clock.read(Moment::now())
    }

    /// As if the process had just begun.
    #[cfg(test)]
    pub(crate) fn forget_time(&self) {
        self.line.lock().clock = LogClock::new(Moment::now());
    }

    /// Whether commands are taken in `term`.
    #[cfg(test)]
    pub(crate) fn takes_commands(&self, term: u64) -> bool {
        self.line.lock().term == Some(term)
    }

    /// Commands on their way.
    pub(crate) fn waiting(&self) -> usize {
        self.line.lock().waiters.len()
    }
}

/// Writes what stands before a command: in the same buffer, unless an earlier try of it is still on
/// its way.
pub(crate) fn write_front(load: &mut Bytes, front: &[u8; FRONT]) {
    let own = std::mem::take(load).try_into_mut();
    let mut own = own.unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    own[..FRONT].copy_from_slice(front);
    *load = own.freeze();
}

fn check_size(entry: &[u8]) -> Result<(), Error> {
    if entry.len() <= limits::ENTRY_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "the request makes a log entry of {} bytes, over the limit of {}: send it in parts",
        entry.len() - FRONT,
        limits::ENTRY_BYTES_MAX
    );
    Err(Error::new(Code::BadRequest, text))
}

fn refused(e: NotProposed) -> Error {
    match e {
        NotProposed::NotLeader => Error::new(Code::NoLeader, "this node does not lead the log"),
        NotProposed::Stopped => Error::new(Code::Retry, "the log of this node has stopped"),
    }
}
