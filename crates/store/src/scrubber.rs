//! Reading the sealed segments in the background, so that damage is known before somebody needs
//! what it took.
//!
//! Owns: which segments, when, how fast. Leaves to others: the walk over the runs (`scrub`), what is
//! known (`damage`).
//!
//! Sealed is every segment but the newest of its queue: nothing is written there any more. Names and
//! lengths are looked at often, for that costs next to nothing; bytes are read once a day, and more
//! slowly when there is little to read. A pass begins anywhere, for a process that is started anew
//! each hour would never come to the end otherwise.

use crate::log_files::SegmentId;
use crate::scrub::{Walk, Walked, segments};
use crate::store::Shared;
use queen_core::row::key;
use queen_core::table::Table;
use queen_state::StorageError;
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes read a second at least, so that little is not read all day long.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// Runs until the store ends.
pub(crate) fn run(shared: &Shared) {
    lowest_priority();
    let mut pace = Pace { shared, next: Instant::now(), look_at: None, rate: BYTES_PER_SECOND_MIN };
    // Not at once: a start has better things to do, and has looked at the lengths itself.
    while pace.pause_until(Instant::now() + shared.options.look_every) {
        let begun = Instant::now();
        match sealed(shared) {
            Ok(sealed) => {
                if !pass(shared, &sealed, &mut pace) {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot list the segments that are to be scrubbed")
            }
        }
        if !pace.pause_until(begun + shared.options.scrub_every) {
            return;
        }
    }
}

/// One pass over all of them; `false` when the store ends.
fn pass(shared: &Shared, sealed: &[(SegmentId, u64)], pace: &mut Pace<'_>) -> bool {
    let total: u64 = sealed.iter().map(|(_, bytes)| bytes).sum();
    let options = &shared.options;
    let rate = total / options.scrub_every.as_secs().max(1);
    let most = options.scrub_bytes_per_second.max(1);
    pace.rate = rate.max(BYTES_PER_SECOND_MIN).min(most);
    pace.next = Instant::now();
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let begin = clock.as_nanos() as usize % sealed.len().max(1);
    for &(id, bytes) in sealed[begin..].iter().chain(&sealed[..begin]) {
        match Walk::new(shared, id, bytes).walk(&mut |read| pace.goes_on(read)) {
            Walked::Sound | Walked::Removed => shared.disk().files.damage.clear(id),
            Walked::Damaged(finding) => {
                if is_kept(shared, id) {
                    shared.disk().files.damage.note(id, finding);
                }
            }
            // Whoever read has kept it if it is damage.
            Walked::Unread(finding) => tracing::debug!(%finding, "a segment was not scrubbed"),
            Walked::Ended => return false,
        }
    }
    tracing::debug!(segments = sealed.len(), bytes = total, "the sealed segments were scrubbed");
    true
}

/// All segments but the newest of each queue, and their lengths.
fn sealed(shared: &Shared) -> Result<Vec<(SegmentId, u64)>, StorageError> {
    let all = segments(shared, &[], &[u8::MAX; 9])?;
    let followed = all.windows(2).filter(|pair| pair[0].0.queue == pair[1].0.queue);
    Ok(followed.map(|pair| pair[0]).collect())
}

/// Whether a row names the segment.
fn is_kept(shared: &Shared, id: SegmentId) -> bool {
    let key = key::segment(id.queue, id.segment);
    matches!(shared.inner.read().tables.get(Table::Segment, &key), Ok(Some(_)))
}

/// Looks whether the sealed segments are there in their whole lengths.
fn look(shared: &Shared) {
    let sealed = match sealed(shared) {
        Ok(sealed) => sealed,
        Err(error) => return tracing::warn!(%error, "cannot list the segments to look for"),
    };
    for (id, bytes) in sealed {
        let files = &shared.disk().files;
        let (error, found) = match std::fs::metadata(files.path(id)) {
            Ok(metadata) if metadata.len() >= bytes => continue,
            Ok(metadata) => (io::ErrorKind::UnexpectedEof.into(), metadata.len()),
            Err(error) => (error, 0),
        };
        // Files go after their rows: one that still has a row was to be there.
        if is_kept(shared, id) {
            files.unread(id, found, &error);
        }
    }
}

/// How fast it is read, and how often looked.
struct Pace<'a> {
    shared: &'a Shared,
    /// When the next bytes may be read.
    next: Instant,
    look_at: Option<Instant>,
    /// Bytes a second.
    rate: u64,
}

impl Pace<'_> {
    /// Waits until more may be read after so many bytes.
    fn goes_on(&mut self, read: u64) -> bool {
        // What could not be used of the past is not made up for.
        self.next = self.next.max(Instant::now())
            + Duration::from_micros(read.saturating_mul(1_000_000) / self.rate);
        self.pause_until(self.next)
    }

    /// Waits, and looks when it is time for that; `false` when the store ends.
    fn pause_until(&mut self, until: Instant) -> bool {
        loop {
            let look_at = *self
                .look_at
                .get_or_insert_with(|| Instant::now() + self.shared.options.look_every);
            if !self.shared.control.sleep_until(until.min(look_at)) {
                return false;
            }
            if Instant::now() >= look_at {
                look(self.shared);
                self.look_at = None;
            }
            if Instant::now() >= until {
                return true;
            }
        }
    }
}

