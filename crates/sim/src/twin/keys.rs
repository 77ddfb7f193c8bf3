//! The keys of encrypted queues, with the broker's own cipher.
//!
//! Owns: which keys there are, and whether the sink's nodes have them. Leaves to others: the cipher
//! (`queen-broker`), which queues are encrypted (`broker`).
//!
//! Nonces differ from run to run: nothing that a run shows depends on them.

use queen_broker::keyring::{Keyring, SecretKey};

/// The keys.
pub(super) struct Keys {
    /// Every key there was, the newest last.
    all: Vec<SecretKey>,
    /// Those of whoever pushes: all, always.
    writes: Keyring,
    /// Those of the sink's nodes: all or none.
    reads: Keyring,
}

impl Keys {
    /// One key.
    pub(super) fn new() -> Keys {
        let mut keys = Keys { all: Vec::new(), writes: Keyring::none(), reads: Keyring::none() };
        keys.rotate();
        keys
    }

    fn ring(&self) -> Keyring {
        Keyring::new(self.all.last(), &self.all).unwrap()
    }

    /// A new key, which every node gets.
    pub(super) fn rotate(&mut self) {
        self.all.push(SecretKey::new([self.all.len() as u8 + 1; 32]));
        self.writes = self.ring();
        self.give(true);
    }

    /// The sink's nodes have the keys, or none.
    pub(super) fn give(&mut self, give: bool) {
        self.reads = if give { self.ring() } else { Keyring::none() };
    }

    /// Appends the envelope of a payload.
    pub(super) fn seal(&self, bound: &[u8], payload: &[u8], out: &mut Vec<u8>) {
        self.writes.seal(bound, payload, out).unwrap();
    }

    /// Appends the payload of an envelope.
    pub(super) fn open(
        &self,
        bound: &[u8],
        envelope: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        self.reads.open(bound, envelope, out).map_err(|why| why.to_string())
    }
}
