//! Turns a window into objects, on an encoding thread.
//!
//! Owns: the walk over a window that feeds the encoder, which records make which object, and what
//! the manifest says of them.
//! Leaves to others: order and bytes of runs (`read`), those of objects (`encode`), sending (`upload`).
//! Upholds: `window-is-final`, `memory-bounded`.
//!
//! An object whose compressed bytes fit the memory budget is handed over whole. Of a larger one,
//! hash and length come first (they go into the upload's metadata, which S3 takes only at its
//! start): the walk stops there. If it has to be sent, it is encoded a second time and its pieces are
//! handed over as they are made; while they wait to be sent, others have the place. A window that is
//! encoded ahead of its turn fits or is given up.

use crate::encode::pieces::{Kept, Pieces};
use crate::encode::{Encoded, ObjectEncoder, ObjectSpec, Record, TransactionId};
use crate::layout::{Layout, partition_suffix};
use crate::memory::{Budget, Grant};
use crate::read::{ReadError, Source, WindowIndex};
use crate::turns::{Kind, Turn};
use crate::window::Shape;
use bytes::Bytes;
use queen_core::MessageId;
use queen_core::frame::Frames;
use queen_core::run::RunHeader;
use queen_core::sink::{ObjectEntry, PartitionRange};
use std::io;
use std::ops::Range;
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// What is to be encoded, and how: all of it from the intent.
#[derive(Clone)]
pub struct Job {
    /// The window's part of the log.
    pub source: Source,
    /// How its objects are encoded.
    pub spec: ObjectSpec,
    /// One object, or one per partition.
    pub layout: Layout,
    /// Key without extension (and without the partition's part).
    pub key: String,
    /// How it waits for a thread.
    pub kind: Kind,
    /// What is known of its size.
    pub shape: Shape,
    /// Memory it needs to be encoded, bytes.
    pub working_bytes: u64,
    /// Memory that its manifest needs until it is sent, bytes.
    pub manifest_bytes: u64,
    /// Memory for finished pieces.
    pub budget: Budget,
}

impl Job {
    /// A grant for finished pieces: those of a backfill leave room for queues that keep up.
    fn memory(&self) -> Grant {
        self.budget.sparing(match self.kind {
            Kind::Live => 0,
            Kind::Backfill => self.budget.limit() / 8,
            Kind::Ahead => self.budget.limit() / 4,
        })
    }
}

/// An object, or a part of one, on its way to the bucket.
#[derive(Debug)]
pub enum Produced {
    /// A whole object; its memory is free when `kept` is dropped.
    Whole {
        /// What the manifest says of it.
        entry: ObjectEntry,
        /// Its bytes.
        kept: Kept,
    },
    /// A larger object: say whether its pieces are wanted.
    Large {
        /// What the manifest says of it.
        entry: ObjectEntry,
        /// `true`: they follow as [`Produced::Piece`], in order, and then [`Produced::Same`].
        wanted: oneshot::Sender<bool>,
    },
    /// The next piece of the object announced last.
    Piece(Bytes),
    /// Its pieces were those that had been announced.
    Same,
}

/// An object of a walk.
pub struct Object {
    /// What the manifest says of it.
    pub entry: ObjectEntry,
    /// Its bytes; `None` when they did not fit the memory.
    pub kept: Option<Kept>,
}

/// What the manifest says of the records.
#[derive(Debug, Default)]
pub struct Summary {
    /// Records.
    pub records: u64,
    /// Records whose payload was wrapped.
    pub wrapped: u64,
    /// Longest record, bytes, as its format counts them.
    pub record_bytes_max: u64,
    /// Stamp of the first record.
    pub min_ts: Option<u64>,
    /// Stamp of the last record.
    pub max_ts: Option<u64>,
    /// The records by partition, in order of names.
    pub ranges: Vec<PartitionRange>,
    /// The memory of all that.
    pub memory: Option<Grant>,
}

/// Keeps pieces; fails when nobody waits for them any more, or when all or nothing is wanted and there
/// is no memory.
struct Keeping<'a> {
    kept: Kept,
    all: bool,
    to: &'a mpsc::Sender<Produced>,
}

