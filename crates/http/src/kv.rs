//! KV routes: the batch, the path forms, and browsing.
//!
//! Owns: their JSON. Leaves to others: limits (`queen_broker::kv`), rules (`queen_state::kv`).
//!
//! A value keeps its own text: blanks between tokens are left out, nothing else changes.

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::kv_answer::{Listed, Precondition, Results, Shown, show, show_row, value_of};
use hyper::StatusCode;
use hyper::header::{ETAG, HeaderValue};
use queen_broker::kv::Page;
use queen_broker::{Fault, KvError, KvRefusal};
use queen_core::command::KvBatch;
use queen_core::kv::{KvOp, KvOpKind, KvOutcome};

use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Members of an object, unread.
pub(crate) type Members<'a> = BTreeMap<String, &'a RawValue>;

impl From<KvError> for Refusal {
    fn from(error: KvError) -> Refusal {
        match error {
            KvError::Refused(refusal) => refusal.into(),
            KvError::Failed(error) => error.into(),
        }
    }
}

impl From<KvRefusal> for Refusal {
    fn from(refusal: KvRefusal) -> Refusal {
        let status = match refusal.fault {
            Fault::Malformed => StatusCode::BAD_REQUEST,
            Fault::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Fault::TooMuch => StatusCode::FORBIDDEN,
            Fault::SwitchedOff => StatusCode::SERVICE_UNAVAILABLE,
        };
        Refusal::Identified(status, refusal.identifier, refusal.reason, refusal.detail)
    }
}

/// Refuses a call on KV while that is switched off.
pub(crate) fn refuse_when_off(call: &Call) -> Result<(), Refusal> {
    if call.broker().switches().kv {
        return Ok(());
    }
    let detail = "KV is switched off: POST /api/v1/system/kv-timers switches it on".into();
    let (fault, name) = (Fault::SwitchedOff, "kv_disabled");
    Err(KvRefusal { fault, identifier: name, reason: name, detail }.into())
}

/// `POST /api/v1/kv`.
pub(crate) async fn batch(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.body().await?;
    let asked = read_batch(&body)?;
    answer_batch(&call, &asked, false).await
}

/// `GET /api/v1/kv/:ns/*key`.
pub(crate) async fn get(call: Call) -> Result<Answer, Refusal> {
    refuse_query(&call)?;
    let op = Asked { word: Word::Get, ns: call.param(0).into(), ..Asked::of_key(call.param(1)) };
    answer_batch(&call, &[op], true).await
}

/// `PUT /api/v1/kv/:ns/*key`.
pub(crate) async fn put(call: Call) -> Result<Answer, Refusal> {
    by_path(call, Word::Put).await
}

/// `DELETE /api/v1/kv/:ns/*key`.
pub(crate) async fn delete(call: Call) -> Result<Answer, Refusal> {
    by_path(call, Word::Delete).await
}

async fn by_path(mut call: Call, word: Word) -> Result<Answer, Refusal> {
    refuse_query(&call)?;
    let body = call.body().await?;
    let blank = body.iter().all(u8::is_ascii_whitespace);
    let members: Members<'_> = match blank {
        true => Members::new(),
        false => read_json(&body)?,
    };
    if let Some(name) = ["op", "ns", "key"].into_iter().find(|name| members.contains_key(*name)) {
        let detail = format!("member {name:?} is not taken here: the path says it");
        return Err(KvRefusal::bad("kv_member_not_allowed", detail).into());
    }
    let mut op = Asked { word, ns: call.param(0).to_owned(), ..Asked::of_key(call.param(1)) };
    op.read_members(&members)?;
    answer_batch(&call, &[op], true).await
}

fn refuse_query(call: &Call) -> Result<(), Refusal> {
    match call.parts.uri.query() {
        Some(query) if !query.is_empty() => {
            let detail = "query parameters are not taken here: conditions go into the body";
            Err(KvRefusal::bad("kv_query_not_allowed", detail).into())
        }
        _ => Ok(()),
    }
}

