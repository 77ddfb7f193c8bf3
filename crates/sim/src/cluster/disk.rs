//! The disk of a simulated node: what survives its process, and what only seemed to.
//!
//! Owns: log, vote, name, and the machine's checkpoint, each as it is durable and as the process sees
//! it; the time that a sync takes; what a crash leaves of writes that were not synced. Leaves to
//! others: the files of the real log and their tearing (`queen-raft` has its own crash tests).
//!
//! A crash keeps a prefix of the entries that were being written: a torn tail is cut by recovery. A vote
//! that was being saved is there or not.

use super::mutation::Mutation;
use super::vitals::Vitals;
use crate::chance::Chance;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use queen_raft::host::{EntryId, Journal, SavedVote, Synced, WalEntry};
use queen_state::MemoryStore;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};

/// When a vote that was answered for before it was synced gets there.
const LATE: Duration = Duration::from_millis(300);

/// What the machine holds durably.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Tables and queue logs.
    pub store: MemoryStore,
    /// Index of the last entry in it.
    pub index: u64,
    /// The log's mark of that entry.
    pub mark: Vec<u8>,
}

/// A log: entries behind the last purged one.
#[derive(Clone, Debug, Default)]
struct Log {
    purged: Option<EntryId>,
    entries: VecDeque<WalEntry>,
}

impl Log {
    fn last(&self) -> Option<EntryId> {
        self.entries.back().map(|entry| entry.id).or(self.purged)
    }

    fn next(&self) -> u64 {
        self.last().map_or(0, |last| last.index + 1)
    }

    fn at(&self, index: u64) -> Option<&WalEntry> {
        let first = self.entries.front()?.id.index;
        self.entries.get(usize::try_from(index.checked_sub(first)?).ok()?)
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Append(entries) => self.entries.extend(entries.iter().cloned()),
            Change::Truncate(from) => self.entries.retain(|entry| entry.id.index < *from),
            Change::Purge(upto) => {
                if *upto >= self.next() {
                    self.entries.clear();
                }
                while self.entries.front().is_some_and(|entry| entry.id.index <= *upto) {
                    self.purged = self.entries.pop_front().map(|entry| entry.id);
                }
            }
            Change::StartAnew(after) => {
                self.entries.clear();
                self.purged = Some(*after);
            }
        }
    }
}

#[derive(Clone)]
enum Change {
    Append(Vec<WalEntry>),
    Truncate(u64),
    Purge(u64),
    StartAnew(EntryId),
}

/// A change of the log that is not durable yet, and who waits for that.
struct Job {
    change: Change,
    synced: Option<Synced>,
    done: Option<oneshot::Sender<io::Result<()>>>,
}

struct State {
    name: [u8; 16],
    durable: Log,
    /// The log as the process sees it.
    seen: Log,
    queue: Vec<Job>,
    /// What is being written, for a crash to tear.
    writing: Vec<Change>,
    vote: Option<SavedVote>,
    /// A vote that is being saved.
    saving: Option<SavedVote>,
    installing: bool,
    checkpoint: Option<Checkpoint>,
    written: (u64, u64),
    /// Longest time of a sync, µs.
    slow: u64,
    chance: Chance,
}

/// The disk; clones share it.
#[derive(Clone)]
pub struct Disk {
    state: Arc<Mutex<State>>,
    mutation: Option<Mutation>,
}

impl Disk {
    /// An empty disk.
    pub fn new(mut chance: Chance, mutation: Option<Mutation>) -> Disk {
        let mut name = [0; 16];
        name.copy_from_slice(&chance.bytes(16));
        let state = State {
            name,
            durable: Log::default(),
            seen: Log::default(),
            queue: Vec::new(),
            writing: Vec::new(),
            vote: None,
            saving: None,
            installing: false,
            checkpoint: None,
            written: (0, 0),
            slow: 3_000,
            chance,
        };
        Disk { state: Arc::new(Mutex::new(state)), mutation }
    }

    /// A sync takes up to so many µs from now on.
    pub fn set_slow(&self, micros: u64) {
        self.state.lock().slow = micros;
    }

