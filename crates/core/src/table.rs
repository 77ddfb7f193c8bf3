//! The one list of everything the tables hold.
//!
//! Owns: the table numbers. A number is written to disk and never reused. Keys and values of each
//! are in `row`.

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident = $number:literal $word:literal,)*) => {
        /// An ordered table: byte keys to byte values.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Table { $($(#[$doc])* $name = $number,)* }

        impl Table {
            /// All tables, in number order.
            pub const ALL: &'static [Table] = &[$(Table::$name,)*];

            /// Name on disk.
            pub fn name(self) -> &'static str {
                match self { $(Table::$name => $word,)* }
            }
        }
    };
}

tables! {
    /// Single rows of the whole broker: the last stamp, the next ids. Lives for ever.
    Meta = 0 "meta",
    /// (tenant, queue name) → queue id. Until the queue is deleted.
    QueueName = 1 "queue_name",
    /// queue id → tenant, name, options, labels, creation, its newest segment. Until its log is gone.
    Queue = 2 "queue",
    /// (queue id, partition name) → partition id, next offset, log start, last stamp. With the queue.
    Partition = 3 "partition",
    /// partition id → queue id and name. With the queue.
    PartitionById = 4 "partition_by_id",
    /// (partition id, first offset) → place, count and stamp of a run. Until its segment is dropped.
    Run = 5 "run",
    /// (queue id, last stamp, partition id) → nothing: partitions in order of their last write. With the queue.
    Tail = 6 "tail",
    /// (queue id, segment number) → bytes, stamps and counts of a queue log segment. Until it is dropped.
    Segment = 7 "segment",
    /// (partition id, hash of the transaction id) → offsets, expiry. Until the dedup window and the ack memory end.
    TransactionId = 8 "transaction_id",
    /// (expiry stamp, partition id, chunk) → hashes: transaction ids in order of expiry.
    TransactionIdExpiry = 9 "transaction_id_expiry",
    /// (queue id, group name) → registration. Until the group is deleted.
    Group = 10 "group",
    /// (group id, partition id) → cursor, lease, retry budget. With the group.
    Cursor = 11 "cursor",
    /// (group id, ready stamp, partition id) → nothing: partitions with something to deliver. With the group.
    Ready = 12 "ready",
    /// (lease id, group id, partition id) → nothing: the claims of a lease. Until released or expired.
    Lease = 13 "lease",
    /// (expiry stamp, group id, partition id) → nothing: leases in order of expiry.
    LeaseExpiry = 14 "lease_expiry",
    /// (queue id, failed stamp, number) → a dead letter with its payload. Until replayed or purged.
    DeadLetter = 15 "dead_letter",
    /// (tenant, namespace, key) → value, version, expiry. Until deleted or expired.
    Kv = 16 "kv",
    /// (expiry stamp, tenant, namespace, key) → nothing: KV rows in order of expiry.
    KvExpiry = 17 "kv_expiry",
    /// (tenant, namespace) → number of live keys.
    KvNamespace = 18 "kv_namespace",
    /// (queue id, sink name) → the window that a sink's intent pins. From intent to commit.
    Pin = 19 "pin",
    /// dead letter id → its key in `DeadLetter`.
    DeadLetterById = 20 "dead_letter_by_id",
    /// ('q', 'h' or 'g', queue or group id; 's', state of a stream's query) → what sinks still miss of a queue: deleted queues and groups, and wiped states, of which rows or log are left; 'h': nothing but what a sink has pinned.
    Gone = 21 "gone",
    /// (tenant, sink, queue name, window, partition id, first offset) → a range that went before the sink copied it. Until a manifest lists it.
    Lost = 22 "lost",
    /// (queue id, timer key) → what becomes a message, and when. Until it is fired or cancelled.
    Timer = 23 "timer",
    /// (queue id, timer key) → the payload of a timer. With the timer.
    TimerPayload = 24 "timer_payload",
    /// (stamp of the next try, number, queue id, timer key) → nothing: timers in the order in which they fall due. With the timer.
    TimerDue = 25 "timer_due",
    /// (stamp) → an event that a consumer recorded of a message. For seven days, as long as there is room.
    Trace = 26 "trace",
    /// (partition id, hash of the transaction id, stamp) → nothing: the events of a message. With the event.
    TraceOfMessage = 27 "trace_of_message",
    /// (tenant, name, stamp) → nothing: the events that have a name. With the event.
    TraceName = 28 "trace_name",
    /// (tenant, name) → how many events have it, of how many messages. With the last of them.
    TraceNameCount = 29 "trace_name_count",
    /// (tenant, name) → a stream runtime's query: its id, state, source, configuration. Until its source has not existed for a day.
    StreamQuery = 30 "stream_query",
    /// query id → tenant and name. With the query.
    StreamQueryById = 31 "stream_query_by_id",
    /// (partition id, state, key) → what a query remembers of a partition. Until the query lets go of it, is reset or goes, or the partition does.
    StreamState = 32 "stream_state",
    /// (state, partition id) → how much there is in `StreamState`, and since when. With the last of it.
    StreamPartition = 33 "stream_partition",
    /// (tenant, queue name) → what is declared of an ephemeral queue. Until it is deleted.
    EphemeralQueue = 34 "ephemeral_queue",
}
