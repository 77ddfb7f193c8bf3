//! Table keys: big-endian numbers, so that bytes sort as numbers do; a name always comes last.
//!
//! Owns: the bytes of keys, both ways. Leaves to others: the values, and the keys of KV and pins (the
//! other files here).

use super::TailMark;
use crate::{GroupId, LeaseId, Offset, PartitionId, QueueId, Stamp, TenantId};

/// Writes numbers one after the other into an array.
struct Packed<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Packed<N> {
    fn new() -> Packed<N> {
        Packed { bytes: [0; N], at: 0 }
    }

    fn put(mut self, part: &[u8]) -> Packed<N> {
        self.bytes[self.at..self.at + part.len()].copy_from_slice(part);
        self.at += part.len();
        self
    }

    fn u32(self, value: u32) -> Packed<N> {
        self.put(&value.to_be_bytes())
    }

    fn u64(self, value: u64) -> Packed<N> {
        self.put(&value.to_be_bytes())
    }

    fn end(self) -> [u8; N] {
        debug_assert_eq!(self.at, N);
        self.bytes
    }
}

fn named(prefix: &[u8], name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(prefix.len() + name.len());
    key.extend_from_slice(prefix);
    key.extend_from_slice(name.as_bytes());
    key
}

fn u32_at(key: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(key: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(at..at + 8)?.try_into().ok()?))
}

/// The first key after every key that begins with `prefix`.
pub fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Nothing sorts after a prefix of 0xff alone but longer such keys; none is this long.
    vec![u8::MAX; prefix.len() + 1024]
}

/// Key of [`crate::table::Table::Meta`] for the last applied stamp.
pub const META_LAST_STAMP: &[u8] = b"last_stamp";
/// Key of [`crate::table::Table::Meta`] for the next ids.
pub const META_NEXT_IDS: &[u8] = b"next_ids";

/// `QueueName`: tenant, queue name.
pub fn queue_name(tenant: TenantId, queue: &str) -> Vec<u8> {
    named(&tenant.0, queue)
}

/// `Queue`: queue id.
pub fn queue(queue: QueueId) -> [u8; 4] {
    queue.0.to_be_bytes()
}

/// The queue id of a `Queue` key, and of every key that begins with one.
pub fn queue_of(key: &[u8]) -> Option<QueueId> {
    u32_at(key, 0).map(QueueId)
}

/// `Partition`: queue id, partition name.
pub fn partition(queue: QueueId, name: &str) -> Vec<u8> {
    named(&queue.0.to_be_bytes(), name)
}

/// The name in a `Partition` or `Group` key.
pub fn name_in_queue(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.get(4..)?).ok()
}

/// `PartitionById`: partition id.
pub fn partition_by_id(partition: PartitionId) -> [u8; 8] {
    partition.0.to_be_bytes()
}

/// `Run`: partition id, first offset.
pub fn run(partition: PartitionId, first: Offset) -> [u8; 16] {
    Packed::new().u64(partition.0).u64(first.0).end()
}

/// Parts of a `Run` key.
pub fn run_parts(key: &[u8]) -> Option<(PartitionId, Offset)> {
    Some((PartitionId(u64_at(key, 0)?), Offset(u64_at(key, 8)?)))
}

/// `Tail`: queue id, last stamp, partition id.
pub fn tail(queue: QueueId, last: Stamp, partition: PartitionId) -> [u8; 20] {
    Packed::new().u32(queue.0).u64(last.0).u64(partition.0).end()
}

/// The first `Tail` key that can follow a mark.
pub fn tail_after(queue: QueueId, mark: TailMark) -> [u8; 20] {
    let TailMark { stamp, partition } = mark;
    match partition.0.checked_add(1) {
        Some(next) => tail(queue, stamp, PartitionId(next)),
        None => tail(queue, Stamp(stamp.0.saturating_add(1)), PartitionId(0)),
    }
}

/// Parts of a `Tail` key.
pub fn tail_parts(key: &[u8]) -> Option<(QueueId, Stamp, PartitionId)> {
    Some((QueueId(u32_at(key, 0)?), Stamp(u64_at(key, 4)?), PartitionId(u64_at(key, 12)?)))
}

