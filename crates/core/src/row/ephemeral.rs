//! Rows of declared ephemeral queues. What is in such a queue is in no row.
//!
//! ```text
//! EphemeralQueue  [16] tenant, name  → what is declared
//! Meta            "ephemeral"        → how many there are
//! ```

use super::Row;
use crate::ephemeral::EphemeralOptions;
use crate::table::Table;
use crate::{Stamp, TenantId};
use serde::{Deserialize, Serialize};

/// Key of [`Table::Meta`] for [`EphemeralTotalsRow`].
pub const META_EPHEMERAL: &[u8] = b"ephemeral";

/// A declared queue. Tenant and name are its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EphemeralRow {
    /// What is declared.
    pub options: EphemeralOptions,
    /// Stamp of the first declaration.
    pub created: Stamp,
}

/// All declared queues together ([`META_EPHEMERAL`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EphemeralTotalsRow {
    /// Queues.
    pub declared: u64,
}

impl Row for EphemeralRow {
    const TABLE: Table = Table::EphemeralQueue;
}

impl Row for EphemeralTotalsRow {
    const TABLE: Table = Table::Meta;
}

/// `EphemeralQueue`: tenant, queue name.
pub fn queue(tenant: TenantId, queue: &str) -> Vec<u8> {
    [&tenant.0[..], queue.as_bytes()].concat()
}

/// The name in an `EphemeralQueue` key.
pub fn name_of(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.get(16..)?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;
    use crate::ephemeral::{FullPolicy, Window};

    #[test]
    fn the_bytes_of_declared_queues_are_fixed() {
        let options = EphemeralOptions {
            max_bytes: Some(300),
            policy: Some(FullPolicy::DropOldest),
            retry_limit: Some(0),
            window: Some(Window { ms: 25, count: 50 }),
            ..EphemeralOptions::default()
        };
        let row = EphemeralRow { options, created: Stamp(7) };
        assert_golden(&row, "0101ac0200010100000100011932 07".replace(' ', "").as_str());
        assert_golden(&EphemeralTotalsRow { declared: 300 }, "01ac02");
        let key = queue(TenantId::DEFAULT, "ä/b");
        assert_eq!((key.len(), name_of(&key), name_of(&key[..15])), (20, Some("ä/b"), None));
    }
}
