//! The greeting: both ends of a connection prove that they know the token, and say which disk they have.
//!
//! Owns: its bytes and its order. Leaves to others: sockets and TLS (`stream`), whether a peer's disk is
//! the one that the group knows (`Group`).
//!
//! The token never crosses the wire: each end answers a random challenge of the other with an HMAC under
//! it, over all that was said. Little-endian; nothing is read beyond these sizes before the proof.
//!
//! ```text
//! caller:   magic "QNET" | version u16 = 1 | purpose u8 | 0 u8 | from u64 | to u64 | caller's disk 16 |
//!           disk that the caller expects 16 | challenge 32
//! listener: magic "QNET" | version u16 = 1 | in a group u8 | 0 u8 | node u64 | listener's disk 16 |
//!           disk that the listener's group has for the caller 16 | challenge 32 | proof 32
//! caller:   proof 32
//! listener: verdict u8 (0 welcome, 1 refused, 2 wrong disk) | text length u16 | text
//! ```
//!
//! A disk of zeros means: not known. Without TLS what follows the greeting is neither secret nor proof
//! against a third party on the path.

use aws_lc_rs::{hmac, rand};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const MAGIC: [u8; 4] = *b"QNET";
const VERSION: u16 = 1;
const CALLER: usize = 88;
const LISTENER: usize = 80;
const TEXT_MAX: usize = 512;

/// Names the disk of a node; drawn at random when its log's directory is made.
pub(crate) type DiskId = [u8; 16];

/// What a connection is for. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// Entries of the log.
    Append = 1,
    /// Pulses, votes, reads, members: small and urgent.
    Control = 2,
    /// Requests to the leader's service.
    Ask = 3,
    Snapshot = 4,
}

impl Purpose {
    pub(crate) const ALL: [Self; 4] = [Self::Append, Self::Control, Self::Ask, Self::Snapshot];

    /// Most bytes of a frame's body.
    pub(crate) const fn body_max(self) -> usize {
        match self {
            Self::Append | Self::Ask => 160 << 20,
            Self::Control => 1 << 20,
            Self::Snapshot => 4 << 20,
        }
    }
}

/// Who calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) purpose: Purpose,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) disk: DiskId,
    pub(crate) expects: DiskId,
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) in_group: bool,
    pub(crate) node: u64,
    pub(crate) disk: DiskId,
    /// Disk of the caller according to the listener's group.
    pub(crate) knows: DiskId,
}

/// What the listener makes of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Welcome,
    Refused(String),
    WrongDisk(String),
}

fn broken(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

fn challenge() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).map_err(|_| io::Error::other("no random bytes"))?;
    Ok(bytes)
}

fn proof(key: &hmac::Key, whose: &[u8], caller: &[u8], listener: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    [whose, caller, listener].into_iter().for_each(|part| context.update(part));
    context.sign()
}

fn verify(
    key: &hmac::Key,
    whose: &[u8],
    caller: &[u8],
    listener: &[u8],
    tag: &[u8],
) -> io::Result<()> {
    let said = [whose, caller, listener].concat();
    hmac::verify(key, &said, tag).map_err(|_| {
        io::Error::new(io::ErrorKind::PermissionDenied, "the other end has another raft token")
    })
}

const OF_CALLER: &[u8] = b"queen raft caller 1";
const OF_LISTENER: &[u8] = b"queen raft listener 1";

