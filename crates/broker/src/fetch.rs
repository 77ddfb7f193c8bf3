//! Fetching: reads by offset, without a lease.
//!
//! Owns: which messages an entry of a fetch is given, waiting for more, and the pages of changed
//! partitions. Leaves to others: reading the runs (`reads`), who is rung (`parking`).

use crate::broker::{Broker, View};
use crate::parking::{Spot, Ticket};
use crate::queues::Partition;
use crate::reads::{Delivered, read_claims, runs_of};
use crate::sealing::Sealed;
use queen_core::reply::Claim;
use queen_core::{Error, Offset, QueueId, Stamp, TenantId};
use queen_state::StorageError;
pub use queen_state::query::changed::After;
use queen_state::query::{self, changed};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of messages that one fetch gives, over all its entries.
pub const FETCH_BYTES_MAX: u64 = 32 << 20;
/// Runs looked at for one entry: what lies behind is asked for again.
const RUNS_MAX: u64 = 4096;
/// Where fetches sleep: no group can have this name.
const SLEEPERS: &str = "\u{0}fetch";

/// What a fetch asks of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchEntry {
    /// Queue name.
    pub queue: String,
    /// Partition name.
    pub partition: String,
    /// First offset wanted.
    pub offset: Offset,
    /// Bytes of messages, about; one message is given whatever its size.
    pub max_bytes: u64,
}

/// Why an entry has no messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchFault {
    /// There is no such queue.
    UnknownQueue,
    /// The offset is below the log start or beyond the end.
    OutOfRange,
    /// The payload at the offset does not open.
    Undecryptable(Sealed),
    /// The message at the offset cannot be read: why.
    Damaged(String),
}

/// What a fetch got of one partition.
pub struct Fetched {
    /// Why nothing, if it is a fault.
    pub fault: Option<FetchFault>,
    /// The offset after the newest message.
    pub high_watermark: Offset,
    /// The oldest kept offset.
    pub log_start: Offset,
    /// Messages, if there are any; the last ones may be beyond the entry's budget.
    pub delivered: Option<Delivered>,
}

/// What an entry is going to be given.
struct Planned {
    fault: Option<FetchFault>,
    high_watermark: Offset,
    log_start: Offset,
    claim: Option<Claim>,
    queue: Option<QueueId>,
    bytes: u64,
}

impl Broker {
    /// Reads messages by offset, waiting up to `wait` until there are `min_bytes` of them.
    pub async fn fetch(
        &self,
        tenant: TenantId,
        entries: &[FetchEntry],
        wait: Duration,
        min_bytes: u64,
    ) -> Result<Vec<Fetched>, Error> {
        let end = Instant::now() + wait;
        let mut tickets: Vec<Ticket<'_>> = Vec::new();
        let planned = loop {
            let planned = self.plan(tenant, entries)?;
            let bytes: u64 = planned.iter().map(|planned| planned.bytes).sum();
            let settled = bytes >= min_bytes || planned.iter().any(|p| p.fault.is_some());
            if settled || wait.is_zero() || Instant::now() >= end || self.parking().closed() {
                break planned;
            }
            if tickets.is_empty() {
                // Parked before the next look, so that nothing arrives unseen between the two.
                let queues: BTreeSet<_> = planned.iter().map(|planned| planned.queue).collect();
                let group: Box<str> = SLEEPERS.into();
                let spot = |queue| Spot { queue, group: group.clone(), fixed: true };
                tickets = queues.into_iter().filter_map(|q| self.parking().park(spot(q))).collect();
                if tickets.is_empty() {
                    break planned;
                }
                continue;
            }
            let sleeps = tickets.iter().map(|ticket| Box::pin(ticket.sleep()));
            let rung = futures::future::select_all(sleeps);
            let _ = tokio::time::timeout_at(end, rung).await;
            tickets.clear();
        };
        drop(tickets);
        self.deliver(planned).await
    }

    fn plan(&self, tenant: TenantId, entries: &[FetchEntry]) -> Result<Vec<Planned>, Error> {
        let mut left = FETCH_BYTES_MAX;
        self.read(|view| {
            let plans = entries.iter().map(|entry| {
                let planned = plan_entry(view, tenant, entry, left)?;
                left = left.saturating_sub(planned.bytes);
                Ok(planned)
            });
            plans.collect()
        })
    }

    async fn deliver(&self, planned: Vec<Planned>) -> Result<Vec<Fetched>, Error> {
        let claims = planned.iter().filter_map(|planned| planned.claim.clone()).collect();
        let mut delivered = read_claims(self, claims).await?.into_iter();
        let fetched = planned.into_iter().map(|planned| {
            let mut delivered = planned.claim.and_then(|_| delivered.next());
            let stuck = delivered.take_if(|delivered| delivered.is_empty());
            let stuck = stuck.and_then(|delivered| match delivered.damaged {
                Some(why) => Some(FetchFault::Damaged(why)),
                None => delivered.stuck.map(FetchFault::Undecryptable),
            });
            Fetched {
                fault: planned.fault.or(stuck),
                high_watermark: planned.high_watermark,
                log_start: planned.log_start,
                delivered,
            }
        });
        Ok(fetched.collect())
    }

    /// A page of the partitions of a queue that were written to since a stamp; `None` when there is
    /// no such queue.
    #[allow(clippy::type_complexity)]
    pub fn changed(
        &self,
        tenant: TenantId,
        queue: &str,
        since: Stamp,
        after: Option<After>,
        limit: usize,
    ) -> Result<Option<(Vec<Partition>, Option<After>)>, Error> {
        self.read(|view| match query::queue_named(view, tenant, queue)? {
            Some(queue) => changed::changed(view, queue.id, since, after, limit).map(Some),
            None => Ok(None),
        })
    }

    /// Stamp of the last applied command: whatever is written later has a greater one.
    pub fn applied_stamp(&self) -> Result<Stamp, Error> {
        self.read(|view| query::last_stamp(view))
    }
}

fn plan_entry(
    view: &View<'_>,
    tenant: TenantId,
    entry: &FetchEntry,
    left: u64,
) -> Result<Planned, StorageError> {
    let mut planned = Planned {
        fault: None,
        high_watermark: Offset(0),
        log_start: Offset(0),
        claim: None,
        queue: None,
        bytes: 0,
    };
    let Some(queue) = query::queue_named(view, tenant, &entry.queue)? else {
        return Ok(Planned { fault: Some(FetchFault::UnknownQueue), ..planned });
    };
    planned.queue = Some(queue.id);
    let Some(partition) = query::partition_named(view, queue.id, &entry.partition)? else {
        return Ok(planned);
    };
    let row = &partition.row;
    (planned.high_watermark, planned.log_start) = (row.next, row.log_start);
    if entry.offset < row.log_start || entry.offset > row.next {
        return Ok(Planned { fault: Some(FetchFault::OutOfRange), ..planned });
    }
    let budget = entry.max_bytes.min(left);
    let most = entry.offset.plus(budget.min(RUNS_MAX)).min(row.next);
    let mut end = entry.offset;
    for (first, run) in runs_of(view, row.id, entry.offset, most)? {
        if planned.bytes >= budget {
            break;
        }
        planned.bytes += u64::from(run.frames_len);
        end = run.end(first);
    }
    planned.claim = (end > entry.offset).then(|| Claim {
        queue: queue.id,
        partition: row.id,
        partition_name: partition.name.clone(),
        first: entry.offset,
        end,
        attempt: 0,
    });
    Ok(planned)
}
