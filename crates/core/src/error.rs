//! Error codes: what went wrong, and what the caller does next.

/// Kind of a refusal, as the `code` of an HTTP error body spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The request body is not what the route takes. Nothing was written.
    BadBody,
    /// A field has a value that the route does not take. Nothing was written.
    BadRequest,
    /// A name is longer than a key can hold. Nothing was written.
    NameTooLong,
    /// The thing named does not exist. Nothing was written.
    NotFound,
    /// Too much is in flight. Nothing was written; try again after a pause.
    Overloaded,
    /// The write did not reach the log. Nothing was written; try again.
    Retry,
    /// No leader is known. Nothing was written; try again.
    NoLeader,
    /// Not committed before the deadline. May still be written: send the same request again.
    Timeout,
    /// May have been written: send the same request again.
    OutcomeUnknown,
    /// The data disk is above its high mark. Nothing was written; try again when there is space.
    StorageFull,
    /// A payload was to be stored in the clear where only envelopes may be, or in an envelope made
    /// for another place. Nothing was written; encrypt it for where it goes and try again.
    NotSealed,
    /// The queue is encrypted and this node has no key to write with. Nothing was written; try
    /// again when it has.
    NoEncryptionKey,
    /// This node has no key that opens a payload, or the payload is damaged.
    Undecryptable,
    /// A bug or a broken disk.
    Internal,
}

impl Code {
    /// All of them; the place of each, from 1, is its number, so new ones go at the end.
    pub const ALL: &'static [Code] = &[
        Code::BadBody,
        Code::BadRequest,
        Code::NameTooLong,
        Code::NotFound,
        Code::Overloaded,
        Code::Retry,
        Code::NoLeader,
        Code::Timeout,
        Code::OutcomeUnknown,
        Code::StorageFull,
        Code::NotSealed,
        Code::NoEncryptionKey,
        Code::Undecryptable,
        Code::Internal,
    ];

    /// Its number in messages between nodes.
    pub fn number(self) -> u8 {
        let place = Code::ALL.iter().position(|code| *code == self);
        place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or_default()
    }

    /// The code with a number.
    pub fn from_number(number: u8) -> Option<Code> {
        Code::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The word that stands in the body's `code`.
    pub fn word(self) -> &'static str {
        match self {
            Code::BadBody => "bad_body",
            Code::BadRequest => "bad_request",
            Code::NameTooLong => "name_too_long",
            Code::NotFound => "not_found",
            Code::Overloaded => "overloaded",
            Code::Retry => "retry",
            Code::NoLeader => "no_leader",
            Code::Timeout => "timeout",
            Code::OutcomeUnknown => "outcome_unknown",
            Code::StorageFull => "storage_full",
            Code::NotSealed => "not_sealed",
            Code::NoEncryptionKey => "no_encryption_key",
            Code::Undecryptable => "undecryptable",
            Code::Internal => "internal",
        }
    }

    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Code::BadBody | Code::BadRequest => 400,
            Code::NotFound => 404,
            Code::NameTooLong => 413,
            Code::Overloaded => 429,
            Code::Retry | Code::NoLeader | Code::Timeout | Code::OutcomeUnknown => 503,
            Code::NotSealed | Code::NoEncryptionKey | Code::Undecryptable => 503,
            Code::StorageFull => 507,
            Code::Internal => 500,
        }
    }

    /// Whether the same request may succeed later.
    pub fn retryable(self) -> bool {
        self.status() >= 429
    }

    /// Whether it is certain that nothing was written.
    pub fn no_side_effect(self) -> bool {
        !matches!(self, Code::Timeout | Code::OutcomeUnknown | Code::Internal)
    }
}

/// A refusal: its code, and a sentence for a person (lower case, no full stop).
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text}")]
pub struct Error {
    /// Kind of the refusal.
    pub code: Code,
    /// What failed, with which value, and the way out. Never a secret or a payload.
    pub text: String,
}

impl Error {
    /// A refusal with this code and text.
    pub fn new(code: Code, text: impl Into<String>) -> Error {
        Error { code, text: text.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_number() {
        for (number, code) in (1..).zip(Code::ALL) {
            assert_eq!((code.number(), Code::from_number(number)), (number, Some(*code)));
        }
        // The last of the enum is in the list, so none is missing.
        assert_eq!(Code::ALL.len(), Code::Internal as usize + 1);
        assert_eq!((Code::from_number(0), Code::from_number(200)), (None, None));
    }
}
