//! Which fault comes when: drawn from the seed.
//!
//! Owns: the kinds of faults, and the order, length and pauses of a run. Leaves to others: carrying
//! them out (`run`). Whoever leads is known only when a fault begins: the seed draws the role.

use crate::chance::Chance;
use serde::Serialize;
use std::time::Duration;

/// Something that happens to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// kill -9 of the leader, later started again.
    KillLeader,
    /// kill -9 of a follower, later started again.
    KillFollower,
    /// SIGSTOP of the leader, later SIGCONT.
    PauseLeader,
    /// Planned stop of the leader, later started again.
    StopLeader,
    /// Planned stop of a follower, later started again.
    StopFollower,
    /// The others do not hear the leader nor it them; clients reach all.
    CutLeader,
    /// The others do not hear a follower nor it them; clients reach all.
    CutFollower,
    /// The leader is not heard, and hears.
    MuteLeader,
    /// The leader does not hear, and is heard.
    DeafLeader,
    /// The leader and one follower do not hear each other; the third hears both.
    CutPair,
    /// What the leader is sent comes late, and some of it not at all.
    SlowLeader,
}

impl Kind {
    const OF_PROCESSES: [Kind; 5] = [
        Kind::KillLeader,
        Kind::KillFollower,
        Kind::PauseLeader,
        Kind::StopLeader,
        Kind::StopFollower,
    ];
    const OF_LINKS: [Kind; 5] =
        [Kind::CutLeader, Kind::CutFollower, Kind::MuteLeader, Kind::DeafLeader, Kind::CutPair];

    /// Whether it befalls the leader.
    pub fn leads(self) -> bool {
        !matches!(self, Kind::KillFollower | Kind::StopFollower | Kind::CutFollower)
    }
}

/// A fault, how long it lasts, and how long the cluster is left alone after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// What happens.
    pub kind: Kind,
    /// Which of the nodes that fit.
    pub which: u64,
    /// Milliseconds that it lasts.
    pub lasts: u64,
    /// Milliseconds of peace after it.
    pub peace: u64,
}

impl Fault {
    /// How long it lasts.
    pub fn lasting(&self) -> Duration {
        Duration::from_millis(self.lasts)
    }

    /// The peace after it.
    pub fn peaceful(&self) -> Duration {
        Duration::from_millis(self.peace)
    }
}

/// The faults of a run of so long; `links` says whether links can be cut, `slows` whether slowed.
pub fn draw(seed: u64, length: Duration, links: bool, slows: bool) -> Vec<Fault> {
    let mut chance = Chance::new(seed);
    let mut kinds = Kind::OF_PROCESSES.to_vec();
    if links {
        kinds.extend(Kind::OF_LINKS);
    }
    if slows {
        kinds.push(Kind::SlowLeader);
    }
    let (mut faults, mut at) = (Vec::new(), 0);
    while at < length.as_millis() as u64 {
        let kind = kinds[chance.below(kinds.len() as u64) as usize];
        let lasts = match kind {
            Kind::PauseLeader => 2_000 + chance.below(6_000),
            Kind::StopLeader | Kind::StopFollower => chance.below(2_000),
            _ => 500 + chance.below(5_500),
        };
        let fault = Fault { kind, which: chance.draw(), lasts, peace: 200 + chance.below(3_000) };
        at += fault.lasts + fault.peace;
        faults.push(fault);
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_seed_gives_one_schedule_and_another_seed_another() {
        assert_eq!(draw(7, MINUTE, true, true), draw(7, MINUTE, true, true));
        assert_ne!(draw(7, MINUTE, true, true), draw(8, MINUTE, true, true));
    }

    #[test]
    fn no_link_is_cut_where_that_cannot_be_done() {
        let cuts = |links| {
            let all = (0..50).flat_map(move |seed| draw(seed, MINUTE, links, false));
            all.filter(|fault| Kind::OF_LINKS.contains(&fault.kind)).count()
        };
        assert_eq!(cuts(false), 0);
        assert!(cuts(true) > 100);
    }
}
