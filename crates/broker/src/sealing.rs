//! Encryption at rest: which payloads are sealed on their way in, and opened on their way out.
//!
//! Owns: which queues are encrypted, as of the last applied entry; sealing the frames of a push,
//! opening those of a run. Leaves to others: the cipher and the keys (`keyring`), refusing what is
//! in the clear all the same (`queen-state`, which decides).
//!
//! Upholds `encrypted-at-rest`: payloads are sealed before their command is proposed, so the log,
//! the queue logs, the tables and every copy of them hold envelopes only. What is known here of the
//! queues is brought up to date before a command is answered: a push sent after the answer to a
//! configure is sealed. One that was under way is refused by the rules, sealed, and proposed again.

use crate::keyring::{Keyring, Unopened};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use queen_core::command::PushGroup;
use queen_core::envelope::bound_to;
use queen_core::frame::{Frame, Frames};
use queen_core::row::{QueueRow, key};
use queen_core::run::{self, HEADER_BYTES};
use queen_core::table::Table;
use queen_core::timer::{TimerOp, TimerOpKind};
use queen_core::{Code, Error, Offset, QueueId, TenantId};
use queen_state::step::{decode, get};
use queen_state::{Reading, StorageError, Tables};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Queues read at a time at the start.
const PAGE: usize = 1024;
/// Queues whose undecryptable payloads were logged are remembered up to this number.
const TOLD_MAX: usize = 1024;

/// The keys, and which queues are encrypted.
pub(crate) struct Sealing {
    pub(crate) keyring: Keyring,
    /// Whether `queues` has any: spares most brokers the look.
    any: AtomicBool,
    queues: RwLock<Queues>,
    told: Mutex<BTreeSet<QueueId>>,
}

#[derive(Default)]
struct Queues {
    names: HashMap<TenantId, HashMap<Box<str>, QueueId>>,
    ids: HashMap<QueueId, (TenantId, Box<str>)>,
}

/// A payload that this node cannot open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Its queue's name.
    pub queue: String,
    /// Its partition's name.
    pub partition: String,
    /// Its offset.
    pub offset: Offset,
    /// Why it does not open.
    pub why: Unopened,
}

impl fmt::Display for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sealed { queue, partition, offset, why } = self;
        write!(f, "queue {queue:?}, partition {partition:?}: the payload at offset {offset} {why}")
    }
}

impl From<Sealed> for Error {
    fn from(sealed: Sealed) -> Error {
        Error::new(Code::Undecryptable, sealed.to_string())
    }
}

/// A run whose envelopes were opened.
pub(crate) struct OpenedRun {
    /// Header and frames, these in the clear up to `stuck`.
    pub(crate) bytes: Bytes,
    /// The first message that does not open.
    pub(crate) stuck: Option<(Offset, Unopened)>,
}

impl Sealing {
    pub(crate) fn new(keyring: Keyring) -> Sealing {
        Sealing {
            keyring,
            any: AtomicBool::new(false),
            queues: RwLock::default(),
            told: Mutex::default(),
        }
    }

    /// Finds the encrypted queues in the tables, and forgets all others.
    pub(crate) fn load(&self, view: &impl Tables) -> Result<(), StorageError> {
        let mut queues = Queues::default();
        let mut from = Vec::new();
        loop {
            let rows = view.scan(Table::Queue, &from, &[u8::MAX; 5], PAGE)?;
            for (row_key, value) in &rows {
                let row: QueueRow = decode(row_key, value)?;
                if let Some(id) = key::queue_of(row_key) {
                    queues.set(id, Some(&row));
                }
            }
            match rows.last() {
                Some((last, _)) if rows.len() == PAGE => from = [&last[..], &[0]].concat(),
                _ => break,
            }
        }
        self.any.fetch_or(!queues.ids.is_empty(), Ordering::AcqRel);
        *self.queues.write() = queues;
        Ok(())
    }

    /// Encrypted queues, when there is no key to write to them with.
    pub(crate) fn unwritable(&self) -> usize {
        if self.keyring.current().is_some() { 0 } else { self.queues.read().ids.len() }
    }

    /// Looks again at a queue that was created, changed or deleted.
    pub(crate) fn look(&self, view: &impl Reading, queue: QueueId) -> Result<(), StorageError> {
        let row = get::<QueueRow>(view, &key::queue(queue))?;
        self.set(queue, row.as_ref());
        Ok(())
    }

    fn set(&self, id: QueueId, row: Option<&QueueRow>) {
        if self.any.load(Ordering::Acquire) || row.is_some_and(is_sealed) {
            let mut queues = self.queues.write();
            queues.set(id, row);
            self.any.fetch_or(!queues.ids.is_empty(), Ordering::AcqRel);
        }
    }

