//! KV calls: the limits of a batch, and where it is answered.
//!
//! Owns: what a batch may hold, which identifier refuses it, and that a batch of reads is answered
//! from this node's state, brought up to date. Leaves to others: the rules (`queen_state::kv`), JSON (`queen-http`).

use crate::{Broker, Class};
use queen_core::command::{Command, KvBatch};
use queen_core::decimal::Decimal;
use queen_core::kv::{KvOp, KvOpKind, KvOutcome, KvRow};
use queen_core::limits::SINK_NAMESPACE;
use queen_core::reply::Reply;
use queen_core::{Code, Error, Stamp, TenantId};
pub use queen_state::kv::Page;
use queen_state::kv::{self, READ_BYTES_MAX};
use std::collections::BTreeSet;

/// Operations of one batch.
pub const OPERATIONS_MAX: usize = 256;
/// Keys that the operations of one batch name.
pub const KEYS_MAX: usize = 1024;
/// The same of one transaction.
pub const TRANSACTION_OPERATIONS_MAX: usize = 64;
/// The same of one transaction.
pub const TRANSACTION_KEYS_MAX: usize = 256;
/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 512;
/// Bytes of a value's compact JSON text.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a namespace.
pub const NAMESPACE_BYTES_MAX: usize = 64;
/// Seconds to live: a hundred years.
pub const TTL_SECONDS_MAX: u64 = 3_155_760_000;

/// What is wrong with a call, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is malformed (HTTP 400).
    Malformed,
    /// It is over a size (HTTP 413).
    TooLarge,
    /// It is more than may be asked for (HTTP 403).
    TooMuch,
    /// An operator has switched it off (HTTP 503).
    SwitchedOff,
}

/// A batch that is not taken: nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct KvRefusal {
    /// What is wrong, roughly.
    pub fault: Fault,
    /// Identifier that clients branch on.
    pub identifier: &'static str,
    /// Finer identifier.
    pub reason: &'static str,
    /// A sentence that names the operation, the value and the limit.
    pub detail: String,
}

impl KvRefusal {
    /// A malformed batch.
    pub fn bad(reason: &'static str, detail: impl Into<String>) -> KvRefusal {
        let detail = detail.into();
        KvRefusal { fault: Fault::Malformed, identifier: "kv_bad_request", reason, detail }
    }

    fn large(identifier: &'static str, detail: String) -> KvRefusal {
        KvRefusal { fault: Fault::TooLarge, identifier, reason: identifier, detail }
    }
}

/// Why a KV call gave no results.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// The batch is not one that is taken.
    #[error(transparent)]
    Refused(#[from] KvRefusal),
    /// The broker could not carry it out.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Broker {
    /// Applies a batch: all of it, or none when a required operation is lost.
    ///
    /// Linearizable. A batch that only reads costs no log entry.
    pub async fn kv(&self, batch: &KvBatch<'_>) -> Result<KvOutcome, KvError> {
        check(batch)?;
        if kv::only_reads(batch) {
            // Then every write that was answered has been applied here, and nothing is applied
            // before a majority has it on disk: this node's state is neither behind nor ahead.
            self.barrier().await?;
            let results = self.read(|view| kv::answer_reads(batch, self.now(), view))?;
            return Ok(KvOutcome::Done(results.unwrap_or_default()));
        }
        match self.submit(class(batch), &Command::Kv(batch.clone())).await? {
            Reply::Kv(outcome) => Ok(outcome),
            other => Err(KvError::Failed(unexpected(&other))),
        }
    }

    /// One page of a namespace, and whether more would have matched.
    pub fn kv_list(
        &self,
        tenant: TenantId,
        ns: &str,
        page: &Page<'_>,
        include_expired: bool,
    ) -> Result<(Vec<KvRow>, bool), Error> {
        let now = if include_expired { Stamp::ZERO } else { self.now() };
        let mut budget = READ_BYTES_MAX;
        self.read(|view| kv::list(tenant, ns, page, now, view, &mut budget))
    }

    /// A tenant's namespaces with their rows; expired rows count until they are swept.
    pub fn kv_namespaces(&self, tenant: TenantId) -> Result<Vec<(String, u64)>, Error> {
        self.read(|view| kv::namespaces(tenant, usize::MAX, view))
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::new(Code::Internal, format!("a KV batch was answered with {reply:?}"))
}

/// Deletes go on while the disk is full, and so does the sink, whose commits let space go.
fn class(batch: &KvBatch<'_>) -> Class {
    if batch.ops.iter().any(grows) { Class::Write } else { Class::Settle }
}

/// Whether an operation waits for disk space.
pub(crate) fn grows(op: &KvOp<'_>) -> bool {
    op.ns != SINK_NAMESPACE && matches!(op.kind, KvOpKind::Put { .. } | KvOpKind::Incr { .. })
}

/// Whether a batch is within the limits: the first fault found.
pub fn check(batch: &KvBatch<'_>) -> Result<(), KvRefusal> {
    check_all(batch.ops.iter(), OPERATIONS_MAX, KEYS_MAX)
}

/// Whether the KV operations of a transaction are within the limits: the first fault found.
pub(crate) fn check_riders<'o, 'a: 'o>(
    ops: impl Iterator<Item = &'o KvOp<'a>> + Clone,
) -> Result<(), KvRefusal> {
    let prefixes = |op: &KvOp<'_>| matches!(op.kind, KvOpKind::GetPrefix { .. });
    if let Some(index) = ops.clone().position(prefixes) {
        let name = "kv_get_prefix_not_allowed_in_transaction";
        return Err(KvRefusal {
            fault: Fault::Malformed,
            identifier: name,
            reason: name,
            detail: format!(
                "operation {index}: a transaction lists no prefix, since what that costs has no bound: list \
                 it before, and name the keys in getMany"
            ),
        });
    }
    check_all(ops, TRANSACTION_OPERATIONS_MAX, TRANSACTION_KEYS_MAX)
}

