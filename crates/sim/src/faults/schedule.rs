//! Which fault comes when: drawn from the seed.
//!
//! Owns: the kinds of faults, what each needs, and the order, length and pauses of a run. Leaves to
//! others: carrying them out (`scene`). Whoever leads is known only when a fault begins: the seed draws
//! the role.

use crate::chance::Chance;
use serde::Serialize;
use std::time::Duration;

/// Something that happens to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Kind {
    /// kill -9 of the leader, later started again.
    KillLeader,
    /// kill -9 of a follower, later started again.
    KillFollower,
    /// kill -9 of the node that copies the queue, in the middle of a window.
    KillOwner,
    /// SIGSTOP of the leader, later SIGCONT.
    PauseLeader,
    /// SIGSTOP of the node that copies the queue, in the middle of a window, later SIGCONT.
    PauseOwner,
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
    /// The node that copies the queue does not reach the bucket; other faults go on meanwhile.
    CutBucket,
    /// The leader's wall clock leaps by up to five minutes, ahead or back, and stays there.
    LeapLeader,
    /// A follower's does; it may lead later.
    LeapFollower,
    /// The leader's wall clock leaps back and forth all the time.
    StrobeLeader,
    /// The one small disk is full to the last block.
    FillDisk,
    /// One node is killed and loses what it wrote and did not sync.
    LosePower,
    /// Each node is stopped and started again, one after the other.
    RestartAll,
    /// A follower leaves the members, loses its disk, and comes back as a learner and a voter.
    ReplaceFollower,
}

/// Whom a fault befalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Whoever leads.
    Leader,
    /// One of the others.
    Follower,
    /// Whoever copies the queue, once it is in the middle of a window.
    Owner,
    /// The node with the small disk.
    Small,
    /// The node whose power can be lost.
    Power,
}

/// What there must be for a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Network namespaces.
    Links,
    /// Links that can be slowed.
    SlowLinks,
    /// An S3 server.
    Bucket,
    /// Clocks that can be set.
    Clocks,
    /// A small disk under one node.
    SmallDisk,
    /// A node whose writes are watched.
    Power,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 21] = [
        Kind::KillLeader,
        Kind::KillFollower,
        Kind::KillOwner,
        Kind::PauseLeader,
        Kind::PauseOwner,
        Kind::StopLeader,
        Kind::StopFollower,
        Kind::CutLeader,
        Kind::CutFollower,
        Kind::MuteLeader,
        Kind::DeafLeader,
        Kind::CutPair,
        Kind::SlowLeader,
        Kind::CutBucket,
        Kind::LeapLeader,
        Kind::LeapFollower,
        Kind::StrobeLeader,
        Kind::FillDisk,
        Kind::LosePower,
        Kind::RestartAll,
        Kind::ReplaceFollower,
    ];

    /// The kind that bears this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| format!("{kind:?}") == name)
    }

    /// Whom it befalls.
    pub fn target(self) -> Target {
        match self {
            Kind::KillFollower
            | Kind::StopFollower
            | Kind::CutFollower
            | Kind::LeapFollower
            | Kind::ReplaceFollower => Target::Follower,
            Kind::FillDisk => Target::Small,
            Kind::LosePower => Target::Power,
            Kind::KillOwner | Kind::PauseOwner | Kind::CutBucket => Target::Owner,
            _ => Target::Leader,
        }
    }

    /// What it needs.
    pub fn needs(self) -> &'static [Need] {
        match self {
            Kind::KillLeader
            | Kind::KillFollower
            | Kind::PauseLeader
            | Kind::StopLeader
            | Kind::StopFollower
            | Kind::RestartAll
            | Kind::ReplaceFollower => &[],
            Kind::FillDisk => &[Need::SmallDisk],
            Kind::LosePower => &[Need::Power],
            Kind::KillOwner | Kind::PauseOwner => &[Need::Bucket],
            Kind::CutBucket => &[Need::Links, Need::Bucket],
            Kind::LeapLeader | Kind::LeapFollower | Kind::StrobeLeader => &[Need::Clocks],
            Kind::SlowLeader => &[Need::Links, Need::SlowLinks],
            Kind::CutLeader
            | Kind::CutFollower
            | Kind::MuteLeader
            | Kind::DeafLeader
            | Kind::CutPair => &[Need::Links],
        }
    }

    /// Milliseconds that it lasts.
    fn lasts(self, chance: &mut Chance) -> u64 {
        match self {
            Kind::PauseLeader => 2_000 + chance.below(6_000),
            // The lease of the sink is three seconds long.
            Kind::PauseOwner => 4_000 + chance.below(4_000),
            Kind::StopLeader | Kind::StopFollower => chance.below(2_000),
            // As long as it takes.
            Kind::RestartAll | Kind::ReplaceFollower => 0,
            // After half a minute a queue moves to a node that reaches the bucket.
            Kind::CutBucket => 5_000 + chance.below(45_000),
            _ => 500 + chance.below(5_500),
        }
    }
}

