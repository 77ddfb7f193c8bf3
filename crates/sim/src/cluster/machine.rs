//! The simulated broker as the log drives it, and its snapshots.
//!
//! Owns: the adapter, the bytes of a snapshot (`index u64 | mark length u32 | mark | image`). Leaves to
//! others: applying (`broker`), images (`image`).

use super::broker::Broker;
use super::disk::Checkpoint;
use super::image;
use bytes::Bytes;
use queen_raft::{Committed, Machine, MachineFailed, SnapshotSink, SnapshotSource};
use std::io;
use std::sync::{Arc, Weak};

/// Bytes of a piece: small, so that there are many.
const PIECE: usize = 4 << 10;

/// See the module's header.
pub struct Driven(pub Arc<Broker>);

impl Machine for Driven {
    fn applied(&self) -> Option<Vec<u8>> {
        self.0.mark()
    }

    fn apply(&self, entries: Vec<Committed>) -> Result<(), MachineFailed> {
        entries.iter().try_for_each(|entry| self.0.apply_one(entry))
    }

    fn leadership(&self, term: Option<u64>) {
        self.0.leads(term);
    }

    fn snapshot(&self) -> Result<Box<dyn SnapshotSource>, MachineFailed> {
        let none = || MachineFailed("there is no checkpoint yet".into());
        let Checkpoint { store, index, mark } = self.0.durable().ok_or_else(none)?;
        let mut bytes = index.to_le_bytes().to_vec();
        bytes.extend((mark.len() as u32).to_le_bytes());
        bytes.extend(&mark);
        bytes.extend(image::encode(&store));
        Ok(Box::new(Outgoing { mark, bytes: bytes.into() }))
    }

    fn receive(&self) -> Result<Box<dyn SnapshotSink>, MachineFailed> {
        Ok(Box::new(Arriving { broker: Arc::downgrade(&self.0), bytes: Vec::new() }))
    }
}

struct Outgoing {
    mark: Vec<u8>,
    bytes: Bytes,
}

impl SnapshotSource for Outgoing {
    fn mark(&self) -> &[u8] {
        &self.mark
    }

    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        let piece = self.bytes.split_to(PIECE.min(self.bytes.len()));
        into.extend_from_slice(&piece);
        Ok(!self.bytes.is_empty())
    }
}

struct Arriving {
    broker: Weak<Broker>,
    bytes: Vec<u8>,
}

impl SnapshotSink for Arriving {
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    fn install(self: Box<Self>) -> Result<(), MachineFailed> {
        let failed = |what: &str| MachineFailed(what.to_owned());
        let broker = self.broker.upgrade().ok_or_else(|| failed("the broker has stopped"))?;
        let short = || failed("the snapshot is cut short");
        let (index, rest) = self.bytes.split_first_chunk::<8>().ok_or_else(short)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (mark, image) = rest.split_at_checked(length).ok_or_else(short)?;
        let store = image::decode(image).map_err(|error| failed(&error.to_string()))?;
        let (index, mark) = (u64::from_le_bytes(*index), mark.to_vec());
        broker.install(Checkpoint { store, index, mark });
        Ok(())
    }
}
