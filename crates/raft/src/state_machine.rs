//! The machine, as the library wants it.
//!
//! Owns: handing committed entries to the [`Machine`], the applied position, the durable checkpoint that
//! stands for a snapshot, installing one that came. Leaves to others: what entries do (`Machine`), sending
//! and receiving (`snapshots`).
//!
//! A snapshot of this node is a mark without data: it says that the machine's own files hold everything
//! up to it, which is all the library needs to let go of log entries. The data is made when it is sent.
//!
//! In a group of several the machine runs beside the library, so that applying holds up no append.
//!
//! A snapshot is installed in three steps: the file `installing` is written, the machine takes the
//! snapshot, the log starts anew behind it (it waits for the machine). Whoever dies between them finds
//! the file at the next start, which does the third step if the second was done (`replay`).

use crate::host::{Host, Journal};
use crate::mark::Mark;
use crate::snapshots::{self, Handle};
use crate::types::{Entry, Id, Payload, StorageError, StoredMembers, TypeConfig};
use crate::{Committed, Machine, MachineFailed};
use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, BasicNode, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageIOError,
};
use std::io;
use std::sync::Arc;
use tokio::sync::watch;

/// The last durable mark; clones share it.
#[derive(Clone)]
pub(crate) struct Checkpoint(Arc<watch::Sender<Durable>>);

struct Durable {
    mark: Option<Mark>,
    /// A snapshot could not be installed.
    failed: bool,
}

impl Checkpoint {
    fn new(mark: Option<Mark>) -> Self {
        Self(Arc::new(watch::channel(Durable { mark, failed: false }).0))
    }

    pub(crate) fn set(&self, mark: Mark) {
        self.0.send_modify(|durable| durable.mark = Some(mark));
    }

    fn get(&self) -> Option<Mark> {
        self.0.borrow().mark.clone()
    }

    /// Waits until everything up to `index` is durable; false when it never will be.
    pub(crate) async fn holds(&self, index: u64) -> bool {
        let mut durable = self.0.subscribe();
        let reached = durable.wait_for(|now| {
            now.failed || now.mark.as_ref().is_some_and(|mark| mark.id.index >= index)
        });
        reached.await.is_ok_and(|now| !now.failed)
    }
}

/// Whose turn it is to call the machine.
pub(crate) type Turn = Arc<tokio::sync::Mutex<()>>;

/// What is different in a group of several.
struct Beside {
    /// Where it notes that a snapshot is being installed.
    host: Arc<dyn Host>,
    wal: Arc<dyn Journal>,
}

/// Drives the machine; the only caller of [`Machine::apply`].
pub(crate) struct StateMachine {
    machine: Arc<dyn Machine>,
    /// One caller at a time.
    turn: Turn,
    /// In a group of several.
    beside: Option<Beside>,
    applied: Option<Id>,
    members: StoredMembers,
    checkpoint: Checkpoint,
}

impl StateMachine {
    /// `durable` is what the machine holds.
    pub(crate) fn new(machine: Arc<dyn Machine>, durable: Option<Mark>) -> Self {
        let members = durable.as_ref().map(|mark| mark.members.clone()).unwrap_or_default();
        let applied = durable.as_ref().map(|mark| mark.id);
        let checkpoint = Checkpoint::new(durable);
        Self { machine, turn: Turn::default(), beside: None, applied, members, checkpoint }
    }

    /// Lets the machine run beside the library, on a host with threads.
    pub(crate) fn run_beside(&mut self, host: Arc<dyn Host>, wal: Arc<dyn Journal>) {
        self.beside = Some(Beside { host, wal });
    }

    pub(crate) fn turn(&self) -> Turn {
        self.turn.clone()
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        self.checkpoint.clone()
    }

    pub(crate) fn members(&self) -> &StoredMembers {
        &self.members
    }

    /// Applies entries that follow the last applied one, on this thread.
    pub(crate) fn apply_all(
        &mut self,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<usize, MachineFailed> {
        let batch = self.batch(entries);
        let count = batch.len();
        self.machine.apply(batch)?;
        Ok(count)
    }

    fn batch(&mut self, entries: impl IntoIterator<Item = Entry>) -> Vec<Committed> {
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
        batch
    }

    /// Runs `work` on the machine when it is its turn: beside the library, or here.
    async fn run(
        &self,
        work: impl FnOnce(&dyn Machine) -> Result<(), MachineFailed> + Send + 'static,
    ) -> Result<(), MachineFailed> {
        let _turn = self.turn.lock().await;
        if self.beside.as_ref().is_none_or(|beside| !beside.host.threaded()) {
            return work(&*self.machine);
        }
        let machine = self.machine.clone();
        let ran = tokio::task::spawn_blocking(move || work(&*machine)).await;
        ran.unwrap_or_else(|_| Err(MachineFailed("the machine panicked".into())))
    }

    async fn install(&mut self, mark: Mark, handle: Handle) -> Result<(), MachineFailed> {
        let failed = |error: io::Error| MachineFailed(format!("install a snapshot: {error}"));
        let host = self.beside.as_ref().map(|beside| beside.host.clone());
        let (Some(sink), Some(host)) = (handle.0, host) else {
            return Err(MachineFailed("a checkpoint holds no data and cannot be installed".into()));
        };
        host.set_installing(true).map_err(failed)?;
        self.run(move |_| sink.install()).await?;
        (self.applied, self.members) = (Some(mark.id), mark.members.clone());
        tracing::info!(upto = mark.id.index, "installed a snapshot");
        self.checkpoint.set(mark);
        Ok(())
    }
}

fn snapshot(mark: Mark) -> Snapshot<TypeConfig> {
    Snapshot { meta: snapshots::meta(&mark), snapshot: Box::new(Handle(None)) }
}

/// Hands the durable checkpoint to the library.
pub(crate) struct CheckpointReader(Checkpoint);

impl RaftSnapshotBuilder<TypeConfig> for CheckpointReader {
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, StorageError> {
        let mark = self.0.get();
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
        let batch = self.batch(entries);
        let count = batch.len();
        // What is not synced here is not committed yet, whatever the library says: see `log_storage`.
        if let (Some(Beside { wal, .. }), Some(last)) = (&self.beside, batch.last()) {
            let synced = wal.synced(last.index).await;
            synced.map_err(|error| StorageIOError::write_state_machine(AnyError::new(&error)))?;
        }
        let applied = self.run(move |machine| machine.apply(batch)).await;
        applied.map_err(|error| StorageIOError::write_state_machine(AnyError::new(&error)))?;
        Ok(vec![(); count])
    }

    async fn get_snapshot_builder(&mut self) -> CheckpointReader {
        CheckpointReader(self.checkpoint.clone())
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Handle>, StorageError> {
        Ok(Box::new(Handle(None)))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, BasicNode>,
        snapshot: Box<Handle>,
    ) -> Result<(), StorageError> {
        let last = meta.last_log_id.unwrap_or_default();
        let mark = Mark { id: last, members: meta.last_membership.clone() };
        let installed = self.install(mark, *snapshot).await;
        if installed.is_err() {
            self.checkpoint.0.send_modify(|durable| durable.failed = true);
        }
        installed.map_err(|error| {
            StorageIOError::write_snapshot(Some(meta.signature()), AnyError::new(&error)).into()
        })
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<TypeConfig>>, StorageError> {
        Ok(self.checkpoint.get().map(snapshot))
    }
}
