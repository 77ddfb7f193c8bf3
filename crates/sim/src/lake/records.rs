//! All records of a lake held against what was accepted.
//!
//! Owns: once each, gapless, the right bytes. Leaves to others: windows and objects (`window`).

use super::fault::{Fault, Kind};
use super::line::{Line, on_one_line};
use super::manifest::LostEntry;
use std::collections::{BTreeMap, HashMap};

/// A record that a push answered 201 promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Queue name.
    pub queue: String,
    /// Partition name.
    pub partition: String,
    /// The answered offset.
    pub offset: u64,
    /// The answered transaction id.
    pub transaction_id: String,
    /// The producer's payload bytes.
    pub payload: Vec<u8>,
}

/// A record of a push that got no answer: it may be in the lake or not, once if it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Queue name.
    pub queue: String,
    /// Partition name.
    pub partition: String,
    /// The producer's transaction id.
    pub transaction_id: String,
    /// The producer's payload bytes.
    pub payload: Vec<u8>,
}

/// What a lake must hold. One tenant's; `tenant` is its id as text.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// Tenant id.
    pub tenant: String,
    /// Must be there.
    pub accepted: Vec<Accepted>,
    /// May be there.
    pub unanswered: Vec<Unanswered>,
}

impl Expected {
    /// Nothing yet, of the default tenant.
    pub fn new() -> Expected {
        let tenant = queen_core::TenantId::DEFAULT.to_string();
        Expected { tenant, ..Expected::default() }
    }
}

/// The lines of one queue, with the key of the manifest they came by.
pub struct QueueLines {
    /// Queue name.
    pub queue: String,
    /// Lines in window order.
    pub lines: Vec<Line>,
    /// Ranges that are in no object.
    pub lost: Vec<LostEntry>,
}

/// Tells which records are missing, there twice, unknown, or not as pushed.
pub fn check(queues: &[QueueLines], expected: &Expected, faults: &mut Vec<Fault>) {
    type ByOffset<'a> = BTreeMap<(&'a str, u64), Vec<&'a Line>>;
    let mut lake: BTreeMap<&str, ByOffset<'_>> = BTreeMap::new();
    for queue in queues {
        let records = lake.entry(&queue.queue).or_default();
        for line in &queue.lines {
            records.entry((&line.partition, line.offset)).or_default().push(line);
        }
        once(&queue.queue, records, &queue.lost, faults);
        listed_once(&queue.queue, &queue.lost, faults);
        gapless(&queue.queue, records, &queue.lost, faults);
    }
    let mut accepted: HashMap<(&str, &str, u64), &Accepted> = HashMap::new();
    for want in &expected.accepted {
        accepted.insert((&want.queue, &want.partition, want.offset), want);
        let there = lake.get(want.queue.as_str());
        let there = there.and_then(|q| q.get(&(want.partition.as_str(), want.offset)));
        let lost = queues.iter().filter(|q| q.queue == want.queue).any(|q| {
            let mut ranges = q.lost.iter();
            ranges.any(|l| l.partition == want.partition && (l.from..=l.to).contains(&want.offset))
        });
        if there.is_none() && !lost {
            let at = format!("{:?} {:?} offset {}", want.queue, want.partition, want.offset);
            faults.push(Fault::new(Kind::RecordLost, at, "answered 201, in no object"));
        }
    }
    let mut open: HashMap<(&str, &str, &str), &Unanswered> = HashMap::new();
    for maybe in &expected.unanswered {
        open.insert((&maybe.queue, &maybe.partition, &maybe.transaction_id), maybe);
    }
    for (queue, records) in &lake {
        for ((partition, offset), lines) in records {
            let at = format!("{queue:?} {partition:?} offset {offset}");
            for line in lines {
                match accepted.get(&(queue, partition, *offset)) {
                    Some(want) => same(&at, line, &want.transaction_id, &want.payload, faults),
                    // Taken out: a second record of the same push is one too many.
                    None => {
                        match open.remove(&(*queue, *partition, line.transaction_id.as_str())) {
                            Some(maybe) => {
                                same(&at, line, &maybe.transaction_id, &maybe.payload, faults);
                            }
                            None => {
                                let what = format!("transaction id {:?}", line.transaction_id);
                                faults.push(Fault::new(Kind::RecordUnknown, &at, what));
                            }
                        }
                    }
                }
            }
        }
    }
}

