//! Reads by offset: `POST /api/v1/fetch`, `POST /api/v1/partitions/changed`.
//!
//! Owns: their JSON. Leaves to others: what is read (`queen_broker::fetch`).

use crate::answer::{Answer, Refusal, json, json_text};
use crate::call::Call;
use crate::text::{put_json_str, put_number, put_uuid};
use hyper::StatusCode;
use queen_broker::Delivered;
use queen_broker::fetch::{After, FetchEntry, FetchFault, Fetched};
use queen_broker::queues::Partition;
use queen_core::limits::DEFAULT_PARTITION;
use queen_core::{MessageId, Offset, Stamp};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Entries of one call.
const ENTRIES_MAX: usize = 1024;
/// Bytes of one entry.
const ENTRY_BYTES_DEFAULT: i64 = 1 << 20;
const ENTRY_BYTES_MAX: i64 = 8 << 20;
/// Longest wait.
const WAIT_MS_MAX: i64 = 30_000;
/// Partitions of one page.
const PAGE_DEFAULT: i64 = 1000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fetch {
    entries: Vec<Asked>,
    max_wait_ms: Option<i64>,
    min_bytes: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    queue: String,
    #[serde(default)]
    partition: Value,
    offset: i64,
    max_bytes: Option<i64>,
}

impl Asked {
    fn read(self, index: usize) -> Result<FetchEntry, Refusal> {
        let partition = match self.partition {
            Value::Null => DEFAULT_PARTITION.to_owned(),
            Value::String(name) => name,
            Value::Number(number) => number.to_string(),
            other => {
                let text = format!("entry {index}: partition {other} is neither text nor number");
                return Err(Refusal::bad_request(text));
            }
        };
        let Ok(offset) = u64::try_from(self.offset) else {
            let text = format!("entry {index}: offset {} is below 0", self.offset);
            return Err(Refusal::bad_request(text));
        };
        let max_bytes = self.max_bytes.unwrap_or(ENTRY_BYTES_DEFAULT).clamp(1, ENTRY_BYTES_MAX);
        let max_bytes = max_bytes.unsigned_abs();
        Ok(FetchEntry { queue: self.queue, partition, offset: Offset(offset), max_bytes })
    }
}

/// `POST /api/v1/fetch`.
pub(crate) async fn fetch(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.body().await?;
    let asked: Fetch = read(&body)?;
    too_many(asked.entries.len())?;
    let wait = asked.max_wait_ms.unwrap_or(0).clamp(0, WAIT_MS_MAX).unsigned_abs();
    let least = asked.min_bytes.unwrap_or(1).max(0).unsigned_abs();
    let entries = asked.entries.into_iter().enumerate();
    let entries = entries.map(|(i, e)| e.read(i)).collect::<Result<Vec<_>, _>>()?;
    let wait = Duration::from_millis(wait);
    let fetched = call.broker().fetch(call.tenant(), &entries, wait, least).await?;
    Ok(json_text(StatusCode::OK, write(&entries, &fetched)))
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|e| Refusal::bad_body(format!("the body: {e}")))
}

fn too_many(entries: usize) -> Result<(), Refusal> {
    match entries {
        0..=ENTRIES_MAX => Ok(()),
        _ => Err(Refusal::bad_request(format!("{entries} entries: at most {ENTRIES_MAX}"))),
    }
}

fn write(entries: &[FetchEntry], fetched: &[Fetched]) -> String {
    let bytes: usize = fetched.iter().filter_map(|f| f.delivered.as_ref()).map(|d| d.bytes()).sum();
    let mut out = String::with_capacity(bytes * 2 + entries.len() * 128 + 16);
    out.push_str("{\"entries\":[");
    for (index, (entry, fetched)) in entries.iter().zip(fetched).enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_entry(&mut out, entry, fetched);
    }
    out.push_str("]}");
    out
}

fn write_entry(out: &mut String, entry: &FetchEntry, fetched: &Fetched) {
    out.push_str("{\"queue\":");
    put_json_str(out, &entry.queue);
    out.push_str(",\"partition\":");
    put_json_str(out, &entry.partition);
    out.push_str(",\"records\":[");
    if let Some(delivered) = &fetched.delivered {
        write_records(out, delivered, entry.max_bytes);
    }
    out.push_str("],\"highWatermark\":");
    put_number(out, fetched.high_watermark.0);
    out.push_str(",\"logStartOffset\":");
    put_number(out, fetched.log_start.0);
    match &fetched.fault {
        None => {}
        Some(FetchFault::UnknownQueue) => {
            out.push_str(",\"error\":\"UNKNOWN_TOPIC_OR_PARTITION\"");
        }
        Some(FetchFault::OutOfRange) => out.push_str(",\"error\":\"OFFSET_OUT_OF_RANGE\""),
        Some(FetchFault::Undecryptable(sealed)) => {
            out.push_str(",\"error\":\"UNDECRYPTABLE\",\"errorMessage\":");
            put_json_str(out, &sealed.to_string());
        }
        Some(FetchFault::Damaged(why)) => {
            out.push_str(",\"error\":\"CORRUPT_MESSAGE\",\"errorMessage\":");
            put_json_str(out, why);
        }
    }
    out.push('}');
}