async fn answer_batch(call: &Call, asked: &[Asked], alone: bool) -> Result<Answer, Refusal> {
    refuse_when_off(call)?;
    let ops = asked.iter().map(Asked::op).collect();
    let batch = KvBatch { tenant: call.tenant(), ops };
    let results = match call.broker().kv(&batch).await? {
        KvOutcome::Done(results) => results,
        KvOutcome::Precondition { index, reason, row } => {
            let lost = Precondition {
                ok: false,
                reason: "kv_precondition",
                failed_index: index,
                kv_reason: reason.word(),
                version: row.as_ref().map_or(0, |row| row.version),
                value: row.as_ref().map(value_of),
            };
            return Ok(json(StatusCode::OK, &lost));
        }
    };
    let shown: Vec<Shown<'_>> =
        asked.iter().zip(&results).enumerate().map(|(i, (op, r))| show(i, op, r)).collect();
    match (alone, shown.first()) {
        (true, Some(one)) => {
            let mut answer = json(StatusCode::OK, one);
            if let (Word::Get, Some(version)) = (asked[0].word, one.version)
                && let Ok(etag) = HeaderValue::from_str(&format!("\"{version}\""))
            {
                answer.headers_mut().insert(ETAG, etag);
            }
            Ok(answer)
        }
        _ => Ok(json(StatusCode::OK, &Results { results: shown })),
    }
}

/// `POST /api/v1/resources/kv/list`.
pub(crate) async fn list(mut call: Call) -> Result<Answer, Refusal> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Body {
        namespace: Option<String>,
        prefix: Option<String>,
        after: Option<String>,
        limit: Option<i64>,
        keys_only: Option<bool>,
        include_expired: Option<bool>,
    }
    refuse_when_off(&call)?;
    let bytes = call.body().await?;
    let body: Body = read_json(&bytes)?;
    let ns = body.namespace.unwrap_or_default();
    queen_broker::kv::check_namespace(&ns)?;
    let page = Page {
        prefix: body.prefix.as_deref().unwrap_or_default(),
        after: body.after.as_deref(),
        limit: body.limit.unwrap_or(100).clamp(1, 1000) as usize,
        keys_only: body.keys_only.unwrap_or_default(),
    };
    let expired = body.include_expired.unwrap_or_default();
    let (rows, truncated) = call.broker().kv_list(call.tenant(), &ns, &page, expired)?;
    let listed = Listed {
        rows: rows.iter().map(|row| show_row(row, page.keys_only)).collect(),
        truncated,
        next_after: rows.last().map(|row| row.key.as_str()).or(page.after),
        bytes: rows.iter().map(|row| row.value.len()).sum(),
    };
    Ok(json(StatusCode::OK, &listed))
}

/// `GET /api/v1/resources/kv/namespaces`.
pub(crate) async fn namespaces(call: Call) -> Result<Answer, Refusal> {
    refuse_when_off(&call)?;
    let namespaces = call.broker().kv_namespaces(call.tenant())?;
    let shown: Vec<_> = namespaces
        .iter()
        .map(|(namespace, keys)| serde_json::json!({"namespace": namespace, "keys": keys}))
        .collect();
    Ok(json(StatusCode::OK, &serde_json::json!({"namespaces": shown})))
}

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Get,
    GetMany,
    GetPrefix,
    Put,
    PutIfAbsent,
    Delete,
    Incr,
    Check,
}

const WORDS: [(&str, Word); 8] = [
    ("get", Word::Get),
    ("getMany", Word::GetMany),
    ("getPrefix", Word::GetPrefix),
    ("put", Word::Put),
    ("putIfAbsent", Word::PutIfAbsent),
    ("delete", Word::Delete),
    ("incr", Word::Incr),
    ("check", Word::Check),
];

impl Word {
    pub(crate) fn text(self) -> &'static str {
        WORDS.iter().find(|(_, word)| *word == self).map_or("", |(text, _)| text)
    }
}

/// An operation as the request asks for it; what its word does not take stays empty.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) word: Word,
    ns: String,
    pub(crate) key: String,
    keys: Vec<String>,
    prefix: String,
    pub(crate) after: Option<String>,
    limit: u32,
    pub(crate) keys_only: bool,
    value: String,
    ttl_seconds: Option<u64>,
    expect: Option<u64>,
    delta: String,
    min: Option<String>,
    max: Option<String>,
    required: bool,
}

