//! The sink's part of the faults that the fault harness has to find; never in a release.
//!
//! Owns: `commit-without-fence`, a commit that comes late and asks neither for the lease nor for the window
//! before it. Leaves to others: what tells of it.

use queen_core::kv::{KvOp, KvOpKind, KvOutcome, KvResult};
use std::time::Duration;

/// How late it comes: long enough to be caught in by a pause of the process.
pub(super) const LATE: Duration = Duration::from_millis(500);

/// What is sent in place of a batch: of a commit the put of the pointer alone, on no condition, and
/// of any other nothing else.
pub(super) fn unfenced<'a>(ops: &[KvOp<'a>]) -> Option<KvOp<'a>> {
    let [_lease, commit] = ops else { return None };
    let KvOpKind::Put { key, value, ttl_seconds, .. } = commit.kind else { return None };
    let put = KvOpKind::Put { key, value, ttl_seconds, expect: None };
    let planted = std::env::var("QUEEN_PLANTED_BUG").is_ok_and(|bug| bug == "commit-without-fence");
    let pointer = planted && key.ends_with(":committed");
    pointer.then_some(KvOp { ns: commit.ns, kind: put, required: false })
}

/// The answer to the batch that was not sent.
pub(super) fn answered(outcome: KvOutcome) -> KvOutcome {
    match outcome {
        KvOutcome::Done(mut results) => {
            results.insert(0, KvResult::Applied(None));
            KvOutcome::Done(results)
        }
        other => other,
    }
}
