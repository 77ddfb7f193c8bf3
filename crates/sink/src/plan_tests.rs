//! The close rule: examples, and windows that tile any log.

use super::*;
use crate::window::windows_tile;
use proptest::prelude::*;
use queen_core::run::RunHeader;
use queen_core::{Offset, PartitionId};

const HOUR: u64 = 3_600_000_000;

/// (stamp, weight) to runs that lie one behind the other.
fn log(runs: &[(u64, u64)]) -> Vec<(TimelineRun, u64)> {
    let mut at = 0;
    runs.iter()
        .map(|(stamp, weight)| {
            let header = RunHeader {
                partition: PartitionId(1),
                first_offset: Offset(at),
                count: 1,
                stamp: Stamp(*stamp),
                frames_len: 2,
                text_bytes: 0,
            };
            let run = TimelineRun { header, place: Place { segment: 0, at } };
            at += header.run_len();
            (run, *weight)
        })
        .collect()
}

fn rule(target: u64, age: u64, align: Align) -> CloseRule {
    CloseRule { target_bytes: target, max_window_us: age, align }
}

/// All windows, when the whole log is there and `through` is reached.
fn windows(runs: &[(TimelineRun, u64)], rule: CloseRule, through: Stamp) -> Vec<Window> {
    let mut out: Vec<Window> = Vec::new();
    loop {
        let end = out.last().map(|w: &Window| (w.t_end, w.to));
        let mut planner = Planner::new(rule, QueueId(1), end.map(|e| e.0));
        let rest = runs.iter().filter(|r| end.is_none_or(|e| r.0.place >= e.1));
        let found = rest.clone().find_map(|(run, weight)| planner.add(run, *weight));
        match found.or_else(|| planner.close_through(through)) {
            Some(window) => out.push(window),
            None => return out,
        }
    }
}

#[test]
fn a_window_ends_at_the_first_record_that_no_longer_fits() {
    let runs = log(&[(10, 50), (20, 50), (30, 1), (40, 50)]);
    let w = windows(&runs, rule(100, 1000, Align::None), Stamp(5000));
    assert_eq!(
        (w[0].t_start, w[0].t_end, w[0].records, w[0].why),
        (Stamp(10), Stamp(30), 2, Closed::Size)
    );
    assert_eq!(
        (w[1].t_start, w[1].t_end, w[1].records, w[1].why),
        (Stamp(30), Stamp(1030), 2, Closed::Age)
    );
    assert_eq!(w.len(), 2);
}

#[test]
fn a_huge_record_has_a_window_to_itself() {
    let mut runs = log(&[(10, 1), (20, 1), (30, 1), (40, 1), (40, 1), (50, 1)]);
    runs[1].0.header.text_bytes = HUGE_RECORD_BYTES + 1;
    // In a push of two partitions, which is never divided.
    runs[4].0.header.text_bytes = HUGE_RECORD_BYTES + 1;
    let w = windows(&runs, rule(1 << 30, 1000, Align::None), Stamp(5000));
    let found: Vec<_> = w.iter().map(|w| (w.t_start.0, w.t_end.0, w.records)).collect();
    assert_eq!(found, [(10, 20, 1), (20, 30, 1), (30, 40, 1), (40, 50, 2), (50, 1050, 1)]);
    // As much in several records is no such thing.
    runs[1].0.header.count = 2;
    assert_eq!(windows(&runs, rule(1 << 30, 1000, Align::None), Stamp(5000)).len(), 3);
}

#[test]
fn a_push_is_never_divided() {
    // The push at 20 fits in part only: all of it goes to the next window.
    let runs = log(&[(10, 60), (20, 30), (20, 30), (30, 10)]);
    let w = windows(&runs, rule(100, 1000, Align::None), Stamp(5000));
    assert_eq!((w[0].t_end, w[0].records), (Stamp(20), 1));
    assert_eq!((w[1].t_start, w[1].records), (Stamp(20), 3));
    // A push heavier than the target is a window of its own.
    let runs = log(&[(10, 60), (20, 90), (20, 90), (30, 10)]);
    let w = windows(&runs, rule(100, 1000, Align::None), Stamp(5000));
    assert_eq!(
        w.iter().map(|w| (w.t_end.0, w.records)).collect::<Vec<_>>(),
        [(20, 1), (30, 2), (1030, 1)]
    );
}

