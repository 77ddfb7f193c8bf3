//! The machine, as the library wants it.
//!
//! Owns: handing committed entries to the [`Machine`], the applied position, the durable checkpoint that
//! stands for a snapshot. Leaves to others: what entries do (`Machine`).
//!
//! A snapshot here is a mark without data: it says that the machine's own files hold everything up to it,
//! which is all the library needs to let go of log entries. It cannot be sent to another node.

use crate::mark::Mark;
use crate::types::{Entry, Id, Payload, StorageError, StoredMembers, TypeConfig};
use crate::{Committed, Machine, MachineFailed};
use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, BasicNode, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageIOError,
};
use parking_lot::Mutex;
use std::io::Cursor;
use std::sync::Arc;

/// The last durable mark.
pub(crate) type Checkpoint = Arc<Mutex<Option<Mark>>>;

/// Drives the machine; the only caller of [`Machine::apply`].
pub(crate) struct StateMachine {
    machine: Arc<dyn Machine>,
    applied: Option<Id>,
    members: StoredMembers,
    checkpoint: Checkpoint,
}

impl StateMachine {
    /// `durable` is what the machine holds.
    pub(crate) fn new(machine: Arc<dyn Machine>, durable: Option<Mark>) -> Self {
        let members = durable.as_ref().map(|mark| mark.members.clone()).unwrap_or_default();
        let applied = durable.as_ref().map(|mark| mark.id);
        Self { machine, applied, members, checkpoint: Arc::new(Mutex::new(durable)) }
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        self.checkpoint.clone()
    }

    pub(crate) fn members(&self) -> &StoredMembers {
        &self.members
    }

    /// Applies entries that follow the last applied one.
    pub(crate) fn apply_all(
        &mut self,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<usize, MachineFailed> {
        let entries = entries.into_iter();
        let mut batch = Vec::with_capacity(entries.size_hint().0);
        for Entry { log_id, payload } in entries {
            let proposals = match payload {
                Payload::Proposals(all) => all,
                Payload::Blank => Arc::new([]),
                Payload::Membership(members) => {
                    self.members = StoredMembers::new(Some(log_id), members);
                    Arc::new([])
                }
            };
            self.applied = Some(log_id);
            let mark = Mark { id: log_id, members: self.members.clone() }.encode();
            batch.push(Committed { index: log_id.index, mark, proposals });
        }
        let count = batch.len();
        self.machine.apply(batch)?;
        Ok(count)
    }
}

fn snapshot(mark: Mark) -> Snapshot<TypeConfig> {
    let meta: SnapshotMeta<u64, BasicNode> = SnapshotMeta {
        last_log_id: Some(mark.id),
        last_membership: mark.members.clone(),
        snapshot_id: format!("checkpoint-{}", mark.id),
    };
    Snapshot { meta, snapshot: Box::new(Cursor::new(mark.encode())) }
}

/// Hands the durable checkpoint to the library.
pub(crate) struct CheckpointReader(Checkpoint);

impl RaftSnapshotBuilder<TypeConfig> for CheckpointReader {
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, StorageError> {
        let mark = self.0.lock().clone();
        mark.map(snapshot).ok_or_else(|| {
            let error = AnyError::error("the machine has no durable checkpoint yet");
            StorageIOError::read_snapshot(None, error).into()
        })
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotBuilder = CheckpointReader;

    async fn applied_state(&mut self) -> Result<(Option<Id>, StoredMembers), StorageError> {
        Ok((self.applied, self.members.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let count = self.apply_all(entries);
        let count =
            count.map_err(|error| StorageIOError::write_state_machine(AnyError::new(&error)))?;
        Ok(vec![(); count])
    }

    async fn get_snapshot_builder(&mut self) -> CheckpointReader {
        CheckpointReader(self.checkpoint.clone())
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, BasicNode>,
        _: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let error = AnyError::error("a checkpoint holds no data and cannot be installed");
        Err(StorageIOError::write_snapshot(Some(meta.signature()), error).into())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<TypeConfig>>, StorageError> {
        Ok(self.checkpoint.lock().clone().map(snapshot))
    }
}
