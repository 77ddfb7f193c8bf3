//! The order of a window's runs, with an index that fits and ones that do not.

use super::*;
use crate::testing::{Appended, Log};
use queen_core::Offset;
use queen_core::frame::Frames;

/// What the headers of a source say.
fn shape_of(source: &Source) -> Shape {
    crate::testing::shape_of(source)
}

/// All records in the order in which they are visited, and the parts that the window was indexed in.
fn visited(source: &Source, room: Room) -> (Vec<(String, u64, String)>, usize) {
    let mut parts = Parts::new(source.clone(), shape_of(source), room).unwrap();
    let (mut out, mut count) = (Vec::new(), 0);
    // Twice, as a large object needs it.
    for _ in 0..2 {
        (out, count) = (Vec::new(), 0);
        parts.each(&mut |part| visit(part, &mut out, &mut count)).unwrap();
    }
    (out, count)
}

fn visit(
    part: &WindowIndex,
    out: &mut Vec<(String, u64, String)>,
    count: &mut usize,
) -> Result<(), ReadError> {
    *count += 1;
    let (before, mut seen) = (out.len() as u64, 0);
    part.visit(0..part.partitions() as u32, &mut |rank, header, frames| {
        for (i, frame) in Frames::new(frames).enumerate() {
            let Offset(offset) = header.first_offset.plus(i as u64);
            let payload = String::from_utf8(frame.unwrap().payload.to_vec()).unwrap();
            assert!((part.share(rank).first..=part.share(rank).last).contains(&offset));
            out.push((part.name(rank).to_string(), offset, payload));
        }
        seen += u64::from(header.count);
        Ok(())
    })?;
    assert_eq!(part.shares().map(|(_, share)| share.records).sum::<u64>(), seen);
    assert_eq!(out.len() as u64, before + seen);
    Ok(())
}

const ALL: Room = Room { bytes: 1 << 30, runs: INDEX_RUNS_MAX };

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
    let (got, parts) = visited(&source, ALL);
    assert_eq!((got.len(), parts), (want.len(), 1));
    assert_eq!(got, want);
}

#[test]
fn runs_that_do_not_fit_come_in_the_same_order() {
    let (source, _) = sample();
    let (want, _) = visited(&source, ALL);
    for runs in [1, 2, 20, 100, 299] {
        assert_eq!(visited(&source, Room { runs, ..ALL }).0, want, "{runs} runs at a time");
    }
}

#[test]
fn partitions_that_do_not_fit_come_in_the_same_order_part_by_part() {
    let (source, _) = sample();
    let (want, _) = visited(&source, ALL);
    let partitions = shape_of(&source).partitions;
    assert_eq!(partitions, 21);
    for fit in [0, 1, 2, 5, 13, 20] {
        for runs in [1, 30, INDEX_RUNS_MAX] {
            let room = Room { bytes: fit * (PARTITION_BYTES + 8), runs };
            let (got, parts) = visited(&source, room);
            assert_eq!(got, want, "{fit} partitions, {runs} runs at a time");
            assert_eq!(parts as u64, partitions.div_ceil(fit.max(1)), "{fit} at a time");
        }
    }
}

#[test]
fn stamps_and_offsets_of_all_parts_are_those_of_the_window() {
    let (source, _) = sample();
    let mut whole: Option<(Stamps, Vec<(String, Share)>)> = None;
    for bytes in [1 << 30, 7 * PARTITION_BYTES] {
        let room = Room { bytes, runs: INDEX_RUNS_MAX };
        let mut parts = Parts::new(source.clone(), shape_of(&source), room).unwrap();
        let (mut stamps, mut shares): (Stamps, Vec<_>) = (None, Vec::new());
        parts
            .each(&mut |part| {
                let (first, last) = part.stamps.unwrap();
                let (low, high) = stamps.unwrap_or((first, last));
                stamps = Some((low.min(first), high.max(last)));
                shares.extend(part.shares().map(|(name, share)| (name.to_owned(), share)));
                Ok(())
            })
            .unwrap();
        match &whole {
            None => whole = Some((stamps, shares)),
            Some(whole) => assert_eq!(*whole, (stamps, shares)),
        }
    }
}
