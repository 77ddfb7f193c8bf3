//! Fetching runs in their order, in as few reads as they lie in.
//!
//! Owns: what is read in one go. Leaves to others: which runs, and their order (`read`).

use super::{Entry, FETCH_BYTES, OnRun, ReadError, STRETCH_BYTES, Source};
use crate::host::LogBytes;
use queen_core::run::{self, BadRun};

/// Bytes between two runs that are cheaper to read than to skip: a call into the broker and the
/// kernel costs about as much.
const GAP_BYTES: u64 = 8 << 10;

/// Fetches runs a few MiB at a time, in the order in which they lie.
pub(super) struct Fetcher<'a> {
    log: Box<dyn LogBytes + 'a>,
    /// The runs, and nothing between them.
    buffer: Vec<u8>,
    /// What is read with others between them goes through here.
    stretch: Vec<u8>,
    order: Vec<u32>,
    at: Vec<usize>,
}

impl Fetcher<'_> {
    pub(super) fn new(source: &Source) -> Fetcher<'_> {
        Fetcher {
            log: source.host.log(source.queue),
            buffer: Vec::new(),
            stretch: Vec::new(),
            order: Vec::new(),
            at: Vec::new(),
        }
    }

    pub(super) fn fetch(
        &mut self,
        mut entries: &[Entry],
        f: &mut OnRun<'_>,
    ) -> Result<(), ReadError> {
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