/// Whatever else wants the processor or the disk goes first. It is a wish: without it the rate
/// still bounds what is taken.
fn lowest_priority() {
    const IOPRIO_WHO_PROCESS: libc::c_int = 1;
    const IOPRIO_CLASS_IDLE: libc::c_int = 3 << 13;
    // SAFETY: both take numbers only; 0 is the calling thread.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
        libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::full_disk_tests::until;
    use crate::scrub::tests::write_run;
    use crate::{Applied, Store, StoreOptions};
    use queen_core::row::{Row, SegmentRow};
    use queen_core::{QueueId, Stamp};
    use queen_state::{Place, QueueLogs, TablesMut};
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    const RUNS: u64 = 3;

    /// Three segments of three runs each, the last one not sealed; gives the bytes of a run.
    fn written(dir: &Path, options: StoreOptions) -> (Store, u64) {
        let (store, _) = Store::open(dir, options).unwrap();
        let mut guard = store.write();
        let mut bytes = 0;
        for segment in 1..=3 {
            bytes = (0..RUNS).fold(0, |at, stamp| write_run(&mut guard, segment, at, stamp));
            let stamp = Stamp(1);
            let row =
                SegmentRow { bytes, first: stamp, last: stamp, runs: 3, messages: 3, trimmed: 0 };
            guard.put(Table::Segment, &key::segment(QueueId(1), segment), &row.encode());
        }
        guard.end_batch(Applied { index: 1, mark: bytes::Bytes::new() }).unwrap();
        (store, bytes / RUNS)
    }

    fn file(dir: &Path, segment: u32) -> PathBuf {
        dir.join(format!("queues/1/{segment:010}.log"))
    }

    fn often() -> StoreOptions {
        let often = Duration::from_millis(5);
        StoreOptions { scrub_every: often, look_every: often, ..StoreOptions::default() }
    }

    #[test]
    fn a_changed_byte_of_a_sealed_segment_is_known_until_it_is_right_again() {
        let dir = tempfile::tempdir().unwrap();
        let (store, run) = written(dir.path(), often());
        let (sealed, open) = (file(dir.path(), 2), file(dir.path(), 3));
        let good = fs::read(&sealed).unwrap();
        for path in [&sealed, &open] {
            let mut bad = good.clone();
            bad[run as usize + 40] ^= 1;
            fs::write(path, bad).unwrap();
        }
        until("it is found", || !store.damage().is_empty());
        let found = store.damage();
        assert_eq!((found.len(), &found[0].file, found[0].position), (1, &sealed, run));
        assert!(found[0].what.contains("checksum"), "{}", found[0]);
        assert!(store.is_damaged(QueueId(1)));
        assert!(!store.is_damaged(QueueId(0)) && !store.is_damaged(QueueId(2)));
        fs::write(&sealed, good).unwrap();
        until("it is right again", || store.damage().is_empty());
    }

    #[test]
    fn missing_and_short_files_are_noticed_without_being_read() {
        // The pass reads one of them and then rests for minutes.
        let slow = StoreOptions { scrub_bytes_per_second: 1, ..often() };
        let dir = tempfile::tempdir().unwrap();
        let (store, run) = written(dir.path(), slow);
        let (short, missing) = (file(dir.path(), 1), file(dir.path(), 2));
        let bytes = fs::read(&short).unwrap();
        fs::write(&short, &bytes[..run as usize]).unwrap();
        fs::remove_file(&missing).unwrap();
        until("both are noticed", || {
            let found: BTreeSet<_> = store.damage().into_iter().map(|f| (f.file, f.what)).collect();
            found.contains(&(short.clone(), "the file is too short".to_owned()))
                && found.contains(&(missing.clone(), "the file is missing".to_owned()))
        });
    }

    #[test]
    fn whoever_reads_what_is_gone_makes_it_known_and_retention_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        let (store, run) = written(dir.path(), StoreOptions::default());
        let (first, second) = (file(dir.path(), 1), file(dir.path(), 2));
        let bytes = fs::read(&first).unwrap();
        store.shared.disk().files.let_all_go();
        fs::write(&first, &bytes[..run as usize]).unwrap();
        fs::remove_file(&second).unwrap();
        let read = |segment, position| {
            store.read().read(Place { queue: QueueId(1), segment, position }, run as usize)
        };
        assert!(read(1, 0).is_ok() && store.damage().is_empty());
        read(1, run).unwrap_err();
        read(2, run).unwrap_err();
        let found: Vec<_> = store.damage().into_iter().map(|f| (f.file, f.position)).collect();
        assert_eq!(found, [(first, run), (second.clone(), run)]);
        let place = Place { queue: QueueId(1), segment: 2, position: 7 };
        let told = store.found_damaged(place, "it is another run".to_owned());
        assert!(told.to_string().contains(&second.display().to_string()), "{told}");
        assert_eq!(store.damage().len(), 3);
        let mut guard = store.write();
        guard.delete(Table::Segment, &key::segment(QueueId(1), 2));
        guard.end_batch(Applied { index: 2, mark: bytes::Bytes::new() }).unwrap();
        assert_eq!(store.damage().len(), 1);
    }

    #[test]
    fn no_more_is_read_than_the_rate_allows_and_an_end_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = written(dir.path(), StoreOptions::default());
        let next = Instant::now();
        let mut pace = Pace { shared: &store.shared, next, look_at: None, rate: 1 << 20 };
        let begun = Instant::now();
        assert!((0..2).all(|_| pace.goes_on(64 << 10)));
        assert!(begun.elapsed() >= Duration::from_millis(125), "{:?}", begun.elapsed());
        store.close().unwrap();
        assert!(!pace.goes_on(1 << 40));
    }
}
