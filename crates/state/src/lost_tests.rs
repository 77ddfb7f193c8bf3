//! Loss under the rules of retention, deletion, intents and commits, by example and by chance.

use super::*;
use crate::pin;
use crate::timeline::{self, Bounds, LogPosition};
use crate::world::{SECOND, TENANT, World};
use proptest::prelude::*;
use queen_core::command::{Command, KvBatch, QueueRef};
use queen_core::kv::{KvOp, KvOpKind};
use std::collections::{BTreeMap, BTreeSet};

fn put(world: &mut World, key: &str, value: &str) {
    let kind = KvOpKind::Put { key, value, ttl_seconds: None, expect: None };
    let ops = vec![KvOp { ns: SINK_NAMESPACE, kind, required: false }];
    world.apply(&Command::Kv(KvBatch { tenant: TENANT, ops }));
}

fn start(world: &mut World, sink: &str, stamp: u64) {
    let row = Start { stamp, mode: "earliest".into() }.to_json();
    put(world, &row_key(sink, "q", RowKind::Start), &row);
}

fn intent(world: &mut World, sink: &str, queue: QueueId, k: u64, stamps: (u64, u64)) {
    let (from, to) = stamps;
    let row = format!(r#"{{"queueId":{queue},"k":{k},"tStart":{from},"tEnd":{to}}}"#);
    put(world, &row_key(sink, "q", RowKind::Intent), &row);
}

fn commit(world: &mut World, sink: &str, k: u64, t_end: u64) {
    let row = format!(r#"{{"k":{k},"tEnd":{t_end}}}"#);
    put(world, &row_key(sink, "q", RowKind::Committed), &row);
}

fn delete(world: &mut World) {
    world.apply(&Command::DeleteQueue(QueueRef { tenant: TENANT, queue: "q" }));
}

/// A queue that keeps its records for ten seconds.
fn short(world: &mut World) -> QueueId {
    world.configure("q", |options| {
        options.retention_enabled = true;
        options.retention_seconds = 10;
    });
    world.queue_id("q")
}

fn trim(world: &mut World, queue: QueueId) {
    world.sleep(20);
    while world.tick(&[queue]).more {}
}

/// Ranges of a window, a few rows at a time.
fn in_pages(world: &World, sink: &str, k: u64, rows: usize) -> Vec<LostRange> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let page = ranges_from(&world.store, TENANT, sink, ("q", k), from, rows).unwrap();
        assert!(page.found.len() <= rows);
        all.extend(page.found);
        match page.next {
            Some(next) => from = Some(next),
            None => return all,
        }
    }
}

/// Ranges of a window in short: partition, incarnation, first, last.
fn listed(world: &World, sink: &str, k: u64) -> Vec<(String, u32, u64, u64, LossReason)> {
    let ranges = ranges(&world.store, TENANT, sink, "q", k).unwrap();
    for page in 1..4 {
        assert_eq!(in_pages(world, sink, k, page), ranges, "{page} rows a page");
    }
    let short = |r: LostRange| (r.partition, r.incarnation, r.from, r.to, r.reason);
    ranges.into_iter().map(short).collect()
}

fn waits(world: &World, sink: &str, k: u64) -> Option<Waiting> {
    waiting(&world.store, TENANT, sink, "q", k).unwrap()
}

#[test]
fn what_retention_takes_before_a_sink_is_recorded_and_adjacent_ranges_are_one() {
    let mut world = World::new();
    let queue = short(&mut world);
    start(&mut world, "s", 0);
    for _ in 0..3 {
        world.push("q", "a", 2);
        world.push("q", "b", 1);
    }
    trim(&mut world, queue);
    world.push("q", "a", 1);
    trim(&mut world, queue);
    use LossReason::Retention;
    let want = [("a".into(), queue.0, 0, 6, Retention), ("b".into(), queue.0, 0, 2, Retention)];
    assert_eq!(listed(&world, "s", 1), want);
    let found = waits(&world, "s", 1).unwrap();
    assert_eq!((found.ranges, found.records, found.more), (2, 10, false));
    let of = |sink| queues(&world.store, TENANT, sink, None, 9).unwrap().found;
    assert_eq!(of("s"), [("q".to_owned(), queue)]);
    assert_eq!(of("other"), []);
    commit(&mut world, "s", 1, 5);
    assert_eq!((listed(&world, "s", 9), world.rows(Table::Lost)), (vec![], 0));
}

