//! The fates of requests, drawn by the seed, and the watch over who writes.
//!
//! Owns: how likely each fault is in a run, and `one-writer-commits`: rows of a queue's copy are
//! written by the holder of its lease alone.
//! Leaves to others: carrying requests (`twin`), faults of whole nodes (`run`).

use super::trace::Trace;
use crate::chance::Chance;
use crate::twin::{Call, Dies, Fate, Fates, key_of};
use parking_lot::Mutex;
use queen_core::Stamp;
use queen_core::kv::{KvOp, KvOpKind, KvOutcome, KvResult};
use std::collections::BTreeMap;
use std::time::Duration;

/// How a run treats requests; chances in 10,000.
#[derive(Clone, Copy, Debug)]
struct Temper {
    /// Longest ordinary way of a request, ms.
    latency: u64,
    lost: u64,
    unanswered: u64,
    late: u64,
    again: u64,
    dies: u64,
}

/// The seeded fates.
pub struct Seeded {
    trace: Trace,
    state: Mutex<State>,
}

struct State {
    chance: Chance,
    sink: Chance,
    temper: Temper,
    /// Holder of each lease and the end of its row.
    holders: BTreeMap<String, (u64, Stamp)>,
    calm: bool,
    requests: u64,
    wrong: Vec<String>,
}

impl Seeded {
    /// Fates drawn from `chance`; `prompt`: no request arrives long after its owner gave it up.
    pub fn new(mut chance: Chance, prompt: bool, trace: Trace) -> Seeded {
        let mut rare = |most: &[u64]| chance.pick(most).copied().unwrap_or_default();
        let temper = Temper {
            latency: rare(&[0, 0, 5, 50, 1000]),
            lost: rare(&[0, 0, 100, 500]),
            unanswered: rare(&[0, 0, 100, 500]),
            late: rare(&[0, 0, 50, 300]),
            again: rare(&[0, 50, 300]),
            dies: rare(&[0, 50, 150, 400]),
        };
        let temper = match prompt {
            true => Temper { latency: temper.latency.min(50), late: 0, again: 0, ..temper },
            false => temper,
        };
        let sink = Chance::new(chance.draw());
        let state = State {
            chance,
            sink,
            temper,
            holders: BTreeMap::new(),
            calm: false,
            requests: 0,
            wrong: Vec::new(),
        };
        Seeded { trace, state: Mutex::new(state) }
    }

    /// From now on every request takes effect and is answered at once.
    pub fn calm(&self) {
        self.state.lock().calm = true;
    }

    /// What happened.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// Writes by owners that were not the holder.
    pub fn wrong(&self) -> Vec<String> {
        self.state.lock().wrong.clone()
    }

    /// The broker was restored from a backup: leases are those of its rows, of owners that are gone.
    pub fn forget_holders(&self) {
        self.state.lock().holders.clear();
    }
}

impl State {
    fn happens(&mut self, in_ten_thousand: u64) -> bool {
        in_ten_thousand > 0 && self.chance.below(10_000) < in_ten_thousand
    }

    fn time(&mut self, most_ms: u64) -> Duration {
        Duration::from_millis(if most_ms == 0 { 0 } else { self.chance.below(most_ms) })
    }

    /// Moments, or minutes.
    fn long(&mut self) -> Duration {
        let most = self.chance.pick(&[1_000, 60_000, 1_200_000]).copied();
        self.time(most.unwrap_or_default())
    }

    fn drawn(&mut self) -> Fate {
        let temper = self.temper;
        let (there, back) = (self.time(temper.latency), self.time(temper.latency));
        let mut fate = Fate { there, back, ..Fate::default() };
        fate.lost = self.happens(temper.lost);
        fate.unanswered = self.happens(temper.unanswered);
        if self.happens(temper.late) {
            fate.there = self.long();
            fate.patience = Some(Duration::from_secs(30));
        } else if self.happens(temper.late) {
            // It took effect at once, and nobody is told before long.
            fate.back = self.long();
            fate.patience = Some(Duration::from_secs(30));
        }
        if self.happens(temper.again) {
            fate.again = Some(self.long());
        }
        if self.happens(temper.dies) {
            fate.dies = self.chance.pick(&[Dies::Before, Dies::OnTheWay, Dies::After]).copied();
        }
        fate
    }

    fn watch(&mut self, owner: u64, op: &KvOp<'_>, result: &KvResult) {
        let KvResult::Applied(row) = result else { return };
        let key = key_of(op);
        let Some((queue, word)) = key.rsplit_once(':') else { return };
        match (word, &op.kind, row) {
            ("lease", KvOpKind::Put { .. }, Some(row)) => {
                let until = row.expires_at.unwrap_or(Stamp::MAX);
                self.holders.insert(queue.to_owned(), (owner, until));
            }
            ("lease", KvOpKind::Delete { .. }, _) => drop(self.holders.remove(queue)),
            ("intent" | "committed", KvOpKind::Put { .. }, Some(row)) => {
                let holder = self.holders.get(queue);
                if holder.is_none_or(|(holder, until)| *holder != owner || *until <= row.updated_at)
                {
                    let text = format!("one-writer-commits: owner {owner} wrote {key}");
                    self.wrong.push(format!("{text}, the holder is {holder:?}"));
                }
            }
            _ => {}
        }
    }
}

impl Fates for Seeded {
    fn fate(&self, owner: u64, call: Call<'_>) -> Fate {
        let mut state = self.state.lock();
        state.requests += 1;
        let fate = if state.calm { Fate::default() } else { state.drawn() };
        drop(state);
        let Call { op, key } = call;
        if fate == Fate::default() {
            self.trace.note(format_args!("{owner} {op} {key}"));
        } else {
            self.trace.note(format_args!("{owner} {op} {key} {fate:?}"));
        }
        fate
    }

    fn applied(&self, owner: u64, ops: &[KvOp<'_>], outcome: &KvOutcome) {
        match outcome {
            KvOutcome::Done(results) => {
                let mut state = self.state.lock();
                for (op, result) in ops.iter().zip(results) {
                    state.watch(owner, op, result);
                }
            }
            KvOutcome::Precondition { index, reason, .. } => {
                self.trace.note(format_args!("{owner} refused: {index} {reason:?}"));
            }
        }
    }

    fn random(&self) -> u64 {
        self.state.lock().sink.draw()
    }
}
