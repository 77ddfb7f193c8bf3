//! Clients of KV, and whether what they were answered can have happened one after the other.
//!
//! Owns: registers (put, put at a version, get) and counters (incr, get) through any node, and their
//! model. Leaves to others: the search for an order (`todc_utils`).
//!
//! Each put writes a value that no other put writes, so a version is known by its value. An operation
//! whose answer was lost may have its effect at any time after its call, or never: it ends after all
//! others. A put without an answer whose value nobody saw is left out, with and without it the rest is the
//! same; one whose value somebody saw ended by then. What no node was there to take never was asked.

use super::asked::{Told, post};
use super::history::History;
use crate::chance::Chance;
use crate::process::Client;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History as Actions};
use todc_utils::specifications::Specification;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// Keys of each sort.
const KEYS: u64 = 3;
/// Clients.
const CLIENTS: u64 = 6;

/// An operation with what was answered; `None` for an answer that was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Op {
    /// The value that was read, if there is the key.
    Get(Option<i64>),
    /// A put without a condition.
    Put(i64),
    /// A put at the version that had the value `from`; the answer is `Ok`, or the value that was there.
    PutAt { from: Option<i64>, to: i64, answer: Option<Result<(), Option<i64>>> },
    /// One more; the answer is the sum.
    Incr(Option<i64>),
}

/// One operation on one key, from its call to its answer.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    /// Microseconds since the run began.
    pub begin: u64,
    /// The same; `None` if the answer was lost.
    pub end: Option<u64>,
    /// What was asked and answered.
    pub op: Op,
}

/// One key.
struct Key;

/// An operation, and for an increment whose answer was lost its number among those of its key.
type Numbered = (Op, usize);

impl Specification for Key {
    /// The value, and how many of the increments without an answer have had their effect.
    type State = (Option<i64>, usize);
    type Operation = Numbered;

    fn init() -> Self::State {
        (None, 0)
    }

    fn apply((op, number): &Numbered, (value, open): &Self::State) -> (bool, Self::State) {
        let same = (*value, *open);
        match op {
            Op::Get(seen) => (seen == value, same),
            Op::Put(to) => (true, (Some(*to), *open)),
            Op::PutAt { answer: Some(Err(seen)), from, .. } => {
                (from != value && seen == value, same)
            }
            Op::PutAt { from, to, .. } => (from == value, (Some(*to), *open)),
            Op::Incr(sum) => {
                let after = value.unwrap_or(0) + 1;
                match sum {
                    Some(sum) => (*sum == after, (Some(after), *open)),
                    // One is as good as another: in the order of their calls, or the search would
                    // try all subsets.
                    None => (number == open, (Some(after), open + 1)),
                }
            }
        }
    }
}

/// Whether there is an order in which each of the calls to one key had its answer.
pub fn is_linearizable(calls: &[Call]) -> bool {
    // When somebody was first told a value: its put had its effect before.
    let mut told: BTreeMap<i64, u64> = BTreeMap::new();
    for call in calls {
        for value in values_seen(&call.op) {
            let first = told.entry(value).or_insert(u64::MAX);
            *first = (*first).min(call.end.unwrap_or(u64::MAX));
        }
    }
    let mut calls: Vec<&Call> = calls.iter().collect();
    calls.sort_by_key(|call| call.begin);
    let (mut moments, mut open) = (Vec::new(), 0);
    for (n, call) in calls.into_iter().enumerate() {
        let end = match (call.end, &call.op) {
            (Some(end), _) => end,
            (None, Op::Get(_)) => continue,
            (None, Op::Put(value) | Op::PutAt { to: value, .. }) => match told.get(value) {
                // Told before it was asked for: left as it is, which no order fits.
                Some(first) => (*first).max(call.begin),
                None => continue,
            },
            (None, Op::Incr(_)) => u64::MAX,
        };
        let op = (call.op.clone(), open);
        open += usize::from(call.end.is_none() && matches!(call.op, Op::Incr(_)));
        // A call at the moment of an answer may be beside it.
        moments.push((call.begin, 0, n, Action::Call(op.clone())));
        moments.push((end, 1, n, Action::Response(op)));
    }
    if moments.is_empty() {
        return true;
    }
    moments.sort_by_key(|(at, order, n, _)| (*at, *order, *n));
    let actions = moments.into_iter().map(|(_, _, n, action)| (n, action)).collect();
    WGLChecker::<Key>::is_linearizable(Actions::from_actions(actions))
}

fn values_seen(op: &Op) -> Vec<i64> {
    match op {
        Op::Get(Some(value)) => vec![*value],
        Op::PutAt { from, answer, .. } => {
            let found = answer.and_then(Result::err).flatten();
            from.iter().copied().chain(found).collect()
        }
        _ => Vec::new(),
    }
}

/// Clients at work.
pub struct Workload {
    stop: Arc<AtomicBool>,
    calls: Arc<Mutex<BTreeMap<String, Vec<Call>>>>,
    working: Vec<tokio::task::JoinHandle<()>>,
}

struct Worker {
    clients: Vec<Client>,
    chance: Chance,
    values: Arc<AtomicU64>,
    history: Arc<History>,
    /// The value and version that it saw last, by key.
    known: BTreeMap<String, (Option<i64>, u64)>,
}