/// A fault, how long it lasts, and how long the cluster is left alone after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// What happens.
    pub kind: Kind,
    /// Draws which of the nodes that fit, and how far.
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

    /// How far a clock leaps, in microseconds: 10 to 300 s ahead, or back.
    pub fn leap(&self) -> i64 {
        let far = 10_000_000 + (self.which >> 1) % 290_000_000;
        if self.which & 1 == 0 { far as i64 } else { -(far as i64) }
    }

    /// Milliseconds that nothing else happens.
    fn takes(&self) -> u64 {
        self.peace + if self.kind == Kind::CutBucket { 0 } else { self.lasts }
    }
}

/// The faults of a run of so long, or each kind once. Every kind comes once before one comes again.
pub fn draw(seed: u64, length: Option<Duration>, kinds: &[Kind]) -> Vec<Fault> {
    let mut chance = Chance::new(seed);
    let (mut faults, mut at, mut bag) = (Vec::new(), 0, kinds.to_vec());
    let goes_on = |at: u64, bag: &[Kind]| match length {
        Some(length) => at < length.as_millis() as u64,
        None => !bag.is_empty(),
    };
    while goes_on(at, &bag) && !kinds.is_empty() {
        if bag.is_empty() {
            bag.extend(kinds);
        }
        let kind = bag.swap_remove(chance.below(bag.len() as u64) as usize);
        let lasts = kind.lasts(&mut chance);
        let fault = Fault { kind, which: chance.draw(), lasts, peace: 200 + chance.below(3_000) };
        at += fault.takes();
        faults.push(fault);
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

    #[test]
    fn a_seed_gives_one_schedule_and_another_seed_another() {
        assert_eq!(draw(7, MINUTE, &Kind::ALL), draw(7, MINUTE, &Kind::ALL));
        assert_ne!(draw(7, MINUTE, &Kind::ALL), draw(8, MINUTE, &Kind::ALL));
    }

    #[test]
    fn each_kind_comes_before_one_comes_again() {
        for seed in 0..50 {
            let mut once: Vec<Kind> = draw(seed, None, &Kind::ALL).iter().map(|f| f.kind).collect();
            let long = draw(seed, Some(Duration::from_secs(600)), &Kind::ALL);
            assert!(long.iter().map(|fault| fault.kind).zip(&once).all(|(a, b)| a == *b));
            once.sort();
            assert_eq!(once, Kind::ALL);
        }
    }

    #[test]
    fn clocks_leap_both_ways_and_by_more_than_any_lease() {
        let leaps: Vec<i64> = draw(3, Some(Duration::from_secs(6000)), &[Kind::LeapLeader])
            .iter()
            .map(Fault::leap)
            .collect();
        assert!(leaps.iter().all(|by| (10_000_000..300_000_000).contains(&by.abs())));
        assert!(leaps.iter().any(|by| *by > 200_000_000) && leaps.iter().any(|by| *by < 0));
    }

    #[test]
    fn no_kind_comes_that_is_not_asked_for() {
        let kinds = [Kind::KillLeader, Kind::CutBucket];
        let faults = draw(1, MINUTE, &kinds);
        assert!(faults.len() > 5 && faults.iter().all(|fault| kinds.contains(&fault.kind)));
        assert!(draw(1, MINUTE, &[]).is_empty() && draw(1, None, &[]).is_empty());
    }

    #[test]
    fn every_kind_is_found_by_its_name() {
        assert!(
            Kind::ALL.into_iter().all(|kind| Kind::from_name(&format!("{kind:?}")) == Some(kind))
        );
        assert_eq!(Kind::from_name("Flood"), None);
    }
}
