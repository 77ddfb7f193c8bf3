//! The vote: in which term, and for whom, this node voted last.
//!
//! Owns: the file `<dir>/vote`, synced before the vote counts. Leaves to others: who to vote for (the
//! library).
//!
//! The file is one block that is overwritten in place, past the page cache: no metadata changes, so an
//! election waits for no commit of the file system's journal, which takes long while much is written.
//! All that means something lies in one sector, which the disk writes whole or not at all (see `wal`); a
//! disk that does not keep to that leaves bytes that are refused at the next start.
//!
//! Little-endian:
//!
//! ```text
//! 0 magic u32 "QVOT" | 4 version u16 = 2 | 6 committed u16 (0 or 1) | 8 term u64 | 16 node u64
//! 24 crc32 u32 of bytes 0..24 | 28 zeros up to 4096
//! ```
//!
//! Version 1 ends after the checksum; it is read, and replaced by the next save.

use crate::StartError;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = *b"QVOT";
const VERSION: u16 = 2;
/// Bytes that mean something: all of a file of version 1.
const BYTES: usize = 28;
/// Bytes of the file.
const BLOCK: usize = 4096;

/// Aligned as a write past the page cache must be.
#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

/// A vote, in the log's own terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedVote {
    /// The term that it was given in.
    pub term: u64,
    /// Whom it was given to.
    pub node: u64,
    /// A quorum granted it.
    pub committed: bool,
}

/// Saves the vote so that it outlives a power cut.
pub(crate) fn save(dir: &Path, vote: SavedVote) -> io::Result<()> {
    let block = Block(encode(vote));
    if let Some(file) = open_block(&path(dir)) {
        file.write_all_at(&block.0, 0)?;
        return file.sync_data();
    }
    let aside = dir.join("vote.new");
    let mut file = File::create(&aside)?;
    file.write_all(&block.0)?;
    file.sync_all()?;
    std::fs::rename(&aside, path(dir))?;
    File::open(dir)?.sync_all()
}

/// The file, if it is there and a block: past the page cache where the file system can.
fn open_block(path: &Path) -> Option<File> {
    let whole = std::fs::metadata(path).is_ok_and(|about| about.len() == BLOCK as u64);
    let open = |flags| OpenOptions::new().write(true).custom_flags(flags).open(path).ok();
    whole.then(|| open(libc::O_DIRECT).or_else(|| open(0))).flatten()
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
    let version = match bytes.len() {
        BYTES => 1,
        BLOCK => VERSION,
        _ => return Err(damaged("it has not the length of a vote")),
    };
    let (bytes, rest) = bytes.split_at(BYTES);
    let (body, crc) = bytes.split_at(BYTES - 4);
    let sound = body[..4] == MAGIC && crc == crc32fast::hash(body).to_le_bytes();
    if !sound || rest.iter().any(|byte| *byte != 0) {
        return Err(damaged("it is not the vote that was written"));
    }
    let number = |at: usize, len: usize| {
        body[at..at + len].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    if number(4, 2) != u64::from(version) {
        let (version, supported) = (number(4, 2) as u32, u32::from(VERSION));
        return Err(StartError::NewerFormat { path, version, supported });
    }
    let (term, node) = (number(8, 8), number(16, 8));
    Ok(Some(SavedVote { term, node, committed: number(6, 2) != 0 }))
}

fn path(dir: &Path) -> PathBuf {
    dir.join("vote")
}

fn encode(vote: SavedVote) -> [u8; BLOCK] {
    let mut out = [0; BLOCK];
    out[0..4].copy_from_slice(&MAGIC);
    out[4..6].copy_from_slice(&VERSION.to_le_bytes());
    out[6..8].copy_from_slice(&u16::from(vote.committed).to_le_bytes());
    out[8..16].copy_from_slice(&vote.term.to_le_bytes());
    out[16..24].copy_from_slice(&vote.node.to_le_bytes());
    let crc = crc32fast::hash(&out[..24]);
    out[24..BYTES].copy_from_slice(&crc.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_vote_are_fixed() {
        let bytes = encode(SavedVote { term: 2, node: 3, committed: true });
        let want = b"QVOT\x02\0\x01\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
        assert_eq!(&bytes[..24], want);
        assert_eq!(bytes[24..BYTES], crc32fast::hash(want).to_le_bytes());
        assert_eq!(bytes[BYTES..], [0; BLOCK - BYTES]);
    }

    #[test]
    fn a_vote_of_version_1_is_read_and_replaced_by_a_block() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = b"QVOT\x01\0\x01\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0".to_vec();
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        std::fs::write(dir.path().join("vote"), bytes).unwrap();
        let old = SavedVote { term: 2, node: 3, committed: true };
        assert_eq!(load(dir.path()).unwrap(), Some(old));
        for term in 3..6 {
            let vote = SavedVote { term, ..old };
            save(dir.path(), vote).unwrap();
            assert_eq!(load(dir.path()).unwrap(), Some(vote));
            assert_eq!(std::fs::metadata(dir.path().join("vote")).unwrap().len(), BLOCK as u64);
        }
    }

    #[test]
    fn a_vote_is_saved_in_place() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let file = || std::fs::metadata(dir.path().join("vote")).unwrap().ino();
        let vote = SavedVote { term: 1, node: 1, committed: false };
        save(dir.path(), vote).unwrap();
        let first = file();
        save(dir.path(), SavedVote { term: 2, ..vote }).unwrap();
        assert_eq!(file(), first);
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
        // All that means something, and some of what does not.
        let places = || (0..2 * BYTES).chain([BLOCK / 2, BLOCK - 1]);
        for at in places() {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            std::fs::write(&path, &bad).unwrap();
            let text = load(dir.path()).unwrap_err().to_string();
            assert!(text.contains("vote is damaged at byte 0"), "{text}");
        }
        for at in places().filter(|at| *at != BYTES) {
            std::fs::write(&path, &bytes[..at]).unwrap();
            assert!(load(dir.path()).is_err(), "{at} bytes");
        }
    }
}
