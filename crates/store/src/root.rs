//! Which directory holds the store's files.
//!
//! Owns: the file `root`, the names of the generations, removing those that do not count. Leaves to
//! others: what lies in a generation (`recovery`), filling a new one (`import`).
//!
//! A new store lies in its directory itself, and there is no file `root`. An image that is
//! installed lies in a directory beside; the file `root` names it, and is replaced as a whole.
//! What it does not name counts for nothing and is removed at the next start.
//!
//! ```text
//! <dir>/root              0 magic "QROT" | 4 version u8 = 1 | 5 number u64 LE | 13 xxh3 of 0..13 u64 LE
//! <dir>/image-<number>    the generation of that number
//! ```

use crate::disk::remove_dir;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

const FILE: &str = "root";
const PREPARED: &str = "root.new";
const PREFIX: &str = "image-";
const MAGIC: &[u8; 4] = b"QROT";
const VERSION: u8 = 1;
const BYTES: usize = 21;

/// Number of the generation that lies in the store's directory itself.
pub(crate) const FIRST: u64 = 0;

/// The directory of a generation.
pub(crate) fn dir_of(dir: &Path, number: u64) -> PathBuf {
    match number {
        FIRST => dir.to_owned(),
        number => dir.join(format!("{PREFIX}{number}")),
    }
}

/// What a generation has on the disk: its directory, or what is its own in the store's.
pub(crate) fn owned(dir: &Path, number: u64, parts: &[&str]) -> Vec<PathBuf> {
    match number {
        FIRST => parts.iter().map(|part| dir.join(part)).collect(),
        number => vec![dir_of(dir, number)],
    }
}

/// The number of the generation that counts.
pub(crate) fn current(dir: &Path) -> io::Result<u64> {
    match std::fs::read(dir.join(FILE)) {
        Ok(bytes) => decode(&bytes).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FIRST),
        Err(error) => Err(error),
    }
}

/// A number that no generation in the directory has.
pub(crate) fn unused(dir: &Path) -> io::Result<u64> {
    let mut last = current(dir)?;
    for child in std::fs::read_dir(dir)? {
        let number = child?.file_name().to_str().and_then(number_of);
        last = last.max(number.unwrap_or(FIRST));
    }
    Ok(last + 1)
}

/// Writes down, beside the file that counts, that a generation will: synced, and of no effect yet.
pub(crate) fn prepare(dir: &Path, number: u64) -> io::Result<()> {
    let mut file = File::create(dir.join(PREPARED))?;
    file.write_all(&encode(number))?;
    file.sync_all()
}

/// Lets the prepared generation count. Of effect at once; durable with [`sync`].
pub(crate) fn switch(dir: &Path) -> io::Result<()> {
    std::fs::rename(dir.join(PREPARED), dir.join(FILE))
}

/// Makes names in a directory durable.
pub(crate) fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Removes all generations but one, and what an import has left.
pub(crate) fn remove_others(dir: &Path, number: u64, parts: &[&str]) -> io::Result<()> {
    let _ = std::fs::remove_file(dir.join(PREPARED));
    for child in std::fs::read_dir(dir)? {
        let name = child?.file_name();
        let other = name.to_str().and_then(number_of).filter(|&other| other != number);
        if let Some(other) = other {
            remove_dir(&dir_of(dir, other));
        }
    }
    if number != FIRST {
        owned(dir, FIRST, parts).iter().for_each(|part| remove_dir(part));
    }
    Ok(())
}

/// The number of a generation's directory name.
fn number_of(name: &str) -> Option<u64> {
    let number: u64 = name.strip_prefix(PREFIX)?.parse().ok()?;
    (number != FIRST && format!("{PREFIX}{number}") == name).then_some(number)
}

pub(crate) fn encode(number: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..4].copy_from_slice(MAGIC);
    bytes[4] = VERSION;
    bytes[5..13].copy_from_slice(&number.to_le_bytes());
    let check = xxh3_64(&bytes[..13]);
    bytes[13..].copy_from_slice(&check.to_le_bytes());
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> Result<u64, String> {
    if bytes.get(..4) == Some(&MAGIC[..]) && bytes.get(4).is_some_and(|&v| v != VERSION) {
        return Err(format!("it has version {}, this release reads {VERSION}", bytes[4]));
    }
    let number = bytes.get(5..13).and_then(|number| number.try_into().ok());
    match number.map(u64::from_le_bytes) {
        Some(number) if number != FIRST && bytes == encode(number) => Ok(number),
        _ => Err("it is damaged".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_the_root_file_are_fixed_and_any_other_are_refused() {
        let bytes = encode(0x0102);
        assert_eq!(bytes[..13], *b"QROT\x01\x02\x01\0\0\0\0\0\0");
        assert_eq!(bytes[13..], xxh3_64(b"QROT\x01\x02\x01\0\0\0\0\0\0").to_le_bytes());
        assert_eq!(decode(&bytes), Ok(0x0102));
        for at in 0..BYTES {
            let mut bad = bytes;
            bad[at] ^= 1;
            decode(&bad).unwrap_err();
            decode(&bytes[..at]).unwrap_err();
        }
        decode(&encode(FIRST)).unwrap_err();
    }

    #[test]
    fn only_names_of_generations_mean_one() {
        assert_eq!(number_of("image-12"), Some(12));
        for name in ["image-0", "image-012", "image-", "image-a", "images-1", "image-+1"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
