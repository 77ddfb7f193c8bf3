//! End to end: the real binary, real HTTP, a real S3 server, a checker that reads files only.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's unwrap is its failure

mod bad_input;
mod bucket_trouble;
mod cluster;
mod cluster_load;
mod cluster_sink;
mod consumption;
mod credentials;
mod dead_letters;
mod encryption;
mod full_disk;
mod growth;
mod kill;
mod limits;
mod looking;
mod loss;
mod membership;
mod parquet;
mod power_cut;
mod refusals;

mod s3_check;
mod same_log;
mod seed_demo;
mod sink_settings;
