//! `GET /api/v1/pop/queue/:queue[/partition/:partition]` and `GET /api/v1/pop`: leasing a batch.
//!
//! Owns: the parameters, and that an answer which never went out gives its batch back. Leaves to
//! others: the two forms of the answer (`pop_answer`, `pop_frames`), what is claimed (`queen-state`),
//! waiting, discovery and sizes (`queen-broker`).

use crate::answer::{Answer, Held, JSON, Refusal, Whole, answer, json_text, no_content, with_body};
use crate::call::Call;
use crate::pop_answer::{self, Own};
use crate::pop_frames::{self, FRAMES};
use crate::push::name_too_long;
use crate::query::{on, whole};
use hyper::StatusCode;
use queen_broker::autopilot::Sizes;
use queen_broker::discovery::Labels;
use queen_broker::{Delivery, Undelivered};
use queen_core::Stamp;
use queen_core::command::{GroupStart, Pop};
use queen_core::limits::{
    NAME_BYTES_MAX, POP_BATCH_DEFAULT, POP_BATCH_MAX, POP_PARTITIONS_MAX, QUEUE_MODE_GROUP,
};
use std::time::Duration;

/// Longest wait that a request may ask for.
const WAIT_MS_MAX: i64 = 60_000;
/// Wait when the request does not say how long.
const WAIT_MS_DEFAULT: i64 = 30_000;

/// Lease of a discovery, whose queues may each have another, seconds.
const DISCOVERY_LEASE_SECONDS: u32 = 60;

/// What a request asks for, its names apart.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    batch: Option<u32>,
    partitions: Option<u32>,
    wait: Option<Duration>,
    group: Option<String>,
    lease_seconds: Option<u32>,
    auto_ack: bool,
    start: GroupStart,
    conflation: bool,
    autopilot: bool,
    frames: bool,
}

/// `GET /api/v1/pop/queue/:queue`.
pub(crate) async fn queue(call: Call) -> Result<Answer, Refusal> {
    pop(call, false).await
}

/// `GET /api/v1/pop/queue/:queue/partition/:partition`.
pub(crate) async fn partition(call: Call) -> Result<Answer, Refusal> {
    pop(call, true).await
}

async fn pop(call: Call, fixed: bool) -> Result<Answer, Refusal> {
    let wish = wish(&call).map_err(Refusal::Pop)?;
    let queue = call.param(0);
    let partition = fixed.then(|| call.param(1));
    let longer = partition.map_or(0, str::len).max(wish.group.as_deref().map_or(0, str::len));
    if queue.len() + longer > NAME_BYTES_MAX {
        return Err(name_too_long("the pop", queue.len() + longer));
    }
    let (broker, mut pop) = (call.broker(), wish.pop(&call, queue, partition));
    let mut own = Own::default();
    if wish.autopilot {
        let chosen = broker.autopilot(&pop)?;
        pop.batch = wish.batch.unwrap_or(chosen.batch);
        if !fixed {
            pop.partitions = wish.partitions.unwrap_or(chosen.partitions);
        }
        own.autopilot = Some(Sizes { batch: pop.batch, partitions: pop.partitions });
    }
    let delivery = match wish.conflation {
        true => broker.pop_newest(&pop, wish.wait).await?,
        false => broker.pop(&pop, wish.wait).await?,
    };
    own.conflation = match (&delivery, pop.group) {
        (Some(delivery), _) => delivery.conflation,
        (None, Some(group)) => broker.conflates(pop.tenant, queue, group)?,
        (None, None) => false,
    };
    own.conflict = wish.conflation && !own.conflation;
    if let (true, Some(delivery)) = (wish.autopilot, &delivery) {
        broker.handed(&pop, delivery);
    }
    Ok(answer_of(queue, &wish, delivery, &own))
}

/// `GET /api/v1/pop`: discovery by label.
pub(crate) async fn discovery(call: Call) -> Result<Answer, Refusal> {
    let query = call.query();
    let [namespace, task] = ["namespace", "task"].map(|name| query.get(name));
    if namespace.is_none() && task.is_none() {
        return Err(Refusal::Pop("namespace or task is required".to_owned()));
    }
    let wish = wish(&call).map_err(Refusal::Pop)?;
    let group = wish.group.as_deref().map_or(0, str::len);
    if group > NAME_BYTES_MAX {
        return Err(name_too_long("the pop", group));
    }
    let mut pop = wish.pop(&call, "", None);
    pop.lease_seconds = pop.lease_seconds.or(Some(DISCOVERY_LEASE_SECONDS));
    let labels = Labels { namespace: namespace.as_deref(), task: task.as_deref() };
    let found = call.broker().discover(&pop, labels, wish.conflation).await?;
    let sizes = Sizes { batch: pop.batch, partitions: pop.partitions };
    let own = Own {
        conflation: found.conflates,
        conflict: wish.conflation && !found.conflates,
        autopilot: wish.autopilot.then_some(sizes),
    };
    Ok(answer_of("", &wish, found.delivery, &own))
}

