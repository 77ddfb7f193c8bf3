//! What is counted, held against what the encoder really takes.

use super::*;
use crate::encode::{Compression, ObjectSpec, PageCompression};
use crate::memory::Budget;
use crate::produce::{Job, Walk};
use crate::read::Source;
use crate::testing::{Log, most_held, shape_of};
use crate::turns::Kind;
use queen_core::TenantId;
use std::sync::Arc;
use tokio::sync::mpsc;

/// A window of `records` records of `bytes` bytes, spread over `partitions`, in pushes of a thousand.
fn window(partitions: usize, records: usize, bytes: usize) -> Source {
    let mut log = Log::default();
    let payload = format!("\"{}\"", "x".repeat(bytes));
    let mut state = 7u64;
    for from in (0..records).step_by(1_000) {
        let names: Vec<String> = (from..records.min(from + 1_000))
            .map(|n| format!("part-{:06}", n % partitions))
            .collect();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let text = format!("\"{state:x}{payload}\"", payload = &payload[1..payload.len() - 1]);
        let items: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &*text)).collect();
        log.push(&items);
    }
    log.source()
}

fn job(source: Source, encoding: Encoding, layout: Layout) -> Job {
    let shape = shape_of(&source);
    let room = index_room(given_out(256 << 20, encoding), encoding);
    Job {
        source,
        spec: ObjectSpec { encoding, wrap: true, tenant: TenantId::DEFAULT, queue: Arc::from("q") },
        layout,
        k: 1,
        key: "w-1".to_owned(),
        ranges_key: "r-1".to_owned(),
        kind: Kind::Live,
        shape,
        room,
        working_bytes: working_bytes(&shape, encoding, room),
        manifest_bytes: manifest_bytes(&shape, layout),
        budget: Budget::new(256 << 20),
    }
}

/// Encodes a window; gives what was counted and the most that was held, finished pieces included.
fn encode(job: &Job) -> (u64, u64) {
    let (to, produced) = mpsc::channel(1);
    let (held, (summary, kept)) = most_held(|| {
        let mut walk = Walk::new(job.clone(), to).unwrap();
        let mut kept = Vec::new();
        while let Some(object) = walk.object().unwrap() {
            kept.push(object.kept.expect("all of it fits"));
        }
        (walk.summary, kept)
    });
    assert_eq!(summary.partitions, job.shape.partitions);
    // Of the pieces on their way there is one: nobody sends the others.
    let pieces = (job.shape.weight * 2).min(PIECE_BYTES as u64) * (PIECES - 1);
    // Nor is the manifest written here, of which the ranges are there.
    let ranges = job.shape.partitions * 64 + job.shape.name_bytes;
    let counted = job.working_bytes + job.budget.used() - pieces
        + if job.layout == Layout::Merged { ranges } else { job.manifest_bytes };
    drop((kept, produced));
    assert_eq!(job.budget.used(), 0);
    (counted, held)
}

#[test]
fn what_is_counted_covers_what_is_held() {
    let zstd = Encoding::Jsonl(Compression::ZSTD);
    let plain = Encoding::Jsonl(Compression::None);
    let parquet = Encoding::Parquet(PageCompression::ZSTD);
    for (partitions, records, bytes) in
        [(1, 1, 10), (1, 20_000, 1_000), (1_000, 40_000, 300), (100_000, 100_000, 100)]
    {
        let source = window(partitions, records, bytes);
        for encoding in [zstd, plain, parquet] {
            let job = job(source.clone(), encoding, Layout::Merged);
            let (counted, held) = encode(&job);
            let what = format!("{partitions} partitions, {records} records, {encoding:?}");
            assert!(held <= counted, "{what}: {held} bytes held, {counted} counted");
            assert!(counted <= job.budget.limit() * 3 / 4, "{what}: {counted} bytes counted");
        }
    }
}

#[test]
fn objects_of_many_partitions_are_counted() {
    let source = window(5_000, 10_000, 100);
    let (counted, held) =
        encode(&job(source, Encoding::Jsonl(Compression::ZSTD), Layout::PerPartition));
    assert!(held <= counted, "{held} bytes held, {counted} counted");
}

#[test]
fn a_record_of_many_mib_is_counted() {
    let source = window(1, 3, 20 << 20);
    for encoding in [Encoding::Jsonl(Compression::None), Encoding::Parquet(PageCompression::ZSTD)] {
        let (counted, held) = encode(&job(source.clone(), encoding, Layout::Merged));
        assert!(held <= counted, "{encoding:?}: {held} bytes held, {counted} counted");
    }
}

#[test]
fn a_small_window_needs_little() {
    let shape = Shape {
        records: 10,
        weight: 4_000,
        runs: 10,
        run_bytes_max: 400,
        partitions: 3,
        name_bytes: 20,
    };
    let encoding = Encoding::Jsonl(Compression::ZSTD);
    let all = working_bytes(&shape, encoding, index_room(224 << 20, encoding))
        + manifest_bytes(&shape, Layout::Merged);
    assert!(all < 10 << 20, "{all} bytes");
}

#[test]
fn an_eighth_is_left_for_what_nobody_counts_unless_a_window_needs_it() {
    let parquet = Encoding::Parquet(PageCompression::ZSTD);
    let least = least_bytes(parquet);
    assert_eq!(given_out(256 << 20, parquet), 224 << 20);
    assert_eq!(given_out(least + (1 << 20), parquet), least);
    assert_eq!(given_out(least, parquet), least);
    assert_eq!(given_out(1, parquet), 1);
}
