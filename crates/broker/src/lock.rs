//! Lock calls: the limits of a call, and where it is answered.
//!
//! Owns: what a call may hold, which identifier refuses it, and that a call that only looks is answered
//! from this node's state, brought up to date. Leaves to others: the rules (`queen_state::lock`), JSON
//! (`queen-http`).

use crate::kv::{Fault, KvError, KvRefusal, TTL_SECONDS_MAX};
use crate::queues::unexpected;
use crate::{Broker, Class};
use queen_core::command::Command;
use queen_core::lock::{LockOp, LockOpKind, LockResult, Locks, PERMITS_MAX};
use queen_core::reply::Reply;
use queen_state::lock;
use std::collections::BTreeSet;

/// Operations of one call.
pub const OPERATIONS_MAX: usize = 64;
/// Bytes of a lock's name, and of an owner.
pub const NAME_BYTES_MAX: usize = 256;

impl Broker {
    /// Carries out operations on locks; one result per operation.
    ///
    /// Linearizable. A call that only looks costs no log entry.
    pub async fn locks(&self, locks: &Locks<'_>) -> Result<Vec<LockResult>, KvError> {
        check(&locks.ops)?;
        if lock::only_gets(&locks.ops) {
            self.barrier().await?;
            let now = self.now();
            let results = self.read(|view| {
                let holders = |op: &LockOp<'_>| lock::holders(locks.tenant, op.name, now, view);
                locks.ops.iter().map(|op| holders(op).map(LockResult::Holders)).collect()
            });
            return Ok(results?);
        }
        match self.submit(class(&locks.ops), &Command::Locks(locks.clone())).await? {
            Reply::Locks(results) => Ok(results),
            other => Err(unexpected(&other).into()),
        }
    }
}

/// What is held can be kept and given back while the disk is full.
fn class(ops: &[LockOp<'_>]) -> Class {
    let takes = ops.iter().any(|op| matches!(op.kind, LockOpKind::Acquire { .. }));
    if takes { Class::Write } else { Class::Settle }
}

fn bad(reason: &'static str, detail: String) -> KvRefusal {
    KvRefusal { fault: Fault::Malformed, identifier: "locks_bad_request", reason, detail }
}

/// Whether operations are within the limits: the first fault found.
fn check(ops: &[LockOp<'_>]) -> Result<(), KvRefusal> {
    if ops.len() > OPERATIONS_MAX {
        let detail = format!("{} operations: at most {OPERATIONS_MAX} in a call", ops.len());
        return Err(bad("locks_too_many_operations", detail));
    }
    let mut names = BTreeSet::new();
    for (index, op) in ops.iter().enumerate() {
        check_op(op).map_err(|refusal| KvRefusal {
            detail: format!("operation {index}: {}", refusal.detail),
            ..refusal
        })?;
        if !names.insert(op.name) {
            let detail = format!("operation {index}: {:?} is named twice in one call", op.name);
            return Err(bad("locks_name_repeated", detail));
        }
    }
    Ok(())
}

fn check_op(op: &LockOp<'_>) -> Result<(), KvRefusal> {
    if !is_name(op.name) || op.name.contains('#') {
        let detail = format!(
            "a lock's name has 1 to {NAME_BYTES_MAX} bytes, no control characters and no '#'"
        );
        return Err(bad("locks_bad_name", detail));
    }
    let (owner, ttl_seconds, slot) = match op.kind {
        LockOpKind::Acquire { owner, ttl_seconds, limit } => {
            if !(1..=PERMITS_MAX).contains(&limit) {
                let detail = format!("limit {limit} is out of range 1..={PERMITS_MAX}");
                return Err(bad("locks_bad_limit", detail));
            }
            (owner, Some(ttl_seconds), 0)
        }
        LockOpKind::Renew { slot, owner, ttl_seconds, .. } => (owner, Some(ttl_seconds), slot),
        LockOpKind::Release { slot, .. } => (None, None, slot),
        LockOpKind::Get => (None, None, 0),
    };
    if owner.is_some_and(|owner| !is_name(owner)) {
        let detail = format!("an owner has 1 to {NAME_BYTES_MAX} bytes, and no control characters");
        return Err(bad("locks_bad_owner", detail));
    }
    if ttl_seconds.is_some_and(|seconds| !(1..=TTL_SECONDS_MAX).contains(&seconds)) {
        let detail = format!("ttlSeconds is out of range 1..={TTL_SECONDS_MAX}");
        return Err(bad("locks_bad_ttl", detail));
    }
    if slot >= PERMITS_MAX {
        return Err(bad("locks_bad_slot", format!("slot {slot} is not below {PERMITS_MAX}")));
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire<'a>(owner: Option<&'a str>, ttl_seconds: u64, limit: u32) -> LockOpKind<'a> {
        LockOpKind::Acquire { owner, ttl_seconds, limit }
    }

    fn refused(ops: &[(&str, LockOpKind<'_>)]) -> Option<&'static str> {
        let ops: Vec<_> =
            ops.iter().map(|(name, kind)| LockOp { name, kind: kind.clone() }).collect();
        check(&ops).err().map(|refusal| {
            assert_eq!(refusal.identifier, "locks_bad_request");
            refusal.reason
        })
    }

    #[test]
    fn what_no_lock_takes_is_refused_by_reason() {
        let long = "n".repeat(257);
        assert_eq!(refused(&[(&long[1..], acquire(Some(&long[1..]), 1, 1024))]), None);
        for name in ["", "a#b", "a\u{7}", &long] {
            assert_eq!(refused(&[(name, LockOpKind::Get)]), Some("locks_bad_name"), "{name:?}");
        }
        for owner in ["", "a\n", &long] {
            assert_eq!(refused(&[("n", acquire(Some(owner), 1, 1))]), Some("locks_bad_owner"));
        }
        assert_eq!(refused(&[("n", acquire(None, 0, 1))]), Some("locks_bad_ttl"));
        for limit in [0, 1025] {
            assert_eq!(refused(&[("n", acquire(None, 1, limit))]), Some("locks_bad_limit"));
        }
        let release = LockOpKind::Release { slot: 1024, token: 1 };
        assert_eq!(refused(&[("n", release)]), Some("locks_bad_slot"));
        let twice = [("n", LockOpKind::Get), ("n", acquire(None, 1, 1))];
        assert_eq!(refused(&twice), Some("locks_name_repeated"));
        let names: Vec<String> = (0..65).map(|n| n.to_string()).collect();
        let many: Vec<_> = names.iter().map(|name| (&**name, LockOpKind::Get)).collect();
        assert_eq!(refused(&many), Some("locks_too_many_operations"));
        assert_eq!(refused(&many[1..]), None);
    }

    #[test]
    fn what_is_held_can_be_kept_while_the_disk_is_full() {
        let renew = LockOpKind::Renew { slot: 0, token: 1, owner: None, ttl_seconds: 1 };
        let of = |kind| [LockOp { name: "n", kind }];
        assert_eq!(class(&of(renew)), Class::Settle);
        assert_eq!(class(&of(acquire(None, 1, 1))), Class::Write);
    }
}
