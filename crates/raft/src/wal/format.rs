//! The bytes of the log's files: file header and record.
//!
//! Owns: encoding, decoding, checksums. Leaves to others: where bytes lie (`segment`), which of them
//! count (`recover`), what a body says (`queen-core`, `membership`).
//!
//! Little-endian. A file starts with a header, records follow from byte 4096, each padded with zeros to
//! a multiple of 8. What follows the last record is zeros or stale bytes of the file's former life: its
//! records carry another file id.
//!
//! ```text
//! file:   0 magic u32 "QWAL" | 4 version u16 = 1 | 6 flags u16 (1: starts anew) | 8 file id u32
//!         12 previous node u32 | 16 first index u64 | 24 previous term u64 | 32 has previous u32
//!         36 crc32 u32 of bytes 0..36
//! record: 0 magic u16 "QR" | 2 version u8 = 1 | 3 kind u8 | 4 body length u32 | 8 crc32 u32
//!         12 file id u32 | 16 index u64 | 24 term u64 | 32 node u32 | 36 place u32 | 40 body
//! ```
//!
//! A record's crc is of bytes 0..8, 12..40 and the body. `previous` is the id of the entry before the
//! file's first. `place` counts the records before this one in the group that was synced together: every
//! entry before `index - place` was synced before this record was written, which tells a torn group
//! from damage. Kinds: 1 blank, 2 proposals (each `length u32, bytes`), 3 membership.

use super::{Body, EntryId, WalEntry};
use bytes::Bytes;
use std::sync::Arc;

/// Newest version of both layouts.
pub(crate) const VERSION: u8 = 1;
/// Bytes of a file's header that mean something.
pub(crate) const FILE_HEADER_BYTES: usize = 40;
/// Where the first record of a file lies.
pub(crate) const RECORDS_START: u64 = 4096;
/// Bytes of a record before its body.
pub(crate) const RECORD_HEADER_BYTES: usize = 40;
/// Records start at multiples of this.
pub(crate) const ALIGN: u64 = 8;

const FILE_MAGIC: [u8; 4] = *b"QWAL";
const RECORD_MAGIC: [u8; 2] = *b"QR";
const STARTS_ANEW: u16 = 1;
const KIND_BLANK: u8 = 1;
const KIND_PROPOSALS: u8 = 2;
const KIND_MEMBERSHIP: u8 = 3;

const _: () = assert!(RECORDS_START.is_multiple_of(ALIGN));
const _: () = assert!((RECORD_HEADER_BYTES as u64).is_multiple_of(ALIGN));

/// What a file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    /// Drawn at random for each life of the file; never 0.
    pub(crate) file_id: u32,
    /// The log starts here: files before it are void (a snapshot went ahead of the log).
    pub(crate) starts_anew: bool,
    /// Index of the first record.
    pub(crate) first: u64,
    /// The entry before the first record; `None` when `first` is 0.
    pub(crate) previous: Option<EntryId>,
}

/// What the first bytes of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderVerdict {
    /// A sound header, of this life or a former one.
    Sound(FileHeader),
    /// Never written.
    Blank,
    /// Written by a newer release.
    Newer(u32),
    /// Anything else.
    Bad,
}

impl FileHeader {
    pub(crate) fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut out = [0; FILE_HEADER_BYTES];
        out[0..4].copy_from_slice(&FILE_MAGIC);
        out[4..6].copy_from_slice(&u16::from(VERSION).to_le_bytes());
        let flags = if self.starts_anew { STARTS_ANEW } else { 0 };
        out[6..8].copy_from_slice(&flags.to_le_bytes());
        out[8..12].copy_from_slice(&self.file_id.to_le_bytes());
        let previous = self.previous.unwrap_or_default();
        out[12..16].copy_from_slice(&previous.node.to_le_bytes());
        out[16..24].copy_from_slice(&self.first.to_le_bytes());
        out[24..32].copy_from_slice(&previous.term.to_le_bytes());
        out[32..36].copy_from_slice(&u32::from(self.previous.is_some()).to_le_bytes());
        let crc = crc32fast::hash(&out[..36]);
        out[36..40].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8; FILE_HEADER_BYTES]) -> HeaderVerdict {
        if bytes.iter().all(|byte| *byte == 0) {
            return HeaderVerdict::Blank;
        }
        if bytes[0..4] != FILE_MAGIC || u32_at(bytes, 36) != crc32fast::hash(&bytes[..36]) {
            return HeaderVerdict::Bad;
        }
        let version = u32_at(bytes, 4) & 0xffff;
        if version != u32::from(VERSION) {
            return HeaderVerdict::Newer(version);
        }
        let first = u64_at(bytes, 16);
        let previous = (u32_at(bytes, 32) != 0).then(|| EntryId {
            term: u64_at(bytes, 24),
            node: u32_at(bytes, 12),
            index: first.wrapping_sub(1),
        });
        let starts_anew = bytes[6] & STARTS_ANEW as u8 != 0;
        let header = FileHeader { file_id: u32_at(bytes, 8), starts_anew, first, previous };
        HeaderVerdict::Sound(header)
    }
}