impl Workload {
    /// Starts them; each asks any node.
    pub fn start(clients: &[Client], seed: u64, history: &Arc<History>) -> Workload {
        let (stop, calls) = (Arc::<AtomicBool>::default(), Arc::default());
        let values = Arc::<AtomicU64>::default();
        let work = |number: u64| {
            let mut worker = Worker {
                clients: clients.to_vec(),
                chance: Chance::new(seed ^ 0x6b76 ^ number << 32),
                values: values.clone(),
                history: history.clone(),
                known: BTreeMap::new(),
            };
            let (stop, calls) = (stop.clone(), Arc::clone(&calls));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    worker.once(&calls).await;
                    let pause = 20 + worker.chance.below(60);
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
            })
        };
        let working = (0..CLIENTS).map(work).collect();
        Workload { stop, calls, working }
    }

    /// Ends, and gives the calls by key.
    pub async fn stop(self) -> anyhow::Result<BTreeMap<String, Vec<Call>>> {
        self.stop.store(true, Ordering::Relaxed);
        for work in self.working {
            work.await?;
        }
        Ok(std::mem::take(&mut *self.calls.lock()))
    }
}

impl Worker {
    async fn once(&mut self, calls: &Mutex<BTreeMap<String, Vec<Call>>>) {
        let number = self.chance.below(KEYS);
        let counts = self.chance.below(3) == 0;
        let key = format!("{}{number}", if counts { "counter" } else { "register" });
        let reads = self.chance.below(2) == 0;
        let value = 1 + self.values.fetch_add(1, Ordering::Relaxed) as i64;
        let known = self.known.remove(&key);
        let (mut ask, mut op) = match (counts, reads, known) {
            (_, true, _) => (json!({"op": "get"}), Op::Get(None)),
            (true, false, _) => (json!({"op": "incr", "forever": true}), Op::Incr(None)),
            (false, false, Some((from, version))) => (
                json!({"op": "put", "value": value, "expect": version, "forever": true}),
                Op::PutAt { from, to: value, answer: None },
            ),
            (false, false, None) => {
                (json!({"op": "put", "value": value, "forever": true}), Op::Put(value))
            }
        };
        ask["ns"] = "faults".into();
        ask["key"] = key.as_str().into();
        let node = self.chance.below(self.clients.len() as u64) as usize;
        let begin = self.history.now();
        let body = json!({"operations": [ask]});
        let result = match post(&self.clients[node], "/api/v1/kv", &body, PATIENCE).await {
            Told::Answered(answer) => Some(answer["results"][0].clone()),
            Told::Refused => return,
            Told::Unknown => None,
        };
        let end = result.as_ref().map(|_| self.history.now());
        if let Some(result) = &result {
            self.learn(&key, &mut op, result);
        }
        let call = Call { begin, end, op };
        self.history.note("kv", json!({"key": key, "node": node + 1, "call": call}));
        calls.lock().entry(key).or_default().push(call);
    }

    fn learn(&mut self, key: &str, op: &mut Op, result: &Value) {
        let (value, version) = (result["value"].as_i64(), result["version"].as_u64());
        match op {
            Op::Get(seen) => {
                *seen = value;
                self.known.insert(key.to_owned(), (value, version.unwrap_or(0)));
            }
            Op::Put(_) => {}
            Op::PutAt { answer, .. } => {
                let took = result["applied"] == true;
                *answer = Some(if took { Ok(()) } else { Err(value) });
            }
            Op::Incr(sum) => *sum = value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(begin: u64, end: u64, op: Op) -> Call {
        Call { begin, end: Some(end), op }
    }

    #[test]
    fn a_read_of_what_was_overwritten_before_it_began_is_found() {
        let stale = [call(0, 1, Op::Put(1)), call(2, 3, Op::Put(2)), call(4, 5, Op::Get(Some(1)))];
        assert!(!is_linearizable(&stale));
        let beside = [call(0, 1, Op::Put(1)), call(2, 6, Op::Put(2)), call(4, 5, Op::Get(Some(1)))];
        assert!(is_linearizable(&beside));
    }

    #[test]
    fn a_put_whose_answer_was_lost_may_come_late_or_never_but_not_go_again() {
        let open = Call { begin: 2, end: None, op: Op::Put(2) };
        let first = call(0, 1, Op::Put(1));
        let read = |at, value| call(at, at + 1, Op::Get(Some(value)));
        assert!(is_linearizable(&[first.clone(), open.clone(), read(4, 1), read(6, 1)]));
        assert!(is_linearizable(&[first.clone(), open.clone(), read(4, 1), read(6, 2)]));
        assert!(!is_linearizable(&[first, open, read(4, 2), read(6, 1)]));
    }

    #[test]
    fn a_count_that_is_lost_or_given_twice_is_found() {
        let incr = |at, sum| call(at, at + 1, Op::Incr(Some(sum)));
        assert!(is_linearizable(&[incr(0, 1), incr(2, 2)]));
        assert!(!is_linearizable(&[incr(0, 1), incr(2, 1)]));
        assert!(!is_linearizable(&[incr(0, 1), incr(2, 3)]));
    }

    #[test]
    fn a_put_at_a_version_that_was_gone_is_found() {
        let put_at = |at, from, to| {
            call(at, at + 1, Op::PutAt { from: Some(from), to, answer: Some(Ok(())) })
        };
        let first = call(0, 1, Op::Put(1));
        assert!(is_linearizable(&[first.clone(), put_at(2, 1, 2), put_at(4, 2, 3)]));
        assert!(!is_linearizable(&[first, put_at(2, 1, 2), put_at(4, 1, 3)]));
    }
}
