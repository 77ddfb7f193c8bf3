//! Calls of stream runtimes: the limits of a call, sealing what cycles push and remember, reading that again.
//!
//! Owns: what a call may hold, the loop around a cycle whose source or sink became encrypted under it, reading a
//! partition's state as it was at one moment. Leaves to others: the rules (`queen_state::stream`), the cipher
//! (`sealing`), JSON (`queen-http`).

use crate::Class;
use crate::broker::Broker;
use crate::push::TRIES;
use crate::queues::unexpected;
use queen_core::command::Command;
use queen_core::envelope::bound_to;
use queen_core::limits::NAME_BYTES_MAX;
use queen_core::reply::Reply;
use queen_core::stream::{
    CLAIM_PARTITIONS_MAX, CONFIG_HASH_BYTES_MAX, ClaimPartitions, Claimed, Cycle, CycleOutcome,
    GROUP_PREFIX, QueryId, RegisterQuery, Registered, STATE_KEY_BYTES_MAX, StateOp, StateText,
    StreamCommand, StreamReply,
};
use queen_core::{Code, Error, PartitionId, Stamp, TenantId};
pub use queen_state::stream::StateRow;
use queen_state::{query, stream};

/// Rows or partitions looked at under one lock.
const STEP: usize = 512;
/// Times that a state is read anew which changed while it was read, before it is read under one lock.
const READS: u32 = 3;

/// A partition of which a query remembers something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Its id.
    pub id: PartitionId,
    /// Its name.
    pub name: Box<str>,
    /// Name of its queue.
    pub queue: String,
    /// Stamp of the last change.
    pub updated: Stamp,
}

/// A page of partitions of which a query remembers something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RememberedPage {
    /// In the order of their ids.
    pub partitions: Vec<Remembered>,
    /// After which one the next page begins, if there may be one.
    pub next: Option<PartitionId>,
}

impl Broker {
    /// Makes a query known, or comes back to it.
    ///
    /// Errors beside those of [`Broker::submit`]: `NameTooLong`, `BadRequest` for what is over a limit.
    pub async fn register_query(&self, query: &RegisterQuery<'_>) -> Result<Registered, Error> {
        check_query(query)?;
        let command = StreamCommand::Register(query.clone());
        match self.submit(Class::Write, &Command::Stream(command)).await? {
            Reply::Stream(StreamReply::Registered(registered)) => Ok(registered),
            other => Err(unexpected(&other)),
        }
    }

    /// Applies all of a cycle or nothing; answers when it is durable and visible.
    ///
    /// Errors beside those of [`Broker::submit`]: `NameTooLong`, `BadRequest` for what is over a limit.
    pub async fn cycle(&self, cycle: &Cycle<'_>) -> Result<CycleOutcome, Error> {
        check_cycle(cycle)?;
        let mut tries = 0;
        let answered = loop {
            let sealed = self.shared.sealing.seal_push(cycle.tenant, &cycle.pushes)?;
            let envelopes = self.seal_state(cycle)?;
            let mut sent = cycle.clone();
            for (op, envelope) in sent.ops.iter_mut().zip(&envelopes) {
                if let (Some(value), Some(bytes)) = (&mut op.value, envelope) {
                    *value = StateText { encrypted: true, bytes };
                }
            }
            if let Some(sealed) = &sealed {
                sent.pushes = sealed.groups(&cycle.pushes);
            }
            let command = Command::Stream(StreamCommand::Cycle(sent));
            match self.ask(class(cycle), &command, size_hint(cycle)).await {
                // The queue became encrypted since the look: what was refused was not written.
                Err(e) if e.code == Code::NotSealed && tries < TRIES => tries += 1,
                answered => break answered?,
            }
        };
        let Reply::Stream(StreamReply::Cycle(outcome)) = answered.reply else {
            return Err(unexpected(&answered.reply));
        };
        let counters = self.counters();
        match &outcome.result {
            Ok(_) => {
                counters.stream_cycles_committed.add(1);
                let pushed = cycle.pushes.iter().map(|group| u64::from(group.count)).sum();
                counters.push_messages.add(pushed);
            }
            Err(_) => counters.stream_cycles_refused.add(1),
        }
        Ok(outcome)
    }

