//! What a node stands on: its files, its connections, its chance, whether it has threads.
//!
//! Owns: the seam at which a simulation puts its own machine under a node ([`Host`], [`Journal`],
//! [`Incoming`]), and the machine that ships. Leaves to others: what is kept (`wal`, `vote`, `disk_id`),
//! TCP and TLS (`net`), all that is decided.

use crate::disk_id;
use crate::net::stream;
pub use crate::net::stream::Stream;
pub use crate::vote::SavedVote;
use crate::wal::{Disk, RealDisk, Wal};
pub use crate::wal::{EntryId, WalEntry};
use crate::{ClusterOptions, RaftOptions, StartError, vote};
use futures::future::BoxFuture;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// Called once the entries of one append are synced, or never will be.
pub type Synced = Box<dyn FnOnce(io::Result<()>) + Send>;

/// A stream that has been accepted and may still have to shake hands.
pub type Handshake = BoxFuture<'static, io::Result<Box<dyn Stream>>>;

/// What a node asks of the machine that it runs on.
pub trait Host: Send + Sync + 'static {
    /// Whether blocking work goes to threads. If not, all of the node runs on the runtime on which it was
    /// started, and so does what blocks.
    fn threaded(&self) -> bool {
        true
    }

    /// 64 bits of chance.
    fn draw(&self) -> u64;

    /// Opens the log, cut to what a crash left of it.
    fn open_journal(&self, options: &RaftOptions) -> Result<Arc<dyn Journal>, StartError>;

    /// The vote saved last; `None` when there was none.
    fn load_vote(&self) -> Result<Option<SavedVote>, StartError>;

    /// Saves the vote; done once it outlives a power cut.
    fn save_vote(&self, vote: SavedVote) -> BoxFuture<'_, io::Result<()>>;

    /// The name of the disk, drawn when there is none.
    fn disk_id(&self) -> Result<[u8; 16], StartError>;

    /// Draws another name for the disk, which outlives a power cut: its group knows it no more.
    fn rename_disk(&self) -> io::Result<[u8; 16]>;

    /// Notes, so that it outlives a power cut, that a snapshot is being installed, or no longer is.
    fn set_installing(&self, installing: bool) -> io::Result<()>;

    /// Whether a snapshot was being installed when the process ended.
    fn was_installing(&self) -> bool;

    /// Connects to others, and binds where they connect to this node.
    fn network(&self, options: &ClusterOptions) -> Result<Network, StartError>;
}

/// Both ends of the connections between nodes.
pub struct Network {
    /// Connects.
    pub dial: Arc<dyn Dial>,
    /// Is connected to.
    pub incoming: Box<dyn Incoming>,
}

/// Connects to other nodes.
pub trait Dial: Send + Sync + 'static {
    /// A stream to a node's raft listener, `host:port`.
    fn dial(&self, address: String) -> BoxFuture<'static, io::Result<Box<dyn Stream>>>;
}

/// Where other nodes connect to this one.
pub trait Incoming: Send + 'static {
    /// The next stream, and from where it comes, for people.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Handshake, String)>>;
}

/// The log of a node, as its node sees it; see `wal` for the one that ships.
///
/// Entries follow each other without a hole; what was appended can be read at once, and is durable when
/// its callback says so.
pub trait Journal: Send + Sync + 'static {
    /// The last purged entry and the last entry (the last purged one when there is no other).
    fn state(&self) -> (Option<EntryId>, Option<EntryId>);

    /// Id of the entry at `index`, which may be the last purged one.
    fn id_of(&self, index: u64) -> Option<EntryId>;

    /// Appends entries that follow the last one; `synced` is called from any thread.
    fn append(&self, entries: Vec<WalEntry>, synced: Synced) -> io::Result<()>;

    /// Waits until the entry at `index` and all before it are synced; an error when they never will be.
    fn synced(&self, index: u64) -> BoxFuture<'_, io::Result<()>>;

    /// Removes every entry from `from` on, durably.
    fn truncate(&self, from: u64) -> BoxFuture<'_, io::Result<()>>;

    /// Forgets entries up to `upto`. When that is after the last entry the log starts anew behind it, and
    /// that is durable.
    fn purge(&self, upto: EntryId) -> BoxFuture<'_, io::Result<()>>;

    /// Entries from `start` up to but without `end`, as many as there are, ending early after about
    /// `bytes_max` bytes (at least one entry when there is one).
    fn read(&self, start: u64, end: u64, bytes_max: u64) -> io::Result<Vec<WalEntry>>;

    /// Whether the log waits for space.
    fn full(&self) -> watch::Receiver<bool>;

    /// Bytes written and syncs done since the start.
    fn written(&self) -> (u64, u64);

    /// Ends the log after what is queued; blocks until that is done.
    fn close(&self);
}

/// The machine that ships: files under a directory, TCP, the system's randomness.
pub(crate) struct RealHost {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
}

impl RealHost {
    pub(crate) fn new(dir: PathBuf, disk: Arc<dyn Disk>) -> Self {
        Self { dir, disk }
    }

    fn installing(&self) -> PathBuf {
        self.dir.join("installing")
    }
}

impl Host for RealHost {
    fn draw(&self) -> u64 {
        let mut bytes = [0; 8];
        // Without randomness the node's own clock has to do.
        if aws_lc_rs::rand::fill(&mut bytes).is_err() {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            bytes = (now.unwrap_or_default().as_nanos() as u64).to_le_bytes();
        }
        u64::from_le_bytes(bytes)
    }

    fn open_journal(&self, options: &RaftOptions) -> Result<Arc<dyn Journal>, StartError> {
        create_dir(&self.dir)?;
        Ok(Arc::new(Wal::open(&self.dir.join("wal"), &options.wal, self.disk.clone())?))
    }

    fn load_vote(&self) -> Result<Option<SavedVote>, StartError> {
        vote::load(&self.dir)
    }

    fn save_vote(&self, vote: SavedVote) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { vote::save(&self.dir, vote) })
    }

    fn disk_id(&self) -> Result<[u8; 16], StartError> {
        disk_id::load_or_draw(&self.dir)
    }

    fn rename_disk(&self) -> io::Result<[u8; 16]> {
        disk_id::draw_anew(&self.dir)
    }

    fn set_installing(&self, installing: bool) -> io::Result<()> {
        if installing {
            File::create(self.installing())?.sync_all()?;
        } else {
            match std::fs::remove_file(self.installing()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                removed => removed?,
            }
        }
        File::open(&self.dir)?.sync_all()
    }

    fn was_installing(&self) -> bool {
        self.installing().exists()
    }

    fn network(&self, options: &ClusterOptions) -> Result<Network, StartError> {
        stream::network(options)
    }
}

/// Makes the log's directory so that a power cut does not take it away again.
fn create_dir(dir: &Path) -> Result<(), StartError> {
    let io_error = |action, path: &Path| {
        let path = path.to_owned();
        move |source| StartError::Io { action, path, source }
    };
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(dir).map_err(io_error("create the directory", dir))?;
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    RealDisk.sync_dir(above).map_err(io_error("sync the directory", above))
}
