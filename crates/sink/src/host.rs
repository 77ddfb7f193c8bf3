//! What the sink needs of the broker it runs in.
//!
//! Owns: the trait [`Host`] and the types that cross it.
//! Leaves to others: the adapter over the broker (`queen`), its twin (`queen-sim`), what is
//! read and when (`worker`, `read`), the rows kept in KV (`lease`, `commit`).
//!
//! Two kinds of methods. The `async` ones wait for the log or for an event. The plain ones may block
//! on a disk for a moment: the sink calls them on its own threads only, never on those that answer
//! clients. Nothing here takes a consumer's lease or moves a cursor.

use async_trait::async_trait;
use queen_core::kv::{KvOp, KvOutcome};
use queen_core::run::RunHeader;
use queen_core::sink::LostRange;
use queen_core::{PartitionId, QueueId, Stamp};
use std::sync::Arc;

/// Where a run lies in its queue's log. Decided by the state machine: the same on every node.
///
/// Places of one queue incarnation sort as its log does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Segment number.
    pub segment: u64,
    /// Byte position in the segment.
    pub at: u64,
}

/// One incarnation of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Its incarnation.
    pub id: QueueId,
    /// Stamp of the command that made it; smaller than the stamp of each of its records, or equal to
    /// that of the first ones when the push itself made the queue.
    pub created: Stamp,
    /// Deleted, and shown only because an intent of this sink pins a range of its log, or because
    /// the sink still has loss of it to list.
    pub deleted: bool,
}

/// Loss that a window has to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Queue incarnation of the first of it.
    pub queue: QueueId,
    /// Stamp at which the first of it went.
    pub since: Stamp,
    /// More went than one window lists: the windows after it list the rest.
    pub more: bool,
    /// Records that the window lists as of now.
    pub records: u64,
}

/// Where a scan of the timeline starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanFrom {
    /// At the first retained run with at least this stamp.
    Stamp(Stamp),
    /// At this place: the start of a run, or the `next` of an earlier page. Places whose segment is
    /// gone mean the first retained run after them.
    Place(Place),
}

/// One run, as the timeline shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineRun {
    /// Its header.
    pub header: RunHeader,
    /// Where its header begins; [`RunHeader::run_len`] bytes lie there.
    pub place: Place,
}

/// Runs of a queue in log order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimelinePage {
    /// In log order, so by stamp; runs of one push share theirs.
    pub runs: Vec<TimelineRun>,
    /// Where the next page starts: behind the last run of this one, or, when there was none, where
    /// the first later run will be looked for.
    pub next: Place,
    /// The page reached the end of the log as it was when the scan began.
    pub end: bool,
    /// With `end`: every record of the queue stamped at or below this lies in this page or before
    /// it, whatever is appended later. The node's applied stamp, read before the scan. Without
    /// `end`: the stamp of the last run (more runs may share it).
    pub through: Stamp,
}

/// Why the host did not do as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Nothing was written; try again after a pause (no leader, overloaded, shutting down).
    #[error("{0}")]
    Retry(String),
    /// The write may have happened: read before trying again.
    #[error("{0}")]
    Unknown(String),
    /// The queue incarnation, or the part of its log, is not there any more.
    #[error("{0}")]
    Gone(String),
    /// The bytes are not those that were written, or cannot be read.
    #[error("{0}")]
    Broken(String),
}

/// Runs a call that may block or take long where it holds up nothing else.
pub(crate) async fn blocking<T: Send + 'static>(
    host: &dyn Host,
    call: impl FnOnce() -> T + Send + 'static,
) -> T {
    if !host.threaded() {
        return call();
    }
    match tokio::task::spawn_blocking(move || {
        crate::priority::lower();
        call()
    })
    .await
    {
        Ok(result) => result,
        Err(err) => std::panic::resume_unwind(err.into_panic()),
    }
}

/// The bytes of a queue's log. It may keep files open: drop it when done.
pub trait LogBytes {
    /// Fills `into` with the bytes at `place`, all within one segment. The caller checks the checksums.
    /// May block on a disk.
    fn read(&mut self, place: Place, into: &mut [u8]) -> Result<(), HostError>;
}

impl<F: FnMut(Place, &mut [u8]) -> Result<(), HostError>> LogBytes for F {
    fn read(&mut self, place: Place, into: &mut [u8]) -> Result<(), HostError> {
        self(place, into)
    }
}

