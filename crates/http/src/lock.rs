//! `POST /api/v1/locks`: locks and semaphores.
//!
//! Owns: their JSON, and the guard that a transaction takes. Leaves to others: limits
//! (`queen_broker`), every rule (`queen_state::lock`).
//!
//! Whether a lock was had is a member of the result, never a status.

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use hyper::StatusCode;
use queen_core::Stamp;
use queen_core::lock::{Holder, LOCK_NAMESPACE, LockOp, LockOpKind, LockResult, Locks, permit_key};
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// An operation as the request asks for it; a member that its word does not take is not looked at.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    #[serde(borrow, default)]
    op: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    owner: Option<Cow<'a, str>>,
    #[serde(default)]
    ttl_seconds: Option<u64>,
    #[serde(default)]
    limit: Option<u32>,
    #[serde(default)]
    slot: Option<u32>,
    #[serde(default)]
    token: Option<u64>,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    operations: Vec<Asked<'a>>,
}

/// `POST /api/v1/locks`.
pub(crate) async fn locks(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.body().await?;
    let asked = read(&body)?;
    let ops = asked.iter().enumerate().map(|(index, asked)| asked.op(index));
    let locks = Locks { tenant: call.tenant(), ops: ops.collect::<Result<_, _>>()? };
    let results = call.broker().locks(&locks).await?;
    let shown = locks.ops.iter().zip(&results).enumerate();
    let shown: Vec<Value> = shown.map(|(index, (op, result))| show(index, op, result)).collect();
    Ok(json(StatusCode::OK, &json!({ "results": shown })))
}

fn bad(reason: &'static str, detail: String) -> Refusal {
    Refusal::Identified(StatusCode::BAD_REQUEST, "locks_bad_request", reason, detail)
}

fn read(body: &[u8]) -> Result<Vec<Asked<'_>>, Refusal> {
    let bare = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
    let read = match bare {
        true => serde_json::from_slice(body),
        false => serde_json::from_slice(body).map(|body: Body<'_>| body.operations),
    };
    read.map_err(|e| bad("locks_bad_body", format!("the body: {e}")))
}

impl Asked<'_> {
    fn op(&self, index: usize) -> Result<LockOp<'_>, Refusal> {
        let missing = |name: &str| {
            bad("locks_missing_member", format!("operation {index}: member {name:?} is missing"))
        };
        let owner = self.owner.as_deref();
        let ttl = || self.ttl_seconds.ok_or_else(|| missing("ttlSeconds"));
        let token = || self.token.ok_or_else(|| missing("token"));
        let slot = self.slot.unwrap_or(0);
        let word = self.op.as_deref().ok_or_else(|| missing("op"))?;
        let kind = match word {
            "acquire" => {
                let limit = self.limit.unwrap_or(1);
                LockOpKind::Acquire { owner, ttl_seconds: ttl()?, limit }
            }
            "renew" => LockOpKind::Renew { slot, token: token()?, owner, ttl_seconds: ttl()? },
            "release" => LockOpKind::Release { slot, token: token()? },
            "get" => LockOpKind::Get,
            _ => {
                let detail = format!(
                    "operation {index}: {word:?} is not an operation: acquire, renew, release, get"
                );
                return Err(bad("locks_unknown_operation", detail));
            }
        };
        let name = self.name.as_deref().ok_or_else(|| missing("name"))?;
        Ok(LockOp { name, kind })
    }
}

