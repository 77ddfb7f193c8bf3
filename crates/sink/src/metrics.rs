//! Counters and histograms of the sink, in Prometheus text.
//!
//! Owns: the counts, and which stands in which family.
//! Leaves to others: names, labels and help of the families (`queen_core::metric::sink`), the page
//! they stand on (`queen-http`).

use crate::bucket::ErrorKind;
use crate::status::QueueStatus;
use parking_lot::Mutex;
use queen_core::metric::{Family, sink as family};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const RECORDS: &[u64] = &[1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
const MIB: u64 = 1 << 20;
const BYTES: &[u64] =
    &[MIB, 4 * MIB, 16 * MIB, 64 * MIB, 128 * MIB, 256 * MIB, 512 * MIB, 1024 * MIB];
const MILLIS: &[u64] = &[5, 20, 50, 100, 500, 1_000, 5_000, 20_000, 60_000];

#[derive(Debug)]
struct Histogram {
    bounds: &'static [u64],
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [u64]) -> Histogram {
        let counts = bounds.iter().map(|_| AtomicU64::new(0)).chain([AtomicU64::new(0)]).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    fn see(&self, value: u64) {
        let slot = self.bounds.partition_point(|bound| *bound < value);
        self.counts[slot].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    fn write(&self, out: &mut String, family: &Family, unit: u64) {
        family.head(out);
        let name = family.name;
        let mut count = 0;
        for (i, slot) in self.counts.iter().enumerate() {
            count += slot.load(Ordering::Relaxed);
            let bound = self.bounds.get(i).map(|b| (*b as f64 / unit as f64).to_string());
            let bound = bound.as_deref().unwrap_or("+Inf");
            // Writing into a String cannot fail; the same holds below.
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let sum = self.sum.load(Ordering::Relaxed) as f64 / unit as f64;
        let _ = writeln!(out, "{name}_sum {sum}\n{name}_count {count}");
    }
}

/// All counters of one sink.
#[derive(Debug)]
pub struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    window_records: Histogram,
    window_bytes: Histogram,
    upload_millis: Histogram,
    /// Windows that were finished from an intent found at a claim.
    pub redos: AtomicU64,
    /// Windows that were encoded while the one before was on its way.
    pub ahead: AtomicU64,
    /// KV batches of a lease holder that were lost to another.
    pub preconditions_lost: AtomicU64,
    /// Queues given to another node.
    pub given_back: AtomicU64,
    /// Records whose payload went as base64.
    pub wrapped: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            requests: Mutex::default(),
            window_records: Histogram::new(RECORDS),
            window_bytes: Histogram::new(BYTES),
            upload_millis: Histogram::new(MILLIS),
            redos: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            preconditions_lost: AtomicU64::new(0),
            given_back: AtomicU64::new(0),
            wrapped: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    /// One answered or failed request to the bucket.
    pub fn request(&self, op: &'static str, took: Duration, failed: Option<ErrorKind>) {
        let result = failed.map_or("ok", ErrorKind::word);
        *self.requests.lock().entry((op, result)).or_default() += 1;
        if matches!(op, "put" | "multipart_part") && failed.is_none() {
            self.upload_millis.see(took.as_millis() as u64);
        }
    }

    /// One committed window.
    pub fn window(&self, records: u64, bytes: u64) {
        self.window_records.see(records);
        self.window_bytes.see(bytes);
    }

    /// Appends the families to `out`.
    pub fn write(
        &self,
        out: &mut String,
        queues: &[QueueStatus],
        buffer: u64,
        reachable: Option<bool>,
    ) {
        type Of = fn(&QueueStatus) -> Option<f64>;
        let families: [(&Family, Of); 6] = [
            (&family::LAG, |q| q.lag_seconds),
            (&family::WINDOWS, |q| Some(q.windows_committed as f64)),
            (&family::RECORDS, |q| Some(q.records as f64)),
            (&family::BYTES, |q| Some(q.bytes as f64)),
            (&family::LOST, |q| Some(q.records_lost as f64)),
            (&family::IN_FLIGHT, |q| Some(f64::from(u8::from(q.in_flight())))),
        ];
        for (family, of) in families {
            family.head(out);
            for queue in queues.iter().filter(|q| q.owned_here) {
                if let Some(value) = of(queue) {
                    family.sample(out, &[&queue.name], value);
                }
            }
        }
        self.window_records.write(out, &family::WINDOW_RECORDS, 1);
        self.window_bytes.write(out, &family::WINDOW_BYTES, 1);
        self.upload_millis.write(out, &family::UPLOAD_DURATION, 1000);
        family::REQUESTS.head(out);
        for ((op, result), count) in self.requests.lock().iter() {
            family::REQUESTS.sample(out, &[op, result], count);
        }
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        family::BUFFER.single(out, buffer);
        family::REACHABLE.single(out, u8::from(reachable == Some(true)));
        family::REDOS.single(out, load(&self.redos));
        family::AHEAD.single(out, load(&self.ahead));
        family::PRECONDITIONS_LOST.single(out, load(&self.preconditions_lost));
        family::GIVEN_BACK.single(out, load(&self.given_back));
        family::WRAPPED.single(out, load(&self.wrapped));
    }
}