    /// What the machine holds durably.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        self.state.lock().checkpoint.clone()
    }

    /// The machine's state is durable, in one step; an older one changes nothing.
    pub fn set_checkpoint(&self, checkpoint: Checkpoint) {
        let mut state = self.state.lock();
        if state.checkpoint.as_ref().is_none_or(|old| old.index < checkpoint.index) {
            state.checkpoint = Some(checkpoint);
        }
    }

    /// The name of the disk.
    pub fn name(&self) -> [u8; 16] {
        self.state.lock().name
    }

    /// Gives the disk another name.
    pub fn rename(&self) -> [u8; 16] {
        let mut state = self.state.lock();
        let name = state.chance.bytes(16);
        state.name.copy_from_slice(&name);
        state.name
    }

    /// The vote as a start finds it.
    pub fn vote(&self) -> Option<SavedVote> {
        self.state.lock().vote
    }

    /// Whether a snapshot is being installed.
    pub fn installing(&self) -> bool {
        self.state.lock().installing
    }

    /// Notes whether a snapshot is being installed.
    pub fn set_installing(&self, installing: bool) {
        self.state.lock().installing = installing;
    }

    /// The process is gone: of what was being written some is there.
    pub fn crash(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        for change in std::mem::take(&mut state.writing) {
            if let Change::Append(mut entries) = change {
                let there = state.chance.below(entries.len() as u64 + 1) as usize;
                let torn = there < entries.len();
                entries.truncate(there);
                state.durable.apply(&Change::Append(entries));
                if torn {
                    break;
                }
            } else if state.chance.below(2) == 0 {
                state.durable.apply(&change);
            } else {
                break;
            }
        }
        if let Some(vote) = state.saving.take()
            && state.chance.below(2) == 0
        {
            state.vote = Some(vote);
        }
        state.queue.clear();
        state.seen = state.durable.clone();
        state.written = (0, 0);
    }

    /// Saves a vote.
    pub async fn save_vote(&self, vote: SavedVote, vitals: &Arc<Vitals>) -> io::Result<()> {
        self.state.lock().saving = Some(vote);
        if self.mutation == Some(Mutation::VoteNotSynced) {
            let (disk, vitals) = (self.clone(), vitals.clone());
            tokio::spawn(async move {
                tokio::time::sleep(LATE).await;
                disk.saved(vote, &vitals).await;
            });
            return Ok(());
        }
        tokio::time::sleep(self.sync_time()).await;
        self.saved(vote, vitals).await;
        Ok(())
    }

    async fn saved(&self, vote: SavedVote, vitals: &Vitals) {
        if !vitals.effect() {
            return std::future::pending().await;
        }
        let mut state = self.state.lock();
        state.saving = None;
        state.vote = Some(vote);
    }

    fn sync_time(&self) -> Duration {
        let mut state = self.state.lock();
        let slow = state.slow;
        Duration::from_micros(state.chance.below(slow + 1))
    }

    /// The log, for a process that starts on this runtime.
    pub fn open(&self, vitals: &Arc<Vitals>) -> Arc<dyn Journal> {
        let (wake, wrote) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        tokio::spawn(write(self.clone(), vitals.clone(), wake.clone(), wrote.clone()));
        Arc::new(SimJournal { disk: self.clone(), wake, wrote, full: watch::channel(false).0 })
    }
}

/// Writes what is queued, in groups, until the process ends.
async fn write(disk: Disk, vitals: Arc<Vitals>, wake: Arc<Notify>, wrote: Arc<Notify>) {
    loop {
        wake.notified().await;
        let jobs = {
            let mut state = disk.state.lock();
            let jobs = std::mem::take(&mut state.queue);
            state.writing = jobs.iter().map(|job| job.change.clone()).collect();
            jobs
        };
        if jobs.is_empty() {
            continue;
        }
        tokio::time::sleep(disk.sync_time()).await;
        if !vitals.effect() {
            return std::future::pending().await;
        }
        {
            let mut state = disk.state.lock();
            for change in std::mem::take(&mut state.writing) {
                state.durable.apply(&change);
            }
            state.written.1 += 1;
        }
        wrote.notify_waiters();
        for Job { synced, done, .. } in jobs {
            if let Some(synced) = synced {
                synced(Ok(()));
            }
            if let Some(done) = done {
                let _ = done.send(Ok(()));
            }
        }
    }
}

