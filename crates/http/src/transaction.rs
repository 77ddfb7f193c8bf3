//! `POST /api/v1/transaction`: acks, pushes and riders that apply together or not at all.
//!
//! Owns: reading the bundle, what refuses it before it is a command, which lease an ack is under.
//! Leaves to others: the answer (`transaction_answer`), grouping pushes (`push`), KV operations (`kv`), timers (`timer`),
//! limits (`queen_broker`), every rule (`queen-state`).
//!
//! A malformed bundle is a 400. One that is well-formed and cannot apply is a 200 that says why.

use crate::ack::{PartitionText, claim};
use crate::answer::{Answer, Refusal};
use crate::binary::{Binary, Group, is_binary};
use crate::call::Call;
use crate::kv::{self, Asked, Members, read_operations};
use crate::pop::mode;
use crate::push::{Grouped, Slot, check_transaction_id, present};
use crate::text::Text;
use crate::timer::{self, AskedTimer, Room, read_timers};
use crate::transaction_answer::{Early, committed, early, rolled_back};
use queen_broker::KvError;
use queen_core::command::{AckItem, GroupStart, Verdict};
use queen_core::frame::Frame;
use queen_core::limits::{DEFAULT_PARTITION, NAME_BYTES_MAX, QUEUE_MODE_GROUP};
use queen_core::transaction::{AckGroup, Position, Rider, Transaction};
use queen_core::{Code, MessageId, Offset, TenantId};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow, default)]
    operations: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    required_leases: Option<Vec<Option<Text<'a>>>>,
    #[serde(borrow, default)]
    kv: Option<Vec<Members<'a>>>,
    #[serde(borrow, default)]
    timers: Option<Vec<Members<'a>>>,
    #[serde(borrow, default)]
    positions: Option<Vec<AskedPosition<'a>>>,
}

/// What tells operations apart.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Text<'a>>,
    /// Of a push of several messages; without it the operation itself is the message.
    #[serde(borrow, default)]
    items: Option<Vec<Message<'a>>>,
}

/// A pushed message.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Message<'a> {
    #[serde(borrow, default)]
    queue: Option<Text<'a>>,
    #[serde(borrow, default)]
    partition: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    transaction_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    trace_id: Option<Text<'a>>,
}

/// An ack.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskedAck<'a> {
    #[serde(borrow)]
    pub(crate) transaction_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    partition_id: Option<PartitionText<'a>>,
    #[serde(borrow, default)]
    status: Option<Text<'a>>,
    #[serde(borrow, default)]
    consumer_group: Option<Text<'a>>,
    #[serde(borrow, default)]
    lease_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    error: Option<Text<'a>>,
}

/// The position rider. Members that no rule reads are not kept.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskedPosition<'a> {
    #[serde(borrow, default)]
    pub(crate) queue: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) consumer_group: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) partition: Option<Text<'a>>,
    #[serde(default)]
    offset: Option<u64>,
    #[serde(borrow, default)]
    subscription_mode: Option<Text<'a>>,
}

/// An operation as it was read. Each message of a push is one.
pub(crate) enum Operation<'a> {
    Push(Message<'a>),
    Ack(AskedAck<'a>),
}

/// A bundle as it was read, every part of it well-formed.
pub(crate) struct Bundle<'a> {
    pub(crate) operations: Vec<Operation<'a>>,
    required_leases: Vec<Option<Text<'a>>>,
    pub(crate) kv: Vec<Asked>,
    pub(crate) timers: Vec<AskedTimer>,
    pub(crate) positions: Vec<AskedPosition<'a>>,
    /// Pushes and acks are only counted in the answer.
    pub(crate) counts: bool,
}

/// `POST /api/v1/transaction`.
pub(crate) async fn transaction(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.body().await?;
    let mut rooms = Vec::new();
    let mut room =
        |bytes| call.face.room_for(bytes).map(|room| rooms.push(room)).map_err(Into::into);
    let binary = match is_binary(&call.parts.headers) {
        true => Some(Binary::transaction(&body)?),
        false => None,
    };
    let groups = binary.as_ref().map_or(Ok(Vec::new()), |binary| binary.groups(&mut room))?;
    let mut bundle = match &binary {
        None => Bundle::read(&body, Vec::new(), &mut room)?,
        Some(binary) => Bundle::read(binary.head, framed(&groups)?, &mut room)?,
    };
    if !bundle.kv.is_empty() {
        kv::refuse_when_off(&call)?;
    }
    timer::refuse_when_off(&call, &bundle.timers)?;
    bundle.counts = binary.as_ref().is_some_and(|binary| binary.counts);
    let now = call.broker().now();
    let parts = match Parts::of(&bundle, body.len(), call.producer()) {
        Ok(parts) => parts,
        Err(why) => return Ok(early(now, &why)),
    };
    let outcome = match call.broker().transaction(&parts.command(call.tenant())).await {
        // Its size is the only thing that the broker finds wrong with a command.
        Err(KvError::Failed(error)) if error.code == Code::BadRequest => {
            return Ok(early(now, &Early { reason: "too_large", index: None, text: error.text }));
        }
        answered => answered?,
    };
    match &outcome.result {
        Ok(done) => committed(outcome.stamp, &bundle, &parts, done),
        Err(why) => Ok(rolled_back(outcome.stamp, &bundle, &parts, why)),
    }
}

