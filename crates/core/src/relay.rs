//! What the brokers of one cluster say to each other: commands passed on to the leader, its answers.
//!
//! Owns: the bytes of both. Leaves to others: carrying them (`queen-raft`), when to ask and what an
//! answer means for the request (`queen-broker`).
//!
//! Little-endian. The head of a command's ask is as long as what stands before the command in a log
//! entry ([`crate::entry`]), so that the same buffer is either, without a copy. Messages of another
//! version are refused: nothing of them was written.
//!
//! ```text
//! ask:     0 version u8 = 1 | 1 kind u8 = 1 (command) | 2 term u64 | 10 origin u64 | 18 batch u64
//!          26 class u8 (1 adds data, 0 settles) | 27 zero [6] | 33 the command
//!          0 version u8 = 1 | 1 kind u8 = 2 (report)  | 2 node u64 | 10 flags u8 (1 disk full)
//!          0 version u8 = 1 | 1 kind u8 = 3 (ephemeral) | 2 the call ([`crate::ephemeral`])
//!          0 version u8 = 1 | 1 kind u8 = 4 (time)
//! answer:  0 version u8 = 1 | 1 kind u8 = 1 (applied) | 2 index u64
//!          0 version u8 = 1 | 1 kind u8 = 2 (refused) | 2 code u8 | 3 text
//!          0 version u8 = 1 | 1 kind u8 = 3 (clock)   | 2 stamp u64
//!          0 version u8 = 1 | 1 kind u8 = 4 (ephemeral) | 2 the answer ([`crate::ephemeral`])
//! ```

use crate::ephemeral::{EphemeralAnswer, EphemeralCall};
use crate::{Code, Error, Stamp, entry};

/// Version of both layouts.
pub const VERSION: u8 = 1;
/// Bytes in front of the command of an ask, as in front of the first command of a log entry.
pub const HEAD_BYTES: usize = entry::HEADER_BYTES + 4;

const COMMAND: u8 = 1;
const REPORT: u8 = 2;
const EPHEMERAL: u8 = 3;
const TIME: u8 = 4;
const APPLIED: u8 = 1;
const REFUSED: u8 = 2;
const CLOCK: u8 = 3;
const EPHEMERAL_ANSWER: u8 = 4;
const SET: u8 = 1;

/// What an ask says beside its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskHead {
    /// The term of the leader that is asked: no other may take the command, so that one that was
    /// not seen when a later term began will never be.
    pub term: u64,
    /// The asker's origin: it knows the entry by it when it applies it.
    pub origin: u64,
    /// The asker's number of the command.
    pub batch: u64,
    /// The command adds data.
    pub writes: bool,
}

/// What a node asks of the leader; the time also of any other.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask<'a> {
    /// Have this logged.
    Command(AskHead, &'a [u8]),
    /// How the asker is; answered with the leader's clock.
    Report(Report),
    /// A call on the contents of an ephemeral queue, which the leader has.
    Ephemeral(EphemeralCall<'a>),
    /// What the log clock is; refused by a node that does not know.
    Time,
}

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The node.
    pub node: u64,
    /// Its data disk is full or above its high mark.
    pub storage_full: bool,
}

/// What the leader answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The command is committed and was applied as a part of this log entry.
    Applied(u64),
    /// It was not taken, or its outcome is not known: the code says which.
    Refused(Error),
    /// The log clock of the leader, as the asked node knows it.
    Clock(Stamp),
    /// What the owner of ephemeral queues says.
    Ephemeral(EphemeralAnswer),
}

/// The bytes are no message: why.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadMessage {
    /// Cut short or too long for its kind.
    #[error("the message is cut short or too long: {0} bytes")]
    Length(usize),
    /// Of another release.
    #[error("message version {0}, this release speaks 1")]
    Version(u8),
    /// Fields that do not read.
    #[error("the fields of the message do not read")]
    Fields,
    /// A kind, flag or code that is not known.
    #[error("message of unknown kind, flag or code {0}")]
    Unknown(u8),
}

impl AskHead {
    /// Its bytes, for the place kept free in front of the command.
    pub fn bytes(&self) -> [u8; HEAD_BYTES] {
        let mut out = [0; HEAD_BYTES];
        (out[0], out[1]) = (VERSION, COMMAND);
        out[2..10].copy_from_slice(&self.term.to_le_bytes());
        out[10..18].copy_from_slice(&self.origin.to_le_bytes());
        out[18..26].copy_from_slice(&self.batch.to_le_bytes());
        out[26] = u8::from(self.writes);
        out
    }
}

