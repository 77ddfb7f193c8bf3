//! Locks and semaphores: permits with an end and a fencing token.
//!
//! Owns: operations on them, their results, where a permit's KV row lies. Leaves to others: the rules
//! (`queen-state`), JSON (`queen-http`).
//!
//! A permit is the KV row `<name>#<slot>` of the namespace [`LOCK_NAMESPACE`], and the version of that
//! row is its token: KV versions only rise, so a token names one period of one holder for ever. A lock
//! is a semaphore of one permit.

use crate::{Stamp, TenantId};
use serde::{Deserialize, Serialize};

/// KV namespace of the permits.
pub const LOCK_NAMESPACE: &str = "queen-locks";
/// Most permits of a semaphore.
pub const PERMITS_MAX: u32 = 1024;

/// The KV key of a permit.
pub fn permit_key(name: &str, slot: u32) -> String {
    format!("{name}#{slot}")
}

/// What the KV keys of all permits of a lock begin with.
pub fn permits_prefix(name: &str) -> String {
    format!("{name}#")
}

/// Operations on locks, each on another one: they do not depend on each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Locks<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// In request order. No two have the same name.
    #[serde(borrow)]
    pub ops: Vec<LockOp<'a>>,
}

/// One operation on a lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockOp<'a> {
    /// The lock: 1 to 256 bytes, no control characters, no `#`.
    pub name: &'a str,
    /// What to do.
    #[serde(borrow)]
    pub kind: LockOpKind<'a>,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockOpKind<'a> {
    /// Takes the lowest free permit, or finds the one that the owner has.
    Acquire {
        /// The holder; without it one is made up, so the call is not safe to send again.
        #[serde(borrow)]
        owner: Option<&'a str>,
        /// Life of the permit.
        ttl_seconds: u64,
        /// Permits that there are, 1 to [`PERMITS_MAX`]. Stored nowhere.
        limit: u32,
    },
    /// Gives a permit another life, and another token.
    Renew {
        /// The permit.
        slot: u32,
        /// Its token, or one that its owner had before.
        token: u64,
        /// The holder: lets an older token of its own count.
        #[serde(borrow)]
        owner: Option<&'a str>,
        /// Life from now on.
        ttl_seconds: u64,
    },
    /// Gives a permit back.
    Release {
        /// The permit.
        slot: u32,
        /// Its token.
        token: u64,
    },
    /// Who holds it.
    Get,
}

/// Somebody who holds a permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The permit.
    pub slot: u32,
    /// `None` for a row that was written by hand.
    pub owner: Option<String>,
    /// Its token now.
    pub token: u64,
    /// When it was taken; renewals do not move it. `None` as for `owner`.
    pub since: Option<Stamp>,
    /// When it was taken or renewed last.
    pub renewed: Stamp,
    /// When it ends; `None` for a row that was written by hand to stay.
    pub expires: Option<Stamp>,
}

/// Result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockResult {
    /// Of `Acquire`: the owner has this permit.
    Acquired {
        /// The permit.
        slot: u32,
        /// Its token.
        token: u64,
        /// The holder.
        owner: String,
        /// The owner had it before, and it was left as it is.
        already: bool,
    },
    /// Of `Acquire`: others have all permits.
    Held(Vec<Holder>),
    /// Of `Renew`.
    Renewed {
        /// The permit.
        slot: u32,
        /// Its new token.
        token: u64,
    },
    /// Of `Release`.
    Released {
        /// The permit.
        slot: u32,
    },
    /// Of `Renew` and `Release`: the permit is not the caller's any more; who holds the lock.
    Lost(Vec<Holder>),
    /// Of `Get`, by slot.
    Holders(Vec<Holder>),
}