impl Pieces for Keeping<'_> {
    fn piece(&mut self, piece: Bytes) -> io::Result<()> {
        if self.to.is_closed() {
            return Err(given_up());
        }
        self.kept.piece(piece)?;
        match self.all && self.kept.pieces.is_none() {
            true => Err(io::ErrorKind::OutOfMemory.into()),
            false => Ok(()),
        }
    }
}

/// Sends pieces down the channel; fails when nobody takes them any more. While there is no room for one,
/// this thread waits, and others have the place.
struct Sent<'a> {
    to: &'a mpsc::Sender<Produced>,
    turn: &'a mut Turn,
}

impl Pieces for Sent<'_> {
    fn piece(&mut self, piece: Bytes) -> io::Result<()> {
        match self.to.try_send(Produced::Piece(piece)) {
            Ok(()) => Ok(()),
            // A simulation has room for everything, and must not wait.
            Err(TrySendError::Full(next)) => {
                let sent = self.turn.aside(self.to.send(next));
                Handle::current().block_on(sent).map_err(|_| given_up())
            }
            Err(TrySendError::Closed(_)) => Err(given_up()),
        }
    }
}

/// Nobody takes the objects any more.
pub fn given_up() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the upload was given up")
}

/// A walk over a window, object after object in order of their keys.
pub struct Walk {
    job: Job,
    index: WindowIndex,
    to: mpsc::Sender<Produced>,
    /// The first partition that is in no object yet.
    next: u32,
    /// The last object, if it did not fit the memory.
    large: Option<(Range<u32>, Encoded)>,
    /// What the manifest says of the objects so far.
    pub summary: Summary,
}

impl Walk {
    /// Stands at the window's start; objects go down `to`. Blocks.
    pub fn new(job: Job, to: mpsc::Sender<Produced>) -> Result<Walk, ReadError> {
        let index = WindowIndex::build(job.source.clone(), &job.shape)?;
        let summary = Summary::default();
        Ok(Walk { job, index, to, next: 0, large: None, summary })
    }

    /// Encodes the next object; `None` when none is left. Blocks.
    pub fn object(&mut self) -> Result<Option<Object>, ReadError> {
        let all = self.index.partitions() as u32;
        if self.next >= all {
            return Ok(None);
        }
        let end = match self.job.layout {
            Layout::Merged => all,
            Layout::PerPartition => self.next + 1,
        };
        let ranks = std::mem::replace(&mut self.next, end)..end;
        let mut part = Summary::default();
        part.ranges.reserve_exact(ranks.len());
        let all = self.job.kind == Kind::Ahead;
        let keeping = Keeping { kept: Kept::new(self.job.memory()), all, to: &self.to };
        let (encoded, Keeping { kept, .. }) =
            encode(&self.job, &self.index, ranks.clone(), keeping, &mut part)?;
        let entry = entry(&self.job, &part, &encoded);
        self.summary.add(part);
        let kept = kept.pieces.is_some().then_some(kept);
        self.large = kept.is_none().then_some((ranks, encoded));
        Ok(Some(Object { entry, kept }))
    }

    /// Encodes the object that did not fit a second time, and sends its pieces. Blocks; while a piece
    /// waits for room, `turn` has no place.
    pub fn pieces(&mut self, turn: &mut Turn) -> Result<(), ReadError> {
        let Some((ranks, encoded)) = self.large.take() else { return Ok(()) };
        let (mut again, sent) = (Summary::default(), Sent { to: &self.to, turn });
        let (second, _) = encode(&self.job, &self.index, ranks, sent, &mut again)?;
        if second != encoded {
            let what = "the bytes changed between two passes over one window";
            return Err(io::Error::other(what).into());
        }
        Ok(())
    }
}