fn check_start(bytes: &[u8]) -> io::Result<()> {
    if bytes[..4] != MAGIC {
        return Err(broken("the other end is no queen node"));
    }
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    if version != VERSION {
        return Err(broken(format!("the other end speaks version {version}, not {VERSION}")));
    }
    Ok(())
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// The caller's side. Gives what the listener said of itself and its verdict.
pub(crate) async fn call(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    token: &hmac::Key,
    caller: &Caller,
) -> io::Result<(Listener, Verdict)> {
    let mut mine = [0; CALLER];
    mine[..4].copy_from_slice(&MAGIC);
    mine[4..6].copy_from_slice(&VERSION.to_le_bytes());
    mine[6] = caller.purpose as u8;
    mine[8..16].copy_from_slice(&caller.from.to_le_bytes());
    mine[16..24].copy_from_slice(&caller.to.to_le_bytes());
    mine[24..40].copy_from_slice(&caller.disk);
    mine[40..56].copy_from_slice(&caller.expects);
    mine[56..88].copy_from_slice(&challenge()?);
    stream.write_all(&mine).await?;
    stream.flush().await?;
    let mut theirs = [0; LISTENER + 32];
    stream.read_exact(&mut theirs[..6]).await?;
    check_start(&theirs)?;
    stream.read_exact(&mut theirs[6..]).await?;
    let (said, tag) = theirs.split_at(LISTENER);
    verify(token, OF_LISTENER, &mine, said, tag)?;
    stream.write_all(proof(token, OF_CALLER, &mine, said).as_ref()).await?;
    stream.flush().await?;
    let listener = Listener {
        in_group: said[6] != 0,
        node: u64::from_le_bytes(part(said, 8)),
        disk: part(said, 16),
        knows: part(said, 32),
    };
    let verdict = stream.read_u8().await?;
    let length = usize::from(stream.read_u16_le().await?);
    let mut text = vec![0; length.min(TEXT_MAX)];
    stream.read_exact(&mut text).await?;
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok((
        listener,
        match verdict {
            0 => Verdict::Welcome,
            2 => Verdict::WrongDisk(text),
            _ => Verdict::Refused(text),
        },
    ))
}

/// The listener's side, up to the caller's proof. `about` says what this node is for that caller.
pub(crate) async fn hear(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    token: &hmac::Key,
    about: impl FnOnce(&Caller) -> Listener,
) -> io::Result<(Caller, Listener)> {
    let mut theirs = [0; CALLER];
    stream.read_exact(&mut theirs[..6]).await?;
    check_start(&theirs)?;
    stream.read_exact(&mut theirs[6..]).await?;
    let purpose = Purpose::ALL.into_iter().find(|one| *one as u8 == theirs[6]);
    let caller = Caller {
        purpose: purpose.ok_or_else(|| broken("a connection for an unknown purpose"))?,
        from: u64::from_le_bytes(part(&theirs, 8)),
        to: u64::from_le_bytes(part(&theirs, 16)),
        disk: part(&theirs, 24),
        expects: part(&theirs, 40),
    };
    let listener = about(&caller);
    let mut mine = [0; LISTENER + 32];
    mine[..4].copy_from_slice(&MAGIC);
    mine[4..6].copy_from_slice(&VERSION.to_le_bytes());
    mine[6] = u8::from(listener.in_group);
    mine[8..16].copy_from_slice(&listener.node.to_le_bytes());
    mine[16..32].copy_from_slice(&listener.disk);
    mine[32..48].copy_from_slice(&listener.knows);
    mine[48..80].copy_from_slice(&challenge()?);
    let tag = proof(token, OF_LISTENER, &theirs, &mine[..LISTENER]);
    mine[LISTENER..].copy_from_slice(tag.as_ref());
    stream.write_all(&mine).await?;
    stream.flush().await?;
    let mut tag = [0; 32];
    stream.read_exact(&mut tag).await?;
    verify(token, OF_CALLER, &theirs, &mine[..LISTENER], &tag)?;
    Ok((caller, listener))
}

/// The listener's last word.
pub(crate) async fn judge(
    stream: &mut (impl AsyncWrite + Unpin),
    verdict: &Verdict,
) -> io::Result<()> {
    let (byte, text) = match verdict {
        Verdict::Welcome => (0, ""),
        Verdict::Refused(text) => (1, text.as_str()),
        Verdict::WrongDisk(text) => (2, text.as_str()),
    };
    let text = &text.as_bytes()[..text.len().min(TEXT_MAX)];
    stream.write_u8(byte).await?;
    stream.write_u16_le(text.len() as u16).await?;
    stream.write_all(text).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(token: &str) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes())
    }

    const CALL: Caller =
        Caller { purpose: Purpose::Ask, from: 1, to: 2, disk: [1; 16], expects: [0; 16] };
    const SELF: Listener = Listener { in_group: true, node: 2, disk: [2; 16], knows: [1; 16] };

    async fn greet(
        calls: &str,
        hears: &str,
    ) -> (io::Result<(Listener, Verdict)>, io::Result<(Caller, Listener)>) {
        let (mut near, mut far) = tokio::io::duplex(4096);
        let (calls, hears) = (key(calls), key(hears));
        let caller = async move { call(&mut near, &calls, &CALL).await };
        let listener = async move {
            let heard = hear(&mut far, &hears, |_| SELF).await;
            if heard.is_ok() {
                judge(&mut far, &Verdict::WrongDisk("wiped".into())).await.unwrap();
            }
            heard
        };
        tokio::join!(caller, listener)
    }

    #[tokio::test]
    async fn two_nodes_with_one_token_know_each_other() {
        let (called, heard) = greet("same", "same").await;
        assert_eq!(called.unwrap(), (SELF, Verdict::WrongDisk("wiped".into())));
        let (caller, _) = heard.unwrap();
        assert_eq!((caller.purpose, caller.from, caller.to), (Purpose::Ask, 1, 2));
    }

    #[tokio::test]
    async fn another_token_is_refused_on_both_sides() {
        let (called, heard) = greet("one", "other").await;
        assert_eq!(called.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(heard.is_err());
    }

    #[tokio::test]
    async fn a_caller_that_cannot_prove_itself_is_refused() {
        let (mut near, mut far) = tokio::io::duplex(4096);
        let token = key("same");
        let stranger = async move {
            let mut hello = [0; CALLER];
            hello[..4].copy_from_slice(&MAGIC);
            (hello[4], hello[6]) = (1, 1);
            near.write_all(&hello).await.unwrap();
            let mut answer = [0; LISTENER + 32];
            near.read_exact(&mut answer).await.unwrap();
            // What the listener said, sent back.
            near.write_all(&answer[LISTENER..]).await.unwrap();
        };
        let (_, heard) = tokio::join!(stranger, hear(&mut far, &token, |_| SELF));
        assert_eq!(heard.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
