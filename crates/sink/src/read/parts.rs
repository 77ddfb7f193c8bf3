//! Indexing a window, all of it or part by part.
//!
//! Owns: which partitions make a part, and the passes over the headers that find them.
//! Leaves to others: what is done with the runs of a part (`read`).
//! Upholds: `memory-bounded`.

use super::{
    Entry, Key, Name, PAGE_RUNS, PARTITION_BYTES, ReadError, Room, Share, Source, Stamps,
    WindowIndex, entry,
};
use crate::host::{HostError, TimelineRun};
use crate::window::Shape;
use queen_core::PartitionId;
use std::collections::{BTreeSet, HashMap, HashSet};

/// A window, indexed part by part.
pub struct Parts {
    source: Source,
    shape: Shape,
    room: Room,
    /// The part at hand; `None` while another takes its place.
    part: Option<WindowIndex>,
    /// It is the first one.
    at_start: bool,
}

impl Parts {
    /// Stands at the first part.
    pub fn new(source: Source, shape: Shape, room: Room) -> Result<Parts, ReadError> {
        let mut parts = Parts { source, shape, room, part: None, at_start: true };
        parts.part = Some(parts.first()?);
        Ok(parts)
    }

    fn first(&self) -> Result<WindowIndex, ReadError> {
        match WindowIndex::whole(&self.source, &self.shape, self.room)? {
            Some(whole) => Ok(whole),
            None => WindowIndex::behind(&self.source, None, self.room),
        }
    }

    /// The part at hand.
    pub fn part(&self) -> Option<&WindowIndex> {
        self.part.as_ref()
    }

    /// Goes to the next part; `false` at the end.
    pub fn next(&mut self) -> Result<bool, ReadError> {
        let Some(last) = self.part.as_mut().and_then(|part| part.goes_on.take()) else {
            return Ok(false);
        };
        // Two of them do not fit.
        (self.part, self.at_start) = (None, false);
        self.part = Some(WindowIndex::behind(&self.source, Some(&last), self.room)?);
        Ok(true)
    }

    /// Calls `f` with all parts, in order, from the first one on.
    pub fn each(
        &mut self,
        f: &mut dyn FnMut(&WindowIndex) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        if !self.at_start || self.part.is_none() {
            self.part = None;
            self.part = Some(self.first()?);
            self.at_start = true;
        }
        loop {
            if let Some(part) = &self.part {
                f(part)?;
            }
            if !self.next()? {
                return Ok(());
            }
        }
    }
}

impl WindowIndex {
    /// All of a window; `None` when it does not fit. Passes over the headers.
    fn whole(source: &Source, shape: &Shape, room: Room) -> Result<Option<WindowIndex>, ReadError> {
        let expected = shape.partitions.min(room.bytes / PARTITION_BYTES) as usize;
        let mut met: HashMap<PartitionId, u32> = HashMap::with_capacity(expected);
        let mut ids: Vec<PartitionId> = Vec::with_capacity(expected);
        let mut found = Found::new(expected, shape, room);
        source.scan(&mut |run| {
            let id = run.header.partition;
            let at = *met.entry(id).or_insert_with(|| {
                ids.push(id);
                found.shares.push(Share::default());
                ids.len() as u32 - 1
            });
            if room.holds(ids.len(), 0) {
                found.add(run, at);
                return Ok(true);
            }
            Ok(false)
        })?;
        if !room.holds(ids.len(), 0) {
            return Ok(None);
        }
        let Some((text, names)) = names(source, &ids, shape, room)? else { return Ok(None) };
        let mut ranks = vec![0u32; names.len()];
        for (rank, name) in names.iter().enumerate() {
            ranks[name.met as usize] = rank as u32;
        }
        found.shares = names.iter().map(|name| found.shares[name.met as usize]).collect();
        if let Some(entries) = &mut found.entries {
            entries.iter_mut().for_each(|entry| entry.rank = ranks[entry.rank as usize]);
            met = HashMap::new();
        } else {
            met.values_mut().for_each(|at| *at = ranks[*at as usize]);
        }
        Ok(Some(found.index(source, (text, names), met, None)))
    }

    /// The first partitions behind `last` that fit. Passes over the headers twice.
    fn behind(source: &Source, last: Option<&Key>, room: Room) -> Result<WindowIndex, ReadError> {
        let (chosen, more) = choose(source, last, room)?;
        let goes_on = if more { chosen.last().cloned() } else { None };
        let (mut text, mut names) = (String::new(), Vec::with_capacity(chosen.len()));
        let mut ranks: HashMap<PartitionId, u32> = HashMap::with_capacity(chosen.len());
        for (rank, (name, id)) in (0..).zip(&chosen) {
            names.push(Name { at: text.len(), len: name.len() as u32, met: rank });
            text.push_str(name);
            ranks.insert(*id, rank);
        }
        drop(chosen);
        let mut found = Found::new(0, &Shape::default(), room);
        found.shares = vec![Share::default(); names.len()];
        source.scan(&mut |run| {
            if let Some(rank) = ranks.get(&run.header.partition) {
                found.add(run, *rank);
            }
            Ok(true)
        })?;
        Ok(found.index(source, (text, names), ranks, goes_on))
    }
}

