//! The write-ahead log and the vote, as the library wants them.
//!
//! Owns: the adapter. Leaves to others: files (`wal`, `vote`).
//!
//! The committed id is not saved. On one voter it is the last synced entry, which the node applies before
//! the library starts. With several, what the machine holds is known to be committed, and the leader says
//! what else is: entries beyond may still be replaced.

use crate::state_machine::{Checkpoint, end_installing};
use crate::types::{self, Entry, Id, StorageError, TypeConfig, Vote};
use crate::vote::{self, SavedVote};
use crate::wal::Wal;
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, LeaderId, LogState, OptionalSend, RaftLogReader, StorageIOError};
use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;

/// Bytes of entries sent to a peer at once, about.
const REPLICATE_BYTES: u64 = 4 << 20;

/// Handle to log and vote; clones share them.
#[derive(Clone)]
pub(crate) struct LogStorage {
    wal: Wal,
    dir: PathBuf,
    /// A lead that ended with the process is not taken up again: this node may lack what it wrote then.
    forget_lead: bool,
    /// What the machine holds: the log never starts behind it.
    checkpoint: Option<Checkpoint>,
}

impl LogStorage {
    /// `dir` is where the vote lies.
    pub(crate) fn new(wal: Wal, dir: PathBuf) -> Self {
        Self { wal, dir, forget_lead: false, checkpoint: None }
    }

    /// For a group of several: snapshots come from other nodes; with several voters a node starts as a
    /// follower, whatever it was.
    pub(crate) fn in_group(self, alone: bool, checkpoint: Checkpoint) -> Self {
        Self { forget_lead: !alone, checkpoint: Some(checkpoint), ..self }
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
        vote::save(&self.dir, saved)
            .map_err(|error| StorageIOError::write_vote(AnyError::new(&error)).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        let saved = vote::load(&self.dir);
        let saved = saved.map_err(|error| StorageIOError::read_vote(AnyError::new(&error)))?;
        Ok(saved.map(|saved| Vote {
            leader_id: LeaderId::new(saved.term, saved.node),
            committed: saved.committed && !self.forget_lead,
        }))
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
        let entries: Result<Vec<_>, _> = entries.into_iter().map(types::to_wal).collect();
        let entries = entries.map_err(write_error)?;
        let synced = Box::new(|result| callback.log_io_completed(result));
        self.wal.append(entries, synced).map_err(write_error)
    }

    async fn truncate(&mut self, log_id: Id) -> Result<(), StorageError> {
        self.wal.truncate(log_id.index).await.map_err(write_error)
    }

    async fn purge(&mut self, log_id: Id) -> Result<(), StorageError> {
        let upto = types::to_wal_id(&log_id).map_err(write_error)?;
        if let Some(checkpoint) = &self.checkpoint
            && !checkpoint.holds(upto.index).await
        {
            let error = std::io::Error::other("the snapshot was not installed");
            return Err(write_error(error));
        }
        self.wal.purge(upto).await.map_err(write_error)?;
        // After a snapshot this was its last step.
        end_installing(&self.dir).map_err(write_error)
    }
}

#[cfg(test)]
#[path = "log_storage_tests.rs"]
mod tests;
