//! Reads the runs of a closed window in (partition bytewise, offset) order, in bounded memory.
//!
//! Owns: the order, and the index of a window's runs.
//! Leaves to others: how it is made (`parts`), how bytes are fetched (`fetch`), what becomes of the
//! records (`produce`).
//!
//! One pass over the headers gives the partitions and, if they fit, all runs. When the runs do not fit,
//! the partitions are cut into groups whose runs fit, and each group is found by a pass of its own. A
//! partition with more runs than fit needs no sorting at all: its log order is its offset order.
//!
//! When the partitions themselves do not fit, a window is indexed part by part ([`Parts`]): of the
//! partitions behind those of the part before, the first ones by name that fit, and then the same again.
//! Each part costs two passes over the headers and the names of what comes behind it, so as many are
//! taken as the memory allows.
//!
//! A single run longer than a fetch is read whole: it adds its own length, at most that of one log
//! entry (`ENTRY_BYTES_MAX`). What all that takes says [`index_bytes`].

mod fetch;
mod parts;

pub use parts::Parts;

use crate::host::{Host, HostError, Place, ScanFrom, TimelineRun};
use crate::window::Shape;
use fetch::Fetcher;
use queen_core::run::{self, RunHeader};
use queen_core::{PartitionId, QueueId};
use std::collections::HashMap;
use std::sync::Arc;

/// Runs in memory at a time.
const INDEX_RUNS_MAX: usize = 200_000;
/// Headers asked for at a time.
const PAGE_RUNS: usize = 4096;
/// Bytes of runs fetched at a time, unless a single run is longer.
const FETCH_BYTES: u64 = 8 << 20;
/// Most bytes read in one go when some of them are not wanted.
const STRETCH_BYTES: u64 = 1 << 20;

/// Memory that a partition takes in the index, bytes: id, number, share, name, table slots.
const PARTITION_BYTES: u64 = 160;
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    runs: u64,
    /// Records.
    pub records: u64,
    /// Offset of the first of them.
    pub first: u64,
    /// Offset of the last of them.
    pub last: u64,
}

impl Share {
    fn add(&mut self, header: &RunHeader) {
        if self.runs == 0 {
            self.first = header.first_offset.0;
        }
        self.runs += 1;
        self.records += u64::from(header.count);
        self.last = header.end_offset().0.saturating_sub(1);
    }
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

/// A partition in the order of a window: of equal names the older one first.
type Key = (Box<str>, PartitionId);

/// How much of a window is indexed at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Memory for partitions and their names, bytes.
    pub bytes: u64,
    /// Runs.
    pub runs: usize,
}

impl Room {
    /// Room for as many partitions as fit into `bytes`.
    pub fn of(bytes: u64) -> Room {
        Room { bytes, runs: INDEX_RUNS_MAX }
    }

    fn holds(self, partitions: usize, name_bytes: usize) -> bool {
        // One at least: a name is not long.
        partitions <= 1 || partition_bytes(partitions as u64, name_bytes as u64) <= self.bytes
    }
}

fn partition_bytes(partitions: u64, name_bytes: u64) -> u64 {
    partitions * PARTITION_BYTES + name_bytes
}

/// The first and the last stamp among some runs.
pub type Stamps = Option<(u64, u64)>;

/// The partitions of a window, or of a part of it, in order of their names.
pub struct WindowIndex {
    source: Source,
    text: String,
    names: Vec<Name>,
    shares: Vec<Share>,
    /// Rank by partition; only when the runs do not fit.
    ranks: HashMap<PartitionId, u32>,
    entries: Option<Vec<Entry>>,
    runs_max: usize,
    /// Stamps of the first run and the last one.
    pub stamps: Stamps,
    /// The last partition, if others come behind it.
    goes_on: Option<Key>,
}

/// What is called with each run: rank, header, frames.
pub type OnRun<'a> = dyn FnMut(u32, &RunHeader, &[u8]) -> Result<(), ReadError> + 'a;

impl Source {
    /// Calls `f` with each run as long as it says `true`.
    fn scan(
        &self,
        f: &mut dyn FnMut(&TimelineRun) -> Result<bool, ReadError>,
    ) -> Result<(), ReadError> {
        let mut from = self.from;
        while from < self.to {
            let page = self.host.timeline(self.queue, ScanFrom::Place(from), PAGE_RUNS)?;
            for run in &page.runs {
                if run.place >= self.to || !f(run)? {
                    return Ok(());
                }
            }
            if page.end || page.next <= from {
                return Ok(());
            }
            from = page.next;
        }
        Ok(())
    }
}

/// Most memory of index and fetched runs, bytes.
pub fn index_bytes(shape: &Shape, room: Room) -> u64 {
    let runs = shape.run_bytes_max.saturating_mul(shape.runs);
    let fetched = shape.run_bytes_max.max(FETCH_BYTES.min(runs)) + STRETCH_BYTES.min(runs);
    let batch = shape.runs.min(FETCH_BYTES / run::HEADER_BYTES as u64);
    shape.runs.min(room.runs as u64) * size_of::<Entry>() as u64
        + batch * (size_of::<u32>() + size_of::<usize>()) as u64
        + partition_bytes(shape.partitions, shape.name_bytes).min(room.bytes)
        + PAGE_BYTES.min(shape.runs.saturating_mul(1024))
        + fetched
}

impl WindowIndex {
    /// Number of partitions.
    pub fn partitions(&self) -> usize {
        self.names.len()
    }

    /// The partitions' names and shares, in order.
    pub fn shares(&self) -> impl Iterator<Item = (&str, Share)> {
        (0..).zip(&self.shares).map(|(rank, share)| (self.name(rank), *share))
    }

    /// Share of the partition of this rank.
    pub fn share(&self, rank: u32) -> Share {
        self.shares[rank as usize]
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
            while end < ranks.end && sum + self.shares[end as usize].runs <= self.runs_max as u64 {
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
                if entries.len() > self.runs_max {
                    fetcher.fetch(&entries, f)?;
                    entries.clear();
                }
            }
            Ok(true)
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

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
