//! Every decoder of bytes that outlive a process, behind one signature.
//!
//! Owns: the list, and what must hold of each: any bytes are decoded or refused, and what was
//! decoded is written and read back as the same. Leaves to others: making bytes (the fuzz targets
//! in `fuzz/`, and the test that runs on every change).

use bytes::Bytes;
use queen_core::command::{Command, DeadLetterRef, GroupStart, Pop, PurgeDeadLetters, Push};
use queen_core::command::{PushGroup, Tick};
use queen_core::entry::{self, EntryHeader};
use queen_core::envelope::{Envelope, KeyId};
use queen_core::ephemeral::{EphemeralAnswer, EphemeralAsk, EphemeralCall, Outcome};
use queen_core::frame::{Frame, Frames};
use queen_core::relay::{Answer, Ask, AskHead, Report, ephemeral_ask, time_ask};
use queen_core::row::key;
use queen_core::row::kv::KvValue;
use queen_core::row::pin::PinValue;
use queen_core::row::{
    CursorRow, DeadLetterRow, GroupRow, HeldLease, LastStampRow, NextIdsRow, PartitionByIdRow,
    PartitionRow, QueueNameRow, QueueRow, Row, RunRow, SegmentRow, TransactionIdExpiryRow,
    TransactionIdRow, TransactionPlace,
};
use queen_core::run::{self, RunHeader};
use queen_core::sink::{Committed, HourFile, Intent, Lease, Manifest, PartitionsFile, Presence};
use queen_core::sink::{SinkOn, Start};
use queen_core::{Code, Error, GroupId, LeaseId, Offset, PartitionId, QueueId, Stamp, TenantId};

/// A decoder: its name, what feeds it bytes, and some bytes that it takes.
pub struct Decoder {
    /// Name, also of its fuzz target.
    pub name: &'static str,
    /// Decodes the bytes; panics when a promise is broken. Says whether they were taken.
    pub feed: fn(&[u8]) -> bool,
    /// Bytes that must be taken, from which mutations start.
    pub samples: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const DECODERS: &[Decoder] = &[
    Decoder { name: "frame", feed: frame, samples: frame_samples },
    Decoder { name: "envelope", feed: envelope, samples: envelope_samples },
    Decoder { name: "run", feed: run, samples: run_samples },
    Decoder { name: "entry", feed: entry, samples: entry_samples },
    Decoder { name: "command", feed: command, samples: command_samples },
    Decoder { name: "relay", feed: relay, samples: relay_samples },
    Decoder { name: "row", feed: row, samples: row_samples },
    Decoder {
        name: "row_key",
        feed: row_key,
        samples: || vec![vec![1; 8], vec![1; 12], vec![1; 28]],
    },
    Decoder { name: "wal_record", feed: wal_record, samples: wal_samples },
    Decoder { name: "image", feed: image, samples: queen_store::fuzzing::image_samples },
    Decoder { name: "root", feed: root, samples: queen_store::fuzzing::root_samples },
    Decoder { name: "sink_document", feed: sink_document, samples: sink_samples },
    Decoder { name: "manifest", feed: manifest, samples: sink_samples_of_manifest },
];

/// Frames of a run.
pub fn frame(bytes: &[u8]) -> bool {
    let Ok(frames) = Frames::new(bytes).collect::<Result<Vec<Frame<'_>>, _>>() else {
        return false;
    };
    let mut again = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut again));
    let back: Result<Vec<_>, _> = Frames::new(&again).collect();
    assert_eq!(back.as_ref(), Ok(&frames));
    true
}

/// The envelope of an encrypted payload.
pub fn envelope(bytes: &[u8]) -> bool {
    let Ok(envelope) = Envelope::decode(bytes) else { return false };
    let mut again = Vec::new();
    envelope.encode(&mut again);
    assert_eq!(again, bytes);
    true
}

/// A run: header, checksum, frames.
pub fn run(bytes: &[u8]) -> bool {
    // The header alone is read where the checksum was looked at before.
    let _ = RunHeader::decode(bytes);
    let _ = run::frames(bytes).collect::<Result<Vec<_>, _>>();
    let Ok((header, frames)) = run::decode(bytes) else { return false };
    assert_eq!(header.run_len() as usize, run::HEADER_BYTES + frames.len());
    assert_eq!(header.encode(frames), bytes[..run::HEADER_BYTES]);
    frame(frames);
    true
}

/// A log entry and its commands.
pub fn entry(bytes: &[u8]) -> bool {
    let Ok((header, commands)) = entry::decode(bytes) else { return false };
    let mut again = Vec::new();
    header.encode(&mut again);
    commands.iter().for_each(|command| entry::put_command(&mut again, command));
    assert_eq!(again, bytes);
    for bytes in commands {
        command(bytes);
    }
    true
}

/// A command.
pub fn command(bytes: &[u8]) -> bool {
    let Ok(command) = Command::decode(bytes) else { return false };
    let again = command.encode();
    assert_eq!(Command::decode(&again).as_ref(), Ok(&command));
    true
}

