//! Rows of timers: what each will become, its payload, and the order in which they fall due.
//!
//! ```text
//! Timer         key  queue id u32 BE | the timer's key              value [`TimerRow`]
//! TimerPayload  key  the row's key in Timer                         value below
//! TimerDue      key  try u64 BE | number u64 BE | key in Timer      value empty
//! Meta          key  "timers"                                       value [`TimersRow`]
//!
//! payload: 0 format u8 = 1 | 1 the message's payload
//! ```
//!
//! Payloads lie apart so that listing and counting timers does not read them.

use super::{BadRow, Row};
use crate::table::Table;
use crate::{QueueId, Stamp};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Key in `Meta` of [`TimersRow`].
pub const META_KEY: &[u8] = b"timers";

const FORMAT: u8 = 1;

/// A timer. Queue and key are its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerRow {
    /// Its own number: no two timers of the broker have the same.
    pub number: u64,
    /// When its message is to be delivered, and part of its id.
    pub due: Stamp,
    /// When it is tried: `due`, or later after failures.
    pub tries: Stamp,
    /// Partition that the message goes to.
    pub partition: String,
    /// Transaction id of the message; `None` when its id serves as such.
    pub transaction_id: Option<String>,
    /// Producer of the message.
    pub producer: Option<String>,
    /// Whether the payload is an encryption envelope.
    pub encrypted: bool,
    /// Bytes of the payload.
    pub payload_len: u32,
    /// Failed tries.
    pub attempts: u32,
    /// Why the last one failed.
    pub error: Option<String>,
    /// Stamp of the first setting under this key.
    pub created: Stamp,
    /// Stamp of the last setting.
    pub updated: Stamp,
}

/// All timers of the broker together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimersRow {
    /// The number of the next timer.
    pub next: u64,
    /// Timers that are set.
    pub pending: u64,
}

impl Row for TimerRow {
    const TABLE: Table = Table::Timer;
}

impl Row for TimersRow {
    const TABLE: Table = Table::Meta;
}

/// Key in `Timer` and `TimerPayload`.
pub fn key(queue: QueueId, timer: &str) -> Vec<u8> {
    [&queue.0.to_be_bytes()[..], timer.as_bytes()].concat()
}

/// Reads a key of `Timer` back: queue, the timer's key.
pub fn parse_key(bytes: &[u8]) -> Result<(QueueId, &str), BadRow> {
    let bad = BadRow { table: "timer", what: "a key of queue id and text" };
    let (queue, rest) = bytes.split_first_chunk::<4>().ok_or(bad.clone())?;
    let timer = std::str::from_utf8(rest).map_err(|_| bad)?;
    Ok((QueueId(u32::from_be_bytes(*queue)), timer))
}

/// Key in `TimerDue`.
pub fn due_key(tries: Stamp, number: u64, row_key: &[u8]) -> Vec<u8> {
    [&tries.0.to_be_bytes()[..], &number.to_be_bytes(), row_key].concat()
}

/// Reads a key of `TimerDue` back: when it is tried, the timer's number, the row's key in `Timer`.
pub fn parse_due_key(bytes: &[u8]) -> Result<(Stamp, u64, &[u8]), BadRow> {
    let bad = BadRow { table: "timer_due", what: "a key of 16 bytes and a timer's key" };
    let (tries, rest) = bytes.split_first_chunk::<8>().ok_or(bad.clone())?;
    let (number, row_key) = rest.split_first_chunk::<8>().ok_or(bad)?;
    Ok((Stamp(u64::from_be_bytes(*tries)), u64::from_be_bytes(*number), row_key))
}

/// Value in `TimerPayload`.
pub fn encode_payload(payload: &[u8]) -> Vec<u8> {
    [&[FORMAT], payload].concat()
}

/// Reads a value of `TimerPayload`; the payload shares its bytes.
pub fn decode_payload(bytes: &Bytes) -> Result<Bytes, BadRow> {
    match bytes.first() {
        Some(&FORMAT) => Ok(bytes.slice(1..)),
        _ => Err(BadRow { table: "timer_payload", what: "format 1" }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_timer_rows_are_fixed() {
        let row = TimerRow {
            number: 300,
            due: Stamp(5),
            tries: Stamp(6),
            partition: "p".into(),
            transaction_id: Some("t".into()),
            producer: None,
            encrypted: true,
            payload_len: 2,
            attempts: 1,
            error: Some("e".into()),
            created: Stamp(7),
            updated: Stamp(8),
        };
        assert_golden(&row, "01ac0205060170010174000102010101650708");
        assert_golden(&TimersRow { next: 300, pending: 2 }, "01ac0202");
        let payload = Bytes::from(encode_payload(b"{}"));
        assert_eq!(&payload[..], b"\x01{}");
        assert_eq!(decode_payload(&payload).unwrap(), "{}");
        assert!(decode_payload(&Bytes::from_static(b"\x02{}")).is_err());
        assert!(decode_payload(&Bytes::new()).is_err());
    }

    #[test]
    fn keys_read_back_and_sort_as_timers_fall_due() {
        let (queue, timer) = (QueueId(258), "a/\u{e9}");
        let row_key = key(queue, timer);
        assert_eq!(row_key, b"\0\0\x01\x02a/\xc3\xa9");
        assert_eq!(parse_key(&row_key).unwrap(), (queue, timer));
        let due = due_key(Stamp(7), 9, &row_key);
        assert_eq!(due[..16], [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(parse_due_key(&due).unwrap(), (Stamp(7), 9, &row_key[..]));
        assert!(due < due_key(Stamp(7), 10, b"") && due < due_key(Stamp(8), 0, b""));
        assert!(parse_key(b"abc").is_err() && parse_due_key(&[0; 15]).is_err());
    }
}
