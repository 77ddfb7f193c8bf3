//! Receiving an image into a directory beside the store's files.
//!
//! Owns: what must come after what, the checks, filling the directory, removing it when it comes to
//! nothing. Leaves to others: the bytes (`stream`), letting it count (`install`).
//!
//! Nothing that is written here counts before `install` names it: a crash leaves a directory that
//! the next start removes. Everything is held against its hash before that.

use crate::disk::{Disk, remove_dir};
use crate::error::ImageError;
use crate::export::ImageSize;
use crate::log_files::{LogFiles, SegmentId};
use crate::lsm::{Lsm, WriteError};
use crate::overlay::Overlay;
use crate::recovery::{QUEUES, TABLES};
use crate::store::{Applied, Store};
use crate::stream::{Block, Decoder, Head};
use crate::{checkpoint::Step, install, recovery, root};
use bytes::Buf;
use queen_core::QueueId;
use queen_core::limits::ENTRY_BYTES_MAX;
use queen_core::table::Table;
use std::collections::BTreeSet;
use std::collections::btree_map::IntoIter;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Rows held in memory before they are written. Bytes.
const ROWS_BYTES: usize = 16 << 20;
/// Longer than any row: a value comes out of one log entry.
const ROW_BYTES_MAX: usize = ENTRY_BYTES_MAX + (1 << 20);
const ROW_HEADER_BYTES: usize = 8;

/// An image on its way in.
///
/// After an error, or when it is dropped, all that was received is removed.
pub struct Import {
    store: Store,
    number: u64,
    decoder: Decoder,
    /// `None` once it has failed.
    receiver: Option<Receiver>,
}

impl Store {
    /// Begins to receive an image. The store goes on as it is until [`Import::install`].
    pub fn import(&self) -> Result<Import, ImageError> {
        let dir = &self.shared.dir;
        let io = |source| ImageError::Io { what: "begin an image in", path: dir.clone(), source };
        let number = loop {
            let number = root::unused(dir).map_err(io)?;
            match std::fs::create_dir(root::dir_of(dir, number)) {
                Ok(()) => break number,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io(error)),
            }
        };
        let mut import =
            Import { store: self.clone(), number, decoder: Decoder::default(), receiver: None };
        let options = &self.shared.options;
        let block_cache = options.block_cache_bytes;
        import.receiver = Some(Receiver::begin(&import.dir(), block_cache, options.open_files)?);
        self.shared.step(Step::ImportBegun);
        Ok(import)
    }
}

