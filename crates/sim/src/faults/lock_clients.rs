//! Clients of locks: who takes a permit, keeps it, writes under its guard, and gives it back or does not.
//!
//! Owns: what is asked, and for how long an answer is good. Leaves to others: what is right (`lock`).
//!
//! Each acquire is for an owner of its own, so what comes of one whose answer was lost is nobody's. After a
//! renewal or a release without an answer a client goes away: it does not know what it has.

use super::asked::{Told, post};
use super::history::History;
use super::lease::certain;
use super::lock::{Facts, Grant, Hold, Permit, Write};
use crate::chance::Chance;
use crate::process::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The locks, and how many may hold each.
const LOCKS: [(&str, u64); 3] = [("door", 1), ("hatch", 1), ("gate", 2)];
const CLIENTS: u64 = 6;
/// What is written under a guard.
const NAMESPACE: &str = "guarded";
/// Life of a permit.
const LIFE: Duration = Duration::from_secs(3);
/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Clients at work.
pub struct Workload {
    stop: Arc<AtomicBool>,
    facts: Arc<Mutex<Facts>>,
    working: Vec<JoinHandle<()>>,
}

impl Workload {
    /// Starts them; each asks any node.
    pub fn start(clients: &[Client], seed: u64, history: &Arc<History>) -> Workload {
        let (stop, facts) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Facts>>::default());
        let owners = Arc::<AtomicU64>::default();
        let work = |number: u64| {
            let mut holder = Holder {
                clients: clients.to_vec(),
                chance: Chance::new(seed ^ 0x6c6f ^ number << 32),
                history: history.clone(),
                facts: facts.clone(),
                owners: owners.clone(),
                stop: stop.clone(),
            };
            tokio::spawn(async move {
                while !holder.stop.load(Ordering::Relaxed) {
                    holder.once().await;
                }
            })
        };
        let working = (0..CLIENTS).map(work).collect();
        Workload { stop, facts, working }
    }

    /// Ends, and gives what the clients know.
    pub async fn stop(self) -> anyhow::Result<Facts> {
        self.stop.store(true, Ordering::Relaxed);
        for work in self.working {
            work.await?;
        }
        Ok(std::mem::take(&mut *self.facts.lock()))
    }
}

struct Holder {
    clients: Vec<Client>,
    chance: Chance,
    history: Arc<History>,
    facts: Arc<Mutex<Facts>>,
    owners: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

/// A permit that a client has.
struct Held {
    permit: Permit,
    owner: String,
    token: u64,
    guard: Value,
    /// Its place among the holds.
    place: usize,
}

/// What came of a step.
#[derive(PartialEq)]
enum Step {
    /// The permit is had still, as far as the client knows.
    Stays,
    /// It is lost, given back, or nobody knows.
    Over,
}

impl Holder {
    fn client(&mut self) -> (u64, Client) {
        let at = self.chance.below(self.clients.len() as u64);
        (at + 1, self.clients[at as usize].clone())
    }

    /// One operation on a lock: when it was asked for, and its result.
    async fn ask(&mut self, operation: &Value) -> (u64, Told) {
        let (node, client) = self.client();
        let asked = self.history.now();
        let body = json!({"operations": [operation]});
        let told = match post(&client, "/api/v1/locks", &body, PATIENCE).await {
            Told::Answered(answer) => Told::Answered(answer["results"][0].clone()),
            other => other,
        };
        let result = match &told {
            Told::Answered(result) => result.clone(),
            other => json!(format!("{other:?}")),
        };
        let more = json!({"node": node, "asked": asked, "op": operation, "result": result});
        self.history.note("lock", more);
        (asked, told)
    }

