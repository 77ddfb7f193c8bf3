//! Letting time pass: a tick is proposed when something is due, never on an idle broker.
//!
//! Owns: asking the tables what is due (ends of leases, of transaction ids and of KV rows; timers; queues
//! whose retention may take something), on the node that leads. Leaves to others: what a tick does
//! (`queen-state`), sealing payloads of timers (`timer`).

use crate::admission::Class;
use crate::broker::{Broker, View};
use crate::holds::{self, Holds};
use parking_lot::Mutex;
use queen_core::command::{BreakHolds, Command, Tick};
use queen_core::options::QueueOptions;
use queen_core::reply::{Reply, Ticked};
use queen_core::row::{QueueRow, SegmentRow, key};
use queen_core::table::Table;
use queen_core::{Code, QueueId, Stamp};
use queen_state::query::{last_stamp, tick_due_at};
use queen_state::step::{decode, get};
use queen_state::{StorageError, Tables, timer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

/// Longest time between two looks at what is due.
const EVERY: Duration = Duration::from_secs(1);
/// Queues of one retention tick.
const QUEUES_PER_TICK: usize = 16;
/// Rows read at a time when queues are listed.
const PAGE: usize = 512;
/// A retention tick that changed nothing is tried again after so long, though nothing was written:
/// a consumer's or a sink's hold may have ended by time alone.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// What the ticker knows between its rounds.
#[derive(Default)]
pub(crate) struct Ticker {
    changed: Mutex<BTreeSet<QueueId>>,
    kept: Mutex<Retained>,
    pub(crate) holds: Holds,
    /// Stamp of the next look at what is due; every timer that falls due before it wakes.
    looks_at: AtomicU64,
    wake: Notify,
}

/// A queue's oldest segment.
type Oldest = (u32, SegmentRow);

/// Queues with a retention rule, and how their last tick went.
#[derive(Default)]
struct Retained {
    listed: bool,
    queues: BTreeMap<QueueId, Rule>,
}

struct Rule {
    /// The shortest time after which a rule may take something.
    seconds: u64,
    /// It waits for a sink.
    holds: bool,
    /// The oldest segment that a tick left as it was, under which stamp, and when.
    vain: Option<(Oldest, Stamp, Instant)>,
}

impl Ticker {
    /// A queue was created, its options changed, or it was deleted.
    pub(crate) fn queue_changed(&self, queue: QueueId) {
        self.changed.lock().insert(queue);
    }

    /// A timer falls due at this stamp.
    pub(crate) fn timer_due(&self, at: Stamp) {
        if at.0 < self.looks_at.load(Ordering::Acquire) {
            self.wake.notify_one();
        }
    }

    /// The tables are others now: nothing that is known of a queue counts.
    pub(crate) fn all_changed(&self) {
        *self.kept.lock() = Retained::default();
    }
}

/// Runs until the broker stops.
pub(crate) async fn run(broker: Broker, retention_every: Duration) {
    let mut stop = broker.shared.stop.subscribe();
    let mut retention_at = Instant::now();
    let mut pause = EVERY;
    let ticker = &broker.shared.ticker;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = ticker.wake.notified() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        // What is set from here on, and not seen by this look, wakes the next one.
        ticker.looks_at.store(u64::MAX, Ordering::Release);
        let looked = broker.read(|view| Ok([tick_due_at(view)?, timer::due_at(view)?]));
        let now = broker.now();
        pause = EVERY;
        let [rows, timers] = looked.unwrap_or_default().map(|due| due.filter(|_| broker.leads()));
        // What falls due before the next look is ended on time: somebody may wait for it.
        if let Some(next) = [rows, timers].into_iter().flatten().filter(|due| *due > now).min() {
            pause = EVERY.min(Duration::from_micros(next.0 - now.0));
        }
        if rows.is_some_and(|due| due <= now) {
            tick(&broker, Vec::new()).await;
        }
        if timers.is_some_and(|due| due <= now) && fire(&broker).await {
            // Others fell due meanwhile.
            pause = Duration::ZERO;
        }
        let next = now.0.saturating_add(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX));
        ticker.looks_at.store(next, Ordering::Release);
        if Instant::now() >= retention_at {
            retention_at = Instant::now() + retention_every;
            retain(&broker).await;
        }
    }
}

