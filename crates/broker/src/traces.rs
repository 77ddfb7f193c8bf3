//! Trace calls: what an event may hold, and pages of events.
//!
//! Owns: the limits of an event, pages over names. Leaves to others: the rules and how long events are
//! kept (`queen_state::trace`), JSON (`queen-http`).

use crate::Class;
use crate::broker::Broker;
use crate::queues::unexpected;
use queen_core::command::Command;
use queen_core::limits::TRANSACTION_ID_BYTES_MAX;
use queen_core::reply::Reply;
use queen_core::row::TraceNameRow;
use queen_core::trace::{
    RecordTrace, TRACE_DATA_BYTES_MAX, TRACE_NAME_BYTES_MAX, TRACE_NAMES_MAX, TRACE_TYPE_BYTES_MAX,
};
use queen_core::{Code, Error, MessageId, Offset, PartitionId, Stamp, TenantId};
use queen_state::trace;
pub use queen_state::trace::Event;
use std::collections::BTreeSet;

/// Events or names looked at under one lock.
const STEP: usize = 512;
/// Names that a page can be behind.
const NAMES_SKIPPED_MAX: usize = 100_000;

/// The id of the event that was recorded under a stamp.
pub fn event_id(stamp: Stamp) -> MessageId {
    // A partition id that no partition has: ids of events are never those of messages.
    MessageId::mint(stamp, PartitionId(u64::MAX - 4), Offset(0))
}

impl Broker {
    /// Records an event of a message; its stamp.
    ///
    /// Errors beside those of [`Broker::submit`]: `NotFound` when there is no such partition,
    /// `BadRequest` for what is over a limit.
    pub async fn record_trace(&self, event: &RecordTrace<'_>) -> Result<Stamp, Error> {
        check(event)?;
        match self.submit(Class::Write, &Command::RecordTrace(event.clone())).await? {
            Reply::Traced(stamp) => Ok(stamp),
            other => Err(unexpected(&other)),
        }
    }

    /// The events of a message, oldest first.
    pub fn traces_of(
        &self,
        tenant: TenantId,
        partition: PartitionId,
        transaction_id: &str,
    ) -> Result<Vec<Event>, Error> {
        self.read(|view| trace::of_message(view, tenant, partition, transaction_id))
    }

    /// A page of the events that have a name, newest first, the first `skip` left out; and how many
    /// there are.
    pub async fn traces_named(
        &self,
        tenant: TenantId,
        name: &str,
        skip: usize,
        limit: usize,
    ) -> Result<(Vec<Event>, TraceNameRow), Error> {
        let (mut before, mut skip) = (Stamp::MAX, skip);
        while skip > 0 {
            let step = skip.min(STEP);
            match self.read(|view| trace::skip_named(view, tenant, name, before, step))? {
                Some(last) => (before, skip) = (last, skip - step),
                None => break,
            }
            tokio::task::yield_now().await;
        }
        self.read(|view| {
            let events = match skip {
                0 => trace::with_name(view, tenant, name, before, limit)?,
                _ => Vec::new(),
            };
            Ok((events, trace::count(view, tenant, name)?))
        })
    }

    /// A page of the names that events have, those seen last first, the first `skip` left out; and how
    /// many there are. With `search`, only of names that hold it.
    ///
    /// Costs a look at every name.
    pub async fn trace_names(
        &self,
        tenant: TenantId,
        search: Option<&str>,
        skip: usize,
        limit: usize,
    ) -> Result<(Vec<(String, TraceNameRow)>, usize), Error> {
        let skip = skip.min(NAMES_SKIPPED_MAX);
        let (mut page, mut total) = (Vec::new(), 0);
        let mut after: Option<String> = None;
        loop {
            let names = self.read(|view| trace::names(view, tenant, after.as_deref(), STEP))?;
            after = names.last().map(|(name, _)| name.clone());
            let done = names.len() < STEP;
            for (name, row) in names {
                if search.is_some_and(|text| !name.contains(text)) {
                    continue;
                }
                total += 1;
                page.push((name, row));
            }
            // Cut now and then, so that what is kept stays bounded.
            if done || page.len() >= 2 * (skip + limit) {
                page.sort_by(|(a, one), (b, other)| (other.last, a).cmp(&(one.last, b)));
                page.truncate(skip + limit);
            }
            if done {
                page.drain(..skip.min(page.len()));
                return Ok((page, total));
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Whether an event is within the limits: the first fault found.
fn check(event: &RecordTrace<'_>) -> Result<(), Error> {
    let bad = |text: String| Err(Error::new(Code::BadRequest, text));
    let texts = [
        ("transactionId", event.transaction_id, TRANSACTION_ID_BYTES_MAX),
        ("eventType", event.event_type, TRACE_TYPE_BYTES_MAX),
        ("consumerGroup", event.group.unwrap_or_default(), TRACE_NAME_BYTES_MAX * 2),
        ("workerId", event.worker.unwrap_or_default(), TRACE_NAME_BYTES_MAX),
        ("data", event.data, TRACE_DATA_BYTES_MAX),
    ];
    for (name, text, most) in texts {
        if text.len() > most {
            return bad(format!("{name}: {} bytes: at most {most}", text.len()));
        }
    }
    if event.names.len() > TRACE_NAMES_MAX {
        return bad(format!("traceNames: {}: at most {TRACE_NAMES_MAX}", event.names.len()));
    }
    let mut seen = BTreeSet::new();
    for name in &event.names {
        if name.is_empty() || name.len() > TRACE_NAME_BYTES_MAX {
            return bad(format!(
                "traceNames: a name of {} bytes: 1 to {TRACE_NAME_BYTES_MAX}",
                name.len()
            ));
        }
        if !seen.insert(name) {
            return bad(format!("traceNames: {name:?} is named twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_a_limit_is_refused_by_name() {
        let good = RecordTrace {
            tenant: TenantId::DEFAULT,
            partition: PartitionId(1),
            transaction_id: "t",
            group: None,
            worker: None,
            event_type: "info",
            names: vec!["a", "b"],
            data: "{}",
        };
        assert_eq!(check(&good), Ok(()));
        let long = "x".repeat(TRACE_DATA_BYTES_MAX + 1);
        let bad = [
            ("data", RecordTrace { data: &long, ..good.clone() }),
            ("eventType", RecordTrace { event_type: &long[..65], ..good.clone() }),
            ("traceNames", RecordTrace { names: vec![""], ..good.clone() }),
            ("traceNames", RecordTrace { names: vec![&long[..257]], ..good.clone() }),
            ("traceNames", RecordTrace { names: vec!["a", "a"], ..good.clone() }),
            ("traceNames", RecordTrace { names: vec!["a"; 17], ..good.clone() }),
        ];
        for (name, event) in bad {
            let refused = check(&event).unwrap_err();
            assert!(refused.text.starts_with(name), "{}", refused.text);
        }
    }
}
