//! The one thread that changes the log's files.
//!
//! Owns: group commit (all that waits: one write, one sync, then all callbacks), moving to the next file,
//! purging, waiting for space on a full disk. Leaves to others: what is in the files at start (`recover`).
//! Upholds: `synced-before-told`, `failed-sync-is-final`: after a failed sync nothing is known about what
//! the disk holds, so every later job fails too and the node has to stop.

use super::blocks::{Blocks, Target};
use super::format::{self, RECORDS_START};
use super::log::read_segment;
use super::segment::{NewSegment, Segment, Spare, path_of, spare_path};
use super::{Disk, EntryId, Job, Shared, WalEntry};
use crate::WalOptions;
use crate::host::Synced;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A group is written and synced in parts of about this many bytes.
const WRITE_BYTES: usize = 8 << 20;
/// Memory that the write buffer keeps between groups.
const BUFFER_KEPT: usize = 1 << 20;
/// How often a full disk is tried again.
const FULL_RETRY: Duration = Duration::from_millis(200);

pub(crate) struct Writer {
    dir: PathBuf,
    options: WalOptions,
    disk: Arc<dyn Disk>,
    shared: Arc<Shared>,
    spares: Vec<Spare>,
    /// The last file takes no more records: move to the next one first.
    sealed: bool,
    /// Why nothing can be written any more.
    failed: Option<String>,
    buffer: Vec<u8>,
    blocks: Blocks,
}

/// Records encoded for the last file and not written yet.
#[derive(Default)]
struct Part {
    file_id: u32,
    start: u64,
    positions: Vec<u32>,
    next: u64,
}

impl Writer {
    pub(crate) fn new(
        dir: &Path,
        options: &WalOptions,
        disk: Arc<dyn Disk>,
        shared: Arc<Shared>,
        spares: Vec<Spare>,
        sealed: bool,
    ) -> Self {
        let (dir, options) = (dir.to_owned(), options.clone());
        let (failed, buffer, blocks) = (None, Vec::new(), Blocks::default());
        Self { dir, options, disk, shared, spares, sealed, failed, buffer, blocks }
    }

    pub(crate) fn run(mut self) {
        while let Some(jobs) = self.wait() {
            self.run_jobs(jobs);
        }
    }

    /// All that is queued; `None` when the log is closed and nothing is left.
    fn wait(&self) -> Option<Vec<Job>> {
        let mut queue = self.shared.queue.lock();
        loop {
            if !queue.jobs.is_empty() {
                return Some(std::mem::take(&mut queue.jobs));
            }
            if queue.closing {
                return None;
            }
            self.shared.wake.wait(&mut queue);
        }
    }

    fn run_jobs(&mut self, jobs: Vec<Job>) {
        let mut group: Vec<WalEntry> = Vec::new();
        let mut waiting: Vec<Synced> = Vec::new();
        for job in jobs {
            match job {
                Job::Append { entries, synced } => {
                    if group.is_empty() {
                        group = entries;
                    } else {
                        group.extend(entries);
                    }
                    waiting.push(synced);
                }
                other => {
                    self.commit(std::mem::take(&mut group), std::mem::take(&mut waiting));
                    self.run_other(other);
                }
            }
        }
        self.commit(group, waiting);
    }

    fn run_other(&mut self, job: Job) {
        match job {
            Job::Append { .. } => {}
            Job::Truncate { from, done } => {
                let result = self.guarded(|writer| writer.truncate(from));
                let _ = done.send(result);
            }
            Job::StartAnew { after, done } => {
                let result = self.guarded(|writer| writer.start_anew(after));
                let _ = done.send(result);
            }
            Job::Purge { upto } => {
                let _ = self.guarded(|writer| writer.purge(upto));
            }
        }
    }

    fn commit(&mut self, group: Vec<WalEntry>, waiting: Vec<Synced>) {
        if waiting.is_empty() {
            return;
        }
        let result = self.guarded(|writer| writer.write_group(&group));
        for synced in waiting {
            synced(match &result {
                Ok(()) => Ok(()),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            });
        }
    }

