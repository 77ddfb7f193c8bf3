//! Compresses the text of one object.
//!
//! Owns: the codecs' options.
//! Leaves to others: what the text says (`jsonl`), the compressed bytes (`pieces`).
//!
//! The compressor is fed in steps of `FEED_BYTES` whatever the caller's steps are, so that the
//! bytes depend on the text alone.

use super::Compression;
use super::pieces::{Cutter, Finished, Pieces};
use std::io::{self, Write};

/// Bytes given to the compressor at a time.
const FEED_BYTES: usize = 128 << 10;
enum Codec<P: Pieces> {
    Zstd(zstd::stream::write::Encoder<'static, Cutter<P>>),
    Gzip(flate2::write::GzEncoder<Cutter<P>>),
    Plain(Cutter<P>),
}

/// The text being compressed.
pub struct Compressor<P: Pieces> {
    text: Vec<u8>,
    codec: Codec<P>,
}

impl<P: Pieces> Compressor<P> {
    /// Begins an object.
    pub fn new(compression: Compression, pieces: P) -> io::Result<Compressor<P>> {
        let cutter = Cutter::new(pieces);
        let codec = match compression {
            Compression::Zstd(level) => {
                // No pledged size, no worker threads, the window of the level: 2 MiB.
                let mut encoder = zstd::stream::write::Encoder::new(cutter, level)?;
                encoder.include_checksum(true)?;
                Codec::Zstd(encoder)
            }
            Compression::Gzip(level) => {
                let level = flate2::Compression::new(level);
                let header = flate2::GzBuilder::new().mtime(0).operating_system(255);
                Codec::Gzip(header.write(cutter, level))
            }
            Compression::None => Codec::Plain(cutter),
        };
        Ok(Compressor { text: Vec::with_capacity(FEED_BYTES * 2), codec })
    }

    /// Where text is appended. Call [`Compressor::drain`] after each record or so.
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
            match &mut self.codec {
                Codec::Zstd(encoder) => encoder.write_all(step)?,
                Codec::Gzip(encoder) => encoder.write_all(step)?,
                Codec::Plain(cutter) => cutter.write_all(step)?,
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
        let cutter = match self.codec {
            Codec::Zstd(mut encoder) => {
                encoder.write_all(&self.text)?;
                encoder.finish()?
            }
            Codec::Gzip(mut encoder) => {
                encoder.write_all(&self.text)?;
                encoder.finish()?
            }
            Codec::Plain(mut cutter) => {
                cutter.write_all(&self.text)?;
                cutter
            }
        };
        cutter.finish()
    }
}

#[cfg(test)]
#[path = "compress_tests.rs"]
mod tests;