/// Ticks until nothing more is due; gives the stamp of the last tick.
async fn tick(broker: &Broker, retention: Vec<QueueId>) -> Option<Stamp> {
    ticks(broker, &Command::Tick(Tick { retention })).await
}

async fn ticks(broker: &Broker, command: &Command<'_>) -> Option<Stamp> {
    loop {
        match broker.submit(Class::Settle, command).await {
            Ok(Reply::Ticked(Ticked { more: true, .. })) if !*broker.shared.stop.borrow() => {}
            Ok(Reply::Ticked(Ticked { stamp, .. })) => return Some(stamp),
            Ok(_) => return None,
            // The next leader goes on with it.
            Err(_) if !broker.leads() => return None,
            Err(e) => {
                warn!(error = %e, "cannot tick");
                return None;
            }
        }
    }
}

/// Turns timers that are due into messages; false when they have to wait.
async fn fire(broker: &Broker) -> bool {
    loop {
        if let Err(e) = broker.seal_due_timers().await {
            warn!(error = %e, "cannot seal the payloads of timers that are due");
        }
        match broker.submit(Class::Write, &Command::FireTimers).await {
            Ok(Reply::Fired(fired)) => {
                broker.counters().timers_fired.add(u64::from(fired.fired));
                broker.counters().timers_postponed.add(u64::from(fired.failed));
                if !fired.more || *broker.shared.stop.borrow() {
                    return true;
                }
            }
            Ok(_) => return false,
            // They wait until there is space, as pushes do; the next leader goes on with it.
            Err(e) if matches!(e.code, Code::StorageFull | Code::Overloaded) => return false,
            Err(_) if !broker.leads() => return false,
            Err(e) => {
                warn!(error = %e, "cannot fire timers");
                return false;
            }
        }
    }
}

/// The disk is full: what retention would take goes, whatever waits for it.
async fn break_holds(broker: &Broker) {
    let held = broker.shared.ticker.holds.broken_by_disk();
    for some in held.chunks(QUEUES_PER_TICK) {
        ticks(broker, &Command::BreakHolds(BreakHolds { queues: some.to_vec() })).await;
    }
}

async fn retain(broker: &Broker) {
    let ticker = &broker.shared.ticker;
    let now = broker.now();
    let looked = broker.read(|view| {
        let mut kept = ticker.kept.lock();
        let changed = std::mem::take(&mut *ticker.changed.lock());
        if !kept.listed {
            list(view, &mut kept)?;
        }
        for queue in changed {
            let row = get::<QueueRow>(view, &key::queue(queue))?;
            kept.set(queue, row.as_ref());
        }
        let applied = last_stamp(view)?;
        let (mut queues, mut held) = (Vec::new(), BTreeMap::new());
        for (queue, rule) in &kept.queues {
            let Some(oldest) = oldest_segment(view, *queue)? else { continue };
            if oldest.1.first.plus_seconds(rule.seconds) > now {
                continue;
            }
            if rule.worth(oldest, applied) {
                queues.push((*queue, oldest));
            }
            if rule.holds
                && let Some(hold) = holds::look(view, *queue, now)?
            {
                held.insert(*queue, hold);
            }
        }
        Ok((queues, held))
    });
    let (queues, held) = match looked {
        Ok(looked) => looked,
        Err(e) => return warn!(error = %e, "cannot look at retention"),
    };
    ticker.holds.seen(held);
    // One node lets time pass for all.
    if !broker.leads() {
        return;
    }
    if broker.shared.admission.storage_full() {
        break_holds(broker).await;
    }
    for some in queues.chunks(QUEUES_PER_TICK) {
        let Some(stamp) = tick(broker, some.iter().map(|(queue, _)| *queue).collect()).await else {
            return;
        };
        let after = broker.read(|view| {
            some.iter()
                .map(|(queue, _)| oldest_segment(view, *queue))
                .collect::<Result<Vec<_>, _>>()
        });
        let mut kept = ticker.kept.lock();
        for ((queue, before), after) in some.iter().zip(after.unwrap_or_default()) {
            let same = after == Some(*before);
            if let Some(rule) = kept.queues.get_mut(queue) {
                rule.vain = same.then(|| (*before, stamp, Instant::now()));
            }
        }
    }
}

