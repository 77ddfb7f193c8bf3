//! Clients, and how long each of their requests took.
//!
//! Owns: starting the clients together, sharing out the work, when a request is due, stopping in time.
//! Leaves to others: what one request is (`push`, `pop`).
//!
//! Closed loop: a client sends when the answer before is there, so a slow broker is asked less often.
//! Open loop: requests are due at a fixed rate, whoever is free sends the next, and its latency counts
//! from when it was due, the wait for a free client included.

use super::client::Client;
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Barrier, Mutex, mpsc};

/// Work left to do, shared by all clients.
pub struct Budget {
    left: AtomicI64,
    stopped: AtomicBool,
    deadline: Option<Instant>,
}

impl Budget {
    /// So many messages, or as many as fit into a time.
    pub fn new(messages: u64, time: Option<Duration>) -> Budget {
        Budget {
            left: AtomicI64::new(i64::try_from(messages).unwrap_or(i64::MAX)),
            stopped: AtomicBool::new(false),
            deadline: time.map(|time| Instant::now() + time),
        }
    }

    /// Takes at most `most` messages; 0 when there is nothing left to do.
    pub fn take(&self, most: u32) -> u32 {
        let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if late || self.stopped.load(Ordering::Relaxed) {
            return 0;
        }
        let before = self.left.fetch_sub(i64::from(most), Ordering::Relaxed);
        u32::try_from(before.clamp(0, i64::from(most))).unwrap_or(0)
    }

    /// Counts messages that were done without [`Budget::take`]; whether any are left.
    pub fn done(&self, messages: u32) -> bool {
        self.left.fetch_sub(i64::from(messages), Ordering::Relaxed) > i64::from(messages)
    }

    /// Whether nothing is left to do.
    pub fn is_spent(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
            || self.left.load(Ordering::Relaxed) <= 0
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Ends the load for all clients.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// When requests are due.
pub struct Schedule(Option<Mutex<mpsc::UnboundedReceiver<Instant>>>);

impl Schedule {
    /// A request is due whenever a client is free.
    pub fn closed() -> Schedule {
        Schedule(None)
    }

    /// Requests are due `every` so long, until the budget is spent. A thread says when: the runtime's
    /// timers are good to a millisecond only.
    pub fn open(every: Duration, budget: Arc<Budget>) -> anyhow::Result<Schedule> {
        let (due, requests) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("bench-schedule".to_owned()).spawn(move || {
            let mut next = Instant::now() + every;
            while !budget.is_spent() {
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
                if due.send(next).is_err() {
                    return;
                }
                next += every;
            }
        })?;
        Ok(Schedule(Some(Mutex::new(requests))))
    }

    /// Waits until a request is due; gives when it was, or nothing after the last.
    pub async fn due(&self) -> Option<Instant> {
        match &self.0 {
            None => Some(Instant::now()),
            Some(requests) => requests.lock().await.recv().await,
        }
    }
}

/// What the clients did together.
pub struct Outcome {
    /// Messages done.
    pub messages: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// From the first request to the last answer.
    pub took: Duration,
    /// Microseconds of each request.
    pub latency: Histogram<u64>,
}

/// What one client did.
pub struct Tally {
    /// Messages done.
    pub messages: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Microseconds of each request.
    pub latency: Histogram<u64>,
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> anyhow::Result<Tally> {
        Ok(Tally { messages: 0, payload_bytes: 0, latency: histogram()? })
    }

    /// Counts a request that began at `began`.
    pub fn count(&mut self, began: Instant, messages: u64, payload_bytes: u64) {
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.latency.saturating_record(micros);
        self.messages += messages;
        self.payload_bytes += payload_bytes;
    }
}

fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 600_000_000, 3)?)
}

/// Runs `clients` of them: each connects, all start together, the first error ends the load.
pub async fn run<F, R>(
    addr: &str,
    clients: u32,
    budget: Arc<Budget>,
    client: F,
) -> anyhow::Result<Outcome>
where
    F: Fn(u32, Client, Arc<Budget>) -> R,
    R: Future<Output = anyhow::Result<Tally>> + Send + 'static,
{
    let mut connections = Vec::new();
    for _ in 0..clients {
        connections.push(Client::connect(addr).await?);
    }
    let gate = Arc::new(Barrier::new(connections.len() + 1));
    let mut running = tokio::task::JoinSet::new();
    for (number, connection) in connections.into_iter().enumerate() {
        let work = client(number as u32, connection, Arc::clone(&budget));
        let (gate, budget) = (Arc::clone(&gate), Arc::clone(&budget));
        running.spawn(async move {
            gate.wait().await;
            let result = work.await;
            if result.is_err() {
                budget.stop();
            }
            result
        });
    }
    gate.wait().await;
    let began = Instant::now();
    let mut outcome =
        Outcome { messages: 0, payload_bytes: 0, took: Duration::ZERO, latency: histogram()? };
    while let Some(joined) = running.join_next().await {
        let tally = joined??;
        outcome.messages += tally.messages;
        outcome.payload_bytes += tally.payload_bytes;
        outcome.latency.add(&tally.latency)?;
        outcome.took = began.elapsed();
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_open_loop_waits_for_nobody() {
        let every = Duration::from_millis(2);
        let budget = Arc::new(Budget::new(u64::MAX, None));
        let schedule = Schedule::open(every, budget.clone()).unwrap();
        let first = schedule.due().await.unwrap();
        // Nobody is free for a while: what was due meanwhile is still due then.
        std::thread::sleep(every * 20);
        let late = schedule.due().await.unwrap();
        assert_eq!(late, first + every);
        assert!(late.elapsed() >= every * 15);
        budget.stop();
        while schedule.due().await.is_some() {}
    }

    #[test]
    fn a_budget_is_given_out_once() {
        let budget = Budget::new(250, None);
        assert_eq!([budget.take(100), budget.take(100), budget.take(100)], [100, 100, 50]);
        assert_eq!(budget.take(100), 0);
        assert!(budget.is_spent());
        assert_eq!(Budget::new(9, Some(Duration::ZERO)).take(1), 0);
    }
}
