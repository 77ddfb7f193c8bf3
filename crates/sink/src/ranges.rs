//! What each partition has in a window: in the manifest, or in an object beside it when they are many.
//!
//! Owns: that list and the bytes of its object, made as they are sent.
//! Leaves to others: the document (`queen_core::sink`), when it is made (`produce`).
//! Upholds: `window-is-final`, `memory-bounded`.

use crate::encode::Encoded;
use crate::encode::pieces::{Cutter, Pieces};
use crate::layout::Layout;
use crate::read::{Parts, ReadError, Share};
use queen_core::sink::PartitionRange;
use std::io::{self, Write as _};

/// Partitions listed in the manifest itself; more go to an object beside it.
pub const RANGES_MAX: usize = 10_000;

/// Makes ranges of shares that come in the order of a window. Partitions of one name, one made after the
/// other was deleted, are one range where they are in one object.
#[derive(Debug)]
pub struct Joining {
    layout: Layout,
    last: Option<PartitionRange>,
}

impl Joining {
    /// Before the first partition.
    pub fn new(layout: Layout) -> Joining {
        Joining { layout, last: None }
    }

    /// Takes the next partition; gives the range that is whole by now.
    pub fn add(&mut self, name: &str, share: Share) -> Option<PartitionRange> {
        let joins =
            |last: &&mut PartitionRange| self.layout == Layout::Merged && last.partition == name;
        if let Some(last) = self.last.as_mut().filter(joins) {
            last.last_offset = share.last;
            last.records += share.records;
            return None;
        }
        self.last.replace(PartitionRange {
            partition: name.to_owned(),
            first_offset: share.first,
            last_offset: share.last,
            records: share.records,
        })
    }

    /// The last range.
    pub fn end(&mut self) -> Option<PartitionRange> {
        self.last.take()
    }
}

/// Writes the object of a window's ranges: `queen_core::sink::PartitionsFile`.
pub fn encode<P: Pieces>(
    k: u64,
    layout: Layout,
    parts: &mut Parts,
    pieces: P,
) -> Result<(Encoded, P), ReadError> {
    let (mut out, mut text, mut joining) = (Cutter::new(pieces), Vec::new(), Joining::new(layout));
    write!(out, "{{\"v\":1,\"k\":{k},\"ranges\":[")?;
    let mut between = "";
    let mut put = |range: Option<PartitionRange>| -> io::Result<()> {
        let Some(range) = range else { return Ok(()) };
        text.clear();
        text.extend_from_slice(between.as_bytes());
        between = ",";
        serde_json::to_writer(&mut text, &range)?;
        out.write_all(&text)
    };
    parts.each(&mut |part| {
        for (name, share) in part.shares() {
            put(joining.add(name, share))?;
        }
        Ok(())
    })?;
    put(joining.end())?;
    out.write_all(b"]}")?;
    let (finished, pieces) = out.finish()?;
    Ok((Encoded { finished, wrapped: 0, record_bytes_max: 0 }, pieces))
}