impl Retained {
    /// Takes what a queue's row says now; `None` when it is gone.
    fn set(&mut self, queue: QueueId, row: Option<&QueueRow>) {
        // A deleted queue whose row is still there waits for its log to go.
        let rule = row.and_then(|row| shortest(&row.options).or(row.deleted.map(|_| 0)));
        let holds = row.is_some_and(|row| !row.options.retention_sink_hold.is_empty());
        match rule {
            Some(seconds) => {
                self.queues.insert(queue, Rule { seconds, holds, vain: None });
            }
            None => {
                self.queues.remove(&queue);
            }
        }
    }
}

impl Rule {
    /// Whether a tick may do what the last one could not: something was written since, or time passed.
    fn worth(&self, oldest: Oldest, applied: Stamp) -> bool {
        let again = match self.seconds {
            0 => RETRY_AFTER,
            seconds => RETRY_AFTER.min(Duration::from_secs(seconds)),
        };
        self.vain.is_none_or(|(before, stamp, at)| {
            before != oldest || applied > stamp || at.elapsed() >= again
        })
    }
}

fn oldest_segment(view: &View<'_>, queue: QueueId) -> Result<Option<Oldest>, StorageError> {
    let (from, to) = (key::segment(queue, 0), key::segment(queue, u32::MAX));
    let rows = view.scan(Table::Segment, &from, &to, 1)?;
    let Some((key, value)) = rows.first() else { return Ok(None) };
    let number = key::segment_parts(key).map_or(0, |(_, number)| number);
    Ok(Some((number, decode(key, value)?)))
}

fn list(view: &View<'_>, kept: &mut Retained) -> Result<(), StorageError> {
    let mut from = key::queue(QueueId(0)).to_vec();
    let to = [u8::MAX; 5];
    loop {
        let rows = view.scan(Table::Queue, &from, &to, PAGE)?;
        for (key, value) in &rows {
            if let Some(queue) = key::queue_of(key) {
                kept.set(queue, Some(&decode(key, value)?));
            }
        }
        match rows.last() {
            Some((key, _)) if rows.len() == PAGE => {
                from = key.to_vec();
                from.push(0);
            }
            _ => break,
        }
    }
    kept.listed = true;
    Ok(())
}

/// The shortest of a queue's rules, in seconds.
fn shortest(options: &QueueOptions) -> Option<u64> {
    let kept = [options.retention_seconds, options.completed_retention_seconds];
    let kept = kept.into_iter().filter(|_| options.retention_enabled);
    kept.chain([options.max_wait_time_seconds])
        .filter_map(|seconds| u64::try_from(seconds).ok().filter(|s| *s > 0))
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_a_rule_when_an_option_gives_it_one() {
        let mut options = QueueOptions { retention_seconds: 9, ..QueueOptions::default() };
        assert_eq!(shortest(&options), None);
        options.retention_enabled = true;
        assert_eq!(shortest(&options), Some(9));
        options.max_wait_time_seconds = 4;
        options.completed_retention_seconds = 7;
        assert_eq!(shortest(&options), Some(4));
    }

    #[test]
    fn a_vain_tick_is_not_repeated_before_something_changed() {
        let row = SegmentRow {
            bytes: 9,
            first: Stamp(5),
            last: Stamp(6),
            runs: 1,
            messages: 1,
            trimmed: 0,
        };
        let rule =
            Rule { seconds: 9, holds: false, vain: Some(((3, row), Stamp(50), Instant::now())) };
        assert!(!rule.worth((3, row), Stamp(50)));
        assert!(rule.worth((3, row), Stamp(51)) && rule.worth((4, row), Stamp(50)));
        assert!(rule.worth((3, SegmentRow { trimmed: 1, ..row }), Stamp(50)));
        assert!(Rule { seconds: 1, holds: false, vain: None }.worth((3, row), Stamp(50)));
    }
}
