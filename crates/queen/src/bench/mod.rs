//! `queen bench`: how fast a running broker is, over its HTTP API.
//!
//! Owns: the three loads and their figures. Leaves to others: the broker (it is another process,
//! reached like any client's).
//!
//! A closed loop: each client sends, waits for the answer, sends the next. Latencies are those of
//! one request, or of one pop with its ack. Pushes may come at a fixed rate instead (`--rate`).

mod client;
mod load;
mod pop;
mod process;
mod push;
mod report;
mod sink;

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The loads.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Push messages
    #[command(after_help = "\
Examples:
  queen bench push                                   32 clients x 100 messages of 256 bytes
  queen bench push --clients 1 --batch 1             what one lone client waits for
  queen bench push --partitions 100000 --spread      each message of a request to another partition
  queen bench push --rate 20000 --batch 10           20,000 a second, whatever the broker does")]
    Push(push::PushArgs),
    /// Pop and acknowledge messages
    #[command(after_help = "\
Pushes --messages first (not measured), then lets --clients take and acknowledge them all.

Examples:
  queen bench pop                                    32 clients, batches of 100
  queen bench pop --group billing --partitions 1000")]
    Pop(pop::PopArgs),
    /// Follow the sink until nothing waits
    #[command(after_help = "\
The broker must run with the sink on for --queue. With --messages 0 nothing is pushed: the figures are
those of the backlog that the sink works off, from now until /status says that nothing waits.

Examples:
  queen bench sink --messages 1000000                push a million records, wait until they are in the lake
  queen bench sink --messages 0 --queue orders       watch a backfill that runs already")]
    Sink(sink::SinkArgs),
}

/// What all loads share.
#[derive(Debug, Args, Clone)]
pub struct Target {
    /// Where the broker answers
    #[arg(long, default_value = "127.0.0.1:6632", value_name = "HOST:PORT")]
    addr: String,
    /// Queue to use
    #[arg(long, default_value = "bench")]
    queue: String,
    /// The broker's process, for its CPU, memory and disk figures; found by its port when not given
    #[arg(long)]
    pid: Option<u32>,
    /// The broker's data directory, for its growth on disk
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print one line of JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs a load and prints its figures.
pub async fn run(bench: Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Push(args) => push::run(args).await,
        Bench::Pop(args) => pop::run(args).await,
        Bench::Sink(args) => sink::run(args).await,
    }
}
