//! `GET /metrics` (JSON) and `GET /metrics/prometheus` (exposition text).
//!
//! Owns: names, help texts and labels of the broker's families. Leaves to others: the counts
//! (`queen-broker`), the families of other parts ([`crate::Extra`]).

use crate::answer::{Answer, Refusal, answer, json};
use crate::call::Call;
use crate::{health, process};
use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde_json::json;
use std::fmt::{Display, Write};

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
    let mut page = Page::default();
    traffic(&call, &mut page);
    log(&call, &mut page);
    parked(&call, &mut page);
    for extra in &call.face.extras {
        extra.prometheus(&mut page.text);
    }
    Ok(answer(StatusCode::OK, EXPOSITION, page.text))
}

/// The text of the page as it grows.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing into a String cannot fail; the same holds below.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.sample(name, "", value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, "", value);
    }
}

fn traffic(call: &Call, page: &mut Page) {
    let counters = call.broker().counters();
    let word = |what: &str, unit: &str| format!("queen_process_{what}_{unit}_total");
    for (what, requests, messages) in [
        ("push", &counters.push_requests, &counters.push_messages),
        ("pop", &counters.pop_requests, &counters.pop_messages),
        ("ack", &counters.ack_requests, &counters.ack_messages),
    ] {
        let help = format!("Messages of answered {what} requests");
        page.counter(&word(what, "messages"), &help, messages.get());
        let help = format!("Answered {what} requests");
        page.counter(&word(what, "requests"), &help, requests.get());
    }
    let name = "queen_returned_leases_total";
    page.counter(
        name,
        "Batches given back as their client had gone",
        counters.returned_leases.get(),
    );
    let uptime = call.face.started.elapsed().as_secs_f64();
    page.gauge("queen_uptime_seconds", "Seconds since the start", uptime);
    if let Some(bytes) = process::resident_bytes() {
        page.gauge("queen_process_resident_memory_bytes", "Resident memory", bytes);
    }
    if let Some(seconds) = process::cpu_seconds() {
        let name = "queen_process_cpu_seconds_total";
        page.family(name, "counter", "User and system time");
        page.sample(name, "", seconds);
    }
}

fn log(call: &Call, page: &mut Page) {
    let (standing, counters) = (call.broker().standing(), call.broker().counters());
    let name = "queen_raft_index";
    page.family(name, "gauge", "Positions in the log");
    page.sample(name, "{kind=\"applied\"}", standing.applied);
    page.sample(name, "{kind=\"durable\"}", standing.durable);
    page.gauge("queen_raft_inflight", "Commands proposed and not applied", standing.waiting);
    let name = "queen_raft_inflight_bytes";
    page.gauge(name, "Bytes of commands proposed and not applied", standing.bytes_in_flight);
    page.counter("queen_raft_proposals_total", "Commands proposed", counters.proposed.get());
    let name = "queen_raft_log_written_bytes_total";
    page.counter(name, "Bytes written to the log", standing.log_bytes_written);
    let name = "queen_raft_log_syncs_total";
    page.counter(name, "Syncs of the log", standing.log_syncs);
    let name = "queen_raft_admit_total";
    page.family(name, "counter", "Commands let in and refused");
    page.sample(name, "{outcome=\"admitted\"}", counters.admitted.get());
    page.sample(name, "{outcome=\"overloaded\"}", counters.refused_overloaded.get());
    page.sample(name, "{outcome=\"storage_full\"}", counters.refused_full.get());
    let full = u8::from(standing.storage_full);
    page.gauge("queen_raft_storage_full", "1 while pushes are refused for want of space", full);
    let name = "queen_request_timeouts_total";
    page.counter(name, "Requests not committed before their deadline", counters.timeouts.get());
}

fn parked(call: &Call, page: &mut Page) {
    let broker = call.broker();
    let help = "Pops that wait for messages";
    page.gauge("queen_parked_long_polls", help, broker.standing().parked);
    let name = "queen_queue_parked_consumers";
    page.family(name, "gauge", "Pops that wait for messages of a queue");
    for (queue, count) in broker.parked_by_queue() {
        if let Some(queue) = broker.queue_name(queue) {
            page.sample(name, &format!("{{queue=\"{}\"}}", label(&queue)), count);
        }
    }
}

/// A label's value, escaped as the exposition format asks.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_follow_their_family_and_labels_are_escaped() {
        let mut page = Page::default();
        page.counter("a_total", "What", 3);
        assert_eq!(page.text, "# HELP a_total What\n# TYPE a_total counter\na_total 3\n");
        assert_eq!(label("a\"\\\n"), "a\\\"\\\\\\n");
    }

    #[test]
    fn the_system_tells_of_this_process() {
        assert!(process::resident_bytes().unwrap() > 1 << 20);
        assert!(process::cpu_seconds().is_some());
    }
}
