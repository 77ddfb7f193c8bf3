//! Compresses the bytes of one object and cuts them into pieces of one size.
//!
//! Owns: the codecs' options, the SHA-256 of the object, the memory its compressed bytes may take.
//! Leaves to others: what the bytes say (`jsonl`), where the pieces go (`upload`).
//!
//! The compressor is fed in steps of `FEED_BYTES` whatever the caller's steps are, so that the
//! bytes depend on the text alone.

use super::Compression;
use crate::memory::Grant;
use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use std::io::{self, Write};

/// Bytes given to the compressor at a time.
const FEED_BYTES: usize = 128 << 10;
/// Length of every piece but the last, bytes; also the size of a part of a multipart upload.
pub const PIECE_BYTES: usize = 8 << 20;

/// Where finished pieces go.
pub trait Pieces {
    /// Takes the next piece, [`PIECE_BYTES`] long except for the last.
    fn piece(&mut self, piece: Bytes) -> io::Result<()>;
}

/// Keeps pieces in memory as long as the budget gives, then counts them only.
#[derive(Debug)]
pub struct Kept {
    /// The pieces; `None` when there was no memory for all of them.
    pub pieces: Option<Vec<Bytes>>,
    grant: Grant,
}

impl Kept {
    /// Starts empty; `grant` grows with the pieces.
    pub fn new(grant: Grant) -> Kept {
        Kept { pieces: Some(Vec::new()), grant }
    }

    /// The pieces and the memory they take.
    pub fn into_parts(self) -> (Option<Vec<Bytes>>, Grant) {
        (self.pieces, self.grant)
    }
}

impl Pieces for Kept {
    fn piece(&mut self, piece: Bytes) -> io::Result<()> {
        if let Some(pieces) = &mut self.pieces {
            if self.grant.grow(piece.len() as u64) {
                pieces.push(piece);
            } else {
                self.pieces = None;
                self.grant.shrink();
            }
        }
        Ok(())
    }
}

/// What the compressor writes into: hashes, counts, cuts.
struct Cutter<P> {
    pieces: P,
    piece: Vec<u8>,
    sha: Context,
    bytes: u64,
}

impl<P: Pieces> Write for Cutter<P> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let take = buf.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&buf[..take]);
        self.sha.update(&buf[..take]);
        self.bytes += take as u64;
        if self.piece.len() == PIECE_BYTES {
            let full = std::mem::take(&mut self.piece);
            self.pieces.piece(Bytes::from(full))?;
        }
        Ok(take)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Compressor<P: Pieces> {
    Zstd(zstd::stream::write::Encoder<'static, Cutter<P>>),
    Gzip(flate2::write::GzEncoder<Cutter<P>>),
    Plain(Cutter<P>),
}

/// An object's length and hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its length.
    pub bytes: u64,
    /// SHA-256, lower hex.
    pub sha256: String,
}

/// The object being written.
pub struct ObjectWriter<P: Pieces> {
    text: Vec<u8>,
    compressor: Compressor<P>,
}

impl<P: Pieces> ObjectWriter<P> {
    /// Begins an object.
    pub fn new(compression: Compression, pieces: P) -> io::Result<ObjectWriter<P>> {
        let cutter = Cutter { pieces, piece: Vec::new(), sha: Context::new(&SHA256), bytes: 0 };
        let compressor = match compression {
            Compression::Zstd(level) => {
                // No pledged size, no worker threads, the window of the level: 2 MiB.
                let mut encoder = zstd::stream::write::Encoder::new(cutter, level)?;
                encoder.include_checksum(true)?;
                Compressor::Zstd(encoder)
            }
            Compression::Gzip(level) => {
                let level = flate2::Compression::new(level);
                let header = flate2::GzBuilder::new().mtime(0).operating_system(255);
                Compressor::Gzip(header.write(cutter, level))
            }
            Compression::None => Compressor::Plain(cutter),
        };
        Ok(ObjectWriter { text: Vec::with_capacity(FEED_BYTES * 2), compressor })
    }

    /// Where text is appended. Call [`ObjectWriter::drain`] after each record or so.
    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Hands full steps to the compressor.
    pub fn drain(&mut self) -> io::Result<()> {
        if self.text.len() < FEED_BYTES {
            return Ok(());
        }
        let whole = self.text.len() / FEED_BYTES * FEED_BYTES;
        for step in self.text[..whole].chunks(FEED_BYTES) {
            match &mut self.compressor {
                Compressor::Zstd(encoder) => encoder.write_all(step)?,
                Compressor::Gzip(encoder) => encoder.write_all(step)?,
                Compressor::Plain(cutter) => cutter.write_all(step)?,
            }
        }
        self.text.copy_within(whole.., 0);
        self.text.truncate(self.text.len() - whole);
        // One huge record must not keep its room for the rest of the window.
        if self.text.capacity() > FEED_BYTES * 32 {
            self.text.shrink_to(FEED_BYTES * 2);
        }
        Ok(())
    }

    /// Ends the object, hands over its last piece and gives back what took the pieces.
    pub fn finish(mut self) -> io::Result<(Finished, P)> {
        self.drain()?;
        let cutter = match self.compressor {
            Compressor::Zstd(mut encoder) => {
                encoder.write_all(&self.text)?;
                encoder.finish()?
            }
            Compressor::Gzip(mut encoder) => {
                encoder.write_all(&self.text)?;
                encoder.finish()?
            }
            Compressor::Plain(mut cutter) => {
                cutter.write_all(&self.text)?;
                cutter
            }
        };
        let Cutter { mut pieces, mut piece, sha, bytes } = cutter;
        if !piece.is_empty() || bytes == 0 {
            piece.shrink_to_fit();
            pieces.piece(Bytes::from(piece))?;
        }
        Ok((Finished { bytes, sha256: hex(sha.finish().as_ref()) }, pieces))
    }
}

/// Lower hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// SHA-256 of a small document, lower hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(aws_lc_rs::digest::digest(&SHA256, bytes).as_ref())
}

#[cfg(test)]
#[path = "object_tests.rs"]
mod tests;
