//! The push load.
//!
//! Owns: its arguments, the bodies of its requests, and filling a queue for the other loads. Leaves
//! to others: the loop (`load`), the figures (`report`).

use super::Target;
use super::client::Client;
use super::load::{self, Budget, Outcome, Schedule, Tally};
use super::report::Measurement;
use anyhow::bail;
use clap::Args;
use std::sync::Arc;
use std::time::Duration;

/// Arguments of the push load.
#[derive(Debug, Args)]
pub struct PushArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    shape: Shape,
    /// Messages to push
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    /// Stop after so many seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Send so many messages a second, whatever the broker does; latencies count from when a request
    /// was due
    #[arg(long, value_name = "PER_SECOND", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
}

/// The shape of the load.
#[derive(Debug, Args, Clone)]
pub struct Shape {
    /// Connections
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients: u32,
    /// Messages of one request
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub batch: u32,
    /// Bytes of one payload
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(32..=1_000_000))]
    pub size: u32,
    /// Partitions of the queue
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub partitions: u32,
    /// Send each message of a request to another partition, instead of all to one
    #[arg(long)]
    pub spread: bool,
}

/// Runs the load and prints its figures.
pub async fn run(args: PushArgs) -> anyhow::Result<()> {
    let measurement = Measurement::begin(&args.target)?;
    let time = args.seconds.map(Duration::from_secs_f64);
    let outcome = push(&args.target, &args.shape, args.messages, time, args.rate).await?;
    measurement.end("push", &args.shape.to_string(), &outcome)
}

/// Pushes messages until they or the time run out; `rate`: so many a second.
pub async fn push(
    target: &Target,
    shape: &Shape,
    messages: u64,
    time: Option<Duration>,
    rate: Option<u32>,
) -> anyhow::Result<Outcome> {
    let payloads: Arc<Vec<String>> = Arc::new(payloads(shape.size));
    let budget = Arc::new(Budget::new(messages, time));
    let schedule = match rate.map(f64::from) {
        None => Schedule::closed(),
        Some(rate) => {
            let every = Duration::from_secs_f64(f64::from(shape.batch) / rate);
            Schedule::open(every, Arc::clone(&budget))?
        }
    };
    let schedule = Arc::new(schedule);
    load::run(&target.addr, shape.clients, budget, |number, client, budget| {
        let pusher = Pusher {
            client,
            queue: serde_json::Value::from(target.queue.as_str()).to_string(),
            shape: shape.clone(),
            payloads: Arc::clone(&payloads),
            next: u64::from(number),
            sent: number as usize * 997,
            body: Vec::new(),
        };
        pusher.run(budget, Arc::clone(&schedule))
    })
    .await
}

struct Pusher {
    client: Client,
    /// As a JSON text.
    queue: String,
    shape: Shape,
    payloads: Arc<Vec<String>>,
    /// Partition of the next request, or of the next message with `spread`.
    next: u64,
    /// Which payload is next: clients begin at different ones.
    sent: usize,
    body: Vec<u8>,
}

impl Pusher {
    async fn run(mut self, budget: Arc<Budget>, schedule: Arc<Schedule>) -> anyhow::Result<Tally> {
        let mut tally = Tally::new()?;
        loop {
            let count = budget.take(self.shape.batch);
            if count == 0 {
                return Ok(tally);
            }
            let payload_bytes = self.write_body(count);
            let Some(began) = schedule.due().await else { return Ok(tally) };
            let answer = self.client.post("/api/v1/push", &self.body).await?;
            if answer.status != 201 {
                let text = String::from_utf8_lossy(answer.body);
                bail!("the broker answered {}: {text}", answer.status);
            }
            tally.count(began, u64::from(count), payload_bytes);
        }
    }

    fn write_body(&mut self, count: u32) -> u64 {
        let mut payload_bytes = 0;
        self.body.clear();
        self.body.extend_from_slice(b"{\"items\":[");
        for item in 0..count {
            if item > 0 {
                self.body.push(b',');
            }
            let partition = self.next % u64::from(self.shape.partitions);
            let payload = &self.payloads[self.sent % self.payloads.len()];
            self.sent += 1;
            self.body.extend_from_slice(b"{\"queue\":");
            self.body.extend_from_slice(self.queue.as_bytes());
            self.body.extend_from_slice(
                format!(",\"partition\":\"p{partition}\",\"payload\":").as_bytes(),
            );
            self.body.extend_from_slice(payload.as_bytes());
            self.body.push(b'}');
            payload_bytes += payload.len() as u64;
            self.next += u64::from(self.shape.spread);
        }
        // Without spread a client stays with its partition; with it, clients move in step.
        self.body.extend_from_slice(b"]}");
        payload_bytes
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shape { clients, batch, size, partitions, spread } = self;
        let spread = if *spread { ", spread" } else { "" };
        write!(f, "{clients} x {batch}, {size} B, {partitions} partitions{spread}")
    }
}

/// Bytes of all payloads together, about.
const PAYLOAD_POOL_BYTES: usize = 16 << 20;

/// JSON objects of exactly `size` bytes whose text compresses about as badly as real data.
fn payloads(size: u32) -> Vec<String> {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(LETTERS[(state >> 58) as usize])
    };
    let one = |number: usize| {
        let head = format!("{{\"n\":{number},\"t\":\"");
        let fill = (size as usize).saturating_sub(head.len() + 2);
        let text: String = (0..fill).map(|_| letter()).collect();
        format!("{head}{text}\"}}")
    };
    // More than a compressor's window holds, so that none is found again in it.
    (0..(PAYLOAD_POOL_BYTES / size as usize).clamp(64, 65_536)).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_json_of_the_size_asked_for() {
        for size in [32, 256, 5000] {
            for payload in payloads(size) {
                assert_eq!(payload.len(), size as usize);
                serde_json::from_str::<serde_json::Value>(&payload).unwrap();
            }
        }
    }
}