    /// Runs `work`; the first error is final, and said of everything after it.
    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        if let Some(failed) = &self.failed {
            return Err(io::Error::other(failed.clone()));
        }
        let result = work(self);
        if let Err(error) = &result {
            let dir = self.dir.display();
            let text = format!("the log in {dir} cannot be written: {error}");
            tracing::error!(dir = %dir, %error, "log writer failed");
            self.failed = Some(text.clone());
            self.shared.failed.send_replace(true);
            return Err(io::Error::new(error.kind(), text));
        }
        result
    }

    fn write_group(&mut self, group: &[WalEntry]) -> io::Result<()> {
        let mut part = self.new_part();
        for entry in group {
            let bytes = format::record_bytes(entry);
            if part.as_ref().is_none_or(|(part, left)| {
                *left < bytes || part.start + self.buffer.len() as u64 + bytes > u32::MAX as u64 * 8
            }) {
                self.flush(part.take())?;
                self.next_file(entry.id, bytes)?;
                part = self.new_part();
            } else if self.buffer.len() >= WRITE_BYTES {
                self.flush(part.take())?;
                part = self.new_part();
            }
            let Some((part, left)) = &mut part else {
                return Err(io::Error::other("a new log file has no room"));
            };
            let position = part.start + self.buffer.len() as u64;
            let place = part.positions.len() as u32;
            format::encode_record(&mut self.buffer, entry, part.file_id, place);
            part.positions.push((position / format::ALIGN) as u32);
            part.next = entry.id.index + 1;
            *left -= bytes;
        }
        self.flush(part)
    }

    /// An empty part at the end of the last file and the bytes that it may grow to; `None` when there is
    /// no file that takes records.
    fn new_part(&self) -> Option<(Part, u64)> {
        let log = self.shared.log.lock();
        let last = log.segments.back().filter(|_| !self.sealed)?;
        let part = Part { file_id: last.header.file_id, start: last.end, ..Part::default() };
        Some((part, last.capacity.saturating_sub(last.end)))
    }

    /// Writes and syncs what is encoded, then shows it to readers.
    fn flush(&mut self, part: Option<(Part, u64)>) -> io::Result<()> {
        let Some((part, _)) = part.filter(|(part, _)| !part.positions.is_empty()) else {
            return Ok(());
        };
        let end = part.start + self.buffer.len() as u64;
        let target = {
            let log = self.shared.log.lock();
            let Some(last) = log.segments.back() else {
                return Err(io::Error::other("the log has no file"));
            };
            Target::of(last, end)
        };
        self.blocks.fill(&target, part.start, &self.buffer)?;
        if let Some(zeros) = target.zeros() {
            let blank = Blocks::blank(zeros.end - zeros.start);
            self.until_space(|writer| writer.disk.write(&target.to, blank.bytes(), zeros.start))?;
        }
        self.until_space(|writer| {
            writer.disk.write(&target.to, writer.blocks.bytes(), writer.blocks.start())
        })?;
        self.disk.sync(&target.to)?;
        let bytes = self.buffer.len() as u64;
        self.shared.bytes_written.fetch_add(bytes, Ordering::Relaxed);
        self.shared.syncs.fetch_add(1, Ordering::Relaxed);
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT);
        let mut log = self.shared.log.lock();
        if let Some(last) = log.segments.back_mut() {
            last.positions.extend_from_slice(&part.positions);
            (last.end, last.zeroed) = (end, target.zeroed_after);
        }
        log.set_synced(part.next);
        drop(log);
        self.shared.failed.send_replace(false);
        Ok(())
    }

    /// Makes the file whose first record will be `id`, with room for `bytes`.
    fn next_file(&mut self, id: EntryId, bytes: u64) -> io::Result<()> {
        let previous = id.index.checked_sub(1).and_then(|at| self.shared.log.lock().id_of(at));
        self.add_file(id.index, previous, false, bytes)
    }

    fn add_file(
        &mut self,
        first: u64,
        previous: Option<EntryId>,
        starts_anew: bool,
        bytes: u64,
    ) -> io::Result<()> {
        let (very_first, replaces) = {
            let log = self.shared.log.lock();
            let last = log.segments.back();
            (last.is_none(), last.is_some_and(|last| last.header.first == first))
        };
        let WalOptions { segment_bytes, first_segment_bytes, .. } = self.options;
        let usual = if very_first { first_segment_bytes } else { segment_bytes };
        let capacity = usual.max((RECORDS_START + bytes).next_multiple_of(RECORDS_START));
        // A file without records that cannot take this one is replaced under its name.
        let dir = if replaces { self.aside()? } else { self.dir.clone() };
        let mut segment = self.until_space(|writer| {
            let spare = writer.spares.iter().position(|spare| spare.bytes == capacity);
            let spare = spare.map(|at| writer.spares.swap_remove(at));
            let new = NewSegment { dir: &dir, first, previous, starts_anew, capacity };
            new.create(&*writer.disk, spare)
        })?;
        if replaces {
            self.put_in_place(&mut segment)?;
            self.shared.log.lock().segments.pop_back();
        }
        self.sealed = false;
        self.shared.log.lock().segments.push_back(segment);
        Ok(())
    }

    /// A directory for files that are not yet part of the log.
    fn aside(&self) -> io::Result<PathBuf> {
        let aside = self.dir.join("rewrite");
        std::fs::create_dir_all(&aside)?;
        Ok(aside)
    }

    /// Moves a finished file from aside over the one of its name.
    fn put_in_place(&self, segment: &mut Segment) -> io::Result<()> {
        let path = path_of(&self.dir, segment.header.first);
        std::fs::rename(&segment.path, &path)?;
        self.disk.sync_dir(&self.dir)?;
        segment.path = path;
        Ok(())
    }

    /// Does `work` until it no longer fails for want of space. Gives up when the log is being closed.
    fn until_space<T>(&mut self, work: impl Fn(&mut Self) -> io::Result<T>) -> io::Result<T> {
        loop {
            let error = match work(self) {
                Err(error) if is_full(&error) => error,
                other => {
                    if *self.shared.full.borrow() {
                        tracing::info!(dir = %self.dir.display(), "log has space again");
                        self.shared.full.send_replace(false);
                    }
                    return other;
                }
            };
            if !*self.shared.full.borrow() {
                tracing::warn!(dir = %self.dir.display(), %error, "log waits for space");
                self.shared.full.send_replace(true);
            }
            let mut queue = self.shared.queue.lock();
            if queue.closing {
                return Err(error);
            }
            // New jobs wake this too; they only make the next try come early.
            self.shared.wake.wait_for(&mut queue, FULL_RETRY);
        }
    }

    /// Lets go of files whose every record is at or before `upto`; the last file stays.
    fn purge(&mut self, upto: u64) -> io::Result<()> {
        loop {
            let gone = {
                let mut log = self.shared.log.lock();
                match log.segments.get(1) {
                    Some(next) if next.header.first <= upto + 1 => log.segments.pop_front(),
                    _ => return Ok(()),
                }
            };
            if let Some(gone) = gone {
                self.let_go(gone)?;
            }
        }
    }

    fn let_go(&mut self, gone: Segment) -> io::Result<()> {
        let usual = gone.capacity == self.options.segment_bytes;
        if usual && self.spares.len() < self.options.spare_files {
            let path = spare_path(&gone.path);
            std::fs::rename(&gone.path, &path)?;
            self.spares.push(Spare { path, bytes: gone.capacity });
            return Ok(());
        }
        std::fs::remove_file(&gone.path)
    }

    /// Removes the records from `from` on: later files go, newest first; the file that holds `from` is
    /// replaced by a copy of its sound part, whose records carry a new file id.
    fn truncate(&mut self, from: u64) -> io::Result<()> {
        loop {
            let gone = {
                let mut log = self.shared.log.lock();
                match log.segments.back() {
                    // A file that begins at `from` goes too, but the last one left keeps `previous`.
                    Some(last) if last.header.first >= from && log.segments.len() > 1 => {
                        log.segments.pop_back()
                    }
                    _ => break,
                }
            };
            if let Some(gone) = gone {
                std::fs::remove_file(&gone.path)?;
                self.disk.sync_dir(&self.dir)?;
                // Behind the end of the file before, torn records may lie.
                self.sealed = true;
            }
        }
        let cut = self.shared.log.lock().segments.back().is_some_and(|last| last.next() > from);
        if cut {
            self.replace_last(from)?;
        }
        self.shared.log.lock().cut_from(from);
        Ok(())
    }

    fn replace_last(&mut self, from: u64) -> io::Result<()> {
        let (header, capacity, kept) = {
            let log = self.shared.log.lock();
            let Some(last) = log.segments.back() else { return Ok(()) };
            (last.header, last.capacity, read_segment(last, from)?)
        };
        let aside = self.aside()?;
        let mut copy = self.until_space(|writer| {
            let (first, previous) = (header.first, header.previous);
            let starts_anew = header.starts_anew;
            NewSegment { dir: &aside, first, previous, starts_anew, capacity }
                .create(&*writer.disk, None)
        })?;
        self.buffer.clear();
        for entry in &kept {
            let position = copy.end + self.buffer.len() as u64;
            copy.positions.push((position / format::ALIGN) as u32);
            format::encode_record(&mut self.buffer, entry, copy.header.file_id, 0);
        }
        self.disk.write(&copy.file, &self.buffer, copy.end)?;
        self.disk.sync(&copy.file)?;
        copy.end += self.buffer.len() as u64;
        copy.zeroed = copy.zeroed.max(copy.end);
        self.buffer.clear();
        self.put_in_place(&mut copy)?;
        self.sealed = false;
        let mut log = self.shared.log.lock();
        log.segments.pop_back();
        log.segments.push_back(copy);
        Ok(())
    }

    /// Starts the log anew behind `after`; the files before go.
    fn start_anew(&mut self, after: EntryId) -> io::Result<()> {
        self.add_file(after.index + 1, Some(after), true, 0)?;
        let old: Vec<Segment> = {
            let mut log = self.shared.log.lock();
            log.start_anew(after);
            let keep = log.segments.len() - 1;
            log.segments.drain(..keep).collect()
        };
        for gone in old {
            self.let_go(gone)?;
        }
        Ok(())
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}