    /// Whether any queue is encrypted.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether what is pushed to the queue is to be sealed.
    pub(crate) fn is_encrypted(&self, tenant: TenantId, queue: &str) -> bool {
        self.any.load(Ordering::Acquire)
            && self.queues.read().names.get(&tenant).is_some_and(|names| names.contains_key(queue))
    }

    /// The frames of each group that is to be sealed, sealed; `None` when none is.
    pub(crate) fn seal_push(
        &self,
        tenant: TenantId,
        groups: &[PushGroup<'_>],
    ) -> Result<Option<SealedFrames>, Error> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(None);
        }
        let groups = groups.iter().map(|group| {
            if !self.is_encrypted(tenant, group.queue) {
                return Ok(None);
            }
            let bound = bound_to(tenant, group.queue, group.partition);
            self.seal_frames(group.queue, &bound, group.frames).map(Some)
        });
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        Ok(groups.iter().any(Option::is_some).then_some(SealedFrames(groups)))
    }

    /// The envelope of each payload of a timer that is to be sealed; one per operation.
    pub(crate) fn seal_timers<'o, 'a: 'o>(
        &self,
        tenant: TenantId,
        ops: impl Iterator<Item = &'o TimerOp<'a>>,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let envelopes = ops.map(|op| match &op.kind {
            TimerOpKind::Schedule(message)
                if !message.encrypted && self.is_encrypted(tenant, op.queue) =>
            {
                let bound = bound_to(tenant, op.queue, message.partition);
                let mut envelope = Vec::new();
                self.seal(op.queue, &bound, message.payload, &mut envelope)?;
                Ok(Some(envelope))
            }
            _ => Ok(None),
        });
        envelopes.collect()
    }

    fn seal_frames(&self, queue: &str, bound: &[u8], frames: &[u8]) -> Result<Vec<u8>, Error> {
        let mut out = Vec::with_capacity(frames.len() + frames.len() / 4 + 64);
        let mut payload = Vec::new();
        for frame in Frames::new(frames) {
            let frame = frame.map_err(|bad| Error::new(Code::BadBody, bad.to_string()))?;
            if !frame.encrypted {
                payload.clear();
                self.seal(queue, bound, frame.payload, &mut payload)?;
            }
            let payload = if frame.encrypted { frame.payload } else { &payload };
            Frame { encrypted: true, payload, ..frame }.encode(&mut out);
        }
        Ok(out)
    }

    /// Appends the envelope of a payload that goes to `queue`.
    pub(crate) fn seal(
        &self,
        queue: &str,
        bound: &[u8],
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.keyring.seal(bound, payload, out).ok_or_else(|| no_key(queue))
    }

    /// Opens the envelopes of a run, in the range of offsets that is asked for; `None` when there is
    /// none in it. `bound` is asked for once.
    pub(crate) fn open_run(
        &self,
        bytes: &Bytes,
        offsets: std::ops::Range<Offset>,
        first: Offset,
        bound: impl FnOnce() -> Result<Vec<u8>, StorageError>,
    ) -> Result<Option<OpenedRun>, StorageError> {
        let mut asked = (first.0..).map(Offset).zip(run::frames(bytes).map_while(Result::ok));
        let sealed = |(at, frame): (Offset, Frame<'_>)| frame.encrypted && offsets.contains(&at);
        if !asked.any(sealed) {
            return Ok(None);
        }
        let bound = bound()?;
        let mut out = Vec::with_capacity(bytes.len());
        out.extend_from_slice(&bytes[..HEADER_BYTES]);
        let mut payload = Vec::new();
        let mut stuck = None;
        for (at, frame) in (first.0..).map(Offset).zip(run::frames(bytes).map_while(Result::ok)) {
            if at >= offsets.end {
                break;
            }
            payload.clear();
            if frame.encrypted && at >= offsets.start {
                if let Err(why) = self.keyring.open(&bound, frame.payload, &mut payload) {
                    stuck = Some((at, why));
                    break;
                }
                Frame { encrypted: false, payload: &payload, ..frame }.encode(&mut out);
            } else {
                frame.encode(&mut out);
            }
        }
        Ok(Some(OpenedRun { bytes: out.into(), stuck }))
    }

    /// Notes a queue that has a payload which does not open, and logs the first one.
    pub(crate) fn tell(&self, queue: QueueId, sealed: &Sealed) {
        let mut told = self.told.lock();
        if told.len() < TOLD_MAX && told.insert(queue) {
            tracing::error!(%sealed, "a payload cannot be decrypted, it is not delivered");
        }
    }

    /// Whether a payload of the queue was found that does not open.
    pub(crate) fn was_told(&self, queue: QueueId) -> bool {
        self.told.lock().contains(&queue)
    }
}

