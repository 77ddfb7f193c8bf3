//! Log entries: the commands that the leader stamped and appended together.
//!
//! Owns: the bytes of an entry. Leaves to others: what a command says (`command`), and the log that
//! carries entries (`queen-raft`, which sees only bytes).
//!
//! Little-endian. Command `i` is stamped `first_stamp + i` microseconds. The log below checks the
//! bytes, so an entry has no checksum of its own.
//!
//! ```text
//! 0 version u8 = 1 | 1 origin u64 | 9 batch u64 | 17 first_stamp u64 | 25 count u32
//! 29 per command: length u32, bytes
//! ```

use crate::Stamp;

/// Version of the entry's layout.
pub const VERSION: u8 = 1;
/// Bytes before the first command.
pub const HEADER_BYTES: usize = 29;

/// What an entry says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// Who proposed it: a number drawn at each start of a node. Tells a proposer its own entries.
    pub origin: u64,
    /// Count of the proposer's batches.
    pub batch: u64,
    /// Stamp of the first command.
    pub first_stamp: Stamp,
    /// Commands in the entry.
    pub count: u32,
}

/// The bytes are not an entry: why.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadEntry {
    /// Cut short, or lengths that do not add up.
    #[error("the log entry is cut short at byte {0}")]
    Short(usize),
    /// Written by a newer release.
    #[error("log entry version {0} is newer than this release reads (1)")]
    Version(u8),
}

impl EntryHeader {
    /// Appends the header's bytes; the commands follow with [`put_command`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes());
    }

    /// The header's bytes, for a place kept free in front of the commands.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [VERSION; HEADER_BYTES];
        out[1..9].copy_from_slice(&self.origin.to_le_bytes());
        out[9..17].copy_from_slice(&self.batch.to_le_bytes());
        out[17..25].copy_from_slice(&self.first_stamp.0.to_le_bytes());
        out[25..29].copy_from_slice(&self.count.to_le_bytes());
        out
    }

    /// Stamp of the command numbered `index` in the entry.
    pub fn stamp(&self, index: u32) -> Stamp {
        Stamp(self.first_stamp.0 + u64::from(index))
    }
}

/// Appends one command's bytes to an entry.
pub fn put_command(out: &mut Vec<u8>, command: &[u8]) {
    out.extend_from_slice(&(command.len() as u32).to_le_bytes());
    out.extend_from_slice(command);
}

/// Reads an entry: its header and its commands' bytes, in order. Bytes after the last command are an error.
pub fn decode(bytes: &[u8]) -> Result<(EntryHeader, Vec<&[u8]>), BadEntry> {
    match bytes.first() {
        Some(&VERSION) => {}
        Some(&other) => return Err(BadEntry::Version(other)),
        None => return Err(BadEntry::Short(0)),
    }
    let u64_at = |at: usize| -> Result<u64, BadEntry> {
        let part = bytes.get(at..at + 8).ok_or(BadEntry::Short(bytes.len()))?;
        Ok(part.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let u32_at = |at: usize| -> Result<u32, BadEntry> {
        let part = bytes.get(at..at + 4).ok_or(BadEntry::Short(bytes.len()))?;
        Ok(part.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    };
    let header = EntryHeader {
        origin: u64_at(1)?,
        batch: u64_at(9)?,
        first_stamp: Stamp(u64_at(17)?),
        count: u32_at(25)?,
    };
    let mut at = HEADER_BYTES;
    let mut commands = Vec::with_capacity((header.count as usize).min(bytes.len() / 4));
    for _ in 0..header.count {
        let len = u32_at(at)? as usize;
        let end = at.checked_add(4 + len).ok_or(BadEntry::Short(at))?;
        commands.push(bytes.get(at + 4..end).ok_or(BadEntry::Short(at))?);
        at = end;
    }
    if at != bytes.len() {
        return Err(BadEntry::Short(at));
    }
    Ok((header, commands))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_of_an_entry_are_fixed() {
        let mut out = Vec::new();
        let header = EntryHeader { origin: 2, batch: 3, first_stamp: Stamp(4), count: 2 };
        header.encode(&mut out);
        put_command(&mut out, b"ab");
        put_command(&mut out, b"");
        let want = b"\x01\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x02\0\0\0\x02\0\0\0ab\0\0\0\0";
        assert_eq!(out, want);
        let (back, commands) = decode(&out).unwrap();
        assert_eq!((back, commands), (header, vec![&b"ab"[..], &b""[..]]));
        for cut in 0..out.len() {
            assert!(decode(&out[..cut]).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            if let Some(first) = bytes.first_mut() { *first = VERSION; }
            let _ = decode(&bytes);
        }
    }
}
