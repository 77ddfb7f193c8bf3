//! Counters and histograms of the sink, in Prometheus text.
//!
//! Owns: names, labels and help of every `queen_s3_*` family.
//! Leaves to others: the page they stand on (`queen-http`). Labels are bounded: queues are those
//! the sink copies, operations and kinds are closed sets.

use crate::bucket::ErrorKind;
use crate::status::QueueStatus;
use parking_lot::Mutex;
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

    fn write(&self, out: &mut String, name: &str, help: &str, unit: u64) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut count = 0;
        for (i, slot) in self.counts.iter().enumerate() {
            count += slot.load(Ordering::Relaxed);
            let bound = self.bounds.get(i).map(|b| (*b as f64 / unit as f64).to_string());
            let bound = bound.as_deref().unwrap_or("+Inf");
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
        let families: [(&str, &str, &str, Of); 6] = [
            (
                "queen_s3_lag_seconds",
                "gauge",
                "Age of the oldest record that is not in the bucket, on the log clock; rises when the bucket or the sink is stuck.",
                |q| q.lag_seconds,
            ),
            ("queen_s3_windows_committed_total", "counter", "Windows in the bucket.", |q| {
                Some(q.windows_committed as f64)
            }),
            ("queen_s3_records_written_total", "counter", "Records in the bucket.", |q| {
                Some(q.records as f64)
            }),
            ("queen_s3_bytes_written_total", "counter", "Compressed bytes in the bucket.", |q| {
                Some(q.bytes as f64)
            }),
            ("queen_s3_records_lost_total", "counter", "Records listed as lost.", |q| {
                Some(q.records_lost as f64)
            }),
            (
                "queen_s3_in_flight",
                "gauge",
                "1 while a window is between its intent and its commit.",
                |q| Some(f64::from(u8::from(matches!(q.state, "intent" | "upload" | "commit")))),
            ),
        ];
        for (name, kind, help, of) in families {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for queue in queues.iter().filter(|q| q.owned_here) {
                if let Some(value) = of(queue) {
                    let _ = writeln!(out, "{name}{{queue=\"{}\"}} {value}", label(&queue.name));
                }
            }
        }
        self.write_requests(out);
        self.write_singles(out, buffer, reachable);
    }

    fn write_requests(&self, out: &mut String) {
        self.window_records.write(out, "queen_s3_window_records", "Records per window.", 1);
        self.window_bytes.write(out, "queen_s3_window_bytes", "Compressed bytes per window.", 1);
        self.upload_millis.write(
            out,
            "queen_s3_upload_duration_seconds",
            "Time of one PUT or part.",
            1000,
        );
        let name = "queen_s3_s3_requests_total";
        let _ = writeln!(
            out,
            "# HELP {name} Requests to the bucket by outcome.\n# TYPE {name} counter"
        );
        for ((op, result), count) in self.requests.lock().iter() {
            let _ = writeln!(out, "{name}{{op=\"{op}\",result=\"{result}\"}} {count}");
        }
    }

    fn write_singles(&self, out: &mut String, buffer: u64, reachable: Option<bool>) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let singles = [
            ("queen_s3_buffer_bytes", "gauge", "Memory of windows in work.", buffer),
            (
                "queen_s3_bucket_reachable",
                "gauge",
                "1 when the bucket answered last.",
                u64::from(reachable == Some(true)),
            ),
            (
                "queen_s3_redos_total",
                "counter",
                "Windows finished from an intent found at a claim.",
                load(&self.redos),
            ),
            (
                "queen_s3_commit_precondition_lost_total",
                "counter",
                "KV batches lost to another owner.",
                load(&self.preconditions_lost),
            ),
            (
                "queen_s3_queues_given_back_total",
                "counter",
                "Queues given to another node.",
                load(&self.given_back),
            ),
            (
                "queen_s3_wrapped_records_total",
                "counter",
                "Records whose payload went as base64.",
                load(&self.wrapped),
            ),
        ];
        for (name, kind, help, value) in singles {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
    }
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