/// What one node asks another, and the answer.
pub fn relay(bytes: &[u8]) -> bool {
    let asked = match Ask::decode(bytes) {
        Ok(Ask::Command(head, command)) => Some([&head.bytes()[..], command].concat()),
        Ok(Ask::Report(report)) => Some(report.encode()),
        Ok(Ask::Time) => Some(time_ask()),
        // Numbers in it have more than one form: what was read is written in the shortest.
        Ok(Ask::Ephemeral(call)) => {
            let again = ephemeral_ask(&call);
            assert_eq!(Ask::decode(&again), Ok(Ask::Ephemeral(call)));
            return true;
        }
        Err(_) => None,
    };
    if let Some(again) = &asked {
        assert_eq!(again, bytes);
    }
    let answer = Answer::decode(bytes);
    if let Ok(answer) = &answer {
        assert_eq!(Answer::decode(&answer.encode()).as_ref(), Ok(answer));
    }
    asked.is_some() || answer.is_ok()
}

/// A value of every table: the first byte chooses which.
pub fn row(bytes: &[u8]) -> bool {
    let Some((kind, value)) = bytes.split_first() else { return false };
    match kind % 17 {
        0 => one_row::<LastStampRow>(value),
        1 => one_row::<NextIdsRow>(value),
        2 => one_row::<QueueNameRow>(value),
        3 => one_row::<QueueRow>(value),
        4 => one_row::<PartitionRow>(value),
        5 => one_row::<PartitionByIdRow>(value),
        6 => one_row::<RunRow>(value),
        7 => one_row::<SegmentRow>(value),
        8 => one_row::<TransactionIdRow>(value),
        9 => one_row::<TransactionIdExpiryRow>(value),
        10 => one_row::<GroupRow>(value),
        11 => one_row::<CursorRow>(value),
        12 => one_row::<DeadLetterRow>(value),
        13 => one_row::<queen_core::row::dead_letter::DeadLetterByIdRow>(value),
        14 => {
            let decoded = KvValue::decode(&Bytes::copy_from_slice(value));
            decoded.is_ok_and(|row| row.encode() == value)
        }
        15 => PinValue::decode(value).is_ok_and(|row| row.encode() == value),
        _ => queen_core::row::kv::decode_number(Some(&Bytes::copy_from_slice(value))).is_ok(),
    }
}

fn one_row<R: Row>(bytes: &[u8]) -> bool {
    let Ok(row) = R::decode(bytes) else { return false };
    let again = row.encode();
    let back = R::decode(&again).map(|row| row.encode());
    assert_eq!(back, Ok(again));
    true
}

/// Keys of all tables.
pub fn row_key(bytes: &[u8]) -> bool {
    let read = [
        key::queue_of(bytes).is_some(),
        key::name_in_queue(bytes).is_some(),
        key::run_parts(bytes).is_some(),
        key::tail_parts(bytes).is_some(),
        key::segment_parts(bytes).is_some(),
        key::transaction_id_parts(bytes).is_some(),
        key::transaction_id_expiry_parts(bytes).is_some(),
        key::cursor_parts(bytes).is_some(),
        key::ready_parts(bytes).is_some(),
        key::lease_parts(bytes).is_some(),
        key::lease_expiry_parts(bytes).is_some(),
        key::dead_letter_parts(bytes).is_some(),
    ];
    read.contains(&true)
}

/// A file of the write-ahead log: header and record.
pub fn wal_record(bytes: &[u8]) -> bool {
    queen_raft::fuzzing::wal_bytes(bytes)
}

/// The stream of an image of the store.
pub fn image(bytes: &[u8]) -> bool {
    queen_store::fuzzing::image_bytes(bytes)
}

/// The file that names the store's files.
pub fn root(bytes: &[u8]) -> bool {
    queen_store::fuzzing::root_bytes(bytes)
}

macro_rules! documents {
    ($bytes:ident: $($kind:ty),*) => {{
        let mut taken = false;
        $(if let Ok(document) = <$kind>::from_json($bytes) {
            let again = document.to_json();
            assert_eq!(<$kind>::from_json(again.as_bytes()).as_ref(), Ok(&document));
            taken = true;
        })*
        taken
    }};
}

/// A row or a sidecar of the sink.
pub fn sink_document(bytes: &[u8]) -> bool {
    documents!(bytes: Start, SinkOn, Lease, Presence, Intent, Committed, PartitionsFile, HourFile)
}

/// A manifest.
pub fn manifest(bytes: &[u8]) -> bool {
    documents!(bytes: Manifest)
}

fn frame_samples() -> Vec<Vec<u8>> {
    let full = Frame {
        transaction_id: Some("inv-7"),
        trace_id: Some([7; 16]),
        producer: Some("p"),
        message_id: Some([9; 16]),
        encrypted: true,
        payload: b"{\"n\":1}",
    };
    let mut bytes = Vec::new();
    Frame { payload: b"{}", ..Frame::default() }.encode(&mut bytes);
    full.encode(&mut bytes);
    vec![bytes]
}