/// What a pass over the headers finds.
struct Found {
    shares: Vec<Share>,
    /// `None` when they do not fit.
    entries: Option<Vec<Entry>>,
    runs_max: usize,
    stamps: Stamps,
}

impl Found {
    fn new(partitions: usize, shape: &Shape, room: Room) -> Found {
        Found {
            shares: Vec::with_capacity(partitions),
            entries: Some(Vec::with_capacity(room.runs.min(shape.runs as usize))),
            runs_max: room.runs,
            stamps: None,
        }
    }

    fn add(&mut self, run: &TimelineRun, at: u32) {
        self.shares[at as usize].add(&run.header);
        let stamp = run.header.stamp.0;
        let (first, last) = self.stamps.unwrap_or((stamp, stamp));
        self.stamps = Some((first.min(stamp), last.max(stamp)));
        match &mut self.entries {
            Some(list) if list.len() < self.runs_max => list.push(entry(run, at)),
            _ => self.entries = None,
        }
    }

    fn index(
        mut self,
        source: &Source,
        (text, names): (String, Vec<Name>),
        mut ranks: HashMap<PartitionId, u32>,
        goes_on: Option<Key>,
    ) -> WindowIndex {
        if let Some(entries) = &mut self.entries {
            entries.sort_unstable_by_key(|e| (e.rank, e.first));
            ranks = HashMap::new();
        }
        let Found { shares, entries, runs_max, stamps } = self;
        let source = source.clone();
        WindowIndex { source, text, names, shares, ranks, entries, runs_max, stamps, goes_on }
    }
}

/// The first partitions of a window behind `last` that fit, in order, and whether others come behind them.
fn choose(source: &Source, last: Option<&Key>, room: Room) -> Result<(Vec<Key>, bool), ReadError> {
    let (mut chosen, mut ids) = (BTreeSet::<Key>::new(), HashSet::new());
    // The names are copied once more while the index is made.
    let (mut bytes, mut more) = (0, false);
    let mut unknown = BTreeSet::new();
    let mut look = |unknown: &mut BTreeSet<PartitionId>, ids: &mut HashSet<PartitionId>| {
        let asked: Vec<PartitionId> = std::mem::take(unknown).into_iter().collect();
        let names = source.host.partition_names(source.queue, &asked)?;
        for (id, name) in asked.into_iter().zip(names) {
            let key = (Box::from(&*name), id);
            let behind = last.is_none_or(|last| key > *last);
            if !behind || more && chosen.last().is_some_and(|most| key > *most) {
                continue;
            }
            bytes += name.len();
            ids.insert(id);
            chosen.insert(key);
            while !room.holds(chosen.len(), bytes * 2) {
                let Some((name, id)) = chosen.pop_last() else { break };
                bytes -= name.len();
                ids.remove(&id);
                more = true;
            }
        }
        Ok::<_, HostError>(())
    };
    source.scan(&mut |run| {
        if !ids.contains(&run.header.partition) {
            unknown.insert(run.header.partition);
        }
        if unknown.len() == PAGE_RUNS {
            look(&mut unknown, &mut ids)?;
        }
        Ok(true)
    })?;
    look(&mut unknown, &mut ids)?;
    Ok((chosen.into_iter().collect(), more))
}

/// The names of partitions, all in one text, in order; of equal names the older partition first.
/// `None` when they do not fit.
fn names(
    source: &Source,
    ids: &[PartitionId],
    shape: &Shape,
    room: Room,
) -> Result<Option<(String, Vec<Name>)>, ReadError> {
    let mut order: Vec<u32> = (0..ids.len() as u32).collect();
    order.sort_unstable_by_key(|met| ids[*met as usize]);
    let mut text = String::with_capacity(shape.name_bytes.min(room.bytes) as usize);
    let mut names = Vec::with_capacity(ids.len());
    for part in order.chunks(PAGE_RUNS) {
        let asked: Vec<PartitionId> = part.iter().map(|met| ids[*met as usize]).collect();
        let found = source.host.partition_names(source.queue, &asked)?;
        for (met, name) in part.iter().zip(found) {
            names.push(Name { at: text.len(), len: name.len() as u32, met: *met });
            text.push_str(&name);
        }
        if !room.holds(ids.len(), text.len()) {
            return Ok(None);
        }
    }
    let key = |name: &Name| {
        let bytes = &text.as_bytes()[name.at..name.at + name.len as usize];
        (bytes, ids[name.met as usize])
    };
    names.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    Ok(Some((text, names)))
}
