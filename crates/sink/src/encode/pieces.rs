//! The bytes of one object: hashed, counted and cut into pieces of one size as they are made.
//!
//! Owns: the SHA-256 of the object, the memory that finished pieces may take.
//! Leaves to others: what the bytes say (`compress`, `parquet`), where the pieces go (`upload`).
//! Upholds: `memory-bounded`.

use crate::memory::Grant;
use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use std::io::{self, Write};

/// Length of every piece but the last, bytes; also the size of a part of a multipart upload.
pub const PIECE_BYTES: usize = 8 << 20;

/// Where finished pieces go.
pub trait Pieces: Send {
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

/// An object's length and hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its length.
    pub bytes: u64,
    /// SHA-256, lower hex.
    pub sha256: String,
}

/// What an encoder writes an object into.
pub struct Cutter<P> {
    pieces: P,
    piece: Vec<u8>,
    sha: Context,
    bytes: u64,
}

impl<P: Pieces> Cutter<P> {
    /// An object without bytes yet.
    pub fn new(pieces: P) -> Cutter<P> {
        Cutter { pieces, piece: Vec::new(), sha: Context::new(&SHA256), bytes: 0 }
    }

    /// Hands over the last piece and gives back what took the pieces.
    pub fn finish(mut self) -> io::Result<(Finished, P)> {
        if !self.piece.is_empty() || self.bytes == 0 {
            self.piece.shrink_to_fit();
            self.pieces.piece(Bytes::from(self.piece))?;
        }
        let sha256 = hex(self.sha.finish().as_ref());
        Ok((Finished { bytes: self.bytes, sha256 }, self.pieces))
    }
}

impl<P: Pieces> Write for Cutter<P> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let take = buf.len().min(PIECE_BYTES - self.piece.len());
        let len = self.piece.len() + take;
        if len > self.piece.capacity() {
            // A finished piece takes its length, not what doubling made of it.
            let room = (self.piece.capacity() * 2).clamp(len, PIECE_BYTES.max(len));
            self.piece.reserve_exact(room - self.piece.len());
        }
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

/// Lower hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// SHA-256 of a small document, lower hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(aws_lc_rs::digest::digest(&SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Budget;

    #[test]
    fn pieces_are_dropped_when_memory_ends() {
        let budget = Budget::new(PIECE_BYTES as u64 + 1000);
        let mut kept = Kept::new(budget.sparing(0));
        kept.piece(Bytes::from(vec![0; PIECE_BYTES])).unwrap();
        assert!(kept.pieces.is_some());
        kept.piece(Bytes::from(vec![0; PIECE_BYTES])).unwrap();
        assert!(kept.pieces.is_none());
        assert_eq!(budget.used(), 0);
    }
}
