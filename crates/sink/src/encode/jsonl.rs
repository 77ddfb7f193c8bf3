//! Lines of JSONL, built byte by byte.
//!
//! Owns: the five fields, their order, escaping, and how a wrapped payload is written.
//! Leaves to others: which payloads are wrapped (`wrap`), compression (`compress`).
//!
//! ```text
//! {"partition":"cust-1","offset":0,"transactionId":"…","ts":"2026-10-24T10:23:54.910988Z","payload":…}\n
//! ```

use super::compress::Compressor;
use super::object::Encoded;
use super::pieces::Pieces;
use super::record::{Record, TransactionId, id_text};
use super::{Compression, wrap};
use base64::Engine as _;
use queen_core::Stamp;
use std::io;

/// A JSONL object being encoded.
pub struct JsonlObject<P: Pieces> {
    lines: Lines,
    text: Compressor<P>,
}

impl<P: Pieces> JsonlObject<P> {
    /// Begins an object, with or without wrapping of payloads that readers cannot survive.
    pub fn new(compression: Compression, wrap: bool, pieces: P) -> io::Result<JsonlObject<P>> {
        Ok(JsonlObject { lines: Lines::new(wrap), text: Compressor::new(compression, pieces)? })
    }

    /// The records that follow are of this partition.
    pub fn partition(&mut self, name: &str) {
        self.lines.partition(name);
    }

    /// The records that follow have this stamp.
    pub fn stamp(&mut self, stamp: Stamp) {
        self.lines.stamp(stamp);
    }

    /// Appends a record.
    pub fn push(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.lines.push(self.text.text(), record);
        self.text.drain()
    }

    /// Ends the object, hands over its last piece and gives back what took the pieces.
    pub fn finish(self) -> io::Result<(Encoded, P)> {
        let (finished, pieces) = self.text.finish()?;
        let Lines { wrapped, line_bytes_max, .. } = self.lines;
        Ok((Encoded { finished, wrapped, record_bytes_max: line_bytes_max }, pieces))
    }
}

/// Writes lines; holds what is the same for all records of a run.
#[derive(Debug)]
struct Lines {
    wrap: bool,
    head: Vec<u8>,
    ts: Vec<u8>,
    /// Records whose payload went as base64.
    wrapped: u64,
    /// Longest line, without its end, bytes.
    line_bytes_max: u64,
}

impl Lines {
    /// With or without wrapping of payloads that readers cannot survive.
    fn new(wrap: bool) -> Lines {
        Lines { wrap, head: Vec::new(), ts: Vec::new(), wrapped: 0, line_bytes_max: 0 }
    }

    /// The lines that follow are of this partition.
    fn partition(&mut self, name: &str) {
        self.head.clear();
        self.head.extend_from_slice(b"{\"partition\":");
        string(&mut self.head, name);
        self.head.extend_from_slice(b",\"offset\":");
    }

    /// The lines that follow have this stamp.
    fn stamp(&mut self, stamp: Stamp) {
        self.ts.clear();
        self.ts.extend_from_slice(b",\"ts\":\"");
        self.ts.extend_from_slice(stamp.to_iso().as_bytes());
        self.ts.extend_from_slice(b"\",\"payload\":");
    }

    /// Appends the line of a record.
    fn push(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        let start = out.len();
        out.reserve(self.head.len() + self.ts.len() + record.payload.len() + 96);
        out.extend_from_slice(&self.head);
        number(out, record.offset);
        out.extend_from_slice(b",\"transactionId\":");
        match record.transaction_id {
            TransactionId::Own(id) => string(out, id),
            TransactionId::Minted(id) => {
                out.push(b'"');
                out.extend_from_slice(&id_text(&id));
                out.push(b'"');
            }
        }
        out.extend_from_slice(&self.ts);
        self.payload(out, record.payload);
        out.extend_from_slice(b"}\n");
        self.line_bytes_max = self.line_bytes_max.max((out.len() - start - 1) as u64);
    }

