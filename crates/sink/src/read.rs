//! Reads the runs of a closed window in (partition bytewise, offset) order, in bounded memory.
//!
//! Owns: the order, the index of a window's runs and how their bytes are fetched.
//! Leaves to others: what becomes of the records (`produce`).
//!
//! One pass over the headers gives the partitions and, if they fit, all runs. When they do not, the
//! partitions are cut into groups whose runs fit, and each group is found by a pass of its own. A
//! partition with more runs than fit needs no sorting at all: its log order is its offset order.
//!
//! A single run longer than a fetch is read whole: it adds its own length, at most that of one log
//! entry (`ENTRY_BYTES_MAX`). Ids, names and shares of the window's partitions are held while it is
//! encoded. What all that takes says [`Shape::index_bytes`].

use crate::host::{Host, HostError, LogBytes, Place, ScanFrom, TimelineRun};
use crate::plan::weight;
use crate::window::Shape;
use queen_core::run::{self, BadRun, RunHeader};
use queen_core::{PartitionId, QueueId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Runs in memory at a time.
const INDEX_RUNS_MAX: usize = 200_000;
/// Headers asked for at a time.
const PAGE_RUNS: usize = 4096;
/// Bytes of runs fetched at a time, unless a single run is longer.
const FETCH_BYTES: u64 = 8 << 20;
/// Bytes between two runs that are cheaper to read than to skip: a call into the broker and the
/// kernel costs about as much.
const GAP_BYTES: u64 = 8 << 10;
/// Most bytes read in one go when some of them are not wanted.
const STRETCH_BYTES: u64 = 1 << 20;

/// Memory that a partition takes in the index, bytes: id, number, share, name, table slots.
const PARTITION_BYTES: u64 = 112;
/// Memory of headers and names on their way, bytes.
const PAGE_BYTES: u64 = 1 << 20;

/// Reading failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The host could not.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A run is damaged.
    #[error("the queue's log at segment {} byte {}: {what}", .place.segment, .place.at)]
    Damaged {
        /// Where.
        place: Place,
        /// How.
        what: String,
    },
    /// This node cannot open an encrypted payload.
    #[error("the payload at offset {offset} of partition {partition:?} {why}")]
    Sealed {
        /// Partition's name.
        partition: String,
        /// Its offset.
        offset: u64,
        /// Why, and what to do.
        why: String,
    },
    /// The compressor, or who takes the bytes, ended early.
    #[error("{0}")]
    Output(#[from] std::io::Error),
}

/// The part of a log that holds a window.
#[derive(Clone)]
pub struct Source {
    /// The broker.
    pub host: Arc<dyn Host>,
    /// Queue incarnation.
    pub queue: QueueId,
    /// Where the first run begins.
    pub from: Place,
    /// Where the last run ends.
    pub to: Place,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    rank: u32,
    len: u32,
    place: Place,
    first: u64,
}

impl Entry {
    fn end(&self) -> u64 {
        self.place.at + u64::from(self.len)
    }
}

/// What a partition has in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    runs: u64,
    records: u64,
}

/// A partition's name.
#[derive(Clone, Copy, Debug)]
struct Name {
    /// Where it lies in the text of all names.
    at: usize,
    len: u32,
    /// Which partition it was in the order in which the scan met them.
    met: u32,
}

/// Partitions in a window, in order of their names.
pub struct WindowIndex {
    source: Source,
    text: String,
    names: Vec<Name>,
    shares: Vec<Share>,
    /// Rank by partition; only when the runs do not fit.
    ranks: HashMap<PartitionId, u32>,
    entries: Option<Vec<Entry>>,
    index_max: usize,
}

/// What is called with each run: rank, header, frames.
pub type OnRun<'a> = dyn FnMut(u32, &RunHeader, &[u8]) -> Result<(), ReadError> + 'a;

