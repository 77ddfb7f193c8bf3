//! The table of the broker's families.

use super::Family;

/// Messages of pushes.
pub const PUSH_MESSAGES: Family = Family::counter(
    "queen_process_push_messages_total",
    "Messages of answered pushes and of committed transactions and cycles of streams",
);
/// Pushes.
pub const PUSH_REQUESTS: Family =
    Family::counter("queen_process_push_requests_total", "Answered push requests");
/// Messages of pops.
pub const POP_MESSAGES: Family =
    Family::counter("queen_process_pop_messages_total", "Messages of answered pop requests");
/// Pops.
pub const POP_REQUESTS: Family =
    Family::counter("queen_process_pop_requests_total", "Answered pop requests");
/// Messages of acks.
pub const ACK_MESSAGES: Family = Family::counter(
    "queen_process_ack_messages_total",
    "Messages of answered acks and of committed transactions",
);
/// Acks.
pub const ACK_REQUESTS: Family =
    Family::counter("queen_process_ack_requests_total", "Answered ack requests");
/// Transactions.
pub const TRANSACTIONS: Family =
    Family::counter("queen_transactions_total", "Answered transactions").by(&["outcome"]);
/// Cycles of streams.
pub const STREAM_CYCLES: Family =
    Family::counter("queen_stream_cycles_total", "Answered cycles of streams").by(&["outcome"]);
/// Timers.
pub const TIMERS: Family = Family::counter(
    "queen_timers_total",
    "Timers that requests to this node set and took away, and those that it fired, or put off since their \
     payload was not encrypted yet, while it led",
)
.by(&["outcome"]);
/// Timers that are set.
pub const TIMERS_PENDING: Family =
    Family::gauge("queen_timers_pending", "Timers that are set and have not become messages");
/// Memory of ephemeral queues.
pub const EPHEMERAL_BYTES: Family = Family::gauge(
    "queen_ephemeral_bytes",
    "Memory that the ephemeral queues of this node take, of QUEEN_EPHEMERAL_MAX_BYTES",
);
/// Messages dropped of ephemeral queues.
pub const EPHEMERAL_DROPPED: Family = Family::counter(
    "queen_ephemeral_dropped_total",
    "Messages of ephemeral queues that were dropped: for the bounds of a queue with dropOldest, for \
     their age, or as a group failed to settle them too often",
)
.by(&["cause"]);
/// Contents of ephemeral queues lost as a whole.
pub const EPHEMERAL_WIPES: Family = Family::counter(
    "queen_ephemeral_wipes_total",
    "Ephemeral queues that lost all their messages at once: this node does not own them any more, or \
     they were reset or deleted",
)
.by(&["cause"]);
/// Leases given back.
pub const RETURNED_LEASES: Family =
    Family::counter("queen_returned_leases_total", "Batches given back as their client had gone");
/// Uptime.
pub const UPTIME: Family = Family::gauge("queen_uptime_seconds", "Seconds since the start");
/// Memory.
pub const RESIDENT_MEMORY: Family =
    Family::gauge("queen_process_resident_memory_bytes", "Resident memory");
/// Processor time.
pub const CPU_SECONDS: Family =
    Family::counter("queen_process_cpu_seconds_total", "User and system time");
/// Positions of the log.
pub const RAFT_INDEX: Family =
    Family::gauge("queen_raft_index", "Positions in the log").by(&["kind"]);
/// Commands in flight.
pub const RAFT_INFLIGHT: Family =
    Family::gauge("queen_raft_inflight", "Commands proposed and not applied");
/// Their bytes.
pub const RAFT_INFLIGHT_BYTES: Family =
    Family::gauge("queen_raft_inflight_bytes", "Bytes of commands proposed and not applied");
/// Commands.
pub const RAFT_PROPOSALS: Family =
    Family::counter("queen_raft_proposals_total", "Commands proposed");
/// Commands between nodes.
pub const FORWARD: Family = Family::counter(
    "queen_raft_forward_total",
    "Commands between the nodes of a cluster: the leader was asked, another node was served, a try \
     that nobody took was made again",
)
.by(&["kind"]);
/// Bytes of the log.
pub const LOG_WRITTEN: Family =
    Family::counter("queen_raft_log_written_bytes_total", "Bytes written to the log");
/// Syncs of the log.
pub const LOG_SYNCS: Family = Family::counter("queen_raft_log_syncs_total", "Syncs of the log");
/// Admission.
pub const ADMIT: Family =
    Family::counter("queen_raft_admit_total", "Commands let in and refused").by(&["outcome"]);
/// Full disk.
pub const STORAGE_FULL: Family =
    Family::gauge("queen_raft_storage_full", "1 while pushes are refused for want of space");
/// Damaged files.
pub const DAMAGED_FILES: Family = Family::gauge(
    "queen_store_damaged_files",
    "Files of queue logs that are known to be damaged: /status says where",
);
/// Deadlines passed.
pub const REQUEST_TIMEOUTS: Family =
    Family::counter("queen_request_timeouts_total", "Requests not committed before their deadline");
/// Pops that wait.
pub const PARKED: Family = Family::gauge("queen_parked_long_polls", "Pops that wait for messages");
/// Pops that wait, by queue.
pub const PARKED_BY_QUEUE: Family =
    Family::gauge("queen_queue_parked_consumers", "Pops that wait for messages of a queue")
        .by(&["queue"]);
/// Age of what only a hold keeps.
pub const HOLD_AGE: Family = Family::gauge(
    "queen_retention_hold_age_seconds",
    "Age of the oldest record that only a sink's hold keeps",
)
.by(&["queue", "sink"]);
/// Holds near their cap.
pub const HOLD_ENDING: Family = Family::gauge(
    "queen_retention_hold_ending",
    "1 when the hold's cap is near or reached: what the sink has not copied will be lost",
)
.by(&["queue", "sink"]);

/// All of them, in the order of the page.
pub const ALL: &[&Family] = &[
    &PUSH_MESSAGES,
    &PUSH_REQUESTS,
    &POP_MESSAGES,
    &POP_REQUESTS,
    &ACK_MESSAGES,
    &ACK_REQUESTS,
    &TRANSACTIONS,
    &STREAM_CYCLES,
    &TIMERS,
    &TIMERS_PENDING,
    &EPHEMERAL_BYTES,
    &EPHEMERAL_DROPPED,
    &EPHEMERAL_WIPES,
    &RETURNED_LEASES,
    &UPTIME,
    &RESIDENT_MEMORY,
    &CPU_SECONDS,
    &RAFT_INDEX,
    &RAFT_INFLIGHT,
    &RAFT_INFLIGHT_BYTES,
    &RAFT_PROPOSALS,
    &FORWARD,
    &LOG_WRITTEN,
    &LOG_SYNCS,
    &ADMIT,
    &STORAGE_FULL,
    &DAMAGED_FILES,
    &REQUEST_TIMEOUTS,
    &PARKED,
    &PARKED_BY_QUEUE,
    &HOLD_AGE,
    &HOLD_ENDING,
];
