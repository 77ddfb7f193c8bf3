//! One Rust process of `conformance/kills`: pushes its share, consumes, and writes down what it was told.
//!
//! Does what `workers/python.py` does, with the Rust client: see there for its arguments and its records.
//! It lies outside the workspace; `packages.py` builds it with the client's release.

use queen_mq::{Config, Message, PushItem, Queen, SubscriptionMode};
use serde_json::{Value, json};
use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

type Done = Result<(), Box<dyn Error>>;

/// The broker is down, or says that it has too much to do.
const PAUSE: Duration = Duration::from_millis(200);
/// Of so many pops with messages one is left to the end of its lease, as by a worker that dies.
const POPS_PER_FORGOTTEN_ONE: u64 = 50;

struct Worker {
    /// A client as it comes, which asks again by itself.
    client: Queen,
    /// One that does not, so that each answer that was lost is written down.
    acker: Queen,
    plan: Value,
    records: File,
    over: Arc<AtomicBool>,
}

fn now() -> Result<u64, Box<dyn Error>> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64)
}

fn text(value: &Value) -> Result<&str, Box<dyn Error>> {
    Ok(value.as_str().ok_or("the plan has no text where one belongs")?)
}

fn list(value: &Value) -> Result<&Vec<Value>, Box<dyn Error>> {
    Ok(value.as_array().ok_or("the plan has no list where one belongs")?)
}

impl Worker {
    fn wrote(&self, record: &Value, what: &str, count: usize) -> Done {
        (&self.records).write_all(format!("{record}\n").as_bytes())?;
        println!("{what} {count}");
        Ok(())
    }

    fn payload(&self, id: &str) -> Value {
        json!({"id": id, "text": self.plan["text"]})
    }

    async fn push(&self) -> Done {
        let queue = text(&self.plan["queue"])?;
        for run in list(&self.plan["runs"])? {
            let (partition, mut items) = (text(&run[0])?, Vec::new());
            for id in list(&run[1])? {
                let id = text(id)?;
                let item = PushItem::new(queue, self.payload(id));
                items.push(item.partition(partition).transaction_id(id));
            }
            let results = loop {
                match self.client.queue(queue).push_items(items.clone()).await {
                    Ok(results) => break results,
                    Err(error) if error.is_retryable() => tokio::time::sleep(PAUSE).await,
                    Err(error) => return Err(error.into()),
                }
            };
            let ids = list(&run[1])?;
            if results.len() != ids.len() || results.iter().any(|result| result.offset.is_none()) {
                return Err(format!("a push of {} was answered {results:?}", run[1]).into());
            }
            let pushed: Vec<Value> =
                ids.iter().zip(&results).map(|(id, result)| json!([id, result.offset])).collect();
            self.wrote(&json!({ "pushed": pushed }), "pushed", pushed.len())?;
        }
        Ok(())
    }

    async fn consume(&self) -> Done {
        let queue = self.client.queue(text(&self.plan["queue"])?);
        let asking =
            queue.group(text(&self.plan["group"])?).subscription_mode(SubscriptionMode::All);
        let asking =
            asking.batch(100).partitions(16).wait(true).poll_timeout(Duration::from_secs(1));
        let mut pops = 0;
        while !self.over.load(Ordering::Relaxed) {
            let sent = now()?;
            match asking.pop().await {
                Ok(messages) if messages.is_empty() => {}
                Ok(messages) => {
                    let one = |m: &Message| {
                        json!([
                            m.transaction_id,
                            m.partition,
                            m.data == self.payload(&m.transaction_id)
                        ])
                    };
                    let popped: Vec<Value> = messages.iter().map(one).collect();
                    let record = json!({"sent": sent, "got": now()?, "popped": popped});
                    self.wrote(&record, "popped", popped.len())?;
                    pops += 1;
                    if pops % POPS_PER_FORGOTTEN_ONE != 0 {
                        self.ack(&messages).await?;
                    }
                }
                Err(error) if error.is_retryable() => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn ack(&self, messages: &[Message]) -> Done {
        loop {
            let sent = now()?;
            let results = match self.acker.ack_all(messages).await {
                Ok(results) => Some(results),
                Err(error) if error.is_retryable() => None,
                Err(error) => return Err(error.into()),
            };
            let word = |at: usize| match results.as_ref().map(|results| &results[at]) {
                None => "lost",
                Some(result) if !result.success => "refused",
                Some(result) if result.noop => "noop",
                Some(_) => "done",
            };
            let words: Vec<&str> = (0..messages.len()).map(word).collect();
            let settled = words.iter().filter(|word| matches!(**word, "done" | "noop")).count();
            let acked = messages.iter().zip(words).map(|(m, word)| json!([m.transaction_id, word]));
            let acked: Vec<Value> = acked.collect();
            let record = json!({"sent": sent, "got": now()?, "acked": acked});
            self.wrote(&record, "acked", settled)?;
            if results.is_some() {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, plan, records] = &arguments[..] else {
        return Err("URL PLAN RECORDS, please".into());
    };
    let over = Arc::new(AtomicBool::new(false));
    let worker = Worker {
        client: Queen::connect(Config::new(url))?,
        acker: Queen::connect(Config::new(url).retry_attempts(1))?,
        plan: serde_json::from_reader(File::open(plan)?)?,
        records: File::create(records)?,
        over: over.clone(),
    };
    std::thread::spawn(move || {
        // Whatever ends it, nothing more will come.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Ordering::Relaxed);
    });
    tokio::try_join!(worker.push(), worker.consume())?;
    Ok(())
}
