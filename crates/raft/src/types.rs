//! The library's types, filled in.
//!
//! Owns: the type config, the entry, turning ids and memberships into those of the log's files and back.
//! Leaves to others: bytes of records (`wal`), of marks (`mark`).

use crate::gather::Gathering;
use crate::runtime::Patient;
use crate::snapshots::Handle;
use crate::wal::{Body, EntryId, WalEntry};
use bytes::Bytes;
use openraft::entry::RaftPayload;
use openraft::{BasicNode, CommittedLeaderId, LogId, Membership};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

openraft::declare_raft_types!(
    /// The broker's log, as the library sees it.
    pub TypeConfig:
        D = Gathering,
        R = (),
        NodeId = u64,
        Node = BasicNode,
        Entry = Entry,
        SnapshotData = Handle,
        AsyncRuntime = Patient,
);

pub(crate) type Id = LogId<u64>;
pub(crate) type Members = Membership<u64, BasicNode>;
pub(crate) type StoredMembers = openraft::StoredMembership<u64, BasicNode>;
pub(crate) type Vote = openraft::Vote<u64>;
pub(crate) type StorageError = openraft::StorageError<u64>;

/// An entry of the log; cheap to clone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub(crate) log_id: Id,
    pub(crate) payload: Payload,
}

/// What an entry carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Payload {
    Blank,
    /// As serialised: each proposal as a list of bytes.
    #[serde(with = "proposals_as_lists")]
    Proposals(Arc<[Bytes]>),
    Membership(Members),
}

mod proposals_as_lists {
    use super::{Arc, Bytes};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(all: &[Bytes], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(all.iter().map(|one| &one[..]))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Arc<[Bytes]>, D::Error> {
        Ok(Vec::<Vec<u8>>::deserialize(input)?.into_iter().map(Bytes::from).collect())
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.payload {
            Payload::Blank => "blank",
            Payload::Proposals(_) => "proposals",
            Payload::Membership(_) => "membership",
        };
        write!(out, "{} {what}", self.log_id)
    }
}

impl openraft::RaftLogId<u64> for Entry {
    fn get_log_id(&self) -> &Id {
        &self.log_id
    }

    fn set_log_id(&mut self, log_id: &Id) {
        self.log_id = *log_id;
    }
}

impl RaftPayload<u64, BasicNode> for Entry {
    fn is_blank(&self) -> bool {
        matches!(self.payload, Payload::Blank)
    }

    fn get_membership(&self) -> Option<&Members> {
        match &self.payload {
            Payload::Membership(members) => Some(members),
            _ => None,
        }
    }
}

impl openraft::entry::RaftEntry<u64, BasicNode> for Entry {
    fn new_blank(log_id: Id) -> Self {
        Self { log_id, payload: Payload::Blank }
    }

    fn new_membership(log_id: Id, members: Members) -> Self {
        Self { log_id, payload: Payload::Membership(members) }
    }
}

impl openraft::entry::FromAppData<Gathering> for Entry {
    /// Called by the library at the moment of appending: takes all that waits.
    fn from_app_data(gathering: Gathering) -> Self {
        Self { log_id: Id::default(), payload: Payload::Proposals(gathering.take()) }
    }
}

/// Why an entry of the files is not one of the library's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadEntry {
    #[error("node id {0} is above 4,294,967,295")]
    NodeId(u64),
    #[error("the membership in entry {0} cannot be read")]
    Membership(u64),
}

pub(crate) fn to_wal_id(id: &Id) -> Result<EntryId, BadEntry> {
    let node = id.leader_id.node_id;
    let node = u32::try_from(node).map_err(|_| BadEntry::NodeId(node))?;
    Ok(EntryId { term: id.leader_id.term, node, index: id.index })
}

pub(crate) fn from_wal_id(id: EntryId) -> Id {
    Id::new(CommittedLeaderId::new(id.term, u64::from(id.node)), id.index)
}

pub(crate) fn to_wal(entry: Entry) -> Result<WalEntry, BadEntry> {
    let id = to_wal_id(&entry.log_id)?;
    let body = match entry.payload {
        Payload::Blank => Body::Blank,
        Payload::Proposals(all) => Body::Proposals(all),
        Payload::Membership(members) => {
            Body::Membership(crate::mark::encode_members(&members).into())
        }
    };
    Ok(WalEntry { id, body })
}

pub(crate) fn from_wal(entry: WalEntry) -> Result<Entry, BadEntry> {
    let payload = match entry.body {
        Body::Blank => Payload::Blank,
        Body::Proposals(all) => Payload::Proposals(all),
        Body::Membership(bytes) => {
            let members = crate::mark::decode_members(&mut &bytes[..]);
            Payload::Membership(members.ok_or(BadEntry::Membership(entry.id.index))?)
        }
    };
    Ok(Entry { log_id: from_wal_id(entry.id), payload })
}

/// A membership for those outside of this crate.
pub(crate) fn members_of(members: &Members) -> crate::Members {
    let peers = members.nodes().map(|(id, node)| (*id, crate::address::Address::of(node).peer));
    crate::Members {
        voters: members.voter_ids().collect(),
        learners: members.learner_ids().collect(),
        peers: peers.collect(),
    }
}
