//! From records to the bytes of a data object.
//!
//! Owns: which encodings there are, and the encoder revision that pins their bytes.
//! Leaves to others: reading records (`read`), sending bytes (`upload`).
//! Upholds: `window-is-final` (same records, same bytes).

pub mod encoding;
pub mod jsonl;
pub mod object;
pub mod wrap;

pub use encoding::{Compression, Encoding};

/// Raised with every change that changes the bytes of an object: the line format, a codec's level
/// or frame options, a library release that compresses otherwise. The golden files tell.
pub const ENCODER_REVISION: u32 = 1;
