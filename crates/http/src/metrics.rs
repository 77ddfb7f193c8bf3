//! `GET /metrics` (JSON) and `GET /metrics/prometheus` (exposition text).
//!
//! Owns: which count stands in which family. Leaves to others: names and help of the families
//! (`queen_core::metric`), the counts (`queen-broker`), the families of other parts
//! ([`crate::Extra`]).

use crate::answer::{Answer, Refusal, answer, json};
use crate::call::Call;
use crate::health;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use queen_broker::{Phase, process};
use queen_core::metric::broker as family;
use serde_json::json;

const EXPOSITION: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// `GET /metrics`.
pub(crate) async fn json_page(call: Call) -> Result<Answer, Refusal> {
    let broker = call.broker();
    let counters = broker.counters();
    let body = json!({
        "uptime": call.face.started.elapsed().as_secs_f64(),
        "cpu": {"seconds": process::cpu_seconds()},
        "memory": {"rss": process::resident_bytes()},
        "requests": {
            "push": counters.push_requests.get(),
            "pop": counters.pop_requests.get(),
            "ack": counters.ack_requests.get(),
        },
        "messages": {
            "pushed": counters.push_messages.get(),
            "popped": counters.pop_messages.get(),
            "acked": counters.ack_messages.get(),
        },
        "raft": health::raft(&call),
    });
    Ok(json(StatusCode::OK, &body))
}

/// `GET /metrics/prometheus`.
pub(crate) async fn prometheus(call: Call) -> Result<Answer, Refusal> {
    let mut page = String::new();
    traffic(&call, &mut page);
    log(&call, &mut page);
    parked(&call, &mut page);
    holds(&call, &mut page);
    for extra in &call.face.extras {
        extra.prometheus(&mut page);
    }
    Ok(answer(StatusCode::OK, EXPOSITION, page))
}

fn traffic(call: &Call, page: &mut String) {
    let counters = call.broker().counters();
    family::PUSH_MESSAGES.single(page, counters.push_messages.get());
    family::PUSH_REQUESTS.single(page, counters.push_requests.get());
    family::POP_MESSAGES.single(page, counters.pop_messages.get());
    family::POP_REQUESTS.single(page, counters.pop_requests.get());
    family::ACK_MESSAGES.single(page, counters.ack_messages.get());
    family::ACK_REQUESTS.single(page, counters.ack_requests.get());
    family::TRANSACTIONS.head(page);
    let committed = counters.transactions_committed.get();
    family::TRANSACTIONS.sample(page, &["committed"], committed);
    let rolled_back = counters.transactions_rolled_back.get();
    family::TRANSACTIONS.sample(page, &["rolled_back"], rolled_back);
    family::STREAM_CYCLES.head(page);
    let committed = counters.stream_cycles_committed.get();
    family::STREAM_CYCLES.sample(page, &["committed"], committed);
    let refused = counters.stream_cycles_refused.get();
    family::STREAM_CYCLES.sample(page, &["refused"], refused);
    family::TIMERS.head(page);
    family::TIMERS.sample(page, &["scheduled"], counters.timers_scheduled.get());
    family::TIMERS.sample(page, &["cancelled"], counters.timers_cancelled.get());
    family::TIMERS.sample(page, &["fired"], counters.timers_fired.get());
    family::TIMERS.sample(page, &["postponed"], counters.timers_postponed.get());
    family::TIMERS_PENDING.single(page, call.broker().timers_pending());
    ephemeral(call, page);
    family::RETURNED_LEASES.single(page, counters.returned_leases.get());
    family::UPTIME.single(page, call.face.started.elapsed().as_secs_f64());
    if let Some(bytes) = process::resident_bytes() {
        family::RESIDENT_MEMORY.single(page, bytes);
    }
    if let Some(seconds) = process::cpu_seconds() {
        family::CPU_SECONDS.single(page, seconds);
    }
}

fn ephemeral(call: &Call, page: &mut String) {
    let counters = call.broker().counters();
    family::EPHEMERAL_BYTES.single(page, call.broker().ephemeral_bytes());
    family::EPHEMERAL_DROPPED.head(page);
    family::EPHEMERAL_DROPPED.sample(page, &["bounds"], counters.ephemeral_dropped_bounds.get());
    family::EPHEMERAL_DROPPED.sample(page, &["ttl"], counters.ephemeral_dropped_ttl.get());
    family::EPHEMERAL_DROPPED.sample(page, &["retry"], counters.ephemeral_dropped_retry.get());
    family::EPHEMERAL_WIPES.head(page);
    family::EPHEMERAL_WIPES.sample(page, &["owner"], counters.ephemeral_wipes_owner.get());
    family::EPHEMERAL_WIPES.sample(page, &["reset"], counters.ephemeral_wipes_reset.get());
    family::EPHEMERAL_WIPES.sample(page, &["deleted"], counters.ephemeral_wipes_deleted.get());
}

fn log(call: &Call, page: &mut String) {
    let (standing, counters) = (call.broker().standing(), call.broker().counters());
    family::RAFT_INDEX.head(page);
    family::RAFT_INDEX.sample(page, &["committed"], standing.committed);
    family::RAFT_INDEX.sample(page, &["applied"], standing.applied);
    family::RAFT_INDEX.sample(page, &["durable"], standing.durable);
    family::RAFT_INFLIGHT.single(page, standing.waiting);
    family::RAFT_INFLIGHT_BYTES.single(page, standing.bytes_in_flight);
    family::RAFT_PROPOSALS.single(page, counters.proposed.get());
    family::FORWARD.head(page);
    family::FORWARD.sample(page, &["sent"], counters.forwarded.get());
    family::FORWARD.sample(page, &["served"], counters.served.get());
    family::FORWARD.sample(page, &["repeated"], counters.repeated.get());
    family::LOG_WRITTEN.single(page, standing.log_bytes_written);
    family::LOG_SYNCS.single(page, standing.log_syncs);
    family::ADMIT.head(page);
    family::ADMIT.sample(page, &["admitted"], counters.admitted.get());
    family::ADMIT.sample(page, &["overloaded"], counters.refused_overloaded.get());
    family::ADMIT.sample(page, &["storage_full"], counters.refused_full.get());
    family::STORAGE_FULL.single(page, u8::from(standing.storage_full));
    family::DAMAGED_FILES.single(page, health::damaged_files(&call.broker().damage()));
    family::REQUEST_TIMEOUTS.single(page, counters.timeouts.get());
}

fn parked(call: &Call, page: &mut String) {
    let broker = call.broker();
    family::PARKED.single(page, broker.standing().parked);
    family::PARKED_BY_QUEUE.head(page);
    for (queue, count) in broker.parked_by_queue() {
        if let Some(queue) = broker.queue_name(queue) {
            family::PARKED_BY_QUEUE.sample(page, &[&queue], count);
        }
    }
}

fn holds(call: &Call, page: &mut String) {
    let (now, held) = (call.broker().now(), call.broker().holds());
    family::HOLD_AGE.head(page);
    for one in &held {
        let age = now.0.saturating_sub(one.oldest.0) as f64 / 1e6;
        family::HOLD_AGE.sample(page, &[&one.queue, &one.sink], age);
    }
    family::HOLD_ENDING.head(page);
    for one in &held {
        let ending = u8::from(one.phase != Phase::Holding);
        family::HOLD_ENDING.sample(page, &[&one.queue, &one.sink], ending);
    }
}
