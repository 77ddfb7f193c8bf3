//! The write-ahead log and the vote, as the library wants them.
//!
//! Owns: the adapter. Leaves to others: files (`host`).
//!
//! In a group of several, a leader's entries are on their way to the others while its own disk syncs them.
//! The library takes an entry to be on disk here once its append is answered, so on a leader that is
//! answered at once; and what the library then holds to be committed counts only once it is synced here
//! too. Two places wait for that (`Wal::synced`): the one that applies (`state_machine`), and the one that
//! tells the others what is committed (`transport`). So what is applied anywhere, and hence what is
//! answered, is synced by a majority, as if the library had waited. A leader that dies before its sync
//! loses an entry that at most the others hold; one that lives and is deposed still holds it in memory and
//! votes for nobody who has less.
//!
//! The committed id is not saved. On one voter it is the last synced entry, which the node applies before
//! the library starts. With several, what the machine holds is known to be committed, and the leader says
//! what else is: entries beyond may still be replaced.

use crate::gather::Gather;
use crate::host::{Host, Journal, SavedVote};
use crate::state_machine::Checkpoint;
use crate::types::{self, Entry, Id, StorageError, TypeConfig, Vote};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AnyError, CommittedLeaderId, LeaderId, LogState, OptionalSend, RaftLogReader, StorageIOError,
};
use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Bytes of entries sent to a peer at once, about.
const REPLICATE_BYTES: u64 = 4 << 20;

/// Handle to log and vote; clones share them.
#[derive(Clone)]
pub(crate) struct LogStorage {
    wal: Arc<dyn Journal>,
    /// Where the vote lies.
    host: Arc<dyn Host>,
    /// A lead that ended with the process is not taken up again: this node may lack what it wrote then.
    forget_lead: bool,
    /// In a group of several.
    group: Option<Grouped>,
}

/// What is different in a group of several.
#[derive(Clone)]
struct Grouped {
    me: u64,
    gather: Arc<Gather>,
    /// What the machine holds: the log never starts behind it.
    checkpoint: Checkpoint,
    /// The last vote that was saved.
    vote: Option<Vote>,
}

impl Grouped {
    /// Whether this node leads, and appends what it proposed itself as the leader.
    fn leads_with(&self, entry: &Entry) -> bool {
        let vote = self.vote.filter(|vote| vote.committed && vote.leader_id.node_id == self.me);
        let term = vote.map(|vote| CommittedLeaderId::new(vote.leader_id.term, self.me));
        term == Some(entry.log_id.leader_id)
    }
}

impl LogStorage {
    pub(crate) fn new(wal: Arc<dyn Journal>, host: Arc<dyn Host>) -> Self {
        Self { wal, host, forget_lead: false, group: None }
    }

    /// For a group of several, on the node `me`: snapshots come from other nodes; with several voters a
    /// node starts as a follower, whatever it was.
    pub(crate) fn in_group(
        self,
        me: u64,
        alone: bool,
        checkpoint: Checkpoint,
        gather: Arc<Gather>,
    ) -> Self {
        let group = Grouped { me, gather, checkpoint, vote: None };
        Self { forget_lead: !alone, group: Some(group), ..self }
    }

    fn read(&self, start: u64, end: u64, bytes_max: u64) -> Result<Vec<Entry>, StorageError> {
        let entries = self.wal.read(start, end, bytes_max).map_err(read_error)?;
        entries.into_iter().map(|entry| types::from_wal(entry).map_err(read_error)).collect()
    }
}

fn read_error(error: impl std::error::Error + 'static) -> StorageError {
    StorageIOError::read_logs(AnyError::new(&error)).into()
}

fn write_error(error: impl std::error::Error + 'static) -> StorageError {
    StorageIOError::write_logs(AnyError::new(&error)).into()
}

impl RaftLogReader<TypeConfig> for LogStorage {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        let start = match range.start_bound() {
            Bound::Included(at) => *at,
            Bound::Excluded(at) => at + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(at) => at + 1,
            Bound::Excluded(at) => *at,
            Bound::Unbounded => u64::MAX,
        };
        self.read(start, end, u64::MAX)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError> {
        self.read(start, end, REPLICATE_BYTES)
    }
}

impl RaftLogStorage<TypeConfig> for LogStorage {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        let (purged, last) = self.wal.state();
        Ok(LogState {
            last_purged_log_id: purged.map(types::from_wal_id),
            last_log_id: last.map(types::from_wal_id),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let saved = SavedVote {
            term: vote.leader_id.term,
            node: vote.leader_id.node_id,
            committed: vote.committed,
        };
        let saved = self.host.save_vote(saved).await;
        saved.map_err(|error| StorageIOError::write_vote(AnyError::new(&error)))?;
        if let Some(group) = &mut self.group {
            group.vote = Some(*vote);
        }
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        let saved = self.host.load_vote();
        let saved = saved.map_err(|error| StorageIOError::read_vote(AnyError::new(&error)))?;
        let vote = saved.map(|saved| Vote {
            leader_id: LeaderId::new(saved.term, saved.node),
            committed: saved.committed && !self.forget_lead,
        });
        if let Some(group) = &mut self.group {
            group.vote = vote;
        }
        Ok(vote)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<TypeConfig>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let leads = |group: &Grouped| entries.iter().all(|entry| group.leads_with(entry));
        let early = self.group.as_ref().is_some_and(leads);
        let gather = self.group.as_ref().map(|group| group.gather.clone());
        let entries: Result<Vec<_>, _> = entries.into_iter().map(types::to_wal).collect();
        let entries = entries.map_err(write_error)?;
        // Whoever waits for the sync sees its error, and ends the node.
        let (now, later) = if early { (Some(callback), None) } else { (None, Some(callback)) };
        let synced = Box::new(move |result| {
            if let Some(callback) = later {
                callback.log_io_completed(result);
            }
            if let Some(gather) = gather {
                gather.synced();
            }
        });
        self.wal.append(entries, synced).map_err(write_error)?;
        if let Some(callback) = now {
            callback.log_io_completed(Ok(()));
        }
        Ok(())
    }

    async fn truncate(&mut self, log_id: Id) -> Result<(), StorageError> {
        self.wal.truncate(log_id.index).await.map_err(write_error)
    }

    async fn purge(&mut self, log_id: Id) -> Result<(), StorageError> {
        let upto = types::to_wal_id(&log_id).map_err(write_error)?;
        if let Some(group) = &self.group
            && !group.checkpoint.holds(upto.index).await
        {
            let error = std::io::Error::other("the snapshot was not installed");
            return Err(write_error(error));
        }
        self.wal.purge(upto).await.map_err(write_error)?;
        // After a snapshot this was its last step.
        self.host.set_installing(false).map_err(write_error)
    }
}

#[cfg(test)]
#[path = "log_storage_tests.rs"]
mod tests;
