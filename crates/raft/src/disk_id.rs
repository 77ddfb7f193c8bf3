//! The disk's name: tells a node that was wiped, or given another disk, from the one the group knows.
//!
//! Owns: the file `<dir>/disk`, written once, and again when the disk went back in time. Leaves to others: comparing (`exchange`).
//!
//! ```text
//! 0 magic u32 "QDSK" | 4 name 16 bytes | 20 crc32 u32 of bytes 0..20, little-endian
//! ```

use crate::StartError;
use crate::net::greeting::DiskId;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

const MAGIC: [u8; 4] = *b"QDSK";

/// The name of the disk under `dir`, drawn when there is none.
pub(crate) fn load_or_draw(dir: &Path) -> Result<DiskId, StartError> {
    let path = dir.join("disk");
    let io_error = |action, source| StartError::Io { action, path: path.clone(), source };
    let damaged = || StartError::Damaged {
        path: path.clone(),
        position: 0,
        what: "it is not the name of a disk that was written".into(),
    };
    match std::fs::read(&path) {
        Ok(bytes) => {
            let bytes: [u8; 24] = bytes.try_into().map_err(|_| damaged())?;
            let (body, crc) = bytes.split_at(20);
            if body[..4] != MAGIC || crc != crc32fast::hash(body).to_le_bytes() {
                return Err(damaged());
            }
            let mut disk = [0; 16];
            disk.copy_from_slice(&body[4..]);
            Ok(disk)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            draw_anew(dir).map_err(|source| io_error("write", source))
        }
        Err(source) => Err(io_error("read", source)),
    }
}

/// Draws another name for the disk under `dir`: its group knows it no more.
pub(crate) fn draw_anew(dir: &Path) -> io::Result<DiskId> {
    let mut disk = [0; 16];
    aws_lc_rs::rand::fill(&mut disk)
        .map_err(|_| io::Error::other("the system gave no random bytes"))?;
    save(dir, &disk)?;
    Ok(disk)
}

fn save(dir: &Path, disk: &DiskId) -> io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(disk);
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    let aside = dir.join("disk.new");
    let mut file = File::create(&aside)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(&aside, dir.join("disk"))?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_keeps_its_name_and_another_has_another() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = load_or_draw(one.path()).unwrap();
        assert_eq!(load_or_draw(one.path()).unwrap(), name);
        assert_ne!(load_or_draw(other.path()).unwrap(), name);
        let path = one.path().join("disk");
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            assert!(load_or_draw(one.path()).is_err());
        }
    }
}
