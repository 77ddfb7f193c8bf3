//! The machine's snapshots: images of the store, and what memory knows of it after one came.
//!
//! Owns: bringing all that mirrors the tables up to date once an image took their place. Leaves to
//! others: the image (`queen-store`), carrying it from node to node (`queen-raft`).
//! Upholds: what is known of the queues, the clock and the waiters is that of the image before the
//! next entry is applied.

use crate::broker::Shared;
use parking_lot::Mutex;
use queen_core::row::{LastStampRow, key};
use queen_raft::{MachineFailed, SnapshotSink, SnapshotSource};
use queen_state::StorageError;
use queen_state::step::get;
use queen_store::{Export, Import};
use std::io;
use std::sync::{Arc, Weak};

/// An image on its way out.
pub(crate) struct Outgoing(Export);

impl Outgoing {
    pub(crate) fn begin(shared: &Shared) -> Result<Outgoing, MachineFailed> {
        shared.store.export().map(Outgoing).map_err(|e| MachineFailed(e.to_string()))
    }
}

impl SnapshotSource for Outgoing {
    fn mark(&self) -> &[u8] {
        &self.0.applied().mark
    }

    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        Ok(self.0.read(into)?)
    }
}

/// An image on its way in.
pub(crate) struct Incoming {
    import: Import,
    shared: Weak<Shared>,
    rules: Arc<Mutex<queen_state::Machine>>,
}

impl Incoming {
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        rules: Arc<Mutex<queen_state::Machine>>,
    ) -> Result<Incoming, MachineFailed> {
        let import = shared.store.import().map_err(|e| MachineFailed(e.to_string()))?;
        Ok(Incoming { import, shared: Arc::downgrade(shared), rules })
    }
}

impl SnapshotSink for Incoming {
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        Ok(self.import.write(piece)?)
    }

    fn install(self: Box<Self>) -> Result<(), MachineFailed> {
        let stopped = || MachineFailed("the broker has stopped".to_owned());
        let shared = self.shared.upgrade().ok_or_else(stopped)?;
        self.import.install().map_err(|e| MachineFailed(e.to_string()))?;
        *self.rules.lock() = queen_state::Machine::new();
        shared.counters.snapshots.add(1);
        shared.reload().map_err(|e| MachineFailed(e.to_string()))
    }
}

impl Shared {
    /// Everything that mirrors the tables looks at them again, and whoever waits is woken.
    fn reload(&self) -> Result<(), StorageError> {
        let view = self.store.read();
        self.sealing.load(&view)?;
        self.switches.load(&view)?;
        let last = get::<LastStampRow>(&view, key::META_LAST_STAMP)?;
        drop(view);
        self.proposer.seen(last.unwrap_or_default().0);
        // Entries within the image are not applied here one by one: nobody would answer, and that
        // one was not applied does not say that it never will be.
        self.proposer.lose_all();
        self.ticker.all_changed();
        self.parking.all_changed();
        self.following.tell_all_changed();
        self.ephemeral.all_changed();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::keyring::{Keyring, SecretKey};
    use crate::machine::Applier;
    use crate::parking::Spot;
    use crate::{Broker, BrokerOptions};
    use queen_core::command::Configure;
    use queen_core::options::{OptionsPatch, Patch};
    use queen_core::{QueueId, Stamp, TenantId};
    use queen_raft::Machine;
    use std::sync::Arc;

    async fn broker(dir: &std::path::Path) -> Broker {
        let mut options = BrokerOptions::new(dir);
        options.keyring = Keyring::new(Some(&SecretKey::new([7; 32])), &[]).unwrap();
        Broker::start(options).await.unwrap()
    }
    async fn encrypted(broker: &Broker, queue: &str) {
        let patch = OptionsPatch {
            encryption_enabled: Patch::Set(true),
            retention_enabled: Patch::Set(true),
            retention_seconds: Patch::Set(60),
            ..OptionsPatch::default()
        };
        let tenant = TenantId::DEFAULT;
        let command = Configure { tenant, queue, patch, replace: false };
        broker.configure(command).await.unwrap();
    }

    #[tokio::test]
    async fn what_memory_knows_is_that_of_the_image() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (source, target) = (broker(dirs[0].path()).await, broker(dirs[1].path()).await);
        encrypted(&target, "own").await;
        // Its clock is far ahead, and its log longer.
        let ahead = Stamp(source.now().0 + 3_600_000_000);
        source.shared.proposer.seen(ahead);
        for queue in ["one", "two", "three", "four"] {
            encrypted(&source, queue).await;
        }
        source.shared.store.checkpoint().unwrap();
        let shared = &target.shared;
        let sealed = |queue| shared.sealing.is_encrypted(TenantId::DEFAULT, queue);
        assert!(sealed("own") && !sealed("two") && target.now() < ahead);

        let spot = |queue| Spot { queue, group: "g".into(), fixed: false };
        let known = shared.parking.park(spot(Some(QueueId(1)))).unwrap();
        let homeless = shared.parking.park(spot(None)).unwrap();
        let write = target.following().written(QueueId(1));
        let seen = target.following().queues_changed(0).await;
        assert!(!known.rung() && !homeless.rung());

        let from = Applier::new(Arc::downgrade(&source.shared));
        let to = Applier::new(Arc::downgrade(shared));
        let mut out = from.snapshot().unwrap();
        let mut sink = to.receive().unwrap();
        let mut more = true;
        while more {
            let mut piece = Vec::new();
            more = out.read(&mut piece).unwrap();
            sink.write(&piece).unwrap();
        }
        sink.install().unwrap();
        assert_eq!(to.applied().as_deref(), Some(out.mark()));
        assert!(!sealed("own") && sealed("one") && sealed("four"));
        assert!(target.now() > ahead);
        assert!(known.rung() && homeless.rung());
        write.await;
        assert!(target.following().queues_changed(seen).await > seen);
        let queues = target.queues(TenantId::DEFAULT).await.unwrap();
        assert_eq!(queues.len(), 4);
        assert_eq!(
            shared.store.digest().unwrap().differences(&source.shared.store.digest().unwrap()),
            [""; 0]
        );
    }
}
