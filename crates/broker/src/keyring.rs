//! The keys that encrypt payloads at rest: sealing with one, opening with any.
//!
//! Owns: the cipher (AES-256-GCM), nonces, key ids. Leaves to others: the bytes of an envelope
//! (`queen_core::envelope`), which payloads are sealed and opened (`sealing`), where keys come from
//! (the binary).
//!
//! Nonces of 96 bits count up from a place drawn at random at each start, so two messages under one
//! key can share a nonce only if two starts overlap: a chance of at most starts × messages / 2^96.
//! Nonces drawn for each message would reach the usual bound of 2^-32 after 2^32 messages, which a
//! busy broker has in hours; these reach it after 65,536 starts and 2^48 messages together.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{digest, rand};
use queen_core::envelope::{self, Envelope, KeyId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// A key: 32 secret bytes, which no text of it shows.
#[derive(Clone)]
pub struct SecretKey([u8; KEY_BYTES]);

impl SecretKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> SecretKey {
        SecretKey(bytes)
    }

    /// Reads 64 hex digits; `None` for anything else.
    pub fn parse(hex: &str) -> Option<SecretKey> {
        let digits = hex.as_bytes();
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        let mut key = [0; KEY_BYTES];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
        }
        Some(SecretKey(key))
    }

    /// Which key it is.
    pub fn id(&self) -> KeyId {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(b"queen key id");
        hash.update(&self.0);
        let (mut id, hash) = (KeyId([0; 8]), hash.finish());
        id.0.copy_from_slice(&hash.as_ref()[..8]);
        id
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.id())
    }
}

/// The keys of a node: one that writes, if it has one, and all that read.
pub struct Keyring {
    current: Option<KeyId>,
    keys: BTreeMap<KeyId, LessSafeKey>,
    /// The first nonce of this start, and how many were taken.
    first: u128,
    taken: AtomicU64,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<&KeyId> = self.keys.keys().collect();
        f.debug_struct("Keyring").field("current", &self.current).field("keys", &ids).finish()
    }
}

/// The cipher or the system's source of chance failed.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("the cipher failed")]
pub struct CipherFailed;

/// Why an envelope does not open.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unopened {
    /// The key is not here.
    #[error(
        "is encrypted with key {0}, which this node does not have: set QUEEN_ENCRYPTION_KEY to that \
         key, or list it in QUEEN_ENCRYPTION_KEY_PREVIOUS, and restart"
    )]
    NoKey(KeyId),
    /// The bytes are no envelope.
    #[error("is marked as encrypted but cannot be read: {0}")]
    Malformed(envelope::BadEnvelope),
    /// The key is here, and the tag does not fit.
    #[error(
        "does not pass the check with key {0}: its bytes are damaged, or were written for another \
         queue or partition"
    )]
    Damaged(KeyId),
}

impl Keyring {
    /// A node without keys: it seals and opens nothing.
    pub fn none() -> Keyring {
        Keyring { current: None, keys: BTreeMap::new(), first: 0, taken: AtomicU64::new(0) }
    }

    /// `current` writes and reads, `previous` only read.
    pub fn new(
        current: Option<&SecretKey>,
        previous: &[SecretKey],
    ) -> Result<Keyring, CipherFailed> {
        let mut keys = BTreeMap::new();
        for key in current.into_iter().chain(previous) {
            let unbound = UnboundKey::new(&AES_256_GCM, &key.0).map_err(|_| CipherFailed)?;
            keys.insert(key.id(), LessSafeKey::new(unbound));
        }
        let mut first = [0; 16];
        rand::fill(&mut first).map_err(|_| CipherFailed)?;
        Ok(Keyring {
            current: current.map(SecretKey::id),
            keys,
            first: u128::from_le_bytes(first),
            taken: AtomicU64::new(0),
        })
    }

    /// The key that new payloads are sealed with.
    pub fn current(&self) -> Option<KeyId> {
        self.current
    }

    /// Whether a payload sealed with this key opens here.
    pub fn has(&self, key: KeyId) -> bool {
        self.keys.contains_key(&key)
    }

    fn nonce(&self) -> [u8; 12] {
        let number = u128::from(self.taken.fetch_add(1, Ordering::Relaxed));
        let mut nonce = [0; 12];
        nonce.copy_from_slice(&self.first.wrapping_add(number).to_le_bytes()[..12]);
        nonce
    }

