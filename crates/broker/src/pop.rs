//! Popping: look, claim, read; or sleep and look again.
//!
//! Owns: the loop of a waiting pop, and what becomes of a claim whose payloads do not open. Leaves
//! to others: what is claimed (`queen-state`), who is rung (`parking`), the payloads (`reads`).
//!
//! A payload that does not open is never handed out, and nothing passes it: its partition is held
//! back for a while, so that the others are served, and then tried again. So is one that cannot be
//! read. A pop that commits at delivery therefore claims an encrypted queue, or one that is known to
//! be damaged, under a lease, and commits what it could hand out; from others it takes the commit
//! back.

use crate::admission::Class;
use crate::broker::Broker;
use crate::parking::{Spot, Ticket};
use crate::reads::{Delivered, read_claims};
use crate::ready::{Look, look};
use crate::waiters::Undelivered;
use parking_lot::Mutex;
use queen_core::command::{Ack, AckItem, Command, LeaseClaim, Pop, PopWith, Seek, SeekTo, Verdict};
use queen_core::limits::QUEUE_MODE_GROUP;
use queen_core::reply::{Popped, Reply};
use queen_core::row::{QueueRow, key};
use queen_core::{Code, Error, LeaseId, Offset, QueueId, Stamp, TenantId};
use queen_state::query::group_registered;
use queen_state::step::{get, queue_named};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Claims in a row that may come back empty before a pop sleeps although its look says "now".
const EMPTY_CLAIMS_MAX: u32 = 2;
/// How long it sleeps then, at most: the look and the claim disagree, which must not spin.
const DISAGREED: Duration = Duration::from_millis(100);
/// How long a partition is held back whose next payload does not open.
const HELD_BACK: Duration = Duration::from_secs(10);

/// What a pop delivers.
pub struct Delivery {
    /// `None` when it was committed at delivery.
    pub lease: Option<LeaseId>,
    /// Its batches, in order; at least one, with at least one message each.
    pub claims: Vec<Delivered>,
    /// Given up by whoever has handed the messages out; dropped, the claim goes back.
    pub undelivered: Option<Undelivered>,
    /// The group conflates.
    pub conflation: bool,
}

impl Delivery {
    /// Messages in it.
    pub fn messages(&self) -> u64 {
        self.claims.iter().map(|c| c.claim.end.0 - c.claim.first.0).sum()
    }
}

/// A partition that is held back because its next message cannot be read.
pub(crate) struct Unreadable {
    partition: Box<str>,
    why: String,
}

impl Unreadable {
    fn of(claim: &Delivered) -> Option<Unreadable> {
        let why = claim.damaged.clone()?;
        Some(Unreadable { partition: claim.claim.partition_name.to_string().into(), why })
    }
}

/// What is held back now, by tenant, queue and group.
#[derive(Default)]
pub(crate) struct HeldBack(Mutex<HashMap<(TenantId, String, String), Vec<Unreadable>>>);

impl HeldBack {
    /// Partitions are given back.
    fn end(&self, of: &(TenantId, String, String), partitions: &[Box<str>]) {
        let mut all = self.0.lock();
        if let Some(held) = all.get_mut(of) {
            held.retain(|held| !partitions.contains(&held.partition));
            if held.is_empty() {
                all.remove(of);
            }
        }
    }

    /// Why a pop that found nothing did; `None` when it is that there is nothing.
    fn why(&self, pop: &Pop<'_>) -> Option<Error> {
        let held = self.0.lock();
        if held.is_empty() {
            return None;
        }
        let group = pop.group.unwrap_or(QUEUE_MODE_GROUP).to_owned();
        let held = held.get(&(pop.tenant, pop.queue.to_owned(), group))?;
        let asked = |held: &&Unreadable| pop.partition.is_none_or(|name| name == &*held.partition);
        held.iter().find(asked).map(|held| unreadable(pop, &held.why))
    }
}

