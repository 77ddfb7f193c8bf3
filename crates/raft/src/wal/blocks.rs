//! Whole blocks, for writes that go past the page cache.
//!
//! Owns: rounding a part of the log out to blocks in aligned memory, the bytes of the last block that
//! the next part shares, and how far ahead of the records a new file is blank. Leaves to others: what
//! is written and when it is synced (`writer`).

use super::segment::Segment;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Unit of a direct write: no device asks for more.
pub(crate) const BLOCK: u64 = 4096;
/// Blocks of a new file are written with zeros this far ahead of the records, so that most syncs change
/// no metadata.
const ZERO_AHEAD: u64 = 1 << 20;
/// Memory kept between parts.
const KEPT: usize = 1 << 20;

/// Where a part that ends at `end` is written, and how far the file is blank after it.
pub(crate) struct Target {
    /// The descriptor to write to.
    pub(crate) to: Arc<File>,
    /// What the segment's `zeroed` is once the part is written.
    pub(crate) zeroed_after: u64,
    file: Arc<File>,
    file_id: u32,
    end: u64,
    /// Unit that positions and lengths are rounded to; 1 through the page cache.
    unit: u64,
    blank: Option<Range<u64>>,
}

impl Target {
    pub(crate) fn of(last: &Segment, end: u64) -> Target {
        let direct = last.direct.clone().filter(|_| last.capacity.is_multiple_of(BLOCK));
        let unit = if direct.is_some() { BLOCK } else { 1 };
        let written = end.next_multiple_of(unit);
        let to = direct.unwrap_or_else(|| last.file.clone());
        let (file, file_id) = (last.file.clone(), last.header.file_id);
        let (mut zeroed_after, mut blank) = (last.zeroed, None);
        if written > last.zeroed {
            zeroed_after = (written + ZERO_AHEAD).min(last.capacity).max(written);
            blank = Some(written..zeroed_after).filter(|range| !range.is_empty());
        }
        Target { to, zeroed_after, file, file_id, end, unit, blank }
    }

    /// What has to be made blank before the part is written.
    pub(crate) fn zeros(&self) -> Option<Range<u64>> {
        self.blank.clone()
    }
}

/// Bytes in memory that a direct write takes.
#[derive(Default)]
pub(crate) struct Blocks {
    memory: Vec<u8>,
    /// Where the aligned bytes begin in `memory`.
    offset: usize,
    start: u64,
    /// File and end of the part that was filled last, when its last block is still here.
    last: Option<(u32, u64)>,
}

impl Blocks {
    /// `len` zero bytes.
    pub(crate) fn blank(len: u64) -> Blocks {
        let mut blocks = Blocks::default();
        let len = usize::try_from(len).unwrap_or(0);
        blocks.make_room(len);
        blocks.memory.resize(blocks.offset + len, 0);
        blocks
    }

    /// Position in the file of the first byte.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The bytes to write, a whole number of the target's blocks.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.offset..]
    }

    /// Takes the part `bytes` at position `at` of the target's file, rounded out to blocks: in front with
    /// what the file has there, behind with zeros.
    pub(crate) fn fill(&mut self, target: &Target, at: u64, bytes: &[u8]) -> io::Result<()> {
        let start = at / target.unit * target.unit;
        let mut front = [0u8; BLOCK as usize];
        let front = &mut front[..(at - start) as usize];
        if !front.is_empty() {
            match self.last {
                Some((file, end)) if file == target.file_id && end == at && start >= self.start => {
                    let from = self.offset + (start - self.start) as usize;
                    front.copy_from_slice(&self.memory[from..from + front.len()]);
                }
                _ => target.file.read_exact_at(front, start)?,
            }
        }
        let len = (target.end.next_multiple_of(target.unit) - start) as usize;
        self.make_room(len);
        self.memory.extend_from_slice(front);
        self.memory.extend_from_slice(bytes);
        self.memory.resize(self.offset + len, 0);
        self.start = start;
        self.last = Some((target.file_id, target.end));
        Ok(())
    }

    /// Empties the memory up to an aligned offset behind which `len` bytes fit without a move.
    fn make_room(&mut self, len: usize) {
        self.memory.clear();
        if self.memory.capacity() > KEPT && len + BLOCK as usize <= KEPT {
            self.memory.shrink_to(KEPT);
        }
        self.memory.reserve(len + BLOCK as usize);
        self.offset = self.memory.as_ptr().align_offset(BLOCK as usize).min(BLOCK as usize);
        self.memory.resize(self.offset, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::format::{FileHeader, RECORDS_START};
    use crate::wal::segment::open_direct;

    fn segment(dir: &std::path::Path) -> Segment {
        let path = dir.join("a.wal");
        std::fs::write(&path, vec![7u8; 64 << 10]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        Segment {
            direct: open_direct(&path),
            path,
            file: Arc::new(file),
            header: FileHeader { file_id: 9, starts_anew: false, first: 1, previous: None },
            positions: Vec::new(),
            end: RECORDS_START,
            capacity: 64 << 10,
            zeroed: 64 << 10,
        }
    }

    #[test]
    fn parts_written_as_blocks_lie_end_to_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut segment = segment(dir.path());
        let mut blocks = Blocks::default();
        let mut want = Vec::new();
        for (n, len) in [8usize, 4080, 8, 16, 9000, 4096, 24].into_iter().enumerate() {
            if n == 4 {
                // As after a restart: the last block has to be read back.
                blocks = Blocks::default();
            }
            let part = vec![n as u8 + 100; len];
            let at = segment.end;
            let target = Target::of(&segment, at + len as u64);
            blocks.fill(&target, at, &part).unwrap();
            assert_eq!(blocks.start() % target.unit, 0);
            assert_eq!(blocks.bytes().len() as u64 % target.unit, 0);
            target.to.write_all_at(blocks.bytes(), blocks.start()).unwrap();
            segment.end += len as u64;
            want.extend(part);
        }
        let mut found = vec![0; want.len()];
        segment.file.read_exact_at(&mut found, RECORDS_START).unwrap();
        assert_eq!(found, want);
    }
}
