//! The mark: the log's account of a position, kept by the machine.
//!
//! Owns: its bytes, and those of a membership (which the log's membership entries carry too). Leaves to
//! others: storing it (`Machine`).
//!
//! Little-endian. An id is `term u64 | node u64 | index u64`.
//!
//! ```text
//! mark:       version u8 = 1 | id of the entry | has membership id u8 | that id, if so | membership
//! membership: version u8 = 1 | configs u8, each: voters u16, voter u64... |
//!             nodes u16, each: node u64, address length u16, address
//! ```

use crate::types::{Id, Members, StoredMembers};
use openraft::{BasicNode, CommittedLeaderId};
use std::collections::{BTreeMap, BTreeSet};

const VERSION: u8 = 1;

/// A position and the membership in force there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) id: Id,
    pub(crate) members: StoredMembers,
}

impl Mark {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        out.push(VERSION);
        put_id(&mut out, &self.id);
        out.push(u8::from(self.members.log_id().is_some()));
        if let Some(id) = self.members.log_id() {
            put_id(&mut out, id);
        }
        put_members(&mut out, self.members.membership());
        out
    }

    /// `None` for bytes that are no mark of this release.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let input = &mut bytes;
        if take::<1>(input)? != [VERSION] {
            return None;
        }
        let id = take_id(input)?;
        let members_id = match take::<1>(input)? {
            [0] => None,
            [1] => Some(take_id(input)?),
            _ => return None,
        };
        let members = decode_members(input)?;
        input.is_empty().then(|| Self { id, members: StoredMembers::new(members_id, members) })
    }
}

/// Bytes of a membership.
pub(crate) fn encode_members(members: &Members) -> Vec<u8> {
    let mut out = Vec::new();
    put_members(&mut out, members);
    out
}

fn put_members(out: &mut Vec<u8>, members: &Members) {
    out.push(VERSION);
    let configs = members.get_joint_config();
    out.push(configs.len() as u8);
    for voters in configs {
        out.extend_from_slice(&(voters.len() as u16).to_le_bytes());
        voters.iter().for_each(|voter| out.extend_from_slice(&voter.to_le_bytes()));
    }
    out.extend_from_slice(&(members.nodes().count() as u16).to_le_bytes());
    for (node, BasicNode { addr }) in members.nodes() {
        out.extend_from_slice(&node.to_le_bytes());
        out.extend_from_slice(&(addr.len() as u16).to_le_bytes());
        out.extend_from_slice(addr.as_bytes());
    }
}

/// Takes a membership off the front of `input`.
pub(crate) fn decode_members(input: &mut &[u8]) -> Option<Members> {
    if take::<1>(input)? != [VERSION] {
        return None;
    }
    let [count] = take::<1>(input)?;
    let mut configs = Vec::new();
    for _ in 0..count {
        let mut voters = BTreeSet::new();
        for _ in 0..u16::from_le_bytes(take(input)?) {
            voters.insert(u64::from_le_bytes(take(input)?));
        }
        configs.push(voters);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..u16::from_le_bytes(take(input)?) {
        let node = u64::from_le_bytes(take(input)?);
        let length = usize::from(u16::from_le_bytes(take(input)?));
        let (address, rest) = input.split_at_checked(length)?;
        *input = rest;
        let addr = std::str::from_utf8(address).ok()?.to_owned();
        nodes.insert(node, BasicNode { addr });
    }
    Some(Members::new(configs, nodes))
}

fn put_id(out: &mut Vec<u8>, id: &Id) {
    for number in [id.leader_id.term, id.leader_id.node_id, id.index] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn take_id(input: &mut &[u8]) -> Option<Id> {
    let term = u64::from_le_bytes(take(input)?);
    let node = u64::from_le_bytes(take(input)?);
    Some(Id::new(CommittedLeaderId::new(term, node), u64::from_le_bytes(take(input)?)))
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = input.split_first_chunk::<N>()?;
    *input = rest;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Mark {
        let id = |term, index| Id::new(CommittedLeaderId::new(term, 1), index);
        let node = BasicNode { addr: "a:1".into() };
        let members = Members::new(vec![BTreeSet::from([1])], BTreeMap::from([(1, node)]));
        Mark { id: id(2, 9), members: StoredMembers::new(Some(id(0, 0)), members) }
    }

    #[test]
    fn the_bytes_of_a_mark_are_fixed() {
        let bytes = sample().encode();
        let want = b"\x01\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\
            \x01\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
            \x01\x01\x01\0\x01\0\0\0\0\0\0\0\x01\0\x01\0\0\0\0\0\0\0\x03\0a:1";
        assert_eq!(bytes, want);
        assert_eq!(Mark::decode(&bytes), Some(sample()));
        for cut in 0..bytes.len() {
            assert_eq!(Mark::decode(&bytes[..cut]), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Mark::decode(&bytes);
            if let Some(first) = bytes.first_mut() { *first = VERSION; }
            let _ = Mark::decode(&bytes);
            let _ = decode_members(&mut &bytes[..]);
        }
    }
}
