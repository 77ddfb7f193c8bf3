//! What the log asks of the state that it drives.
//!
//! Owns: the [`Machine`] trait, the entries handed to it, the two ends of a snapshot. Leaves to others:
//! everything an entry does, what a snapshot holds.

use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// One committed log entry.
#[derive(Clone, Debug)]
pub struct Committed {
    /// Position in the log, from 0, rising by one.
    pub index: u64,
    /// The log's own account of this position (log id and membership), opaque. Stored by the machine
    /// atomically with what the entry did; the last durable one is given back by [`Machine::applied`]
    /// and to [`crate::RaftNode::checkpointed`]. Under 100 bytes on one voter.
    pub mark: Vec<u8>,
    /// What was proposed, in the order of [`crate::RaftNode::propose`]. All that waited for the same
    /// sync share an entry, so there may be many; none for the log's own entries (elections,
    /// membership), whose mark must be stored all the same.
    pub proposals: Arc<[Bytes]>,
}

/// The machine cannot go on: why, in words. The node stops.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct MachineFailed(pub String);

/// The state driven by the log.
///
/// Calls of [`Machine::apply`], [`Machine::leadership`] and [`SnapshotSink::install`] come one at a time,
/// in order. They may block (disk reads): the next group of proposals is synced meanwhile.
pub trait Machine: Send + Sync + 'static {
    /// Mark of the last entry whose effect the machine holds; `None` when it holds nothing.
    ///
    /// Asked once, at start, before the first [`Machine::apply`]: the durable state that was loaded.
    /// The log applies everything after it again before [`crate::RaftNode::start`] returns.
    fn applied(&self) -> Option<Vec<u8>>;

    /// Applies committed entries, in order, each index exactly once per process.
    ///
    /// All proposals of one entry belong to one index: what is made durable must hold either all or
    /// none of an entry, together with its mark.
    fn apply(&self, entries: Vec<Committed>) -> Result<(), MachineFailed>;

    /// This node leads in `term`, or does not lead.
    ///
    /// Each call (also one that repeats `None`) says: what was proposed before it and has not been
    /// applied by now may never be applied, or may be applied later; its outcome is unknown. After
    /// `Some`, everything committed in earlier terms has been applied.
    fn leadership(&self, term: Option<u64>);

    /// A snapshot of everything applied up to some recent entry, to be sent to another node.
    ///
    /// May block for as long as a checkpoint takes; called beside [`Machine::apply`], which goes on.
    fn snapshot(&self) -> Result<Box<dyn SnapshotSource>, MachineFailed> {
        Err(MachineFailed("cannot make a snapshot".into()))
    }

    /// A place for the snapshot of another node, beside the machine's own state.
    fn receive(&self) -> Result<Box<dyn SnapshotSink>, MachineFailed> {
        Err(MachineFailed("cannot receive a snapshot".into()))
    }
}

/// A snapshot that is being read. Dropping it lets go of what it holds back.
pub trait SnapshotSource: Send {
    /// The mark of the last entry in it (see [`Committed::mark`]).
    fn mark(&self) -> &[u8];

    /// Appends the next piece, at most 1 MiB, to `into`; false when there is no more after it.
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool>;
}

/// A snapshot that is being received. Dropping it removes what came.
pub trait SnapshotSink: Send {
    /// Takes the next piece.
    fn write(&mut self, piece: &[u8]) -> io::Result<()>;

    /// Checks what came and puts it in the place of the machine's state, atomically: after a crash at any
    /// instruction there is the one or the other. What [`Machine::apply`] is called with next follows the
    /// snapshot's mark.
    fn install(self: Box<Self>) -> Result<(), MachineFailed>;
}
