//! Timer calls: the limits of a call, sealing payloads, reading what is set.
//!
//! Owns: what a call may hold and which identifier refuses it, the loop around one whose queue became
//! encrypted under it, sealing timers that were set before theirs did. Leaves to others: the rules
//! (`queen_state::timer`), when timers are fired (`ticker`), the cipher (`sealing`), JSON (`queen-http`).

use crate::counters::Counters;
use crate::kv::{Fault, KvError, KvRefusal};
use crate::push::TRIES;
use crate::queues::unexpected;
use crate::{Broker, Class};
use bytes::Bytes;
use queen_core::command::Command;
use queen_core::envelope::bound_to;
use queen_core::limits::{NAME_BYTES_MAX, TRANSACTION_ID_BYTES_MAX};
use queen_core::reply::Reply;
use queen_core::timer::{
    DELAY_MS_MAX, KEY_BYTES_MAX, OPERATIONS_MAX, PAYLOAD_BYTES_MAX, TimerMessage, TimerOp,
    TimerOpKind, TimerResult, Timers,
};
use queen_core::{Code, Error, TenantId};
use queen_state::timer;
pub use queen_state::timer::Timer;
use std::collections::{BTreeMap, BTreeSet};

/// Timers looked at under one lock when they are counted.
const STEP: usize = 4096;

impl Broker {
    /// Carries out operations on timers; one result per operation. Answers when they are durable.
    pub async fn timers(&self, timers: &Timers<'_>) -> Result<Vec<TimerResult>, KvError> {
        check(timers.ops.iter())?;
        let grows = timers.ops.iter().any(grows);
        let class = if grows { Class::Write } else { Class::Settle };
        let bytes = timers.ops.iter().map(size_hint).sum();
        let mut tries = 0;
        let answered = loop {
            let envelopes = self.shared.sealing.seal_timers(timers.tenant, timers.ops.iter())?;
            let mut sent = timers.clone();
            put_envelopes(sent.ops.iter_mut(), &envelopes);
            match self.ask(class, &Command::Timers(sent), bytes).await {
                // The queue became encrypted since the look: what was refused was not written.
                Err(e) if e.code == Code::NotSealed && tries < TRIES => tries += 1,
                answered => break answered?,
            }
        };
        let Reply::Timers(results) = answered.reply else {
            return Err(unexpected(&answered.reply).into());
        };
        count(self.counters(), results.iter());
        Ok(results)
    }

    /// A timer and its payload as it lies there: JSON text, or its envelope.
    pub fn timer(
        &self,
        tenant: TenantId,
        queue: &str,
        key: &str,
    ) -> Result<Option<(Timer, Bytes)>, Error> {
        self.read(|view| {
            let Some(queue) = queen_state::query::queue_named(view, tenant, queue)? else {
                return Ok(None);
            };
            let Some(timer) = timer::find(view, queue.id, key)? else { return Ok(None) };
            let payload = timer::payload(view, &timer.row_key)?;
            Ok(Some((timer, payload)))
        })
    }