fn read_batch(body: &[u8]) -> Result<Vec<Asked>, Refusal> {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        operations: Vec<Members<'a>>,
    }
    let bare = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
    let operations: Vec<Members<'_>> = match bare {
        true => read_json(body)?,
        false => read_json::<Body<'_>>(body)?.operations,
    };
    Ok(read_operations(&operations)?)
}

/// Reads operations; a refusal names the one it is about.
pub(crate) fn read_operations(operations: &[Members<'_>]) -> Result<Vec<Asked>, KvRefusal> {
    let read = |(index, members): (usize, &Members<'_>)| {
        Asked::read(members).map_err(|refusal| KvRefusal {
            detail: format!("operation {index}: {}", refusal.detail),
            ..refusal
        })
    };
    operations.iter().enumerate().map(read).collect()
}

fn read_json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, KvRefusal> {
    serde_json::from_slice(body)
        .map_err(|e| KvRefusal::bad("kv_bad_body", format!("the body: {e}")))
}

impl Asked {
    fn of_key(key: &str) -> Asked {
        Asked {
            word: Word::Get,
            ns: String::new(),
            key: key.to_owned(),
            keys: Vec::new(),
            prefix: String::new(),
            after: None,
            limit: 100,
            keys_only: false,
            value: String::new(),
            ttl_seconds: None,
            expect: None,
            delta: "1".to_owned(),
            min: None,
            max: None,
            required: false,
        }
    }

    /// Reads an operation of a batch or of a transaction.
    pub(crate) fn read(members: &Members<'_>) -> Result<Asked, KvRefusal> {
        let name: String = needed(members, "op", "a text")?;
        let Some((_, word)) = WORDS.iter().find(|(text, _)| *text == name) else {
            let detail = format!(
                "{name:?} is not an operation: get, getMany, getPrefix, put, putIfAbsent, delete, incr, check"
            );
            return Err(KvRefusal::bad("kv_unknown_operation", detail));
        };
        let mut asked = Asked { word: *word, ..Asked::of_key("") };
        asked.ns = needed(members, "ns", "a text")?;
        match asked.word {
            Word::GetMany => asked.keys = needed(members, "keys", "a list of texts")?,
            Word::GetPrefix => asked.prefix = needed(members, "prefix", "a text")?,
            _ => asked.key = needed(members, "key", "a text")?,
        }
        asked.read_members(members)?;
        Ok(asked)
    }

    /// Reads all that stands beside namespace and key.
    fn read_members(&mut self, members: &Members<'_>) -> Result<(), KvRefusal> {
        match self.word {
            Word::Get | Word::GetMany => return Ok(()),
            Word::GetPrefix => {
                self.after = member(members, "after", "a text")?;
                self.keys_only = member(members, "keysOnly", "true or false")?.unwrap_or(false);
                let limit: i64 = member(members, "limit", "a whole number")?.unwrap_or(100);
                self.limit = limit.clamp(1, 1000) as u32;
                return Ok(());
            }
            Word::Put | Word::PutIfAbsent => {
                let value = members.get("value").ok_or_else(|| missing("value"))?;
                self.value = compact(value.get());
            }
            Word::Incr => {
                self.delta = number(members, "delta")?.unwrap_or_else(|| "1".to_owned());
                self.min = number(members, "min")?;
                self.max = number(members, "max")?;
            }
            Word::Delete | Word::Check => {}
        }
        self.required = member(members, "required", "true or false")?.unwrap_or(false);
        self.expect = match self.word {
            Word::PutIfAbsent => Some(0),
            Word::Incr => None,
            _ => expect(members)?,
        };
        if self.word == Word::Check && self.expect.is_none() {
            return Err(missing("expect"));
        }
        if matches!(self.word, Word::Put | Word::PutIfAbsent | Word::Incr) {
            self.ttl_seconds = expiry(members)?;
        }
        Ok(())
    }

    /// The operation as a command has it.
    pub(crate) fn op(&self) -> KvOp<'_> {
        let key = self.key.as_str();
        let kind = match self.word {
            Word::Get => KvOpKind::Get { key },
            Word::GetMany => {
                KvOpKind::GetMany { keys: self.keys.iter().map(String::as_str).collect() }
            }
            Word::GetPrefix => KvOpKind::GetPrefix {
                prefix: &self.prefix,
                after: self.after.as_deref(),
                limit: self.limit,
                keys_only: self.keys_only,
            },
            Word::Put | Word::PutIfAbsent => KvOpKind::Put {
                key,
                value: &self.value,
                ttl_seconds: self.ttl_seconds,
                expect: self.expect,
            },
            Word::Delete => KvOpKind::Delete { key, expect: self.expect },
            Word::Incr => KvOpKind::Incr {
                key,
                delta: &self.delta,
                min: self.min.as_deref(),
                max: self.max.as_deref(),
                ttl_seconds: self.ttl_seconds,
            },
            Word::Check => KvOpKind::Check { key, expect: self.expect.unwrap_or_default() },
        };
        KvOp { ns: &self.ns, kind, required: self.required }
    }
}