/// `Segment`: queue id, segment number.
pub fn segment(queue: QueueId, number: u32) -> [u8; 8] {
    Packed::new().u32(queue.0).u32(number).end()
}

/// Parts of a `Segment` key.
pub fn segment_parts(key: &[u8]) -> Option<(QueueId, u32)> {
    Some((QueueId(u32_at(key, 0)?), u32_at(key, 4)?))
}

/// `TransactionId`: partition id, hash of the transaction id.
pub fn transaction_id(partition: PartitionId, hash: u64) -> [u8; 16] {
    Packed::new().u64(partition.0).u64(hash).end()
}

/// Parts of a `TransactionId` key.
pub fn transaction_id_parts(key: &[u8]) -> Option<(PartitionId, u64)> {
    Some((PartitionId(u64_at(key, 0)?), u64_at(key, 8)?))
}

/// `TransactionIdExpiry`: expiry stamp, partition id, number of the chunk.
pub fn transaction_id_expiry(expires: Stamp, partition: PartitionId, chunk: u32) -> [u8; 20] {
    Packed::new().u64(expires.0).u64(partition.0).u32(chunk).end()
}

/// Parts of a `TransactionIdExpiry` key.
pub fn transaction_id_expiry_parts(key: &[u8]) -> Option<(Stamp, PartitionId, u32)> {
    Some((Stamp(u64_at(key, 0)?), PartitionId(u64_at(key, 8)?), u32_at(key, 16)?))
}

/// `Group`: queue id, group name.
pub fn group(queue: QueueId, name: &str) -> Vec<u8> {
    named(&queue.0.to_be_bytes(), name)
}

/// `Cursor`: group id, partition id.
pub fn cursor(group: GroupId, partition: PartitionId) -> [u8; 12] {
    Packed::new().u32(group.0).u64(partition.0).end()
}

/// Parts of a `Cursor` key.
pub fn cursor_parts(key: &[u8]) -> Option<(GroupId, PartitionId)> {
    Some((GroupId(u32_at(key, 0)?), PartitionId(u64_at(key, 4)?)))
}

/// `Ready`: group id, ready stamp, partition id.
pub fn ready(group: GroupId, at: Stamp, partition: PartitionId) -> [u8; 20] {
    Packed::new().u32(group.0).u64(at.0).u64(partition.0).end()
}

/// Parts of a `Ready` key.
pub fn ready_parts(key: &[u8]) -> Option<(GroupId, Stamp, PartitionId)> {
    Some((GroupId(u32_at(key, 0)?), Stamp(u64_at(key, 4)?), PartitionId(u64_at(key, 12)?)))
}

/// `Lease`: lease id, group id, partition id.
pub fn lease(lease: LeaseId, group: GroupId, partition: PartitionId) -> [u8; 28] {
    Packed::new().put(&lease.0).u32(group.0).u64(partition.0).end()
}

/// Parts of a `Lease` key.
pub fn lease_parts(key: &[u8]) -> Option<(LeaseId, GroupId, PartitionId)> {
    let lease = LeaseId(key.get(..16)?.try_into().ok()?);
    Some((lease, GroupId(u32_at(key, 16)?), PartitionId(u64_at(key, 20)?)))
}

/// `LeaseExpiry`: expiry stamp, group id, partition id.
pub fn lease_expiry(expires: Stamp, group: GroupId, partition: PartitionId) -> [u8; 20] {
    Packed::new().u64(expires.0).u32(group.0).u64(partition.0).end()
}

/// Parts of a `LeaseExpiry` key.
pub fn lease_expiry_parts(key: &[u8]) -> Option<(Stamp, GroupId, PartitionId)> {
    Some((Stamp(u64_at(key, 0)?), GroupId(u32_at(key, 8)?), PartitionId(u64_at(key, 12)?)))
}

/// `DeadLetter`: queue id, failed stamp, number within the command that filed it.
pub fn dead_letter(queue: QueueId, failed: Stamp, number: u32) -> [u8; 16] {
    Packed::new().u32(queue.0).u64(failed.0).u32(number).end()
}

/// Parts of a `DeadLetter` key.
pub fn dead_letter_parts(key: &[u8]) -> Option<(QueueId, Stamp, u32)> {
    Some((QueueId(u32_at(key, 0)?), Stamp(u64_at(key, 4)?), u32_at(key, 12)?))
}

