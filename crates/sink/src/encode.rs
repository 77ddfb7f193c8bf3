//! From records to the bytes of a data object.
//!
//! Owns: formats and codecs, and the encoder revision that pins their bytes.
//! Leaves to others: reading records (`read`), sending bytes (`upload`).

/// Format of a data object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// One JSON object per line.
    Jsonl,
}

/// Compression of a JSONL object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// One zstd frame.
    Zstd,
    /// One gzip member.
    Gzip,
    /// None.
    None,
}