fn missing(name: &str) -> KvRefusal {
    KvRefusal::bad("kv_missing_member", format!("member {name:?} is missing"))
}

/// A member's value; null is as absent.
pub(crate) fn value<'a, T: Deserialize<'a>>(
    members: &Members<'a>,
    name: &str,
) -> serde_json::Result<Option<T>> {
    let Some(raw) = members.get(name).filter(|raw| raw.get() != "null") else { return Ok(None) };
    serde_json::from_str(raw.get()).map(Some)
}

fn member<'a, T: Deserialize<'a>>(
    members: &Members<'a>,
    name: &str,
    what: &str,
) -> Result<Option<T>, KvRefusal> {
    value(members, name)
        .map_err(|_| KvRefusal::bad("kv_bad_member", format!("member {name:?} is not {what}")))
}

fn needed<'a, T: Deserialize<'a>>(
    members: &Members<'a>,
    name: &str,
    what: &str,
) -> Result<T, KvRefusal> {
    member(members, name, what)?.ok_or_else(|| missing(name))
}

/// A number's own text.
fn number(members: &Members<'_>, name: &str) -> Result<Option<String>, KvRefusal> {
    let Some(raw) = members.get(name).filter(|raw| raw.get() != "null") else { return Ok(None) };
    match raw.get().as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => Ok(Some(raw.get().to_owned())),
        _ => Err(KvRefusal::bad("kv_bad_number", format!("member {name:?} is not a number"))),
    }
}

/// `expect`, where null is no way to say nothing.
fn expect(members: &Members<'_>) -> Result<Option<u64>, KvRefusal> {
    let Some(raw) = members.get("expect") else { return Ok(None) };
    serde_json::from_str(raw.get()).map(Some).map_err(|_| {
        let detail = format!("expect {} is not a version: 0 or a positive whole number", raw.get());
        KvRefusal::bad("kv_bad_expect", detail)
    })
}

/// Exactly one of `ttlSeconds` and `forever: true`.
fn expiry(members: &Members<'_>) -> Result<Option<u64>, KvRefusal> {
    let forever = member(members, "forever", "true or false")?.unwrap_or(false);
    let ttl = members.get("ttlSeconds").filter(|raw| raw.get() != "null");
    match (ttl, forever) {
        (None, true) => Ok(None),
        (Some(raw), false) => match serde_json::from_str::<u64>(raw.get()) {
            Ok(seconds) if seconds > 0 => Ok(Some(seconds)),
            _ => {
                let detail = format!("ttlSeconds {} is not a positive whole number", raw.get());
                Err(KvRefusal::bad("kv_bad_ttl", detail))
            }
        },
        _ => {
            let detail = "a write says how long it lives: either ttlSeconds or forever:true";
            Err(KvRefusal::bad("kv_expiry_not_specified", detail))
        }
    }
}

/// JSON text without the blanks between its tokens.
fn compact(text: &str) -> String {
    let (mut inside, mut escaped) = (false, false);
    let kept = text.chars().filter(|c| {
        if inside {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => inside = false,
                _ => {}
            }
            return true;
        }
        inside = *c == '"';
        !matches!(c, ' ' | '\t' | '\n' | '\r')
    });
    kept.collect()
}

#[cfg(test)]
#[path = "kv_tests.rs"]
mod tests;