/// What a record says before its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    kind: u8,
    /// Bytes of the body.
    pub(crate) length: u32,
    crc: u32,
    pub(crate) file_id: u32,
    pub(crate) id: EntryId,
    pub(crate) place: u32,
}

impl RecordHeader {
    /// Reads a header; `None` when the bytes are no record header of a version that this release reads.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < RECORD_HEADER_BYTES || bytes[0..2] != RECORD_MAGIC || bytes[2] != VERSION {
            return None;
        }
        Some(Self {
            kind: bytes[3],
            length: u32_at(bytes, 4),
            crc: u32_at(bytes, 8),
            file_id: u32_at(bytes, 12),
            id: EntryId {
                term: u64_at(bytes, 24),
                node: u32_at(bytes, 32),
                index: u64_at(bytes, 16),
            },
            place: u32_at(bytes, 36),
        })
    }

    /// Bytes of the record with its padding.
    pub(crate) fn record_bytes(&self) -> u64 {
        padded(RECORD_HEADER_BYTES as u64 + u64::from(self.length))
    }
}

/// Bytes of `entry` as a record, with padding.
pub(crate) fn record_bytes(entry: &WalEntry) -> u64 {
    padded(RECORD_HEADER_BYTES as u64 + body_bytes(&entry.body))
}

/// Bytes of a body.
pub(crate) fn body_bytes(body: &Body) -> u64 {
    match body {
        Body::Blank => 0,
        Body::Proposals(all) => all.iter().map(|one| 4 + one.len() as u64).sum(),
        Body::Membership(bytes) => bytes.len() as u64,
    }
}

fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGN)
}

/// Appends `entry` as a record of the file `file_id`, the `place`-th of its group.
///
/// The caller keeps bodies under 4 GiB.
pub(crate) fn encode_record(out: &mut Vec<u8>, entry: &WalEntry, file_id: u32, place: u32) {
    let start = out.len();
    let kind = match &entry.body {
        Body::Blank => KIND_BLANK,
        Body::Proposals(_) => KIND_PROPOSALS,
        Body::Membership(_) => KIND_MEMBERSHIP,
    };
    out.extend_from_slice(&RECORD_MAGIC);
    out.extend_from_slice(&[VERSION, kind]);
    out.extend_from_slice(&(body_bytes(&entry.body) as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&file_id.to_le_bytes());
    out.extend_from_slice(&entry.id.index.to_le_bytes());
    out.extend_from_slice(&entry.id.term.to_le_bytes());
    out.extend_from_slice(&entry.id.node.to_le_bytes());
    out.extend_from_slice(&place.to_le_bytes());
    match &entry.body {
        Body::Blank => {}
        Body::Proposals(all) => {
            for one in all.iter() {
                out.extend_from_slice(&(one.len() as u32).to_le_bytes());
                out.extend_from_slice(one);
            }
        }
        Body::Membership(bytes) => out.extend_from_slice(bytes),
    }
    let crc = record_crc(&out[start..]);
    out[start + 8..start + 12].copy_from_slice(&crc.to_le_bytes());
    let end = start + padded((out.len() - start) as u64) as usize;
    out.resize(end, 0);
}

/// Checksum of a record (header and body, without padding), whatever its crc field holds.
fn record_crc(record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&record[..8]);
    hasher.update(&record[12..]);
    hasher.finalize()
}

