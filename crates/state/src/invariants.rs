//! Invariants: what every state of the tables upholds, one named function each.
//!
//! Owns: the checks. Leaves to others: calling them (tests, the simulator, a verify command). They
//! read whole tables: not for the path of a command.

use crate::run::Run;
use crate::step::{decode, get, parts, queue_with_id};
use crate::tables::{Row as Entry, StorageError};
use crate::{Reading, group, run};
use queen_core::row::stream::StateValue;
use queen_core::row::transaction_id::TransactionIdExpiryRow;
use queen_core::row::{
    CursorRow, EphemeralRow, GroupRow, PartitionByIdRow, PartitionRow, QueueNameRow, QueueRow,
    RunRow, SegmentRow, StreamPartitionRow, StreamQueryIdRow, StreamQueryRow, TailMark, TimerRow,
    TraceNameRow, TraceRow, TraceTotalsRow, TransactionIdRow, key, stream, timer, trace,
    transaction_id,
};
use queen_core::run::RunHeader;
use queen_core::stream::STATE_ROW_BYTES;
use queen_core::table::Table;
use queen_core::{GroupId, Offset, PartitionId, QueueId, Stamp};
use std::collections::{BTreeMap, BTreeSet};

/// A violated invariant: its name, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: &'static str,
    /// What was found.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

impl std::error::Error for Violation {}

type Checked = Result<(), Violation>;

/// Holds every invariant of this file against a store.
pub fn check_all(store: &impl Reading) -> Checked {
    offsets_gapless(store)?;
    one_live_lease(store)?;
    cursor_never_passes_unsettled(store)?;
    tables_consistent(store)
}

