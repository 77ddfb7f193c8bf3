//! Turns a window into objects, on an encoding thread.
//!
//! Owns: the walk over a window that feeds the encoder, which records make which object, and what
//! the manifest says of them.
//! Leaves to others: order and bytes of runs (`read`), those of objects (`encode`) and of the list of many
//! partitions (`ranges`), sending (`upload`).
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
use crate::ranges::{self, Joining, RANGES_MAX};
use crate::read::{Parts, ReadError, Room, Source, WindowIndex};
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
    /// Number of the window.
    pub k: u64,
    /// Key without extension (and without the partition's part).
    pub key: String,
    /// Key of the list of its partitions, if they are too many for the manifest.
    pub ranges_key: String,
    /// How it waits for a thread.
    pub kind: Kind,
    /// What is known of its size.
    pub shape: Shape,
    /// How much of it is indexed at a time.
    pub room: Room,
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

/// What an object holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Records.
    Records,
    /// The partitions of a window that has many of them.
    Ranges,
}

/// An object, or a part of one, on its way to the bucket.
#[derive(Debug)]
pub enum Produced {
    /// A whole object; its memory is free when `kept` is dropped.
    Whole {
        /// What it holds.
        holds: Holds,
        /// What the manifest says of it.
        entry: ObjectEntry,
        /// Its bytes.
        kept: Kept,
    },
    /// A larger object: say whether its pieces are wanted.
    Large {
        /// What it holds.
        holds: Holds,
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
    /// What it holds.
    pub holds: Holds,
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
    /// Partitions.
    pub partitions: u64,
    /// The records by partition, in order of names; none when they are too many for the manifest.
    pub ranges: Vec<PartitionRange>,
    joining: Option<Joining>,
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

/// What comes next in a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Records; one object per partition: those of the partition of this rank in the part at hand.
    Records(u32),
    Ranges,
    Nothing,
}

/// What an object was when it was encoded first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Large {
    what: Next,
    encoded: Encoded,
}

/// A walk over a window, object after object in order of their keys; then the list of its partitions,
/// if they are too many for the manifest.
pub struct Walk {
    job: Job,
    parts: Parts,
    to: mpsc::Sender<Produced>,
    next: Next,
    /// The last object, if it did not fit the memory.
    large: Option<Large>,
    /// What the manifest says of the objects so far.
    pub summary: Summary,
}

impl Walk {
    /// Stands at the window's start; objects go down `to`. Blocks.
    pub fn new(job: Job, to: mpsc::Sender<Produced>) -> Result<Walk, ReadError> {
        let parts = Parts::new(job.source.clone(), job.shape, job.room)?;
        let mut summary = Summary::of(job.layout);
        if let (Layout::PerPartition, Some(part)) = (job.layout, parts.part()) {
            summary.see(part);
        }
        let next = match parts.part() {
            Some(part) if part.partitions() > 0 => Next::Records(0),
            _ => Next::Nothing,
        };
        Ok(Walk { job, parts, to, next, large: None, summary })
    }

    /// Encodes the next object; `None` when none is left. Blocks.
    pub fn object(&mut self) -> Result<Option<Object>, ReadError> {
        let what = self.next;
        if what == Next::Nothing {
            return Ok(None);
        }
        let all = self.job.kind == Kind::Ahead;
        let keeping = Keeping { kept: Kept::new(self.job.memory()), all, to: &self.to };
        let first = (what != Next::Ranges).then_some(&mut self.summary);
        let (encoded, Keeping { kept, .. }) =
            encode(&self.job, &mut self.parts, what, keeping, first)?;
        let kept = kept.pieces.is_some().then_some(kept);
        self.large = kept.is_none().then(|| Large { what, encoded: encoded.clone() });
        let holds = if what == Next::Ranges { Holds::Ranges } else { Holds::Records };
        let entry = self.entry(what, &encoded);
        // The next one is found when the pieces of this one are through: they need its part.
        if self.large.is_none() {
            self.go_on()?;
        }
        Ok(Some(Object { holds, entry, kept }))
    }

    /// Passes over an object that did not fit and is not wanted.
    pub fn skip(&mut self) -> Result<(), ReadError> {
        match self.large.take() {
            Some(_) => self.go_on(),
            None => Ok(()),
        }
    }

    /// Encodes the object that did not fit a second time, and sends its pieces. Blocks; while a piece
    /// waits for room, `turn` has no place.
    pub fn pieces(&mut self, turn: &mut Turn) -> Result<(), ReadError> {
        let Some(Large { what, encoded }) = self.large.take() else { return Ok(()) };
        let sent = Sent { to: &self.to, turn };
        let (second, _) = encode(&self.job, &mut self.parts, what, sent, None)?;
        if second != encoded {
            let what = "the bytes changed between two passes over one window";
            return Err(io::Error::other(what).into());
        }
        self.go_on()
    }