struct SimJournal {
    disk: Disk,
    wake: Arc<Notify>,
    /// A group was written.
    wrote: Arc<Notify>,
    full: watch::Sender<bool>,
}

impl SimJournal {
    fn put(&self, job: Job) {
        let mut state = self.disk.state.lock();
        state.seen.apply(&job.change);
        state.queue.push(job);
        drop(state);
        self.wake.notify_one();
    }

    fn put_and_wait(&self, change: Change) -> BoxFuture<'_, io::Result<()>> {
        let (done, told) = oneshot::channel();
        self.put(Job { change, synced: None, done: Some(done) });
        Box::pin(async { told.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into())) })
    }
}

impl Journal for SimJournal {
    fn state(&self) -> (Option<EntryId>, Option<EntryId>) {
        let state = self.disk.state.lock();
        (state.seen.purged, state.seen.last())
    }

    fn id_of(&self, index: u64) -> Option<EntryId> {
        let state = self.disk.state.lock();
        let purged = state.seen.purged.filter(|purged| purged.index == index);
        purged.or_else(|| state.seen.at(index).map(|entry| entry.id))
    }

    fn append(&self, entries: Vec<WalEntry>, mut synced: Synced) -> io::Result<()> {
        {
            let mut state = self.disk.state.lock();
            if let Some(first) = entries.first()
                && state.seen.last().is_some()
                && first.id.index != state.seen.next()
            {
                let text = format!("{:?} cannot follow {:?}", first.id, state.seen.last());
                return Err(io::Error::other(text));
            }
            state.written.0 += entries.iter().map(WalEntry::bytes).sum::<u64>();
        }
        if self.disk.mutation == Some(Mutation::LogNotSynced) {
            std::mem::replace(&mut synced, Box::new(|_| {}))(Ok(()));
        }
        self.put(Job { change: Change::Append(entries), synced: Some(synced), done: None });
        Ok(())
    }

    fn synced(&self, index: u64) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            loop {
                let wrote = self.wrote.notified();
                tokio::pin!(wrote);
                wrote.as_mut().enable();
                let early = self.disk.mutation == Some(Mutation::LogNotSynced);
                if early || self.disk.state.lock().durable.next() > index {
                    return Ok(());
                }
                wrote.await;
            }
        })
    }

    fn truncate(&self, from: u64) -> BoxFuture<'_, io::Result<()>> {
        self.put_and_wait(Change::Truncate(from))
    }

    fn purge(&self, upto: EntryId) -> BoxFuture<'_, io::Result<()>> {
        let next = self.disk.state.lock().seen.next();
        if upto.index >= next {
            return self.put_and_wait(Change::StartAnew(upto));
        }
        self.put(Job { change: Change::Purge(upto.index), synced: None, done: None });
        Box::pin(std::future::ready(Ok(())))
    }

    fn read(&self, start: u64, end: u64, bytes_max: u64) -> io::Result<Vec<WalEntry>> {
        let state = self.disk.state.lock();
        let first = state.seen.entries.front().map_or(u64::MAX, |entry| entry.id.index);
        let skip = start.saturating_sub(first) as usize;
        let (mut bytes, mut out) = (0, Vec::new());
        for entry in state.seen.entries.iter().skip(skip).take_while(|entry| entry.id.index < end) {
            bytes += entry.bytes();
            if bytes > bytes_max && !out.is_empty() {
                break;
            }
            out.push(entry.clone());
        }
        Ok(out)
    }

    fn full(&self) -> watch::Receiver<bool> {
        self.full.subscribe()
    }

    fn written(&self) -> (u64, u64) {
        self.disk.state.lock().written
    }

    fn close(&self) {}
}
