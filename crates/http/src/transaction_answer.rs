//! What the transaction route answers with.
//!
//! Owns: the flat order of results, the words and texts of rollbacks. Leaves to others: requests
//! (`transaction`), the results of KV operations (`kv_answer`).
//!
//! Results and indexes count in one space: each pushed message and each ack in request order, then KV
//! operations, then timers, then positions. Every rollback text ends alike: the Python client raises it as it is.

use crate::answer::{Answer, Refusal, json};
use crate::kv_answer::{Shown, show, value_of};
use crate::push::{Slot, pushed};
use crate::timer;
use crate::transaction::{Bundle, Operation, Parts, Place};
use hyper::StatusCode;
use queen_core::reply::AckOutcome;
use queen_core::transaction::{Committed, RiderResult, RolledBack, id};
use queen_core::{Code, Error, Stamp};
use serde::Serialize;
use serde_json::value::RawValue;

/// A well-formed bundle that cannot become a command.
#[derive(Debug)]
pub(crate) struct Early {
    pub(crate) reason: &'static str,
    /// The operation or rider that it is about.
    pub(crate) index: Option<usize>,
    pub(crate) text: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Success<'a> {
    transaction_id: String,
    success: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    counts: Option<Counts>,
    results: Vec<Entry<'a>>,
}