/// Whether `record` (header and at least its body) carries the checksum that its header states.
pub(crate) fn record_is_sound(header: &RecordHeader, record: &[u8]) -> bool {
    let end = RECORD_HEADER_BYTES + header.length as usize;
    record.get(..end).is_some_and(|record| record_crc(record) == header.crc)
}

/// Turns a record that [`record_is_sound`] into its entry; `None` for an unknown kind or a body whose
/// lengths do not add up.
pub(crate) fn decode_body(header: &RecordHeader, body: Bytes) -> Option<WalEntry> {
    let body = match header.kind {
        KIND_BLANK if body.is_empty() => Body::Blank,
        KIND_PROPOSALS => Body::Proposals(decode_proposals(body)?),
        KIND_MEMBERSHIP => Body::Membership(body),
        _ => return None,
    };
    Some(WalEntry { id: header.id, body })
}

fn decode_proposals(mut body: Bytes) -> Option<Arc<[Bytes]>> {
    let mut all = Vec::new();
    while !body.is_empty() {
        let length = u32_at(body.get(..4)?, 0) as usize;
        let _ = body.split_to(4);
        if length > body.len() {
            return None;
        }
        all.push(body.split_to(length));
    }
    Some(all.into())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_file_header_are_fixed() {
        let previous = Some(EntryId { term: 2, node: 3, index: 4 });
        let header = FileHeader { file_id: 0x01020304, starts_anew: true, first: 5, previous };
        let bytes = header.encode();
        let want = b"QWAL\x01\0\x01\0\x04\x03\x02\x01\x03\0\0\0\x05\0\0\0\0\0\0\0\
            \x02\0\0\0\0\0\0\0\x01\0\0\0";
        assert_eq!(&bytes[..36], want);
        assert_eq!(bytes[36..], crc32fast::hash(want).to_le_bytes());
        assert_eq!(u32::from_le_bytes([bytes[36], bytes[37], bytes[38], bytes[39]]), 0xbedb_2c2f);
        assert_eq!(FileHeader::decode(&bytes), HeaderVerdict::Sound(header));
        assert_eq!(FileHeader::decode(&[0; FILE_HEADER_BYTES]), HeaderVerdict::Blank);
        for at in 0..FILE_HEADER_BYTES {
            let mut bad = bytes;
            bad[at] ^= 1;
            assert_eq!(FileHeader::decode(&bad), HeaderVerdict::Bad, "byte {at}");
        }
    }

    #[test]
    fn the_bytes_of_a_record_are_fixed() {
        let body = Body::Proposals([Bytes::from_static(b"ab"), Bytes::new()].into());
        let entry = WalEntry { id: EntryId { term: 2, node: 3, index: 4 }, body };
        let mut out = Vec::new();
        encode_record(&mut out, &entry, 0x01020304, 1);
        let want = b"QR\x01\x02\x0a\0\0\0\x8a\x4e\x81\x58\x04\x03\x02\x01\x04\0\0\0\0\0\0\0\
            \x02\0\0\0\0\0\0\0\x03\0\0\0\x01\0\0\0\x02\0\0\0ab\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(out, want);
        assert_eq!(out.len() as u64, record_bytes(&entry));
        let header = RecordHeader::decode(&out).unwrap();
        assert!(record_is_sound(&header, &out));
        let body = Bytes::copy_from_slice(&out[RECORD_HEADER_BYTES..50]);
        assert_eq!(decode_body(&header, body), Some(entry));
    }

    #[test]
    fn a_flipped_bit_anywhere_in_a_record_is_noticed() {
        let body = Body::Proposals([Bytes::from_static(b"payload")].into());
        let entry = WalEntry { id: EntryId { term: 1, node: 1, index: 9 }, body };
        let mut out = Vec::new();
        encode_record(&mut out, &entry, 77, 0);
        for at in 0..RECORD_HEADER_BYTES + 11 {
            for bit in 0..8 {
                let mut bad = out.clone();
                bad[at] ^= 1 << bit;
                let sound = RecordHeader::decode(&bad).is_some_and(|h| record_is_sound(&h, &bad));
                assert!(!sound, "byte {at} bit {bit}");
            }
        }
    }
}
