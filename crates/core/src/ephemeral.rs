//! Ephemeral queues, whose contents are in memory only: what is declared of them, what is asked of
//! whoever owns them, and how it refuses.
//!
//! Owns: the fields and bytes (postcard; the order of variants and fields is the format between nodes of
//! one release and the next, new ones go at the end), the words of outcomes and refusals. Leaves to
//! others: the rules of the declarations (`queen-state`), of the contents (`queen-broker`), JSON
//! (`queen-http`).

use crate::TenantId;
use crate::command::whole;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Declared queues of all tenants, at most.
pub const DECLARED_MAX: u64 = 10_000;
/// Longest wait of a pop, milliseconds.
pub const WAIT_MS_MAX: u64 = 300_000;
/// Wait of a pop that does not say how long, milliseconds.
pub const WAIT_MS_DEFAULT: u64 = 30_000;
/// Most messages of one pop.
pub const POP_BATCH_MAX: u32 = 10_000;
/// Bytes of payloads after which a pop takes no further message.
pub const POP_BYTES_MAX: usize = 4 << 20;

/// What is declared of a queue; what is absent is as the owner's settings say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EphemeralOptions {
    /// Bytes of payloads, at most.
    pub max_bytes: Option<u64>,
    /// Messages, at most.
    pub max_length: Option<u64>,
    /// What a push does that would go beyond either; [`FullPolicy::Reject`].
    pub policy: Option<FullPolicy>,
    /// Messages go this long after their push, delivered or not; never.
    pub ttl_seconds: Option<u64>,
    /// How long a delivered message is its consumer's.
    pub lease_seconds: Option<u64>,
    /// Deliveries after the first.
    pub retry_limit: Option<u64>,
    /// A waiting pop lets messages gather; it does not.
    pub window: Option<Window>,
}

/// What a full queue does with a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FullPolicy {
    /// Refuses all of it.
    Reject,
    /// Takes it and drops the oldest messages.
    DropOldest,
}

impl FullPolicy {
    /// The word of the HTTP API.
    pub fn word(self) -> &'static str {
        match self {
            FullPolicy::Reject => "reject",
            FullPolicy::DropOldest => "dropOldest",
        }
    }
}

/// When a waiting pop has waited for enough: at so many messages, or so long after the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Milliseconds since the first message was pushed; 0: it does not wait for more.
    pub ms: u64,
    /// Messages; 0: as many as the pop asks for.
    pub count: u64,
}

/// Declares a queue, or takes its declaration away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclareEphemeral<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Queue name.
    pub queue: &'a str,
    /// What is declared, in place of all that was; `None`: nothing any more.
    pub options: Option<EphemeralOptions>,
}

/// A call on the contents of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EphemeralCall<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// What is asked.
    #[serde(borrow)]
    pub ask: EphemeralAsk<'a>,
}

/// What is asked of the owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum EphemeralAsk<'a> {
    /// Takes all of these messages, or none.
    Push {
        /// Queue name.
        queue: &'a str,
        /// Partition name.
        partition: &'a str,
        /// JSON texts.
        #[serde(borrow)]
        payloads: Vec<Payload<'a>>,
    },
    /// Delivers messages.
    #[serde(borrow)]
    Pop(EphemeralPop<'a>),
    /// Settles messages.
    Ack {
        /// Queue name.
        queue: &'a str,
        /// Group that they were delivered to; queue mode has none.
        #[serde(borrow)]
        group: Option<&'a str>,
        /// Id, and whether it is done; else it comes again.
        #[serde(borrow)]
        items: Vec<(&'a str, bool)>,
    },
    /// Drops all messages and voids all leases.
    Reset {
        /// Queue name.
        queue: &'a str,
    },
    /// Drops the queue.
    Delete {
        /// Queue name.
        queue: &'a str,
    },
    /// Gauges of all queues.
    Queues,
    /// Gauges of one.
    Depth {
        /// Queue name.
        queue: &'a str,
    },
}

/// A JSON text, written in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload<'a>(#[serde(borrow, serialize_with = "whole")] pub &'a [u8]);

/// A pop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EphemeralPop<'a> {
    /// Queue name.
    pub queue: &'a str,
    /// Partition name.
    pub partition: &'a str,
    /// Group; `None` is queue mode.
    #[serde(borrow)]
    pub group: Option<&'a str>,
    /// Messages, at most.
    pub batch: u32,
    /// How long it waits for the first; 0: not at all.
    pub wait_ms: u64,
    /// Settles at delivery.
    pub auto_ack: bool,
}