fn entry(job: &Job, part: &Summary, encoded: &Encoded) -> ObjectEntry {
    let extension = job.spec.encoding.extension();
    let mut entry = ObjectEntry {
        key: format!("{}.{extension}", job.key),
        bytes: encoded.finished.bytes,
        records: part.records,
        sha256: encoded.finished.sha256.clone(),
        partition: None,
        first_offset: None,
        last_offset: None,
    };
    if let (Layout::PerPartition, Some(range)) = (job.layout, part.ranges.first()) {
        let suffix = partition_suffix(&range.partition, range.first_offset, range.last_offset);
        entry.key = format!("{}{suffix}.{extension}", job.key);
        entry.partition = Some(range.partition.clone());
        entry.first_offset = Some(range.first_offset);
        entry.last_offset = Some(range.last_offset);
    }
    entry
}

fn encode<P: Pieces>(
    job: &Job,
    index: &WindowIndex,
    ranks: Range<u32>,
    pieces: P,
    summary: &mut Summary,
) -> Result<(Encoded, P), ReadError> {
    let mut encoder = ObjectEncoder::new(&job.spec, index.records(ranks.clone()), pieces)?;
    let mut current = None;
    index.visit(ranks, &mut |rank, header, frames| {
        let name = index.name(rank);
        if current != Some(rank) {
            current = Some(rank);
            encoder.partition(name);
        }
        encoder.stamp(header.stamp);
        summary.see(name, header);
        run(job, name, header, frames, &mut encoder)
    })?;
    let (encoded, pieces) = encoder.finish()?;
    summary.wrapped = encoded.wrapped;
    summary.record_bytes_max = encoded.record_bytes_max;
    Ok((encoded, pieces))
}

fn run<P: Pieces>(
    job: &Job,
    name: &str,
    header: &RunHeader,
    frames: &[u8],
    encoder: &mut ObjectEncoder<P>,
) -> Result<(), ReadError> {
    let mut opened = Vec::new();
    for (i, frame) in Frames::new(frames).enumerate() {
        let offset = header.first_offset.plus(i as u64);
        let frame = frame.map_err(|err| {
            let what = format!("offset {} of partition {name}: {err}", offset.0);
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        let transaction_id = match (frame.transaction_id, frame.message_id) {
            (Some(own), _) => TransactionId::Own(own),
            (None, Some(promised)) => TransactionId::Minted(promised),
            (None, None) => {
                TransactionId::Minted(MessageId::mint(header.stamp, header.partition, offset).0)
            }
        };
        let payload = if frame.encrypted {
            opened.clear();
            let Source { host, queue, .. } = &job.source;
            host.decrypt(*queue, name, frame.payload, &mut opened).map_err(|why| {
                ReadError::Sealed { partition: name.to_owned(), offset: offset.0, why }
            })?;
            &opened[..]
        } else {
            frame.payload
        };
        encoder.push(&Record { offset: offset.0, transaction_id, payload })?;
    }
    Ok(())
}

impl Summary {
    fn see(&mut self, name: &str, header: &RunHeader) {
        let (first, count) = (header.first_offset.0, u64::from(header.count));
        self.records += count;
        self.min_ts = Some(self.min_ts.map_or(header.stamp.0, |ts| ts.min(header.stamp.0)));
        self.max_ts = Some(self.max_ts.map_or(header.stamp.0, |ts| ts.max(header.stamp.0)));
        match self.ranges.last_mut().filter(|range| range.partition == name) {
            Some(range) => {
                range.last_offset = first + count - 1;
                range.records += count;
            }
            None => self.ranges.push(PartitionRange {
                partition: name.to_owned(),
                first_offset: first,
                last_offset: first + count - 1,
                records: count,
            }),
        }
    }

    fn add(&mut self, part: Summary) {
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        self.records += part.records;
        self.wrapped += part.wrapped;
        self.record_bytes_max = self.record_bytes_max.max(part.record_bytes_max);
        self.min_ts = least(self.min_ts, part.min_ts);
        self.max_ts = self.max_ts.max(part.max_ts);
        match self.ranges.is_empty() {
            true => self.ranges = part.ranges,
            false => self.ranges.extend(part.ranges),
        }
    }
}
