//! The broker binary: settings, wiring and subcommands.
//!
//! Owns: the command line, the exit codes, the wiring of the layers (`node`, `sink_host`), the demo
//! (`dev`, `s3_server`) and the benchmark (`bench`). Leaves to others: every rule, every byte on
//! disk, every route.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bench;
mod health;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A message broker whose queues arrive in a bucket, exactly once.
#[derive(Debug, Parser)]
#[command(
    name = "queen",
    version,
    after_help = "\
Without a command: serve.

To try it:        queen dev
To run it:        QUEEN_RAFT_DIR=/data queen serve
To measure it:    queen bench push"
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Subcommands>,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Measure a running broker
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Ask a running broker whether it is well; the exit code is the answer
    Health(health::HealthArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => Ok(()),
        Some(Subcommands::Bench(bench)) => runtime().and_then(|rt| rt.block_on(bench::run(bench))),
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