/// What the owner says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum EphemeralAnswer {
    /// So many messages were taken.
    Pushed(u64),
    /// Messages, in order; none when there were none in time.
    Popped(Vec<EphemeralMessage>),
    /// One outcome per item of the ack.
    Acked(Vec<Outcome>),
    /// So many messages were dropped.
    Reset(u64),
    /// Whether there was such a queue in memory.
    Deleted(bool),
    /// How many queues there are, and the gauges of the first of them by name.
    Queues(u64, Vec<Gauges>),
    /// Gauges; `None`: there is no such queue.
    Depth(Option<Depth>),
    /// Nothing was done.
    Refused(EphemeralRefusal),
    /// Nothing was done: it does not own the queue.
    NotMine,
}

/// A delivered message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EphemeralMessage {
    /// Incarnation of the queue's contents.
    pub epoch: u64,
    /// Number within it.
    pub number: u64,
    /// Deliveries to this group, this one included.
    pub attempts: u32,
    /// The JSON text.
    #[serde(serialize_with = "put_bytes", deserialize_with = "get_bytes")]
    pub payload: Bytes,
}

fn put_bytes<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

fn get_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    <&[u8]>::deserialize(from).map(Bytes::copy_from_slice)
}

/// The id of a message, which clients do not look into: `e:<epoch hex>:<partition>:<number>`.
pub fn message_id(epoch: u64, partition: &str, number: u64) -> String {
    format!("e:{epoch:x}:{partition}:{number}")
}

/// Epoch, partition and number in an id; `None` for a text that is none.
pub fn read_message_id(id: &str) -> Option<(u64, &str, u64)> {
    let (epoch, rest) = id.strip_prefix("e:")?.split_once(':')?;
    let (partition, number) = rest.rsplit_once(':')?;
    Some((u64::from_str_radix(epoch, 16).ok()?, partition, number.parse().ok()?))
}

/// What became of an acked message. Clients know these words and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It is settled, or was given up.
    Acked,
    /// It comes again.
    Redelivered,
    /// The contents that it was of are gone.
    Stale,
    /// It is not this consumer's.
    Unknown,
}

impl Outcome {
    /// The word of the HTTP API.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Acked => "acked",
            Outcome::Redelivered => "redelivered",
            Outcome::Stale => "stale",
            Outcome::Unknown => "unknown",
        }
    }
}

/// A queue in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauges {
    /// Queue name.
    pub queue: String,
    /// Options are declared of it.
    pub declared: bool,
    /// Messages.
    pub length: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Partitions in memory.
    pub partitions: u64,
}

/// One queue in more numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Depth {
    /// Those of the list.
    pub gauges: Gauges,
    /// What holds for it.
    pub effective: Effective,
    /// Its groups over all partitions, by name.
    pub groups: Vec<GroupDepth>,
}

/// A group on a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDepth {
    /// Its name.
    pub group: String,
    /// Messages that it may be given.
    pub pending: u64,
    /// Messages that its consumers hold.
    pub leased: u64,
}

/// The options of a queue, with the settings for what is not declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effective {
    /// As in [`EphemeralOptions`].
    pub max_bytes: u64,
    /// As in [`EphemeralOptions`].
    pub max_length: u64,
    /// As in [`EphemeralOptions`].
    pub policy: FullPolicy,
    /// As in [`EphemeralOptions`]; 0: they never go by age.
    pub ttl_seconds: u64,
    /// As in [`EphemeralOptions`].
    pub lease_seconds: u64,
    /// As in [`EphemeralOptions`].
    pub retry_limit: u64,
    /// As in [`EphemeralOptions`].
    pub window: Window,
}

impl Default for Effective {
    fn default() -> Effective {
        Effective {
            max_bytes: 16 << 20,
            max_length: 10_000,
            policy: FullPolicy::Reject,
            ttl_seconds: 0,
            lease_seconds: 30,
            retry_limit: 5,
            window: Window::default(),
        }
    }
}