impl<'a> Bundle<'a> {
    /// Reads a bundle; `framed` are pushes that came beside its JSON, which may then be empty.
    fn read(
        body: &'a [u8],
        framed: Vec<Operation<'a>>,
        room: Room<'_>,
    ) -> Result<Bundle<'a>, Refusal> {
        let body = if body.is_empty() && !framed.is_empty() { b"{}" } else { body };
        // Members could also stand in a list, in their order: nobody means that.
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            return Err(Refusal::bad_body("the body is not a transaction: it is a list"));
        }
        let body: Body<'a> = serde_json::from_slice(body)
            .map_err(|e| Refusal::bad_body(format!("the body is not a transaction: {e}")))?;
        let mut operations = Vec::new();
        for (at, raw) in body.operations.unwrap_or_default().into_iter().enumerate() {
            read_operation(at, raw.get(), &mut operations)?;
        }
        operations.extend(framed);
        let kv = read_operations(&body.kv.unwrap_or_default())?;
        let timers = read_timers(&body.timers.unwrap_or_default(), room)?;
        let positions = body.positions.unwrap_or_default();
        for (at, position) in positions.iter().enumerate() {
            if position.queue.is_none() || position.consumer_group.is_none() {
                let text = format!("position {at}: it names a queue and a consumerGroup");
                return Err(Refusal::bad_request(text));
            }
        }
        if operations.is_empty() && kv.is_empty() && timers.is_empty() && positions.is_empty() {
            let text = "the transaction is empty: it has operations, kv, timers or positions";
            return Err(Refusal::bad_request(text));
        }
        let required_leases = body.required_leases.unwrap_or_default();
        Ok(Bundle { operations, required_leases, kv, timers, positions, counts: false })
    }

    /// The lease of acks that name none: the only one that the bundle names, if there is only one.
    fn lent(&self) -> Option<&str> {
        let own = self.operations.iter().filter_map(|operation| match operation {
            Operation::Ack(ack) => ack.lease_id.as_deref(),
            Operation::Push(_) => None,
        });
        let required = self.required_leases.iter().filter_map(|lease| lease.as_deref());
        let mut named = own.chain(required).filter(|lease| !lease.is_empty());
        let first = named.next()?;
        named.all(|lease| lease == first).then_some(first)
    }
}

/// The pushes of a binary body.
fn framed<'a>(groups: &'a [Group<'_>]) -> Result<Vec<Operation<'a>>, Refusal> {
    let mut operations = Vec::new();
    for group in groups {
        for message in group.messages()? {
            operations.push(Operation::Push(Message {
                queue: Some(group.queue.into()),
                partition: Some(group.partition.into()),
                payload: Some(message.payload),
                data: None,
                transaction_id: message.transaction_id.map(Text::from),
                trace_id: None,
            }));
        }
    }
    Ok(operations)
}

/// Reads one operation, which is as many as its push has messages.
fn read_operation<'a>(
    at: usize,
    raw: &'a str,
    operations: &mut Vec<Operation<'a>>,
) -> Result<(), Refusal> {
    let bad = |e: serde_json::Error| Refusal::bad_body(format!("operation {at}: {e}"));
    let head: Head<'a> = serde_json::from_str(raw).map_err(bad)?;
    match head.kind.as_deref() {
        Some("push") => {
            let messages = match head.items {
                Some(items) => items,
                None => vec![serde_json::from_str(raw).map_err(bad)?],
            };
            for message in messages {
                if message.queue.is_none() {
                    let text = format!("operation {at}: a pushed message names no queue");
                    return Err(Refusal::bad_request(text));
                }
                check_transaction_id(operations.len(), message.transaction_id.as_deref())?;
                operations.push(Operation::Push(message));
            }
        }
        Some("ack") => {
            let ack: AskedAck<'a> = serde_json::from_str(raw).map_err(bad)?;
            if ack.transaction_id.is_none() {
                let text = format!("operation {at}: an ack names a transactionId");
                return Err(Refusal::bad_request(text));
            }
            operations.push(Operation::Ack(ack));
        }
        kind => {
            let kind = kind.unwrap_or_default();
            let text = format!(
                "operation {at}: {kind:?} is not a type of operation: push or ack (kv, timers and positions \
                 stand beside operations)"
            );
            return Err(Refusal::bad_request(text));
        }
    }
    Ok(())
}

/// Where an operation went in the command.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Place {
    /// A push group, and the message in it.
    Push(Slot),
    /// An ack group, and the item in it.
    Ack(Slot),
}

/// A bundle's parts as the command has them.
pub(crate) struct Parts<'b> {
    pub(crate) pushes: Grouped<'b>,
    pub(crate) acks: Vec<AckGroup<'b>>,
    riders: Vec<Rider<'b>>,
    /// One per operation.
    pub(crate) places: Vec<Place>,
}

