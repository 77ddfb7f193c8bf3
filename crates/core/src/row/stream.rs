//! Rows of streams: queries, and what they remember of each partition.
//!
//! ```text
//! StreamQuery      key  tenant [16] | name                                 value [`StreamQueryRow`]
//! StreamQueryById  key  query id u64 BE                                    value [`StreamQueryIdRow`]
//! StreamState      key  partition id u64 BE | state u64 BE | the row's key value below
//! StreamPartition  key  state u64 BE | partition id u64 BE                 value [`StreamPartitionRow`]
//! Meta             key  "streams"                                          value [`StreamsRow`]
//!
//! value: 0 format u8 = 1 | 1 u8: 1 if encrypted | 2 stamp of the write u64 | 10 JSON text, or its envelope
//! ```
//!
//! A state has a number of its own, the stamp at which it began, so that one that was wiped is out of
//! reach at once, however many rows it has. Rows of state lie by partition first: they go with it.

use super::{BadRow, Row, u64_at};
use crate::stream::{QueryId, StateText};
use crate::table::Table;
use crate::{PartitionId, Stamp, TenantId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Key in `Meta` of [`StreamsRow`].
pub const META_STREAMS: &[u8] = b"streams";

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 10;

/// A query. Tenant and name are its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamQueryRow {
    /// Its id.
    pub id: QueryId,
    /// Its state: the stamp at which that began.
    pub state: Stamp,
    /// Queue that it reads, by its last registration.
    pub source: String,
    /// Queue that it writes to, by its last registration.
    pub sink: Option<String>,
    /// What its state was made by.
    pub config_hash: String,
    /// Stamp of its last registration.
    pub registered: Stamp,
    /// When its source was first found not to exist, if it does not.
    pub orphaned: Option<Stamp>,
}

/// Where a query is. Its id is its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamQueryIdRow {
    /// Whose.
    pub tenant: TenantId,
    /// Its name.
    pub name: String,
}

/// What a state holds of a partition. Both are its key; there is none without rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPartitionRow {
    /// Rows.
    pub rows: u64,
    /// Their bytes, as [`crate::stream::STATE_BYTES_MAX`] counts them.
    pub bytes: u64,
    /// Stamp of the last change.
    pub updated: Stamp,
}

/// All queries together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamsRow {
    /// The query at which was looked last, whether its source exists.
    pub looked: QueryId,
}

impl Row for StreamQueryRow {
    const TABLE: Table = Table::StreamQuery;
}

impl Row for StreamQueryIdRow {
    const TABLE: Table = Table::StreamQueryById;
}

impl Row for StreamPartitionRow {
    const TABLE: Table = Table::StreamPartition;
}

impl Row for StreamsRow {
    const TABLE: Table = Table::Meta;
}

/// A row of `StreamState`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateValue {
    /// Stamp of the write.
    pub updated: Stamp,
    /// Whether `value` is an envelope ([`crate::envelope`]).
    pub encrypted: bool,
    /// JSON text, or its envelope.
    pub value: Bytes,
}

impl StateValue {
    /// The bytes of a row.
    pub fn encode(updated: Stamp, text: &StateText<'_>) -> Vec<u8> {
        let head = [FORMAT, u8::from(text.encrypted)];
        [&head[..], &updated.0.to_le_bytes(), text.bytes].concat()
    }

    /// Reads a row; its value shares the bytes.
    pub fn decode(bytes: &Bytes) -> Result<StateValue, BadRow> {
        let bad = |what| BadRow { table: "stream_state", what };
        let encrypted = match bytes.get(..2) {
            Some(&[FORMAT, encrypted @ 0..=1]) => encrypted == 1,
            _ => return Err(bad("format 1, and whether it is encrypted")),
        };
        let updated = Stamp(u64_at(bytes, 2).ok_or(bad("10 bytes before the value"))?);
        Ok(StateValue { updated, encrypted, value: bytes.slice(HEADER_BYTES..) })
    }
}

/// `StreamQuery`: tenant, name.
pub fn query(tenant: TenantId, name: &str) -> Vec<u8> {
    [&tenant.0[..], name.as_bytes()].concat()
}