#[test]
fn what_was_committed_or_lies_before_the_start_is_not_lost() {
    let mut world = World::new();
    let queue = short(&mut world);
    world.push("q", "a", 1);
    let from = world.push("q", "a", 1).stamp;
    world.push("q", "a", 1);
    start(&mut world, "late", from.0);
    start(&mut world, "s", 0);
    commit(&mut world, "s", 1, from.0 + 1);
    trim(&mut world, queue);
    let reason = LossReason::Retention;
    assert_eq!(listed(&world, "s", 2), [("a".into(), queue.0, 2, 2, reason)]);
    assert_eq!(listed(&world, "late", 1), [("a".into(), queue.0, 1, 2, reason)]);
}

#[test]
fn loss_after_an_intent_is_for_the_window_after_it() {
    let mut world = World::new();
    let queue = short(&mut world);
    start(&mut world, "s", 0);
    world.push("q", "a", 1);
    trim(&mut world, queue);
    let at = world.now;
    intent(&mut world, "s", queue, 1, (at, at));
    let fixed = listed(&world, "s", 1);
    assert_eq!(fixed.len(), 1);
    world.push("q", "a", 1);
    trim(&mut world, queue);
    assert_eq!(listed(&world, "s", 1), fixed, "a redo lists the same");
    commit(&mut world, "s", 1, at);
    assert_eq!(listed(&world, "s", 1), []);
    assert_eq!(listed(&world, "s", 2), [("a".into(), queue.0, 1, 1, LossReason::Retention)]);
}

#[test]
fn a_sink_of_all_queues_loses_what_goes_before_it_sees_the_queue() {
    let mut world = World::new();
    let on = |stamp, mode: &str| {
        let all = Some(Start { stamp, mode: mode.into() });
        SinkOn { stamp, all }.to_json()
    };
    put(&mut world, &on_key("first"), &on(5, "earliest"));
    put(&mut world, &on_key("named"), &SinkOn { stamp: 5, all: None }.to_json());
    let queue = short(&mut world);
    world.push("q", "a", 1);
    let last = on(world.now + 1, "latest");
    put(&mut world, &on_key("last"), &last);
    world.push("q", "a", 1);
    trim(&mut world, queue);
    let first = |sink| listed(&world, sink, 1).first().map(|range| range.2);
    assert_eq!((first("first"), first("last"), first("named")), (Some(0), Some(1), None));
    assert_eq!(sinks(&world.store, TENANT).unwrap(), ["first", "last", "named"]);
    assert!(is_known(&world.store, TENANT, "named").unwrap());
    assert!(!is_known(&world.store, TENANT, "nam").unwrap());
}

#[test]
fn a_deleted_queue_is_lost_but_for_its_pin_whatever_is_committed_since() {
    let mut world = World::new();
    start(&mut world, "s", 0);
    world.push("q", "a", 1);
    let pinned = world.push("q", "b", 1).stamp.0;
    world.push("q", "a", 2);
    let old = world.queue_id("q");
    commit(&mut world, "s", 1, pinned);
    intent(&mut world, "s", old, 2, (pinned, pinned + 1));
    delete(&mut world);
    let lost = [("a".into(), old.0, 1, 2, LossReason::Deleted)];
    assert_eq!((listed(&world, "s", 2), listed(&world, "s", 3)), (vec![], lost.to_vec()));
    // The next queue of the name; the pinned window's commit lets the old log go.
    world.push("q", "a", 1);
    let now = world.now;
    commit(&mut world, "s", 2, now);
    world.tick_until_done();
    assert_eq!(listed(&world, "s", 3), lost);
    assert_eq!(world.rows(Table::Gone), 0);
}