    fn payload(&mut self, out: &mut Vec<u8>, payload: &[u8]) {
        if payload.is_empty() {
            out.extend_from_slice(b"null");
            return;
        }
        let traits = wrap::scan(payload);
        if self.wrap && traits.unsafe_as_text {
            self.wrapped += 1;
            out.extend_from_slice(b"null,\"payloadBase64\":\"");
            let start = out.len();
            out.resize(start + payload.len().div_ceil(3) * 4, 0);
            let engine = base64::engine::general_purpose::STANDARD;
            let written = engine.encode_slice(payload, &mut out[start..]);
            out.truncate(start + written.unwrap_or_default());
            out.push(b'"');
            return;
        }
        let start = out.len();
        out.extend_from_slice(payload);
        if traits.line_breaks {
            // They cannot stand inside a JSON string, so between tokens a space means the same.
            for byte in &mut out[start..] {
                if matches!(*byte, b'\n' | b'\r') {
                    *byte = b' ';
                }
            }
        }
    }
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// A JSON string: `"` `\` and control characters escaped, everything else as it is.
fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    if text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\') {
        out.extend_from_slice(text.as_bytes());
    } else {
        for byte in text.bytes() {
            match byte {
                b'"' => out.extend_from_slice(b"\\\""),
                b'\\' => out.extend_from_slice(b"\\\\"),
                0x08 => out.extend_from_slice(b"\\b"),
                0x0c => out.extend_from_slice(b"\\f"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                byte => out.push(byte),
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(partition: &str, record: &Record<'_>) -> String {
        let mut lines = Lines::new(true);
        lines.partition(partition);
        lines.stamp(Stamp(1_792_837_434_910_988));
        let mut out = Vec::new();
        lines.push(&mut out, record);
        assert_eq!(lines.line_bytes_max, out.len() as u64 - 1);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_is_that_of_the_seed() {
        let id = [
            0x01, 0xa1, 0x6d, 0x70, 0x3e, 0x1e, 0x70, 0x01, 0x9f, 0xb4, 0x29, 0x91, 0x67, 0x82,
            0x9f, 0x1d,
        ];
        let payload = br#"{"order":1,"status":"new","total":42.00}"#;
        let record = Record { offset: 0, transaction_id: TransactionId::Minted(id), payload };
        assert_eq!(
            line("cust-1", &record),
            "{\"partition\":\"cust-1\",\"offset\":0,\"transactionId\":\"01a16d70-3e1e-7001-9fb4-299167829f1d\",\
             \"ts\":\"2026-10-24T10:23:54.910988Z\",\"payload\":{\"order\":1,\"status\":\"new\",\"total\":42.00}}\n"
        );
    }

    #[test]
    fn a_payload_keeps_its_bytes_on_one_line() {
        let record =
            |payload| Record { offset: 1, transaction_id: TransactionId::Own("t"), payload };
        let end = |payload| {
            let line = line("p", &record(payload));
            line.split_once("\"payload\":").unwrap().1.to_owned()
        };
        assert_eq!(end(b"{\r\n \"a\": [1,\n2] }"), "{   \"a\": [1, 2] }}\n");
        assert_eq!(end(b"1e400"), "1e400}\n");
        assert_eq!(end(b""), "null}\n");
        assert_eq!(end(br#""\ud800""#), "null,\"payloadBase64\":\"Ilx1ZDgwMCI=\"}\n");
    }

    #[test]
    fn without_wrapping_everything_is_spliced() {
        let mut lines = Lines::new(false);
        let mut out = Vec::new();
        let payload = br#""\ud800""#;
        lines
            .push(&mut out, &Record { offset: 1, transaction_id: TransactionId::Own(""), payload });
        assert!(out.windows(payload.len()).any(|w| w == payload));
        assert_eq!(lines.wrapped, 0);
    }

    proptest! {
        #[test]
        fn a_line_is_json_and_reads_back(partition in ".{0,20}", id in ".{0,20}", offset in any::<u64>(), text in ".{0,50}") {
            let payload = serde_json::to_vec(&text).unwrap();
            let record = Record { offset, transaction_id: TransactionId::Own(&id), payload: &payload };
            let line = line(&partition, &record);
            prop_assert_eq!(line.matches('\n').count(), 1);
            let back: serde_json::Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(back["partition"].as_str(), Some(&*partition));
            prop_assert_eq!(back["transactionId"].as_str(), Some(&*id));
            prop_assert_eq!(back["offset"].as_u64(), Some(offset));
            prop_assert_eq!(back["payload"].as_str(), Some(&*text));
        }
    }
}