    /// Takes a permit, does things with it, and gives it back or not.
    async fn once(&mut self) {
        let Some((name, limit)) = self.chance.pick(&LOCKS).copied() else { return };
        let Some(mut held) = self.acquire(name, limit).await else {
            return sleep(Duration::from_millis(50 + self.chance.below(300))).await;
        };
        loop {
            let step = match self.chance.below(12) {
                0..=3 => {
                    sleep(Duration::from_millis(self.chance.below(600))).await;
                    self.write(&held).await
                }
                4..=7 => {
                    sleep(Duration::from_millis(self.chance.below(1500))).await;
                    self.renew(&mut held).await
                }
                // Longer than it may.
                8 => {
                    sleep(LIFE + Duration::from_millis(self.chance.below(1500))).await;
                    self.write(&held).await
                }
                9 | 10 => self.release(&held).await,
                // It dies, and the permit ends by itself.
                _ => Step::Over,
            };
            if step == Step::Over || self.stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Asked for a second time under the same name when the first answer is lost.
    async fn acquire(&mut self, name: &str, limit: u64) -> Option<Held> {
        let owner = format!("owner-{}", self.owners.fetch_add(1, Ordering::Relaxed));
        let operation = json!({"op": "acquire", "name": name, "owner": owner, "limit": limit,
            "ttlSeconds": LIFE.as_secs()});
        let (asked, mut told) = self.ask(&operation).await;
        if matches!(told, Told::Unknown) {
            told = self.ask(&operation).await.1;
        }
        let Told::Answered(result) = told else { return None };
        if result["acquired"] != true {
            return None;
        }
        let (Some(slot), Some(token)) = (result["slot"].as_u64(), result["token"].as_u64()) else {
            self.strange(format!("strange: an acquire was answered {result}"));
            return None;
        };
        if slot >= limit {
            self.strange(format!("strange: slot {slot} of {limit}: {result}"));
        }
        let (permit, now) = ((name.to_owned(), slot), self.history.now());
        let until = asked + certain(LIFE);
        let hold = Hold { permit: permit.clone(), owner: owner.clone(), from: now, until };
        let mut facts = self.facts.lock();
        facts.holds.push(hold);
        let place = facts.holds.len() - 1;
        let (of, to) = (permit.clone(), owner.clone());
        facts.grants.push(Grant { permit: of, owner: to, token, asked, told: now });
        Some(Held { permit, owner, token, guard: result["guard"].clone(), place })
    }

    fn strange(&self, text: String) {
        self.facts.lock().strange.push(text);
    }

    /// The permit was gone when this was told; a fault if it was certainly had then.
    fn gone(&self, held: &Held, what: &str) -> Step {
        let (now, mut facts) = (self.history.now(), self.facts.lock());
        let hold = facts.holds[held.place].clone();
        if now <= hold.until {
            facts.strange.push(format!("taken away: {what} was refused at {now}: {hold:?}"));
        }
        Step::Over
    }

    async fn renew(&mut self, held: &mut Held) -> Step {
        let (name, slot) = &held.permit;
        let operation = json!({"op": "renew", "name": name, "slot": slot, "token": held.token,
            "owner": held.owner, "ttlSeconds": LIFE.as_secs()});
        let (asked, told) = self.ask(&operation).await;
        let result = match told {
            Told::Answered(result) => result,
            Told::Refused => return Step::Stays,
            Told::Unknown => return Step::Over,
        };
        if result["renewed"] != true {
            return self.gone(held, "a renewal");
        }
        let Some(token) = result["token"].as_u64() else {
            self.strange(format!("strange: a renewal was answered {result}"));
            return Step::Over;
        };
        let now = self.history.now();
        (held.token, held.guard) = (token, result["guard"].clone());
        let (permit, owner) = (held.permit.clone(), held.owner.clone());
        let mut facts = self.facts.lock();
        facts.grants.push(Grant { permit, owner, token, asked, told: now });
        let until = &mut facts.holds[held.place].until;
        *until = (*until).max(asked + certain(LIFE));
        Step::Stays
    }

    async fn release(&mut self, held: &Held) -> Step {
        let (name, slot) = &held.permit;
        let operation = json!({"op": "release", "name": name, "slot": slot, "token": held.token});
        let before = {
            let (now, mut facts) = (self.history.now(), self.facts.lock());
            let until = &mut facts.holds[held.place].until;
            let before = *until;
            *until = now.min(before);
            before
        };
        if let (_, Told::Answered(result)) = self.ask(&operation).await
            && result["released"] != true
            && self.history.now() <= before
        {
            self.strange(format!("taken away: the release of {:?}: {result}", held.permit));
        }
        Step::Over
    }

    /// A count that rises only while the permit is had.
    async fn write(&mut self, held: &Held) -> Step {
        let (node, client) = self.client();
        let count = json!({"op": "incr", "ns": NAMESPACE, "key": held.permit.0, "forever": true});
        let body = json!({"operations": [held.guard, count]});
        let asked = self.history.now();
        let told = post(&client, "/api/v1/kv", &body, PATIENCE).await;
        let Told::Answered(answer) = told else { return Step::Stays };
        let passed = answer["results"][1]["applied"] == true;
        let lost = answer["reason"] == "kv_precondition";
        if passed == lost {
            self.strange(format!("strange: a guarded write was answered {answer}"));
        }
        let (permit, owner, token) = (held.permit.clone(), held.owner.clone(), held.token);
        let told = self.history.now();
        let write = Write { permit, owner, token, asked, told, passed };
        self.history.note("guarded", json!({"node": node, "write": write}));
        self.facts.lock().writes.push(write);
        if passed { Step::Stays } else { Step::Over }
    }
}
