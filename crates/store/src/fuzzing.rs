//! What the decoder tests and fuzz targets call.
//!
//! Owns: feeding any bytes to the decoders of this crate's files. Leaves to others: making the bytes.

use crate::log_files::SegmentId;
use crate::root;
use crate::store::Applied;
use crate::stream::{Block, Decoder, Encoder, Head};
use bytes::Bytes;
use queen_core::QueueId;

/// Reads bytes as the stream of an image, in pieces of several lengths. Says whether they are a
/// whole one; panics when a promise is broken.
pub fn image_bytes(bytes: &[u8]) -> bool {
    let whole = blocks(bytes, bytes.len().max(1));
    for piece in [1, 13, 64] {
        assert_eq!(blocks(bytes, piece), whole, "in pieces of {piece}");
    }
    let (blocks, sound) = whole;
    let again = encoded(&blocks);
    let ended = sound && blocks.last() == Some(&Block::End);
    if !blocks.is_empty() {
        assert_eq!(bytes.get(..again.len()), Some(&again[..]));
    }
    assert!(!ended || again.len() == bytes.len(), "bytes follow the end");
    ended
}

/// The blocks before the first that is refused, and whether none was.
fn blocks(bytes: &[u8], piece: usize) -> (Vec<Block>, bool) {
    let mut decoder = Decoder::default();
    let mut blocks = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.feed(piece);
        loop {
            match decoder.next() {
                Ok(Some(block)) => blocks.push(block),
                Ok(None) => break,
                Err(_) => return (blocks, false),
            }
        }
    }
    (blocks, true)
}

/// A whole stream.
pub fn image_samples() -> Vec<Vec<u8>> {
    vec![encoded(&sample_blocks())]
}

/// The blocks of that stream: one of each kind.
pub(crate) fn sample_blocks() -> Vec<Block> {
    let applied = Applied { index: 9, mark: Bytes::from_static(b"mark") };
    let id = SegmentId { queue: QueueId(3), segment: 2 };
    vec![
        Block::Head(Head { applied, table_bytes: 7, segments: 1, segment_bytes: 4 }),
        Block::Table(5),
        Block::Close { bytes: 0, hash: 1 },
        Block::Segment { id, bytes: 4 },
        Block::Data(Bytes::from_static(b"data")),
        Block::Close { bytes: 4, hash: 2 },
        Block::End,
    ]
}

/// A stream of these blocks.
pub(crate) fn encoded(blocks: &[Block]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(&mut bytes);
    blocks.iter().for_each(|block| encoder.block(block, &mut bytes));
    bytes
}

/// Reads bytes as the file `root`.
pub fn root_bytes(bytes: &[u8]) -> bool {
    let Ok(number) = root::decode(bytes) else { return false };
    assert_eq!(root::encode(number), bytes);
    true
}

/// Sound `root` files.
pub fn root_samples() -> Vec<Vec<u8>> {
    [1, 0x0102, u64::MAX].map(|number| root::encode(number).to_vec()).to_vec()
}
