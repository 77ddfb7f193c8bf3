//! Reading what was claimed: payloads, outside the lock.
//!
//! Owns: finding the runs of a range and reading them in as few pieces as they lie in. Leaves to
//! others: which range (`pop`, `fetch`), the files (`queen-store`).

use crate::broker::{Broker, View};
use crate::sealing::Sealed;
use bytes::Bytes;
use queen_core::envelope::bound_to;
use queen_core::frame::{Frame, Frames};
use queen_core::reply::Claim;
use queen_core::row::{QueueRow, RunRow, key};
use queen_core::run::{self, HEADER_BYTES};
use queen_core::table::Table;
use queen_core::{Code, Error, MessageId, Offset, PartitionId, QueueId, Stamp};
use queen_state::step::{decode, get};
use queen_state::{Place, StorageError, Tables};
use queen_store::LogSlice;

/// Bytes of a claim that are read on the calling thread; more goes to a thread that may block.
const INLINE_BYTES: usize = 512 << 10;
/// Runs this near to each other are read in one piece.
const GAP_BYTES: u64 = 4096;
/// Longest piece of runs that are read together.
const PIECE_BYTES: u64 = 8 << 20;

/// A claimed batch with its messages.
pub struct Delivered {
    /// What was claimed; it ends before the first payload that does not open or cannot be read.
    pub claim: Claim,
    /// That payload, if there is one in what was claimed.
    pub stuck: Option<Sealed>,
    /// Its transaction id.
    pub(crate) stuck_id: Option<String>,
    /// Why the messages behind what was claimed cannot be read: the claim ends before them.
    pub damaged: Option<String>,
    runs: Vec<ReadRun>,
}

/// A run's place in the bytes that were read.
struct ReadRun {
    first: Offset,
    stamp: Stamp,
    /// The run, header included.
    bytes: Bytes,
}

/// One message of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its offset.
    pub offset: Offset,
    /// Stamp of its append.
    pub stamp: Stamp,
    /// What the producer gave.
    pub frame: Frame<'a>,
}

impl Delivered {
    /// The messages, in offset order.
    ///
    /// A damaged frame ends the run it is in; whoever read the runs has checked their sums.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        let (first, end) = (self.claim.first, self.claim.end);
        self.runs.iter().flat_map(move |run| {
            let frames: Frames<'_> = run::frames(&run.bytes);
            (run.first.0..)
                .zip(frames.map_while(Result::ok))
                .skip_while(move |(offset, _)| *offset < first.0)
                .take_while(move |(offset, _)| *offset < end.0)
                .map(|(offset, frame)| Message { offset: Offset(offset), stamp: run.stamp, frame })
        })
    }

    /// Whether no message is in it: the first one does not open or cannot be read.
    pub fn is_empty(&self) -> bool {
        self.claim.first >= self.claim.end
    }

    /// Bytes of the runs read.
    pub fn bytes(&self) -> usize {
        self.runs.iter().map(|run| run.bytes.len()).sum()
    }
}

impl Message<'_> {
    /// The message id, and the transaction id unless the producer gave one.
    pub fn id(&self, partition: PartitionId) -> MessageId {
        let minted = || MessageId::mint(self.stamp, partition, self.offset);
        self.frame.message_id.map_or_else(minted, MessageId)
    }

    /// The transaction id.
    pub(crate) fn transaction_id(&self, partition: PartitionId) -> String {
        let given = self.frame.transaction_id;
        given.map_or_else(|| self.id(partition).to_string(), str::to_owned)
    }
}

/// Runs that lie together: one read.
struct Piece {
    place: Place,
    slice: Result<LogSlice, StorageError>,
    /// For each: first offset, row, position in the piece.
    runs: Vec<(Offset, RunRow, usize)>,
}