impl Import {
    /// Takes the next piece, of any length. After an error the import is over.
    ///
    /// Blocking file I/O. A full disk is an error; nobody waits for space here.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), ImageError> {
        let done = self.take(piece);
        if done.is_err() {
            self.give_up();
        }
        done
    }

    fn take(&mut self, piece: &[u8]) -> Result<(), ImageError> {
        let Some(receiver) = &mut self.receiver else {
            return Err(ImageError::Damaged("it had failed before".to_owned()));
        };
        self.decoder.feed(piece);
        while let Some(block) = self.decoder.next().map_err(ImageError::Damaged)? {
            let closes = matches!(block, Block::Close { .. });
            receiver.block(block)?;
            if closes {
                self.store.shared.step(Step::SectionReceived);
            }
        }
        Ok(())
    }

    /// What the image holds, once its first piece has come.
    pub fn size(&self) -> Option<ImageSize> {
        let head = self.receiver.as_ref()?.head.as_ref()?;
        Some(ImageSize {
            table_bytes: head.table_bytes,
            segments: head.segments,
            segment_bytes: head.segment_bytes,
        })
    }

    /// Lets the image take the place of all that the store holds, and gives its position.
    ///
    /// The image must have come whole. On the disk it counts at once or not at all; readers see
    /// what was before or what is now. For the thread that applies; it must hold no guard. An image
    /// that stands before what is applied here is refused.
    pub fn install(mut self) -> Result<Applied, ImageError> {
        let receiver = self.receiver.take();
        let installed = receiver
            .ok_or_else(|| ImageError::Damaged("it had failed before".to_owned()))
            .and_then(|receiver| self.install_received(receiver));
        if installed.is_err() {
            self.give_up();
        } else {
            // It is the store's own now.
            self.number = root::FIRST;
        }
        installed
    }

    fn install_received(&self, receiver: Receiver) -> Result<Applied, ImageError> {
        let shared = &self.store.shared;
        let (lsm, files, applied) = receiver.finish(&self.dir())?;
        let store_dir = &shared.dir;
        root::sync(store_dir).map_err(io_error("sync", store_dir))?;
        shared.step(Step::ImportSynced);
        let dirs = vec![self.dir()];
        let disk = Disk::new(lsm, files, shared.options.row_cache_bytes, dirs);
        install::install(shared, self.number, disk, &applied)?;
        self.store.ring();
        Ok(applied)
    }

    fn dir(&self) -> PathBuf {
        root::dir_of(&self.store.shared.dir, self.number)
    }

    fn give_up(&mut self) {
        self.receiver = None;
        // Installed, although it was not seen to be durable: then the store has failed.
        let counts = root::current(&self.store.shared.dir).map_or(true, |n| n == self.number);
        if self.number != root::FIRST && !counts {
            remove_dir(&self.dir());
        }
        self.number = root::FIRST;
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The section that is being received.
struct Open {
    section: Target,
    bytes: u64,
    hash: Box<Xxh3>,
}

enum Target {
    Table {
        table: Table,
        last_key: Option<Vec<u8>>,
        /// Bytes of a row that has not come whole.
        rest: Vec<u8>,
    },
    Segment {
        path: PathBuf,
        file: File,
        bytes: u64,
    },
}

/// Writes blocks to where they belong.
struct Receiver {
    lsm: Lsm,
    files: LogFiles,
    rows: Overlay,
    head: Option<Head>,
    open: Option<Open>,
    last_table: Option<Table>,
    /// Segments that the tables name and that have not come; `None` before the last table.
    expected: Option<IntoIter<SegmentId, u64>>,
    queues: BTreeSet<QueueId>,
    segments: u64,
    segment_bytes: u64,
    has_ended: bool,
}

impl Receiver {
    fn begin(
        dir: &Path,
        block_cache_bytes: u64,
        open_files: usize,
    ) -> Result<Receiver, ImageError> {
        let (tables, queues) = (dir.join(TABLES), dir.join(QUEUES));
        std::fs::create_dir_all(&tables).map_err(io_error("create", &tables))?;
        std::fs::create_dir_all(&queues).map_err(io_error("create", &queues))?;
        let lsm = Lsm::open(&tables, block_cache_bytes)
            .map_err(|error| write_error(error.into(), &tables))?;
        Ok(Receiver {
            lsm,
            files: LogFiles::new(queues, open_files),
            rows: Overlay::default(),
            head: None,
            open: None,
            last_table: None,
            expected: None,
            queues: BTreeSet::new(),
            segments: 0,
            segment_bytes: 0,
            has_ended: false,
        })
    }

    fn block(&mut self, block: Block) -> Result<(), ImageError> {
        match (block, &self.head, &self.open) {
            (Block::Head(head), None, None) => {
                self.head = Some(head);
                Ok(())
            }
            (Block::Table(number), Some(_), None) if self.expected.is_none() => {
                self.open_table(number)
            }
            (Block::Segment { id, bytes }, Some(_), None) => self.open_segment(id, bytes),
            (Block::Data(data), _, Some(_)) => self.data(&data),
            (Block::Close { bytes, hash }, _, Some(_)) => self.close(bytes, hash),
            (Block::End, Some(_), None) => self.end(),
            (block, ..) => damaged(format!("{block:?} comes where it may not")),
        }
    }

    fn open_table(&mut self, number: u8) -> Result<(), ImageError> {
        let Some(&table) = Table::ALL.iter().find(|&&table| table as u8 == number) else {
            return damaged(format!("it has a table {number}: was it sent by a newer release?"));
        };
        if self.last_table.is_some_and(|last| last >= table) {
            return damaged(format!("table {} comes too late", table.name()));
        }
        self.last_table = Some(table);
        self.open(Target::Table { table, last_key: None, rest: Vec::new() });
        Ok(())
    }

    fn open(&mut self, section: Target) {
        self.open = Some(Open { section, bytes: 0, hash: Box::default() });
    }

    fn open_segment(&mut self, id: SegmentId, bytes: u64) -> Result<(), ImageError> {
        self.tables_end()?;
        let named = self.expected.as_mut().and_then(Iterator::next);
        if named != Some((id, bytes)) {
            return damaged(format!("{id:?} of {bytes} bytes comes, the tables say {named:?}"));
        }
        let path = self.files.path(id);
        if self.queues.insert(id.queue) {
            let dir = self.files.queue_dir(id.queue);
            std::fs::create_dir(&dir).map_err(io_error("create", &dir))?;
        }
        let file = File::create_new(&path).map_err(io_error("create", &path))?;
        self.segments += 1;
        self.segment_bytes += bytes;
        self.open(Target::Segment { path, file, bytes });
        Ok(())
    }

    fn data(&mut self, data: &[u8]) -> Result<(), ImageError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.hash.update(data);
        open.bytes += data.len() as u64;
        match &mut open.section {
            Target::Table { table, last_key, rest } => {
                rest.extend_from_slice(data);
                let taken = take_rows(*table, rest, last_key, &mut self.rows)?;
                rest.drain(..taken);
                if self.rows.bytes() >= ROWS_BYTES {
                    self.write_rows()?;
                }
                Ok(())
            }
            Target::Segment { path, file, bytes } if open.bytes <= *bytes => {
                file.write_all(data).map_err(io_error("write", path))
            }
            Target::Segment { path, .. } => damaged(format!("{} is too long", path.display())),
        }
    }

    fn close(&mut self, bytes: u64, hash: u128) -> Result<(), ImageError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        if open.bytes != bytes || open.hash.digest128() != hash {
            return damaged("the hash of a section is wrong".to_owned());
        }
        match open.section {
            Target::Table { rest, .. } if rest.is_empty() => Ok(()),
            Target::Table { table, .. } => {
                damaged(format!("the last row of table {} is cut", table.name()))
            }
            Target::Segment { bytes, path, .. } if bytes != open.bytes => {
                damaged(format!("{} is too short", path.display()))
            }
            Target::Segment { path, file, .. } => file.sync_all().map_err(io_error("sync", &path)),
        }
    }

    fn end(&mut self) -> Result<(), ImageError> {
        self.tables_end()?;
        if let Some(missing) = self.expected.as_mut().and_then(Iterator::next) {
            return damaged(format!("it ends without {missing:?}"));
        }
        let head = self.head.as_ref().map(|head| (head.segments, head.segment_bytes));
        if head != Some((self.segments, self.segment_bytes)) {
            return damaged("it holds another number of segments than it said".to_owned());
        }
        self.has_ended = true;
        Ok(())
    }

    /// All rows are here: they say which segments must come.
    fn tables_end(&mut self) -> Result<(), ImageError> {
        if self.expected.is_none() {
            self.write_rows()?;
            let segments = recovery::segments(&self.lsm.snapshot()).map_err(ImageError::Damaged)?;
            self.expected = Some(segments.into_iter());
        }
        Ok(())
    }

    fn write_rows(&mut self) -> Result<(), ImageError> {
        let Some(head) = &self.head else { return Ok(()) };
        let rows = std::mem::take(&mut self.rows);
        let done = self.lsm.write(&rows, &head.applied).and_then(|()| {
            while self.lsm.is_behind() && self.lsm.merge()? {}
            Ok(())
        });
        done.map_err(|error| write_error(error, self.files.dir()))
    }

    /// Syncs what is not synced yet, and gives it away.
    fn finish(self, dir: &Path) -> Result<(Arc<Lsm>, Arc<LogFiles>, Applied), ImageError> {
        let Some(head) = self.head.filter(|_| self.has_ended) else {
            return damaged("it is cut: its end has not come".to_owned());
        };
        let queues = self.queues.iter().map(|&queue| self.files.queue_dir(queue));
        let above = [self.files.dir().to_owned(), dir.join(TABLES), dir.to_owned()];
        for dir in queues.chain(above) {
            root::sync(&dir).map_err(io_error("sync", &dir))?;
        }
        Ok((Arc::new(self.lsm), Arc::new(self.files), head.applied))
    }
}