fn check_all<'o, 'a: 'o>(
    ops: impl Iterator<Item = &'o KvOp<'a>>,
    operations_max: usize,
    keys_max: usize,
) -> Result<(), KvRefusal> {
    let (mut keys, mut written) = (0, BTreeSet::new());
    for (index, op) in ops.enumerate() {
        if index == operations_max {
            let detail = format!("more than {operations_max} operations in a call");
            return Err(KvRefusal::bad("kv_too_many_operations", detail));
        }
        check_op(op).map_err(|refusal| KvRefusal {
            detail: format!("operation {index}: {}", refusal.detail),
            ..refusal
        })?;
        keys += match &op.kind {
            KvOpKind::GetMany { keys } => keys.len(),
            _ => 1,
        };
        if let KvOpKind::Put { key, .. } | KvOpKind::Delete { key, .. } | KvOpKind::Incr { key, .. } =
            op.kind
            && !written.insert((op.ns, key))
        {
            let detail = format!("operation {index}: {key:?} is written twice in one call");
            return Err(KvRefusal::bad("kv_key_written_twice", detail));
        }
    }
    if keys > keys_max {
        let detail = format!("{keys} keys: at most {keys_max} in a call");
        return Err(KvRefusal::bad("kv_too_many_keys", detail));
    }
    Ok(())
}

/// Whether a text is a namespace: `[a-z0-9][a-z0-9._-]{0,63}`.
pub fn check_namespace(ns: &str) -> Result<(), KvRefusal> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let first = ns.bytes().next().is_some_and(plain);
    if first
        && ns.len() <= NAMESPACE_BYTES_MAX
        && ns.bytes().all(|b| plain(b) || b"._-".contains(&b))
    {
        return Ok(());
    }
    let detail = format!(
        "{ns:?} is not a namespace: 1 to {NAMESPACE_BYTES_MAX} of a-z 0-9 . _ -, beginning with a letter or digit"
    );
    Err(KvRefusal::bad("kv_bad_namespace", detail))
}

fn check_op(op: &KvOp<'_>) -> Result<(), KvRefusal> {
    check_namespace(op.ns)?;
    match &op.kind {
        KvOpKind::Get { key } | KvOpKind::Delete { key, .. } | KvOpKind::Check { key, .. } => {
            check_key(key)
        }
        KvOpKind::GetMany { keys } => keys.iter().try_for_each(|key| check_key(key)),
        KvOpKind::GetPrefix { prefix, after, .. } => {
            check_key(prefix).and_then(|()| after.map_or(Ok(()), check_key_size))
        }
        KvOpKind::Put { key, value, ttl_seconds, .. } => {
            check_key(key)?;
            check_ttl(*ttl_seconds)?;
            if value.len() > VALUE_BYTES_MAX {
                let len = value.len();
                let detail = format!("the value has {len} bytes: at most {VALUE_BYTES_MAX}");
                return Err(KvRefusal::large("kv_value_too_large", detail));
            }
            Ok(())
        }
        KvOpKind::Incr { key, delta, min, max, ttl_seconds } => {
            check_key(key)?;
            check_ttl(*ttl_seconds)?;
            [Some(*delta), *min, *max].into_iter().flatten().try_for_each(check_number)
        }
    }
}

fn check_key(key: &str) -> Result<(), KvRefusal> {
    if key.is_empty() || key.contains('\0') {
        let detail = "a key or a prefix has at least one byte, and no NUL";
        return Err(KvRefusal::bad("kv_bad_key", detail));
    }
    check_key_size(key)
}

