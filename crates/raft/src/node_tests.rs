//! The node from start to shutdown, with a machine that only records.

use super::*;
use crate::wal::fault_disk::FaultDisk;
use crate::{Committed, MachineFailed};
use parking_lot::{Condvar, Mutex};

/// Keeps what was applied, in memory; "durable" up to where a test says.
#[derive(Default)]
pub(crate) struct Record {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default, Clone)]
pub(crate) struct State {
    pub(crate) durable: Option<Vec<u8>>,
    pub(crate) entries: Vec<Committed>,
    pub(crate) leadership: Vec<Option<u64>>,
}

impl Record {
    fn over(durable: Option<Vec<u8>>) -> Arc<Self> {
        let state = State { durable, ..State::default() };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn state(&self) -> State {
        self.state.lock().clone()
    }

    fn proposals(&self) -> Vec<Bytes> {
        let state = self.state.lock();
        state.entries.iter().flat_map(|entry| entry.proposals.iter().cloned()).collect()
    }

    fn wait_for(&self, count: usize) {
        let mut state = self.state.lock();
        while state.entries.iter().map(|entry| entry.proposals.len()).sum::<usize>() < count {
            let timed_out =
                self.changed.wait_for(&mut state, std::time::Duration::from_secs(30)).timed_out();
            assert!(!timed_out, "no more entries were applied");
        }
    }
}

impl Machine for Record {
    fn applied(&self) -> Option<Vec<u8>> {
        self.state.lock().durable.clone()
    }

    fn apply(&self, entries: Vec<Committed>) -> Result<(), MachineFailed> {
        self.state.lock().entries.extend(entries);
        self.changed.notify_all();
        Ok(())
    }

    fn leadership(&self, term: Option<u64>) {
        self.state.lock().leadership.push(term);
    }
}

fn small(dir: &std::path::Path) -> RaftOptions {
    let mut options = RaftOptions::new(dir);
    options.wal.segment_bytes = 64 << 10;
    options.wal.first_segment_bytes = 16 << 10;
    options
}

fn numbered(range: std::ops::Range<u32>) -> Vec<Bytes> {
    range.map(|number| Bytes::from(format!("proposal {number}"))).collect()
}

#[tokio::test]
async fn proposals_are_applied_in_order_and_again_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Record::over(None);
    let node = RaftNode::start(small(dir.path()), machine.clone()).await.unwrap();
    for proposal in numbered(0..2000) {
        node.propose(proposal).unwrap();
    }
    node.shutdown().await;
    assert_eq!(machine.proposals(), numbered(0..2000));
    assert_eq!(node.propose(Bytes::new()), Err(NotProposed::Stopped));
    assert_eq!(node.stopped().await, None);
    let first = machine.state();
    assert_eq!(first.leadership, [Some(1), None]);
    let indexes: Vec<u64> = first.entries.iter().map(|entry| entry.index).collect();
    assert_eq!(indexes, (0..indexes.len() as u64).collect::<Vec<_>>());

    let again = Record::over(None);
    let node = RaftNode::start(small(dir.path()), again.clone()).await.unwrap();
    assert_eq!(again.proposals(), numbered(0..2000));
    node.propose(Bytes::from_static(b"one more")).unwrap();
    node.shutdown().await;
    assert_eq!(again.proposals().len(), 2001);
}

#[tokio::test]
async fn only_what_the_machine_lacks_is_applied_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Record::over(None);
    let node = RaftNode::start(small(dir.path()), machine.clone()).await.unwrap();
    for (at, proposal) in numbered(0..50).into_iter().enumerate() {
        node.propose(proposal).unwrap();
        machine.wait_for(at + 1);
    }
    node.shutdown().await;
    let entries = machine.state().entries;
    let mid = &entries[entries.len() / 2];
    let again = Record::over(Some(mid.mark.clone()));
    let node = RaftNode::start(small(dir.path()), again.clone()).await.unwrap();
    assert_eq!(again.state().entries[0].index, mid.index + 1);
    assert_eq!(again.proposals().last().unwrap(), "proposal 49");
    node.shutdown().await;
}

