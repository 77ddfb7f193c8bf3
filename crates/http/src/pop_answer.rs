//! The JSON answer of a pop.
//!
//! Owns: its keys. Leaves to others: the framed form (`pop_frames`), what is claimed (`pop`).

use crate::text::{put_json_str, put_number, put_uuid};
use queen_broker::autopilot::Sizes;
use queen_broker::{Delivery, Message};
use queen_core::{MessageId, Stamp};

/// What the messages of a batch repeat.
struct Common {
    /// From the creation's closing quote to the offset.
    tail: String,
    /// The stamp written last, and its text.
    created: (Stamp, String),
}

/// What an answer says beside its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Own {
    /// The group conflates.
    pub(crate) conflation: bool,
    /// The request asked for conflation, and the group does not conflate.
    pub(crate) conflict: bool,
    /// The sizes that were chosen for it.
    pub(crate) autopilot: Option<Sizes>,
}

impl Own {
    /// Appends its members, each after a comma.
    pub(crate) fn put(&self, out: &mut String) {
        if self.conflation {
            out.push_str(",\"conflation\":true");
        }
        if self.conflict {
            out.push_str(",\"conflationConflict\":true");
        }
        if let Some(Sizes { batch, partitions }) = self.autopilot {
            out.push_str(",\"autopilot\":{\"partitions\":");
            put_number(out, u64::from(partitions));
            out.push_str(",\"batch\":");
            put_number(out, u64::from(batch));
            out.push('}');
        }
    }
}

/// The answer that has no message and still something to say.
pub(crate) fn nothing(own: &Own) -> String {
    let mut out = String::from(
        "{\"success\":true,\"queue\":\"\",\"partition\":\"\",\"partitionId\":\"\",\"leaseId\":\"\",\
         \"consumerGroup\":\"\",\"partitionsClaimed\":0",
    );
    own.put(&mut out);
    out.push_str(",\"messages\":[]}");
    out
}

/// The JSON answer.
pub(crate) fn write(queue: &str, group: &str, delivery: &Delivery, own: &Own) -> String {
    let payloads: usize = delivery.claims.iter().map(|claim| claim.bytes()).sum();
    let mut out = String::with_capacity(512 + payloads + delivery.messages() as usize * 420);
    let mut lease = String::from("\"");
    if let Some(id) = delivery.lease {
        put_uuid(&mut lease, &id.0);
    }
    lease.push('"');
    out.push_str("{\"success\":true,\"queue\":");
    put_json_str(&mut out, queue);
    if let Some(first) = delivery.claims.first() {
        out.push_str(",\"partition\":");
        put_json_str(&mut out, &first.claim.partition_name);
        out.push_str(",\"partitionId\":\"");
        put_number(&mut out, first.claim.partition.0);
        out.push('"');
    }
    out.push_str(",\"leaseId\":");
    out.push_str(&lease);
    out.push_str(",\"consumerGroup\":");
    put_json_str(&mut out, group);
    out.push_str(",\"partitionsClaimed\":");
    put_number(&mut out, delivery.claims.len() as u64);
    own.put(&mut out);
    out.push_str(",\"messages\":[");
    let mut comma = false;
    for delivered in &delivery.claims {
        let claim = &delivered.claim;
        let mut tail = String::from("\",\"partitionId\":\"");
        put_number(&mut tail, claim.partition.0);
        tail.push_str("\",\"partition\":");
        put_json_str(&mut tail, &claim.partition_name);
        tail.push_str(",\"leaseId\":");
        tail.push_str(&lease);
        tail.push_str(",\"consumerGroup\":");
        put_json_str(&mut tail, group);
        tail.push_str(",\"deliveryAttempt\":");
        put_number(&mut tail, u64::from(claim.attempt));
        tail.push_str(",\"offset\":");
        let mut common = Common { tail, created: (Stamp::ZERO, String::new()) };
        for message in delivered.messages() {
            if std::mem::replace(&mut comma, true) {
                out.push(',');
            }
            let id = MessageId::mint(message.stamp, claim.partition, message.offset);
            write_message(&mut out, &mut common, id, &message);
        }
    }
    out.push_str("]}");
    out
}

fn write_message(out: &mut String, common: &mut Common, minted: MessageId, message: &Message<'_>) {
    let frame = &message.frame;
    let id = frame.message_id.unwrap_or(minted.0);
    out.push_str("{\"id\":\"");
    put_uuid(out, &id);
    out.push_str("\",\"transactionId\":");
    match frame.transaction_id {
        Some(given) => put_json_str(out, given),
        None => {
            out.push('"');
            put_uuid(out, &id);
            out.push('"');
        }
    }
    match frame.trace_id {
        None => out.push_str(",\"traceId\":null,\"data\":"),
        Some(trace) => {
            out.push_str(",\"traceId\":\"");
            put_uuid(out, &trace);
            out.push_str("\",\"data\":");
        }
    }
    // A payload is the JSON text that was pushed.
    match std::str::from_utf8(frame.payload) {
        Ok(payload) if !payload.is_empty() => out.push_str(payload),
        _ => out.push_str("null"),
    }
    out.push_str(",\"producerSub\":");
    match frame.producer {
        Some(producer) => put_json_str(out, producer),
        None => out.push_str("null"),
    }
    out.push_str(",\"createdAt\":\"");
    if common.created.0 != message.stamp || common.created.1.is_empty() {
        common.created = (message.stamp, message.stamp.to_iso());
    }
    out.push_str(&common.created.1);
    out.push_str(&common.tail);
    put_number(out, message.offset.0);
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn parsed(own: Own) -> Value {
        serde_json::from_str(&nothing(&own)).unwrap()
    }

    #[test]
    fn an_answer_without_messages_says_only_what_it_has_to() {
        let conflating = parsed(Own { conflation: true, ..Own::default() });
        assert_eq!((&conflating["conflation"], &conflating["leaseId"]), (&json!(true), &json!("")));
        assert!(conflating.get("conflationConflict").is_none());
        assert_eq!(conflating["messages"], json!([]));
        let conflict = parsed(Own { conflict: true, ..Own::default() });
        assert!(conflict.get("conflation").is_none() && conflict["conflationConflict"] == true);
        let sizes = Some(Sizes { batch: 300, partitions: 4 });
        let piloted = parsed(Own { autopilot: sizes, ..Own::default() });
        assert_eq!(piloted["autopilot"], json!({"partitions": 4, "batch": 300}));
    }
}