/// `StreamQueryById`: query id.
pub fn query_by_id(query: QueryId) -> [u8; 8] {
    query.0.0.to_be_bytes()
}

/// The query of a `StreamQueryById` key.
pub fn query_of(key: &[u8]) -> Option<QueryId> {
    Some(QueryId(Stamp(u64::from_be_bytes(key.try_into().ok()?))))
}

/// `StreamState`: partition, state, the row's key. Without a key: what the rows of a partition begin with.
pub fn state(partition: PartitionId, state: Stamp, key: &str) -> Vec<u8> {
    [&partition.0.to_be_bytes()[..], &state.0.to_be_bytes(), key.as_bytes()].concat()
}

/// The state and the row's key of a `StreamState` key.
pub fn state_parts(key: &[u8]) -> Option<(Stamp, &str)> {
    let (_, rest) = key.split_first_chunk::<8>()?;
    let (state, key) = rest.split_first_chunk::<8>()?;
    Some((Stamp(u64::from_be_bytes(*state)), std::str::from_utf8(key).ok()?))
}

/// `StreamPartition`: state, partition.
pub fn partition(state: Stamp, partition: PartitionId) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&state.0.to_be_bytes());
    key[8..].copy_from_slice(&partition.0.to_be_bytes());
    key
}

/// The state and the partition of a `StreamPartition` key.
pub fn partition_parts(key: &[u8]) -> Option<(Stamp, PartitionId)> {
    let (state, rest) = key.split_first_chunk::<8>()?;
    let partition = rest.try_into().ok()?;
    Some((Stamp(u64::from_be_bytes(*state)), PartitionId(u64::from_be_bytes(partition))))
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_stream_rows_are_fixed() {
        let row = StreamQueryRow {
            id: QueryId(Stamp(300)),
            state: Stamp(301),
            source: "q".into(),
            sink: Some("s".into()),
            config_hash: "h".into(),
            registered: Stamp(7),
            orphaned: None,
        };
        assert_golden(&row, "01ac02ad02017101017301680700");
        let row = StreamQueryIdRow { tenant: TenantId::DEFAULT, name: "n".into() };
        assert_golden(&row, "0100000000000000000000000000000001016e");
        let row = StreamPartitionRow { rows: 2, bytes: 300, updated: Stamp(7) };
        assert_golden(&row, "0102ac0207");
        assert_golden(&StreamsRow { looked: QueryId(Stamp(300)) }, "01ac02");
        for encrypted in [false, true] {
            let text = StateText { encrypted, bytes: b"{}" };
            let value = Bytes::from(StateValue::encode(Stamp(258), &text));
            assert_eq!(&value[..], [1, encrypted.into(), 2, 1, 0, 0, 0, 0, 0, 0, b'{', b'}']);
            let read = StateValue { updated: Stamp(258), encrypted, value: value.slice(10..) };
            assert_eq!(StateValue::decode(&value).unwrap(), read);
        }
        for bad in [&[][..], &[2; 12], &[1, 2, 2, 1, 0, 0, 0, 0, 0, 0], &[1, 0, 2, 1]] {
            assert!(StateValue::decode(&Bytes::copy_from_slice(bad)).is_err());
        }
    }

    #[test]
    fn the_bytes_of_stream_keys_are_fixed_and_read_back() {
        let hex = |key: &[u8]| key.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(&query(TenantId::DEFAULT, "n")), "000000000000000000000000000000016e");
        let id = QueryId(Stamp(258));
        assert_eq!(hex(&query_by_id(id)), "0000000000000102");
        let row = state(PartitionId(2), Stamp(3), "ä");
        assert_eq!(hex(&row), "00000000000000020000000000000003c3a4");
        let of_partition = partition(Stamp(3), PartitionId(2));
        assert_eq!(hex(&of_partition), "00000000000000030000000000000002");
        assert_eq!(query_of(&query_by_id(id)), Some(id));
        assert_eq!(state_parts(&row), Some((Stamp(3), "ä")));
        assert_eq!(partition_parts(&of_partition), Some((Stamp(3), PartitionId(2))));
        assert_eq!(
            (query_of(b"x"), state_parts(&[1; 15]), partition_parts(b"x")),
            (None, None, None)
        );
    }
}
