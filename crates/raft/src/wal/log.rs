//! What the log holds: the files in order, the ids of entries, recent entries in memory.
//!
//! Owns: look-up of an entry by index, the bounded cache, reading records back. Leaves to others:
//! changing files (`writer`).
//! Upholds: `no-hole`; an entry that is not yet synced is always in the cache.

use super::format::{self, RECORD_HEADER_BYTES, RecordHeader};
use super::segment::Segment;
use super::{EntryId, WalEntry};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Ids by runs: each id holds from its index up to the next one's.
#[derive(Debug, Default)]
pub(crate) struct Terms(VecDeque<EntryId>);

impl Terms {
    /// Notes that `id` is the next entry.
    pub(crate) fn push(&mut self, id: EntryId) {
        if self.0.back().is_none_or(|last| (last.term, last.node) != (id.term, id.node)) {
            self.0.push_back(id);
        }
    }

    fn at(&self, index: u64) -> Option<EntryId> {
        let after = self.0.partition_point(|run| run.index <= index);
        let run = self.0.get(after.checked_sub(1)?)?;
        Some(EntryId { index, ..*run })
    }

    fn cut_from(&mut self, from: u64) {
        while self.0.back().is_some_and(|run| run.index >= from) {
            self.0.pop_back();
        }
    }

