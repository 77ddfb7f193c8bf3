//! The order of a window's runs, with an index that fits and ones that do not.

use super::*;
use crate::testing::{Appended, Faults, SimBroker};
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

async fn sample() -> (Source, Vec<Appended>) {
    let broker = SimBroker::new();
    let queue = broker.create("q");
    let mut log = Vec::new();
    for n in 0..300u32 {
        let (one, two) = (format!("p{}", n * 31 % 17), format!("é{}", n % 3));
        log.extend(broker.push(queue, &[(&one, &n.to_string()), (&two, "{}"), (&one, "[]")]));
        log.extend(broker.push(queue, &[("busy", "1")]));
    }
    let host = broker.host(Faults::default().into());
    let page = host.timeline(queue, ScanFrom::Stamp(queen_core::Stamp::ZERO), usize::MAX).unwrap();
    let from = page.runs[5].place;
    let to = page.runs[page.runs.len() - 6].place;
    let stamps = page.runs[5].header.stamp.0..page.runs[page.runs.len() - 6].header.stamp.0;
    log.retain(|a| stamps.contains(&a.stamp));
    (Source { host, queue, from, to }, log)
}

#[tokio::test]
async fn runs_come_by_partition_and_offset() {
    let (source, mut log) = sample().await;
    log.sort_by(|a, b| (a.partition.as_bytes(), a.offset).cmp(&(b.partition.as_bytes(), b.offset)));
    let want: Vec<_> = log.into_iter().map(|a| (a.partition, a.offset, a.payload)).collect();
    let got = visited(&source, INDEX_RUNS_MAX);
    assert_eq!(got.len(), want.len());
    assert_eq!(got, want);
}

#[tokio::test]
async fn an_index_that_does_not_fit_gives_the_same_order() {
    let (source, _) = sample().await;
    let want = visited(&source, INDEX_RUNS_MAX);
    for index_max in [1, 2, 20, 100, 299] {
        assert_eq!(visited(&source, index_max), want, "{index_max} runs at a time");
    }
}
