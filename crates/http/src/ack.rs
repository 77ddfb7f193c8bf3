//! `POST /api/v1/ack` and `/api/v1/ack/batch`: settling messages.
//!
//! Owns: the status words, the shape of the answer. Leaves to others: every rule (`queen-state`).

use crate::answer::{Answer, Refusal, json_text};
use crate::call::Call;
use crate::push::name_too_long;
use crate::text::{Text, put_json_str, put_number};
use hyper::StatusCode;
use queen_core::command::{Ack, AckItem, LeaseClaim, Verdict};
use queen_core::limits::{NAME_BYTES_MAX, QUEUE_MODE_GROUP};
use queen_core::reply::AckOutcome;
use queen_core::{LeaseId, PartitionId, TenantId};
use serde::Deserialize;
use std::borrow::Cow;

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, rename = "transactionId")]
    transaction_id: Option<Text<'a>>,
    #[serde(borrow, default, rename = "partitionId")]
    partition_id: Option<PartitionText<'a>>,
    #[serde(borrow, default)]
    status: Option<Text<'a>>,
    #[serde(borrow, default, rename = "leaseId")]
    lease_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    error: Option<Text<'a>>,
    /// Of the single route only.
    #[serde(borrow, default, rename = "consumerGroup")]
    consumer_group: Option<Text<'a>>,
}

/// A partition id is a text; a number is taken as its text.
pub(crate) enum PartitionText<'a> {
    Number(u64),
    Text(Cow<'a, str>),
}

impl<'de: 'a, 'a> Deserialize<'de> for PartitionText<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = PartitionText<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a partition id")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(PartitionText::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(PartitionText::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(PartitionText::Number(number))
            }
        }
        from.deserialize_any(Either)
    }
}

#[derive(Deserialize)]
struct Batch<'a> {
    #[serde(borrow)]
    acknowledgments: Option<Vec<Item<'a>>>,
    #[serde(borrow, default, rename = "consumerGroup")]
    consumer_group: Option<Text<'a>>,
}

/// `POST /api/v1/ack`.
pub(crate) async fn one(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.body().await?;
    let item: Item<'_> = read(&body)?;
    let group = item.consumer_group.as_deref();
    settle(&call, std::slice::from_ref(&item), group).await
}

/// `POST /api/v1/ack/batch`.
pub(crate) async fn batch(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.body().await?;
    let batch: Batch<'_> = read(&body)?;
    let Some(items) = batch.acknowledgments else {
        return Err(Refusal::bad_body(
            "the body has no acknowledgments: {\"acknowledgments\":[...]}",
        ));
    };
    settle(&call, &items, batch.consumer_group.as_deref()).await
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|e| Refusal::bad_body(format!("the body is not an ack: {e}")))
}

async fn settle(call: &Call, items: &[Item<'_>], group: Option<&str>) -> Result<Answer, Refusal> {
    if items.is_empty() {
        return Ok(json_text(StatusCode::OK, &b"[]"[..]));
    }
    let group = group.filter(|g| !g.is_empty() && *g != QUEUE_MODE_GROUP);
    let ack = command(call.tenant(), group, items)?;
    let outcomes = call.broker().ack(ack).await?;
    Ok(json_text(StatusCode::OK, write(items, &outcomes)))
}

fn command<'a>(
    tenant: TenantId,
    group: Option<&'a str>,
    items: &'a [Item<'_>],
) -> Result<Ack<'a>, Refusal> {
    if group.is_some_and(|group| group.len() > NAME_BYTES_MAX) {
        return Err(name_too_long("consumerGroup", group.map_or(0, str::len)));
    }
    let mut out = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let Some(transaction_id) = item.transaction_id.as_deref() else {
            return Err(Refusal::bad_body(format!("item {index} has no transactionId")));
        };
        out.push(AckItem {
            transaction_id,
            partition: item.partition_id.as_ref().and_then(PartitionText::id),
            verdict: verdict(item.status.as_deref()),
            lease: claim(item.lease_id.as_deref()),
            error: item.error.as_deref().filter(|text| !text.is_empty()),
        });
    }
    Ok(Ack { tenant, group, items: out })
}

impl PartitionText<'_> {
    /// The partition, unless the text is no number.
    pub(crate) fn id(&self) -> Option<PartitionId> {
        match self {
            PartitionText::Number(number) => Some(PartitionId(*number)),
            PartitionText::Text(text) => text.parse().ok().map(PartitionId),
        }
    }
}