/// Names the invariant in an error.
struct Check(&'static str);

impl Check {
    fn that(&self, holds: bool, what: impl FnOnce() -> String) -> Checked {
        if holds { Ok(()) } else { Err(Violation { invariant: self.0, what: what() }) }
    }

    fn read<T>(&self, read: Result<T, StorageError>) -> Result<T, Violation> {
        read.map_err(|e| Violation { invariant: self.0, what: e.0 })
    }

    fn rows(&self, store: &impl Reading, table: Table) -> Result<Vec<Entry>, Violation> {
        self.read(store.scan(table, &[], &[u8::MAX; 1024], usize::MAX))
    }
}

/// `offsets-gapless`: the runs of a partition follow each other from its log start to its next
/// offset, in stamp order, and the log has at their places what the index says. Below the log start
/// lies what is kept for sinks, in the same order, with gaps.
pub fn offsets_gapless(store: &impl Reading) -> Checked {
    let check = Check("offsets-gapless");
    let mut ends: BTreeMap<PartitionId, (Offset, Stamp)> = BTreeMap::new();
    for (row_key, value) in check.rows(store, Table::Run)? {
        let (id, first) = check.read(parts(Table::Run, &row_key, key::run_parts(&row_key)))?;
        let row: RunRow = check.read(decode(&row_key, &value))?;
        let partition = check.read(crate::step::partition_with_id(store, id))?;
        check.that(partition.is_some(), || format!("run of unknown partition {id}"))?;
        let Some(partition) = partition else { continue };
        let start = partition.row.log_start;
        let (end, after) = ends.get(&id).copied().unwrap_or((Offset(0), Stamp::ZERO));
        let follows = match first < start {
            true => end <= first && row.end(first) <= start,
            false => first == end.max(start),
        };
        check.that(follows, || format!("partition {id}: {first} follows {end} and {start}"))?;
        check.that(row.stamp > after, || format!("partition {id}: stamps fall at {first}"))?;
        ends.insert(id, (row.end(first), row.stamp));
        let run = Run { first, row };
        let len = row.run_len() as usize;
        let bytes = check.read(store.read(run.place(partition.queue), len))?;
        let header = queen_core::run::decode(&bytes).map(|(header, _)| header);
        let same = header.as_ref().is_ok_and(|header: &RunHeader| {
            (header.partition, header.first_offset, header.count) == (id, first, row.count)
                && header.stamp == row.stamp
        });
        check.that(same, || format!("partition {id} at {first}: the log has {header:?}"))?;
    }
    for (row_key, value) in check.rows(store, Table::Partition)? {
        let row: PartitionRow = check.read(decode(&row_key, &value))?;
        let end = ends.get(&row.id).map_or(row.log_start, |(end, _)| row.log_start.max(*end));
        check.that(end == row.next, || format!("partition {} ends at {end}: {row:?}", row.id))?;
    }
    Ok(())
}

/// `one-live-lease`: leases in cursors, `Lease` and `LeaseExpiry` rows are the same set, one per
/// group and partition at most, and no leased partition is ready.
pub fn one_live_lease(store: &impl Reading) -> Checked {
    let check = Check("one-live-lease");
    let (mut leases, mut expiries) = (0, 0);
    for (row_key, value) in check.rows(store, Table::Cursor)? {
        let (group, id) =
            check.read(parts(Table::Cursor, &row_key, key::cursor_parts(&row_key)))?;
        let cursor: CursorRow = check.read(decode(&row_key, &value))?;
        let Some(lease) = cursor.lease else { continue };
        let what = || format!("group {group}, partition {id}: {cursor:?}");
        check.that(cursor.ready.is_none(), what)?;
        // A claim of a stream holds a batch without messages.
        check.that(cursor.next <= lease.end && lease.end <= cursor.delivered, what)?;
        let row = check.read(store.get(Table::Lease, &key::lease(lease.id, group, id)))?;
        check.that(row.is_some(), || format!("no lease row, {}", what()))?;
        let expiry = key::lease_expiry(lease.expires, group, id);
        let row = check.read(store.get(Table::LeaseExpiry, &expiry))?;
        check.that(row.is_some(), || format!("no expiry row, {}", what()))?;
        (leases, expiries) = (leases + 1, expiries + 1);
    }
    let found = check.rows(store, Table::Lease)?.len();
    check.that(found == leases, || format!("{found} lease rows, {leases} leased cursors"))?;
    let found = check.rows(store, Table::LeaseExpiry)?.len();
    check.that(found == expiries, || format!("{found} expiry rows, {expiries} leased cursors"))
}

/// `cursor-never-passes-unsettled`, as far as a state can show it: a cursor is within what was
/// delivered, and that within what was pushed.
pub fn cursor_never_passes_unsettled(store: &impl Reading) -> Checked {
    let check = Check("cursor-never-passes-unsettled");
    for (row_key, value) in check.rows(store, Table::Cursor)? {
        let (group, id) =
            check.read(parts(Table::Cursor, &row_key, key::cursor_parts(&row_key)))?;
        let cursor: CursorRow = check.read(decode(&row_key, &value))?;
        let partition = check.read(crate::step::partition_with_id(store, id))?;
        let what = || format!("group {group}, partition {id}: {cursor:?}, {partition:?}");
        let within = partition.as_ref().is_some_and(|partition| {
            cursor.next <= cursor.delivered && cursor.delivered <= partition.row.next
        });
        check.that(within, what)?;
    }
    Ok(())
}

/// `tables-consistent`: every row has its counterparts.
pub fn tables_consistent(store: &impl Reading) -> Checked {
    let check = Check("tables-consistent");
    names_consistent(&check, store)?;
    tails_consistent(&check, store)?;
    segments_consistent(&check, store)?;
    ready_consistent(&check, store)?;
    every_backlog_is_known(&check, store)?;
    timers_consistent(&check, store)?;
    traces_consistent(&check, store)?;
    streams_consistent(&check, store)?;
    ephemeral_consistent(&check, store)?;
    transactions_consistent(&check, store)
}

/// Every timer has a payload and one place in the order of their tries, and all are counted.
fn timers_consistent(check: &Check, store: &impl Reading) -> Checked {
    let timers = check.rows(store, Table::Timer)?;
    for (row_key, value) in &timers {
        let row: TimerRow = check.read(decode(row_key, value))?;
        let what = || format!("timer {}: {row:?}", row_key.escape_ascii());
        let due = timer::due_key(row.tries, row.number, row_key);
        let due = check.read(store.get(Table::TimerDue, &due))?;
        let payload = check.read(crate::timer::payload(store, row_key))?;
        check.that(due.is_some() && payload.len() == row.payload_len as usize, what)?;
        check.that(row.due <= row.tries, what)?;
    }
    let pending = check.read(crate::timer::all(store))?.pending;
    let found = [Table::TimerDue, Table::TimerPayload].map(|table| check.rows(store, table));
    for rows in found {
        let (rows, timers) = (rows?.len(), timers.len());
        let what = || format!("{timers} timers, {pending} counted, {rows} rows of each");
        check.that(rows == timers && pending == timers as u64, what)?;
    }
    Ok(())
}

/// Each event is found by its message and by each of its names, and the counts are of what there is.
fn traces_consistent(check: &Check, store: &impl Reading) -> Checked {
    let (mut totals, mut names, mut found) = (TraceTotalsRow::default(), BTreeMap::new(), 0);
    for (row_key, value) in check.rows(store, Table::Trace)? {
        let stamp = check.read(parts(Table::Trace, &row_key, trace::stamp_of(&row_key)))?;
        let row: TraceRow = check.read(decode(&row_key, &value))?;
        (totals.events, totals.bytes) = (totals.events + 1, totals.bytes + row.bytes);
        let hash = transaction_id::hash(&row.transaction_id);
        let of_message = trace::at(trace::message(row.partition, hash), stamp);
        let there = check.read(store.get(Table::TraceOfMessage, &of_message))?;
        check.that(there.is_some(), || format!("{row:?} is not found by its message"))?;
        for name in &row.names {
            let named = trace::at(trace::name(row.tenant, name), stamp);
            let there = check.read(store.get(Table::TraceName, &named))?;
            check.that(there.is_some(), || format!("{row:?} is not found by {name:?}"))?;
            let key = trace::count(row.tenant, name);
            let (events, messages) = names.entry(key).or_insert((0, BTreeSet::new()));
            *events += 1;
            messages.insert((row.partition, row.transaction_id.clone()));
            found += 1;
        }
    }
    let row = check.read(get::<TraceTotalsRow>(store, trace::META_TRACES))?.unwrap_or_default();
    check.that(row == totals, || format!("{row:?} of {totals:?}"))?;
    let counts = check.rows(store, Table::TraceNameCount)?;
    check.that(counts.len() == names.len(), || format!("{} names are counted", counts.len()))?;
    for (row_key, value) in counts {
        let row: TraceNameRow = check.read(decode(&row_key, &value))?;
        let counted = names.get(&row_key[..]).map(|(events, of)| (*events, of.len() as u64));
        check.that(counted == Some((row.events, row.messages)), || {
            format!("{row:?}: {counted:?}")
        })?;
    }
    let rows = [Table::TraceOfMessage, Table::TraceName].map(|table| check.rows(store, table));
    let [of_messages, named] = rows;
    let sums = (of_messages?.len() as u64, named?.len());
    check.that(sums == (totals.events, found), || format!("{sums:?} rows lead to events"))
}

/// Each query is found by its id. Of states that queries have, and of partitions of live queues, the rows are
/// counted; all other rows are on their way out.
fn streams_consistent(check: &Check, store: &impl Reading) -> Checked {
    let mut states = BTreeSet::new();
    for (row_key, value) in check.rows(store, Table::StreamQuery)? {
        let row: StreamQueryRow = check.read(decode(&row_key, &value))?;
        let by_id = stream::query_by_id(row.id);
        let named = check.read(get::<StreamQueryIdRow>(store, &by_id))?;
        let same = named.is_some_and(|named| stream::query(named.tenant, &named.name) == row_key);
        check.that(same, || format!("{row:?} is not found by its id"))?;
        check.that(states.insert(row.state), || format!("{row:?} has another's state"))?;
    }
    let by_id = check.rows(store, Table::StreamQueryById)?.len();
    check.that(by_id == states.len(), || format!("{by_id} ids of {} queries", states.len()))?;
    let mut found: BTreeMap<Vec<u8>, (u64, u64)> = BTreeMap::new();
    for (row_key, value) in check.rows(store, Table::StreamState)? {
        let at = stream::state_parts(&row_key).zip(key::run_parts(&row_key));
        let ((state, key), (id, _)) = check.read(parts(Table::StreamState, &row_key, at))?;
        let value = check.read(StateValue::decode(&value).map_err(Into::into))?;
        let counted = found.entry(stream::partition(state, id).to_vec()).or_default();
        counted.0 += 1;
        counted.1 += (key.len() + value.value.len()) as u64 + STATE_ROW_BYTES;
    }
    for (row_key, value) in check.rows(store, Table::StreamPartition)? {
        let row: StreamPartitionRow = check.read(decode(&row_key, &value))?;
        let at = stream::partition_parts(&row_key);
        let (state, id) = check.read(parts(Table::StreamPartition, &row_key, at))?;
        let counted = found.remove(&row_key[..]).unwrap_or_default();
        let queue = match check.read(crate::step::partition_with_id(store, id))? {
            Some(partition) => check.read(queue_with_id(store, partition.queue))?,
            None => None,
        };
        let lives = queue.is_some_and(|queue| queue.row.deleted.is_none());
        let same = counted == (row.rows, row.bytes) && row.rows > 0;
        let what = || format!("state {state:?} of partition {id}: {row:?}, {counted:?}");
        check.that(same || !lives || !states.contains(&state), what)?;
    }
    check.that(found.is_empty(), || format!("{} parts of states are not counted", found.len()))
}

/// Every declared ephemeral queue reads and is counted.
fn ephemeral_consistent(check: &Check, store: &impl Reading) -> Checked {
    let rows = check.rows(store, Table::EphemeralQueue)?;
    for (row_key, value) in &rows {
        check.read(decode::<EphemeralRow>(row_key, value))?;
    }
    let declared = check.read(crate::ephemeral::totals(store))?.declared;
    check.that(declared == rows.len() as u64, || format!("{declared} of {} declared", rows.len()))
}

fn names_consistent(check: &Check, store: &impl Reading) -> Checked {
    for (row_key, value) in check.rows(store, Table::QueueName)? {
        let QueueNameRow(id) = check.read(decode(&row_key, &value))?;
        let queue = check.read(queue_with_id(store, id))?;
        let same = queue.is_some_and(|queue| {
            key::queue_name(queue.row.tenant, &queue.row.name) == row_key
                && queue.row.deleted.is_none()
        });
        check.that(same, || format!("the name of queue {id} leads astray"))?;
    }
    let (mut by_name, mut by_id) = (0, 0);
    for (row_key, value) in check.rows(store, Table::Partition)? {
        let row: PartitionRow = check.read(decode(&row_key, &value))?;
        let known = check.read(get::<PartitionByIdRow>(store, &key::partition_by_id(row.id)))?;
        let same = known.is_some_and(|known| key::partition(known.queue, &known.name) == row_key);
        check.that(same, || format!("partition {} is not found by its id", row.id))?;
        by_name += 1;
    }
    for (row_key, value) in check.rows(store, Table::PartitionById)? {
        let row: PartitionByIdRow = check.read(decode(&row_key, &value))?;
        let queue = check.read(get::<QueueRow>(store, &key::queue(row.queue)))?;
        check.that(queue.is_some(), || format!("partition of unknown queue {}", row.queue))?;
        by_id += 1;
    }
    check.that(by_name == by_id, || format!("{by_name} partitions by name, {by_id} by id"))
}

fn tails_consistent(check: &Check, store: &impl Reading) -> Checked {
    let mut written = 0;
    for (row_key, value) in check.rows(store, Table::Partition)? {
        let row: PartitionRow = check.read(decode(&row_key, &value))?;
        let queue = check.read(parts(Table::Partition, &row_key, key::queue_of(&row_key)))?;
        if row.next > Offset(0) {
            let tail = check.read(store.get(Table::Tail, &key::tail(queue, row.last, row.id)))?;
            check.that(tail.is_some(), || format!("partition {} has no tail row", row.id))?;
            written += 1;
        }
    }
    let tails = check.rows(store, Table::Tail)?.len();
    check.that(tails == written, || format!("{tails} tail rows, {written} written partitions"))
}

fn segments_consistent(check: &Check, store: &impl Reading) -> Checked {
    let mut kept: BTreeMap<(QueueId, u32), u64> = BTreeMap::new();
    for (row_key, value) in check.rows(store, Table::Run)? {
        let (id, _) = check.read(parts(Table::Run, &row_key, key::run_parts(&row_key)))?;
        let row: RunRow = check.read(decode(&row_key, &value))?;
        if let Some(partition) = check.read(crate::step::partition_with_id(store, id))? {
            *kept.entry((partition.queue, row.segment)).or_default() += row.run_len();
        }
    }
    for (row_key, value) in check.rows(store, Table::Segment)? {
        let at = check.read(parts(Table::Segment, &row_key, key::segment_parts(&row_key)))?;
        let row: SegmentRow = check.read(decode(&row_key, &value))?;
        let found = kept.remove(&at).unwrap_or_default();
        let what = || format!("segment {at:?} holds {found} bytes of runs: {row:?}");
        let queue = check.read(queue_with_id(store, at.0))?;
        // Nothing leads into what is pinned of a deleted queue.
        let deleted = queue.as_ref().is_some_and(|queue| queue.row.deleted.is_some());
        let all = row.trimmed + found == row.bytes || deleted && found == 0;
        check.that(all && row.first <= row.last, what)?;
        check.that(queue.is_some_and(|queue| at.1 <= queue.row.last_segment), what)?;
    }
    check.that(kept.is_empty(), || format!("runs in segments without a row: {kept:?}"))
}

fn ready_consistent(check: &Check, store: &impl Reading) -> Checked {
    let mut ready = 0;
    for (row_key, value) in check.rows(store, Table::Cursor)? {
        let (group, id) =
            check.read(parts(Table::Cursor, &row_key, key::cursor_parts(&row_key)))?;
        let cursor: CursorRow = check.read(decode(&row_key, &value))?;
        if let Some(at) = cursor.ready {
            let row = check.read(store.get(Table::Ready, &key::ready(group, at, id)))?;
            check.that(row.is_some(), || format!("group {group}, partition {id}: {cursor:?}"))?;
            ready += 1;
        }
    }
    let rows = check.rows(store, Table::Ready)?.len();
    check.that(rows == ready, || format!("{rows} ready rows, {ready} ready cursors"))
}

/// What a group has still to get is in `Ready`, leased, or after its `scanned` mark.
fn every_backlog_is_known(check: &Check, store: &impl Reading) -> Checked {
    let mut groups: BTreeMap<QueueId, Vec<GroupRow>> = BTreeMap::new();
    let mut ids: Vec<GroupId> = Vec::new();
    for (row_key, value) in check.rows(store, Table::Group)? {
        let queue = check.read(parts(Table::Group, &row_key, key::queue_of(&row_key)))?;
        let row: GroupRow = check.read(decode(&row_key, &value))?;
        ids.push(row.id);
        groups.entry(queue).or_default().push(row);
    }
    for (row_key, value) in check.rows(store, Table::Partition)? {
        let row: PartitionRow = check.read(decode(&row_key, &value))?;
        let queue = check.read(parts(Table::Partition, &row_key, key::queue_of(&row_key)))?;
        for group in groups.get(&queue).into_iter().flatten() {
            if (TailMark { stamp: row.last, partition: row.id }) > group.scanned {
                continue;
            }
            let cursor = check.read(group::cursor(store, group.id, row.id))?;
            let known =
                cursor.is_some_and(|cursor| cursor.lease.is_some() || cursor.ready.is_some());
            let next = check.read(group::position(store, group, &row))?;
            // What waited too long is skipped before retention comes to trim it.
            let skips = check.read(queue_with_id(store, queue))?;
            let dropped = skips.is_some_and(|q| q.row.options.max_wait_time_seconds > 0);
            let what = || format!("group {group:?} misses partition {row:?} at {next}");
            check.that(known || next >= row.next || dropped, what)?;
        }
    }
    for (row_key, _) in check.rows(store, Table::Cursor)? {
        let (id, _) = check.read(parts(Table::Cursor, &row_key, key::cursor_parts(&row_key)))?;
        let known = ids.contains(&id) || check.read(crate::gone::is_group(store, id))?;
        check.that(known, || format!("cursor of unknown group {id}"))?;
    }
    Ok(())
}

/// Every remembered transaction id will be forgotten, and names a message that was pushed.
fn transactions_consistent(check: &Check, store: &impl Reading) -> Checked {
    let mut due: BTreeMap<(PartitionId, u64), Vec<Stamp>> = BTreeMap::new();
    for (row_key, value) in check.rows(store, Table::TransactionIdExpiry)? {
        let found = key::transaction_id_expiry_parts(&row_key);
        let (at, id, _) = check.read(parts(Table::TransactionIdExpiry, &row_key, found))?;
        let TransactionIdExpiryRow(hashes) = check.read(decode(&row_key, &value))?;
        for hash in hashes {
            due.entry((id, u64::from_be_bytes(hash))).or_default().push(at);
        }
    }
    for (row_key, value) in check.rows(store, Table::TransactionId)? {
        let found = key::transaction_id_parts(&row_key);
        let (id, hash) = check.read(parts(Table::TransactionId, &row_key, found))?;
        let TransactionIdRow(places) = check.read(decode(&row_key, &value))?;
        let partition = check.read(crate::step::partition_with_id(store, id))?;
        for place in places {
            let what = || format!("partition {id}: {place:?}");
            let forgotten = due.get(&(id, hash)).is_some_and(|at| at.contains(&place.expires));
            check.that(forgotten, what)?;
            let Some(partition) = &partition else { continue };
            check.that(place.offset < partition.row.next, what)?;
            if place.offset >= partition.row.log_start {
                let run = check.read(run::kept_at(store, id, place.offset))?;
                check.that(run.row.own_ids && run.row.stamp == place.stamp, what)?;
            }
        }
    }
    Ok(())
}
