//! Limits of names, sizes and counts, and the names that the broker itself uses.

/// Bytes of (queue) + longer of (partition, group), over which a request is refused with 413.
pub const NAME_BYTES_MAX: usize = 411;
/// Bytes of a transaction id.
pub const TRANSACTION_ID_BYTES_MAX: usize = 65_535;
/// Bytes of one payload.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Bytes of one planned log entry.
pub const ENTRY_BYTES_MAX: usize = 96 << 20;
/// Bytes at which a queue log segment is rolled; a single longer run makes a longer segment.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Group of a pop that names none.
pub const QUEUE_MODE_GROUP: &str = "__QUEUE_MODE__";
/// Partition of a push that names none.
pub const DEFAULT_PARTITION: &str = "Default";
/// Seconds of lease of a queue that a push, pop or timer created.
pub const IMPLICIT_LEASE_SECONDS: u64 = 60;
/// Shortest time that acked transaction ids are remembered, seconds.
pub const ACK_MEMORY_SECONDS_MIN: u64 = 900;
/// Messages a pop asks for when the request does not say.
pub const POP_BATCH_DEFAULT: u32 = 200;
/// Most messages of one pop.
pub const POP_BATCH_MAX: u32 = 10_000;
/// Most partitions of one pop.
pub const POP_PARTITIONS_MAX: u32 = 64;
/// KV namespace of the sink's rows.
pub const SINK_NAMESPACE: &str = "queen-s3";
