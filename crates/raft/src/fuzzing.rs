//! What the decoder tests and fuzz targets call.
//!
//! Owns: feeding any bytes to the decoders of this crate's files. Leaves to others: making the bytes.

use crate::mark::{Mark, decode_members};
use crate::wal::{Body, EntryId, FILE_HEADER_BYTES, FileHeader, RecordHeader, WalEntry};
use crate::wal::{decode_body, encode_record, record_is_sound};
use bytes::Bytes;

/// Reads bytes as a file header, a record, a mark and a membership. Says whether they are a sound
/// record; panics when a decoder breaks its promise.
pub fn wal_bytes(bytes: &[u8]) -> bool {
    if let Some(header) = bytes.first_chunk::<FILE_HEADER_BYTES>() {
        let _ = FileHeader::decode(header);
    }
    let _ = Mark::decode(bytes);
    let _ = decode_members(&mut &*bytes);
    let Some(header) = RecordHeader::decode(bytes) else { return false };
    let sound = record_is_sound(&header, bytes);
    let start = body_start(bytes);
    // The body's decoder must stand bytes that no checksum vouches for.
    let body = bytes.get(start..).unwrap_or_default();
    let length = body.len().min(header.length as usize);
    let entry = decode_body(&header, Bytes::copy_from_slice(&body[..length]));
    if let (true, Some(entry)) = (sound, entry) {
        let mut again = Vec::new();
        encode_record(&mut again, &entry, header.file_id, header.place);
        assert_eq!(again.get(start..start + length), Some(&body[..length]));
        return true;
    }
    false
}

/// Where a record's body begins.
fn body_start(bytes: &[u8]) -> usize {
    crate::wal::RECORD_HEADER_BYTES.min(bytes.len())
}

/// Sound records.
pub fn wal_samples() -> Vec<Vec<u8>> {
    let id = EntryId { term: 1, node: 1, index: 7 };
    let proposals = [Bytes::from_static(b"first"), Bytes::from_static(b"")];
    let bodies = [Body::Blank, Body::Proposals(proposals.into())];
    let record = |body| {
        let mut bytes = Vec::new();
        encode_record(&mut bytes, &WalEntry { id, body }, 3, 0);
        bytes
    };
    bodies.map(record).to_vec()
}
