//! Rows of pins: the window of a queue's log that a sink has promised to write, and has not committed.
//!
//! ```text
//! Pin  key  queue id u32 BE | sink name
//! value: 0 format u8 = 1 | 1 window number u64 | 9 first stamp u64 | 17 stamp after the last u64
//! ```

use super::{BadRow, u64_at};
use crate::{QueueId, Stamp};

/// Format byte of a value.
pub const FORMAT: u8 = 1;
const BYTES: usize = 25;

/// A row of `Pin`: nothing stamped in `from..to` may be removed from the queue's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinValue {
    /// Number of the window, from 1.
    pub window: u64,
    /// First stamp of the window.
    pub from: Stamp,
    /// The stamp after its last.
    pub to: Stamp,
}

impl PinValue {
    /// The row's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.push(FORMAT);
        out.extend_from_slice(&self.window.to_le_bytes());
        out.extend_from_slice(&self.from.0.to_le_bytes());
        out.extend_from_slice(&self.to.0.to_le_bytes());
        out
    }

    /// Reads a row.
    pub fn decode(bytes: &[u8]) -> Result<PinValue, BadRow> {
        let bad = BadRow { table: "pin", what: "format 1 and 25 bytes" };
        if bytes.len() != BYTES || bytes.first() != Some(&FORMAT) {
            return Err(bad);
        }
        let number = |at| u64_at(bytes, at).ok_or(bad.clone());
        Ok(PinValue { window: number(1)?, from: Stamp(number(9)?), to: Stamp(number(17)?) })
    }
}

/// Key in `Pin`.
pub fn key(queue: QueueId, sink: &str) -> Vec<u8> {
    let mut out = queue.0.to_be_bytes().to_vec();
    out.extend_from_slice(sink.as_bytes());
    out
}

/// The range of keys of a queue's pins: first, and the one after the last.
pub fn range(queue: QueueId) -> (Vec<u8>, Vec<u8>) {
    let from = queue.0.to_be_bytes().to_vec();
    // Sink names are ASCII, so no key of this queue begins with 0xff after the number.
    let mut to = from.clone();
    to.push(0xff);
    (from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_pin_are_fixed() {
        let pin = PinValue { window: 3, from: Stamp(4), to: Stamp(5) };
        let bytes = pin.encode();
        assert_eq!(bytes, b"\x01\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0");
        assert_eq!(PinValue::decode(&bytes).unwrap(), pin);
        assert!(PinValue::decode(&bytes[..24]).is_err());
        let (from, to) = range(QueueId(7));
        let one = key(QueueId(7), "default");
        assert!(from <= one && one < to && key(QueueId(8), "") > to);
    }
}