/// The broker, as the sink sees it. All calls concern the sink's tenant.
#[async_trait]
pub trait Host: Send + Sync + 'static {
    /// All queues, with the deleted incarnations that a pin of this sink keeps or of which it has loss
    /// to list, in no particular order. Does not block.
    fn queues(&self) -> Vec<QueueInfo>;

    /// The live incarnation of a queue, looked up by name. Does not block.
    fn queue(&self, name: &str) -> Option<QueueInfo> {
        self.queues().into_iter().find(|info| &*info.name == name && !info.deleted)
    }

    /// Completes when the set of queues may have changed since `seen`, and gives the value to pass
    /// next time. Pass 0 first: it completes at once. Cancel-safe.
    async fn queues_changed(&self, seen: u64) -> u64;

    /// Applies a batch of KV operations through the log, linearizably, and gives their outcome.
    ///
    /// The namespace of every operation is `queen_core::limits::SINK_NAMESPACE`. Never [`HostError::Gone`].
    async fn kv(&self, ops: &[KvOp<'_>]) -> Result<KvOutcome, HostError>;

    /// Stamp of the last entry that this node applied. Everything the node has not applied yet is
    /// stamped above it. Never falls. Does not block.
    fn applied(&self) -> Stamp;

    /// The log clock now: at least [`Host::applied`]; about the stamp that a command appended at
    /// this moment would get. Does not block and appends nothing.
    fn now(&self) -> Stamp;

    /// Appends a tick, waits until this node has applied it, and gives its stamp.
    async fn tick(&self) -> Result<Stamp, HostError>;

    /// Completes when the queue holds a record stamped above `after`, or is deleted. Completes at
    /// once if that is so already. Cancel-safe.
    async fn written(&self, queue: QueueId, after: Stamp);

    /// Stamp of the first record that the queue still holds; `None` when it holds none.
    fn first_retained(&self, queue: QueueId) -> Result<Option<Stamp>, HostError>;

    /// Runs of the queue in log order, at most `runs_max` (at least 1 unless `end`).
    ///
    /// A sequential scan of headers: costs what it passes over, never what the queue has elsewhere.
    /// May block on a disk. [`HostError::Gone`] when the incarnation is deleted and no pin of this
    /// sink keeps it: all that the sink had not copied is lost.
    fn timeline(
        &self,
        queue: QueueId,
        from: ScanFrom,
        runs_max: usize,
    ) -> Result<TimelinePage, HostError>;

    /// The bytes of the queue's log, for whoever reads some of them one after the other. Does not
    /// block.
    fn log(&self, queue: QueueId) -> Box<dyn LogBytes + '_>;

    /// Names of partitions of the queue, in the order asked. May block on a disk.
    fn partition_names(
        &self,
        queue: QueueId,
        partitions: &[PartitionId],
    ) -> Result<Vec<Arc<str>>, HostError>;

    /// What window `k` of a queue has to list as lost, as of now; `None` when nothing. A change from
    /// nothing wakes [`Host::queues_changed`]. Does not block.
    ///
    /// The state machine records loss in the command that takes the records, for the first window
    /// whose intent is not written yet. So from the intent of `k` on the answer for `k` is final,
    /// until this node applies the commit of `k`: then it is `None`.
    fn loss(&self, queue: &str, k: u64) -> Result<Option<Loss>, HostError>;

    /// The ranges of that loss, by partition and offset; at most 10,000. May block on a disk.
    fn lost(&self, queue: &str, k: u64) -> Result<Vec<LostRange>, HostError>;

    /// Number of the last window of a queue whose commit this node has applied; 0 before the first.
    /// Does not block.
    ///
    /// While it is below `k`, pin and loss of window `k` are still there: what was read before this
    /// call was whole.
    fn committed(&self, queue: &str) -> Result<u64, HostError>;

    /// Version of a queue's intent row as this node has applied it; 0 before the first. May lag
    /// behind what [`Host::kv`] answered. Does not block.
    ///
    /// Above that of an owner's own intent, another owner has begun the window anew.
    fn begun(&self, queue: &str) -> Result<u64, HostError>;

    /// Appends the payload of an envelope to `into`. The error says why it does not open and what to
    /// do, to be read after the words "the payload"; then `into` is as it was.
    fn decrypt(
        &self,
        queue: QueueId,
        partition: &str,
        envelope: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), String>;

    /// 64 random bits, for pauses and for the names of claims. A simulation draws them by its seed.
    fn random(&self) -> u64 {
        let mut bits = [0u8; 8];
        match aws_lc_rs::rand::fill(&mut bits) {
            Ok(()) => u64::from_le_bytes(bits),
            // Claims are only ever compared with those of other processes.
            Err(_) => u64::MAX - u64::from(std::process::id()),
        }
    }

    /// Whether what blocks or takes long runs on threads made for it. A simulation says no: its
    /// one thread decides the order of everything.
    fn threaded(&self) -> bool {
        true
    }
}
