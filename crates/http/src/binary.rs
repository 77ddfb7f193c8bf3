//! The binary bodies of pushes and transactions, type `application/x-queen-push`.
//!
//! Owns: their layout. Leaves to others: what is done with the messages (`push`, `transaction`).
//!
//! Little-endian. Every count and length is held against the bytes that are there, and what a body may
//! unfold to against [`UNPACKED_BYTES_MAX`], before memory is taken for it.
//!
//! ```text
//! push         "QPB1" | u8 flags | [u32 raw length, with flag 1] | groups, one zstd frame with flag 1
//! transaction  "QTB1" | u8 flags | u32 length + JSON head | groups, framed
//! groups       u32 count | per group: u16 length + queue | u16 length + partition | u32 messages | messages
//! message      [u16 length + transaction id, with flag 4] | u32 length + payload
//! framed       (flag 8) u32 length + one zstd frame of: u32 body length | u8 zero | [16] message id
//!              | u16 length + transaction id | payload
//! ```
//!
//! The message ids of framed groups are not kept: the broker's say where the message lies.

use crate::answer::Refusal;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use queen_core::limits::ENTRY_BYTES_MAX;
use serde_json::value::RawValue;
use std::borrow::Cow;
use zstd::zstd_safe::get_frame_content_size;

/// Bytes that a body may unfold to.
const UNPACKED_BYTES_MAX: usize = ENTRY_BYTES_MAX;
/// Least bytes of a message in a body.
const MESSAGE_BYTES_MIN: usize = 4;

const ZSTD: u8 = 1;
const COUNTS: u8 = 2;
const IDS: u8 = 4;
const FRAMED: u8 = 8;

/// Whether a request says that its body is binary.
pub(crate) fn is_binary(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/x-queen-push")
}

/// Takes memory for so many unpacked bytes, or refuses.
pub(crate) type Room<'r> = &'r mut dyn FnMut(usize) -> Result<(), Refusal>;

/// A binary body.
#[derive(Debug)]
pub(crate) struct Binary<'b> {
    /// The JSON beside the messages; empty in a push.
    pub(crate) head: &'b [u8],
    /// Only counts are wanted as the answer.
    pub(crate) counts: bool,
    flags: u8,
    groups: Cow<'b, [u8]>,
}

/// Messages of one partition.
pub(crate) struct Group<'b> {
    pub(crate) queue: &'b str,
    pub(crate) partition: &'b str,
    messages: usize,
    flags: u8,
    bytes: Cow<'b, [u8]>,
}

/// One message.
pub(crate) struct Message<'g> {
    /// The producer's; `None` when the broker is to mint it.
    pub(crate) transaction_id: Option<&'g str>,
    pub(crate) payload: &'g RawValue,
}

fn bad(what: impl std::fmt::Display) -> Refusal {
    Refusal::bad_body(format!("the binary body: {what}"))
}