impl Report {
    /// The ask that makes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, REPORT];
        out.extend_from_slice(&self.node.to_le_bytes());
        out.push(u8::from(self.storage_full));
        out
    }
}

/// The ask that makes a call on an ephemeral queue.
pub fn ephemeral_ask(call: &EphemeralCall<'_>) -> Vec<u8> {
    let mut out = vec![VERSION, EPHEMERAL];
    out.append(&mut call.encode());
    out
}

/// The ask for the time.
pub fn time_ask() -> Vec<u8> {
    vec![VERSION, TIME]
}

impl<'a> Ask<'a> {
    /// Reads an ask; the command itself is not looked at.
    pub fn decode(bytes: &'a [u8]) -> Result<Ask<'a>, BadMessage> {
        match kind(bytes)? {
            COMMAND => {
                let (head, command) =
                    bytes.split_at_checked(HEAD_BYTES).ok_or(BadMessage::Length(bytes.len()))?;
                if let Some(other) = head[27..].iter().find(|byte| **byte != 0) {
                    return Err(BadMessage::Unknown(*other));
                }
                let head = AskHead {
                    term: number(head, 2)?,
                    origin: number(head, 10)?,
                    batch: number(head, 18)?,
                    writes: flag(head[26])?,
                };
                Ok(Ask::Command(head, command))
            }
            REPORT => {
                let [flags] = bytes.get(10..).unwrap_or_default() else {
                    return Err(BadMessage::Length(bytes.len()));
                };
                let storage_full = flag(*flags)?;
                Ok(Ask::Report(Report { node: number(bytes, 2)?, storage_full }))
            }
            EPHEMERAL => {
                let call = EphemeralCall::decode(&bytes[2..]).map_err(|_| BadMessage::Fields)?;
                Ok(Ask::Ephemeral(call))
            }
            TIME if bytes.len() == 2 => Ok(Ask::Time),
            TIME => Err(BadMessage::Length(bytes.len())),
            other => Err(BadMessage::Unknown(other)),
        }
    }
}

impl Answer {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Answer::Applied(index) => {
                out.push(APPLIED);
                out.extend_from_slice(&index.to_le_bytes());
            }
            Answer::Refused(error) => {
                out.extend_from_slice(&[REFUSED, error.code.number()]);
                out.extend_from_slice(error.text.as_bytes());
            }
            Answer::Clock(stamp) => {
                out.push(CLOCK);
                out.extend_from_slice(&stamp.0.to_le_bytes());
            }
            Answer::Ephemeral(answer) => {
                out.push(EPHEMERAL_ANSWER);
                out.append(&mut answer.encode());
            }
        }
        out
    }

    /// Reads an answer.
    pub fn decode(bytes: &[u8]) -> Result<Answer, BadMessage> {
        match kind(bytes)? {
            APPLIED if bytes.len() == 10 => Ok(Answer::Applied(number(bytes, 2)?)),
            CLOCK if bytes.len() == 10 => Ok(Answer::Clock(Stamp(number(bytes, 2)?))),
            APPLIED | CLOCK => Err(BadMessage::Length(bytes.len())),
            EPHEMERAL_ANSWER => {
                let answer = EphemeralAnswer::decode(&bytes[2..]);
                answer.map(Answer::Ephemeral).map_err(|_| BadMessage::Fields)
            }
            REFUSED => {
                let (code, text) =
                    bytes[2..].split_first().ok_or(BadMessage::Length(bytes.len()))?;
                let code = Code::from_number(*code).ok_or(BadMessage::Unknown(*code))?;
                Ok(Answer::Refused(Error::new(code, String::from_utf8_lossy(text))))
            }
            other => Err(BadMessage::Unknown(other)),
        }
    }
}

/// The kind of a message of this version.
fn kind(bytes: &[u8]) -> Result<u8, BadMessage> {
    match bytes {
        [VERSION, kind, ..] => Ok(*kind),
        [VERSION] | [] => Err(BadMessage::Length(bytes.len())),
        [other, ..] => Err(BadMessage::Version(*other)),
    }
}

