//! Locks and semaphores, and whether two ever had the same permit at once.
//!
//! Owns: what the clients know, and the rules: see [`Facts::judge`]. Leaves to others: the clients
//! (`lock_clients`), when a clock is set (`scene`).
//!
//! When a permit is granted, that was between question and answer. So its holder has it at least from the
//! answer until the permit's length after the question of the last grant, on the log clock, or until it
//! asked for the release. Who had two permits' worth of that time had one too many.

use super::asked::{Numbered, fallen};
use serde::Serialize;
use std::collections::BTreeMap;

/// A permit: the lock's name and the slot.
pub type Permit = (String, u64);

/// An acquire or a renewal that was granted. Times in microseconds since the run began.
#[derive(Clone, Debug, Serialize)]
pub struct Grant {
    /// What was granted.
    pub permit: Permit,
    /// To whom.
    pub owner: String,
    /// Its fencing token.
    pub token: u64,
    /// It was first asked for.
    pub asked: u64,
    /// It was answered.
    pub told: u64,
}

/// The time for which an owner certainly has a permit.
#[derive(Clone, Debug, Serialize)]
pub struct Hold {
    /// What it has.
    pub permit: Permit,
    /// Who has it.
    pub owner: String,
    /// From the answer to its acquire.
    pub from: u64,
    /// Until then.
    pub until: u64,
}

/// A write under a guard.
#[derive(Clone, Debug, Serialize)]
pub struct Write {
    /// The permit of the guard.
    pub permit: Permit,
    /// Whose it was.
    pub owner: String,
    /// The token of the guard.
    pub token: u64,
    /// It was asked for.
    pub asked: u64,
    /// It was answered.
    pub told: u64,
    /// Whether it took effect.
    pub passed: bool,
}

/// What the clients know.
#[derive(Debug, Default)]
pub struct Facts {
    /// Grants.
    pub grants: Vec<Grant>,
    /// Holds.
    pub holds: Vec<Hold>,
    /// Writes that were answered.
    pub writes: Vec<Write>,
    /// Answers that cannot be.
    pub strange: Vec<String>,
}

impl Facts {
    /// What is wrong.
    pub fn judge(&self) -> Vec<String> {
        let mut wrong = self.strange.clone();
        wrong.extend(self.two_holders());
        wrong.extend(self.tokens());
        wrong.extend(self.writes.iter().filter_map(|write| self.judge_write(write)));
        wrong
    }

    fn two_holders(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut by_permit: BTreeMap<&Permit, Vec<&Hold>> = BTreeMap::new();
        for hold in self.holds.iter().filter(|hold| hold.from <= hold.until) {
            by_permit.entry(&hold.permit).or_default().push(hold);
        }
        for mut holds in by_permit.into_values() {
            holds.sort_by_key(|hold| hold.from);
            let mut last = None::<&Hold>;
            for hold in holds {
                if let Some(before) = last.filter(|before| before.until >= hold.from) {
                    wrong.push(format!("two holders: {hold:?} while {before:?}"));
                }
                last = last.filter(|before| before.until > hold.until).or(Some(hold));
            }
        }
        wrong
    }

    /// Tokens of a lock that fall, or that two owners were given.
    fn tokens(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut by_lock: BTreeMap<&str, Vec<&Grant>> = BTreeMap::new();
        let mut owners: BTreeMap<(&Permit, u64), &str> = BTreeMap::new();
        for grant in &self.grants {
            by_lock.entry(&grant.permit.0).or_default().push(grant);
            let owner = owners.entry((&grant.permit, grant.token)).or_insert(&grant.owner);
            if **owner != grant.owner {
                wrong.push(format!("token: {owner} was given it too: {grant:?}"));
            }
        }
        for grants in by_lock.into_values() {
            let numbered = |grant: &&Grant| {
                let Grant { asked, told, token, .. } = **grant;
                Numbered { asked, told, number: token }
            };
            let tokens: Vec<Numbered> = grants.iter().map(numbered).collect();
            let falls = fallen(&tokens).into_iter();
            wrong.extend(falls.map(|(later, earlier)| {
                format!("token: it fell: {:?} after {:?}", grants[later], grants[earlier])
            }));
        }
        wrong
    }

