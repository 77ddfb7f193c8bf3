//! Rows of the KV store: values, their order of expiry, and the count of each namespace.
//!
//! ```text
//! Kv           key  tenant [16] | namespace | 0 | key           value below
//! KvExpiry     key  expiry u64 BE | the row's key in Kv         value empty
//! KvNamespace  key  tenant [16] | namespace                     value count u64
//! Meta         key  "kv_version"                                value the last version given, u64
//!
//! value: 0 format u8 = 1 | 1 version u64 | 9 expiry stamp u64 (MAX = never) | 17 stamp of the write u64 | 25 JSON text
//! ```
//!
//! A namespace has no NUL, so the rows of one namespace lie together, in byte order of their keys.

use super::{BadRow, u64_at};
use crate::{Stamp, TenantId};
use bytes::Bytes;

/// Format byte of a value.
pub const FORMAT: u8 = 1;
/// Key in `Meta` of the last version given to a KV row of any tenant.
pub const VERSION_KEY: &[u8] = b"kv_version";

const HEADER_BYTES: usize = 25;

/// A row of `Kv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvValue {
    /// Version of the write.
    pub version: u64,
    /// From this stamp on the row is gone; [`Stamp::MAX`] = never.
    pub expires: Stamp,
    /// Stamp of the write.
    pub updated: Stamp,
    /// Compact JSON text.
    pub value: Bytes,
}

impl KvValue {
    /// The row's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.value.len());
        out.push(FORMAT);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.expires.0.to_le_bytes());
        out.extend_from_slice(&self.updated.0.to_le_bytes());
        out.extend_from_slice(&self.value);
        out
    }

    /// Reads a row; its value shares the bytes.
    pub fn decode(bytes: &Bytes) -> Result<KvValue, BadRow> {
        let bad = |what| BadRow { table: "kv", what };
        if bytes.first() != Some(&FORMAT) {
            return Err(bad("format 1"));
        }
        let number = |at| u64_at(bytes, at).ok_or(bad("25 bytes before the value"));
        Ok(KvValue {
            version: number(1)?,
            expires: Stamp(number(9)?),
            updated: Stamp(number(17)?),
            value: bytes.slice(HEADER_BYTES..),
        })
    }
}

/// Key in `Kv`.
pub fn key(tenant: TenantId, ns: &str, key: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(17 + ns.len() + key.len());
    out.extend_from_slice(&tenant.0);
    out.extend_from_slice(ns.as_bytes());
    out.push(0);
    out.extend_from_slice(key.as_bytes());
    out
}

/// Reads a key of `Kv` back: tenant, namespace, key.
pub fn parse_key(bytes: &[u8]) -> Result<(TenantId, &str, &str), BadRow> {
    let bad = BadRow { table: "kv", what: "a key of tenant, namespace and key" };
    let (tenant, rest) = bytes.split_first_chunk::<16>().ok_or(bad.clone())?;
    let text = std::str::from_utf8(rest).map_err(|_| bad.clone())?;
    let (ns, key) = text.split_once('\0').ok_or(bad)?;
    Ok((TenantId(*tenant), ns, key))
}

/// The range of keys in `Kv` that begin with `prefix` in a namespace: first, and the one after the last.
pub fn prefix_range(tenant: TenantId, ns: &str, prefix: &str) -> (Vec<u8>, Vec<u8>) {
    let from = key(tenant, ns, prefix);
    let mut to = from.clone();
    // A namespace or a key is UTF-8 and the byte before is 0, so the last byte is never 0xff.
    if let Some(last) = to.last_mut() {
        *last += 1;
    }
    (from, to)
}

/// Key in `KvExpiry`.
pub fn expiry_key(expires: Stamp, row_key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + row_key.len());
    out.extend_from_slice(&expires.0.to_be_bytes());
    out.extend_from_slice(row_key);
    out
}

/// Reads a key of `KvExpiry` back: the expiry, the row's key in `Kv`.
pub fn parse_expiry_key(bytes: &[u8]) -> Result<(Stamp, &[u8]), BadRow> {
    let bad = BadRow { table: "kv_expiry", what: "a key of 8 bytes and a KV key" };
    let (stamp, row_key) = bytes.split_first_chunk::<8>().ok_or(bad)?;
    Ok((Stamp(u64::from_be_bytes(*stamp)), row_key))
}

/// Key in `KvNamespace`.
pub fn namespace_key(tenant: TenantId, ns: &str) -> Vec<u8> {
    let mut out = tenant.0.to_vec();
    out.extend_from_slice(ns.as_bytes());
    out
}

/// Bytes of a count or a version.
pub fn encode_number(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Reads a count or a version; an absent row is 0.
pub fn decode_number(bytes: Option<&Bytes>) -> Result<u64, BadRow> {
    match bytes {
        None => Ok(0),
        Some(bytes) if bytes.len() == 8 => Ok(u64_at(bytes, 0).unwrap_or_default()),
        Some(_) => Err(BadRow { table: "kv_namespace", what: "8 bytes" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_kv_row_are_fixed() {
        let row = KvValue {
            version: 2,
            expires: Stamp::MAX,
            updated: Stamp(0x0102),
            value: Bytes::from_static(b"{}"),
        };
        let bytes = Bytes::from(row.encode());
        let want = b"\x01\x02\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\x02\x01\0\0\0\0\0\0{}";
        assert_eq!(&bytes[..], want);
        assert_eq!(KvValue::decode(&bytes).unwrap(), row);
        for cut in 0..HEADER_BYTES {
            assert!(KvValue::decode(&bytes.slice(..cut)).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn keys_read_back_and_sort_inside_their_namespace() {
        let tenant = TenantId::DEFAULT;
        let one = key(tenant, "a", "k/é");
        assert_eq!(parse_key(&one).unwrap(), (tenant, "a", "k/é"));
        let (stamp, row_key) = (Stamp(7), &one[..]);
        let expiry = expiry_key(stamp, row_key);
        assert_eq!(parse_expiry_key(&expiry).unwrap(), (stamp, row_key));
        let (from, to) = prefix_range(tenant, "a", "k");
        assert!(from <= one && one < to);
        for other in [key(tenant, "a", "l"), key(tenant, "ab", "k"), key(tenant, "a", "j\u{ff}")] {
            assert!(other < from || other >= to);
        }
        assert!(parse_key(b"short").is_err() && parse_expiry_key(b"short").is_err());
    }
}
