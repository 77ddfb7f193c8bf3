//! What requests between nodes say.
//!
//! Owns: the bodies of frames, and turning entries into bytes once for all peers. Leaves to others:
//! frames (`net`), what is done about a request (`exchange`).
//!
//! Bodies are postcard of the types here. The body of [`Kind::Append`](crate::net::frame::Kind) is
//! `length u32 little-endian, postcard of Head, then each entry as a record of the log's own format`, so
//! every entry carries its checksum from the leader's memory to the follower's.

use crate::net::frame::Parts;
use crate::types::{self, Entry, Id, TypeConfig, Vote};
use crate::wal::{
    RECORD_HEADER_BYTES, RecordHeader, decode_body, encode_record, record_bytes, record_is_sound,
};
use bytes::{BufMut, Bytes, BytesMut};
use openraft::raft::AppendEntriesRequest;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The leader says that it lives; answered with the term that the other knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pulse {
    pub(crate) term: u64,
    pub(crate) leader: u64,
    /// The newest committed entry that each node but the leader is known to hold.
    pub(crate) held: Vec<(u64, Id)>,
}

/// A voter asks whether it would be elected; answered with a [`Ballot`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Canvass {
    pub(crate) last: Option<Id>,
}

/// The answer to a [`Canvass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ballot {
    pub(crate) granted: bool,
    /// Where the log of the one who answers ends.
    pub(crate) last: Option<Id>,
}

/// A change of members, for the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    AddLearner { id: u64, raft: String, http: String },
    Promote(Vec<u64>),
    SetVoters(Vec<u64>),
    Remove(u64),
}

/// The start of a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotHead {
    pub(crate) vote: Vote,
    pub(crate) mark: Vec<u8>,
}

/// The end of a snapshot: what must have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotSum {
    pub(crate) bytes: u64,
    pub(crate) crc: u32,
}

#[derive(Serialize, Deserialize)]
struct Head {
    vote: Vote,
    previous: Option<Id>,
    committed: Option<Id>,
}

/// Bytes of a message. Nothing that is sent here can fail to be written.
pub(crate) fn encode<T: Serialize>(message: &T) -> Bytes {
    postcard::to_stdvec(message).unwrap_or_default().into()
}

/// `None` for bytes that are no such message.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (message, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(message)
}

/// Encodes entries; keeps the last ones, which the other peers most likely are sent too.
#[derive(Default)]
pub(crate) struct Encoder(Mutex<Option<(Id, Id, Bytes)>>);

impl Encoder {
    fn records(&self, entries: Vec<Entry>) -> Result<Bytes, types::BadEntry> {
        let ends = entries.first().zip(entries.last());
        let Some((first, last)) = ends.map(|(first, last)| (first.log_id, last.log_id)) else {
            return Ok(Bytes::new());
        };
        if let Some((of_first, of_last, bytes)) = &*self.0.lock()
            && (*of_first, *of_last) == (first, last)
        {
            return Ok(bytes.clone());
        }
        let entries: Result<Vec<_>, _> = entries.into_iter().map(types::to_wal).collect();
        let entries = entries?;
        let bytes: u64 = entries.iter().map(record_bytes).sum();
        let mut out = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        entries.iter().for_each(|entry| encode_record(&mut out, entry, 0, 0));
        let bytes = Bytes::from(out);
        *self.0.lock() = Some((first, last, bytes.clone()));
        Ok(bytes)
    }

    /// The body of an append: its head, and the entries, which peers share.
    pub(crate) fn append(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
    ) -> Result<Parts, types::BadEntry> {
        let AppendEntriesRequest { vote, prev_log_id, entries, leader_commit } = request;
        let head = encode(&Head { vote, previous: prev_log_id, committed: leader_commit });
        let mut first = BytesMut::with_capacity(4 + head.len());
        first.put_u32_le(head.len() as u32);
        first.put_slice(&head);
        Ok([first.freeze(), self.records(entries)?])
    }
}

/// `None` for bytes that are no append.
pub(crate) fn decode_append(mut bytes: Bytes) -> Option<AppendEntriesRequest<TypeConfig>> {
    let length = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
    let _ = bytes.split_to(4);
    if length > bytes.len() {
        return None;
    }
    let Head { vote, previous, committed } = decode(&bytes.split_to(length))?;
    let mut entries: Vec<Entry> = Vec::new();
    while !bytes.is_empty() {
        let header = RecordHeader::decode(&bytes)?;
        if !record_is_sound(&header, &bytes) {
            return None;
        }
        let end = RECORD_HEADER_BYTES + header.length as usize;
        let entry = decode_body(&header, bytes.slice(RECORD_HEADER_BYTES..end))?;
        let entry = types::from_wal(entry).ok()?;
        let next = previous.map_or(0, |id| id.index + 1) + entries.len() as u64;
        if entry.log_id.index != next {
            return None;
        }
        entries.push(entry);
        let _ = bytes.split_to((header.record_bytes() as usize).min(bytes.len()));
    }
    Some(AppendEntriesRequest { vote, prev_log_id: previous, entries, leader_commit: committed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Payload;
    use openraft::CommittedLeaderId;
    use proptest::prelude::*;

    fn sample() -> AppendEntriesRequest<TypeConfig> {
        let id = |index| Id::new(CommittedLeaderId::new(3, 1), index);
        let two = [Bytes::from_static(b"one"), Bytes::from_static(b"two")];
        let entries = vec![
            Entry { log_id: id(5), payload: Payload::Proposals(two.into()) },
            Entry { log_id: id(6), payload: Payload::Blank },
        ];
        let vote = Vote::new_committed(3, 1);
        AppendEntriesRequest { vote, prev_log_id: Some(id(4)), entries, leader_commit: Some(id(4)) }
    }

    #[test]
    fn an_append_is_read_back_and_a_changed_one_is_refused() {
        let bytes = Bytes::from(Encoder::default().append(sample()).unwrap().concat());
        let back = decode_append(bytes.clone()).unwrap();
        assert_eq!((back.vote, &back.entries), (sample().vote, &sample().entries));
        assert_eq!((back.prev_log_id, back.leader_commit), {
            (sample().prev_log_id, sample().leader_commit)
        });
        let records = bytes.len() - 8 - 2 * RECORD_HEADER_BYTES;
        for at in records..bytes.len() {
            let mut bad = bytes.to_vec();
            bad[at] ^= 1;
            if let Some(read) = decode_append(bad.into()) {
                assert_eq!(read.entries, sample().entries, "byte {at} is padding");
            }
        }
    }

    #[test]
    fn peers_that_are_sent_the_same_entries_share_their_bytes() {
        let encoder = Encoder::default();
        let first = encoder.records(sample().entries).unwrap();
        let again = encoder.records(sample().entries).unwrap();
        assert_eq!(first.as_ptr(), again.as_ptr());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_append(bytes.clone().into());
            let _: Option<Change> = decode(&bytes);
        }
    }
}
