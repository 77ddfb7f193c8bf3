//! Runs: the messages of one push to one partition, the unit of the queue log and of its index.
//!
//! Owns: the bytes of a run. Leaves to others: where it lies (`queen-state` decides the place,
//! `queen-store` writes it).
//!
//! Little-endian. The checksum is CRC-32 (IEEE) of bytes 8 to the end of the frames.
//!
//! ```text
//!  0 magic u32 "QRUN" | 4 crc u32 | 8 frames_len u32 | 12 count u32
//! 16 partition u64 | 24 first_offset u64 | 32 stamp u64 | 40 text_bytes u32 | 44 version u16 | 46 zero u16
//! 48 frames
//! ```

use crate::frame::Frames;
use crate::{Offset, PartitionId, Stamp};

/// First bytes of every run.
pub const MAGIC: u32 = u32::from_le_bytes(*b"QRUN");
/// Version of the run's layout.
pub const VERSION: u16 = 1;
/// Bytes before the frames.
pub const HEADER_BYTES: usize = 48;

/// What a run says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHeader {
    /// Whose messages these are.
    pub partition: PartitionId,
    /// Offset of the first message.
    pub first_offset: Offset,
    /// Messages in the run, at least 1.
    pub count: u32,
    /// Stamp of the append.
    pub stamp: Stamp,
    /// Bytes of the frames.
    pub frames_len: u32,
    /// Sum of the lengths of transaction ids (36 for a minted one) and payloads before encryption,
    /// held at u32::MAX.
    pub text_bytes: u32,
}

/// The bytes are not a run: why.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadRun {
    /// Fewer bytes than the header, or than the header says.
    #[error("the run is cut short: {have} of {want} bytes")]
    Short {
        /// Bytes there.
        have: usize,
        /// Bytes wanted.
        want: usize,
    },
    /// The first bytes are not a run's.
    #[error("no run begins here (magic {0:#010x})")]
    Magic(u32),
    /// Written by a newer release.
    #[error("run version {0} is newer than this release reads (1)")]
    Version(u16),
    /// The bytes are not those that were written.
    #[error("the run's checksum is {found:#010x}, its bytes give {computed:#010x}")]
    Checksum {
        /// Checksum in the header.
        found: u32,
        /// Checksum of the bytes.
        computed: u32,
    },
}

impl RunHeader {
    /// Bytes of the whole run.
    pub fn run_len(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.frames_len)
    }

    /// The offset after the last message.
    pub fn end_offset(&self) -> Offset {
        self.first_offset.plus(u64::from(self.count))
    }

    /// The header's bytes for these frames, checksum included.
    ///
    /// `self.frames_len` must be `frames.len()`.
    pub fn encode(&self, frames: &[u8]) -> [u8; HEADER_BYTES] {
        debug_assert_eq!(frames.len(), self.frames_len as usize);
        let mut out = [0u8; HEADER_BYTES];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[8..12].copy_from_slice(&self.frames_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.count.to_le_bytes());
        out[16..24].copy_from_slice(&self.partition.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.first_offset.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.stamp.0.to_le_bytes());
        out[40..44].copy_from_slice(&self.text_bytes.to_le_bytes());
        out[44..46].copy_from_slice(&VERSION.to_le_bytes());
        let crc = checksum(&out, frames);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header; the checksum is not looked at. See [`decode`] for a whole run.
    pub fn decode(bytes: &[u8]) -> Result<RunHeader, BadRun> {
        if bytes.len() < HEADER_BYTES {
            return Err(BadRun::Short { have: bytes.len(), want: HEADER_BYTES });
        }
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if u32_at(0) != MAGIC {
            return Err(BadRun::Magic(u32_at(0)));
        }
        let version = u16::from_le_bytes([bytes[44], bytes[45]]);
        if version != VERSION {
            return Err(BadRun::Version(version));
        }
        Ok(RunHeader {
            partition: PartitionId(u64_at(16)),
            first_offset: Offset(u64_at(24)),
            count: u32_at(12),
            stamp: Stamp(u64_at(32)),
            frames_len: u32_at(8),
            text_bytes: u32_at(40),
        })
    }
}

/// Reads the run at the start of `bytes` and checks its checksum; gives its header and its frames.
pub fn decode(bytes: &[u8]) -> Result<(RunHeader, &[u8]), BadRun> {
    let header = RunHeader::decode(bytes)?;
    let want = header.run_len() as usize;
    let frames = bytes.get(HEADER_BYTES..want).ok_or(BadRun::Short { have: bytes.len(), want })?;
    let found = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let computed = checksum(&bytes[..HEADER_BYTES], frames);
    if found != computed {
        return Err(BadRun::Checksum { found, computed });
    }
    Ok((header, frames))
}

/// The frames of decoded run bytes, without a second check.
pub fn frames(run: &[u8]) -> Frames<'_> {
    Frames::new(run.get(HEADER_BYTES..).unwrap_or_default())
}

fn checksum(header: &[u8], frames: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header[8..HEADER_BYTES]);
    crc.update(frames);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (RunHeader, Vec<u8>) {
        let frames = b"\x00\x02{}\x00\x01 ".to_vec();
        let header = RunHeader {
            partition: PartitionId(0x0102_0304_0506_0708),
            first_offset: Offset(9),
            count: 2,
            stamp: Stamp(1_792_837_434_910_988),
            frames_len: frames.len() as u32,
            text_bytes: 75,
        };
        let mut run = header.encode(&frames).to_vec();
        run.extend_from_slice(&frames);
        (header, run)
    }

    #[test]
    fn the_bytes_of_a_run_are_fixed() {
        let (header, run) = sample();
        let hex: String = run.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, include_str!("../golden/run-v1.hex").trim());
        assert_eq!(decode(&run).unwrap().0, header);
    }

    #[test]
    fn a_run_with_any_byte_changed_is_refused() {
        let (_, run) = sample();
        for at in 0..run.len() {
            let mut bad = run.clone();
            bad[at] ^= 1;
            assert!(decode(&bad).is_err(), "byte {at}");
            assert!(decode(&run[..at]).is_err(), "cut at {at}");
        }
    }
}
