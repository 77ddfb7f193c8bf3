//! From a command to the log: stamps, order, and the place among the waiting.
//!
//! Owns: the stamp of each command (max of wall clock and last stamp + 1), the entry around it, the
//! order in which waiters and log agree. Leaves to others: joining what waits for the same sync
//! (`queen-raft` does, while a sync is running, and never waits for more).
//! Upholds: `stamps-rise` on the way in; `queen-state` checks it again.

use crate::admission::Permit;
use crate::counters::Counters;
use crate::waiters::{Answered, Waiter, Waiters};
use bytes::Bytes;
use parking_lot::Mutex;
use queen_core::command::Command;
use queen_core::entry::{EntryHeader, HEADER_BYTES};
use queen_core::{Code, Error, Stamp, limits};
use queen_raft::{NotProposed, RaftNode};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Bytes in front of a command: the entry's header and the command's length.
const FRONT: usize = HEADER_BYTES + 4;

pub(crate) struct Proposer {
    origin: u64,
    node: OnceLock<RaftNode>,
    line: Mutex<Line>,
    counters: Arc<Counters>,
}

struct Line {
    last: Stamp,
    batch: u64,
    waiters: Waiters,
}

/// Where the answer to a proposed command arrives.
pub(crate) type Pending = oneshot::Receiver<Result<Answered, Error>>;

impl Proposer {
    pub(crate) fn new(origin: u64, counters: Arc<Counters>) -> Proposer {
        let line = Line { last: Stamp::ZERO, batch: 0, waiters: Waiters::default() };
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

    /// The bytes of an entry that holds one command, its header left blank.
    pub(crate) fn encode(command: &Command<'_>, size_hint: usize) -> Result<Vec<u8>, Error> {
        let mut entry = Vec::with_capacity(FRONT + size_hint);
        entry.resize(FRONT, 0);
        let mut entry = command.encode_after(entry);
        let len = entry.len() - FRONT;
        if entry.len() > limits::ENTRY_BYTES_MAX {
            let text = format!(
                "the request makes a log entry of {len} bytes, over the limit of {}: send it in parts",
                limits::ENTRY_BYTES_MAX
            );
            return Err(Error::new(Code::BadRequest, text));
        }
        entry[HEADER_BYTES..FRONT].copy_from_slice(&(len as u32).to_le_bytes());
        Ok(entry)
    }

    /// Proposes an entry of [`Proposer::encode`]; never blocks on I/O.
    pub(crate) fn propose(&self, mut entry: Vec<u8>, permit: Permit) -> Result<Pending, Error> {
        let (to, from) = oneshot::channel();
        self.put(&mut entry, Some(to), Some(permit))?;
        Ok(from)
    }

    /// Proposes a command whose outcome nobody waits for. Lost when the log takes nothing now.
    pub(crate) fn send(&self, command: &Command<'_>) {
        if let Ok(mut entry) = Proposer::encode(command, 64) {
            drop(self.put(&mut entry, None, None));
        }
    }

    fn put(
        &self,
        entry: &mut Vec<u8>,
        to: Option<oneshot::Sender<Result<Answered, Error>>>,
        permit: Option<Permit>,
    ) -> Result<(), Error> {
        let node = self.node.get().ok_or_else(|| refused(NotProposed::NotLeader))?;
        let now = wall();
        let mut line = self.line.lock();
        let stamp = Stamp(now.0.max(line.last.0 + 1));
        let batch = line.batch + 1;
        let header = EntryHeader { origin: self.origin, batch, first_stamp: stamp, count: 1 };
        entry[..HEADER_BYTES].copy_from_slice(&header.bytes());
        line.waiters.push(Waiter { batch, to, permit });
        // Under the lock, so that the log, the stamps and the waiters have one order.
        if let Err(e) = node.propose(Bytes::from(std::mem::take(entry))) {
            line.waiters.pop_last();
            return Err(refused(e));
        }
        line.batch = batch;
        line.last = stamp;
        self.counters.proposed.add(1);
        Ok(())
    }

    /// The waiter of an applied entry, if it is this process's; those passed over are told.
    pub(crate) fn applied(&self, header: &EntryHeader) -> Option<Waiter> {
        let mut line = self.line.lock();
        line.last = line.last.max(header.stamp(header.count.saturating_sub(1)));
        if header.origin != self.origin {
            return None;
        }
        let (lost, found) = line.waiters.take(header.batch);
        drop(line);
        lost.into_iter().for_each(Waiter::lost);
        found
    }

    /// Whether this process proposed the entry.
    pub(crate) fn is_ours(&self, header: &EntryHeader) -> bool {
        header.origin == self.origin
    }

    /// What is on its way may never arrive: everybody is told so.
    pub(crate) fn lose_all(&self) {
        let all = self.line.lock().waiters.take_all();
        all.into_iter().for_each(Waiter::lost);
    }

    /// Sets the clock after a replay.
    pub(crate) fn seen(&self, stamp: Stamp) {
        let mut line = self.line.lock();
        line.last = line.last.max(stamp);
    }

    /// What the next stamp will be at least.
    pub(crate) fn now(&self) -> Stamp {
        Stamp(wall().0.max(self.line.lock().last.0 + 1))
    }

    /// Commands proposed and not applied.
    pub(crate) fn waiting(&self) -> usize {
        self.line.lock().waiters.len()
    }
}

fn wall() -> Stamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Stamp(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

fn refused(e: NotProposed) -> Error {
    match e {
        NotProposed::NotLeader => Error::new(Code::NoLeader, "this node does not lead the log"),
        NotProposed::Stopped => Error::new(Code::Retry, "the log of this node has stopped"),
    }
}
