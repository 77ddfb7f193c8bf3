//! The broker's handle: how a command goes in, and how its state is looked at.

use crate::Class;
use crate::admission::Admission;
use crate::autopilot::Rates;
use crate::counters::Counters;
use crate::ephemeral::Ephemeral;
use crate::following::Following;
use crate::forward::told;
use crate::history::History;
use crate::keyring::Unopened;
use crate::parking::Parking;
use crate::peers::Peers;
use crate::pop::HeldBack;
use crate::proposer::Proposer;
use crate::sealing::Sealing;
use crate::switch::Turned;
use crate::ticker::Ticker;
use crate::waiters::Answered;
use bytes::Bytes;
use parking_lot::Mutex;
use queen_core::command::Command;
use queen_core::envelope::bound_to;
use queen_core::reply::Reply;
use queen_core::{Code, Error, Stamp, TenantId};
use queen_state::StorageError;
use queen_store::{DirLock, ReadGuard, Store};
use std::sync::Arc;
use std::time::Duration;

/// The state as a reader sees it: between two batches, never within one.
pub type View<'a> = ReadGuard<'a>;

/// A running broker. Cheap to clone.
#[derive(Clone)]
pub struct Broker {
    pub(crate) shared: Arc<Shared>,
}

/// What the parts of the broker share.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) proposer: Proposer,
    pub(crate) parking: Parking,
    pub(crate) ephemeral: Ephemeral,
    pub(crate) following: Following,
    pub(crate) sealing: Sealing,
    pub(crate) switches: Turned,
    pub(crate) admission: Admission,
    pub(crate) ticker: Ticker,
    pub(crate) unreadable: HeldBack,
    pub(crate) rates: Rates,
    pub(crate) history: History,
    pub(crate) counters: Arc<Counters>,
    pub(crate) deadline: Duration,
    /// This node's id.
    pub(crate) node_id: u64,
    /// Other nodes may lead.
    pub(crate) clustered: bool,
    /// How the nodes are.
    pub(crate) peers: Peers,
    /// Where the broker's tasks run.
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) stop: tokio::sync::watch::Sender<bool>,
    /// Held until the stop.
    pub(crate) lock: Mutex<Option<DirLock>>,
}

impl Broker {
    /// Has a command logged, committed and applied, and gives its reply. [`Reply::Refused`] comes
    /// back as its error.
    ///
    /// Errors: `Overloaded`, `StorageFull`, `BadRequest` (over the size of an entry), `NoLeader`,
    /// `Retry`: nothing was written. `Timeout`, `OutcomeUnknown`: it may be.
    pub async fn submit(&self, class: Class, command: &Command<'_>) -> Result<Reply, Error> {
        let answered = self.ask(class, command, 256).await?;
        // Whoever takes only the reply has the lease in it.
        if let Some(undelivered) = answered.undelivered {
            undelivered.delivered();
        }
        Ok(answered.reply)
    }

    /// As [`Broker::submit`], with what a pop must be able to give back.
    pub(crate) async fn ask(
        &self,
        class: Class,
        command: &Command<'_>,
        size_hint: usize,
    ) -> Result<Answered, Error> {
        let shared = &*self.shared;
        let entry = Proposer::encode(command, size_hint)?;
        let carried = async {
            match shared.clustered {
                true => self.carry(class, entry).await,
                false => self.propose(class, entry).await,
            }
        };
        tokio::time::timeout(shared.deadline, carried).await.unwrap_or_else(|_| {
            shared.counters.timeouts.add(1);
            let text = format!("not committed within {:?}", shared.deadline);
            Err(Error::new(Code::Timeout, text))
        })
    }

    /// Has a command logged by this node, which is alone.
    async fn propose(&self, class: Class, entry: Vec<u8>) -> Result<Answered, Error> {
        let shared = &*self.shared;
        let permit = shared.admission.admit(class, entry.len(), &shared.counters)?;
        told(shared.proposer.propose(&mut Bytes::from(entry), permit)?.pending.await)
    }

    /// Looks at the state under the read lock; keep it short, and read payloads afterwards.
    pub fn read<T>(
        &self,
        look: impl FnOnce(&View<'_>) -> Result<T, StorageError>,
    ) -> Result<T, Error> {
        let view = self.shared.store.read();
        look(&view).map_err(|e| Error::new(Code::Internal, e.to_string()))
    }

    /// The log clock now: what the next command's stamp will be at least.
    pub fn now(&self) -> Stamp {
        self.shared.proposer.now()
    }

    /// Counts of what was done since the start.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Hears of writes without popping.
    pub fn following(&self) -> &Following {
        &self.shared.following
    }

    /// Appends the payload of an envelope to `into`; on an error `into` is as it was.
    pub fn open_payload(
        &self,
        tenant: TenantId,
        queue: &str,
        partition: &str,
        envelope: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), Unopened> {
        let bound = bound_to(tenant, queue, partition);
        self.shared.sealing.keyring.open(&bound, envelope, into)
    }

    pub(crate) fn parking(&self) -> &Parking {
        &self.shared.parking
    }
}