/// Reads the messages of claims, in their order.
pub(crate) async fn read_claims(
    broker: &Broker,
    claims: Vec<Claim>,
) -> Result<Vec<Delivered>, Error> {
    let mut bytes = 0;
    let pieces = broker.read(|view| {
        let mut all = Vec::with_capacity(claims.len());
        for claim in claims {
            let runs = runs_of(view, claim.partition, claim.first, claim.end)?;
            bytes += runs.iter().map(|(_, row)| row.run_len() as usize).sum::<usize>();
            let pieces = pieces(view, claim.queue, &runs);
            all.push((claim, pieces));
        }
        Ok(all)
    })?;
    let opener = broker.clone();
    let read = move || -> Result<Vec<Delivered>, StorageError> {
        pieces.into_iter().map(|(claim, pieces)| read_claim(&opener, claim, pieces)).collect()
    };
    let done = if bytes <= INLINE_BYTES {
        read()
    } else {
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|e| Error::new(Code::Internal, format!("a read was cut off: {e}")))?
    };
    done.map_err(|e| Error::new(Code::Internal, e.to_string()))
}

/// A run by its place: queue, partition, first offset, row.
pub(crate) type RunAt = (QueueId, PartitionId, Offset, RunRow);

/// Reads whole runs, each for itself, or says why one cannot be read. Payloads stay sealed.
pub(crate) async fn read_runs(
    broker: &Broker,
    runs: Vec<RunAt>,
) -> Result<Vec<Result<Bytes, String>>, Error> {
    let pieces = broker.read(|view| {
        let pieces = runs.into_iter().map(|(queue, partition, first, row)| {
            (partition, pieces(view, queue, &[(first, row)]))
        });
        Ok(pieces.collect::<Vec<_>>())
    })?;
    let reader = broker.clone();
    let read = move || -> Vec<Result<Bytes, String>> {
        let read = pieces.into_iter().flat_map(|(partition, pieces)| {
            pieces.into_iter().flat_map(|piece| piece.read(&reader, partition)).collect::<Vec<_>>()
        });
        read.map(|(_, read)| read.map(|(bytes, _)| bytes)).collect()
    };
    tokio::task::spawn_blocking(read)
        .await
        .map_err(|e| Error::new(Code::Internal, format!("a read was cut off: {e}")))
}

/// Index rows of the runs that hold any of the offsets from `first` to before `end`.
pub(crate) fn runs_of(
    view: &impl Tables,
    partition: PartitionId,
    first: Offset,
    end: Offset,
) -> Result<Vec<(Offset, RunRow)>, StorageError> {
    if first >= end {
        return Ok(Vec::new());
    }
    let from = key::run(partition, Offset(0));
    let after = key::run(partition, first.plus(1));
    let mut rows = view.scan_back(Table::Run, &from, &after, 1)?;
    let most = usize::try_from(end.0 - first.0).unwrap_or(usize::MAX);
    rows.extend(view.scan(Table::Run, &after, &key::run(partition, end), most)?);
    let mut runs = Vec::with_capacity(rows.len());
    for (key, value) in rows {
        let row: RunRow = decode(&key, &value)?;
        if let Some((_, at)) = key::run_parts(&key).filter(|(_, at)| row.end(*at) > first) {
            runs.push((at, row));
        }
    }
    Ok(runs)
}

fn pieces(view: &View<'_>, queue: QueueId, runs: &[(Offset, RunRow)]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = runs;
    while let Some((_, head)) = rest.first() {
        let (start, mut end) = (head.position, head.position + head.run_len());
        let together = rest.iter().skip(1).take_while(|(_, row)| {
            let joins = row.segment == head.segment
                && row.position >= end
                && row.position - end <= GAP_BYTES
                && row.position + row.run_len() - start <= PIECE_BYTES;
            if joins {
                end = row.position + row.run_len();
            }
            joins
        });
        let count = 1 + together.count();
        let place = Place { queue, segment: head.segment, position: start };
        let slice = view.slice(place, (end - start) as usize);
        let at = |row: &RunRow| (row.position - start) as usize;
        let runs = rest[..count].iter().map(|(first, row)| (*first, *row, at(row))).collect();
        pieces.push(Piece { place, slice, runs });
        rest = &rest[count..];
    }
    pieces
}

