//! The exactly-once copy of queues into a bucket.
