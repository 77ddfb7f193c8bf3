//! Snapshots on their way between two nodes.
//!
//! Owns: sending one in bounded pieces, receiving one, the checksum over all of it. Leaves to others: what
//! is in it (`Machine`), when one is needed (the library), connections (`net`).

use crate::host::Host;
use crate::machine::{Machine, SnapshotSink};
use crate::mark::Mark;
use crate::message::{self, SnapshotHead, SnapshotSum};
use crate::net::frame::Kind;
use crate::net::link::{Link, LinkError};
use crate::types::{Id, TypeConfig, Vote};
use bytes::Bytes;
use openraft::{BasicNode, Snapshot, SnapshotMeta};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time for one piece to be taken.
const PIECE: Duration = Duration::from_secs(30);
/// Time for a snapshot to be put in place.
const INSTALL: Duration = Duration::from_secs(1800);

/// What the library holds for a snapshot: nothing for this node's own, which is made when it is sent.
pub struct Handle(pub(crate) Option<Box<dyn SnapshotSink>>);

/// What the library is told of the snapshot at `mark`.
pub(crate) fn meta(mark: &Mark) -> SnapshotMeta<u64, BasicNode> {
    SnapshotMeta {
        last_log_id: Some(mark.id),
        last_membership: mark.members.clone(),
        snapshot_id: format!("checkpoint-{}", mark.id),
    }
}

async fn blocking<T: Send + 'static>(
    host: &dyn Host,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if !host.threaded() {
        return work();
    }
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

fn link_error(error: LinkError) -> io::Error {
    io::Error::other(error.to_string())
}

/// Sends a snapshot of `machine` that holds at least the entry `least`. Gives the receiver's answer.
pub(crate) async fn send(
    host: &dyn Host,
    machine: Arc<dyn Machine>,
    link: &Link,
    vote: Vote,
    least: Option<Id>,
) -> io::Result<Bytes> {
    let mut source = blocking(host, move || machine.snapshot().map_err(io::Error::other)).await?;
    let mark = source.mark().to_vec();
    let id = Mark::decode(&mark).map(|mark| mark.id);
    if id < least {
        return Err(io::Error::other("the machine's snapshot is older than its checkpoint"));
    }
    let (head, started) = (SnapshotHead { vote, mark }, Instant::now());
    link.ask(Kind::SnapshotBegin, message::encode(&head), PIECE).await.map_err(link_error)?;
    let (mut sum, mut crc) = (SnapshotSum { bytes: 0, crc: 0 }, crc32fast::Hasher::new());
    loop {
        let (again, piece, more) = blocking(host, move || {
            let mut piece = Vec::new();
            let more = source.read(&mut piece)?;
            Ok((source, piece, more))
        })
        .await?;
        source = again;
        sum.bytes += piece.len() as u64;
        crc.update(&piece);
        if !piece.is_empty() {
            link.ask(Kind::SnapshotPiece, piece.into(), PIECE).await.map_err(link_error)?;
        }
        if !more {
            break;
        }
    }
    sum.crc = crc.finalize();
    let answer = link.ask(Kind::SnapshotEnd, message::encode(&sum), INSTALL).await;
    let took_ms = started.elapsed().as_millis() as u64;
    tracing::info!(upto = id.map(|id| id.index), bytes = sum.bytes, took_ms, "sent a snapshot");
    answer.map_err(link_error)
}

/// A snapshot that is arriving.
pub(crate) struct Arriving {
    vote: Vote,
    mark: Mark,
    sink: Box<dyn SnapshotSink>,
    sum: SnapshotSum,
    crc: crc32fast::Hasher,
}

impl Arriving {
    pub(crate) async fn begin(
        host: &dyn Host,
        machine: Arc<dyn Machine>,
        head: SnapshotHead,
    ) -> io::Result<Self> {
        let mark = Mark::decode(&head.mark);
        let mark = mark.ok_or_else(|| io::Error::other("the snapshot's mark cannot be read"))?;
        let sink = blocking(host, move || machine.receive().map_err(io::Error::other)).await?;
        let sum = SnapshotSum { bytes: 0, crc: 0 };
        tracing::info!(upto = mark.id.index, "a snapshot arrives");
        Ok(Self { vote: head.vote, mark, sink, sum, crc: crc32fast::Hasher::new() })
    }

    pub(crate) async fn piece(mut self, host: &dyn Host, piece: Bytes) -> io::Result<Self> {
        blocking(host, move || {
            self.sum.bytes += piece.len() as u64;
            self.crc.update(&piece);
            self.sink.write(&piece)?;
            Ok(self)
        })
        .await
    }

    /// The whole snapshot, for the library to install.
    pub(crate) fn end(self, sum: SnapshotSum) -> io::Result<(Vote, Snapshot<TypeConfig>)> {
        let came = SnapshotSum { crc: self.crc.finalize(), ..self.sum };
        if came != sum {
            return Err(io::Error::other("the snapshot did not arrive as it was sent"));
        }
        let handle = Handle(Some(self.sink));
        Ok((self.vote, Snapshot { meta: meta(&self.mark), snapshot: Box::new(handle) }))
    }
}