fn once(
    queue: &str,
    records: &BTreeMap<(&str, u64), Vec<&Line>>,
    lost: &[LostEntry],
    faults: &mut Vec<Fault>,
) {
    for ((partition, offset), lines) in records {
        if lines.len() > 1 {
            let at = format!("{queue:?} {partition:?} offset {offset}");
            let what = format!("{} times in the lake", lines.len());
            faults.push(Fault::new(Kind::RecordDuplicated, at, what));
        }
        let listed = |l: &&LostEntry| l.partition == *partition && (l.from..=l.to).contains(offset);
        if lost.iter().any(|l| listed(&l)) {
            let at = format!("{queue:?} {partition:?} offset {offset}");
            let what = "in the lake, and listed as lost";
            faults.push(Fault::new(Kind::LossUntrue, at, what));
        }
    }
}

/// Holds the lists of loss against one another.
fn listed_once(queue: &str, lost: &[LostEntry], faults: &mut Vec<Fault>) {
    let mut ranges: Vec<&LostEntry> = lost.iter().collect();
    ranges.sort_by_key(|l| (l.incarnation, &l.partition, l.from));
    let mut before: Option<(u64, &str, u64)> = None;
    for LostEntry { partition, incarnation, from, to } in ranges {
        let same = before.filter(|(id, name, _)| (*id, *name) == (*incarnation, partition));
        if let Some((_, _, last)) = same
            && *from <= last
        {
            let at = format!("{queue:?} {partition:?} offsets {from}..={to}");
            let what = format!("offsets up to {last} are listed already");
            faults.push(Fault::new(Kind::LossRepeated, at, what));
        }
        let last = same.map_or(*to, |(_, _, last)| last.max(*to));
        before = Some((*incarnation, partition, last));
    }
}

fn gapless(
    queue: &str,
    records: &BTreeMap<(&str, u64), Vec<&Line>>,
    lost: &[LostEntry],
    faults: &mut Vec<Fault>,
) {
    let mut before: Option<(&str, u64, &Line)> = None;
    for ((partition, offset), lines) in records {
        let line = lines[0];
        if let Some((last_partition, last, last_line)) = before
            && last_partition == *partition
        {
            let gap = last + 1..*offset;
            let listed = |at: u64| {
                lost.iter().any(|l| l.partition == *partition && (l.from..=l.to).contains(&at))
            };
            let at = || format!("{queue:?} {partition:?} offset {offset}");
            if gap.clone().any(|missing| !listed(missing)) {
                let what = format!("offsets {}..{} are not in the lake", gap.start, gap.end);
                faults.push(Fault::new(Kind::OffsetGap, at(), what));
            }
            if line.stamp < last_line.stamp {
                let what = format!("{} after {}", line.stamp.to_iso(), last_line.stamp.to_iso());
                faults.push(Fault::new(Kind::StampsFall, at(), what));
            }
        }
        before = Some((partition, *offset, line));
    }
}

fn same(at: &str, line: &Line, transaction_id: &str, payload: &[u8], faults: &mut Vec<Fault>) {
    if line.transaction_id != transaction_id {
        let what = format!("{:?} instead of {transaction_id:?}", line.transaction_id);
        faults.push(Fault::new(Kind::TransactionDiffers, at, what));
    }
    let intact =
        if line.as_pushed { line.payload == payload } else { line.payload == on_one_line(payload) };
    if !intact {
        let what = format!("{} bytes instead of {}, or others", line.payload.len(), payload.len());
        faults.push(Fault::new(Kind::PayloadDiffers, at, what));
    }
}
