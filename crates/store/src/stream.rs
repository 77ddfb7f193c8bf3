//! The bytes of an image on their way from one node to another.
//!
//! Owns: the layout of the stream, its checksums, cutting it into blocks again. Leaves to others:
//! what is sent (`export`), what is done with it (`import`).
//!
//! Sizes come first, so that progress can be told. Each block has a checksum that counts its place
//! in as well, each section a hash, and the end a hash of all before it.
//!
//! ```text
//! stream      0 magic "QUEENIMG" | 8 version u32 LE = 1 | 12 blocks, the last one of kind end
//! block       0 kind u8 | 1 body length u32 LE | 5 checksum u64 LE | 13 body
//! checksum    xxh3 of bytes 0..5 and the body; the seed is the number of the block, from 0
//!
//! 1 head      0 applied index u64 | 8 bytes of table files u64, near enough | 16 segments u64 |
//!             24 bytes of segments u64 | 32 mark          (integers little-endian)
//! 2 table     0 table number u8               begins a section; tables in rising order
//! 3 segment   0 queue u32 | 4 segment u32 | 8 bytes u64    begins a section; after all tables, rising
//! 4 data      bytes of the section
//! 5 close     0 bytes u64 | 8 xxh3-128 of the section's bytes
//! 6 end       0 xxh3-128 of all bytes of the stream before this block
//!
//! a table's bytes: its rows, keys rising    0 key length u32 | 4 value length u32 | 8 key | value
//! a segment's bytes: those of its file
//! ```

use crate::log_files::SegmentId;
use crate::store::Applied;
use bytes::{Buf, Bytes, BytesMut};
use queen_core::QueueId;
use xxhash_rust::xxh3::Xxh3;

const MAGIC: &[u8; 8] = b"QUEENIMG";
const VERSION: u32 = 1;
const PREFACE_BYTES: usize = 12;
const BLOCK_HEADER_BYTES: usize = 13;
/// Longest body: more than any block of this release has.
const BODY_BYTES_MAX: usize = 1 << 20;

/// What comes and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) applied: Applied,
    pub(crate) table_bytes: u64,
    pub(crate) segments: u64,
    pub(crate) segment_bytes: u64,
}

/// A part of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Head(Head),
    Table(u8),
    Segment { id: SegmentId, bytes: u64 },
    Data(Bytes),
    Close { bytes: u64, hash: u128 },
    End,
}

impl Block {
    fn kind(&self) -> u8 {
        match self {
            Block::Head(_) => 1,
            Block::Table(_) => 2,
            Block::Segment { .. } => 3,
            Block::Data(_) => 4,
            Block::Close { .. } => 5,
            Block::End => 6,
        }
    }
}

/// Writes a stream.
pub(crate) struct Encoder {
    number: u64,
    total: Box<Xxh3>,
}

impl Encoder {
    /// Begins a stream in `out`.
    pub(crate) fn begin(out: &mut Vec<u8>) -> Encoder {
        let mut encoder = Encoder { number: 0, total: Box::default() };
        let preface = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        encoder.total.update(&preface);
        out.extend_from_slice(&preface);
        encoder
    }

