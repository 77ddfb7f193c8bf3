//! What the store alone takes for pushes: runs of one message to random partitions, in batches.
//!
//! `cargo bench -p queen-store -- [runs] [partitions] [messages per run]`; 3,000,000 runs over
//! 100,000 partitions by default. Prints runs per second, CPU, memory, bytes written, and the time
//! to open it again. The rows are those of a push: a get and a put of the partition, a new run, the
//! tail moved, the segment's row.

use queen_core::row::{Row, SegmentRow, key};
use queen_core::table::Table;
use queen_core::{GroupId, Offset, PartitionId, QueueId, Stamp};
use queen_state::{Place, QueueLogsMut, Tables, TablesMut};
use queen_store::{Applied, Store, StoreOptions};
use std::time::{Duration, Instant};

const QUEUE: QueueId = QueueId(1);
const BATCH: u64 = 100;
const SEGMENT_BYTES: u64 = 64 << 20;

/// A small generator of well-spread numbers; the same run gives the same ones.
struct Spread(u64);

impl Spread {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }
}

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let number = |at: usize, otherwise| numbers.get(at).copied().unwrap_or(otherwise);
    let (runs, partitions, messages) = (number(0, 3_000_000), number(1, 100_000), number(2, 1));
    let dir = tempfile::tempdir_in(".").expect("a directory here");
    let (store, _) = Store::open(dir.path(), StoreOptions::default()).expect("opens");
    println!("idle: {} MiB", resident_mib());
    let (begun, cpu, cpu_here) = (Instant::now(), cpu_seconds(), cpu_seconds_here());
    let mut longest = Duration::ZERO;
    let mut spread = Spread(1);
    let frames = vec![b'x'; 260 * messages as usize];
    let mut segment =
        SegmentRow { bytes: 0, first: Stamp(1), last: Stamp(1), runs: 0, messages: 0, trimmed: 0 };
    let mut segment_number = 1;
    for batch in 0..runs / BATCH {
        let since = Instant::now();
        let mut guard = store.write();
        for n in 0..BATCH {
            let stamp = Stamp(1 + batch * BATCH + n);
            let partition = PartitionId(1 + spread.next() % partitions);
            let name = key::partition(QUEUE, &format!("partition-{}", partition.0));
            // 16 bytes that count, padded to what a partition's row takes.
            let mut row = [0u8; 48];
            if let Some(old) = guard.get(Table::Partition, &name).expect("reads") {
                row.copy_from_slice(&old);
            }
            let next = u64::from_le_bytes(row[..8].try_into().expect("eight bytes"));
            let last = u64::from_le_bytes(row[8..16].try_into().expect("eight bytes"));
            if segment.bytes > SEGMENT_BYTES {
                segment_number += 1;
                segment.bytes = 0;
            }
            let place = Place { queue: QUEUE, segment: segment_number, position: segment.bytes };
            guard.write(place, &[&[0; 48], &frames]).expect("writes");
            segment.bytes += 48 + frames.len() as u64;
            guard.insert(Table::Run, &key::run(partition, Offset(next)), &[7; 26]);
            if next > 0 {
                guard.delete(Table::Tail, &key::tail(QUEUE, Stamp(last), partition));
            }
            guard.insert(Table::Tail, &key::tail(QUEUE, stamp, partition), &[]);
            row[..8].copy_from_slice(&(next + messages).to_le_bytes());
            row[8..16].copy_from_slice(&stamp.0.to_le_bytes());
            guard.put(Table::Partition, &name, &row);
        }
        guard.put(Table::Segment, &key::segment(QUEUE, segment_number), &segment.encode());
        let applied = Applied { index: batch + 1, mark: bytes::Bytes::from_static(&[0; 24]) };
        guard.end_batch(applied).expect("goes on");
        longest = longest.max(since.elapsed());
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{:.0} runs/s, {:.1} CPU-s per million, {:.1} of them apply, longest batch {longest:?}, {} MiB",
        runs as f64 / took,
        (cpu_seconds() - cpu) * 1e6 / runs as f64,
        (cpu_seconds_here() - cpu_here) * 1e6 / runs as f64,
        resident_mib()
    );
    let since = Instant::now();
    store.close().expect("closes");
    println!(
        "close: {:?}, {:.0} B written per run, {} MiB",
        since.elapsed(),
        written_bytes() as f64 / runs as f64,
        resident_mib()
    );
    drop(store);
    let since = Instant::now();
    let (store, recovered) = Store::open(dir.path(), StoreOptions::default()).expect("opens");
    println!("open: {:?}, at {:?}, {} MiB", since.elapsed(), recovered.applied, resident_mib());
    reads(&store, runs, partitions);
}

/// CPU time of one read, as the machine may be busy with other things.
fn each(what: &str, count: u64, mut read: impl FnMut(u64)) {
    let since = cpu_seconds_here();
    (0..count).for_each(&mut read);
    println!("{what}: {:.1} us CPU", (cpu_seconds_here() - since) * 1e6 / count as f64);
}

fn reads(store: &Store, runs: u64, partitions: u64) {
    let mut spread = Spread(2);
    for what in ["get, cold", "get, warm"] {
        each(what, 20_000, |_| {
            let name = format!("partition-{}", 1 + spread.next() % partitions);
            let row = store.read().get(Table::Partition, &key::partition(QUEUE, &name));
            assert!(row.is_ok());
        });
    }
    each("get of what is not there", 5000, |n| {
        let found = store.read().get(Table::TransactionId, &key::transaction_id(PartitionId(n), n));
        assert_eq!(found, Ok(None));
    });
    each("scan of 10 where there are some", 5000, |_| {
        let from = key::tail(QUEUE, Stamp(spread.next() % runs), PartitionId(0));
        let rows = store.read().scan(Table::Tail, &from, &[0xff; 20], 10).expect("reads");
        assert!(rows.len() <= 10);
    });
    each("scan of 10 where there is none", 5000, |n| {
        let from = key::ready(GroupId(1), Stamp(n), PartitionId(0));
        let to = key::ready(GroupId(2), Stamp(n), PartitionId(0));
        assert_eq!(store.read().scan(Table::Ready, &from, &to, 10), Ok(Vec::new()));
    });
}

fn proc_number(file: &str, word: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(word)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn resident_mib() -> u64 {
    proc_number("/proc/self/status", "VmRSS:") / 1024
}

fn written_bytes() -> u64 {
    proc_number("/proc/self/io", "write_bytes:")
}

fn cpu_seconds() -> f64 {
    cpu_seconds_of(libc::RUSAGE_SELF)
}

/// Of the calling thread.
fn cpu_seconds_here() -> f64 {
    cpu_seconds_of(libc::RUSAGE_THREAD)
}

fn cpu_seconds_of(whom: i32) -> f64 {
    // SAFETY: all-zero is a valid rusage, and the call fills it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` lives through the call.
    unsafe { libc::getrusage(whom, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