fn number(bytes: &[u8], at: usize) -> Result<u64, BadMessage> {
    let part = bytes.get(at..at + 8).ok_or(BadMessage::Length(bytes.len()))?;
    Ok(part.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

fn flag(byte: u8) -> Result<bool, BadMessage> {
    match byte {
        0 => Ok(false),
        SET => Ok(true),
        other => Err(BadMessage::Unknown(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TenantId;
    use crate::ephemeral::EphemeralAsk;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_of_messages_are_fixed() {
        let head = AskHead { term: 2, origin: 3, batch: 4, writes: true };
        let mut ask = head.bytes().to_vec();
        ask.extend_from_slice(b"ab");
        let want =
            b"\x01\x01\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x01\0\0\0\0\0\0ab";
        assert_eq!(ask, want);
        assert_eq!(Ask::decode(&ask), Ok(Ask::Command(head, b"ab")));
        let report = Report { node: 7, storage_full: true };
        assert_eq!(report.encode(), b"\x01\x02\x07\0\0\0\0\0\0\0\x01");
        assert_eq!(Answer::Applied(9).encode(), b"\x01\x01\x09\0\0\0\0\0\0\0");
        assert_eq!(Answer::Clock(Stamp(9)).encode(), b"\x01\x03\x09\0\0\0\0\0\0\0");
        let call = EphemeralCall { tenant: TenantId::DEFAULT, ask: EphemeralAsk::Queues };
        let ask = ephemeral_ask(&call);
        assert_eq!(ask, b"\x01\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x05");
        assert_eq!(Ask::decode(&ask), Ok(Ask::Ephemeral(call)));
        assert_eq!(Ask::decode(&ask[..18]), Err(BadMessage::Fields));
        assert_eq!(Ask::decode(&time_ask()), Ok(Ask::Time));
        assert_eq!(Ask::decode(b"\x01\x04"), Ok(Ask::Time));
        assert_eq!(Ask::decode(b"\x01\x04\0"), Err(BadMessage::Length(3)));
        let pushed = Answer::Ephemeral(EphemeralAnswer::Pushed(9));
        assert_eq!(pushed.encode(), b"\x01\x04\0\x09");
        assert_eq!(Answer::decode(b"\x01\x04\0\x09"), Ok(pushed));
        let refused = Answer::Refused(Error::new(Code::Retry, "busy"));
        assert_eq!(refused.encode(), b"\x01\x02\x06busy");
    }

    #[test]
    fn what_is_cut_short_or_of_another_version_is_refused() {
        let messages = [
            AskHead { term: 2, origin: 3, batch: 4, writes: false }.bytes().to_vec(),
            Report { node: 7, storage_full: false }.encode(),
        ];
        for message in messages {
            for cut in 0..message.len() {
                assert!(Ask::decode(&message[..cut]).is_err());
            }
            let mut newer = message;
            newer[0] = 2;
            assert_eq!(Ask::decode(&newer), Err(BadMessage::Version(2)));
        }
        let applied = Answer::Applied(5).encode();
        for cut in 0..applied.len() {
            assert!(Answer::decode(&applied[..cut]).is_err());
        }
        assert_eq!(Answer::decode(&[3, 1]), Err(BadMessage::Version(3)));
        assert_eq!(Answer::decode(&[1, REFUSED, 200]), Err(BadMessage::Unknown(200)));
    }

    proptest! {
        #[test]
        fn an_ask_comes_back(
            (term, origin, batch, writes) in any::<(u64, u64, u64, bool)>(),
            command in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let head = AskHead { term, origin, batch, writes };
            let bytes = [&head.bytes()[..], &command].concat();
            prop_assert_eq!(Ask::decode(&bytes), Ok(Ask::Command(head, &command)));
        }

        #[test]
        fn a_report_and_an_answer_come_back(
            (node, storage_full) in any::<(u64, bool)>(), code in 0..Code::ALL.len(), text in ".*",
        ) {
            let report = Report { node, storage_full };
            let bytes = report.encode();
            prop_assert_eq!(Ask::decode(&bytes), Ok(Ask::Report(report)));
            for answer in [
                Answer::Applied(node),
                Answer::Clock(Stamp(node)),
                Answer::Refused(Error::new(Code::ALL[code], text)),
            ] {
                prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = (Ask::decode(&bytes), Answer::decode(&bytes));
            if let Some(first) = bytes.first_mut() { *first = VERSION; }
            let _ = (Ask::decode(&bytes), Answer::decode(&bytes));
        }
    }
}