    /// The envelope of each value that a cycle remembers of a partition whose queue is encrypted.
    fn seal_state(&self, cycle: &Cycle<'_>) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let sealing = &self.shared.sealing;
        if !sealing.any() {
            return Ok(Vec::new());
        }
        let found = self.read(|view| named(view, cycle.tenant, cycle.partition))?;
        let Some((partition, queue)) = found else { return Ok(Vec::new()) };
        if !sealing.is_encrypted(cycle.tenant, &queue) {
            return Ok(Vec::new());
        }
        let bound = bound_to(cycle.tenant, &queue, &partition);
        let envelopes = cycle.ops.iter().map(|op| {
            let Some(value) = op.value.filter(|value| !value.encrypted) else { return Ok(None) };
            let mut envelope = Vec::new();
            sealing.seal(&queue, &bound, value.bytes, &mut envelope)?;
            Ok(Some(envelope))
        });
        envelopes.collect()
    }

    /// Opens what is sealed of the rows of a partition's state.
    fn open_state(
        &self,
        tenant: TenantId,
        (name, queue): (Box<str>, String),
        rows: &mut [StateRow],
    ) -> Result<(), Error> {
        for row in rows.iter_mut().filter(|row| row.encrypted) {
            let mut text = Vec::new();
            self.open_payload(tenant, &queue, &name, &row.value, &mut text).map_err(|why| {
                let text = format!(
                    "queue {queue:?}, partition {name:?}: what a query remembers of it {why}"
                );
                Error::new(Code::Undecryptable, text)
            })?;
            (row.value, row.encrypted) = (text.into(), false);
        }
        Ok(())
    }

    /// Leases partitions with an empty batch; `None` when there is no such query.
    ///
    /// Errors beside those of [`Broker::submit`]: `NameTooLong`, `BadRequest` for what is over a limit.
    pub async fn claim_partitions(
        &self,
        claim: &ClaimPartitions<'_>,
    ) -> Result<Option<Claimed>, Error> {
        check_group(claim.group)?;
        let asked = claim.partitions.len();
        if asked > CLAIM_PARTITIONS_MAX {
            let text = format!("partition_ids: {asked}: at most {CLAIM_PARTITIONS_MAX} in a claim");
            return Err(Error::new(Code::BadRequest, text));
        }
        let command = StreamCommand::Claim(claim.clone());
        match self.submit(Class::Settle, &Command::Stream(command)).await? {
            Reply::Stream(StreamReply::Claimed(claimed)) => Ok(claimed),
            other => Err(unexpected(&other)),
        }
    }

    /// What a query remembers of a partition, as it was at one moment: rows of these keys, or of all
    /// without any, whose keys begin with `prefix`; in the clear. `None` when there is no such query.
    ///
    /// Errors: `Undecryptable` when this node has no key for what is sealed.
    pub async fn stream_state(
        &self,
        tenant: TenantId,
        query: QueryId,
        partition: PartitionId,
        keys: &[&str],
        prefix: &str,
    ) -> Result<Option<Vec<StateRow>>, Error> {
        let (mut rows, mut moment, mut reads) = (Vec::<StateRow>::new(), None, 1);
        let (mut looked, mut after) = (0_usize, None::<String>);
        loop {
            let step = if reads > READS { usize::MAX } else { STEP };
            let page = self.read(|view| {
                let Some(query) = stream::query_with_id(view, tenant, query)? else {
                    return Ok(None);
                };
                let state = query.row.state;
                let row = stream::partition_state(view, state, partition)?;
                let place = named(view, tenant, partition)?;
                let page = match keys {
                    // What is left of it is on its way out.
                    _ if place.is_none() => Vec::new(),
                    [] => stream::rows(view, state, partition, prefix, after.as_deref(), step)?,
                    keys => {
                        let keys = &keys[looked..keys.len().min(looked.saturating_add(step))];
                        stream::rows_at(view, state, partition, keys)?
                    }
                };
                Ok(Some((place, (state, row.map(|row| row.updated)), page)))
            })?;
            let Some((place, now, page)) = page else { return Ok(None) };
            if moment.is_some_and(|moment| moment != now) {
                // A cycle came between two pages: what was read is of no one moment.
                (rows, moment, looked, after) = (Vec::new(), None, 0, None);
                reads += 1;
                continue;
            }
            moment = Some(now);
            looked = looked.saturating_add(step);
            let done = if keys.is_empty() { page.len() < step } else { looked >= keys.len() };
            after = page.last().map(|row| row.key.clone());
            rows.extend(page.into_iter().filter(|row| row.key.starts_with(prefix)));
            if done {
                self.open_state(tenant, place.unwrap_or_default(), &mut rows)?;
                return Ok(Some(rows));
            }
            tokio::task::yield_now().await;
        }
    }