#[test]
fn an_intent_that_comes_after_the_deletion_pins_nothing() {
    let mut world = World::new();
    start(&mut world, "s", 0);
    let at = world.push("q", "a", 1).stamp.0;
    let old = world.queue_id("q");
    // Another sink keeps the log.
    intent(&mut world, "keeps", old, 1, (at, at + 1));
    delete(&mut world);
    intent(&mut world, "s", old, 1, (at, at + 1));
    assert_eq!(pin::pin_of(old, "s", &world.store).unwrap(), None);
    intent(&mut world, "keeps", old, 1, (at, at + 1));
    assert!(pin::pin_of(old, "keeps", &world.store).unwrap().is_some(), "pinned before");
    commit(&mut world, "keeps", 1, at + 1);
    world.tick_until_done();
    // It was lost in the deletion, before that intent: so its window lists it, and holds nothing.
    assert_eq!(listed(&world, "s", 1), [("a".into(), old.0, 0, 0, LossReason::Deleted)]);
}

#[test]
fn a_window_lists_so_many_ranges_and_the_next_ones_the_rest() {
    let mut world = World::new();
    start(&mut world, "s", 0);
    let many = u64::from(RANGES_MAX) + 5;
    let queue = world.push("q", "a", 1);
    let id = world.queue_id("q");
    let row = crate::step::queue_with_id(&world.store, id).unwrap().unwrap().row;
    let stamp = Stamp(world.now + 1);
    world.machine.with_step(stamp, &mut world.store, &mut Vec::new(), |step| {
        for number in 0..many {
            let (partition, end) = (PartitionId(number + 100), Offset(1));
            let reason = LossReason::Deleted;
            let range =
                Range { queue: id, partition, name: "p", from: queue.first_offset, end, reason };
            record(step, &row, "s", range).unwrap();
        }
    });
    let first = waits(&world, "s", 1).unwrap();
    assert_eq!((first.ranges, first.more), (u64::from(RANGES_MAX), true));
    assert_eq!(listed(&world, "s", 1).len(), RANGES_MAX as usize);
    commit(&mut world, "s", 1, 1);
    let rest = waits(&world, "s", 2).unwrap();
    assert_eq!((rest.ranges, rest.records, rest.more), (5, 5, false));
    commit(&mut world, "s", 2, 2);
    assert_eq!(world.rows(Table::Lost), 0);
}

#[test]
fn loss_to_a_sink_that_is_off_grows_with_the_partitions_and_not_with_time() {
    let mut world = World::new();
    start(&mut world, "s", 0);
    world.push("q", "a", 1);
    let id = world.queue_id("q");
    let row = crate::step::queue_with_id(&world.store, id).unwrap().unwrap().row;
    let many = u64::from(RANGES_MAX) * 2 + 5;
    let lose = |world: &mut World, from: u64| {
        world.now += 1;
        let stamp = Stamp(world.now);
        world.machine.with_step(stamp, &mut world.store, &mut Vec::new(), |step| {
            for number in 0..many {
                let (partition, reason) = (PartitionId(number + 100), LossReason::Retention);
                let (from, end) = (Offset(from), Offset(from + 1));
                let range = Range { queue: id, partition, name: "p", from, end, reason };
                record(step, &row, "s", range).unwrap();
            }
        });
        world.rows(Table::Lost)
    };
    let rows = lose(&mut world, 0);
    for from in 1..4 {
        assert_eq!(lose(&mut world, from), rows);
    }
    let found = waits(&world, "s", 1).unwrap();
    assert_eq!((found.ranges, found.records), (RANGES_MAX.into(), u64::from(RANGES_MAX) * 4));
    // What an intent has fixed stays as it is.
    let at = world.now;
    intent(&mut world, "s", id, 1, (at, at));
    assert_eq!(lose(&mut world, 4), rows + RANGES_MAX as usize + 1);
    assert_eq!(waits(&world, "s", 1).unwrap().records, found.records);
}