/// The words are exact; any other one is a failure.
fn verdict(status: Option<&str>) -> Verdict {
    match status {
        None | Some("completed" | "success" | "acked" | "ok") => Verdict::Completed,
        Some("retry") => Verdict::Retry,
        Some("dlq") => Verdict::DeadLetter,
        Some(_) => Verdict::Failed,
    }
}

/// The lease that a text names.
pub(crate) fn claim(lease: Option<&str>) -> LeaseClaim<'_> {
    match lease.filter(|text| !text.is_empty()) {
        None => LeaseClaim::None,
        Some(text) => LeaseId::parse(text).map_or(LeaseClaim::Foreign(text), LeaseClaim::Id),
    }
}

fn write(items: &[Item<'_>], outcomes: &[AckOutcome]) -> String {
    let mut out = String::with_capacity(2 + items.len() * 160);
    out.push('[');
    for (index, (item, outcome)) in items.iter().zip(outcomes).enumerate() {
        out.push_str(if index == 0 { "{\"index\":" } else { ",{\"index\":" });
        put_number(&mut out, index as u64);
        out.push_str(",\"transactionId\":");
        put_json_str(&mut out, item.transaction_id.as_deref().unwrap_or_default());
        out.push_str(",\"success\":");
        out.push_str(word(outcome.refusal.is_none()));
        out.push_str(",\"error\":");
        match outcome.refusal {
            None => out.push_str("null"),
            Some(refusal) => put_json_str(&mut out, refusal.text()),
        }
        out.push_str(",\"leaseReleased\":");
        out.push_str(word(outcome.lease_released));
        out.push_str(",\"dlq\":");
        out.push_str(word(outcome.dead_lettered));
        out.push_str(",\"noop\":");
        out.push_str(word(outcome.noop));
        if outcome.conflated > 0 {
            out.push_str(",\"conflated\":");
            put_number(&mut out, outcome.conflated);
        }
        out.push('}');
    }
    out.push(']');
    out
}

fn word(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use queen_core::reply::AckRefusal;

    #[test]
    fn only_the_known_words_complete_a_message() {
        for status in [None, Some("completed"), Some("success"), Some("acked"), Some("ok")] {
            assert_eq!(verdict(status), Verdict::Completed);
        }
        assert_eq!(verdict(Some("retry")), Verdict::Retry);
        assert_eq!(verdict(Some("dlq")), Verdict::DeadLetter);
        for status in ["failed", "Completed", "", "nack"] {
            assert_eq!(verdict(Some(status)), Verdict::Failed, "{status}");
        }
    }

    #[test]
    fn null_members_are_as_absent_and_foreign_leases_are_never_live() {
        let body = br#"{"transactionId":"t","partitionId":"17","status":null,"consumerGroup":null,
            "leaseId":null,"error":null}"#;
        let item: Item<'_> = read(body).unwrap();
        let ack = command(TenantId::DEFAULT, None, std::slice::from_ref(&item)).unwrap();
        assert_eq!(ack.items[0].partition, Some(PartitionId(17)));
        assert_eq!((ack.items[0].lease, ack.items[0].error), (LeaseClaim::None, None));
        assert_eq!(claim(Some("x")), LeaseClaim::Foreign("x"));
        let id = LeaseId([7; 16]);
        assert_eq!(claim(Some(&id.to_string())), LeaseClaim::Id(id));
        let item: Item<'_> = read(br#"{"transactionId":"t","partitionId":17}"#).unwrap();
        assert_eq!(item.partition_id.unwrap().id(), Some(PartitionId(17)));
        assert!(read::<Item<'_>>(b"[").is_err());
    }

    #[test]
    fn all_seven_keys_are_answered() {
        let item: Item<'_> = read(br#"{"transactionId":"a\"b","partitionId":"1"}"#).unwrap();
        let outcome = AckOutcome { refusal: Some(AckRefusal::Lease), ..AckOutcome::default() };
        let text = write(&[item], &[outcome]);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value,
            serde_json::json!([{"index":0,"transactionId":"a\"b","success":false,
                "error":"invalid or expired lease","leaseReleased":false,"dlq":false,"noop":false}])
        );
    }
}