    /// Finds what comes after the object at hand.
    fn go_on(&mut self) -> Result<(), ReadError> {
        self.next = match (self.next, self.job.layout) {
            (Next::Records(rank), Layout::PerPartition) => {
                let more =
                    self.parts.part().is_some_and(|part| part.partitions() as u32 > rank + 1);
                if more {
                    Next::Records(rank + 1)
                } else if self.parts.next()? {
                    if let Some(part) = self.parts.part() {
                        self.summary.see(part);
                    }
                    Next::Records(0)
                } else {
                    self.after_records()
                }
            }
            (Next::Records(_), Layout::Merged) => self.after_records(),
            (Next::Ranges | Next::Nothing, _) => Next::Nothing,
        };
        Ok(())
    }

    fn after_records(&mut self) -> Next {
        self.summary.end();
        match self.summary.partitions > RANGES_MAX as u64 {
            true => Next::Ranges,
            false => Next::Nothing,
        }
    }

    fn entry(&self, what: Next, encoded: &Encoded) -> ObjectEntry {
        let job = &self.job;
        let extension = job.spec.encoding.extension();
        let mut entry = ObjectEntry {
            key: format!("{}.{extension}", job.key),
            bytes: encoded.finished.bytes,
            records: self.summary.records,
            sha256: encoded.finished.sha256.clone(),
            partition: None,
            first_offset: None,
            last_offset: None,
        };
        match (what, job.layout, self.parts.part()) {
            (Next::Ranges, ..) => (entry.key, entry.records) = (job.ranges_key.clone(), 0),
            (Next::Records(rank), Layout::PerPartition, Some(part)) => {
                let (name, share) = (part.name(rank), part.share(rank));
                let suffix = partition_suffix(name, share.first, share.last);
                entry.key = format!("{}{suffix}.{extension}", job.key);
                entry.records = share.records;
                entry.partition = Some(name.to_owned());
                entry.first_offset = Some(share.first);
                entry.last_offset = Some(share.last);
            }
            _ => {}
        }
        entry
    }
}

/// Encodes an object; `summary`: of its first pass.
fn encode<P: Pieces>(
    job: &Job,
    parts: &mut Parts,
    what: Next,
    pieces: P,
    mut summary: Option<&mut Summary>,
) -> Result<(Encoded, P), ReadError> {
    let Next::Records(rank) = what else {
        return ranges::encode(job.k, job.layout, parts, pieces);
    };
    let (encoded, pieces) = match (job.layout, parts.part()) {
        (Layout::PerPartition, Some(part)) => {
            let records = part.share(rank).records;
            let mut encoder = ObjectEncoder::new(&job.spec, records, pieces)?;
            feed(job, part, rank..rank + 1, &mut encoder)?;
            encoder.finish()?
        }
        _ => {
            let mut encoder = ObjectEncoder::new(&job.spec, job.shape.records, pieces)?;
            parts.each(&mut |part| {
                if let Some(summary) = &mut summary {
                    summary.see(part);
                }
                feed(job, part, 0..part.partitions() as u32, &mut encoder)
            })?;
            encoder.finish()?
        }
    };
    if let Some(summary) = summary {
        summary.wrapped += encoded.wrapped;
        summary.record_bytes_max = summary.record_bytes_max.max(encoded.record_bytes_max);
    }
    Ok((encoded, pieces))
}

fn feed<P: Pieces>(
    job: &Job,
    part: &WindowIndex,
    ranks: Range<u32>,
    encoder: &mut ObjectEncoder<P>,
) -> Result<(), ReadError> {
    let mut current = None;
    part.visit(ranks, &mut |rank, header, frames| {
        let name = part.name(rank);
        if current != Some(rank) {
            current = Some(rank);
            encoder.partition(name);
        }
        encoder.stamp(header.stamp);
        run(job, name, header, frames, encoder)
    })
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
    fn of(layout: Layout) -> Summary {
        Summary { joining: Some(Joining::new(layout)), ..Summary::default() }
    }

    /// Adds a part of the window, in order.
    fn see(&mut self, part: &WindowIndex) {
        if let Some((first, last)) = part.stamps {
            self.min_ts = Some(self.min_ts.map_or(first, |ts| ts.min(first)));
            self.max_ts = self.max_ts.max(Some(last));
        }
        for (name, share) in part.shares() {
            self.records += share.records;
            let whole = self.joining.as_mut().and_then(|joining| joining.add(name, share));
            self.list(whole);
        }
    }

    /// All parts were added.
    fn end(&mut self) {
        let last = self.joining.as_mut().and_then(Joining::end);
        self.list(last);
    }

    fn list(&mut self, range: Option<PartitionRange>) {
        let Some(range) = range else { return };
        self.partitions += 1;
        match self.partitions <= RANGES_MAX as u64 {
            true => self.ranges.push(range),
            false => self.ranges = Vec::new(),
        }
    }
}
