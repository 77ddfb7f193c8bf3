//! Tenants: every row, key and name belongs to one.

use serde::{Deserialize, Serialize};

/// A tenant's UUID, in big-endian bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TenantId(pub [u8; 16]);

impl TenantId {
    /// `00000000-0000-0000-0000-000000000001`, whose tenant every call is when tenancy is off.
    pub const DEFAULT: TenantId = TenantId([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

    /// Reads a UUID in any of its text forms.
    pub fn parse(text: &str) -> Option<TenantId> {
        uuid::Uuid::try_parse(text).ok().map(|u| TenantId(u.into_bytes()))
    }
}

impl std::fmt::Display for TenantId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        uuid::Uuid::from_bytes(self.0).fmt(f)
    }
}