fn envelope_samples() -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    let sealed = &[7; 16 + 7];
    Envelope { key: KeyId([1; 8]), nonce: [2; 12], sealed }.encode(&mut bytes);
    vec![bytes]
}

fn run_samples() -> Vec<Vec<u8>> {
    let frames = frame_samples().concat();
    let header = RunHeader {
        partition: PartitionId(7),
        first_offset: Offset(41),
        count: 2,
        stamp: Stamp(1_792_837_434_910_988),
        frames_len: frames.len() as u32,
        text_bytes: 50,
    };
    vec![[header.encode(&frames).as_slice(), &frames].concat()]
}

fn command_samples() -> Vec<Vec<u8>> {
    let frames = frame_samples().concat();
    let tenant = TenantId::DEFAULT;
    let group = PushGroup {
        queue: "orders",
        partition: "cust-1",
        count: 2,
        has_transaction_ids: true,
        text_bytes: 50,
        frames: &frames,
    };
    let pop = Pop {
        tenant,
        queue: "orders",
        partition: None,
        group: Some("g"),
        batch: 10,
        partitions: 2,
        lease_seconds: Some(3),
        auto_ack: false,
        start: GroupStart::From(Stamp(9)),
    };
    let letter = DeadLetterRef::Message { partition: PartitionId(3), transaction_id: "t" };
    let commands = [
        Command::Push(Push { tenant, groups: vec![group] }),
        Command::Pop(pop),
        Command::PurgeDeadLetters(PurgeDeadLetters::One { tenant, letter }),
        Command::Tick(Tick { retention: vec![QueueId(1)] }),
    ];
    commands.iter().map(Command::encode).collect()
}

fn entry_samples() -> Vec<Vec<u8>> {
    let commands = command_samples();
    let count = commands.len() as u32;
    let header = EntryHeader { origin: 1, batch: 2, first_stamp: Stamp(3), count };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    commands.iter().for_each(|command| entry::put_command(&mut bytes, command));
    vec![bytes]
}

fn relay_samples() -> Vec<Vec<u8>> {
    let head = AskHead { term: 3, origin: 1, batch: 2, writes: true };
    let asks = command_samples().into_iter().map(|command| [&head.bytes()[..], &command].concat());
    let rest = [
        Report { node: 2, storage_full: true }.encode(),
        time_ask(),
        ephemeral_ask(&EphemeralCall {
            tenant: TenantId::DEFAULT,
            ask: EphemeralAsk::Ack { queue: "q", group: Some("g"), items: vec![("e:1:p:2", true)] },
        }),
        Answer::Ephemeral(EphemeralAnswer::Acked(vec![Outcome::Stale])).encode(),
        Answer::Applied(77).encode(),
        Answer::Clock(Stamp(1_792_837_434_910_988)).encode(),
        Answer::Refused(Error::new(Code::Overloaded, "too much is in flight")).encode(),
    ];
    asks.chain(rest).collect()
}

fn row_samples() -> Vec<Vec<u8>> {
    let at = Stamp(1_792_837_434_910_988);
    let lease = HeldLease { id: LeaseId([3; 16]), end: Offset(9), expires: at };
    let cursor = CursorRow {
        next: Offset(4),
        delivered: Offset(9),
        attempts: 1,
        failures: 0,
        ready: Some(at),
        lease: Some(lease),
        moved: at,
    };
    let place = TransactionPlace { offset: Offset(4), stamp: at, expires: at };
    let group = GroupRow {
        id: GroupId(1),
        registered: at,
        mode: GroupStart::All,
        start: Stamp::ZERO,
        scanned: queen_core::row::group::TailMark::before(at),
        conflation: true,
    };
    let run =
        RunRow { segment: 1, position: 99, count: 3, stamp: at, frames_len: 77, own_ids: true };
    let kv = KvValue { version: 5, expires: Stamp::MAX, updated: at, value: "{}".into() };
    let pin = PinValue { window: 1, from: Stamp(1), to: at };
    let rows = [
        (0, LastStampRow(at).encode()),
        (2, QueueNameRow(QueueId(7)).encode()),
        (6, run.encode()),
        (8, TransactionIdRow(vec![place]).encode()),
        (9, TransactionIdExpiryRow(vec![[1; 8]]).encode()),
        (10, group.encode()),
        (11, cursor.encode()),
        (14, kv.encode()),
        (15, pin.encode()),
    ];
    rows.into_iter().map(|(kind, row)| [vec![kind], row].concat()).collect()
}

fn wal_samples() -> Vec<Vec<u8>> {
    queen_raft::fuzzing::wal_samples()
}

/// One document per line.
fn golden(wanted: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let lines = include_bytes!("../../core/golden/sink-v1.jsonl").split(|byte| *byte == b'\n');
    lines.filter(|line| wanted(line)).map(<[u8]>::to_vec).collect()
}

fn sink_samples() -> Vec<Vec<u8>> {
    golden(sink_document)
}

fn sink_samples_of_manifest() -> Vec<Vec<u8>> {
    golden(manifest)
}