impl Effective {
    /// These, where nothing else is declared.
    pub fn under(self, declared: &EphemeralOptions) -> Effective {
        Effective {
            max_bytes: declared.max_bytes.unwrap_or(self.max_bytes),
            max_length: declared.max_length.unwrap_or(self.max_length),
            policy: declared.policy.unwrap_or(self.policy),
            ttl_seconds: declared.ttl_seconds.unwrap_or(self.ttl_seconds),
            lease_seconds: declared.lease_seconds.unwrap_or(self.lease_seconds),
            retry_limit: declared.retry_limit.unwrap_or(self.retry_limit),
            window: declared.window.unwrap_or(self.window),
        }
    }
}

/// Why a call on an ephemeral queue was not carried out.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq, Serialize, Deserialize)]
#[error("{text}")]
pub struct EphemeralRefusal {
    /// Kind of the refusal.
    pub kind: RefusalKind,
    /// What failed, with which value, and the way out.
    pub text: String,
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// The queue is full. Nothing was taken; try again once consumers have settled some.
    Full,
    /// A push that the queue could not hold even if it were empty. Nothing was taken.
    TooLarge,
    /// Nobody can do it now: no memory, or no owner. Try again later.
    Unavailable,
    /// An operator turned ephemeral queues off.
    Disabled,
    /// The owner's answer got lost: it may have been done.
    Unknown,
}

impl RefusalKind {
    /// The word that stands in the body's `code`.
    pub fn word(self) -> &'static str {
        match self {
            RefusalKind::Full => "queue_full",
            RefusalKind::TooLarge => "push_too_large",
            RefusalKind::Unavailable => "ephemeral_unavailable",
            RefusalKind::Disabled => "ephemeral_disabled",
            RefusalKind::Unknown => "outcome_unknown",
        }
    }

    /// Whether it passes by itself: the caller comes again after a pause.
    pub fn passes(self) -> bool {
        !matches!(self, RefusalKind::TooLarge | RefusalKind::Disabled)
    }

    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            RefusalKind::Full => 429,
            RefusalKind::TooLarge => 413,
            RefusalKind::Unavailable | RefusalKind::Disabled | RefusalKind::Unknown => 503,
        }
    }
}

impl EphemeralRefusal {
    /// A refusal of this kind and text.
    pub fn new(kind: RefusalKind, text: impl Into<String>) -> EphemeralRefusal {
        EphemeralRefusal { kind, text: text.into() }
    }
}

impl EphemeralCall<'_> {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Writing into a Vec cannot fail: no sequence of unknown length is in a call.
        postcard::to_extend(self, Vec::new()).unwrap_or_default()
    }
}

impl<'a> EphemeralCall<'a> {
    /// Reads a call; bytes after its end are an error.
    pub fn decode(bytes: &'a [u8]) -> Result<EphemeralCall<'a>, postcard::Error> {
        whole_of(postcard::take_from_bytes(bytes)?)
    }
}

impl EphemeralAnswer {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        // As above.
        postcard::to_extend(self, Vec::new()).unwrap_or_default()
    }

    /// Reads an answer; bytes after its end are an error.
    pub fn decode(bytes: &[u8]) -> Result<EphemeralAnswer, postcard::Error> {
        whole_of(postcard::take_from_bytes(bytes)?)
    }
}

