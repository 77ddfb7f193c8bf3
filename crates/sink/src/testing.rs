//! What tests of single parts need: a log to read, whoever keeps pieces, and a count of memory.
//!
//! Tests of the whole sink run it against the twins of `queen-sim`.

mod allocations;
mod log;

pub use allocations::most_held;
pub use log::{Appended, Log, shape_of};

use crate::encode::pieces::Pieces;
use bytes::Bytes;

/// Keeps all pieces.
#[derive(Default)]
pub struct All(pub Vec<Bytes>);

impl Pieces for All {
    fn piece(&mut self, piece: Bytes) -> std::io::Result<()> {
        self.0.push(piece);
        Ok(())
    }
}