/// A queue with a record in each of five hours; the window of the second is pinned. Gives when it
/// ends.
fn pinned_in_the_second_hour(world: &mut World) -> (QueueId, u64) {
    let queue = short(world);
    start(world, "s", 0);
    let mut stamps = Vec::new();
    for hour in 0..5 {
        // The third push lies in the segment of the pinned one, behind it.
        for partition in ["a", "b", "a"] {
            stamps.push(world.push("q", partition, 1).stamp.0);
        }
        world.sleep(if hour < 4 { 3600 } else { 0 });
    }
    let (from, to) = (stamps[3], stamps[4] + 1);
    commit(world, "s", 1, from);
    intent(world, "s", queue, 2, (from, to));
    (queue, to)
}

fn segments(world: &World) -> usize {
    world.rows(Table::Segment)
}

/// Partition and first offset of what a queue's log holds.
fn log(world: &World, queue: QueueId) -> Vec<(u64, u64)> {
    let all = Bounds { runs: usize::MAX, bytes: u64::MAX, before: Stamp::MAX };
    let runs = timeline::scan(&world.store, queue, LogPosition::default(), all).unwrap().runs;
    runs.iter().map(|run| (run.header.partition.0, run.header.first_offset.0)).collect()
}

#[test]
fn what_lies_behind_a_pinned_window_goes_and_the_window_stays_until_its_commit() {
    let mut world = World::new();
    let (queue, to) = pinned_in_the_second_hour(&mut world);
    trim(&mut world, queue);
    assert_eq!(segments(&world), 1, "the others are given back");
    let (a, b) = (1, 2);
    assert_eq!(log(&world, queue), [(a, 2), (b, 1), (a, 3)]);
    use LossReason::Retention;
    let gone = [("a".into(), queue.0, 4, 9, Retention), ("b".into(), queue.0, 2, 4, Retention)];
    assert_eq!((listed(&world, "s", 2), listed(&world, "s", 3)), (vec![], gone.to_vec()));
    for (name, start) in [("a", 10), ("b", 5)] {
        let row = crate::step::partition_named(&world.store, queue, name).unwrap().unwrap().row;
        assert_eq!((row.log_start.0, row.next.0), (start, start), "consumers go on at the end");
    }
    assert_eq!(world.one("q", "g", 9), None);
    commit(&mut world, "s", 2, to);
    trim(&mut world, queue);
    assert_eq!((log(&world, queue), segments(&world)), (vec![], 0));
    let mut all = gone.to_vec();
    all.insert(0, ("a".into(), queue.0, 3, 3, Retention));
    assert_eq!(listed(&world, "s", 3), all, "what shared the window's segment goes with it");
    assert_eq!(world.rows(Table::Run), 0);
}

#[test]
fn a_step_passes_over_pinned_segments_and_takes_no_more_runs_than_it_may() {
    let mut world = World::new();
    let (queue, _) = pinned_in_the_second_hour(&mut world);
    world.sleep(20);
    // So many queues that each may take one run.
    let queues: Vec<_> = std::iter::once(queue).chain((100..1100).map(QueueId)).collect();
    let left = |world: &World| log(world, queue).len();
    for expected in [14, 13, 12, 11] {
        assert!(world.tick(&queues).more);
        assert_eq!(left(&world), expected);
    }
}

#[test]
fn of_a_deleted_queue_only_the_segments_of_the_pinned_window_stay() {
    let mut world = World::new();
    let (queue, to) = pinned_in_the_second_hour(&mut world);
    delete(&mut world);
    assert_eq!((log(&world, queue), segments(&world)), (vec![(1, 2), (2, 1), (1, 3)], 1));
    assert!(!crate::gone::is_due(&world.store).unwrap());
    use LossReason::Deleted;
    let gone = [("a".into(), queue.0, 3, 9, Deleted), ("b".into(), queue.0, 2, 4, Deleted)];
    assert_eq!((listed(&world, "s", 2), listed(&world, "s", 3)), (vec![], gone.to_vec()));
    // The next queue of the name is not touched by the commit of the old one's window.
    world.push("q", "a", 1);
    commit(&mut world, "s", 2, to);
    world.tick(&[]);
    assert_eq!((segments(&world), world.rows(Table::Gone)), (1, 0));
    assert_eq!(listed(&world, "s", 3), gone);
}

