//! Popping by label: from whichever queues of a namespace or task have something for the group.
//!
//! Owns: which queues are asked, and in which order: those whose messages wait longest come first.
//! Leaves to others: the claim, one command over all of them (`queen-state`), what cannot be read
//! (`pop`, which takes a queue that is known for it alone).
//!
//! A group registers with every queue of the label at its first pop. With a queue that comes later,
//! or takes the label later, it registers as if it had been there then: nothing that was pushed
//! since its first pop is passed over. Costs a look-up for each queue of the tenant.

use crate::Class;
use crate::broker::Broker;
use crate::pop::{Delivery, unreadable};
use crate::reads::{Delivered, read_claims};
use crate::ready::look;
use queen_core::command::{Command, GroupStart, Pop, PopWith};
use queen_core::limits::QUEUE_MODE_GROUP;
use queen_core::reply::{Popped, Reply};
use queen_core::{Code, Error, QueueId, Stamp};
use queen_state::query::{group_registered, list, ready_at};
use std::collections::BTreeMap;

/// Queues looked at under one lock.
const STEP: usize = 256;
/// Queues of one claim: the others wait for the next pop.
const QUEUES_MAX: usize = 256;

/// The labels that a queue must have.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// Its namespace.
    pub namespace: Option<&'a str>,
    /// Its task.
    pub task: Option<&'a str>,
}

/// What a discovery came to.
pub struct Discovered {
    /// What it delivers; `None` when there was nothing to deliver.
    pub delivery: Option<Delivery>,
    /// The group conflates on some queue of the labels.
    pub conflates: bool,
}

/// What a look at the queues of the labels found.
#[derive(Default)]
struct Seen {
    /// Those worth asking.
    found: Vec<Found>,
    /// The group's first contact with any of them.
    first: Option<Stamp>,
    /// The group conflates on one of them.
    conflates: bool,
}

/// A queue that may have something for the group, or does not know it yet.
struct Found {
    id: QueueId,
    name: String,
    /// Since when something waits.
    since: Stamp,
    known: bool,
}

impl Broker {
    /// Claims a batch from the queues with these labels; with `conflation`, the group conflates where
    /// it is not registered yet.
    ///
    /// The queue of `pop` is not looked at. It does not wait.
    pub async fn discover(
        &self,
        pop: &Pop<'_>,
        labels: Labels<'_>,
        conflation: bool,
    ) -> Result<Discovered, Error> {
        if self.shared.clustered {
            self.barrier().await?;
        }
        let Seen { mut found, first, conflates } = self.find(pop, labels).await?;
        let conflates = conflates || conflation && found.iter().any(|one| !one.known);
        // Those that do not know the group come last: they have waited for it least.
        found.sort_by(|a, b| (!a.known, a.since, &a.name).cmp(&(!b.known, b.since, &b.name)));
        found.truncate(QUEUES_MAX);
        let start = match (pop.start, first) {
            (GroupStart::New, Some(first)) => GroupStart::From(first),
            (start, _) => start,
        };
        let pop = Pop { start, ..pop.clone() };
        let delivery = match found.first() {
            None => None,
            Some(one)
                if self.is_doubtful(&Pop { queue: &one.name, ..pop.clone() }, Some(one.id)) =>
            {
                let pop = Pop { queue: &one.name, ..pop };
                self.claim(&pop, conflation, Some(one.id)).await?
            }
            Some(_) => {
                found.retain(|one| {
                    !self.is_doubtful(&Pop { queue: &one.name, ..pop.clone() }, Some(one.id))
                });
                self.claim_from(&pop, &found, conflation).await?
            }
        };
        self.counters().pop_requests.add(1);
        self.counters().pop_messages.add(delivery.as_ref().map_or(0, Delivery::messages));
        Ok(Discovered { delivery, conflates })
    }

    /// Looks at the queues of the labels.
    async fn find(&self, pop: &Pop<'_>, labels: Labels<'_>) -> Result<Seen, Error> {
        let (mut seen, now) = (Seen::default(), self.now());
        let group = pop.group.unwrap_or(QUEUE_MODE_GROUP);
        let mut after: Option<String> = None;
        loop {
            let page = self.read(|view| {
                let page = list::queues(view, pop.tenant, after.as_deref(), STEP)?;
                for queue in &page {
                    let options = &queue.row.options;
                    let labelled = labels.namespace.is_none_or(|name| name == options.namespace)
                        && labels.task.is_none_or(|name| name == options.task);
                    if !labelled {
                        continue;
                    }
                    let known = group_registered(view, queue.id, group)?;
                    let mut since = now;
                    if let Some(row) = &known {
                        seen.first = Some(seen.first.unwrap_or(Stamp::MAX).min(row.registered));
                        seen.conflates |= row.conflation;
                        since = ready_at(view, queue, row)?.unwrap_or(now);
                    }
                    let name = &queue.row.name;
                    if look(view, &Pop { queue: name, ..pop.clone() }, now)?.claim {
                        let (id, name, known) = (queue.id, name.clone(), known.is_some());
                        seen.found.push(Found { id, name, since, known });
                    }
                }
                Ok(page)
            })?;
            let done = page.len() < STEP;
            after = page.into_iter().last().map(|queue| queue.row.name);
            if done {
                return Ok(seen);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Claims from all of these queues together.
    async fn claim_from(
        &self,
        pop: &Pop<'_>,
        queues: &[Found],
        conflation: bool,
    ) -> Result<Option<Delivery>, Error> {
        let names: BTreeMap<QueueId, &str> =
            queues.iter().map(|one| (one.id, one.name.as_str())).collect();
        let queues = queues.iter().map(|one| one.name.as_str()).collect();
        let with = PopWith { pop: pop.clone(), queues, conflation };
        let answered = self.ask(Class::Settle, &Command::PopWith(with), 256).await?;
        let Reply::Pop(Popped { lease, claims, conflation }) = answered.reply else {
            return Err(Error::new(Code::Internal, "a pop was answered as something else"));
        };
        let mut claims = read_claims(self, claims).await?;
        let mut trouble = None;
        for claim in &claims {
            let queue = names.get(&claim.claim.queue).copied().unwrap_or_default();
            let of = Pop { queue, ..pop.clone() };
            let why = match (&claim.stuck, &claim.damaged) {
                (Some(sealed), _) => sealed.clone().into(),
                (None, Some(why)) => unreadable(&of, why),
                (None, None) => continue,
            };
            // Under a lease it comes again by itself, and its queue is known for it then.
            if lease.is_none() {
                self.take_back(&of, claim, claim.claim.end).await?;
            }
            trouble.get_or_insert(why);
        }
        claims.retain(|claim: &Delivered| !claim.is_empty());
        match (claims.is_empty(), trouble) {
            (false, _) => {
                let undelivered = answered.undelivered;
                Ok(Some(Delivery { lease, claims, undelivered, conflation }))
            }
            (true, Some(why)) => Err(why),
            (true, None) => Ok(None),
        }
    }
}