/// What stands for the results of pushes and acks where only counts are wanted.
#[derive(Serialize)]
struct Counts {
    pushed: usize,
    duplicate: usize,
    acked: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Push(PushEntry<'a>),
    Ack(AckEntry<'a>),
    Kv(Shown<'a>),
    Timer(timer::Shown<'a>),
    Position(PositionEntry<'a>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PushEntry<'a> {
    index: usize,
    #[serde(rename = "type")]
    kind: &'static str,
    success: bool,
    transaction_id: String,
    message_id: String,
    queue_name: &'a str,
    offset: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AckEntry<'a> {
    index: usize,
    #[serde(rename = "type")]
    kind: &'static str,
    success: bool,
    transaction_id: &'a str,
    error: Option<()>,
    dlq: bool,
    noop: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PositionEntry<'a> {
    index: usize,
    op_index: usize,
    #[serde(rename = "type")]
    kind: &'static str,
    success: bool,
    queue: &'a str,
    partition: &'a str,
    consumer_group: &'a str,
    offset: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rollback<'a> {
    transaction_id: String,
    success: bool,
    reason: &'static str,
    error: String,
    results: [(); 0],
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_index: Option<usize>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    precondition: Option<Precondition<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Precondition<'a> {
    ok: bool,
    kv_reason: &'static str,
    version: u64,
    value: Option<&'a RawValue>,
}

/// The answer to a transaction that was applied.
pub(crate) fn committed(
    stamp: Stamp,
    bundle: &Bundle<'_>,
    parts: &Parts<'_>,
    done: &Committed,
) -> Result<Answer, Refusal> {
    let mut results = Vec::with_capacity(bundle.operations.len() + done.riders.len());
    for (index, (operation, place)) in bundle.operations.iter().zip(&parts.places).enumerate() {
        results.push(entry(index, operation, *place, parts, done).ok_or_else(missing)?);
    }
    let base = results.len();
    for (at, result) in done.riders.iter().enumerate() {
        let index = base + at;
        results.push(match result {
            RiderResult::Kv(result) => {
                let asked = bundle.kv.get(at).ok_or_else(missing)?;
                let (kind, op_index) = (Some("kv"), Some(at));
                Entry::Kv(Shown { kind, op_index, ..show(index, asked, result) })
            }
            RiderResult::Timer(result) => {
                let op_index = at - bundle.kv.len();
                let asked = bundle.timers.get(op_index).ok_or_else(missing)?;
                Entry::Timer(timer::show(index, asked, result).in_transaction(op_index))
            }
            RiderResult::Position(offset) => {
                let op_index = at - bundle.kv.len() - bundle.timers.len();
                let asked = bundle.positions.get(op_index).ok_or_else(missing)?.command();
                Entry::Position(PositionEntry {
                    index,
                    op_index,
                    kind: "position",
                    success: true,
                    queue: asked.queue,
                    partition: asked.partition,
                    consumer_group: asked.group,
                    offset: offset.map(|offset| offset.0),
                })
            }
        });
    }
    let counts = bundle.counts.then(|| {
        let of = |wanted: fn(&Entry<'_>) -> bool| results.iter().filter(|one| wanted(one)).count();
        let counts = Counts {
            pushed: of(|one| matches!(one, Entry::Push(push) if !push.duplicate)),
            duplicate: of(|one| matches!(one, Entry::Push(push) if push.duplicate)),
            acked: of(|one| matches!(one, Entry::Ack(_))),
        };
        results.drain(..base);
        counts
    });
    let transaction_id = id(stamp).to_string();
    Ok(json(StatusCode::OK, &Success { transaction_id, success: true, counts, results }))
}

fn missing() -> Error {
    Error::new(Code::Internal, "the transaction has fewer results than operations")
}

fn entry<'a>(
    index: usize,
    operation: &'a Operation<'_>,
    place: Place,
    parts: &'a Parts<'_>,
    done: &Committed,
) -> Option<Entry<'a>> {
    match (operation, place) {
        (Operation::Push(message), Place::Push(slot)) => {
            let result = done.pushes.get(slot.group as usize)?;
            let (id, offset, duplicate) = pushed(result, slot.number)?;
            let message_id = id.to_string();
            Some(Entry::Push(PushEntry {
                index,
                kind: "push",
                success: true,
                transaction_id: message.own_id().map_or_else(|| message_id.clone(), str::to_owned),
                message_id,
                queue_name: parts.pushes.place(slot).0,
                offset: offset.0,
                duplicate,
            }))
        }
        (Operation::Ack(ack), Place::Ack(slot)) => {
            let AckOutcome { dead_lettered, noop, .. } =
                *done.acks.get(slot.group as usize)?.get(slot.number as usize)?;
            Some(Entry::Ack(AckEntry {
                index,
                kind: "ack",
                success: true,
                transaction_id: ack.transaction_id.as_deref().unwrap_or_default(),
                error: None,
                dlq: dead_lettered,
                noop,
            }))
        }
        _ => None,
    }
}

/// The answer to a bundle that did not become a command.
pub(crate) fn early(now: Stamp, why: &Early) -> Answer {
    roll_back(now, why.reason, why.index, &why.text, None)
}

/// The answer to a transaction of which nothing was applied.
pub(crate) fn rolled_back(
    stamp: Stamp,
    bundle: &Bundle<'_>,
    parts: &Parts<'_>,
    why: &RolledBack,
) -> Answer {
    let (base, place) = (bundle.operations.len(), |wanted| parts.index_of(wanted));
    let slot = |group: usize, number: usize| Slot { group: group as u32, number: number as u32 };
    match why {
        RolledBack::Ack { group, item, refusal } => {
            let text = format!("QTXN ack rejected: {}", refusal.text());
            let index = place(Place::Ack(slot(*group, *item)));
            roll_back(stamp, "rejected_ack", index, &text, None)
        }
        RolledBack::Duplicate { group, item } => {
            let index = place(Place::Push(slot(*group, *item)));
            let message = index.and_then(|index| bundle.operations.get(index));
            let id = match message {
                Some(Operation::Push(message)) => message.own_id().unwrap_or_default(),
                _ => "",
            };
            let text = format!("QDUP a message with the transactionId {id:?} is stored already");
            roll_back(stamp, "duplicate", index, &text, None)
        }
        RolledBack::NoPartition { rider } => {
            let text = "QTXN position rejected: there is no such queue and partition";
            roll_back(stamp, "queue_not_found", Some(base + rider), text, None)
        }
        RolledBack::Precondition { rider, reason, row } => {
            let lost = Precondition {
                ok: false,
                kv_reason: reason.word(),
                version: row.as_ref().map_or(0, |row| row.version),
                value: row.as_ref().map(value_of),
            };
            let text = "a required KV operation was lost";
            roll_back(stamp, "kv_precondition", Some(base + rider), text, Some(lost))
        }
    }
}

fn roll_back(
    stamp: Stamp,
    reason: &'static str,
    failed_index: Option<usize>,
    text: &str,
    precondition: Option<Precondition<'_>>,
) -> Answer {
    let body = Rollback {
        transaction_id: id(stamp).to_string(),
        success: false,
        reason,
        error: format!("{text}; transaction rolled back"),
        results: [],
        failed_index,
        precondition,
    };
    json(StatusCode::OK, &body)
}