/// The answer of a pop that found this.
fn answer_of(queue: &str, wish: &Wish, delivery: Option<Delivery>, own: &Own) -> Answer {
    let Some(delivery) = delivery else {
        return match own.conflation || own.conflict {
            true => json_text(StatusCode::OK, pop_answer::nothing(own)),
            false => no_content(),
        };
    };
    let group = wish.group.as_deref().unwrap_or(QUEUE_MODE_GROUP);
    let (kind, body) = match wish.frames {
        true => (FRAMES, pop_frames::write(queue, group, &delivery, own)),
        false => (JSON, pop_answer::write(queue, group, &delivery, own).into_bytes()),
    };
    match delivery.undelivered {
        Some(claim) => {
            let held = Box::new(OnTheWay(claim));
            with_body(StatusCode::OK, kind, Whole::holding(body.into(), held))
        }
        None => answer(StatusCode::OK, kind, body),
    }
}

impl Wish {
    /// The pop of a queue, with the sizes asked for or the usual ones.
    fn pop<'a>(&'a self, call: &Call, queue: &'a str, partition: Option<&'a str>) -> Pop<'a> {
        let partitions = if partition.is_some() { 1 } else { self.partitions.unwrap_or(1) };
        Pop {
            tenant: call.tenant(),
            queue,
            partition,
            group: self.group.as_deref(),
            batch: self.batch.unwrap_or(POP_BATCH_DEFAULT),
            partitions,
            lease_seconds: self.lease_seconds,
            auto_ack: self.auto_ack,
            start: self.start,
        }
    }
}

/// A batch whose answer is on its way.
struct OnTheWay(Undelivered);

impl Held for OnTheWay {
    fn sent(self: Box<Self>) {
        self.0.delivered();
    }
}

fn wish(call: &Call) -> Result<Wish, String> {
    let mut wish = Wish {
        batch: None,
        partitions: None,
        wait: None,
        group: None,
        lease_seconds: None,
        auto_ack: false,
        start: GroupStart::New,
        conflation: false,
        autopilot: false,
        frames: false,
    };
    let (mut wait, mut wait_ms, mut from) = (false, WAIT_MS_DEFAULT, None);
    for (name, value) in call.query().pairs().filter(|(_, value)| !value.is_empty()) {
        match &*name {
            "batch" => wish.batch = Some(within(&name, &value, POP_BATCH_MAX)?),
            "partitions" => {
                wish.partitions = Some(within(&name, &value, POP_PARTITIONS_MAX)?);
            }
            "wait" => wait = on(&value),
            "timeout" => wait_ms = whole(&name, &value)?.clamp(0, WAIT_MS_MAX),
            "consumerGroup" => {
                wish.group = Some(value.into_owned()).filter(|group| group != QUEUE_MODE_GROUP);
            }
            "leaseSeconds" => {
                let seconds = whole(&name, &value)?.min(i64::from(u32::MAX));
                wish.lease_seconds = u32::try_from(seconds).ok().filter(|seconds| *seconds > 0);
            }
            "autoAck" | "commitOnDelivery" => wish.auto_ack |= on(&value),
            "subscriptionMode" => wish.start = mode(&value),
            "subscriptionFrom" => from = Some(start_from(&value)?),
            "conflation" => wish.conflation = on(&value),
            "autopilot" => wish.autopilot = on(&value),
            "frames" => wish.frames = on(&value),
            _ => {}
        }
    }
    wish.start = from.unwrap_or(wish.start);
    wish.wait = wait.then(|| Duration::from_millis(wait_ms as u64));
    if wish.conflation && wish.group.is_none() {
        return Err("conflation needs a consumerGroup: it is a policy of the group".to_owned());
    }
    if wish.conflation && wish.auto_ack {
        let text = "conflation settles with an ack what was not delivered: leave autoAck out";
        return Err(text.to_owned());
    }
    Ok(wish)
}

/// A count from 1 to `max`: a larger one is held there, a smaller one refused.
fn within(name: &str, value: &str, max: u32) -> Result<u32, String> {
    match whole(name, value)? {
        count if count < 1 => Err(format!("parameter {name}: {count} is not at least 1")),
        count => Ok(u32::try_from(count).unwrap_or(max).min(max)),
    }
}

pub(crate) fn mode(text: &str) -> GroupStart {
    match text {
        "new" | "new-only" => GroupStart::New,
        _ => GroupStart::All,
    }
}

fn start_from(text: &str) -> Result<GroupStart, String> {
    if text == "now" {
        return Ok(GroupStart::New);
    }
    // An offset's `+` arrives as a blank when the client did not encode it.
    Stamp::parse_iso(text)
        .or_else(|| Stamp::parse_iso(&text.replace(' ', "+")))
        .map(GroupStart::From)
        .ok_or_else(|| {
            format!("parameter subscriptionFrom: {text:?} is neither now nor an ISO 8601 time")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_held_within_their_range_and_never_below_one() {
        assert_eq!(within("batch", "7", 100), Ok(7));
        assert_eq!(within("batch", "700", 100), Ok(100));
        assert_eq!(within("batch", "0", 100).unwrap_err(), "parameter batch: 0 is not at least 1");
        assert!(within("batch", "x", 100).is_err());
    }

    #[test]
    fn a_group_starts_where_its_mode_or_time_says() {
        assert_eq!((mode("new"), mode("new-only")), (GroupStart::New, GroupStart::New));
        assert_eq!((mode("all"), mode("from_beginning")), (GroupStart::All, GroupStart::All));
        assert_eq!(start_from("now"), Ok(GroupStart::New));
        let at = GroupStart::From(Stamp(1_000_000));
        assert_eq!(start_from("1970-01-01T00:00:01.000000Z"), Ok(at));
        assert_eq!(start_from("1970-01-01T02:00:01 02:00"), Ok(at));
        assert!(start_from("soon").unwrap_err().contains("\"soon\""));
    }
}
