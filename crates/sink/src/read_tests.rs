//! The order of a window's runs, with an index that fits and ones that do not.

use super::*;
use crate::testing::{Appended, Log};
use queen_core::Offset;
use queen_core::frame::Frames;

fn visited(source: &Source, index_max: usize) -> Vec<(String, u64, String)> {
    let index =
        WindowIndex::build_within(source.clone(), &Shape::of(source).unwrap(), index_max).unwrap();
    let mut out = Vec::new();
    let all = 0..index.partitions() as u32;
    index
        .visit(all, &mut |rank, header, frames| {
            for (i, frame) in Frames::new(frames).enumerate() {
                let Offset(offset) = header.first_offset.plus(i as u64);
                let payload = String::from_utf8(frame.unwrap().payload.to_vec()).unwrap();
                out.push((index.name(rank).to_string(), offset, payload));
            }
            Ok(())
        })
        .unwrap();
    out
}

/// A window out of the middle of a log, and what was pushed to it.
fn sample() -> (Source, Vec<Appended>) {
    let (mut log, mut pushes) = (Log::default(), Vec::new());
    for n in 0..300u32 {
        let (one, two) = (format!("p{}", n * 31 % 17), format!("é{}", n % 3));
        pushes.push(log.push(&[(&one, &n.to_string()), (&two, "{}"), (&one, "[]")]));
        pushes.push(log.push(&[("busy", "1")]));
    }
    // Two runs and one, again and again: the window leaves out the first four pushes and the last.
    let (from, to) = (log.runs[6].place, log.runs[log.runs.len() - 1].place);
    let pushed = pushes[4..pushes.len() - 1].concat();
    (Source { from, to, ..log.source() }, pushed)
}

#[test]
fn runs_come_by_partition_and_offset() {
    let (source, mut log) = sample();
    log.sort_by(|a, b| (a.partition.as_bytes(), a.offset).cmp(&(b.partition.as_bytes(), b.offset)));
    let want: Vec<_> = log.into_iter().map(|a| (a.partition, a.offset, a.payload)).collect();
    let got = visited(&source, INDEX_RUNS_MAX);
    assert_eq!(got.len(), want.len());
    assert_eq!(got, want);
}

#[test]
fn an_index_that_does_not_fit_gives_the_same_order() {
    let (source, _) = sample();
    let want = visited(&source, INDEX_RUNS_MAX);
    for index_max in [1, 2, 20, 100, 299] {
        assert_eq!(visited(&source, index_max), want, "{index_max} runs at a time");
    }
}
