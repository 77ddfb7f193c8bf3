//! Envelopes: how an encrypted payload lies in a frame or a dead letter.
//!
//! Owns: the bytes of an envelope, and the bytes that its tag binds it to. Leaves to others: keys,
//! nonces and the cipher, which is AES-256-GCM (`queen-broker`).
//!
//! ```text
//!  0 version u8, 1
//!  1 key id [8]: first bytes of SHA-256("queen key id" + key)
//!  9 nonce [12]
//! 21 ciphertext, as long as the payload
//!    tag [16]
//! ```
//!
//! The tag also covers where the payload belongs ([`bound_to`]): the ciphertext of one partition
//! does not open in another, be it of another queue or tenant. The incarnation of a queue is left
//! out: what a sink still reads of a deleted queue opens like the rest.

use crate::TenantId;
use std::fmt;

/// The first byte of every envelope.
const VERSION: u8 = 1;
const KEY_ID: usize = 8;
const NONCE: usize = 12;
const TAG: usize = 16;
/// Bytes before the ciphertext.
const HEADER: usize = 1 + KEY_ID + NONCE;
/// Bytes that an envelope has more than its payload.
pub const ENVELOPE_BYTES: usize = HEADER + TAG;

/// Which key opens an envelope. Says nothing of the key itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; KEY_ID]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// An envelope, borrowed from the bytes it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The key that made it.
    pub key: KeyId,
    /// Never twice with one key.
    pub nonce: [u8; NONCE],
    /// Ciphertext and tag.
    pub sealed: &'a [u8],
}

/// The bytes are no envelope that this release reads: why.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadEnvelope {
    /// Fewer bytes than an empty payload's envelope has.
    #[error("{0} bytes are too few for an envelope")]
    Short(usize),
    /// Of another release, or no envelope at all.
    #[error("envelope version {0} is not one that this release reads (1)")]
    Version(u8),
}

impl Envelope<'_> {
    /// Reads an envelope. Whether its tag fits shows only when it is opened.
    pub fn decode(bytes: &[u8]) -> Result<Envelope<'_>, BadEnvelope> {
        match bytes.first() {
            Some(&VERSION) if bytes.len() >= ENVELOPE_BYTES => {}
            None | Some(&VERSION) => return Err(BadEnvelope::Short(bytes.len())),
            Some(&other) => return Err(BadEnvelope::Version(other)),
        }
        let (mut key, mut nonce) = ([0; KEY_ID], [0; NONCE]);
        key.copy_from_slice(&bytes[1..1 + KEY_ID]);
        nonce.copy_from_slice(&bytes[1 + KEY_ID..HEADER]);
        Ok(Envelope { key: KeyId(key), nonce, sealed: &bytes[HEADER..] })
    }

    /// Appends the envelope's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, self.key, self.nonce);
        out.extend_from_slice(self.sealed);
    }
}

/// Appends what stands before ciphertext and tag.
pub fn put_header(out: &mut Vec<u8>, key: KeyId, nonce: [u8; NONCE]) {
    out.push(VERSION);
    out.extend_from_slice(&key.0);
    out.extend_from_slice(&nonce);
}

/// What the tag of an envelope covers beside the payload: the partition it was sealed for.
pub fn bound_to(tenant: TenantId, queue: &str, partition: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(40 + queue.len() + partition.len());
    out.extend_from_slice(b"queen payload 1\0");
    out.extend_from_slice(&tenant.0);
    out.extend_from_slice(&(queue.len() as u64).to_le_bytes());
    out.extend_from_slice(queue.as_bytes());
    out.extend_from_slice(partition.as_bytes());
    out
}

/// Bytes of the payload in an envelope of so many bytes.
pub fn payload_len(envelope_len: usize) -> usize {
    envelope_len.saturating_sub(ENVELOPE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Made with key 00 01 … 1f and nonce a0 … ab, for tenant 1, queue `orders`, partition `cust-1`,
    /// of the payload `{"a":1}`; `queen-broker` opens the same bytes.
    const GOLDEN: &str = include_str!("../golden/envelope-v1.hex");

    fn golden() -> Vec<u8> {
        let hex = GOLDEN.trim();
        (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn the_bytes_of_an_envelope_are_fixed() {
        let bytes = golden();
        let envelope = Envelope::decode(&bytes).unwrap();
        let mut nonce = [0; NONCE];
        (0xa0..).zip(&mut nonce).for_each(|(value, byte)| *byte = value);
        assert_eq!(envelope.nonce, nonce);
        assert_eq!(envelope.sealed.len(), 7 + TAG);
        assert_eq!(payload_len(bytes.len()), 7);
        assert_eq!(bytes[0], 1);
        assert_eq!(bytes[1..9], envelope.key.0);
        let mut again = Vec::new();
        envelope.encode(&mut again);
        assert_eq!(again, bytes);
    }

    #[test]
    fn what_an_envelope_is_bound_to_tells_all_partitions_apart() {
        let one = TenantId::DEFAULT;
        let orders = bound_to(one, "orders", "cust-1");
        assert_eq!(orders.len(), 16 + 16 + 8 + 12);
        assert_eq!(orders[..16], *b"queen payload 1\0");
        assert_ne!(orders, bound_to(one, "orderscust-1", ""));
        assert_ne!(orders, bound_to(one, "orders", "cust-2"));
        assert_ne!(orders, bound_to(TenantId([2; 16]), "orders", "cust-1"));
    }

    #[test]
    fn anything_else_is_refused() {
        assert_eq!(Envelope::decode(b""), Err(BadEnvelope::Short(0)));
        assert_eq!(Envelope::decode(b"{\"a\":1}"), Err(BadEnvelope::Version(b'{')));
        let bytes = golden();
        assert_eq!(Envelope::decode(&bytes[..36]), Err(BadEnvelope::Short(36)));
        assert!(Envelope::decode(&bytes[..ENVELOPE_BYTES]).is_ok());
        let newer = [&[2], &bytes[1..]].concat();
        assert_eq!(Envelope::decode(&newer), Err(BadEnvelope::Version(2)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_envelope_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..90)) {
            if let Ok(envelope) = Envelope::decode(&bytes) {
                let mut again = Vec::new();
                envelope.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
