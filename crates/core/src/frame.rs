//! Message frames: how one message lies in a push command, in a run and in a queue log.
//!
//! Owns: the bytes of a frame. Leaves to others: runs of frames (`run`), ids (a frame holds no
//! message id, offset or stamp: they follow from its run), what is in an envelope (`envelope`).
//!
//! ```text
//! u8      flags: 1 transaction id, 2 trace id, 4 producer, 8 encrypted payload, 16 message id
//! varint  payload length (LEB128, at most 5 bytes)
//! [16]    message id, with flag 16: promised before the append, instead of the minted one
//! [varint + bytes]  transaction id, with flag 1; without it the message id's text is the transaction id
//! [16]    trace id, with flag 2
//! [varint + bytes]  producer, with flag 4
//! bytes   payload: the producer's own JSON text, or its envelope with flag 8
//! ```

use crate::envelope;

/// Length of a minted message id's text, which stands for a transaction id that was not given.
pub const MINTED_TEXT_BYTES: usize = 36;

const TRANSACTION: u8 = 1;
const TRACE: u8 = 2;
const PRODUCER: u8 = 4;
const ENCRYPTED: u8 = 8;
const MESSAGE: u8 = 16;
const KNOWN: u8 = TRANSACTION | TRACE | PRODUCER | ENCRYPTED | MESSAGE;

/// One message, borrowed from the bytes it was decoded from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The producer's transaction id; `None` when the broker's message id serves as such.
    pub transaction_id: Option<&'a str>,
    /// Trace id, UUID bytes.
    pub trace_id: Option<[u8; 16]>,
    /// Subject of the producer's token.
    pub producer: Option<&'a str>,
    /// Message id promised before the append; `None` for the minted one.
    pub message_id: Option<[u8; 16]>,
    /// Whether `payload` is an [`crate::envelope::Envelope`].
    pub encrypted: bool,
    /// The payload's bytes.
    pub payload: &'a [u8],
}

/// The bytes do not hold a frame: at which byte of the input, and why.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("bad message frame at byte {at}: {what}")]
pub struct BadFrame {
    /// Position of the fault in the decoded bytes.
    pub at: usize,
    /// What was expected.
    pub what: &'static str,
}

impl Frame<'_> {
    /// Appends the frame's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flags = (u8::from(self.transaction_id.is_some()) * TRANSACTION)
            | (u8::from(self.trace_id.is_some()) * TRACE)
            | (u8::from(self.producer.is_some()) * PRODUCER)
            | (u8::from(self.encrypted) * ENCRYPTED)
            | (u8::from(self.message_id.is_some()) * MESSAGE);
        out.push(flags);
        put_varint(out, self.payload.len());
        if let Some(id) = self.message_id {
            out.extend_from_slice(&id);
        }
        if let Some(id) = self.transaction_id {
            put_varint(out, id.len());
            out.extend_from_slice(id.as_bytes());
        }
        if let Some(id) = self.trace_id {
            out.extend_from_slice(&id);
        }
        if let Some(producer) = self.producer {
            put_varint(out, producer.len());
            out.extend_from_slice(producer.as_bytes());
        }
        out.extend_from_slice(self.payload);
    }

    /// What it counts in [`crate::run::RunHeader::text_bytes`]: the same, encrypted or not.
    pub fn text_bytes(&self) -> usize {
        let id = self.transaction_id.map_or(MINTED_TEXT_BYTES, str::len);
        let payload = self.payload.len();
        id + if self.encrypted { envelope::payload_len(payload) } else { payload }
    }
}

/// Reads the frames of a run one after the other; ends after the first error.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Frames<'a> {
    /// Frames that fill `bytes` exactly.
    pub fn new(bytes: &'a [u8]) -> Frames<'a> {
        Frames { bytes, at: 0 }
    }

    /// Position of the next frame in the bytes.
    pub fn position(&self) -> usize {
        self.at
    }

    fn bad(&self, what: &'static str) -> BadFrame {
        BadFrame { at: self.at, what }
    }

    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], BadFrame> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.bad(what))?;
        let part = &self.bytes[self.at..end];
        self.at = end;
        Ok(part)
    }

    fn varint(&mut self) -> Result<usize, BadFrame> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = self.take(1, "a length")?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return usize::try_from(value).map_err(|_| self.bad("a length that fits"));
            }
        }
        Err(self.bad("a length of at most 5 bytes"))
    }

    fn text(&mut self) -> Result<&'a str, BadFrame> {
        let len = self.varint()?;
        let bytes = self.take(len, "a text as long as it says")?;
        std::str::from_utf8(bytes).map_err(|_| self.bad("UTF-8"))
    }

    fn id(&mut self) -> Result<[u8; 16], BadFrame> {
        let mut id = [0; 16];
        id.copy_from_slice(self.take(16, "an id of 16 bytes")?);
        Ok(id)
    }

    fn frame(&mut self) -> Result<Frame<'a>, BadFrame> {
        let flags = self.take(1, "flags")?[0];
        if flags & !KNOWN != 0 {
            return Err(self.bad("known flags"));
        }
        let payload_len = self.varint()?;
        let message_id = if flags & MESSAGE != 0 { Some(self.id()?) } else { None };
        let transaction_id = if flags & TRANSACTION != 0 { Some(self.text()?) } else { None };
        let trace_id = if flags & TRACE != 0 { Some(self.id()?) } else { None };
        let producer = if flags & PRODUCER != 0 { Some(self.text()?) } else { None };
        let payload = self.take(payload_len, "a payload as long as it says")?;
        let encrypted = flags & ENCRYPTED != 0;
        Ok(Frame { transaction_id, trace_id, producer, message_id, encrypted, payload })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, BadFrame>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let frame = self.frame();
        if frame.is_err() {
            self.at = self.bytes.len();
        }
        Some(frame)
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_of_a_frame_are_fixed() {
        let mut out = Vec::new();
        Frame { payload: b"{\"a\":1}", ..Frame::default() }.encode(&mut out);
        assert_eq!(out, b"\x00\x07{\"a\":1}");
        out.clear();
        let frame = Frame {
            transaction_id: Some("t1"),
            trace_id: Some([7; 16]),
            producer: Some("p"),
            message_id: Some([9; 16]),
            encrypted: true,
            payload: b"x",
        };
        frame.encode(&mut out);
        let mut want = vec![31, 1];
        want.extend([9; 16]);
        want.extend(b"\x02t1");
        want.extend([7; 16]);
        want.extend(b"\x01px");
        assert_eq!(out, want);
    }

    proptest! {
        #[test]
        fn frames_read_back_as_written(
            items in proptest::collection::vec((
                proptest::option::of(".{0,40}"), proptest::option::of(any::<[u8; 16]>()),
                proptest::option::of(".{0,9}"), any::<bool>(), proptest::collection::vec(any::<u8>(), 0..300),
            ), 0..20),
        ) {
            let frames: Vec<Frame<'_>> = items.iter().map(|(t, trace, p, encrypted, payload)| Frame {
                transaction_id: t.as_deref(), trace_id: *trace, producer: p.as_deref(),
                message_id: *trace, encrypted: *encrypted, payload,
            }).collect();
            let mut bytes = Vec::new();
            frames.iter().for_each(|f| f.encode(&mut bytes));
            let back: Result<Vec<_>, _> = Frames::new(&bytes).collect();
            prop_assert_eq!(back.unwrap(), frames);
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Frames::new(&bytes).collect::<Result<Vec<_>, _>>();
        }
    }
}
