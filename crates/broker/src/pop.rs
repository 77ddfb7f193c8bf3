//! Popping: look, claim, read; or sleep and look again.
//!
//! Owns: the loop of a waiting pop. Leaves to others: what is claimed (`queen-state`), who is rung
//! (`parking`), the payloads (`reads`).

use crate::admission::Class;
use crate::broker::Broker;
use crate::parking::{Spot, Ticket};
use crate::reads::{Delivered, read_claims};
use crate::ready::{Look, look};
use crate::waiters::Undelivered;
use queen_core::command::{Command, Pop};
use queen_core::limits::QUEUE_MODE_GROUP;
use queen_core::reply::{Popped, Reply};
use queen_core::{Code, Error, LeaseId, Stamp};
use std::time::Duration;
use tokio::time::Instant;

/// Claims in a row that may come back empty before a pop sleeps although its look says "now".
const EMPTY_CLAIMS_MAX: u32 = 2;
/// How long it sleeps then, at most: the look and the claim disagree, which must not spin.
const DISAGREED: Duration = Duration::from_millis(100);

/// What a pop delivers.
pub struct Delivery {
    /// `None` when it was committed at delivery.
    pub lease: Option<LeaseId>,
    /// Its batches, in order; at least one, with at least one message each.
    pub claims: Vec<Delivered>,
    /// Given up by whoever has handed the messages out; dropped, the claim goes back.
    pub undelivered: Option<Undelivered>,
}

impl Delivery {
    /// Messages in it.
    pub fn messages(&self) -> u64 {
        self.claims.iter().map(|c| c.claim.end.0 - c.claim.first.0).sum()
    }
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
        let end = wait.map(|wait| Instant::now() + wait);
        let mut ticket: Option<Ticket<'_>> = None;
        let mut empty = 0;
        loop {
            let (seen, now) = self.look(pop)?;
            if seen.claim && empty < EMPTY_CLAIMS_MAX {
                if let Some(delivery) = self.claim(pop).await? {
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
        Ok(None)
    }

    fn look(&self, pop: &Pop<'_>) -> Result<(Look, Stamp), Error> {
        let now = self.now();
        Ok((self.read(|view| look(view, pop, now))?, now))
    }

    async fn claim(&self, pop: &Pop<'_>) -> Result<Option<Delivery>, Error> {
        let answered = self.ask(Class::Settle, &Command::Pop(pop.clone()), 128).await?;
        let Reply::Pop(Popped { lease, claims }) = answered.reply else {
            return Err(Error::new(Code::Internal, "a pop was answered as something else"));
        };
        if claims.is_empty() {
            return Ok(None);
        }
        let claims = read_claims(self, claims).await?;
        Ok(Some(Delivery { lease, claims, undelivered: answered.undelivered }))
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
