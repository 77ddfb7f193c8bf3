//! The broker's handle: how a command goes in, and how its state is looked at.

use crate::Class;
use parking_lot::RwLock;
use queen_core::command::Command;
use queen_core::reply::Reply;
use queen_core::{Code, Error, Stamp};
use queen_state::{MemoryStore, StorageError};
use std::sync::Arc;

/// The state as a reader sees it: between two batches, never within one.
pub type View = MemoryStore;

/// A running broker. Cheap to clone.
#[derive(Clone)]
pub struct Broker {
    shared: Arc<Shared>,
}

struct Shared {
    store: RwLock<MemoryStore>,
}

impl Broker {
    /// Has a command logged, committed and applied, and gives its reply. [`Reply::Refused`] comes
    /// back as its error.
    ///
    /// Errors: `Overloaded`, `StorageFull` (nothing written), `NoLeader`, `Retry` (nothing written),
    /// `Timeout`, `OutcomeUnknown` (may be written).
    pub async fn submit(&self, class: Class, command: &Command<'_>) -> Result<Reply, Error> {
        let _ = (class, command.encode());
        Err(Error::new(Code::NoLeader, "this node has no log yet"))
    }

    /// Looks at the state under the read lock; keep it short, and read payloads afterwards.
    pub fn read<T>(&self, look: impl FnOnce(&View) -> Result<T, StorageError>) -> Result<T, Error> {
        look(&self.shared.store.read()).map_err(|e| Error::new(Code::Internal, e.to_string()))
    }

    /// The log clock now: what the next command's stamp will be at least.
    pub fn now(&self) -> Stamp {
        Stamp::ZERO
    }
}