#[test]
fn a_queue_deleted_after_retention_has_passed_its_pin_loses_each_record_once() {
    let mut world = World::new();
    let (queue, to) = pinned_in_the_second_hour(&mut world);
    start(&mut world, "other", 0);
    trim(&mut world, queue);
    world.push("q", "a", 1);
    delete(&mut world);
    commit(&mut world, "s", 2, to);
    world.tick_until_done();
    let mut all = listed(&world, "s", 3);
    all.sort_by_key(|range| (range.0.clone(), range.2));
    use LossReason::{Deleted, Retention};
    let a = |from, to, reason| ("a".to_owned(), queue.0, from, to, reason);
    let b = |from, to, reason| ("b".to_owned(), queue.0, from, to, reason);
    let behind = [a(4, 9, Retention), a(10, 10, Deleted), b(2, 4, Retention)];
    assert_eq!(all, [&[a(3, 3, Deleted)], &behind[..]].concat());
    let mut all = listed(&world, "other", 1);
    all.sort_by_key(|range| (range.0.clone(), range.2));
    let before = [a(0, 1, Retention), a(2, 3, Deleted)];
    let b = [b(0, 0, Retention), b(1, 1, Deleted), b(2, 4, Retention)];
    assert_eq!(all, [&before, &behind[..2], &b].concat(), "it has pinned nothing");
}

/// (queue incarnation, partition, offset).
type Record = (u32, String, u64);

#[derive(Clone, Debug)]
enum Act {
    Push(u8, u8),
    Sleep(u8),
    /// The next record lies in another segment.
    NextHour,
    Trim,
    Tick,
    Intent(u8, u8),
    Commit(u8),
    Delete,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0..3u8, 1..4u8).prop_map(|(partition, count)| Act::Push(partition, count)),
        2 => (1..15u8).prop_map(Act::Sleep),
        2 => Just(Act::NextHour),
        2 => Just(Act::Trim),
        1 => Just(Act::Tick),
        3 => (0..2u8, 0..4u8).prop_map(|(sink, late)| Act::Intent(sink, late)),
        3 => (0..2u8).prop_map(Act::Commit),
        1 => Just(Act::Delete),
    ];
    proptest::collection::vec(act, 1..60)
}

/// A sink that follows the protocol, one effect at a time.
#[derive(Default)]
struct Sink {
    name: &'static str,
    k: u64,
    t_end: u64,
    /// Queue, end, records, what is listed: as they were when the intent was applied.
    pending: Option<(QueueId, u64, Vec<Record>, Vec<LostRange>)>,
    shipped: Vec<Record>,
    lost: Vec<Record>,
}

struct Model {
    world: World,
    sinks: [Sink; 2],
    /// All that was pushed, by when.
    pushed: BTreeMap<Record, u64>,
    names: BTreeMap<u64, String>,
    queues: Vec<QueueId>,
    /// What `late` copies begins here.
    since: u64,
}

impl Model {
    fn new() -> Model {
        let mut world = World::new();
        start(&mut world, "early", 0);
        let since = world.now + 30 * SECOND;
        start(&mut world, "late", since);
        let sink = |name, t_end| Sink { name, t_end, ..Sink::default() };
        let sinks = [sink("early", 0), sink("late", since)];
        let (pushed, names) = (BTreeMap::new(), BTreeMap::new());
        Model { world, sinks, pushed, names, queues: Vec::new(), since }
    }