fn is_sealed(row: &QueueRow) -> bool {
    row.deleted.is_none() && row.options.encryption_enabled
}

impl Queues {
    fn set(&mut self, id: QueueId, row: Option<&QueueRow>) {
        match row.filter(|row| is_sealed(row)) {
            None => self.remove(id),
            Some(row) => {
                let name: Box<str> = row.name.as_str().into();
                self.ids.insert(id, (row.tenant, name.clone()));
                self.names.entry(row.tenant).or_default().insert(name, id);
            }
        }
    }

    fn remove(&mut self, id: QueueId) {
        let Some((tenant, name)) = self.ids.remove(&id) else { return };
        if let Some(names) = self.names.get_mut(&tenant)
            && names.get(&name) == Some(&id)
        {
            names.remove(&name);
        }
    }
}

/// Frames of a push's groups, where they had to be sealed.
pub(crate) struct SealedFrames(Vec<Option<Vec<u8>>>);

impl SealedFrames {
    /// The groups with these frames.
    pub(crate) fn groups<'a>(&'a self, groups: &[PushGroup<'a>]) -> Vec<PushGroup<'a>> {
        let mut groups = groups.to_vec();
        for (group, frames) in groups.iter_mut().zip(&self.0) {
            group.frames = frames.as_deref().unwrap_or(group.frames);
        }
        groups
    }
}

/// A queue is encrypted and this node has no key to write with.
fn no_key(queue: &str) -> Error {
    let text = format!(
        "queue {queue:?} is encrypted and this node has no key: set QUEEN_ENCRYPTION_KEY to the 64 hex \
         digits of the key and restart; nothing was written"
    );
    Error::new(Code::NoEncryptionKey, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::SecretKey;
    use queen_core::Stamp;
    use queen_core::options::QueueOptions;

    fn row(name: &str, encrypted: bool, deleted: bool) -> QueueRow {
        let options = QueueOptions { encryption_enabled: encrypted, ..QueueOptions::default() };
        QueueRow {
            tenant: TenantId::DEFAULT,
            name: name.to_owned(),
            options,
            created: Stamp(1),
            deleted: deleted.then_some(Stamp(2)),
            last_segment: 0,
        }
    }

    #[test]
    fn a_queue_is_encrypted_as_its_newest_incarnation_is() {
        let sealing = Sealing::new(Keyring::none());
        let on = |name| sealing.is_encrypted(TenantId::DEFAULT, name);
        sealing.set(QueueId(1), Some(&row("q", true, false)));
        assert!(on("q") && !on("other"));
        assert!(!sealing.is_encrypted(TenantId([9; 16]), "q"));
        sealing.set(QueueId(2), Some(&row("q", true, false)));
        sealing.set(QueueId(1), None);
        assert!(on("q"), "the one of the same name that was made anew");
        sealing.set(QueueId(2), Some(&row("q", false, false)));
        assert!(!on("q"));
        sealing.set(QueueId(3), Some(&row("q", true, true)));
        assert!(!on("q"), "a deleted one");
    }

    #[test]
    fn a_run_opens_up_to_the_first_message_that_does_not() {
        let [one, two] = [1, 2].map(|byte| SecretKey::new([byte; 32]));
        let mut frames = Vec::new();
        for key in [&one, &one, &two, &one] {
            let sealing = Sealing::new(Keyring::new(Some(key), &[]).unwrap());
            let mut plain = Vec::new();
            Frame { payload: b"{}", ..Frame::default() }.encode(&mut plain);
            frames.extend(sealing.seal_frames("q", b"here", &plain).unwrap());
        }
        let run = Bytes::from([&[0; HEADER_BYTES][..], &frames].concat());
        let sealing = Sealing::new(Keyring::new(Some(&one), &[]).unwrap());
        let open = |from, to| {
            let range = Offset(from)..Offset(to);
            sealing.open_run(&run, range, Offset(10), || Ok(b"here".to_vec())).unwrap()
        };
        let payloads = |opened: &OpenedRun| -> Vec<Vec<u8>> {
            run::frames(&opened.bytes).map(|frame| frame.unwrap().payload.to_vec()).collect()
        };
        let opened = open(10, 14).unwrap();
        assert_eq!(opened.stuck, Some((Offset(12), Unopened::NoKey(two.id()))));
        assert_eq!(payloads(&opened), [b"{}", b"{}"]);
        assert!(open(10, 12).unwrap().stuck.is_none(), "what is not asked for is not opened");
        let opened = open(13, 14).unwrap();
        assert!(opened.stuck.is_none());
        assert_eq!(payloads(&opened)[3], b"{}");
        assert!(open(14, 20).is_none(), "no envelope in the range");
    }
}