impl Source {
    fn scan(
        &self,
        f: &mut dyn FnMut(&TimelineRun) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let mut from = self.from;
        while from < self.to {
            let page = self.host.timeline(self.queue, ScanFrom::Place(from), PAGE_RUNS)?;
            for run in &page.runs {
                if run.place >= self.to {
                    return Ok(());
                }
                f(run)?;
            }
            if page.end || page.next <= from {
                return Ok(());
            }
            from = page.next;
        }
        Ok(())
    }
}

impl Shape {
    /// Looks at a part of a log of which no more is known.
    pub fn of(source: &Source) -> Result<Shape, ReadError> {
        let mut shape = Shape::default();
        let mut seen = HashSet::new();
        source.scan(&mut |run| {
            shape.runs += 1;
            shape.run_bytes_max = shape.run_bytes_max.max(run.header.run_len());
            shape.weight += weight(run, 0);
            seen.insert(run.header.partition);
            Ok(())
        })?;
        shape.partitions = seen.len() as u64;
        let mut ids: Vec<PartitionId> = seen.into_iter().collect();
        ids.sort_unstable();
        for part in ids.chunks(PAGE_RUNS) {
            let names = source.host.partition_names(source.queue, part)?;
            shape.name_bytes += names.iter().map(|name| name.len() as u64).sum::<u64>();
        }
        Ok(shape)
    }

    /// Most memory of index and fetched runs, bytes.
    pub fn index_bytes(&self) -> u64 {
        let runs = self.run_bytes_max.saturating_mul(self.runs);
        let fetched = self.run_bytes_max.max(FETCH_BYTES.min(runs)) + STRETCH_BYTES.min(runs);
        let batch = self.runs.min(FETCH_BYTES / run::HEADER_BYTES as u64);
        self.runs.min(INDEX_RUNS_MAX as u64) * size_of::<Entry>() as u64
            + batch * (size_of::<u32>() + size_of::<usize>()) as u64
            + self.partitions * PARTITION_BYTES
            + self.name_bytes
            + PAGE_BYTES.min(self.runs.saturating_mul(1024))
            + fetched
    }
}

impl WindowIndex {
    /// Passes over the window's headers.
    pub fn build(source: Source, shape: &Shape) -> Result<WindowIndex, ReadError> {
        WindowIndex::build_within(source, shape, INDEX_RUNS_MAX)
    }

    fn build_within(
        source: Source,
        shape: &Shape,
        index_max: usize,
    ) -> Result<WindowIndex, ReadError> {
        let partitions = shape.partitions as usize;
        let mut met: HashMap<PartitionId, u32> = HashMap::with_capacity(partitions);
        let mut ids: Vec<PartitionId> = Vec::with_capacity(partitions);
        let mut shares: Vec<Share> = Vec::with_capacity(partitions);
        let mut found = Some(Vec::with_capacity(index_max.min(shape.runs as usize)));
        source.scan(&mut |run| {
            let id = run.header.partition;
            let at = *met.entry(id).or_insert_with(|| {
                ids.push(id);
                shares.push(Share::default());
                shares.len() as u32 - 1
            });
            let share = &mut shares[at as usize];
            share.runs += 1;
            share.records += u64::from(run.header.count);
            match &mut found {
                Some(list) if list.len() < index_max => list.push(entry(run, at)),
                _ => found = None,
            }
            Ok(())
        })?;
        let (text, names) = names(&source, &ids, shape)?;
        let mut ranks = vec![0u32; names.len()];
        for (rank, name) in names.iter().enumerate() {
            ranks[name.met as usize] = rank as u32;
        }
        let shares = names.iter().map(|name| shares[name.met as usize]).collect();
        if let Some(entries) = &mut found {
            entries.iter_mut().for_each(|entry| entry.rank = ranks[entry.rank as usize]);
            entries.sort_unstable_by_key(|e| (e.rank, e.first));
            met = HashMap::new();
        } else {
            met.values_mut().for_each(|at| *at = ranks[*at as usize]);
        }
        Ok(WindowIndex { source, text, names, shares, ranks: met, entries: found, index_max })
    }