/// Takes whole rows from the begin of `bytes`; gives how many bytes they have.
fn take_rows(
    table: Table,
    bytes: &[u8],
    last_key: &mut Option<Vec<u8>>,
    rows: &mut Overlay,
) -> Result<usize, ImageError> {
    let mut taken = 0;
    while let Some(mut header) = bytes[taken..].get(..ROW_HEADER_BYTES) {
        let (key, value) = (header.get_u32_le() as usize, header.get_u32_le() as usize);
        let length = ROW_HEADER_BYTES + key + value;
        if length > ROW_BYTES_MAX {
            return damaged(format!("a row of table {} has {length} bytes", table.name()));
        }
        let Some(row) = bytes[taken..].get(ROW_HEADER_BYTES..length) else { break };
        let (key, value) = row.split_at(key);
        if last_key.as_deref().is_some_and(|last| last >= key) {
            return damaged(format!("the keys of table {} do not rise", table.name()));
        }
        rows.put(table, key, value, true);
        *last_key = Some(key.to_vec());
        taken += length;
    }
    Ok(taken)
}

fn damaged<T>(why: String) -> Result<T, ImageError> {
    Err(ImageError::Damaged(why))
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ImageError {
    move |source| ImageError::Io { what, path: path.to_owned(), source }
}

fn write_error(error: WriteError, dir: &Path) -> ImageError {
    let source = match error {
        WriteError::Full => io::ErrorKind::StorageFull.into(),
        WriteError::NoHandle => io::Error::from_raw_os_error(libc::EMFILE),
        WriteError::Failed(why) => io::Error::other(why),
    };
    ImageError::Io { what: "write rows beside", path: dir.to_owned(), source }
}
