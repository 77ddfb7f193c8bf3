//! Numbers and ids of the log: queues, partitions, groups, offsets, messages, leases.
//!
//! Owns: their types and the layout of minted UUIDs. Leaves to others: handing out the next number
//! (`queen-state`).

use crate::Stamp;
use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// One incarnation of a queue, from 1; a re-created queue gets a new one. Never reused.
    QueueId(u32)
);
number!(
    /// One incarnation of a partition, from 1, unique in the whole broker. Never reused.
    ///
    /// Its decimal text is the `partitionId` of the HTTP API.
    PartitionId(u64)
);
number!(
    /// A consumer group registered on one queue, from 1, unique in the whole broker.
    GroupId(u32)
);
number!(
    /// Position of a message in its partition, from 0, without gaps.
    Offset(u64)
);

impl Offset {
    /// The offset `count` messages on.
    pub fn plus(self, count: u64) -> Offset {
        Offset(self.0 + count)
    }
}

/// Low bits of a partition id that a minted message id carries.
pub const MESSAGE_ID_PARTITION_BITS: u32 = 28;
/// Low bits of an offset that a minted message id carries.
pub const MESSAGE_ID_OFFSET_BITS: u32 = 36;

/// A message's id: a UUIDv7 that says where the message lies.
///
/// A function of (stamp, partition, offset) alone, so it is never stored and every node mints the
/// same. Within a partition, ids sort as offsets do (bytes and text alike) for any two messages
/// whose offsets do not straddle a multiple of 2^36 under one stamp.
///
/// ```text
/// 48 bits  milliseconds of the stamp
///  4 bits  version 7
/// 10 bits  microseconds within the millisecond
///  2 bits  partition id, bits 27..26
///  2 bits  variant 0b10
/// 26 bits  partition id, bits 25..0
/// 36 bits  offset, low bits
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MessageId(pub [u8; 16]);

/// What a minted message id says about its message: the full stamp, and the low bits of the
/// partition id and of the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MintedAt {
    /// Stamp of the append.
    pub stamp: Stamp,
    /// Partition id modulo 2^28.
    pub partition_low: u64,
    /// Offset modulo 2^36.
    pub offset_low: u64,
}

impl MintedAt {
    /// Whether the id can be that of a message at this place.
    pub fn matches(&self, partition: PartitionId, offset: Offset) -> bool {
        self.partition_low == partition.0 & ((1 << MESSAGE_ID_PARTITION_BITS) - 1)
            && self.offset_low == offset.0 & ((1 << MESSAGE_ID_OFFSET_BITS) - 1)
    }

    /// The offset at or below `next` (exclusive) that has these low bits, if there is one.
    pub fn offset_below(&self, next: Offset) -> Option<Offset> {
        let last = next.0.checked_sub(1)?;
        let high = last >> MESSAGE_ID_OFFSET_BITS << MESSAGE_ID_OFFSET_BITS;
        let near = high | self.offset_low;
        if near <= last {
            return Some(Offset(near));
        }
        near.checked_sub(1 << MESSAGE_ID_OFFSET_BITS).map(Offset)
    }
}

impl MessageId {
    /// The id of the message at `offset` of `partition`, appended under `stamp`.
    pub fn mint(stamp: Stamp, partition: PartitionId, offset: Offset) -> MessageId {
        let millis = (stamp.0 / 1000) as u128 & ((1 << 48) - 1);
        let micros = (stamp.0 % 1000) as u128;
        let partition = partition.0 as u128 & ((1 << MESSAGE_ID_PARTITION_BITS) - 1);
        let offset = offset.0 as u128 & ((1 << MESSAGE_ID_OFFSET_BITS) - 1);
        let bits = millis << 80
            | 0x7 << 76
            | micros << 66
            | (partition >> 26) << 64
            | 0b10 << 62
            | (partition & ((1 << 26) - 1)) << 36
            | offset;
        MessageId(bits.to_be_bytes())
    }

    /// Reads the place out of an id minted by [`MessageId::mint`].
    ///
    /// `None` when the bits cannot come from there. A foreign UUIDv7 may pass: the caller checks
    /// against the log.
    pub fn minted_at(&self) -> Option<MintedAt> {
        let bits = u128::from_be_bytes(self.0);
        let micros = (bits >> 66) as u64 & 0x3ff;
        if bits >> 76 & 0xf != 7 || bits >> 62 & 0b11 != 0b10 || micros > 999 {
            return None;
        }
        Some(MintedAt {
            stamp: Stamp((bits >> 80) as u64 * 1000 + micros),
            partition_low: ((bits >> 64) as u64 & 0b11) << 26
                | (bits >> 36) as u64 & ((1 << 26) - 1),
            offset_low: bits as u64 & ((1 << MESSAGE_ID_OFFSET_BITS) - 1),
        })
    }

    /// Reads the hyphenated lower-case text that [`MessageId`] displays as, and nothing else.
    pub fn parse(text: &str) -> Option<MessageId> {
        let id = MessageId(parse_uuid(text)?);
        Some(id)
    }
}

/// A lease's id: a UUIDv7 made of the stamp of the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub [u8; 16]);

impl LeaseId {
    /// The lease id of the claim command stamped `stamp`; unique because stamps are.
    pub fn mint(stamp: Stamp) -> LeaseId {
        LeaseId(MessageId::mint(stamp, PartitionId(u64::MAX), Offset(u64::MAX)).0)
    }

    /// Reads the hyphenated lower-case text that [`LeaseId`] displays as, and nothing else.
    pub fn parse(text: &str) -> Option<LeaseId> {
        parse_uuid(text).map(LeaseId)
    }
}

/// Only the canonical form: two texts never name one id.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    if text.len() != 36 || text.bytes().any(|b| b.is_ascii_uppercase()) {
        return None;
    }
    uuid::Uuid::try_parse(text).ok().map(uuid::Uuid::into_bytes)
}

macro_rules! uuid_text {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut buf = [0; uuid::fmt::Hyphenated::LENGTH];
                f.write_str(uuid::Uuid::from_bytes(self.0).hyphenated().encode_lower(&mut buf))
            }
        }
    };
}
uuid_text!(MessageId);
uuid_text!(LeaseId);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn minted_ids_say_where_the_message_lies(
            stamp in 0u64..(1 << 57), partition in 1u64.., offset in 0u64..(1 << 60), later in 1u64..1000,
        ) {
            let (stamp, pid, at) = (Stamp(stamp % ((1 << 48) * 1000)), PartitionId(partition), Offset(offset));
            let id = MessageId::mint(stamp, pid, at);
            let place = id.minted_at().unwrap();
            prop_assert_eq!(place.stamp, stamp);
            prop_assert!(place.matches(pid, at));
            prop_assert_eq!(place.offset_below(at.plus(later)), Some(at));
            prop_assert_eq!(MessageId::parse(&id.to_string()), Some(id));
            if offset & ((1 << 36) - 1) < (1 << 36) - 1000 {
                let next = MessageId::mint(stamp, pid, at.plus(later));
                prop_assert!(id < next && id.to_string() < next.to_string());
            }
        }
    }
}
