//! Calls on the ephemeral queues of this node.
//!
//! Owns: what holds for the queue of a call, waiting pops, waking them. Leaves to others: the rules
//! (`house`), whether this node is the one to ask (`owner`).

use super::Ephemeral;
use super::house::Key;
use super::queue::{Popped, Terms};
use crate::broker::Broker;
use crate::parking::{Spot, Ticket};
use queen_core::ephemeral::{
    Depth, EphemeralAnswer, EphemeralAsk, EphemeralCall, EphemeralPop, EphemeralRefusal, Gauges,
    RefusalKind,
};
use queen_core::limits::QUEUE_MODE_GROUP;
use queen_core::{GroupId, QueueId, TenantId};
use queen_state::{StorageError, ephemeral};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;

/// Queues of one list, at most.
const LISTED_MAX: usize = 10_000;

impl Broker {
    /// Carries a call out if this node owns the queues.
    pub(crate) async fn ephemeral_here(&self, call: &EphemeralCall<'_>) -> EphemeralAnswer {
        self.carry_out(call).await.unwrap_or_else(EphemeralAnswer::Refused)
    }

    async fn carry_out(
        &self,
        call: &EphemeralCall<'_>,
    ) -> Result<EphemeralAnswer, EphemeralRefusal> {
        let needs_switch = matches!(
            call.ask,
            EphemeralAsk::Push { .. } | EphemeralAsk::Pop(_) | EphemeralAsk::Ack { .. }
        );
        if needs_switch {
            self.ephemeral_is_on()?;
        }
        let ours = &self.shared.ephemeral;
        let key = |queue: &str| -> Key { (call.tenant, queue.into()) };
        let answer = match &call.ask {
            EphemeralAsk::Push { queue, partition, payloads } => {
                let (key, now) = (key(queue), ours.now());
                let terms = self.terms(&key)?;
                let texts: Vec<&[u8]> = payloads.iter().map(|payload| payload.0).collect();
                match ours.owned(|house| house.push(&key, terms, partition, &texts, now)) {
                    Some(pushed) => {
                        ours.ring(pushed?);
                        Some(EphemeralAnswer::Pushed(texts.len() as u64))
                    }
                    None => None,
                }
            }
            EphemeralAsk::Pop(pop) => return self.pop_waiting(&key(pop.queue), pop).await,
            EphemeralAsk::Ack { queue, group, items } => {
                let (key, now) = (key(queue), ours.now());
                let terms = self.terms(&key)?;
                ours.owned(|house| house.ack(&key, terms, *group, items, now)).map(
                    |(outcomes, rings)| {
                        ours.ring(rings);
                        EphemeralAnswer::Acked(outcomes)
                    },
                )
            }
            EphemeralAsk::Reset { queue } => {
                ours.owned(|house| house.reset(&key(queue))).map(EphemeralAnswer::Reset)
            }
            EphemeralAsk::Delete { queue } => {
                ours.owned(|house| house.delete(&key(queue))).map(|(was, rings)| {
                    ours.ring(rings);
                    EphemeralAnswer::Deleted(was)
                })
            }
            EphemeralAsk::Queues => {
                let all = ours.owned(|house| house.gauges(call.tenant));
                match all {
                    Some(all) => Some(self.listed(call.tenant, all)?),
                    None => None,
                }
            }
            EphemeralAsk::Depth { queue } => {
                let (key, now) = (key(queue), ours.now());
                let terms = self.terms(&key)?;
                let depth = ours.owned(|house| house.depth(&key, terms, now));
                depth.map(|depth| EphemeralAnswer::Depth(depth.or_else(|| empty(queue, terms))))
            }
        };
        Ok(answer.unwrap_or(EphemeralAnswer::NotMine))
    }

    /// What holds for a queue.
    fn terms(&self, key: &Key) -> Result<Terms, EphemeralRefusal> {
        let ours = &self.shared.ephemeral;
        let as_of = ours.declared.load(Ordering::Acquire);
        if let Some(terms) = ours.house.lock().terms(key, as_of) {
            return Ok(terms);
        }
        let view = self.shared.store.read();
        let declared = ephemeral::declared(&view, key.0, &key.1).map_err(|e| unreadable(&e))?;
        drop(view);
        let effective = ours.settings.defaults.under(&declared.unwrap_or_default());
        Ok(Terms { effective, declared: declared.is_some(), as_of })
    }

