//! The framed answer of a pop (`frames=true`), which the official clients read without a JSON value
//! per message.
//!
//! Owns: its bytes. Leaves to others: the JSON form (`pop_answer`), what is claimed (`pop`).
//!
//! Numbers are little-endian; a text is its length (u16) and its bytes.
//!
//! ```text
//! "QPF1" | u8 1 | u32 length + JSON object: what the answer says beside its messages
//! text queue | text lease id | text group | u32 claims
//! claim:  u64 partition id | text partition | u64 first offset | u64 last offset | u32 attempt | u32 records
//! record: u64 first offset | i64 microseconds since 1970 | u32 messages | u8 0: not compressed
//!         u32 length + messages
//! message: u32 length of what follows | u8 flags: 1 trace id, 2 producer | [16] message id
//!         [16] trace id, with flag 1 | text transaction id | text producer, with flag 2 | payload
//! ```

use crate::pop_answer::Own;
use hyper::header::HeaderValue;
use queen_broker::{Delivered, Delivery, Message};
use queen_core::{PartitionId, Stamp};

/// The type of such a body.
pub(crate) const FRAMES: HeaderValue = HeaderValue::from_static("application/x-queen-pop");

const TRACE: u8 = 1;
const PRODUCER: u8 = 2;

/// The framed answer.
pub(crate) fn write(queue: &str, group: &str, delivery: &Delivery, own: &Own) -> Vec<u8> {
    let payloads: usize = delivery.claims.iter().map(|claim| claim.bytes()).sum();
    let mut out = Vec::with_capacity(256 + payloads + delivery.messages() as usize * 64);
    out.extend_from_slice(b"QPF1\x01");
    let mut said = String::from("{\"frames\":true");
    own.put(&mut said);
    said.push('}');
    put_block(&mut out, said.as_bytes());
    put_text(&mut out, queue);
    put_text(&mut out, &delivery.lease.map(|id| id.to_string()).unwrap_or_default());
    put_text(&mut out, group);
    out.extend_from_slice(&(delivery.claims.len() as u32).to_le_bytes());
    for delivered in &delivery.claims {
        put_claim(&mut out, delivered);
    }
    out
}

fn put_claim(out: &mut Vec<u8>, delivered: &Delivered) {
    let claim = &delivered.claim;
    out.extend_from_slice(&claim.partition.0.to_le_bytes());
    put_text(out, &claim.partition_name);
    out.extend_from_slice(&claim.first.0.to_le_bytes());
    out.extend_from_slice(&claim.end.0.saturating_sub(1).to_le_bytes());
    out.extend_from_slice(&claim.attempt.to_le_bytes());
    let records = patched(out);
    let mut record: Option<Record> = None;
    let mut count = 0;
    for message in delivered.messages() {
        // The messages of one push to one partition share a stamp with no others.
        if record.as_ref().is_none_or(|open| open.stamp != message.stamp) {
            if let Some(done) = record.take() {
                done.close(out);
            }
            count += 1;
            record = Some(Record::open(out, &message));
        }
        if let Some(open) = &mut record {
            open.messages += 1;
            put_message(out, claim.partition, &message);
        }
    }
    if let Some(done) = record {
        done.close(out);
    }
    patch(out, records, count);
}

/// A record that is being written.
struct Record {
    stamp: Stamp,
    messages: u32,
    /// Where the number of messages stands, and the length.
    at: [usize; 2],
}

impl Record {
    fn open(out: &mut Vec<u8>, first: &Message<'_>) -> Record {
        out.extend_from_slice(&first.offset.0.to_le_bytes());
        out.extend_from_slice(&first.stamp.0.to_le_bytes());
        let messages = patched(out);
        out.push(0);
        Record { stamp: first.stamp, messages: 0, at: [messages, patched(out)] }
    }

    fn close(self, out: &mut [u8]) {
        let [messages, length] = self.at;
        patch(out, messages, self.messages);
        let written = (out.len() - length - 4) as u32;
        patch(out, length, written);
    }
}

fn put_message(out: &mut Vec<u8>, partition: PartitionId, message: &Message<'_>) {
    let frame = &message.frame;
    let length = patched(out);
    let flag = |there: bool, flag: u8| if there { flag } else { 0 };
    let flags = flag(frame.trace_id.is_some(), TRACE) | flag(frame.producer.is_some(), PRODUCER);
    out.push(flags);
    let id = message.id(partition);
    out.extend_from_slice(&id.0);
    if let Some(trace) = frame.trace_id {
        out.extend_from_slice(&trace);
    }
    match frame.transaction_id {
        Some(given) => put_text(out, given),
        None => put_text(out, &id.to_string()),
    }
    if let Some(producer) = frame.producer {
        put_text(out, producer);
    }
    out.extend_from_slice(frame.payload);
    let written = (out.len() - length - 4) as u32;
    patch(out, length, written);
}

/// Room for a number that is known later.
fn patched(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

fn patch(out: &mut [u8], at: usize, number: u32) {
    out[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

fn put_block(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// A name or an id: none is longer than its length can say.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = text.len().min(usize::from(u16::MAX));
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&text.as_bytes()[..length]);
}