    fn live(&mut self) -> QueueId {
        let queue = short(&mut self.world);
        if !self.queues.contains(&queue) {
            self.queues.push(queue);
        }
        queue
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Push(partition, count) => {
                let queue = self.live();
                let name = format!("p{partition}");
                let pushed = self.world.push("q", &name, count.into());
                self.names.insert(pushed.partition.0, name.clone());
                for offset in 0..u64::from(count) {
                    let record = (queue.0, name.clone(), pushed.first_offset.0 + offset);
                    self.pushed.insert(record, pushed.stamp.0);
                }
            }
            Act::Sleep(seconds) => self.world.sleep(seconds.into()),
            Act::NextHour => self.world.sleep(3600),
            Act::Trim => {
                let queue = self.live();
                self.world.tick(&[queue]);
            }
            Act::Tick => self.world.tick_until_done(),
            Act::Intent(sink, late) => self.intent(sink.into(), late.into()),
            Act::Commit(sink) => self.commit(sink.into()),
            Act::Delete => delete(&mut self.world),
        }
    }

    /// What a queue's log holds of some stamps.
    fn held(&self, queue: QueueId, from: u64, to: u64) -> Vec<Record> {
        let bounds = Bounds { runs: usize::MAX, bytes: u64::MAX, before: Stamp(to) };
        let begin = LogPosition::default();
        let runs = timeline::scan(&self.world.store, queue, begin, bounds).unwrap().runs;
        let runs = runs.into_iter().filter(|run| run.header.stamp.0 >= from);
        let records = runs.flat_map(|run| {
            let name = self.names[&run.header.partition.0].clone();
            let (first, end) = (run.header.first_offset.0, run.header.end_offset().0);
            (first..end).map(move |offset| (queue.0, name.clone(), offset))
        });
        records.collect()
    }

    /// Writes an intent for the live queue, or late for one that may be deleted by now.
    fn intent(&mut self, sink: usize, late: usize) {
        self.live();
        let Sink { name, k, t_end: from, .. } = self.sinks[sink];
        let queue = self.queues[self.queues.len().saturating_sub(1 + late)];
        let row = crate::step::queue_with_id(&self.world.store, queue).unwrap();
        let deleted = row.as_ref().and_then(|row| row.row.deleted).map(|at| at.0);
        // The window was planned before the deletion.
        let to = deleted.unwrap_or(self.world.now);
        if self.sinks[sink].pending.is_some() || row.is_none() || to <= from {
            return;
        }
        intent(&mut self.world, name, queue, k + 1, (from, to));
        let pinned = pin::pin_of(queue, name, &self.world.store).unwrap().is_some();
        let records = if pinned { self.held(queue, from, to) } else { Vec::new() };
        let lost = ranges(&self.world.store, TENANT, name, "q", k + 1).unwrap();
        self.sinks[sink].pending = Some((queue, to, records, lost));
    }

    fn commit(&mut self, sink: usize) {
        let Sink { name, k, t_end: from, .. } = self.sinks[sink];
        let Some((queue, to, records, lost)) = self.sinks[sink].pending.take() else { return };
        let again = ranges(&self.world.store, TENANT, name, "q", k + 1).unwrap();
        assert_eq!(again, lost, "what a window lists is final");
        let pinned = pin::pin_of(queue, name, &self.world.store).unwrap().is_some();
        let held = if pinned { self.held(queue, from, to) } else { Vec::new() };
        assert_eq!(held, records, "what a window holds is final");
        commit(&mut self.world, name, k + 1, to);
        let sink = &mut self.sinks[sink];
        (sink.k, sink.t_end) = (k + 1, to);
        sink.shipped.extend(records);
        for range in lost {
            let offsets = range.from..=range.to;
            let record = |offset| (range.incarnation, range.partition.clone(), offset);
            sink.lost.extend(offsets.map(record));
        }
    }

    /// Lets everything that waits be listed, then holds the lake against what was pushed.
    fn check(mut self) {
        for sink in 0..2 {
            self.commit(sink);
        }
        self.world.tick_until_done();
        self.world.sleep(100);
        let live = self.live();
        for sink in 0..2 {
            self.intent(sink, 0);
            self.commit(sink);
        }
        assert_eq!(self.world.rows(Table::Lost), 0);
        for (sink, since) in self.sinks.iter().zip([0, self.since]) {
            let want = self.pushed.iter().filter(|(_, stamp)| **stamp >= since);
            let want: Vec<Record> = want.map(|(record, _)| record.clone()).collect();
            let kept = self.held(live, sink.t_end, u64::MAX);
            let all = sink.shipped.iter().chain(&sink.lost).chain(&kept).cloned();
            let mut all: Vec<Record> = all.collect();
            all.sort();
            assert_eq!(all, want, "{}: each record once", sink.name);
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn each_record_is_shipped_or_listed_or_still_kept(acts in acts()) {
        let mut model = Model::new();
        for act in &acts {
            model.act(act);
        }
        model.check();
    }
}
