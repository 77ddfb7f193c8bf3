//! The finished pages of one column of a row group, in memory until the other columns are finished.
//!
//! Owns: their bytes. Leaves to others: what a page holds (the library), when a row group ends
//! (`super`).
//!
//! Columns of a row group lie one after the other in a file and are filled side by side, so all but
//! the first must wait. They wait compressed, in blocks, so that their memory never doubles.

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use std::io::{self, Read, Write};
use std::sync::Arc;

const BLOCK_BYTES: usize = 256 << 10;

#[derive(Debug, Default)]
struct Blocks {
    full: Vec<Bytes>,
    last: Vec<u8>,
    bytes: u64,
}

/// The pages of one column chunk.
#[derive(Clone, Debug, Default)]
pub struct Chunk(Arc<Mutex<Blocks>>);

impl Chunk {
    /// What the library hands finished pages to.
    pub fn page_writer(&self) -> Box<dyn PageWriter> {
        Box::new(Pages(TrackedWrite::new(self.clone())))
    }

    /// Bytes waiting.
    pub fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }
}

impl Write for Chunk {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut blocks = self.0.lock();
        if blocks.last.capacity() == 0 {
            blocks.last.reserve_exact(BLOCK_BYTES);
        }
        let take = buf.len().min(BLOCK_BYTES - blocks.last.len());
        blocks.last.extend_from_slice(&buf[..take]);
        blocks.bytes += take as u64;
        if blocks.last.len() == BLOCK_BYTES {
            let full = std::mem::take(&mut blocks.last);
            blocks.full.push(Bytes::from(full));
        }
        Ok(take)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives each page its header. The library's own page writer borrows where it writes to, so there is
/// one for each page.
struct Pages(TrackedWrite<Chunk>);

impl PageWriter for Pages {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec> {
        SerializedPageWriter::new(&mut self.0).write_page(page)
    }

    fn close(&mut self) -> Result<()> {
        self.0.flush().map_err(ParquetError::from)
    }
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.bytes()
    }
}

impl ChunkReader for Chunk {
    type T = Drained;

    /// Reads from the start, where every chunk begins, and lets go of what was read.
    fn get_read(&self, start: u64) -> Result<Drained> {
        if start != 0 {
            return Err(ParquetError::General(format!("a column chunk starts at byte {start}")));
        }
        let mut blocks = self.0.lock();
        let last = std::mem::take(&mut blocks.last);
        let mut left = std::mem::take(&mut blocks.full);
        left.push(Bytes::from(last));
        Ok(Drained { left: left.into_iter(), now: Bytes::new() })
    }

    fn get_bytes(&self, _: u64, _: usize) -> Result<Bytes> {
        Err(ParquetError::NYI("a column chunk is read once, as a stream".to_owned()))
    }
}

/// The bytes of a chunk, once.
pub struct Drained {
    left: std::vec::IntoIter<Bytes>,
    now: Bytes,
}

impl Read for Drained {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.now.is_empty() {
            match self.left.next() {
                Some(next) => self.now = next,
                None => return Ok(0),
            }
        }
        let take = buf.len().min(self.now.len());
        buf[..take].copy_from_slice(&self.now.split_to(take));
        Ok(take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_in_order_over_many_blocks() {
        let mut chunk = Chunk::default();
        let bytes: Vec<u8> = (0..BLOCK_BYTES * 2 + 7).map(|n| (n % 251) as u8).collect();
        bytes.chunks(1000).for_each(|part| chunk.write_all(part).unwrap());
        assert_eq!(chunk.bytes(), bytes.len() as u64);
        let mut back = Vec::new();
        chunk.get_read(0).unwrap().read_to_end(&mut back).unwrap();
        assert!(back == bytes);
    }
}