    /// Number of partitions.
    pub fn partitions(&self) -> usize {
        self.names.len()
    }

    /// Records of the partitions of `ranks`.
    pub fn records(&self, ranks: std::ops::Range<u32>) -> u64 {
        let shares = &self.shares[ranks.start as usize..ranks.end as usize];
        shares.iter().map(|share| share.records).sum()
    }

    /// Name of the partition of this rank.
    pub fn name(&self, rank: u32) -> &str {
        let Name { at, len, .. } = self.names[rank as usize];
        &self.text[at..at + len as usize]
    }

    /// Calls `f` with every run of the partitions of `ranks`, in order.
    pub fn visit(&self, ranks: std::ops::Range<u32>, f: &mut OnRun<'_>) -> Result<(), ReadError> {
        let mut fetcher = Fetcher::new(&self.source);
        if let Some(entries) = &self.entries {
            let start = entries.partition_point(|e| e.rank < ranks.start);
            let end = entries.partition_point(|e| e.rank < ranks.end);
            return fetcher.fetch(&entries[start..end], f);
        }
        let mut at = ranks.start;
        while at < ranks.end {
            let (mut end, mut sum) = (at + 1, self.shares[at as usize].runs);
            while end < ranks.end && sum + self.shares[end as usize].runs <= self.index_max as u64 {
                sum += self.shares[end as usize].runs;
                end += 1;
            }
            self.visit_group(at..end, &mut fetcher, f)?;
            at = end;
        }
        Ok(())
    }

    fn visit_group(
        &self,
        ranks: std::ops::Range<u32>,
        fetcher: &mut Fetcher<'_>,
        f: &mut OnRun<'_>,
    ) -> Result<(), ReadError> {
        let mut entries = Vec::new();
        self.source.scan(&mut |run| {
            let rank = self.ranks.get(&run.header.partition).copied();
            if let Some(rank) = rank.filter(|rank| ranks.contains(rank)) {
                entries.push(entry(run, rank));
                // Only a group of one partition gets here, and that is in order already.
                if entries.len() > self.index_max {
                    fetcher.fetch(&entries, f)?;
                    entries.clear();
                }
            }
            Ok(())
        })?;
        entries.sort_unstable_by_key(|e| (e.rank, e.first));
        fetcher.fetch(&entries, f)
    }
}

fn entry(run: &TimelineRun, rank: u32) -> Entry {
    // A run is shorter than a log entry.
    let len = run.header.run_len() as u32;
    Entry { rank, place: run.place, len, first: run.header.first_offset.0 }
}

/// The names of partitions, all in one text, in order; of equal names the older partition first.
fn names(
    source: &Source,
    ids: &[PartitionId],
    shape: &Shape,
) -> Result<(String, Vec<Name>), ReadError> {
    let mut order: Vec<u32> = (0..ids.len() as u32).collect();
    order.sort_unstable_by_key(|met| ids[*met as usize]);
    let mut text = String::with_capacity(shape.name_bytes as usize);
    let mut names = Vec::with_capacity(ids.len());
    for part in order.chunks(PAGE_RUNS) {
        let asked: Vec<PartitionId> = part.iter().map(|met| ids[*met as usize]).collect();
        let found = source.host.partition_names(source.queue, &asked)?;
        for (met, name) in part.iter().zip(found) {
            names.push(Name { at: text.len(), len: name.len() as u32, met: *met });
            text.push_str(&name);
        }
    }
    let key = |name: &Name| {
        let bytes = &text.as_bytes()[name.at..name.at + name.len as usize];
        (bytes, ids[name.met as usize])
    };
    names.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    Ok((text, names))
}

/// Fetches runs a few MiB at a time, in the order in which they lie.
struct Fetcher<'a> {
    log: Box<dyn LogBytes + 'a>,
    /// The runs, and nothing between them.
    buffer: Vec<u8>,
    /// What is read with others between them goes through here.
    stretch: Vec<u8>,
    order: Vec<u32>,
    at: Vec<usize>,
}

