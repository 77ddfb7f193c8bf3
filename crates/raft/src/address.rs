//! How a membership writes down where a node is and which disk it has.
//!
//! Owns: the text form, `raft/http#disk` with the disk as 32 hex digits. A node of a group of one that
//! never had a listener has an empty text. Leaves to others: the membership (`mark`).

use crate::Peer;
use crate::net::greeting::DiskId;
use openraft::BasicNode;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) peer: Peer,
    /// Zeros: not known.
    pub(crate) disk: DiskId,
}

impl Address {
    pub(crate) fn of(node: &BasicNode) -> Self {
        let (addresses, disk) = node.addr.split_once('#').unwrap_or((&node.addr, ""));
        let (raft, http) = addresses.split_once('/').unwrap_or((addresses, ""));
        let disk = u128::from_str_radix(disk, 16).unwrap_or(0).to_be_bytes();
        Self { peer: Peer { raft: raft.into(), http: http.into() }, disk }
    }

    pub(crate) fn node(&self) -> BasicNode {
        let Peer { raft, http } = &self.peer;
        let disk = u128::from_be_bytes(self.disk);
        BasicNode { addr: format!("{raft}/{http}#{disk:032x}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_back_and_odd_texts_are_survived() {
        let peer = Peer { raft: "[::1]:7400".into(), http: "a:6632".into() };
        let address = Address { peer, disk: *b"0123456789abcdef" };
        let node = address.node();
        assert_eq!(node.addr, "[::1]:7400/a:6632#30313233343536373839616263646566");
        assert_eq!(Address::of(&node), address);
        assert_eq!(Address::of(&BasicNode::default()), Address::default());
        assert_eq!(Address::of(&BasicNode::new("a#x")).peer.raft, "a");
    }
}