pub(crate) fn unreadable(pop: &Pop<'_>, why: &str) -> Error {
    Error::new(Code::Internal, format!("queue {:?}, {why}", pop.queue))
}

impl Broker {
    /// Claims a batch, waiting up to `wait` for one; `None` when there was nothing to deliver.
    ///
    /// Dropping the future gives a claim that was made meanwhile back.
    pub async fn pop(
        &self,
        pop: &Pop<'_>,
        wait: Option<Duration>,
    ) -> Result<Option<Delivery>, Error> {
        self.pop_as(pop, false, wait).await
    }

    /// As [`Broker::pop`]; a group that is not registered yet conflates.
    pub async fn pop_newest(
        &self,
        pop: &Pop<'_>,
        wait: Option<Duration>,
    ) -> Result<Option<Delivery>, Error> {
        self.pop_as(pop, true, wait).await
    }

    /// Whether a group is registered on a queue as one that conflates.
    pub fn conflates(&self, tenant: TenantId, queue: &str, group: &str) -> Result<bool, Error> {
        self.read(|view| match queue_named(view, tenant, queue)? {
            Some(queue) => {
                Ok(group_registered(view, queue.id, group)?.is_some_and(|g| g.conflation))
            }
            None => Ok(false),
        })
    }

    async fn pop_as(
        &self,
        pop: &Pop<'_>,
        conflation: bool,
        wait: Option<Duration>,
    ) -> Result<Option<Delivery>, Error> {
        let end = wait.map(|wait| Instant::now() + wait);
        let mut ticket: Option<Ticket<'_>> = None;
        let mut empty = 0;
        let mut newest = !self.shared.clustered;
        loop {
            let (seen, now) = self.look(pop)?;
            if !seen.claim && !newest {
                // What was answered on another node may not be applied here yet.
                newest = true;
                self.barrier().await?;
                continue;
            }
            if seen.claim && empty < EMPTY_CLAIMS_MAX {
                if let Some(delivery) = self.claim(pop, conflation, seen.queue).await? {
                    self.counters().pop_requests.add(1);
                    self.counters().pop_messages.add(delivery.messages());
                    return Ok(Some(delivery));
                }
                empty += 1;
                if end.is_some() {
                    continue;
                }
            }
            let Some(end) = end.filter(|end| *end > Instant::now()) else { break };
            if let Some(ticket) = &mut ticket {
                if !ticket.rung() {
                    sleep(ticket, &seen, now, end).await;
                }
                empty = 0;
                if self.parking().closed() {
                    break;
                }
                ticket.again(seen.queue, seen.group);
            } else {
                let group = pop.group.unwrap_or(QUEUE_MODE_GROUP).into();
                let spot = Spot { queue: seen.queue, group, fixed: pop.partition.is_some() };
                ticket = self.parking().park(spot);
                if ticket.is_none() {
                    break;
                }
            }
        }
        self.counters().pop_requests.add(1);
        // Nothing else is there to deliver: that is not an empty queue.
        self.shared.unreadable.why(pop).map_or(Ok(None), Err)
    }

    fn look(&self, pop: &Pop<'_>) -> Result<(Look, Stamp), Error> {
        let now = self.now();
        Ok((self.read(|view| look(view, pop, now))?, now))
    }

    /// Whether some payload of the queue may not be handed out, though it is claimed.
    pub(crate) fn is_doubtful(&self, pop: &Pop<'_>, queue: Option<QueueId>) -> bool {
        let sealing = &self.shared.sealing;
        sealing.is_encrypted(pop.tenant, pop.queue)
            || queue.is_some_and(|id| sealing.was_told(id) || self.shared.store.is_damaged(id))
    }