impl<'b> Parts<'b> {
    /// The parts, or what keeps them from becoming a command.
    fn of(
        bundle: &'b Bundle<'_>,
        body_bytes: usize,
        producer: Option<&'b str>,
    ) -> Result<Parts<'b>, Early> {
        let operations = &bundle.operations;
        let mut parts = Parts {
            pushes: Grouped::new(operations.len(), body_bytes, producer),
            acks: Vec::new(),
            riders: Vec::new(),
            places: Vec::with_capacity(operations.len()),
        };
        let lent = bundle.lent();
        for (index, operation) in operations.iter().enumerate() {
            let place = match operation {
                Operation::Push(message) => Place::Push(parts.push(index, message)?),
                Operation::Ack(ack) => Place::Ack(parts.ack(index, ack, lent)?),
            };
            parts.places.push(place);
        }
        parts.riders.extend(bundle.kv.iter().map(|op| Rider::Kv(op.op())));
        parts.riders.extend(bundle.timers.iter().map(|op| Rider::Timer(op.op())));
        for position in &bundle.positions {
            let index = parts.places.len() + parts.riders.len();
            let position = position.command();
            let group = position.group.len().max(position.partition.len());
            fits(index, position.queue.len() + group)?;
            parts.riders.push(Rider::Position(position));
        }
        Ok(parts)
    }

    fn push(&mut self, index: usize, message: &'b Message<'_>) -> Result<Slot, Early> {
        let queue = message.queue.as_deref().unwrap_or_default();
        let partition = message.partition.as_deref().unwrap_or(DEFAULT_PARTITION);
        fits(index, queue.len() + partition.len())?;
        let payload = message.payload.or(message.data).map_or("{}", RawValue::get);
        let trace_id = message.trace_id.as_deref().map(str::to_ascii_lowercase);
        let frame = Frame {
            transaction_id: message.own_id(),
            trace_id: trace_id.and_then(|text| MessageId::parse(&text)).map(|id| id.0),
            payload: payload.as_bytes(),
            ..Frame::default()
        };
        Ok(self.pushes.add(queue, partition, &frame))
    }

    fn ack(
        &mut self,
        index: usize,
        ack: &'b AskedAck<'_>,
        lent: Option<&'b str>,
    ) -> Result<Slot, Early> {
        let group = ack.consumer_group.as_deref();
        let group = group.filter(|name| !name.is_empty() && *name != QUEUE_MODE_GROUP);
        fits(index, group.map_or(0, str::len))?;
        let Some(partition) = ack.partition_id.as_ref().and_then(PartitionText::id) else {
            let text = "QTXN the ack's partitionId is not a number".to_owned();
            return Err(Early { reason: "bad_request", index: Some(index), text });
        };
        let item = AckItem {
            transaction_id: ack.transaction_id.as_deref().unwrap_or_default(),
            partition: Some(partition),
            verdict: verdict(ack.status.as_deref()),
            lease: claim(ack.lease_id.as_deref().filter(|lease| !lease.is_empty()).or(lent)),
            error: ack.error.as_deref().filter(|text| !text.is_empty()),
        };
        let at = self.acks.iter().position(|known| known.group == group).unwrap_or_else(|| {
            self.acks.push(AckGroup { group, items: Vec::new() });
            self.acks.len() - 1
        });
        let items = &mut self.acks[at].items;
        items.push(item);
        Ok(Slot { group: at as u32, number: items.len() as u32 - 1 })
    }

    /// The operation that went to a place.
    pub(crate) fn index_of(&self, place: Place) -> Option<usize> {
        self.places.iter().position(|known| *known == place)
    }

    fn command(&self, tenant: TenantId) -> Transaction<'_> {
        let (acks, riders) = (self.acks.clone(), self.riders.clone());
        Transaction { tenant, acks, pushes: self.pushes.commands(), riders }
    }
}

impl Message<'_> {
    /// The transaction id that the producer gave.
    pub(crate) fn own_id(&self) -> Option<&str> {
        self.transaction_id.as_deref().filter(|id| !id.is_empty())
    }
}

impl AskedPosition<'_> {
    /// The position as a command has it.
    pub(crate) fn command(&self) -> Position<'_> {
        Position {
            queue: self.queue.as_deref().unwrap_or_default(),
            partition: self.partition.as_deref().unwrap_or(DEFAULT_PARTITION),
            group: self.consumer_group.as_deref().unwrap_or(QUEUE_MODE_GROUP),
            offset: self.offset.map(Offset),
            start: self.subscription_mode.as_deref().map_or(GroupStart::New, mode),
        }
    }
}

/// Other than in a plain ack, an unknown word completes.
fn verdict(status: Option<&str>) -> Verdict {
    match status {
        Some("failed") => Verdict::Failed,
        Some("retry") => Verdict::Retry,
        Some("dlq") => Verdict::DeadLetter,
        _ => Verdict::Completed,
    }
}

/// Whether names of so many bytes fit into a key.
fn fits(index: usize, bytes: usize) -> Result<(), Early> {
    if bytes <= NAME_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "the names of queue and partition (or group) have {bytes} bytes together, at most {NAME_BYTES_MAX}"
    );
    Err(Early { reason: "name_too_long", index: Some(index), text })
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