#[test]
fn age_counts_from_the_first_record() {
    let runs = log(&[(10, 1), (5_000, 1), (5_900, 1), (6_000, 1)]);
    let w = windows(&runs, rule(100, 1000, Align::None), Stamp(10_000));
    assert_eq!(
        w.iter().map(|w| (w.t_start.0, w.t_end.0, w.records)).collect::<Vec<_>>(),
        [(10, 1_010, 1), (1_010, 6_000, 2), (6_000, 7_000, 1)]
    );
}

#[test]
fn no_window_crosses_an_hour_and_starts_fall_on_it() {
    let runs = log(&[(HOUR * 5 - 3, 1), (HOUR * 5, 1), (HOUR * 9 + 7, 1)]);
    let w = windows(&runs, rule(100, 2 * HOUR, Align::Hour), Stamp(HOUR * 10));
    assert_eq!(
        w.iter().map(|w| (w.t_start.0, w.t_end.0, w.why)).collect::<Vec<_>>(),
        [
            (HOUR * 4, HOUR * 5, Closed::Boundary),
            (HOUR * 5, HOUR * 6, Closed::Boundary),
            (HOUR * 9, HOUR * 10, Closed::Boundary)
        ]
    );
}

#[test]
fn nothing_closes_before_its_end_is_certain() {
    let mut planner = Planner::new(rule(100, 1000, Align::None), QueueId(1), None);
    let runs = log(&[(10, 1)]);
    assert_eq!(planner.add(&runs[0].0, 1), None);
    assert_eq!(planner.close_through(Stamp(1009)), None);
    assert_eq!(planner.limit(), Some(Stamp(1010)));
    assert!(planner.close_through(Stamp(1010)).is_some());
}

proptest! {
    #[test]
    fn windows_tile_the_log_and_are_a_function_of_it(
        steps in proptest::collection::vec((0u64..4000, 1u64..80), 1..60),
        target in 60u64..300, age in 500u64..5000, aligned in any::<bool>(), cut in 0usize..60,
    ) {
        let mut stamp = HOUR * 3 - 2000;
        let runs: Vec<(u64, u64)> = steps.iter().map(|(step, weight)| {
            // A third of the steps add to the same push.
            stamp += if step % 3 == 0 { 0 } else { *step };
            (stamp, *weight)
        }).collect();
        let align = if aligned { Align::Hour } else { Align::None };
        let rule = rule(target, age, align);
        let all = log(&runs);
        let w = windows(&all, rule, Stamp(u64::MAX - 1));

        let mut before = None;
        let mut at = Place::default();
        for window in &w {
            prop_assert_eq!(windows_tile(before, window), Ok(()));
            prop_assert_eq!(window.from, at);
            before = Some(window.t_end);
            at = window.to;
            let inside: Vec<_> = all.iter().filter(|r| r.0.place >= window.from && r.0.place < window.to).collect();
            // Exactly the records whose stamps lie between its ends, and no others.
            for (run, _) in &all {
                let by_place = run.place >= window.from && run.place < window.to;
                let by_stamp = run.header.stamp >= window.t_start && run.header.stamp < window.t_end;
                prop_assert_eq!(by_place, by_stamp);
            }
            let weight: u64 = inside.iter().map(|r| r.1).sum();
            let pushes = inside.windows(2).filter(|p| p[0].0.header.stamp != p[1].0.header.stamp).count();
            prop_assert!(weight <= target || pushes == 0);
        }
        prop_assert_eq!(w.iter().map(|w| w.records).sum::<u64>(), runs.len() as u64);

        // Whoever has seen only a part of the log has closed a part of the same windows.
        let cut = cut.min(all.len() - 1);
        let early = windows(&all[..cut], rule, Stamp(all[cut].0.header.stamp.0 - 1));
        prop_assert_eq!(&w[..early.len()], &early[..]);
    }
}