    /// At most `limit` timers of a queue whose keys begin with `prefix`, in key order, after a key.
    pub fn list_timers(
        &self,
        tenant: TenantId,
        queue: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Timer>, Error> {
        self.read(|view| match queen_state::query::queue_named(view, tenant, queue)? {
            Some(queue) => timer::list(view, queue.id, prefix, after, limit),
            None => Ok(Vec::new()),
        })
    }

    /// How many timers of a queue have keys that begin with `prefix`. Costs a look at each.
    pub async fn count_timers(
        &self,
        tenant: TenantId,
        queue: &str,
        prefix: &str,
    ) -> Result<u64, Error> {
        let (mut count, mut after) = (0, None::<String>);
        loop {
            let page = self.list_timers(tenant, queue, prefix, after.as_deref(), STEP)?;
            count += page.len() as u64;
            match page.last() {
                Some(last) if page.len() == STEP => after = Some(last.key().to_owned()),
                _ => return Ok(count),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Timers that are set, of all queues.
    pub fn timers_pending(&self) -> u64 {
        self.read(|view| timer::all(view)).map_or(0, |all| all.pending)
    }

    /// Seals the payloads of the next timers to be fired whose queue became encrypted after they
    /// were set.
    pub(crate) async fn seal_due_timers(&self) -> Result<(), Error> {
        if !self.shared.sealing.any() {
            return Ok(());
        }
        let due = self.read(|view| timer::unsealed_due(view, self.now()))?;
        let envelopes = due.iter().map(|found| {
            let bound = bound_to(found.tenant, &found.queue, &found.timer.row.partition);
            let mut envelope = Vec::new();
            self.shared.sealing.seal(&found.queue, &bound, &found.payload, &mut envelope)?;
            Ok(envelope)
        });
        let envelopes = envelopes.collect::<Result<Vec<_>, Error>>()?;
        let mut calls: BTreeMap<TenantId, Vec<TimerOp<'_>>> = BTreeMap::new();
        for (found, envelope) in due.iter().zip(&envelopes) {
            let kind = TimerOpKind::Seal { number: found.timer.row.number, envelope };
            let op = TimerOp { queue: &found.queue, key: found.timer.key(), kind };
            calls.entry(found.tenant).or_default().push(op);
        }
        for (tenant, ops) in calls {
            let bytes = ops.iter().map(size_hint).sum();
            self.ask(Class::Write, &Command::Timers(Timers { tenant, ops }), bytes).await?;
        }
        Ok(())
    }
}

/// Puts envelopes in the place of the payloads that have one.
pub(crate) fn put_envelopes<'o, 'a: 'o>(
    ops: impl Iterator<Item = &'o mut TimerOp<'a>>,
    envelopes: &'a [Option<Vec<u8>>],
) {
    for (op, envelope) in ops.zip(envelopes) {
        if let (TimerOpKind::Schedule(message), Some(envelope)) = (&mut op.kind, envelope) {
            (message.payload, message.encrypted) = (envelope, true);
        }
    }
}

/// Counts what was set and taken away.
pub(crate) fn count<'r>(counters: &Counters, results: impl Iterator<Item = &'r TimerResult>) {
    for result in results {
        match result {
            TimerResult::Scheduled { .. } => counters.timers_scheduled.add(1),
            TimerResult::Cancelled(_) => counters.timers_cancelled.add(1),
            TimerResult::Absent | TimerResult::Sealed => {}
        }
    }
}

/// Whether an operation waits for disk space.
pub(crate) fn grows(op: &TimerOp<'_>) -> bool {
    matches!(op.kind, TimerOpKind::Schedule(_))
}

/// Bytes of an operation, about.
pub(crate) fn size_hint(op: &TimerOp<'_>) -> usize {
    let payload = match &op.kind {
        TimerOpKind::Schedule(message) => message.payload.len(),
        TimerOpKind::Seal { envelope, .. } => envelope.len(),
        TimerOpKind::Cancel => 0,
    };
    op.queue.len() + op.key.len() + payload + 128
}

fn bad(reason: &'static str, detail: String) -> KvRefusal {
    KvRefusal { fault: Fault::Malformed, identifier: "timers_bad_request", reason, detail }
}

/// Whether operations are within the limits: the first fault found.
pub fn check<'o, 'a: 'o>(ops: impl Iterator<Item = &'o TimerOp<'a>>) -> Result<(), KvRefusal> {
    let mut keys = BTreeSet::new();
    for (index, op) in ops.enumerate() {
        if index == OPERATIONS_MAX {
            let detail = format!("more than {OPERATIONS_MAX} operations on timers in a call");
            return Err(bad("timers_too_many_operations", detail));
        }
        check_op(op).map_err(|refusal| KvRefusal {
            detail: format!("operation {index}: {}", refusal.detail),
            ..refusal
        })?;
        if !keys.insert((op.queue, op.key)) {
            let detail = format!(
                "operation {index}: key {:?} of queue {:?} is named twice in one call",
                op.key, op.queue
            );
            return Err(bad("timers_key_repeated", detail));
        }
    }
    Ok(())
}

fn check_op(op: &TimerOp<'_>) -> Result<(), KvRefusal> {
    if !(1..=KEY_BYTES_MAX).contains(&op.key.len()) {
        let len = op.key.len();
        let detail = format!("a timer's key has 1 to {KEY_BYTES_MAX} bytes, and this one {len}");
        return Err(bad("timers_bad_key", detail));
    }
    let partition = match &op.kind {
        TimerOpKind::Schedule(message) => message.partition,
        TimerOpKind::Cancel | TimerOpKind::Seal { .. } => "",
    };
    let names = op.queue.len() + partition.len();
    if names > NAME_BYTES_MAX {
        let detail = format!(
            "the names of queue and partition have {names} bytes together, at most {NAME_BYTES_MAX}"
        );
        let name = "name_too_long";
        return Err(KvRefusal { fault: Fault::TooLarge, identifier: name, reason: name, detail });
    }
    match &op.kind {
        TimerOpKind::Schedule(message) => check_message(message),
        TimerOpKind::Cancel | TimerOpKind::Seal { .. } => Ok(()),
    }
}

fn check_message(message: &TimerMessage<'_>) -> Result<(), KvRefusal> {
    if message.delay_ms > DELAY_MS_MAX {
        let (name, asked) = ("timer_horizon_exceeded", message.delay_ms);
        let detail = format!("delayMs {asked} is over the horizon of {DELAY_MS_MAX} (90 days)");
        return Err(KvRefusal { fault: Fault::TooMuch, identifier: name, reason: name, detail });
    }
    let len = message.payload.len();
    if len > PAYLOAD_BYTES_MAX {
        let name = "timer_payload_too_large";
        let detail = format!("the payload has {len} bytes: at most {PAYLOAD_BYTES_MAX}");
        return Err(KvRefusal { fault: Fault::TooLarge, identifier: name, reason: name, detail });
    }
    if message.transaction_id.is_some_and(|id| id.len() > TRANSACTION_ID_BYTES_MAX) {
        let detail = format!("a txn has at most {TRANSACTION_ID_BYTES_MAX} bytes");
        return Err(bad("timers_bad_txn", detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(delay_ms: u64, payload: &[u8]) -> TimerMessage<'_> {
        let (partition, transaction_id, producer) = ("p", None, None);
        TimerMessage { partition, delay_ms, transaction_id, producer, encrypted: false, payload }
    }

    fn refused(queue: &str, key: &str, message: TimerMessage<'_>) -> Option<(Fault, &'static str)> {
        let op = TimerOp { queue, key, kind: TimerOpKind::Schedule(message) };
        check([op].iter()).err().map(|refusal| (refusal.fault, refusal.reason))
    }

    #[test]
    fn limits_are_refused_by_identifier() {
        let (long, payload) = ("k".repeat(512), vec![b' '; PAYLOAD_BYTES_MAX + 1]);
        assert_eq!(refused("q", &long, message(DELAY_MS_MAX, &payload[1..])), None);
        let malformed = |reason| Some((Fault::Malformed, reason));
        assert_eq!(refused("q", "", message(0, b"1")), malformed("timers_bad_key"));
        assert_eq!(
            refused("q", &format!("{long}k"), message(0, b"1")),
            malformed("timers_bad_key")
        );
        let far = refused("q", "k", message(DELAY_MS_MAX + 1, b"1"));
        assert_eq!(far, Some((Fault::TooMuch, "timer_horizon_exceeded")));
        let large = refused("q", "k", message(0, &payload));
        assert_eq!(large, Some((Fault::TooLarge, "timer_payload_too_large")));
        let name = refused(&"q".repeat(411), "k", message(0, b"1"));
        assert_eq!(name, Some((Fault::TooLarge, "name_too_long")));
        let id = "t".repeat(65_536);
        let with_id = TimerMessage { transaction_id: Some(&id), ..message(0, b"1") };
        assert_eq!(refused("q", "k", with_id), malformed("timers_bad_txn"));
    }

    #[test]
    fn a_key_is_named_once_in_a_call_and_a_call_has_an_end() {
        let op = |queue, key| TimerOp { queue, key, kind: TimerOpKind::Cancel };
        let reason = |ops: &[TimerOp<'_>]| check(ops.iter()).err().map(|refusal| refusal.reason);
        assert_eq!(reason(&[op("q", "a"), op("q", "b"), op("r", "a")]), None);
        assert_eq!(reason(&[op("q", "a"), op("q", "a")]), Some("timers_key_repeated"));
        let keys: Vec<String> = (0..=OPERATIONS_MAX).map(|n| n.to_string()).collect();
        let many: Vec<_> = keys.iter().map(|key| op("q", key)).collect();
        assert_eq!(reason(&many), Some("timers_too_many_operations"));
        assert_eq!(reason(&many[1..]), None);
    }

    #[test]
    fn only_what_grows_waits_for_disk_space() {
        let of = |kind| TimerOp { queue: "q", key: "k", kind };
        assert!(grows(&of(TimerOpKind::Schedule(message(0, b"1")))));
        assert!(!grows(&of(TimerOpKind::Cancel)));
    }
}