#[tokio::test]
async fn a_checkpoint_lets_go_of_files_and_the_log_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Record::over(None);
    let options = small(dir.path());
    let node = RaftNode::start(options.clone(), machine.clone()).await.unwrap();
    let large = Bytes::from(vec![7; 20 << 10]);
    for at in 0..40 {
        node.propose(large.clone()).unwrap();
        machine.wait_for(at + 1);
        let mark = machine.state().entries.last().unwrap().mark.clone();
        node.checkpointed(&mark);
    }
    node.propose(Bytes::from_static(b"last")).unwrap();
    node.shutdown().await;
    let names = || {
        let items = std::fs::read_dir(options.dir.join("wal")).unwrap();
        let mut names: Vec<_> =
            items.map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert!(names().len() <= 5, "{:?}", names());
    assert!(names().iter().any(|name| name.ends_with(".spare")), "{:?}", names());

    let text = RaftNode::start(options.clone(), Record::over(None)).await.err().unwrap();
    assert!(text.to_string().contains("begins at entry"), "{text}");
    let mark = machine.state().entries.iter().rev().nth(2).unwrap().mark.clone();
    let again = Record::over(Some(mark));
    let node = RaftNode::start(options, again.clone()).await.unwrap();
    assert_eq!(again.proposals().last().unwrap(), "last");
    node.shutdown().await;
}

#[tokio::test]
async fn tables_that_are_ahead_of_the_log_stop_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Record::over(None);
    let node = RaftNode::start(small(dir.path()), machine.clone()).await.unwrap();
    node.propose(Bytes::from_static(b"x")).unwrap();
    node.shutdown().await;
    let mark = machine.state().entries.last().unwrap().mark.clone();
    let other = tempfile::tempdir().unwrap();
    let error = RaftNode::start(small(other.path()), Record::over(Some(mark))).await.err().unwrap();
    assert!(error.to_string().contains("not of the same moment"), "{error}");
}

fn on(dir: &tempfile::TempDir, disk: &Arc<FaultDisk>) -> Arc<RealHost> {
    Arc::new(RealHost::new(dir.path().to_owned(), disk.clone()))
}

#[tokio::test]
async fn a_failed_sync_stops_the_node_and_what_waited_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Record::over(None);
    let disk = Arc::new(FaultDisk::default());
    let node =
        RaftNode::start_on(small(dir.path()), machine.clone(), on(&dir, &disk)).await.unwrap();
    node.propose(Bytes::from_static(b"good")).unwrap();
    machine.wait_for(1);
    disk.fail_syncs_after(0);
    node.propose(Bytes::from_static(b"lost")).unwrap();
    let why = node.stopped().await.unwrap();
    assert!(why.contains("os error 5"), "{why}");
    assert_eq!(machine.proposals(), ["good"]);
    assert_eq!(machine.state().leadership.last(), Some(&None));
    assert_eq!(*node.leadership().borrow(), None);
    assert_eq!(node.propose(Bytes::new()), Err(NotProposed::Stopped));
    node.shutdown().await;
}

#[tokio::test]
async fn a_full_disk_holds_proposals_until_space_returns() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Record::over(None);
    let disk = Arc::new(FaultDisk::default());
    let node =
        RaftNode::start_on(small(dir.path()), machine.clone(), on(&dir, &disk)).await.unwrap();
    disk.set_full(true);
    let large = Bytes::from(vec![1; 12 << 10]);
    for _ in 0..4 {
        node.propose(large.clone()).unwrap();
    }
    node.storage_full().wait_for(|full| *full).await.unwrap();
    assert!(machine.proposals().len() < 4);
    disk.set_full(false);
    machine.wait_for(4);
    assert!(!*node.storage_full().borrow());
    node.shutdown().await;
    assert_eq!(node.stopped().await, None);
}

struct Refusing;

impl Machine for Refusing {
    fn applied(&self) -> Option<Vec<u8>> {
        None
    }

    fn apply(&self, entries: Vec<Committed>) -> Result<(), MachineFailed> {
        if entries.iter().any(|entry| !entry.proposals.is_empty()) {
            return Err(MachineFailed("table kv is broken".into()));
        }
        Ok(())
    }

    fn leadership(&self, _: Option<u64>) {}
}

#[tokio::test]
async fn a_machine_that_cannot_go_on_stops_the_node_with_its_words() {
    let dir = tempfile::tempdir().unwrap();
    let node = RaftNode::start(small(dir.path()), Arc::new(Refusing)).await.unwrap();
    node.propose(Bytes::from_static(b"x")).unwrap();
    let why = node.stopped().await.unwrap();
    assert!(why.contains("table kv is broken"), "{why}");
    let error = RaftNode::start(small(dir.path()), Arc::new(Refusing)).await.err().unwrap();
    assert!(error.to_string().contains("table kv is broken"), "{error}");
}