/// A run's bytes and stamp, or why they cannot be had.
type RunRead = Result<(Bytes, Stamp), String>;

impl Piece {
    /// Each run, as far as its bytes are what was written; why not is known to the store.
    ///
    /// When not all of them can be read at once, each is tried alone: good ones lie before a bad one.
    fn read(self, broker: &Broker, of: PartitionId) -> Vec<(Offset, RunRead)> {
        let Piece { place, slice, runs } = self;
        let store = &broker.shared.store;
        let all = slice.and_then(LogSlice::read);
        let runs = runs.into_iter().map(|(first, row, at)| {
            let place = Place { position: row.position, ..place };
            let len = HEADER_BYTES + row.frames_len as usize;
            let bytes = match &all {
                Ok(all) => Ok(all.slice(at..at + len)),
                Err(_) => store.read().slice(place, len).and_then(LogSlice::read),
            };
            let checked = bytes.map_err(|error| error.to_string()).and_then(|bytes| {
                let found = match run::decode(&bytes) {
                    Ok((header, _)) if (header.partition, header.first_offset) == (of, first) => {
                        return Ok((bytes, header.stamp));
                    }
                    Ok(_) => "another run lies here".to_owned(),
                    Err(bad) => bad.to_string(),
                };
                Err(store.found_damaged(place, found).to_string())
            });
            (first, checked)
        });
        runs.collect()
    }
}

fn read_claim(
    broker: &Broker,
    mut claim: Claim,
    pieces: Vec<Piece>,
) -> Result<Delivered, StorageError> {
    let mut runs = Vec::new();
    for piece in pieces {
        for (first, bytes) in piece.read(broker, claim.partition) {
            let (bytes, stamp) = match bytes {
                Ok(read) => read,
                Err(why) => {
                    claim.end = claim.end.min(first.max(claim.first));
                    let damaged = Some(at_offset(&claim, &why));
                    return Ok(Delivered { claim, stuck: None, stuck_id: None, damaged, runs });
                }
            };
            let sealing = &broker.shared.sealing;
            let owner = || owner(broker, &claim);
            let bound =
                || owner().map(|row| bound_to(row.tenant, &row.name, &claim.partition_name));
            let opened = sealing.open_run(&bytes, claim.first..claim.end, first, bound)?;
            let Some(opened) = opened else {
                runs.push(ReadRun { first, stamp, bytes });
                continue;
            };
            runs.push(ReadRun { first, stamp, bytes: opened.bytes });
            if let Some((offset, why)) = opened.stuck {
                let (queue, partition) = (owner()?.name, claim.partition_name.to_string());
                let sealed = Sealed { queue, partition, offset, why };
                sealing.tell(claim.queue, &sealed);
                let frame = run::frames(&bytes).nth((offset.0 - first.0) as usize);
                let message =
                    frame.and_then(Result::ok).map(|f| Message { offset, stamp, frame: f });
                let stuck_id = message.map(|message| message.transaction_id(claim.partition));
                claim.end = offset;
                return Ok(Delivered { claim, stuck: Some(sealed), stuck_id, damaged: None, runs });
            }
        }
    }
    Ok(Delivered { claim, stuck: None, stuck_id: None, damaged: None, runs })
}

/// The queue of a claim.
fn owner(broker: &Broker, claim: &Claim) -> Result<QueueRow, StorageError> {
    let row = get::<QueueRow>(&broker.shared.store.read(), &key::queue(claim.queue))?;
    row.ok_or_else(|| StorageError(format!("queue {} is gone", claim.queue)))
}

/// Why nothing behind the end of a claim is delivered.
fn at_offset(claim: &Claim, why: &str) -> String {
    let Claim { partition_name, end, .. } = claim;
    format!("partition {partition_name:?}: the message at offset {end} cannot be read: {why}")
}
