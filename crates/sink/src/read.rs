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
//! entry (`ENTRY_BYTES_MAX`). The names of the window's partitions are held while it is encoded.

use crate::host::{Host, HostError, Place, ScanFrom, TimelineRun};
use queen_core::run::{self, BadRun, RunHeader};
use queen_core::{PartitionId, QueueId};
use std::collections::HashMap;
use std::sync::Arc;

/// Runs in memory at a time; 48 bytes each.
const INDEX_RUNS_MAX: usize = 200_000;
/// Headers asked for at a time.
const PAGE_RUNS: usize = 4096;
/// Bytes of runs fetched at a time, unless a single run is longer.
const FETCH_BYTES: u64 = 4 << 20;
/// Bytes between two runs that are cheaper to read than to skip.
const GAP_BYTES: u64 = 512;

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
    place: Place,
    len: u64,
    first: u64,
}

/// What a partition has in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    runs: u64,
    records: u64,
}

/// Partitions in a window, in order of their names.
pub struct WindowIndex {
    source: Source,
    names: Vec<(Arc<str>, PartitionId)>,
    shares: Vec<Share>,
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

impl WindowIndex {
    /// Passes over the window's headers.
    pub fn build(source: Source) -> Result<WindowIndex, ReadError> {
        WindowIndex::build_within(source, INDEX_RUNS_MAX)
    }

    fn build_within(source: Source, index_max: usize) -> Result<WindowIndex, ReadError> {
        let mut seen: HashMap<PartitionId, Share> = HashMap::new();
        let mut found: Option<Vec<(PartitionId, Entry)>> = Some(Vec::new());
        source.scan(&mut |run| {
            let share = seen.entry(run.header.partition).or_default();
            share.runs += 1;
            share.records += u64::from(run.header.count);
            if let Some(list) = &mut found {
                if list.len() < index_max {
                    list.push((run.header.partition, entry(run, 0)));
                } else {
                    found = None;
                }
            }
            Ok(())
        })?;
        let mut ids: Vec<PartitionId> = seen.keys().copied().collect();
        ids.sort_unstable();
        let mut names = Vec::with_capacity(ids.len());
        for part in ids.chunks(PAGE_RUNS) {
            let found = source.host.partition_names(source.queue, part)?;
            names.extend(found.into_iter().zip(part.iter().copied()));
        }
        names.sort_unstable_by(|a, b| (a.0.as_bytes(), a.1).cmp(&(b.0.as_bytes(), b.1)));
        let ranks: HashMap<PartitionId, u32> =
            names.iter().enumerate().map(|(rank, (_, id))| (*id, rank as u32)).collect();
        let shares = names.iter().map(|(_, id)| seen[id]).collect();
        let entries = found.map(|list| {
            let ranked = |(id, entry): (PartitionId, Entry)| Entry { rank: ranks[&id], ..entry };
            let mut entries: Vec<Entry> = list.into_iter().map(ranked).collect();
            entries.sort_unstable_by_key(|e| (e.rank, e.first));
            entries
        });
        Ok(WindowIndex { source, names, shares, ranks, entries, index_max })
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
    pub fn name(&self, rank: u32) -> &Arc<str> {
        &self.names[rank as usize].0
    }

    /// Calls `f` with every run of the partitions of `ranks`, in order.
    pub fn visit(&self, ranks: std::ops::Range<u32>, f: &mut OnRun<'_>) -> Result<(), ReadError> {
        let mut fetcher = Fetcher::default();
        if let Some(entries) = &self.entries {
            let start = entries.partition_point(|e| e.rank < ranks.start);
            let end = entries.partition_point(|e| e.rank < ranks.end);
            return fetcher.fetch(&self.source, &entries[start..end], f);
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
        fetcher: &mut Fetcher,
        f: &mut OnRun<'_>,
    ) -> Result<(), ReadError> {
        let mut entries = Vec::new();
        self.source.scan(&mut |run| {
            let rank = self.ranks.get(&run.header.partition).copied();
            if let Some(rank) = rank.filter(|rank| ranks.contains(rank)) {
                entries.push(entry(run, rank));
                // Only a group of one partition gets here, and that is in order already.
                if entries.len() > self.index_max {
                    fetcher.fetch(&self.source, &entries, f)?;
                    entries.clear();
                }
            }
            Ok(())
        })?;
        entries.sort_unstable_by_key(|e| (e.rank, e.first));
        fetcher.fetch(&self.source, &entries, f)
    }
}

fn entry(run: &TimelineRun, rank: u32) -> Entry {
    Entry { rank, place: run.place, len: run.header.run_len(), first: run.header.first_offset.0 }
}

/// Fetches runs a few MiB at a time, neighbours in one read.
#[derive(Default)]
struct Fetcher {
    buffer: Vec<u8>,
    order: Vec<u32>,
    at: Vec<usize>,
}

impl Fetcher {
    fn fetch(
        &mut self,
        source: &Source,
        mut entries: &[Entry],
        f: &mut OnRun<'_>,
    ) -> Result<(), ReadError> {
        while !entries.is_empty() {
            let (mut count, mut bytes) = (0, 0);
            while count < entries.len() && (count == 0 || bytes + entries[count].len <= FETCH_BYTES)
            {
                bytes += entries[count].len;
                count += 1;
            }
            let (now, later) = entries.split_at(count);
            self.load(source, now)?;
            for (entry, at) in now.iter().zip(&self.at) {
                let bytes = &self.buffer[*at..*at + entry.len as usize];
                let (header, frames) = run::decode(bytes).map_err(|err: BadRun| {
                    ReadError::Damaged { place: entry.place, what: err.to_string() }
                })?;
                f(entry.rank, &header, frames)?;
            }
            entries = later;
        }
        if self.buffer.capacity() as u64 > 8 * FETCH_BYTES {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    /// Reads the entries' bytes into the buffer; `at` says where each begins.
    fn load(&mut self, source: &Source, entries: &[Entry]) -> Result<(), ReadError> {
        self.order.clear();
        self.order.extend(0..entries.len() as u32);
        self.order.sort_unstable_by_key(|i| entries[*i as usize].place);
        self.at.clear();
        self.at.resize(entries.len(), 0);
        self.buffer.clear();
        let mut i = 0;
        while i < self.order.len() {
            let start = entries[self.order[i] as usize].place;
            let (begin, mut end) = (self.buffer.len(), start.at);
            while let Some(index) = self.order.get(i).map(|i| *i as usize) {
                let entry = &entries[index];
                if entry.place.segment != start.segment || entry.place.at > end + GAP_BYTES {
                    break;
                }
                self.at[index] = begin + (entry.place.at - start.at) as usize;
                end = entry.place.at + entry.len;
                i += 1;
            }
            self.buffer.resize(begin + (end - start.at) as usize, 0);
            source.host.read(source.queue, start, &mut self.buffer[begin..])?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