impl Fetcher<'_> {
    fn new(source: &Source) -> Fetcher<'_> {
        Fetcher {
            log: source.host.log(source.queue),
            buffer: Vec::new(),
            stretch: Vec::new(),
            order: Vec::new(),
            at: Vec::new(),
        }
    }

    fn fetch(&mut self, mut entries: &[Entry], f: &mut OnRun<'_>) -> Result<(), ReadError> {
        let all: u64 = entries.iter().map(|entry| u64::from(entry.len)).sum();
        let room = all.min(FETCH_BYTES) as usize;
        while !entries.is_empty() {
            let (mut count, mut bytes) = (0, 0);
            while let Some(entry) = entries.get(count) {
                let sum = bytes + u64::from(entry.len);
                if count > 0 && sum > FETCH_BYTES {
                    break;
                }
                (count, bytes) = (count + 1, sum);
            }
            let (now, later) = entries.split_at(count);
            self.make_room(room.max(bytes as usize));
            self.load(now)?;
            for (entry, at) in now.iter().zip(&self.at) {
                let bytes = &self.buffer[*at..*at + entry.len as usize];
                let (header, frames) = run::decode(bytes).map_err(|err: BadRun| {
                    ReadError::Damaged { place: entry.place, what: err.to_string() }
                })?;
                f(entry.rank, &header, frames)?;
            }
            entries = later;
        }
        Ok(())
    }

    /// One huge run must not keep its room, nor be read beside that of the one before.
    fn make_room(&mut self, room: usize) {
        if self.buffer.len() < room || self.buffer.len() as u64 > FETCH_BYTES {
            self.buffer = Vec::new();
            self.buffer = vec![0; room];
        }
    }

    /// Reads the entries' bytes into the buffer; `at` says where each begins.
    fn load(&mut self, entries: &[Entry]) -> Result<(), ReadError> {
        self.order.clear();
        self.order.extend(0..entries.len() as u32);
        self.order.sort_unstable_by_key(|i| entries[*i as usize].place);
        self.at.clear();
        self.at.resize(entries.len(), 0);
        let (mut done, mut filled) = (0, 0);
        while done < self.order.len() {
            let (count, bytes) = stretch(entries, &self.order[done..]);
            let these = &self.order[done..done + count];
            let start = entries[these[0] as usize].place;
            let wanted: usize = these.iter().map(|i| entries[*i as usize].len as usize).sum();
            let mut at = filled;
            for i in these {
                self.at[*i as usize] = at;
                at += entries[*i as usize].len as usize;
            }
            let into = &mut self.buffer[filled..filled + wanted];
            if bytes == wanted {
                self.log.read(start, into)?;
            } else {
                self.stretch.resize(self.stretch.len().max(bytes), 0);
                self.log.read(start, &mut self.stretch[..bytes])?;
                let mut to = 0;
                for entry in these.iter().map(|i| &entries[*i as usize]) {
                    let (from, len) = ((entry.place.at - start.at) as usize, entry.len as usize);
                    into[to..to + len].copy_from_slice(&self.stretch[from..from + len]);
                    to += len;
                }
            }
            (done, filled) = (done + count, filled + wanted);
        }
        Ok(())
    }
}

/// How many of the next entries are read in one go, and the bytes of that: neighbours, or, a little
/// at a time, such as lie close together.
fn stretch(entries: &[Entry], order: &[u32]) -> (usize, usize) {
    let first = &entries[order[0] as usize];
    let (mut count, mut end, mut dense) = (1, first.end(), true);
    for entry in order[1..].iter().map(|i| &entries[*i as usize]) {
        let near = entry.place.segment == first.place.segment && entry.place.at <= end + GAP_BYTES;
        let still_dense = dense && entry.place.at == end;
        if !near || !still_dense && entry.end() > first.place.at + STRETCH_BYTES {
            break;
        }
        (count, end, dense) = (count + 1, entry.end(), still_dense);
    }
    (count, (end - first.place.at) as usize)
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