    fn forget_before(&mut self, index: u64) {
        while self.0.get(1).is_some_and(|next| next.index <= index) {
            self.0.pop_front();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Log {
    /// In order; the last one is written to. Empty only before the very first entry.
    pub(crate) segments: VecDeque<Segment>,
    terms: Terms,
    purged: Option<EntryId>,
    last: Option<EntryId>,
    /// First index that can be read.
    first: u64,
    /// Everything before this index is synced.
    synced: u64,
    cache: VecDeque<WalEntry>,
    cached_bytes: usize,
    cache_bytes_max: usize,
}

impl Log {
    pub(crate) fn new(segments: VecDeque<Segment>, terms: Terms, cache_bytes_max: usize) -> Self {
        let purged = segments.front().and_then(|first| first.header.previous);
        let next = segments.back().map_or(0, Segment::next);
        let last = match next.checked_sub(1) {
            Some(index) if purged.is_none_or(|purged| purged.index < index) => terms.at(index),
            _ => purged,
        };
        Self {
            first: segments.front().map_or(0, |first| first.header.first),
            segments,
            terms,
            purged,
            last,
            synced: next,
            cache: VecDeque::new(),
            cached_bytes: 0,
            cache_bytes_max,
        }
    }

    pub(crate) fn purged(&self) -> Option<EntryId> {
        self.purged
    }

    pub(crate) fn last(&self) -> Option<EntryId> {
        self.last
    }

    /// Index that the next entry must have.
    pub(crate) fn next(&self) -> u64 {
        self.last.map_or(0, |last| last.index + 1)
    }

    /// First index that can be read.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn id_of(&self, index: u64) -> Option<EntryId> {
        if let Some(purged) = self.purged.filter(|purged| purged.index >= index) {
            return (purged.index == index).then_some(purged);
        }
        if index >= self.next() { None } else { self.terms.at(index) }
    }

    /// Takes entries in memory; they must follow the last one. The very first may have any index.
    pub(crate) fn push(&mut self, entries: &[WalEntry]) -> io::Result<()> {
        for entry in entries {
            let body_bytes = format::body_bytes(&entry.body);
            if self.last.is_none() && self.segments.is_empty() {
                self.first = entry.id.index;
            } else if entry.id.index != self.next() {
                let (index, next) = (entry.id.index, self.next());
                return Err(io::Error::other(format!(
                    "entry {index} cannot follow in the log, which expects {next}"
                )));
            }
            if u32::try_from(body_bytes).is_err() {
                return Err(io::Error::other(format!(
                    "entry {} has {body_bytes} bytes, at most {} fit a record",
                    entry.id.index,
                    u32::MAX
                )));
            }
            self.terms.push(entry.id);
            self.last = Some(entry.id);
            self.cached_bytes += cost(entry);
            self.cache.push_back(entry.clone());
        }
        Ok(())
    }

    /// Everything before this index is synced.
    pub(crate) fn synced(&self) -> u64 {
        self.synced
    }

    /// Notes that everything before `next` is synced, and lets go of old entries.
    pub(crate) fn set_synced(&mut self, next: u64) {
        self.synced = self.synced.max(next);
        while self.cached_bytes > self.cache_bytes_max && self.cache.len() > 1 {
            match self.cache.front() {
                Some(oldest) if oldest.id.index < self.synced => self.drop_oldest(),
                _ => break,
            }
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.cache.pop_front() {
            self.cached_bytes -= cost(&oldest);
        }
    }

    /// Forgets entries up to `upto`; false, and nothing done, when `upto` is after the last entry.
    pub(crate) fn forget(&mut self, upto: EntryId) -> bool {
        if upto.index >= self.next() {
            return false;
        }
        if self.purged.is_none_or(|purged| purged.index < upto.index) {
            self.purged = Some(upto);
            self.first = upto.index + 1;
            self.terms.forget_before(upto.index + 1);
            while self.cache.front().is_some_and(|oldest| oldest.id.index <= upto.index) {
                self.drop_oldest();
            }
        }
        true
    }

    /// Forgets everything: the log goes on behind `after`.
    pub(crate) fn start_anew(&mut self, after: EntryId) {
        self.terms = Terms::default();
        (self.purged, self.last) = (Some(after), Some(after));
        (self.first, self.synced) = (after.index + 1, after.index + 1);
        self.cache.clear();
        self.cached_bytes = 0;
    }

    /// Forgets entries from `from` on, which the caller has removed from the files.
    pub(crate) fn cut_from(&mut self, from: u64) {
        while self.cache.back().is_some_and(|newest| newest.id.index >= from) {
            if let Some(newest) = self.cache.pop_back() {
                self.cached_bytes -= cost(&newest);
            }
        }
        self.last = from.checked_sub(1).and_then(|index| self.id_of(index));
        self.terms.cut_from(from);
        self.synced = self.synced.min(from);
    }

    fn cached(&self, start: u64, end: u64, bytes_left: &mut u64, out: &mut Vec<WalEntry>) {
        let Some(first) = self.cache.front().map(|oldest| oldest.id.index) else { return };
        let skip = start.saturating_sub(first) as usize;
        let few = end.saturating_sub(start) as usize;
        for entry in self.cache.iter().skip(skip).take(few) {
            let bytes = format::record_bytes(entry);
            if bytes > *bytes_left && !out.is_empty() {
                *bytes_left = 0;
                return;
            }
            *bytes_left = bytes_left.saturating_sub(bytes);
            out.push(entry.clone());
        }
    }
}

fn cost(entry: &WalEntry) -> usize {
    size_of::<WalEntry>() + format::record_bytes(entry) as usize
}

/// Bytes of one file that hold entries of a wanted range.
struct Extent {
    file: Arc<File>,
    path: std::path::PathBuf,
    file_id: u32,
    start: u64,
    bytes: usize,
    first: u64,
}

/// See [`super::Wal::read`]. Files are read outside the lock.
pub(crate) fn read(
    log: &Mutex<Log>,
    start: u64,
    end: u64,
    bytes_max: u64,
) -> io::Result<Vec<WalEntry>> {
    let mut out = Vec::new();
    let mut bytes_left = bytes_max;
    let mut at = start;
    loop {
        let extent = {
            let log = log.lock();
            at = at.max(log.first());
            let end = end.min(log.next());
            if at >= end || (bytes_left == 0 && !out.is_empty()) {
                return Ok(out);
            }
            if log.cache.front().is_some_and(|oldest| oldest.id.index <= at) {
                log.cached(at, end, &mut bytes_left, &mut out);
                return Ok(out);
            }
            let stop = log.cache.front().map_or(end, |oldest| end.min(oldest.id.index));
            extent(&log, at, stop, bytes_left.max(1))
        };
        let Some(extent) = extent else {
            return Err(io::Error::other(format!("entry {at} is in no file of the log")));
        };
        let mut bytes = vec![0; extent.bytes];
        extent.file.read_exact_at(&mut bytes, extent.start)?;
        let before = out.len();
        decode_all(&extent, bytes.into(), &mut out)?;
        at += (out.len() - before) as u64;
        bytes_left = bytes_left.saturating_sub(extent.bytes as u64);
    }
}

fn extent(log: &Log, start: u64, end: u64, bytes_max: u64) -> Option<Extent> {
    let after = log.segments.partition_point(|segment| segment.header.first <= start);
    let segment = log.segments.get(after.checked_sub(1)?)?;
    let (from, mut to) = segment.span(start)?;
    for index in start + 1..end {
        match segment.span(index) {
            Some((_, next)) if next - from <= bytes_max => to = next,
            _ => break,
        }
    }
    Some(Extent {
        file: segment.file.clone(),
        path: segment.path.clone(),
        file_id: segment.header.file_id,
        start: from,
        bytes: usize::try_from(to - from).ok()?,
        first: start,
    })
}

/// Every record of `segment` before the index `until`, also those that are purged already.
pub(crate) fn read_segment(segment: &Segment, until: u64) -> io::Result<Vec<WalEntry>> {
    let mut out = Vec::new();
    let first = segment.header.first;
    let Some(last) = until.checked_sub(1).filter(|last| *last >= first) else { return Ok(out) };
    let spans = segment.span(first).zip(segment.span(last));
    let Some(((start, _), (_, end))) = spans else {
        return Err(io::Error::other(format!("entry {last} is in no file of the log")));
    };
    let extent = Extent {
        file: segment.file.clone(),
        path: segment.path.clone(),
        file_id: segment.header.file_id,
        start,
        bytes: usize::try_from(end - start).map_err(io::Error::other)?,
        first,
    };
    let mut bytes = vec![0; extent.bytes];
    extent.file.read_exact_at(&mut bytes, extent.start)?;
    decode_all(&extent, bytes.into(), &mut out)?;
    Ok(out)
}

fn decode_all(extent: &Extent, mut bytes: Bytes, out: &mut Vec<WalEntry>) -> io::Result<()> {
    let mut position = extent.start;
    let mut index = extent.first;
    while !bytes.is_empty() {
        let entry = RecordHeader::decode(&bytes)
            .filter(|header| header.file_id == extent.file_id && header.id.index == index)
            .filter(|header| format::record_is_sound(header, &bytes))
            .and_then(|header| {
                let end = RECORD_HEADER_BYTES + header.length as usize;
                format::decode_body(&header, bytes.slice(RECORD_HEADER_BYTES..end))
                    .map(|entry| (entry, header.record_bytes()))
            });
        let Some((entry, record_bytes)) = entry else {
            let path = extent.path.display();
            let text = format!("the log file {path} is damaged at byte {position} (entry {index})");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        };
        out.push(entry);
        let skip = (record_bytes as usize).min(bytes.len());
        let _ = bytes.split_to(skip);
        position += record_bytes;
        index += 1;
    }
    Ok(())
}
