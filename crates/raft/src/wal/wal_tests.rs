//! The log against a simple model, and what the other tests of the log share.

use super::*;
use proptest::prelude::*;
use std::sync::mpsc;

/// Small files, so that a few entries fill one.
pub(super) fn small() -> WalOptions {
    WalOptions {
        segment_bytes: 16 << 10,
        first_segment_bytes: 8 << 10,
        spare_files: 2,
        cache_bytes: 2 << 10,
        hold_bytes: 0,
        entry_bytes: 1 << 20,
    }
}

pub(super) fn open(dir: &Path) -> Wal {
    Wal::open(dir, &small(), Arc::new(RealDisk)).unwrap()
}

pub(super) fn entry(term: u64, index: u64, bytes: usize) -> WalEntry {
    let text = format!("{term}/{index}/");
    let mut body = text.into_bytes();
    body.resize(body.len().max(bytes), b'.');
    let body = match index % 7 {
        3 => Body::Blank,
        5 => Body::Membership(body.into()),
        _ => Body::Proposals([Bytes::from(body), Bytes::new()].into()),
    };
    WalEntry { id: EntryId { term, node: 1, index }, body }
}

/// Appends as one group and waits for its sync.
pub(super) fn append(wal: &Wal, entries: Vec<WalEntry>) -> io::Result<()> {
    let (done, told) = mpsc::channel();
    wal.append(entries, Box::new(move |result| done.send(result).unwrap()))?;
    told.recv().unwrap()
}

pub(super) fn all(wal: &Wal) -> Vec<WalEntry> {
    wal.read(0, u64::MAX, u64::MAX).unwrap()
}

pub(super) fn names(dir: &Path) -> Vec<String> {
    let items = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        items.map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<u16>),
    /// Removes this share of what is there, in 256ths.
    Truncate(u8),
    Purge(u8),
    StartAnew(u8),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let sizes = proptest::collection::vec(prop_oneof![9 => 0u16..900, 1 => 0u16..20_000], 1..8);
    prop_oneof![
        6 => sizes.prop_map(Step::Append),
        1 => any::<u8>().prop_map(Step::Truncate),
        2 => any::<u8>().prop_map(Step::Purge),
        1 => (0u8..9).prop_map(Step::StartAnew),
        2 => Just(Step::Reopen),
    ]
}

#[derive(Default)]
struct Model {
    purged: Option<EntryId>,
    entries: Vec<WalEntry>,
    term: u64,
}

impl Model {
    fn first(&self) -> u64 {
        self.purged.map_or(0, |purged| purged.index + 1)
    }

    fn next(&self) -> u64 {
        self.first() + self.entries.len() as u64
    }
}

fn share(of: usize, part: u8) -> usize {
    of * usize::from(part) / 256
}

async fn run_steps(dir: &Path, steps: Vec<Step>) {
    let mut wal = open(dir);
    let mut model = Model { term: 1, ..Model::default() };
    for step in steps {
        match step {
            Step::Append(sizes) => {
                let mut entries = Vec::new();
                for size in sizes {
                    let index = model.next() + entries.len() as u64;
                    entries.push(entry(model.term, index, usize::from(size)));
                }
                append(&wal, entries.clone()).unwrap();
                model.entries.extend(entries);
            }
            Step::Truncate(part) => {
                let keep = model.entries.len() - share(model.entries.len(), part);
                wal.truncate(model.first() + keep as u64).await.unwrap();
                model.entries.truncate(keep);
                model.term += 1;
            }
            Step::Purge(part) => {
                let count = share(model.entries.len(), part);
                if let Some(last) = model.entries.drain(..count).next_back() {
                    wal.purge(last.id).await.unwrap();
                    model.purged = Some(last.id);
                }
            }
            Step::StartAnew(ahead) => {
                let index = model.next() + u64::from(ahead);
                let after = EntryId { term: model.term, node: 1, index };
                wal.purge(after).await.unwrap();
                model = Model { purged: Some(after), entries: Vec::new(), term: model.term };
            }
            Step::Reopen => {
                wal.close();
                wal = open(dir);
                let (purged, _) = wal.state();
                // Files go as a whole: what was purged may be back, but nothing else.
                assert!(purged <= model.purged);
                if let Some(purged) = model.purged {
                    wal.purge(purged).await.unwrap();
                }
            }
        }
        let last = model.entries.last().map(|entry| entry.id).or(model.purged);
        assert_eq!(wal.state(), (model.purged, last));
        assert_eq!(all(&wal), model.entries);
        for entry in &model.entries {
            assert_eq!(wal.id_of(entry.id.index), Some(entry.id));
        }
        assert_eq!(wal.id_of(model.next()), None);
    }
    wal.close();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_log_holds_what_a_list_would_over_any_steps(
        steps in proptest::collection::vec(step(), 1..25),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(run_steps(dir.path(), steps));
    }
}

#[test]
fn a_read_ends_after_the_bytes_asked_for_but_gives_one_entry() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    append(&wal, (0..40).map(|index| entry(1, index, 1000)).collect()).unwrap();
    for start in [0, 1, 20, 36, 39] {
        assert_eq!(wal.read(start, u64::MAX, 1).unwrap().len(), 1);
        let few = wal.read(start, u64::MAX, 3000).unwrap();
        assert!((1..=5).contains(&few.len()), "{}", few.len());
        assert_eq!(few[0].id.index, start);
    }
    assert_eq!(wal.read(12, 15, u64::MAX).unwrap().len(), 3);
    wal.close();
}

#[test]
fn an_entry_that_does_not_follow_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    append(&wal, vec![entry(1, 0, 10)]).unwrap();
    let text = append(&wal, vec![entry(1, 2, 10)]).unwrap_err().to_string();
    assert!(text.contains("entry 2 cannot follow in the log, which expects 1"), "{text}");
    wal.close();
}

#[test]
fn an_idle_log_takes_one_small_file_and_a_purged_one_is_reused() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    append(&wal, vec![entry(1, 0, 10)]).unwrap();
    assert_eq!(names(dir.path()), ["00000000000000000000.wal"]);
    let bytes = std::fs::metadata(dir.path().join("00000000000000000000.wal")).unwrap().len();
    assert_eq!(bytes, small().first_segment_bytes);
    for index in 1..200 {
        append(&wal, vec![entry(1, index, 900)]).unwrap();
        if index % 20 == 0 {
            let upto = wal.id_of(index - 1).unwrap();
            wal.shared.log.lock().forget(upto);
            wal.send(Job::Purge { upto: upto.index });
        }
    }
    wal.close();
    assert!(names(dir.path()).len() <= 5, "{:?}", names(dir.path()));
    // What an earlier life of a file left behind is not taken for records.
    let wal = open(dir.path());
    assert_eq!(wal.state().1, Some(entry(1, 199, 0).id));
    assert_eq!(all(&wal).last(), Some(&entry(1, 199, 900)));
    wal.close();
}
