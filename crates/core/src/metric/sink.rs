//! The table of the sink's families.
//!
//! Labels are bounded: queues are those that the sink copies, operations and results are closed sets.

use super::Family;

/// Lag.
pub const LAG: Family = Family::gauge(
    "queen_s3_lag_seconds",
    "Age of the oldest record that is not in the bucket, on the log clock; rises when the bucket or \
     the sink is stuck",
)
.by(&["queue"]);
/// Windows.
pub const WINDOWS: Family = Family::counter(
    "queen_s3_windows_committed_total",
    "Windows in the bucket, those of earlier processes included",
)
.by(&["queue"]);
/// Records.
pub const RECORDS: Family = Family::counter(
    "queen_s3_records_written_total",
    "Records in the bucket, those of earlier processes included",
)
.by(&["queue"]);
/// Bytes.
pub const BYTES: Family = Family::counter(
    "queen_s3_bytes_written_total",
    "Compressed bytes in the bucket, those of earlier processes included",
)
.by(&["queue"]);
/// Loss.
pub const LOST: Family = Family::counter(
    "queen_s3_records_lost_total",
    "Records listed as lost, those of earlier processes included",
)
.by(&["queue"]);
/// In flight.
pub const IN_FLIGHT: Family =
    Family::gauge("queen_s3_in_flight", "1 while a window is between its intent and its commit")
        .by(&["queue"]);
/// Records of windows.
pub const WINDOW_RECORDS: Family =
    Family::histogram("queen_s3_window_records", "Records per window");
/// Bytes of windows.
pub const WINDOW_BYTES: Family =
    Family::histogram("queen_s3_window_bytes", "Compressed bytes per window");
/// Uploads.
pub const UPLOAD_DURATION: Family =
    Family::histogram("queen_s3_upload_duration_seconds", "Time of one PUT or part");
/// Requests.
pub const REQUESTS: Family =
    Family::counter("queen_s3_s3_requests_total", "Requests to the bucket by outcome")
        .by(&["op", "result"]);
/// Memory.
pub const BUFFER: Family = Family::gauge("queen_s3_buffer_bytes", "Memory of windows in work");
/// Reachability.
pub const REACHABLE: Family =
    Family::gauge("queen_s3_bucket_reachable", "1 when the bucket answered last");
/// Redos.
pub const REDOS: Family =
    Family::counter("queen_s3_redos_total", "Windows finished from an intent found at a claim");
/// Windows ahead.
pub const AHEAD: Family = Family::counter(
    "queen_s3_windows_encoded_ahead_total",
    "Windows encoded while the one before was on its way",
);
/// Preconditions.
pub const PRECONDITIONS_LOST: Family =
    Family::counter("queen_s3_commit_precondition_lost_total", "KV batches lost to another owner");
/// Queues given back.
pub const GIVEN_BACK: Family =
    Family::counter("queen_s3_queues_given_back_total", "Queues given to another node");
/// Wrapped records.
pub const WRAPPED: Family =
    Family::counter("queen_s3_wrapped_records_total", "Records whose payload went as base64");

/// All of them, in the order of the page.
pub const ALL: &[&Family] = &[
    &LAG,
    &WINDOWS,
    &RECORDS,
    &BYTES,
    &LOST,
    &IN_FLIGHT,
    &WINDOW_RECORDS,
    &WINDOW_BYTES,
    &UPLOAD_DURATION,
    &REQUESTS,
    &BUFFER,
    &REACHABLE,
    &REDOS,
    &AHEAD,
    &PRECONDITIONS_LOST,
    &GIVEN_BACK,
    &WRAPPED,
];