    /// Queues in memory and declared ones, by name.
    fn listed(
        &self,
        tenant: TenantId,
        in_memory: Vec<Gauges>,
    ) -> Result<EphemeralAnswer, EphemeralRefusal> {
        let view = self.shared.store.read();
        let declared = ephemeral::all_declared(&view, tenant).map_err(|e| unreadable(&e))?;
        drop(view);
        let empty =
            |queue: String| (queue.clone(), Gauges { queue, declared: true, ..Gauges::default() });
        let mut all: BTreeMap<String, Gauges> = declared.into_iter().map(empty).collect();
        for mut queue in in_memory {
            queue.declared = all.contains_key(&queue.queue);
            all.insert(queue.queue.clone(), queue);
        }
        let total = all.len() as u64;
        Ok(EphemeralAnswer::Queues(total, all.into_values().take(LISTED_MAX).collect()))
    }

    /// Delivers as soon as there is something, the time is over, or nobody may wait any more.
    async fn pop_waiting(
        &self,
        key: &Key,
        pop: &EphemeralPop<'_>,
    ) -> Result<EphemeralAnswer, EphemeralRefusal> {
        let ours = &self.shared.ephemeral;
        let end = ours.now().saturating_add(pop.wait_ms);
        let mut ticket: Option<Ticket<'_>> = None;
        loop {
            self.ephemeral_is_on()?;
            let (terms, now) = (self.terms(key)?, ours.now());
            let waits = now < end && !ours.parking.closed();
            // One that has slept finds no queue when it was deleted meanwhile: it does not come back
            // for that.
            let makes = ticket.is_none();
            let looked = ours.owned(|house| house.pop(key, terms, pop, waits, makes, now));
            let Some(looked) = looked else { return Ok(EphemeralAnswer::NotMine) };
            let nothing = || Ok(EphemeralAnswer::Popped(Vec::new()));
            let Some((popped, rings)) = looked? else { return nothing() };
            ours.ring(rings);
            let (ring, group, until) = match popped {
                Popped::Messages(messages) => return Ok(EphemeralAnswer::Popped(messages)),
                Popped::Nothing(..) if !waits => return nothing(),
                Popped::Nothing(ring, group, until) => (ring, group, until),
            };
            let until = until.map_or(end, |until| until.min(end));
            match &mut ticket {
                Some(ticket) => sleep(ours, ticket, until, ring, group).await,
                None => ticket = ours.lie_down(ring, group, pop.group.unwrap_or(QUEUE_MODE_GROUP)),
            }
        }
    }
}

impl Ephemeral {
    /// A place to sleep, to be taken before the look that may find nothing.
    fn lie_down(&self, ring: QueueId, group: GroupId, name: &str) -> Option<Ticket<'_>> {
        let spot = Spot { queue: Some(ring), group: name.into(), fixed: false };
        let mut ticket = self.parking.park(spot)?;
        ticket.again(Some(ring), Some(group));
        Some(ticket)
    }
}

/// Sleeps until rung, or until a time; the caller looks again either way.
async fn sleep(
    ours: &Ephemeral,
    ticket: &mut Ticket<'_>,
    until: u64,
    ring: QueueId,
    group: GroupId,
) {
    // A millisecond more: the time is over when it is looked at again.
    let rest = Duration::from_millis(until.saturating_sub(ours.now()) + 1);
    drop(timeout(rest, ticket.sleep()).await);
    ticket.again(Some(ring), Some(group));
}

/// A declared queue of which nothing is in memory.
fn empty(queue: &str, terms: Terms) -> Option<Depth> {
    let gauges = Gauges { queue: queue.to_owned(), declared: true, ..Gauges::default() };
    let depth = Depth { gauges, effective: terms.effective, groups: Vec::new() };
    terms.declared.then_some(depth)
}

fn unreadable(error: &StorageError) -> EphemeralRefusal {
    let text = format!("what is declared of the queue does not read: {error}");
    EphemeralRefusal::new(RefusalKind::Unavailable, text)
}
