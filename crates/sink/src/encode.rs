//! From records to the bytes of a data object.
//!
//! Owns: which encodings there are, the one encoder of all of them, and the encoder revision that pins their bytes.
//! Leaves to others: reading records (`read`), sending bytes (`upload`).
//! Upholds: `window-is-final` (same records, same bytes).

mod compress;
mod encoding;
mod jsonl;
mod object;
mod parquet;
pub mod pieces;
mod record;
pub(crate) mod wrap;

pub use encoding::{Compression, Encoding, PageCompression};
pub use object::{Encoded, ObjectEncoder, ObjectSpec};
pub use record::{Record, TransactionId};

/// Raised with every change that changes the bytes of an object: the line format, a codec's level
/// or frame options, a library release that compresses otherwise. The golden files tell.
pub const ENCODER_REVISION: u32 = 1;
