//! The broker binary: settings, wiring and subcommands.
//!
//! Owns: the command line, the exit codes, the wiring of the layers (`node`, `sink_host`), the demo
//! (`dev`, `s3_server`), the check of a bucket (`s3_check`), the look at a cluster (`cluster`) and the benchmark (`bench`). Leaves to
//! others: every rule, every byte on disk, every route.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod allocator;
mod asker;
mod bench;
mod cluster;
mod dev;
mod encryption;
mod environment;
mod health;
mod logging;
mod node;
mod s3_check;
mod s3_server;
mod serve;
mod settings;
mod signals;
mod sink_host;
mod sink_part;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A message broker whose queues arrive in a bucket, exactly once.
#[derive(Debug, Parser)]
#[command(
    name = "queen",
    version,
    after_help = "\
Without a command: serve.

To try it:          queen dev
To run it:          QUEEN_RAFT_DIR=/data queen serve
To try the bucket:  queen s3 check
To see a cluster:   queen cluster status
To measure it:      queen bench push"
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Subcommands>,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Run the broker, configured by the environment
    #[command(after_help = SERVE_HELP)]
    Serve,
    /// Run broker, S3 server and sink in one folder, to try everything
    #[command(after_help = "\
Everything lies in one folder (--dir), nothing else is touched. QUEEN_S3_QUEUES, QUEEN_S3_START,
QUEEN_S3_FORMAT, QUEEN_S3_COMPRESSION and QUEEN_S3_PARQUET_CODEC may be set as for `serve`.

Example:
  queen dev --window-ms 2000      files close after two seconds")]
    Dev(dev::DevArgs),
    /// Measure a running broker
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Try the bucket of the sink
    #[command(subcommand)]
    S3(s3_check::S3),
    /// Look at a cluster
    #[command(subcommand)]
    Cluster(cluster::Cluster),
    /// Ask a running broker whether it is well; the exit code is the answer
    Health(health::HealthArgs),
}

const SERVE_HELP: &str = "\
Environment (defaults in brackets):
  PORT [6632], QUEEN_BIND_ADDR [0.0.0.0]     where HTTP is answered
  QUEEN_RAFT_DIR [/var/lib/queen/raft]       the data directory; one process at a time
  QUEEN_MAX_BODY_BYTES [67108864]            longest request
  QUEEN_STMT_TIMEOUT_MS [30000]              deadline of a write
  QUEEN_RAFT_DISK_HIGH_PCT [85], _LOW_PCT [80]  pushes get 507 above, and go on below
  QUEEN_ENCRYPTION_KEY, _KEY_FILE            64 hex digits, for queues with encryptionEnabled
  QUEEN_ENCRYPTION_KEY_PREVIOUS              keys before it, for reading: comma list
  RETENTION_INTERVAL [5000]                  milliseconds between two looks at a queue's retention
  QUEEN_TLS_CERT, QUEEN_TLS_KEY              PEM files: HTTP is answered by TLS
  LOG_LEVEL [info], RUST_LOG, QUEEN_LOG_JSON [false]

A cluster of three (the same on each node but for QUEEN_RAFT_NODE_ID):
  QUEEN_RAFT_PEERS=1=a:7400/a:6632,2=b:7400/b:6632,3=c:7400/c:6632
  QUEEN_RAFT_NODE_ID=1                       which of them this one is; `ordinal`: from its host name
  QUEEN_RAFT_TOKEN                           a secret that they share
  QUEEN_RAFT_LISTEN, _JOIN, _ELECTION_MS, _TLS_CA, _TLS_CERT, _TLS_KEY

The S3 sink:
  QUEEN_S3_EMBEDDED=true                     turns it on
  QUEEN_S3_QUEUES=orders,payments            what is copied, or *
  QUEEN_S3_ENDPOINT, _REGION, _BUCKET        where to
  QUEEN_S3_ACCESS_KEY, _SECRET_KEY           as whom
  QUEEN_S3_PATH_STYLE [false]                true for most self-hosted services
  QUEEN_S3_START [latest]                    earliest copies what retention still holds
  QUEEN_S3_TARGET_MB [128], _MAX_WINDOW_MS [300000]  when a file closes
  QUEEN_S3_FORMAT [jsonl], _COMPRESSION [zstd]   or parquet, _PARQUET_CODEC [zstd]

docs/reference/settings.md has all of them, and where else credentials may come from.

A bad value stops the start and says what is allowed. SIGTERM and Ctrl-C end cleanly.";

fn main() -> ExitCode {
    allocator::set_up();
    let cli = Cli::parse();
    let result = match cli.command {
        None | Some(Subcommands::Serve) => runtime().and_then(|rt| rt.block_on(serve::run())),
        Some(Subcommands::Dev(args)) => runtime().and_then(|rt| rt.block_on(dev::run(args))),
        Some(Subcommands::Bench(bench)) => runtime().and_then(|rt| rt.block_on(bench::run(bench))),
        Some(Subcommands::S3(s3)) => runtime().and_then(|rt| rt.block_on(s3_check::run(s3))),
        Some(Subcommands::Cluster(command)) => cluster::run(command),
        Some(Subcommands::Health(args)) => health::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("queen: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("queen").build()?)
}