fn show(index: usize, op: &LockOp<'_>, result: &LockResult) -> Value {
    let word = match op.kind {
        LockOpKind::Acquire { .. } => "acquire",
        LockOpKind::Renew { .. } => "renew",
        LockOpKind::Release { .. } => "release",
        LockOpKind::Get => "get",
    };
    let mut shown = match result {
        LockResult::Acquired { slot, token, owner, already } => {
            let guard = guard(op.name, *slot, *token);
            let mut shown = json!({"acquired": true, "slot": slot, "token": token,
                "owner": owner, "guard": guard});
            if *already {
                shown["already"] = json!(true);
            }
            shown
        }
        LockResult::Held(holders) => {
            json!({"acquired": false, "reason": "held", "holders": named(holders)})
        }
        LockResult::Renewed { slot, token } => {
            let guard = guard(op.name, *slot, *token);
            json!({"renewed": true, "slot": slot, "token": token, "guard": guard})
        }
        LockResult::Released { slot } => json!({"released": true, "slot": slot}),
        LockResult::Lost(holders) => {
            let verdict = if word == "renew" { "renewed" } else { "released" };
            json!({verdict: false, "reason": "lost", "holders": named(holders)})
        }
        LockResult::Holders(holders) => {
            let all: Vec<Value> = holders.iter().map(whole).collect();
            json!({"held": !holders.is_empty(), "holders": all})
        }
    };
    shown["index"] = json!(index);
    shown["op"] = json!(word);
    shown["name"] = json!(op.name);
    shown
}

/// The KV operation that holds while a permit has this token.
fn guard(name: &str, slot: u32, token: u64) -> Value {
    json!({"op": "check", "ns": LOCK_NAMESPACE, "key": permit_key(name, slot), "expect": token,
        "required": true})
}

/// Holders as a refusal names them.
fn named(holders: &[Holder]) -> Vec<Value> {
    holders.iter().map(|holder| json!({"slot": holder.slot, "owner": holder.owner})).collect()
}

fn whole(holder: &Holder) -> Value {
    json!({
        "slot": holder.slot,
        "owner": holder.owner,
        "token": holder.token,
        "since": holder.since.map(time),
        "renewedAt": time(holder.renewed),
        "expiresAt": holder.expires.map(time),
    })
}

/// Times of holders have an offset in place of `Z`.
fn time(at: Stamp) -> String {
    let mut text = at.to_iso();
    text.pop();
    text.push_str("+00:00");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: Value) -> &'static str {
        let body = body.to_string();
        let refused = match read(body.as_bytes()) {
            Ok(asked) => asked.iter().enumerate().find_map(|(i, asked)| asked.op(i).err()),
            Err(refused) => Some(refused),
        };
        match refused {
            Some(Refusal::Identified(StatusCode::BAD_REQUEST, "locks_bad_request", why, _)) => why,
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn operations_stand_in_an_envelope_or_alone_and_have_defaults() {
        let acquire = json!({"op": "acquire", "name": "n", "ttlSeconds": 9, "owner": null});
        for body in [json!([acquire]), json!({"operations": [acquire]})] {
            let body = body.to_string();
            let asked = read(body.as_bytes()).unwrap();
            let op = asked[0].op(0).unwrap();
            let kind = LockOpKind::Acquire { owner: None, ttl_seconds: 9, limit: 1 };
            assert_eq!((op.name, op.kind), ("n", kind));
        }
        let renew = json!([{"op": "renew", "name": "n", "ttlSeconds": 9, "token": 3}]).to_string();
        let asked = read(renew.as_bytes()).unwrap();
        let kind = LockOpKind::Renew { slot: 0, token: 3, owner: None, ttl_seconds: 9 };
        assert_eq!(asked[0].op(0).unwrap().kind, kind);
    }

    #[test]
    fn what_is_missing_or_unknown_is_refused_by_reason() {
        assert_eq!(refusal(json!({"ops": []})), "locks_bad_body");
        assert_eq!(refusal(json!([{"op": "get", "name": "n", "token": -1}])), "locks_bad_body");
        assert_eq!(refusal(json!([{"op": "take", "name": "n"}])), "locks_unknown_operation");
        for (op, member) in [("acquire", "ttlSeconds"), ("renew", "token"), ("release", "token")] {
            let body = json!([{"op": op, "name": "n"}]);
            assert_eq!(refusal(body), "locks_missing_member", "{op} without {member}");
        }
        assert_eq!(refusal(json!([{"op": "get"}])), "locks_missing_member");
        assert_eq!(refusal(json!([{"name": "n"}])), "locks_missing_member");
    }

    #[test]
    fn times_of_holders_end_in_an_offset() {
        assert_eq!(time(Stamp(0)), "1970-01-01T00:00:00.000000+00:00");
    }
}