/// `DeadLetterById`: the dead letter's id.
pub fn dead_letter_by_id(id: [u8; 16]) -> [u8; 16] {
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_and_sort_as_numbers_do() {
        let (q, p, g) = (QueueId(258), PartitionId(3), GroupId(4));
        let (s, l) = (Stamp(1 << 40), LeaseId([9; 16]));
        assert_eq!(tail_parts(&tail(q, s, p)), Some((q, s, p)));
        let mark = TailMark { stamp: s, partition: p };
        assert!(tail(q, s, p) < tail_after(q, mark));
        assert_eq!(tail_after(q, mark), tail(q, s, PartitionId(4)));
        assert_eq!(tail_after(q, TailMark::before(s)), tail(q, s, PartitionId(0)));
        assert_eq!(run_parts(&run(p, Offset(8))), Some((p, Offset(8))));
        assert_eq!(segment_parts(&segment(q, 7)), Some((q, 7)));
        assert_eq!(transaction_id_parts(&transaction_id(p, 6)), Some((p, 6)));
        assert_eq!(transaction_id_expiry_parts(&transaction_id_expiry(s, p, 6)), Some((s, p, 6)));
        assert_eq!(cursor_parts(&cursor(g, p)), Some((g, p)));
        assert_eq!(ready_parts(&ready(g, s, p)), Some((g, s, p)));
        assert_eq!(lease_parts(&lease(l, g, p)), Some((l, g, p)));
        assert_eq!(lease_expiry_parts(&lease_expiry(s, g, p)), Some((s, g, p)));
        assert_eq!(dead_letter_parts(&dead_letter(q, s, 5)), Some((q, s, 5)));
        assert_eq!(name_in_queue(&partition(q, "ä/b")), Some("ä/b"));
        assert_eq!(queue_of(&group(q, "g")), Some(q));
        assert_eq!(partition(q, "x"), b"\0\0\x01\x02x");
        assert!(run(p, Offset(255)) < run(p, Offset(256)));
    }

    #[test]
    fn the_bytes_of_keys_are_fixed() {
        let hex = |key: &[u8]| key.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let (q, p, g, s) = (QueueId(1), PartitionId(2), GroupId(3), Stamp(4));
        let tenant = "00000000000000000000000000000001";
        assert_eq!(hex(&queue_name(TenantId::DEFAULT, "q")), format!("{tenant}71"));
        assert_eq!(hex(&queue(q)), "00000001");
        assert_eq!(hex(&partition(q, "p")), "0000000170");
        assert_eq!(hex(&partition_by_id(p)), "0000000000000002");
        assert_eq!(hex(&run(p, Offset(5))), "00000000000000020000000000000005");
        assert_eq!(hex(&tail(q, s, p)), "0000000100000000000000040000000000000002");
        assert_eq!(hex(&segment(q, 5)), "0000000100000005");
        assert_eq!(hex(&transaction_id(p, 6)), "00000000000000020000000000000006");
        let expiry = "0000000000000004000000000000000200000007";
        assert_eq!(hex(&transaction_id_expiry(s, p, 7)), expiry);
        assert_eq!(hex(&group(q, "g")), "0000000167");
        assert_eq!(hex(&cursor(g, p)), "000000030000000000000002");
        assert_eq!(hex(&ready(g, s, p)), "0000000300000000000000040000000000000002");
        let held = hex(&lease(LeaseId([9; 16]), g, p));
        assert_eq!(held, format!("{}000000030000000000000002", "09".repeat(16)));
        assert_eq!(hex(&lease_expiry(s, g, p)), "0000000000000004000000030000000000000002");
        assert_eq!(hex(&dead_letter(q, s, 8)), "00000001000000000000000400000008");
        assert_eq!(dead_letter_by_id([2; 16]), [2; 16]);
        assert_eq!((META_LAST_STAMP, META_NEXT_IDS), (&b"last_stamp"[..], &b"next_ids"[..]));
    }

    #[test]
    fn the_end_of_a_prefix_is_the_first_key_after_it() {
        assert_eq!(after_prefix(b"ab"), b"ac");
        assert_eq!(after_prefix(b"a\xff"), b"b");
        assert!(after_prefix(b"\xff\xff") > vec![0xff; 600]);
    }
}