    pub(crate) async fn claim(
        &self,
        pop: &Pop<'_>,
        conflation: bool,
        queue: Option<QueueId>,
    ) -> Result<Option<Delivery>, Error> {
        let commits = pop.auto_ack && self.is_doubtful(pop, queue);
        let asked = Pop { auto_ack: pop.auto_ack && !commits, ..pop.clone() };
        let command = match conflation {
            false => Command::Pop(asked),
            true => Command::PopWith(PopWith { pop: asked, queues: Vec::new(), conflation }),
        };
        let answered = self.ask(Class::Settle, &command, 128).await?;
        let Reply::Pop(Popped { lease, claims, conflation }) = answered.reply else {
            return Err(Error::new(Code::Internal, "a pop was answered as something else"));
        };
        if claims.is_empty() {
            return Ok(None);
        }
        let undelivered = answered.undelivered;
        let mut claims = read_claims(self, claims).await?;
        let trouble = self.not_delivered(pop, lease, &claims, commits).await?;
        let unreadable: Vec<_> = claims.iter().filter_map(Unreadable::of).collect();
        let damaged = !unreadable.is_empty();
        claims.retain(|claim| !claim.is_empty());
        if let (true, Some(trouble)) = (claims.is_empty(), trouble) {
            // Not given back at once: the next pop would be given the same partition.
            match undelivered {
                Some(claim) if damaged => self.hold(pop, unreadable, Some(claim), HELD_BACK),
                Some(undelivered) => undelivered.delivered(),
                None => {}
            }
            return Err(trouble);
        }
        if let (true, Some(lease)) = (commits, lease) {
            self.commit(pop, lease, &claims).await?;
            match undelivered {
                // What was not committed of it.
                Some(claim) if damaged => self.hold(pop, unreadable, Some(claim), HELD_BACK),
                Some(undelivered) => undelivered.delivered(),
                None => {}
            }
            return Ok(Some(Delivery { lease: None, claims, undelivered: None, conflation }));
        }
        if damaged && lease.is_some() {
            // The consumer's lease is on what it was not given as well.
            let held = self.lease_time(pop, queue)?;
            self.hold(pop, unreadable, None, held);
        }
        Ok(Some(Delivery { lease, claims, undelivered, conflation }))
    }

    /// How long a consumer's lease lasts unless it extends it.
    fn lease_time(&self, pop: &Pop<'_>, queue: Option<QueueId>) -> Result<Duration, Error> {
        let row = self.read(|view| match queue {
            Some(queue) => get::<QueueRow>(view, &key::queue(queue)),
            None => Ok(None),
        })?;
        let of_queue = row.map_or(0, |row| row.options.lease_time);
        let seconds = pop.lease_seconds.map_or(of_queue, i64::from);
        Ok(Duration::from_secs(seconds.max(0).unsigned_abs()))
    }

    /// Sees to what was claimed and cannot be handed out; gives the first reason.
    async fn not_delivered(
        &self,
        pop: &Pop<'_>,
        lease: Option<LeaseId>,
        claims: &[Delivered],
        commits: bool,
    ) -> Result<Option<Error>, Error> {
        let mut first = None;
        for claim in claims {
            let trouble = match (&claim.stuck, &claim.damaged) {
                (Some(sealed), _) => sealed.clone().into(),
                (None, Some(why)) => unreadable(pop, why),
                (None, None) => continue,
            };
            match lease {
                Some(lease) if claim.stuck.is_some() && (claim.is_empty() || commits) => {
                    self.hold_back(pop, lease, claim);
                }
                Some(_) => {}
                None => self.take_back(pop, claim, claim.claim.end).await?,
            }
            first.get_or_insert(trouble);
        }
        Ok(first)
    }

    /// Knows for a while, or until the broker stops, that partitions are held back, and lets the
    /// claim on them go then: others are served meanwhile.
    fn hold(
        &self,
        pop: &Pop<'_>,
        unreadable: Vec<Unreadable>,
        claim: Option<Undelivered>,
        time: Duration,
    ) {
        let group = pop.group.unwrap_or(QUEUE_MODE_GROUP);
        let of = (pop.tenant, pop.queue.to_owned(), group.to_owned());
        let partitions: Vec<_> = unreadable.iter().map(|held| held.partition.clone()).collect();
        self.shared.unreadable.0.lock().entry(of.clone()).or_default().extend(unreadable);
        let (broker, mut stop) = (self.clone(), self.shared.stop.subscribe());
        tokio::spawn(async move {
            let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
            drop(tokio::time::timeout(time, stopped).await);
            broker.shared.unreadable.end(&of, &partitions);
            drop(claim);
        });
    }