    /// Appends the envelope of a payload to `out`; `None` when there is no key to write with.
    pub fn seal(&self, bound: &[u8], payload: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let current = self.current?;
        let (key, nonce) = (self.keys.get(&current)?, self.nonce());
        envelope::put_header(out, current, nonce);
        let at = out.len();
        out.extend_from_slice(payload);
        let nonce = Nonce::assume_unique_for_key(nonce);
        // Fails for payloads beyond 64 GiB only.
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(bound), &mut out[at..]).ok()?;
        out.extend_from_slice(tag.as_ref());
        Some(())
    }

    /// Appends the payload of an envelope to `out`; on an error `out` is as it was.
    pub fn open(&self, bound: &[u8], bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Unopened> {
        let envelope = Envelope::decode(bytes).map_err(Unopened::Malformed)?;
        let key = self.keys.get(&envelope.key).ok_or(Unopened::NoKey(envelope.key))?;
        let at = out.len();
        out.extend_from_slice(envelope.sealed);
        let nonce = Nonce::assume_unique_for_key(envelope.nonce);
        let opened = key.open_in_place(nonce, Aad::from(bound), &mut out[at..]);
        let len = opened.map(|payload| payload.len());
        out.truncate(at + len.unwrap_or(0));
        len.map(drop).map_err(|_| Unopened::Damaged(envelope.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use queen_core::TenantId;

    fn key(byte: u8) -> SecretKey {
        SecretKey::new([byte; KEY_BYTES])
    }

    fn sealed(ring: &Keyring, bound: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        ring.seal(bound, payload, &mut out).unwrap();
        out
    }

    fn opened(ring: &Keyring, bound: &[u8], bytes: &[u8]) -> Result<Vec<u8>, Unopened> {
        let mut out = b"kept".to_vec();
        let result = ring.open(bound, bytes, &mut out);
        assert_eq!(out[..4], *b"kept");
        assert!(result.is_ok() || out.len() == 4, "nothing is left of what does not open");
        result.map(|()| out.split_off(4))
    }

    #[test]
    fn another_implementation_made_the_golden_envelope_and_it_opens() {
        let hex = include_str!("../../core/golden/envelope-v1.hex").trim();
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
            .collect();
        let mut secret = [0; KEY_BYTES];
        (0..).zip(&mut secret).for_each(|(value, byte)| *byte = value);
        let ring = Keyring::new(Some(&SecretKey::new(secret)), &[]).unwrap();
        let bound = envelope::bound_to(TenantId::DEFAULT, "orders", "cust-1");
        assert_eq!(opened(&ring, &bound, &bytes).unwrap(), b"{\"a\":1}");
    }

    #[test]
    fn a_payload_opens_with_its_key_where_it_belongs_and_nowhere_else() {
        let old = Keyring::new(Some(&key(1)), &[]).unwrap();
        let bytes = sealed(&old, b"here", b"{\"n\":1}");
        let rotated = Keyring::new(Some(&key(2)), &[key(1)]).unwrap();
        assert_eq!(opened(&rotated, b"here", &bytes).unwrap(), b"{\"n\":1}");
        let new = sealed(&rotated, b"here", b"");
        assert_eq!(Envelope::decode(&new).unwrap().key, key(2).id());
        assert_eq!(opened(&rotated, b"here", &new).unwrap(), b"");
        let id = key(1).id();
        assert_eq!(opened(&rotated, b"there", &bytes), Err(Unopened::Damaged(id)));
        let other = Keyring::new(Some(&key(2)), &[]).unwrap();
        assert_eq!(opened(&other, b"here", &bytes), Err(Unopened::NoKey(id)));
        assert_eq!(opened(&Keyring::none(), b"here", &bytes), Err(Unopened::NoKey(id)));
        assert!(opened(&rotated, b"here", b"{\"n\":1}").is_err());
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let ring = Keyring::new(Some(&key(1)), &[]).unwrap();
        let bytes = sealed(&ring, b"here", b"{\"n\":1}");
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(opened(&ring, b"here", &changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn no_two_envelopes_of_a_key_share_a_nonce() {
        let mut nonces = std::collections::BTreeSet::new();
        for _ in 0..4 {
            let ring = Keyring::new(Some(&key(1)), &[]).unwrap();
            for _ in 0..1000 {
                let bytes = sealed(&ring, b"", b"same");
                assert!(nonces.insert(Envelope::decode(&bytes).unwrap().nonce));
            }
        }
        // A count that runs over the end of 96 bits goes on at 0.
        let end = Keyring { first: u128::MAX >> 32, ..Keyring::new(None, &[key(1)]).unwrap() };
        assert_eq!((end.nonce(), end.nonce()), ([255; 12], [0; 12]));
    }

    #[test]
    fn a_node_without_a_current_key_seals_nothing() {
        let ring = Keyring::new(None, &[key(1)]).unwrap();
        assert_eq!(ring.seal(b"", b"x", &mut Vec::new()), None);
        assert!(ring.has(key(1).id()) && ring.current().is_none());
    }

    #[test]
    fn a_key_is_64_hex_digits_and_no_text_shows_it() {
        let text = "00112233445566778899aAbBcCdDeEfF00112233445566778899aabbccddeeff";
        let key = SecretKey::parse(text).unwrap();
        assert_eq!(key.0[..4], [0, 0x11, 0x22, 0x33]);
        for wrong in
            [&text[..63], &format!("{text}0"), &text.replace('f', "g"), "", &"é".repeat(32)]
        {
            assert!(SecretKey::parse(wrong).is_none(), "{wrong}");
        }
        let ring = Keyring::new(Some(&key), &[]).unwrap();
        for shown in [format!("{key:?}"), format!("{ring:?}")] {
            assert!(shown.contains(&key.id().to_string()) && !shown.contains("0011"), "{shown}");
        }
    }
}
