//! The pop and ack load.
//!
//! Owns: its arguments and its requests. Leaves to others: filling the queue (`push`), the loop
//! (`load`), the figures (`report`).

use super::Target;
use super::client::{Client, segment};
use super::load::{self, Budget, Tally};
use super::push::{self, Shape};
use super::report::Measurement;
use anyhow::{Context, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Arguments of the pop load.
#[derive(Debug, Args)]
pub struct PopArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    shape: Shape,
    /// Messages to push first and then to take; 0 takes what is there until nothing comes
    #[arg(long, default_value_t = 500_000)]
    messages: u64,
    /// Stop after so many seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Consumer group; without one the queue's own cursor
    #[arg(long)]
    group: Option<String>,
    /// Commit at delivery instead of acknowledging
    #[arg(long)]
    auto_ack: bool,
}

/// How long a client polls an empty queue before it takes it for drained.
const IDLE: Duration = Duration::from_secs(2);

/// Runs the load and prints its figures.
pub async fn run(args: PopArgs) -> anyhow::Result<()> {
    if args.messages > 0 {
        let filler =
            Shape { clients: 8, batch: 1000.min(args.shape.batch * 10), ..args.shape.clone() };
        push::push(&args.target, &filler, args.messages, None, None).await?;
    }
    let measurement = Measurement::begin(&args.target)?;
    let messages = if args.messages == 0 { u64::MAX } else { args.messages };
    let time = args.seconds.map(Duration::from_secs_f64);
    let budget = Arc::new(Budget::new(messages, time));
    let popper = Popper::new(&args);
    let outcome = load::run(&args.target.addr, args.shape.clients, budget, |_, client, budget| {
        popper.clone().run(client, budget)
    })
    .await?;
    let name = if args.auto_ack { "pop (auto ack)" } else { "pop + ack" };
    measurement.end(name, &args.shape.to_string(), &outcome)
}

#[derive(Clone)]
struct Popper {
    path: String,
    group: Option<String>,
    auto_ack: bool,
}

/// What the load needs of an answer; payloads are counted, not read.
#[derive(Deserialize)]
struct Popped<'a> {
    #[serde(borrow, default)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    #[serde(borrow)]
    transaction_id: Cow<'a, str>,
    #[serde(borrow)]
    partition_id: Cow<'a, str>,
    #[serde(borrow)]
    lease_id: Cow<'a, str>,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Deserialize)]
struct Acked<'a> {
    success: bool,
    #[serde(borrow, default)]
    error: Option<Cow<'a, str>>,
}

impl Popper {
    fn new(args: &PopArgs) -> Popper {
        let queue = segment(&args.target.queue);
        let mut path =
            format!("/api/v1/pop/queue/{queue}?batch={}&wait=true&timeout=500", args.shape.batch);
        // All partitions a batch may need, when messages are spread thinly.
        if args.shape.spread {
            path.push_str("&partitions=64");
        }
        if args.auto_ack {
            path.push_str("&autoAck=true");
        }
        if let Some(group) = &args.group {
            path.push_str(&format!("&subscriptionMode=all&consumerGroup={}", segment(group)));
        }
        Popper { path, group: args.group.clone(), auto_ack: args.auto_ack }
    }

    async fn run(self, mut client: Client, budget: Arc<Budget>) -> anyhow::Result<Tally> {
        let mut tally = Tally::new()?;
        let mut last = Instant::now();
        while !budget.is_spent() && last.elapsed() < IDLE {
            let began = Instant::now();
            let answer = client.get(&self.path).await?;
            if answer.status == 204 {
                continue;
            }
            if answer.status != 200 {
                let text = String::from_utf8_lossy(answer.body);
                bail!("the broker answered {} to a pop: {text}", answer.status);
            }
            let popped: Popped<'_> =
                serde_json::from_slice(answer.body).context("read the answer of a pop")?;
            let count = popped.messages.len() as u32;
            let bytes = popped.messages.iter().map(|m| m.data.get().len() as u64).sum();
            if count == 0 {
                continue;
            }
            if !self.auto_ack {
                let body = self.ack_body(&popped.messages)?;
                self.ack(&mut client, &body).await?;
            }
            tally.count(began, u64::from(count), bytes);
            last = Instant::now();
            budget.done(count);
        }
        Ok(tally)
    }

    fn ack_body(&self, messages: &[Message<'_>]) -> anyhow::Result<Vec<u8>> {
        let mut body = Vec::with_capacity(160 * messages.len() + 64);
        body.extend_from_slice(b"{\"acknowledgments\":[");
        for (index, message) in messages.iter().enumerate() {
            let open: &[u8] = if index > 0 { b",{" } else { b"{" };
            body.extend_from_slice(open);
            body.extend_from_slice(b"\"transactionId\":");
            serde_json::to_writer(&mut body, &*message.transaction_id)?;
            body.extend_from_slice(b",\"partitionId\":");
            serde_json::to_writer(&mut body, &*message.partition_id)?;
            body.extend_from_slice(b",\"leaseId\":");
            serde_json::to_writer(&mut body, &*message.lease_id)?;
            body.extend_from_slice(b",\"status\":\"completed\"}");
        }
        body.push(b']');
        if let Some(group) = &self.group {
            body.extend_from_slice(b",\"consumerGroup\":");
            serde_json::to_writer(&mut body, group)?;
        }
        body.push(b'}');
        Ok(body)
    }

    async fn ack(&self, client: &mut Client, body: &[u8]) -> anyhow::Result<()> {
        let answer = client.post("/api/v1/ack/batch", body).await?;
        if answer.status != 200 {
            let text = String::from_utf8_lossy(answer.body);
            bail!("the broker answered {} to an ack: {text}", answer.status);
        }
        let acked: Vec<Acked<'_>> =
            serde_json::from_slice(answer.body).context("read the answer of an ack")?;
        match acked.iter().find(|item| !item.success) {
            None => Ok(()),
            Some(refused) => {
                bail!("an ack was refused: {}", refused.error.as_deref().unwrap_or("?"))
            }
        }
    }
}