fn check_key_size(key: &str) -> Result<(), KvRefusal> {
    if key.len() > KEY_BYTES_MAX {
        let detail = format!("the key has {} bytes: at most {KEY_BYTES_MAX}", key.len());
        return Err(KvRefusal::large("kv_key_too_large", detail));
    }
    Ok(())
}

fn check_ttl(ttl_seconds: Option<u64>) -> Result<(), KvRefusal> {
    match ttl_seconds {
        Some(seconds) if !(1..=TTL_SECONDS_MAX).contains(&seconds) => {
            let detail = format!("ttlSeconds {seconds} is out of range 1..={TTL_SECONDS_MAX}");
            Err(KvRefusal::bad("kv_bad_ttl", detail))
        }
        _ => Ok(()),
    }
}

fn check_number(text: &str) -> Result<(), KvRefusal> {
    if Decimal::parse(text).is_some() {
        return Ok(());
    }
    let detail =
        format!("{text} is not a number below 2^63 in size with at most 18 fractional digits");
    Err(KvRefusal::bad("kv_bad_number", detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch<'a>(kinds: Vec<KvOpKind<'a>>) -> KvBatch<'a> {
        let op = |kind| KvOp { ns: "shop", kind, required: false };
        KvBatch { tenant: TenantId::DEFAULT, ops: kinds.into_iter().map(op).collect() }
    }

    fn put<'a>(key: &'a str, value: &'a str) -> KvOpKind<'a> {
        KvOpKind::Put { key, value, ttl_seconds: None, expect: None }
    }

    fn refusal(kinds: Vec<KvOpKind<'_>>) -> (bool, &'static str, &'static str) {
        let refusal = check(&batch(kinds)).unwrap_err();
        (refusal.fault == Fault::TooLarge, refusal.identifier, refusal.reason)
    }

    #[test]
    fn a_namespace_has_few_letters() {
        for good in ["a", "0.x_y-z", &"n".repeat(64)] {
            assert_eq!(check_namespace(good), Ok(()));
        }
        for bad in ["", "A", "-a", ".a", "a b", "a/b", "é", &"n".repeat(65)] {
            assert_eq!(check_namespace(bad).unwrap_err().identifier, "kv_bad_request", "{bad}");
        }
    }

    #[test]
    fn limits_are_refused_by_identifier() {
        let (key, value) = ("k".repeat(512), "1".repeat(VALUE_BYTES_MAX));
        assert_eq!(check(&batch(vec![put(&key, &value)])), Ok(()));
        let (long_key, long_value) = (format!("{key}k"), format!("{value}1"));
        let large = |id| (true, id, id);
        assert_eq!(refusal(vec![put(&long_key, "1")]), large("kv_key_too_large"));
        assert_eq!(refusal(vec![put("k", &long_value)]), large("kv_value_too_large"));
        let bad = |reason| (false, "kv_bad_request", reason);
        assert_eq!(refusal(vec![put("", "1")]), bad("kv_bad_key"));
        assert_eq!(refusal(vec![put("a\0b", "1")]), bad("kv_bad_key"));
        let many = vec![KvOpKind::Get { key: "k" }; 257];
        assert_eq!(refusal(many), bad("kv_too_many_operations"));
        let keys = vec![KvOpKind::GetMany { keys: vec!["k"; 1025] }];
        assert_eq!(refusal(keys), bad("kv_too_many_keys"));
        let ttl = KvOpKind::Put { key: "k", value: "1", ttl_seconds: Some(0), expect: None };
        assert_eq!(refusal(vec![ttl]), bad("kv_bad_ttl"));
        let number =
            KvOpKind::Incr { key: "k", delta: "1e99", min: None, max: None, ttl_seconds: None };
        assert_eq!(refusal(vec![number]), bad("kv_bad_number"));
    }

    #[test]
    fn a_key_is_written_once_in_a_call() {
        let delete = KvOpKind::Delete { key: "a", expect: None };
        let twice = refusal(vec![put("a", "1"), delete.clone()]);
        assert_eq!(twice, (false, "kv_bad_request", "kv_key_written_twice"));
        let get = KvOpKind::Get { key: "a" };
        assert_eq!(check(&batch(vec![put("a", "1"), put("b", "1"), get])), Ok(()));
        let mut apart = batch(vec![put("a", "1"), delete]);
        apart.ops[1].ns = "other";
        assert_eq!(check(&apart), Ok(()));
    }

    #[test]
    fn only_what_grows_waits_for_disk_space() {
        assert_eq!(class(&batch(vec![put("a", "1")])), Class::Write);
        assert_eq!(class(&batch(vec![KvOpKind::Delete { key: "a", expect: None }])), Class::Settle);
        let mut sink = batch(vec![put("a", "1")]);
        sink.ops[0].ns = SINK_NAMESPACE;
        assert_eq!(class(&sink), Class::Settle);
    }
}
