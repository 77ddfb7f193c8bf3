//! The sink load: how fast records reach the lake.
//!
//! Owns: its arguments, following `/status`. Leaves to others: filling the queue (`push`), the
//! figures of the process (`report`).

use super::Target;
use super::client::Client;
use super::push::{self, Shape};
use super::report::Measurement;
use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Arguments of the sink load.
#[derive(Debug, Args)]
pub struct SinkArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    shape: Shape,
    /// Messages to push first; 0 follows what waits already
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    /// Give up when no window was committed for so many seconds
    #[arg(long, default_value_t = 120.0, value_name = "SECONDS")]
    patience: f64,
}

/// What `/status` says of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Progress {
    records: u64,
    bytes: u64,
    windows: u64,
    /// The sink has caught up.
    idle: bool,
}

/// Runs the load and prints its figures.
pub async fn run(args: SinkArgs) -> anyhow::Result<()> {
    let mut client = Client::connect(&args.target.addr).await?;
    let before = progress(&mut client, &args.target.queue).await?.unwrap_or_default();
    let measurement = Measurement::begin(&args.target)?;
    let began = Instant::now();
    let mut pushed_after = None;
    if args.messages > 0 {
        push::push(&args.target, &args.shape, args.messages, None, None).await?;
        pushed_after = Some(began.elapsed());
    }
    let patience = Duration::from_secs_f64(args.patience);
    let (mut last, mut moved, mut done) = (before, Instant::now(), Duration::ZERO);
    loop {
        if let Some(now) = progress(&mut client, &args.target.queue).await? {
            if now.records > last.records {
                (last, moved, done) = (now, Instant::now(), began.elapsed());
            }
            let enough = last.records - before.records >= args.messages;
            if enough && (args.messages > 0 || now.idle) {
                break;
            }
        }
        if moved.elapsed() > patience {
            bail!(
                "{} of {} records are in the lake and no window was committed for {} s; see /status",
                last.records - before.records,
                args.messages,
                patience.as_secs()
            );
        }
        // /status is a page to look at, not an event to wait for.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    measurement.end_sink(&super::report::SinkOutcome {
        records: last.records - before.records,
        object_bytes: last.bytes - before.bytes,
        windows: last.windows - before.windows,
        took: done,
        pushed_after,
    })
}

/// The queue's row of `/status`; `None` while the sink has not seen the queue yet.
async fn progress(client: &mut Client, queue: &str) -> anyhow::Result<Option<Progress>> {
    let answer = client.get("/status").await?;
    let status: Value = serde_json::from_slice(answer.body).context("read /status")?;
    let sinks = status["s3"]["sinks"].as_array().filter(|sinks| !sinks.is_empty());
    let Some(sinks) = sinks else {
        bail!("the broker runs no sink: start it with QUEEN_S3_EMBEDDED=true, or use `queen dev`");
    };
    let rows = sinks.iter().filter_map(|sink| sink["queues"].as_array()).flatten();
    let row = rows.into_iter().find(|row| row["name"] == queue);
    Ok(row.map(|row| Progress {
        records: row["records"].as_u64().unwrap_or(0),
        bytes: row["bytes"].as_u64().unwrap_or(0),
        windows: row["windowsCommitted"].as_u64().unwrap_or(0),
        idle: row["lagSeconds"].as_f64() == Some(0.0),
    }))
}
