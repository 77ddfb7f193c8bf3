//! What the KV routes answer with.
//!
//! Owns: the members of each operation's result, and that a value's own text is spliced in. Leaves to
//! others: requests (`kv`).

use crate::kv::{Asked, Word};
use queen_core::kv::{KvLoss, KvResult, KvRow};
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Serialize)]
pub(crate) struct Results<'a> {
    pub(crate) results: Vec<Shown<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Precondition<'a> {
    pub(crate) ok: bool,
    pub(crate) reason: &'static str,
    pub(crate) failed_index: usize,
    pub(crate) kv_reason: &'static str,
    pub(crate) version: u64,
    pub(crate) value: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed<'a> {
    pub(crate) rows: Vec<ShownRow<'a>>,
    pub(crate) truncated: bool,
    pub(crate) next_after: Option<&'a str>,
    pub(crate) bytes: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownRow<'a> {
    pub(crate) key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<&'a RawValue>,
    pub(crate) version: u64,
    pub(crate) expires_at: Option<String>,
    pub(crate) updated_at: String,
}

/// One element of `results`; members that do not belong to the operation are left out.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown<'a> {
    pub(crate) index: usize,
    /// Of a transaction only, as the next one.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<&'static str>,
    /// Its place among the KV operations, `index` being that among all results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) op_index: Option<usize>,
    pub(crate) op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) applied: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) found: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<Option<&'a RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) updated_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rows: Option<Vec<ShownRow<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) truncated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_after: Option<Option<&'a str>>,
}

/// The row's JSON text, spliced as it is.
pub(crate) fn value_of(row: &KvRow) -> &RawValue {
    serde_json::from_slice(&row.value).unwrap_or(RawValue::NULL)
}

pub(crate) fn show_row(row: &KvRow, keys_only: bool) -> ShownRow<'_> {
    ShownRow {
        key: &row.key,
        value: (!keys_only).then(|| value_of(row)),
        version: row.version,
        expires_at: row.expires_at.map(|at| at.to_iso()),
        updated_at: row.updated_at.to_iso(),
    }
}

pub(crate) fn show<'a>(index: usize, asked: &'a Asked, result: &'a KvResult) -> Shown<'a> {
    let key = Some(asked.key.as_str());
    let base = Shown { index, op: asked.word.text(), ..Shown::default() };
    match result {
        KvResult::Row(None) => Shown { found: Some(false), key, ..base },
        KvResult::Row(Some(row)) => {
            Shown { found: Some(true), key, value: Some(Some(value_of(row))), ..with(base, row) }
        }
        KvResult::Rows { rows, missing, truncated } => Shown {
            rows: Some(rows.iter().map(|row| show_row(row, asked.keys_only)).collect()),
            missing: (asked.word == Word::GetMany).then_some(missing),
            truncated: Some(*truncated),
            next_after: (asked.word == Word::GetPrefix)
                .then(|| rows.last().map(|row| row.key.as_str()).or(asked.after.as_deref())),
            ..base
        },
        KvResult::Applied(row) => {
            let base = Shown { applied: Some(true), key, ..base };
            match row {
                None if asked.word == Word::Check => Shown { version: Some(0), ..base },
                None => base,
                Some(row) if asked.word == Word::Check => {
                    Shown { version: Some(row.version), ..base }
                }
                Some(row) => Shown { value: Some(Some(value_of(row))), ..with(base, row) },
            }
        }
        KvResult::Lost { reason, row } => Shown {
            applied: Some(false),
            reason: Some(KvLoss::word(*reason)),
            key,
            value: Some(row.as_ref().map(value_of)),
            version: Some(row.as_ref().map_or(0, |row| row.version)),
            ..base
        },
    }
}

pub(crate) fn with<'a>(shown: Shown<'a>, row: &KvRow) -> Shown<'a> {
    Shown {
        version: Some(row.version),
        expires_at: Some(row.expires_at.map(|at| at.to_iso())),
        updated_at: Some(row.updated_at.to_iso()),
        ..shown
    }
}