fn whole_of<T>((read, rest): (T, &[u8])) -> Result<T, postcard::Error> {
    if rest.is_empty() { Ok(read) } else { Err(postcard::Error::DeserializeUnexpectedEnd) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    fn calls() -> Vec<EphemeralCall<'static>> {
        let pop = EphemeralPop {
            queue: "q",
            partition: "p",
            group: Some("g"),
            batch: 300,
            wait_ms: 1,
            auto_ack: true,
        };
        let asks = [
            EphemeralAsk::Push { queue: "q", partition: "p", payloads: vec![Payload(b"{}")] },
            EphemeralAsk::Pop(pop),
            EphemeralAsk::Ack { queue: "q", group: None, items: vec![("i", true), ("j", false)] },
            EphemeralAsk::Reset { queue: "q" },
            EphemeralAsk::Delete { queue: "q" },
            EphemeralAsk::Queues,
            EphemeralAsk::Depth { queue: "q" },
        ];
        asks.into_iter().map(|ask| EphemeralCall { tenant: TenantId::DEFAULT, ask }).collect()
    }

    fn answers() -> Vec<EphemeralAnswer> {
        let payload = Bytes::from_static(b"{}");
        let message = EphemeralMessage { epoch: 300, number: 7, attempts: 2, payload };
        let gauges =
            Gauges { queue: "q".into(), declared: true, length: 1, bytes: 2, partitions: 3 };
        let group = GroupDepth { group: "g".into(), pending: 4, leased: 5 };
        let effective = Effective::default();
        let depth = Depth { gauges: gauges.clone(), effective, groups: vec![group] };
        vec![
            EphemeralAnswer::Pushed(300),
            EphemeralAnswer::Popped(vec![message]),
            EphemeralAnswer::Acked(vec![Outcome::Acked, Outcome::Unknown]),
            EphemeralAnswer::Reset(3),
            EphemeralAnswer::Deleted(true),
            EphemeralAnswer::Queues(300, vec![gauges]),
            EphemeralAnswer::Depth(Some(depth)),
            EphemeralAnswer::Refused(EphemeralRefusal::new(RefusalKind::Full, "x")),
            EphemeralAnswer::NotMine,
        ]
    }

    #[test]
    fn the_bytes_of_calls_and_answers_are_fixed() {
        let owner = "00000000000000000000000000000001";
        let calls: Vec<String> = calls().iter().map(|call| hex(&call.encode())).collect();
        let want = [
            "00017101700 1027b7d",
            "010171017001 0167ac020101",
            "02017100 02016901016a00",
            "030171",
            "040171",
            "05",
            "060171",
        ];
        let want: Vec<String> =
            want.iter().map(|call| format!("{owner}{}", call.replace(' ', ""))).collect();
        assert_eq!(calls, want);
        let answers: Vec<String> = answers().iter().map(|answer| hex(&answer.encode())).collect();
        let want = [
            "00ac02",
            "0101ac020702027b7d",
            "02020003",
            "0303",
            "0401",
            "05ac020101710 1010203",
            "06010171010102038080800890 4e00001e050000010167 0405",
            "07000178",
            "08",
        ];
        assert_eq!(answers, want.map(|answer| answer.replace(' ', "")));
    }

    #[test]
    fn calls_and_answers_read_back_and_no_cut_of_them_does() {
        for call in calls() {
            let bytes = call.encode();
            assert_eq!(EphemeralCall::decode(&bytes).unwrap(), call);
            assert!((0..bytes.len()).all(|cut| EphemeralCall::decode(&bytes[..cut]).is_err()));
            assert!(EphemeralCall::decode(&[&bytes[..], b"\0"].concat()).is_err());
        }
        for answer in answers() {
            let bytes = answer.encode();
            assert_eq!(EphemeralAnswer::decode(&bytes).unwrap(), answer);
            assert!((0..bytes.len()).all(|cut| EphemeralAnswer::decode(&bytes[..cut]).is_err()));
            assert!(EphemeralAnswer::decode(&[&bytes[..], b"\0"].concat()).is_err());
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            kind in 0u8..10,
        ) {
            if let Some(first) = bytes.first_mut() { *first = kind; }
            let _ = EphemeralAnswer::decode(&bytes);
            if let Some(byte) = bytes.get_mut(16) { *byte = kind; }
            let _ = EphemeralCall::decode(&bytes);
        }
    }

    #[test]
    fn ids_read_back_whatever_the_partition_is_called() {
        for partition in ["Default", "a:b", "", "ä/:"] {
            let id = message_id(0x9f1, partition, 12);
            assert_eq!(read_message_id(&id), Some((0x9f1, partition, 12)), "{id}");
        }
        assert_eq!(message_id(0x9f1, "room-7", 12), "e:9f1:room-7:12");
        for text in ["", "e:", "e:1:2", "e:x:p:1", "e:1:p:x", "1:p:2"] {
            assert_eq!(read_message_id(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_declared_is_as_the_settings_say() {
        let settings = Effective { lease_seconds: 7, ..Effective::default() };
        let declared = EphemeralOptions { retry_limit: Some(0), ..EphemeralOptions::default() };
        let effective = settings.under(&declared);
        assert_eq!((effective.lease_seconds, effective.retry_limit), (7, 0));
    }
}
