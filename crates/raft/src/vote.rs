//! The vote: in which term, and for whom, this node voted last.
//!
//! Owns: the file `<dir>/vote`, replaced whole and synced before the vote counts. Leaves to others: who
//! to vote for (the library).
//!
//! Little-endian:
//!
//! ```text
//! 0 magic u32 "QVOT" | 4 version u16 = 1 | 6 committed u16 (0 or 1) | 8 term u64 | 16 node u64
//! 24 crc32 u32 of bytes 0..24
//! ```

use crate::StartError;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = *b"QVOT";
const VERSION: u16 = 1;
const BYTES: usize = 28;

/// A vote, in the log's own terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedVote {
    pub(crate) term: u64,
    pub(crate) node: u64,
    /// A quorum granted it.
    pub(crate) committed: bool,
}

/// Saves the vote so that it outlives a power cut.
pub(crate) fn save(dir: &Path, vote: SavedVote) -> io::Result<()> {
    let aside = dir.join("vote.new");
    let mut file = File::create(&aside)?;
    file.write_all(&encode(vote))?;
    file.sync_all()?;
    std::fs::rename(&aside, path(dir))?;
    File::open(dir)?.sync_all()
}

/// The vote saved last; `None` when there was none.
pub(crate) fn load(dir: &Path) -> Result<Option<SavedVote>, StartError> {
    let path = path(dir);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StartError::Io { action: "read", path, source }),
    };
    let damaged =
        |what: &str| StartError::Damaged { path: path.clone(), position: 0, what: what.to_owned() };
    let Ok(bytes) = <[u8; BYTES]>::try_from(&bytes[..]) else {
        return Err(damaged("it has not the length of a vote"));
    };
    let (body, crc) = bytes.split_at(BYTES - 4);
    if body[..4] != MAGIC || crc != crc32fast::hash(body).to_le_bytes() {
        return Err(damaged("it is not the vote that was written"));
    }
    let number = |at: usize, len: usize| {
        body[at..at + len].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    if number(4, 2) != u64::from(VERSION) {
        let (version, supported) = (number(4, 2) as u32, u32::from(VERSION));
        return Err(StartError::NewerFormat { path, version, supported });
    }
    let (term, node) = (number(8, 8), number(16, 8));
    Ok(Some(SavedVote { term, node, committed: number(6, 2) != 0 }))
}

fn path(dir: &Path) -> PathBuf {
    dir.join("vote")
}

fn encode(vote: SavedVote) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    out[0..4].copy_from_slice(&MAGIC);
    out[4..6].copy_from_slice(&VERSION.to_le_bytes());
    out[6..8].copy_from_slice(&u16::from(vote.committed).to_le_bytes());
    out[8..16].copy_from_slice(&vote.term.to_le_bytes());
    out[16..24].copy_from_slice(&vote.node.to_le_bytes());
    let crc = crc32fast::hash(&out[..24]);
    out[24..28].copy_from_slice(&crc.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_vote_are_fixed() {
        let bytes = encode(SavedVote { term: 2, node: 3, committed: true });
        let want = b"QVOT\x01\0\x01\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
        assert_eq!(&bytes[..24], want);
        assert_eq!(bytes[24..], crc32fast::hash(want).to_le_bytes());
    }

    #[test]
    fn a_vote_is_read_back_and_a_damaged_one_stops_the_start() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(load(dir.path()).unwrap(), None);
        let vote = SavedVote { term: 7, node: 1, committed: false };
        save(dir.path(), SavedVote { term: 6, ..vote }).unwrap();
        save(dir.path(), vote).unwrap();
        assert_eq!(load(dir.path()).unwrap(), Some(vote));
        let path = dir.path().join("vote");
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            std::fs::write(&path, &bad).unwrap();
            let text = load(dir.path()).unwrap_err().to_string();
            assert!(text.contains("vote is damaged at byte 0"), "{text}");
            std::fs::write(&path, &bytes[..at]).unwrap();
            assert!(load(dir.path()).is_err());
        }
    }
}
