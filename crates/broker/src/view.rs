//! What the metrics and status pages are told.

use crate::Finding;
use crate::broker::Broker;
use queen_core::QueueId;
use queen_core::row::{QueueRow, key};
use queen_raft::{Leader, Role};
use queen_state::step::get;

/// Where the broker stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// This node's id.
    pub node: u64,
    /// What it is in its group.
    pub role: Role,
    /// The newest term that it knows.
    pub term: u64,
    /// It leads and takes commands.
    pub leads: bool,
    /// Whoever leads, as far as it knows.
    pub leader: Option<Leader>,
    /// Index up to which it knows the log to be committed.
    pub committed: u64,
    /// Index of the last applied log entry.
    pub applied: u64,
    /// Index up to which a loss of power would lose nothing even without the log.
    pub durable: u64,
    /// Commands proposed and not applied.
    pub waiting: usize,
    /// Bytes of those.
    pub bytes_in_flight: usize,
    /// Pops that wait for messages.
    pub parked: usize,
    /// Pushes are refused for want of space.
    pub storage_full: bool,
    /// Bytes written to the log since the start.
    pub log_bytes_written: u64,
    /// Syncs done for them.
    pub log_syncs: u64,
    /// The node is stopping.
    pub stopping: bool,
}

impl Broker {
    /// Where the broker stands now.
    pub fn standing(&self) -> Standing {
        let shared = &self.shared;
        let node = shared.proposer.node();
        let log = node.map_or((0, 0), |node| node.wal_written());
        let raft = node.map(|node| node.standing());
        let applied = shared.store.read().applied().map_or(0, |applied| applied.index);
        Standing {
            node: shared.node_id,
            role: raft.as_ref().map_or(Role::Stopped, |raft| raft.role),
            term: raft.as_ref().map_or(0, |raft| raft.term),
            leads: self.leads(),
            leader: self.leader(),
            committed: raft.and_then(|raft| raft.committed).unwrap_or(0).max(applied),
            applied,
            durable: shared.store.durable().map_or(0, |applied| applied.index),
            waiting: shared.proposer.waiting(),
            bytes_in_flight: shared.admission.in_flight(),
            parked: shared.parking.parked(),
            storage_full: shared.admission.storage_full(),
            log_bytes_written: log.0,
            log_syncs: log.1,
            stopping: *shared.stop.borrow(),
        }
    }

    /// Name of a queue, also of a deleted one whose log is kept; `None` when there is no such queue.
    pub fn queue_name(&self, queue: QueueId) -> Option<String> {
        let row = self.read(|view| get::<QueueRow>(view, &key::queue(queue)));
        row.ok().flatten().map(|row| row.name)
    }

    /// Where queue logs are known to be damaged.
    pub fn damage(&self) -> Vec<Finding> {
        self.shared.store.damage()
    }

    /// Pops that wait for messages, by queue.
    pub fn parked_by_queue(&self) -> Vec<(QueueId, usize)> {
        self.shared.parking.parked_by_queue()
    }
}