#[tokio::test]
async fn another_node_id_on_the_same_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = RaftNode::start(small(dir.path()), Record::over(None)).await.unwrap();
    node.shutdown().await;
    let options = RaftOptions { node_id: 2, ..small(dir.path()) };
    let error = RaftNode::start(options, Record::over(None)).await.err().unwrap();
    assert!(error.to_string().contains("whose voters are [1], this is node 2"), "{error}");
}

#[tokio::test]
async fn a_node_without_handles_stops_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Record::over(None);
    let node = RaftNode::start(small(dir.path()), machine.clone()).await.unwrap();
    let mut leadership = node.leadership();
    drop(node);
    while leadership.changed().await.is_ok() {}
    assert_eq!(machine.state().leadership.last(), Some(&None));
}

#[tokio::test]
async fn proposals_that_wait_together_share_entries_of_bounded_size() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Record::over(None);
    let mut options = small(dir.path());
    options.wal.entry_bytes = 10 << 10;
    let node = RaftNode::start(options, machine.clone()).await.unwrap();
    let (count, one) = (400, Bytes::from(vec![3; 1 << 10]));
    for _ in 0..count {
        node.propose(one.clone()).unwrap();
    }
    let huge = Bytes::from(vec![4; 50 << 10]);
    node.propose(huge.clone()).unwrap();
    node.shutdown().await;
    let entries = machine.state().entries;
    assert!(entries.len() < count, "each proposal had an entry of its own");
    for entry in &entries {
        let bytes: usize = entry.proposals.iter().map(Bytes::len).sum();
        assert!(bytes <= 10 << 10 || *entry.proposals == [huge.clone()], "{bytes}");
    }
    assert_eq!(machine.proposals().len(), count + 1);
}

#[tokio::test]
async fn a_missing_vote_or_log_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let node = RaftNode::start(small(dir.path()), Record::over(None)).await.unwrap();
    node.shutdown().await;
    let (vote, aside) = (dir.path().join("vote"), dir.path().join("aside"));
    std::fs::rename(&vote, &aside).unwrap();
    let error = RaftNode::start(small(dir.path()), Record::over(None)).await.err().unwrap();
    assert!(error.to_string().contains("the vote is of term 0, but the log holds"), "{error}");
    std::fs::rename(&aside, &vote).unwrap();
    std::fs::remove_dir_all(dir.path().join("wal")).unwrap();
    let error = RaftNode::start(small(dir.path()), Record::over(None)).await.err().unwrap();
    assert!(error.to_string().contains("a vote of term 1, but the log is empty"), "{error}");
}

struct Echo;

impl Service for Echo {
    fn answer(&self, request: Bytes) -> futures::future::BoxFuture<'static, Bytes> {
        Box::pin(std::future::ready(request))
    }

    fn consulted(&self, request: Bytes) -> futures::future::BoxFuture<'static, Bytes> {
        self.answer(request)
    }
}

#[tokio::test]
async fn a_single_node_is_its_own_leader_for_reads_and_questions() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Record::over(None);
    let node = RaftNode::start(small(dir.path()), machine.clone()).await.unwrap();
    let question = Bytes::from_static(b"who leads?");
    let not_yet = node.ask_leader(question.clone()).await;
    assert!(matches!(not_yet, Err(crate::AskError::NotSent(_))), "{not_yet:?}");
    node.serve(Arc::new(Echo));
    assert_eq!(node.ask_leader(question.clone()).await, Ok(question.clone()));
    node.propose(Bytes::from_static(b"x")).unwrap();
    machine.wait_for(1);
    let applied = machine.state().entries.last().unwrap().index;
    node.applied_at_least(applied).await.unwrap();
    assert_eq!(node.read_index().await, Ok(applied));
    let standing = node.standing();
    assert_eq!((standing.role, standing.leader), (crate::Role::Leader, Some(1)));
    assert_eq!(standing.members.voters, [1].into());
    node.shutdown().await;
    assert_eq!(node.ask_leader(question).await, Err(crate::AskError::NoLeader));
    assert_eq!(node.read_index().await, Err(NotProposed::Stopped));
    assert_eq!(node.applied_at_least(u64::MAX).await, Err(NotProposed::Stopped));
}