    /// Settles all that a pop delivers which commits at delivery.
    async fn commit(
        &self,
        pop: &Pop<'_>,
        lease: LeaseId,
        claims: &[Delivered],
    ) -> Result<(), Error> {
        let last: Vec<_> = claims.iter().filter_map(|claim| claim.messages().last()).collect();
        let ids: Vec<_> = claims
            .iter()
            .zip(&last)
            .map(|(claim, last)| last.transaction_id(claim.claim.partition))
            .collect();
        let items = claims.iter().zip(&ids).map(|(claim, transaction_id)| AckItem {
            transaction_id,
            partition: Some(claim.claim.partition),
            verdict: Verdict::Completed,
            lease: LeaseClaim::Id(lease),
            error: None,
        });
        let ack = Ack { tenant: pop.tenant, group: pop.group, items: items.collect() };
        let Reply::Ack(outcomes) = self.submit(Class::Settle, &Command::Ack(ack)).await? else {
            return Err(Error::new(Code::Internal, "an ack was answered as something else"));
        };
        match outcomes.iter().find_map(|outcome| outcome.refusal) {
            None => Ok(()),
            Some(refusal) => Err(Error::new(
                Code::Retry,
                format!("the batch could not be committed: {}", refusal.text()),
            )),
        }
    }

    /// Ends the claim on a partition that is stuck after a while, or when the broker stops.
    fn hold_back(&self, pop: &Pop<'_>, lease: LeaseId, claim: &Delivered) {
        let (broker, tenant) = (self.clone(), pop.tenant);
        let (group, id) = (pop.group.map(str::to_owned), claim.claim.partition);
        let Some(transaction_id) = claim.stuck_id.clone() else { return };
        let mut stop = self.shared.stop.subscribe();
        tokio::spawn(async move {
            // An error says that the broker is gone.
            let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
            drop(tokio::time::timeout(HELD_BACK, stopped).await);
            let item = AckItem {
                transaction_id: &transaction_id,
                partition: Some(id),
                verdict: Verdict::Retry,
                lease: LeaseClaim::Id(lease),
                error: None,
            };
            let ack = Ack { tenant, group: group.as_deref(), items: vec![item] };
            broker.shared.send(&Command::Ack(ack));
        });
    }

    /// Moves a cursor back to a message that was committed at delivery and could not be handed out:
    /// the queue is not encrypted any more, but this message still is, or nobody knew of the damage.
    pub(crate) async fn take_back(
        &self,
        pop: &Pop<'_>,
        claim: &Delivered,
        to: Offset,
    ) -> Result<(), Error> {
        let seek = Seek {
            tenant: pop.tenant,
            group: pop.group.unwrap_or(QUEUE_MODE_GROUP),
            queue: pop.queue,
            partition: Some(&claim.claim.partition_name),
            to: SeekTo::Offset(to),
        };
        self.submit(Class::Settle, &Command::Seek(seek)).await.map(drop)
    }
}

/// Sleeps until rung, until time alone may have brought something, or until the end of the wait.
async fn sleep(ticket: &Ticket<'_>, seen: &Look, now: Stamp, end: Instant) {
    let due = match (seen.claim, seen.due) {
        (true, _) => Some(DISAGREED),
        (false, due) => due.map(|at| Duration::from_micros(at.0.saturating_sub(now.0))),
    };
    let until = due.map_or(end, |due| end.min(Instant::now() + due));
    // Either way the pop looks again.
    drop(tokio::time::timeout_at(until, ticket.sleep()).await);
}
