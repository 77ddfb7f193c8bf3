//! The shell around the rules: batching, proposing, answering, long polls and reads.