/// The messages, until their payloads pass the budget; the first one in any case.
fn write_records(out: &mut String, delivered: &Delivered, max_bytes: u64) {
    let mut given = 0;
    for (index, message) in delivered.messages().enumerate() {
        given += message.frame.payload.len() as u64;
        if index > 0 {
            if given > max_bytes {
                break;
            }
            out.push(',');
        }
        out.push_str("{\"offset\":");
        put_number(out, message.offset.0);
        out.push_str(",\"transactionId\":");
        match (message.frame.transaction_id, message.frame.message_id) {
            (Some(id), _) => put_json_str(out, id),
            (None, promised) => {
                let partition = delivered.claim.partition;
                let minted = || MessageId::mint(message.stamp, partition, message.offset).0;
                out.push('"');
                put_uuid(out, &promised.unwrap_or_else(minted));
                out.push('"');
            }
        }
        out.push_str(",\"payload\":");
        match std::str::from_utf8(message.frame.payload) {
            Ok(payload) if !payload.is_empty() => out.push_str(payload),
            _ => out.push_str("null"),
        }
        out.push_str(",\"ts\":\"");
        message.stamp.write_iso(out);
        out.push_str("\"}");
    }
}

#[derive(Deserialize)]
struct Changed {
    #[serde(default)]
    entries: Vec<Since>,
}

#[derive(Deserialize)]
struct Since {
    queue: String,
    since: Option<String>,
    after: Option<String>,
    limit: Option<i64>,
}

/// `POST /api/v1/partitions/changed`.
pub(crate) async fn changed(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.body().await?;
    let asked: Changed = read(&body)?;
    too_many(asked.entries.len())?;
    // Taken before the pages: what is written while they are read is later than it.
    let safe = call.broker().applied_stamp()?;
    let mut entries = Vec::with_capacity(asked.entries.len());
    for entry in &asked.entries {
        entries.push(changed_entry(&call, entry)?);
    }
    let answer = json!({"safeTime": safe.to_iso(), "safeTimeDegraded": false, "entries": entries});
    Ok(json(StatusCode::OK, &answer))
}

fn changed_entry(call: &Call, entry: &Since) -> Result<Value, Refusal> {
    let since = match entry.since.as_deref() {
        None => Stamp::ZERO,
        Some(text) => Stamp::parse_iso(text).ok_or_else(|| {
            Refusal::bad_request(format!("since: {text:?} is not an ISO 8601 time"))
        })?,
    };
    let fault =
        |error: &str| json!({"queue": entry.queue, "partitions": [], "next": null, "error": error});
    let after = match entry.after.as_deref() {
        None => None,
        Some(text) => match After::parse(text) {
            Some(after) => Some(after),
            None => return Ok(fault("BAD_CURSOR")),
        },
    };
    let limit = entry.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_DEFAULT) as usize;
    let page = call.broker().changed(call.tenant(), &entry.queue, since, after, limit)?;
    let Some((partitions, next)) = page else {
        return Ok(fault("UNKNOWN_TOPIC_OR_PARTITION"));
    };
    let partitions: Vec<Value> = partitions.iter().map(changed_partition).collect();
    let next = next.map(|next| next.to_string());
    Ok(json!({"queue": entry.queue, "partitions": partitions, "next": next}))
}

fn changed_partition(partition: &Partition) -> Value {
    let row = &partition.row;
    json!({
        "name": partition.name,
        "id": row.id.to_string(),
        "lastOffset": row.next.0 as i64 - 1,
        "logStart": row.log_start.0,
        "lastWriteAt": row.last.to_iso(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: Value) -> Result<FetchEntry, Refusal> {
        serde_json::from_value::<Asked>(value).unwrap().read(3)
    }

    #[test]
    fn a_partition_is_a_text_a_number_or_the_default() {
        let name = |value| entry(value).unwrap().partition;
        assert_eq!(name(json!({"queue": "q", "offset": 0})), "Default");
        assert_eq!(name(json!({"queue": "q", "partition": 3, "offset": 0})), "3");
        assert_eq!(name(json!({"queue": "q", "partition": "p", "offset": 0})), "p");
        assert!(entry(json!({"queue": "q", "partition": [], "offset": 0})).is_err());
    }

    #[test]
    fn offsets_and_sizes_have_limits() {
        let Err(Refusal::Plain(error)) = entry(json!({"queue": "q", "offset": -1})) else {
            panic!()
        };
        assert_eq!(error.text, "entry 3: offset -1 is below 0");
        let bytes =
            |max| entry(json!({"queue": "q", "offset": 0, "maxBytes": max})).unwrap().max_bytes;
        assert_eq!((bytes(0), bytes(5), bytes(1_i64 << 40)), (1, 5, 8 << 20));
        assert!(too_many(1024).is_ok() && too_many(1025).is_err());
    }

    #[test]
    fn an_entry_without_messages_says_where_the_log_is() {
        let entry = entry(json!({"queue": "a\"b", "offset": 9})).unwrap();
        let fetched = Fetched {
            fault: Some(FetchFault::OutOfRange),
            high_watermark: Offset(4),
            log_start: Offset(2),
            delivered: None,
        };
        let text = write(&[entry], &[fetched]);
        let want = json!({"entries": [{"queue": "a\"b", "partition": "Default", "records": [],
            "highWatermark": 4, "logStartOffset": 2, "error": "OFFSET_OUT_OF_RANGE"}]});
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), want);
    }
}