    /// Appends a block.
    pub(crate) fn block(&mut self, block: &Block, out: &mut Vec<u8>) {
        let begin = out.len();
        out.push(block.kind());
        out.extend_from_slice(&[0; BLOCK_HEADER_BYTES - 1]);
        match block {
            Block::Head(head) => {
                for number in
                    [head.applied.index, head.table_bytes, head.segments, head.segment_bytes]
                {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                out.extend_from_slice(&head.applied.mark);
            }
            Block::Table(table) => out.push(*table),
            Block::Segment { id, bytes } => {
                out.extend_from_slice(&id.queue.0.to_le_bytes());
                out.extend_from_slice(&id.segment.to_le_bytes());
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Block::Data(bytes) => out.extend_from_slice(bytes),
            Block::Close { bytes, hash } => {
                out.extend_from_slice(&bytes.to_le_bytes());
                out.extend_from_slice(&hash.to_le_bytes());
            }
            Block::End => out.extend_from_slice(&self.total.digest128().to_le_bytes()),
        }
        let body = out.len() - begin - BLOCK_HEADER_BYTES;
        debug_assert!(body <= BODY_BYTES_MAX);
        out[begin + 1..begin + 5].copy_from_slice(&(body as u32).to_le_bytes());
        let (header, body) = out[begin..].split_at(BLOCK_HEADER_BYTES);
        let check = checksum(self.number, &header[..5], body);
        out[begin + 5..begin + BLOCK_HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
        self.total.update(&out[begin..]);
        self.number += 1;
    }
}

/// Reads a stream that arrives in pieces.
#[derive(Default)]
pub(crate) struct Decoder {
    buffer: BytesMut,
    has_begun: bool,
    has_ended: bool,
    number: u64,
    total: Box<Xxh3>,
}

impl Decoder {
    /// Takes a piece, of any length.
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next block; `None` when more bytes are needed.
    pub(crate) fn next(&mut self) -> Result<Option<Block>, String> {
        if !self.has_begun {
            if self.buffer.len() < PREFACE_BYTES {
                return Ok(None);
            }
            let preface = self.buffer.split_to(PREFACE_BYTES);
            if preface[..8] != MAGIC[..] {
                return Err("it does not begin as an image does".to_owned());
            }
            if preface[8..] != VERSION.to_le_bytes() {
                return Err(format!("it has another version than {VERSION}"));
            }
            self.total.update(&preface);
            self.has_begun = true;
        }
        if self.has_ended && !self.buffer.is_empty() {
            return Err("bytes follow its end".to_owned());
        }
        if self.buffer.len() < BLOCK_HEADER_BYTES {
            return Ok(None);
        }
        let length = u32::from_le_bytes([1, 2, 3, 4].map(|at| self.buffer[at])) as usize;
        if length > BODY_BYTES_MAX {
            return Err(format!("block {} says that it has {length} bytes", self.number));
        }
        if self.buffer.len() < BLOCK_HEADER_BYTES + length {
            return Ok(None);
        }
        let block = self.buffer.split_to(BLOCK_HEADER_BYTES + length).freeze();
        let mut header = block.slice(5..BLOCK_HEADER_BYTES);
        let body = block.slice(BLOCK_HEADER_BYTES..);
        if header.get_u64_le() != checksum(self.number, &block[..5], &body) {
            return Err(format!("the checksum of block {} is wrong", self.number));
        }
        let decoded = self
            .body(block[0], body)
            .ok_or_else(|| format!("block {} of kind {} does not read", self.number, block[0]))?;
        self.total.update(&block);
        self.number += 1;
        self.has_ended = decoded == Block::End;
        Ok(Some(decoded))
    }

    fn body(&self, kind: u8, mut body: Bytes) -> Option<Block> {
        match (kind, body.len()) {
            (1, 32..) => {
                let index = body.get_u64_le();
                let (table_bytes, segments) = (body.get_u64_le(), body.get_u64_le());
                let segment_bytes = body.get_u64_le();
                let applied = Applied { index, mark: Bytes::copy_from_slice(&body) };
                Some(Block::Head(Head { applied, table_bytes, segments, segment_bytes }))
            }
            (2, 1) => Some(Block::Table(body[0])),
            (3, 16) => {
                let queue = QueueId(body.get_u32_le());
                let id = SegmentId { queue, segment: body.get_u32_le() };
                Some(Block::Segment { id, bytes: body.get_u64_le() })
            }
            (4, _) => Some(Block::Data(body)),
            (5, 24) => Some(Block::Close { bytes: body.get_u64_le(), hash: body.get_u128_le() }),
            (6, 16) => (body.get_u128_le() == self.total.digest128()).then_some(Block::End),
            _ => None,
        }
    }
}

fn checksum(number: u64, header: &[u8], body: &[u8]) -> u64 {
    let mut hash = Xxh3::with_seed(number);
    hash.update(header);
    hash.update(body);
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::{encoded, sample_blocks};

    fn stream() -> Vec<u8> {
        encoded(&sample_blocks())
    }

    #[test]
    fn the_bytes_of_a_stream_are_fixed() {
        let hex: String = stream().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
    }

    const GOLDEN: &str = "\
        515545454e494d470100000001240000001572866a1c40ba2b090000000000000007000000000000\
        00010000000000000004000000000000006d61726b0201000000f97899d5fcbdac07050518000000\
        9372da32d655cf260000000000000000010000000000000000000000000000000310000000f1989d\
        3b3b2357fa030000000200000004000000000000000404000000109edd58880bd5fa646174610518\
        000000bf907a4d2f6c81550400000000000000020000000000000000000000000000000610000000\
        03db49a35aa1b44cc4a40e67d413a0101381c45460264203";

    #[test]
    fn blocks_are_read_back_however_the_stream_is_cut() {
        let bytes = stream();
        for piece in [1, 2, 7, 13, 64, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut read = Vec::new();
            for piece in bytes.chunks(piece) {
                decoder.feed(piece);
                while let Some(block) = decoder.next().unwrap() {
                    read.push(block);
                }
            }
            assert_eq!(read, sample_blocks());
        }
    }

    #[test]
    fn an_end_that_does_not_hash_all_before_it_is_refused() {
        let mut bytes = stream();
        let end = bytes.len() - BLOCK_HEADER_BYTES - 16;
        bytes[end + BLOCK_HEADER_BYTES] ^= 1;
        let check = checksum(6, &bytes[end..end + 5], &bytes[end + BLOCK_HEADER_BYTES..]);
        bytes[end + 5..end + BLOCK_HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        let refused = (0..7).find_map(|_| decoder.next().err());
        assert!(refused.unwrap().contains("kind 6"));
    }

    #[test]
    fn blocks_in_another_order_are_refused() {
        let mut out = Vec::new();
        let mut encoder = Encoder::begin(&mut out);
        let first = out.len();
        encoder.block(&Block::Data(Bytes::from_static(b"a")), &mut out);
        let second = out.len();
        encoder.block(&Block::Data(Bytes::from_static(b"b")), &mut out);
        let swapped = [&out[..first], &out[second..], &out[first..second]].concat();
        let mut decoder = Decoder::default();
        decoder.feed(&swapped);
        assert!(decoder.next().unwrap_err().contains("checksum of block 0"));
    }
}
