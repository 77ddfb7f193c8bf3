//! Sending an image of the store.
//!
//! Owns: the order of the blocks, cutting the stream into pieces. Leaves to others: their bytes
//! (`stream`), what holds the files meanwhile (`image`).

use crate::error::ImageError;
use crate::image::{CHUNK_BYTES, Image, Section, SectionReader};
use crate::store::{Applied, Store};
use crate::stream::{Block, Encoder, Head};
use bytes::Bytes;
use std::vec::IntoIter;

/// Longest piece that [`Export::read`] gives. Bytes.
pub const PIECE_BYTES_MAX: usize = 1 << 20;

/// How much an image holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// Bytes of the tables' files here; what is sent of them may be more or less.
    pub table_bytes: u64,
    /// Queue log segments.
    pub segments: u64,
    /// Bytes of all segments.
    pub segment_bytes: u64,
}

/// An image of the store on its way out.
///
/// While it lives, files that retention has taken stay on the disk: drop it when it is sent.
pub struct Export {
    image: Image,
    size: ImageSize,
    encoder: Encoder,
    sections: IntoIter<Section>,
    reader: Option<SectionReader>,
    chunk: Vec<u8>,
    /// Encoded and not given yet.
    pending: Vec<u8>,
    piece_bytes: usize,
    has_ended: bool,
}

impl Store {
    /// An image of the last durable checkpoint, or of a new one when there is none yet.
    ///
    /// Apply does not wait for it. [`ImageError::Empty`] when nothing was ever applied.
    pub fn export(&self) -> Result<Export, ImageError> {
        if self.durable().is_none() {
            self.checkpoint().map_err(ImageError::Store)?;
        }
        Ok(Export::new(Image::take(self.shared.disk())?))
    }
}

impl Export {
    fn new(image: Image) -> Export {
        let size = ImageSize {
            table_bytes: image.table_bytes(),
            segments: image.segments.len() as u64,
            segment_bytes: image.segments.values().sum(),
        };
        let mut pending = Vec::new();
        let mut encoder = Encoder::begin(&mut pending);
        let head = Head {
            applied: image.applied.clone(),
            table_bytes: size.table_bytes,
            segments: size.segments,
            segment_bytes: size.segment_bytes,
        };
        encoder.block(&Block::Head(head), &mut pending);
        let sections = image.sections().collect::<Vec<_>>().into_iter();
        Export {
            image,
            size,
            encoder,
            sections,
            reader: None,
            chunk: Vec::new(),
            pending,
            piece_bytes: PIECE_BYTES_MAX,
            has_ended: false,
        }
    }

    /// The position that the image stands at.
    pub fn applied(&self) -> &Applied {
        &self.image.applied
    }

    /// How much there is to send.
    pub fn size(&self) -> ImageSize {
        self.size
    }

    /// Appends the next piece to `into`, at most [`PIECE_BYTES_MAX`]; `false` with the last one.
    ///
    /// Blocking file I/O. Memory: a piece and the longest row.
    pub fn read(&mut self, into: &mut Vec<u8>) -> Result<bool, ImageError> {
        while self.pending.len() < self.piece_bytes && !self.has_ended {
            self.encode_next()?;
        }
        let length = self.pending.len().min(self.piece_bytes);
        into.extend(self.pending.drain(..length));
        Ok(!(self.pending.is_empty() && self.has_ended))
    }

    #[cfg(test)]
    pub(crate) fn set_piece_bytes(&mut self, bytes: usize) {
        self.piece_bytes = bytes;
    }

    fn encode_next(&mut self) -> Result<(), ImageError> {
        let Some(reader) = &mut self.reader else {
            let block = match self.sections.next() {
                Some(section) => {
                    self.reader = Some(SectionReader::new(section));
                    match section {
                        Section::Table(table) => Block::Table(table as u8),
                        Section::Segment { id, bytes } => Block::Segment { id, bytes },
                    }
                }
                None => {
                    self.has_ended = true;
                    Block::End
                }
            };
            self.encoder.block(&block, &mut self.pending);
            return Ok(());
        };
        self.chunk.clear();
        if reader.read(&self.image, &mut self.chunk)? {
            for data in self.chunk.chunks(CHUNK_BYTES) {
                let data = Block::Data(Bytes::copy_from_slice(data));
                self.encoder.block(&data, &mut self.pending);
            }
        } else {
            let close = Block::Close { bytes: reader.bytes, hash: reader.hash() };
            self.encoder.block(&close, &mut self.pending);
            self.reader = None;
        }
        Ok(())
    }
}
