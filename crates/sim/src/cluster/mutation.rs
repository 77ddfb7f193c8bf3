//! Broken protocols, to show that a run finds them.
//!
//! Owns: their names. Leaves to others: breaking (`disk`, `broker`): always around the code that ships,
//! never in it.

/// A way to break the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A vote is answered before it is synced.
    VoteNotSynced,
    /// An append is answered before it is synced.
    LogNotSynced,
    /// The leader answers a command when it takes it.
    AnswerBeforeMajority,
    /// A node reads what it has, not what was answered.
    ReadWithoutBarrier,
    /// Commands are applied under the clock of each node.
    OwnClock,
    /// A leader takes a command that was meant for the leader of another term.
    AnyTerm,
}

impl Mutation {
    /// Every one.
    pub const ALL: [Mutation; 6] = [
        Mutation::VoteNotSynced,
        Mutation::LogNotSynced,
        Mutation::AnswerBeforeMajority,
        Mutation::ReadWithoutBarrier,
        Mutation::OwnClock,
        Mutation::AnyTerm,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::VoteNotSynced => "vote-not-synced",
            Mutation::LogNotSynced => "log-not-synced",
            Mutation::AnswerBeforeMajority => "answer-before-majority",
            Mutation::ReadWithoutBarrier => "read-without-barrier",
            Mutation::OwnClock => "own-clock",
            Mutation::AnyTerm => "any-term",
        }
    }

    /// The mutation of a name.
    pub fn from_name(name: &str) -> Option<Mutation> {
        Mutation::ALL.into_iter().find(|mutation| mutation.name() == name)
    }
}