    /// A page of the partitions of which a query remembers something, after one, of which nothing changed for
    /// at least so many milliseconds. `None` when there is no such query.
    ///
    /// Costs a look at every partition up to the last of the page.
    pub async fn stream_partitions(
        &self,
        tenant: TenantId,
        query: QueryId,
        untouched_ms: u64,
        after: PartitionId,
        limit: usize,
    ) -> Result<Option<RememberedPage>, Error> {
        let (mut page, mut after) = (RememberedPage::default(), after);
        let newest = Stamp(self.now().0.saturating_sub(untouched_ms.saturating_mul(1000)));
        loop {
            let found = self.read(|view| {
                let Some(query) = stream::query_with_id(view, tenant, query)? else {
                    return Ok(None);
                };
                let mut found = Vec::new();
                for (id, row) in stream::partitions(view, query.row.state, after, STEP)? {
                    let due = untouched_ms == 0 || row.updated <= newest;
                    let known = if due { named(view, tenant, id)? } else { None };
                    found.push((id, known.map(|(name, queue)| (name, queue, row.updated))));
                }
                Ok(Some(found))
            })?;
            let Some(found) = found else { return Ok(None) };
            let looked = found.len();
            for (at, (id, known)) in found.into_iter().enumerate() {
                after = id;
                let Some((name, queue, updated)) = known else { continue };
                page.partitions.push(Remembered { id, name, queue, updated });
                if page.partitions.len() >= limit {
                    let more = at + 1 < looked || looked == STEP;
                    page.next = more.then_some(id);
                    return Ok(Some(page));
                }
            }
            if looked < STEP {
                return Ok(Some(page));
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Name and queue of a partition; `None` when its queue was deleted.
fn named(
    view: &crate::View<'_>,
    tenant: TenantId,
    id: PartitionId,
) -> Result<Option<(Box<str>, String)>, queen_state::StorageError> {
    let found = query::partition_of(view, tenant, id)?;
    Ok(found.map(|(queue, partition)| (partition.name, queue.row.name)))
}

/// What settles and lets go goes on while the disk is full.
fn class(cycle: &Cycle<'_>) -> Class {
    let grows = !cycle.pushes.is_empty() || cycle.ops.iter().any(|op| op.value.is_some());
    if grows { Class::Write } else { Class::Settle }
}

/// Bytes of the command, about.
fn size_hint(cycle: &Cycle<'_>) -> usize {
    let pushes = cycle.pushes.iter().map(|group| group.frames.len() + group.queue.len() + 64);
    let ops =
        cycle.ops.iter().map(|op| op.key.len() + op.value.map_or(0, |value| value.bytes.len()) + 8);
    pushes.chain(ops).sum::<usize>() + 256
}

fn too_long(what: &str, bytes: usize) -> Error {
    let text = format!("{what} {bytes} bytes together, at most {NAME_BYTES_MAX}");
    Error::new(Code::NameTooLong, text)
}

fn check_group(group: Option<&str>) -> Result<(), Error> {
    match group.map_or(0, str::len) {
        bytes if bytes > NAME_BYTES_MAX => Err(too_long("consumer_group has", bytes)),
        _ => Ok(()),
    }
}

/// Whether a registration is within the limits.
fn check_query(query: &RegisterQuery<'_>) -> Result<(), Error> {
    // The group that it reads with has its name in it.
    let bytes = query.name.len() + GROUP_PREFIX.len() + query.source.len();
    if bytes > NAME_BYTES_MAX {
        return Err(too_long("source_queue and the group streams.<name> have", bytes));
    }
    if let Some(bytes) = query.sink.map(str::len).filter(|bytes| *bytes > NAME_BYTES_MAX) {
        return Err(too_long("sink_queue has", bytes));
    }
    let bytes = query.config_hash.len();
    if bytes > CONFIG_HASH_BYTES_MAX {
        let text = format!("config_hash: {bytes} bytes: at most {CONFIG_HASH_BYTES_MAX}");
        return Err(Error::new(Code::BadRequest, text));
    }
    Ok(())
}

/// Whether a cycle is within the limits: the first fault found.
fn check_cycle(cycle: &Cycle<'_>) -> Result<(), Error> {
    check_group(cycle.group)?;
    for (index, StateOp { key, .. }) in cycle.ops.iter().enumerate() {
        let bytes = key.len();
        if bytes > STATE_KEY_BYTES_MAX {
            let text =
                format!("state_ops {index}: a key of {bytes} bytes: at most {STATE_KEY_BYTES_MAX}");
            return Err(Error::new(Code::BadRequest, text));
        }
    }
    for group in &cycle.pushes {
        let bytes = group.queue.len() + group.partition.len();
        if bytes > NAME_BYTES_MAX {
            return Err(too_long("push_items: queue and partition have", bytes));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use queen_core::command::PushGroup;

    fn empty() -> Cycle<'static> {
        Cycle {
            tenant: TenantId::DEFAULT,
            query: QueryId(Stamp(1)),
            partition: PartitionId(1),
            group: None,
            ops: Vec::new(),
            pushes: Vec::new(),
            ack: None,
        }
    }

    fn push<'a>(queue: &'a str, partition: &'a str) -> PushGroup<'a> {
        let (count, text_bytes, frames) = (1, 38, &b"\x00\x02{}"[..]);
        PushGroup { queue, partition, count, has_transaction_ids: false, text_bytes, frames }
    }

    #[test]
    fn what_is_over_a_limit_is_refused_by_name() {
        let long = "x".repeat(STATE_KEY_BYTES_MAX + 1);
        let op = |bytes| StateOp { key: &long[..bytes], value: None };
        let with = |ops, pushes, group| check_cycle(&Cycle { ops, pushes, group, ..empty() });
        let code = |checked: Result<(), Error>| checked.err().map(|e| (e.code, e.text));
        assert_eq!(
            with(vec![op(STATE_KEY_BYTES_MAX)], vec![push("q", &long[..410])], None),
            Ok(())
        );
        let (bad, text) = code(with(vec![op(1), op(4097)], Vec::new(), None)).unwrap();
        assert!(bad == Code::BadRequest && text.starts_with("state_ops 1: "), "{text}");
        let (bad, text) = code(with(Vec::new(), vec![push("q", &long[..411])], None)).unwrap();
        assert!(bad == Code::NameTooLong && text.starts_with("push_items"), "{text}");
        let (bad, _) = code(with(Vec::new(), Vec::new(), Some(&long[..412]))).unwrap();
        assert_eq!(bad, Code::NameTooLong);

        let query = RegisterQuery {
            tenant: TenantId::DEFAULT,
            name: &long[..402],
            source: "q",
            sink: Some(&long[..411]),
            config_hash: &long[..1024],
            reset: false,
        };
        assert_eq!(check_query(&query), Ok(()));
        let bad = [
            (Code::NameTooLong, RegisterQuery { name: &long[..403], ..query.clone() }),
            (Code::NameTooLong, RegisterQuery { sink: Some(&long[..412]), ..query.clone() }),
            (Code::BadRequest, RegisterQuery { config_hash: &long[..1025], ..query.clone() }),
        ];
        for (want, query) in bad {
            assert_eq!(check_query(&query).map_err(|e| e.code), Err(want));
        }
    }

    #[test]
    fn only_what_grows_waits_for_disk_space() {
        let with = |value| vec![StateOp { key: "k", value }];
        assert_eq!(class(&empty()), Class::Settle);
        assert_eq!(class(&Cycle { ops: with(None), ..empty() }), Class::Settle);
        assert_eq!(
            class(&Cycle { ops: with(Some(StateText::plain("1"))), ..empty() }),
            Class::Write
        );
        assert_eq!(class(&Cycle { pushes: vec![push("q", "p")], ..empty() }), Class::Write);
    }
}