impl<'b> Binary<'b> {
    /// Of a push.
    pub(crate) fn push(body: &'b [u8], room: Room<'_>) -> Result<Binary<'b>, Refusal> {
        let mut bytes = Bytes(body);
        bytes.magic(b"QPB1")?;
        let flags = bytes.u8()?;
        if flags & !(ZSTD | COUNTS | IDS | FRAMED) != 0 {
            return Err(bad(format!("flags {flags:#04x} are not known")));
        }
        let groups = match flags & ZSTD {
            0 => Cow::Borrowed(bytes.0),
            _ => {
                let raw = bytes.u32()?;
                Cow::Owned(unpack(bytes.0, Some(raw), UNPACKED_BYTES_MAX, room)?)
            }
        };
        Ok(Binary { head: &[], counts: flags & COUNTS != 0, flags, groups })
    }

    /// Of a transaction.
    pub(crate) fn transaction(body: &'b [u8]) -> Result<Binary<'b>, Refusal> {
        let mut bytes = Bytes(body);
        bytes.magic(b"QTB1")?;
        let flags = bytes.u8()?;
        if flags & !COUNTS != 0 {
            return Err(bad(format!("flags {flags:#04x} are not known")));
        }
        let head = bytes.counted32("the head")?;
        let groups = Cow::Borrowed(bytes.0);
        Ok(Binary { head, counts: flags & COUNTS != 0, flags: FRAMED, groups })
    }

    /// Its groups, unpacked.
    pub(crate) fn groups(&self, room: Room<'_>) -> Result<Vec<Group<'_>>, Refusal> {
        let mut bytes = Bytes(&self.groups);
        let mut left = UNPACKED_BYTES_MAX;
        let count = bytes.u32()?;
        let mut groups = Vec::new();
        for _ in 0..count {
            let (queue, partition) = (bytes.text16("a queue")?, bytes.text16("a partition")?);
            let messages = bytes.u32()?;
            let packed = match self.flags & FRAMED {
                0 => {
                    let from = bytes.0;
                    for _ in 0..messages {
                        if self.flags & IDS != 0 {
                            bytes.text16("a transaction id")?;
                        }
                        bytes.counted32("a payload")?;
                    }
                    Cow::Borrowed(&from[..from.len() - bytes.0.len()])
                }
                _ => {
                    let unpacked = unpack(bytes.counted32("a group")?, None, left, room)?;
                    left -= unpacked.len();
                    Cow::Owned(unpacked)
                }
            };
            if messages.saturating_mul(MESSAGE_BYTES_MIN) > packed.len() {
                return Err(bad(format!(
                    "a group of {messages} messages has {} bytes",
                    packed.len()
                )));
            }
            groups.push(Group { queue, partition, messages, flags: self.flags, bytes: packed });
        }
        bytes.end()?;
        Ok(groups)
    }
}

impl Group<'_> {
    /// Its messages.
    pub(crate) fn messages(&self) -> Result<Vec<Message<'_>>, Refusal> {
        let mut bytes = Bytes(&self.bytes);
        let mut messages = Vec::with_capacity(self.messages);
        for _ in 0..self.messages {
            let (id, payload) = match self.flags & FRAMED {
                0 => {
                    let ids = self.flags & IDS != 0;
                    let id = if ids { bytes.text16("a transaction id")? } else { "" };
                    (id, bytes.counted32("a payload")?)
                }
                _ => {
                    let mut frame = Bytes(bytes.counted32("a message")?);
                    if frame.u8()? != 0 {
                        return Err(bad("a message has flags that are not known"));
                    }
                    frame.take(16, "a message id")?;
                    (frame.text16("a transaction id")?, frame.0)
                }
            };
            let payload = serde_json::from_slice(payload)
                .map_err(|e| bad(format!("a payload is not one JSON document: {e}")))?;
            let transaction_id = Some(id).filter(|id| !id.is_empty());
            messages.push(Message { transaction_id, payload });
        }
        bytes.end()?;
        Ok(messages)
    }
}

/// Unpacks one zstd frame that says how long it is.
fn unpack(
    frame: &[u8],
    raw: Option<usize>,
    max: usize,
    room: Room<'_>,
) -> Result<Vec<u8>, Refusal> {
    let said = get_frame_content_size(frame).ok().flatten();
    let Some(len) = raw.map(|raw| raw as u64).or(said) else {
        return Err(bad("a zstd frame does not say how long its contents are"));
    };
    let len = usize::try_from(len).ok().filter(|len| *len <= max);
    let Some(len) = len else {
        return Err(bad(format!("it unfolds to more than {UNPACKED_BYTES_MAX} bytes")));
    };
    room(len)?;
    let unpacked = zstd::bulk::decompress(frame, len).map_err(|e| bad(format!("zstd: {e}")))?;
    match unpacked.len() == len {
        true => Ok(unpacked),
        false => Err(bad(format!("a zstd frame holds {} of {len} bytes", unpacked.len()))),
    }
}

/// Bytes that are still to be read.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, len: usize, what: &str) -> Result<&'b [u8], Refusal> {
        let Some((part, rest)) = self.0.split_at_checked(len) else {
            return Err(bad(format!("it ends within {what}")));
        };
        self.0 = rest;
        Ok(part)
    }

    fn magic(&mut self, magic: &[u8; 4]) -> Result<(), Refusal> {
        match self.take(4, "its first bytes")? == magic {
            true => Ok(()),
            false => Err(bad(format!("it does not begin with {}", magic.escape_ascii()))),
        }
    }

    fn u8(&mut self) -> Result<u8, Refusal> {
        Ok(self.take(1, "a byte")?[0])
    }

    fn u32(&mut self) -> Result<usize, Refusal> {
        let part = self.take(4, "a number")?;
        Ok(u32::from_le_bytes([part[0], part[1], part[2], part[3]]) as usize)
    }

    fn counted32(&mut self, what: &str) -> Result<&'b [u8], Refusal> {
        let len = self.u32()?;
        self.take(len, what)
    }

    fn text16(&mut self, what: &str) -> Result<&'b str, Refusal> {
        let len = self.take(2, "a length")?;
        let len = usize::from(u16::from_le_bytes([len[0], len[1]]));
        let text = self.take(len, what)?;
        std::str::from_utf8(text).map_err(|_| bad(format!("{what} is not UTF-8")))
    }

    fn end(&self) -> Result<(), Refusal> {
        match self.0.len() {
            0 => Ok(()),
            more => Err(bad(format!("{more} bytes follow its end"))),
        }
    }
}

#[cfg(test)]
#[path = "binary_tests.rs"]
mod tests;