    /// A write that took effect when its permit was another's, or was refused when it was not.
    fn judge_write(&self, write: &Write) -> Option<String> {
        let later = |grant: &&Grant| {
            grant.permit == write.permit && grant.token > write.token && grant.told < write.asked
        };
        let held = |hold: &&Hold| {
            let own = hold.owner == write.owner;
            let all_the_time = hold.from <= write.asked && write.told <= hold.until;
            hold.permit == write.permit && own != write.passed && all_the_time
        };
        if write.passed
            && let Some(grant) = self.grants.iter().find(later)
        {
            return Some(format!("fence: {write:?} took effect after {grant:?}"));
        }
        let hold = self.holds.iter().find(held)?;
        let what = if write.passed { "took effect" } else { "was refused" };
        Some(format!("fence: {write:?} {what} while {hold:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit() -> Permit {
        ("door".to_owned(), 0)
    }

    fn hold(owner: &str, from: u64, until: u64) -> Hold {
        Hold { permit: permit(), owner: owner.to_owned(), from, until }
    }

    fn grant(owner: &str, token: u64, asked: u64, told: u64) -> Grant {
        Grant { permit: permit(), owner: owner.to_owned(), token, asked, told }
    }

    fn first_words(facts: &Facts) -> Vec<String> {
        let wrong = facts.judge();
        wrong.iter().filter_map(|text| Some(text.split(':').next()?.to_owned())).collect()
    }

    #[test]
    fn two_that_have_a_permit_at_once_are_found() {
        let found = |holds: &[Hold]| {
            first_words(&Facts { holds: holds.to_vec(), ..Facts::default() }).len()
        };
        assert_eq!(found(&[hold("a", 0, 5), hold("b", 6, 9)]), 0);
        assert_eq!(found(&[hold("b", 4, 9), hold("a", 0, 5)]), 1);
        assert_eq!(found(&[hold("a", 0, 9), hold("b", 2, 3), hold("c", 5, 6)]), 2);
        assert_eq!(found(&[hold("a", 0, 9), hold("b", 5, 4)]), 0, "never certainly had");
        let beside = Hold { permit: ("door".to_owned(), 1), ..hold("b", 4, 9) };
        assert_eq!(found(&[hold("a", 0, 5), beside]), 0);
    }

    #[test]
    fn a_token_that_falls_or_has_two_owners_is_found() {
        let found =
            |grants: &[Grant]| first_words(&Facts { grants: grants.to_vec(), ..Facts::default() });
        assert!(found(&[grant("a", 1, 0, 1), grant("a", 2, 2, 3), grant("b", 3, 4, 5)]).is_empty());
        assert!(found(&[grant("a", 2, 0, 5), grant("b", 1, 2, 3)]).is_empty(), "at once");
        assert_eq!(found(&[grant("a", 2, 0, 1), grant("b", 1, 2, 3)]), ["token"]);
        assert_eq!(found(&[grant("a", 2, 0, 1), grant("b", 2, 0, 3)]), ["token"]);
        let other = Grant { permit: ("gate".to_owned(), 0), ..grant("b", 1, 2, 3) };
        assert!(found(&[grant("a", 2, 0, 1), other]).is_empty());
    }

    #[test]
    fn a_write_passes_as_long_as_its_permit_is_its_own_and_no_longer() {
        let found = |token: u64, asked: u64, told: u64, passed: bool| {
            let owner = "a".to_owned();
            let write = Write { permit: permit(), owner, token, asked, told, passed };
            let grants = vec![grant("a", 1, 0, 1), grant("b", 2, 10, 11)];
            let holds = vec![hold("a", 1, 8), hold("b", 11, 18)];
            first_words(&Facts { grants, holds, writes: vec![write], ..Facts::default() })
        };
        assert!(found(1, 2, 3, true).is_empty());
        assert_eq!(found(1, 2, 3, false), ["fence"], "refused while it had it");
        assert!(found(1, 7, 9, false).is_empty(), "it may have lost it by then");
        assert!(found(1, 9, 12, true).is_empty(), "it may have been before");
        assert_eq!(found(1, 12, 13, true), ["fence"]);
        assert_eq!(found(3, 12, 13, true), ["fence"], "while another had it");
        assert!(found(1, 12, 13, false).is_empty());
    }
}
