//! Frames: what crosses a connection between two nodes once both have proved who they are.
//!
//! Owns: the bytes of a frame, reading one with a bound on its size and memory. Leaves to others: what a
//! body says (`message`), the greeting before the first frame (`greeting`).
//!
//! Little-endian:
//!
//! ```text
//! 0 body length u32 | 4 crc32 u32 of bytes 8..17 and the body | 8 request u64 | 16 kind u8 | 17 body
//! ```
//!
//! A request carries a number of its sender's choice, its answer the same one. Kinds: see [`Kind`].

use bytes::{Buf, Bytes, BytesMut};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const HEADER: usize = 17;
/// What an end reads from its connection at once, at least: small frames in one call of the system.
pub(crate) const READ_AHEAD: usize = 16 << 10;
/// A body takes memory in steps of this, as its bytes arrive.
const STEP: usize = 1 << 20;

/// What a frame is. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The answer to a request.
    Answer = 1,
    /// The request was not taken: nothing of it was or will be done. The body says why, in words.
    Refused = 2,
    /// Are you there? Answered with an empty answer.
    Ping = 3,
    Append = 4,
    Vote = 5,
    Pulse = 6,
    /// Would you vote for me?
    Canvass = 7,
    ReadIndex = 8,
    /// Stand for election now.
    Stand = 9,
    Ask = 10,
    Change = 11,
    SnapshotBegin = 12,
    SnapshotPiece = 13,
    SnapshotEnd = 14,
    /// A question that any node answers.
    Consult = 15,
}

impl Kind {
    const ALL: [Self; 15] = [
        Self::Answer,
        Self::Refused,
        Self::Ping,
        Self::Append,
        Self::Vote,
        Self::Pulse,
        Self::Canvass,
        Self::ReadIndex,
        Self::Stand,
        Self::Ask,
        Self::Change,
        Self::SnapshotBegin,
        Self::SnapshotPiece,
        Self::SnapshotEnd,
        Self::Consult,
    ];

    fn decode(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) request: u64,
    pub(crate) kind: Kind,
    pub(crate) body: Bytes,
}

/// The two parts of a body that is sent: the second may be shared with other frames.
pub(crate) type Parts = [Bytes; 2];

fn checksum(request: u64, kind: u8, body: [&[u8]; 2]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&request.to_le_bytes());
    hasher.update(&[kind]);
    body.into_iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Writes a frame; the caller flushes.
pub(crate) async fn write(
    out: &mut (impl AsyncWrite + Unpin),
    request: u64,
    kind: Kind,
    [first, second]: &Parts,
) -> io::Result<()> {
    let length = u32::try_from(first.len() + second.len())
        .map_err(|_| io::Error::other("a frame has at most 4 GiB"))?;
    let kind = kind as u8;
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..8].copy_from_slice(&checksum(request, kind, [first, second]).to_le_bytes());
    header[8..16].copy_from_slice(&request.to_le_bytes());
    header[16] = kind;
    // One call of the system for all of it, where it does not fit the caller's buffer.
    out.write_all_buf(&mut Buf::chain(&header[..], &first[..]).chain(&second[..])).await
}

/// Reads a frame whose body has at most `most` bytes.
pub(crate) async fn read(input: &mut (impl AsyncRead + Unpin), most: usize) -> io::Result<Frame> {
    let mut header = [0; HEADER];
    input.read_exact(&mut header).await?;
    let [a, b, c, d, e, f, g, h, request @ .., kind] = header;
    let (length, crc) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    let (length, request) = (length as usize, u64::from_le_bytes(request));
    let bad = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    if length > most {
        return Err(bad(format!("a frame of {length} bytes, at most {most} are taken")));
    }
    let mut body = BytesMut::with_capacity(length.min(STEP));
    while body.len() < length {
        let left = length - body.len();
        body.reserve(left.min(STEP));
        if (&mut *input).take(left as u64).read_buf(&mut body).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    if checksum(request, kind, [&body, &[]]) != crc {
        return Err(bad("a frame has a wrong checksum".into()));
    }
    let kind = Kind::decode(kind).ok_or_else(|| bad(format!("a frame of unknown kind {kind}")))?;
    Ok(Frame { request, kind, body: body.freeze() })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn bytes_of(frame: &Frame) -> Vec<u8> {
        let mut out = Vec::new();
        let (first, second) = frame.body.split_at(frame.body.len() / 2);
        let parts = [first, second].map(Bytes::copy_from_slice);
        write(&mut out, frame.request, frame.kind, &parts).await.unwrap();
        out
    }

    #[tokio::test]
    async fn the_bytes_of_a_frame_are_fixed_and_read_back() {
        let frame = Frame { request: 0x0102, kind: Kind::Ask, body: Bytes::from_static(b"hi") };
        let bytes = bytes_of(&frame).await;
        let crc = crc32fast::hash(b"\x02\x01\0\0\0\0\0\0\x0ahi").to_le_bytes();
        assert_eq!(bytes[..4], [2, 0, 0, 0]);
        assert_eq!(bytes[4..8], crc);
        assert_eq!(&bytes[8..], b"\x02\x01\0\0\0\0\0\0\x0ahi");
        assert_eq!(read(&mut &bytes[..], 2).await.unwrap(), frame);
    }

    #[tokio::test]
    async fn a_frame_that_is_cut_changed_or_too_large_is_refused() {
        let frame = Frame { request: 7, kind: Kind::Vote, body: Bytes::from_static(b"abc") };
        let bytes = bytes_of(&frame).await;
        assert!(read(&mut &bytes[..], 2).await.is_err());
        for at in 0..bytes.len() {
            assert!(read(&mut &bytes[..at], 100).await.is_err());
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(read(&mut &bad[..], 100).await.is_err(), "byte {at}");
        }
    }
}
