//! Jobs that are handed on in transactions, and whether each had its effect once and whole.
//!
//! Owns: what the clients know, and the rules: see [`Facts::judge`]. Leaves to others: the clients
//! (`transaction_clients`), who dies when.
//!
//! The effect of a job is one record in the queue of what is done, its amount moved from one account to
//! another and added to what was moved, and one more in the count: one transaction, which also acks the
//! job. Every try bears an id of its own, so no deduplication hides that a job had its effect twice.

use super::asked::{Numbered, fallen};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Accounts; all are empty at first, so they add up to nothing at any time.
pub const ACCOUNTS: usize = 4;

/// A job's partition, and its place among the jobs of this partition.
pub type JobId = (u64, u64);

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Which it is.
    pub id: JobId,
    /// The account that gives.
    pub from: usize,
    /// The account that gets.
    pub to: usize,
    /// How much.
    pub amount: i64,
}

/// How a try to hand a job on ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum End {
    /// With its effect; the count that it was told, and when.
    Done { count: i64, told: u64 },
    /// Without.
    Undone,
    /// With or without.
    Unknown,
}

/// A try to hand a job on.
#[derive(Clone, Debug, Serialize)]
pub struct Try {
    /// The id of the record among what is done.
    pub handed: String,
    /// The job.
    pub job: JobId,
    /// When it was first asked for, in microseconds since the run began.
    pub asked: u64,
    /// How it ended.
    pub end: End,
}

/// The KV rows, read all at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Books {
    /// What each account has.
    pub accounts: Vec<i64>,
    /// What was moved altogether.
    pub moved: i64,
    /// Jobs that were done.
    pub count: i64,
}

impl Books {
    /// What the rows must hold once exactly these were done.
    fn of<'a>(jobs: impl Iterator<Item = &'a Job>) -> Books {
        let mut books = Books { accounts: vec![0; ACCOUNTS], ..Books::default() };
        for Job { from, to, amount, .. } in jobs {
            books.moved += amount;
            books.count += 1;
            for (account, more) in [(from, -amount), (to, *amount)] {
                if let Some(has) = books.accounts.get_mut(*account) {
                    *has += more;
                }
            }
        }
        books
    }
}

/// A read of the rows in the middle of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    /// When it was asked for, in microseconds since the run began.
    pub asked: u64,
    /// When it was answered.
    pub told: u64,
    /// What it saw.
    pub books: Books,
}

/// What one node holds at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The rows.
    pub books: Books,
    /// The records of what is done, partition by partition, each with its id.
    pub log: Vec<(String, Job)>,
}

impl Holding {
    /// Whether rows and records speak of equally many jobs.
    pub fn settled(&self) -> bool {
        usize::try_from(self.books.count) == Ok(self.log.len())
    }
}

/// What the clients know.
#[derive(Default)]
pub struct Facts {
    /// Jobs that were pushed.
    pub sent: BTreeMap<JobId, Job>,
    /// Those whose push was answered 201.
    pub answered: BTreeSet<JobId>,
    /// Transactions.
    pub tries: Vec<Try>,
    /// Reads while faults went on.
    pub looks: Vec<Look>,
    /// What each node holds at the end.
    pub holdings: Vec<Holding>,
    /// Answers that cannot be.
    pub strange: Vec<String>,
}

impl Facts {
    /// Transactions that were answered as done.
    pub fn done(&self) -> usize {
        self.tries.iter().filter(|one| matches!(one.end, End::Done { .. })).count()
    }

    /// What is wrong.
    pub fn judge(&self) -> Vec<String> {
        let mut wrong = self.strange.clone();
        wrong.extend(self.looks.iter().filter_map(|look| self.judge_look(look)));
        wrong.extend(self.judge_counts());
        for (node, holding) in (1..).zip(&self.holdings) {
            let found = self.judge_holding(holding);
            wrong.extend(found.into_iter().map(|text| format!("{text} (node {node})")));
        }
        wrong
    }

    /// Money that comes or goes, and counts that fit nothing that was asked and answered by then.
    fn judge_look(&self, look: &Look) -> Option<String> {
        let Books { accounts, count, .. } = &look.books;
        if accounts.iter().sum::<i64>() != 0 {
            return Some(format!("money: the accounts do not add up: {look:?}"));
        }
        let before = |one: &&Try| matches!(one.end, End::Done { told, .. } if told < look.asked);
        let least = self.tries.iter().filter(before).count() as i64;
        let may = |one: &&Try| one.end != End::Undone && one.asked < look.told;
        let most = self.tries.iter().filter(may).count() as i64;
        let fits = (least..=most).contains(count);
        (!fits).then(|| format!("count: {least} to {most} were done: {look:?}"))
    }

    /// Counts that two transactions were told, or that fall.
    fn judge_counts(&self) -> Vec<String> {
        let done = |one: &Try| match one.end {
            End::Done { count, told } => {
                Some(Numbered { asked: one.asked, told, number: count.unsigned_abs() })
            }
            _ => None,
        };
        let done: Vec<Numbered> = self.tries.iter().filter_map(done).collect();
        let mut seen = BTreeSet::new();
        let twice = done.iter().filter(|one| !seen.insert(one.number));
        let mut wrong: Vec<String> =
            twice.map(|one| format!("count: two were told {}", one.number)).collect();
        let looked = |look: &Look| {
            let (asked, told) = (look.asked, look.told);
            Numbered { asked, told, number: look.books.count.unsigned_abs() }
        };
        let all: Vec<Numbered> = done.into_iter().chain(self.looks.iter().map(looked)).collect();
        for (later, earlier) in fallen(&all) {
            wrong.push(format!("count: it fell: {:?} after {:?}", all[later], all[earlier]));
        }
        wrong
    }

    fn judge_holding(&self, Holding { books, log }: &Holding) -> Vec<String> {
        let mut wrong = Vec::new();
        let tries: BTreeMap<&str, &Try> =
            self.tries.iter().map(|one| (&*one.handed, one)).collect();
        let mut last = None::<JobId>;
        for (handed, job) in log {
            match tries.get(&**handed) {
                None => wrong.push(format!("invented: {handed} was never handed on")),
                Some(Try { end: End::Undone, .. }) => {
                    wrong.push(format!("undone: {handed} was rolled back and is there"));
                }
                Some(one) if one.job != job.id || self.sent.get(&job.id) != Some(job) => {
                    wrong.push(format!("invented: {handed} is not what was handed on: {job:?}"));
                }
                Some(_) => {}
            }
            // Once each, and in their order: a lease holds all that come after it.
            if last.is_some_and(|last| last >= job.id) {
                wrong.push(format!("order: {handed}: {:?} after {last:?}", job.id));
            }
            last = Some(job.id);
        }
        let there: BTreeSet<&str> = log.iter().map(|(handed, _)| &**handed).collect();
        let lost = |one: &&Try| {
            matches!(one.end, End::Done { .. }) && !there.contains(one.handed.as_str())
        };
        let lost = self.tries.iter().filter(lost);
        wrong.extend(lost.map(|one| format!("lost: {} was answered as done", one.handed)));
        let jobs: BTreeSet<JobId> = log.iter().map(|(_, job)| job.id).collect();
        let never = self.answered.difference(&jobs);
        wrong.extend(never.map(|job| format!("lost: job {job:?} was pushed and never done")));
        let want = Books::of(log.iter().map(|(_, job)| job));
        if *books != want {
            wrong.push(format!("books: {books:?}, the records say {want:?}"));
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(number: u64) -> Job {
        Job { id: (0, number), from: 0, to: 1, amount: 10 + number as i64 }
    }

    fn handed(number: u64) -> (String, Job) {
        (format!("t{number}"), job(number))
    }

    /// Two jobs, each done by one transaction: from 10 to 20 and from 30 to 40.
    fn facts() -> Facts {
        let mut facts = Facts::default();
        for number in 0..2 {
            let asked = 10 + 20 * number;
            let end = End::Done { count: 1 + number as i64, told: asked + 10 };
            facts.tries.push(Try { handed: handed(number).0, job: (0, number), asked, end });
            facts.sent.insert((0, number), job(number));
            facts.answered.insert((0, number));
        }
        facts.holdings = vec![holding(&[handed(0), handed(1)])];
        facts
    }

    fn holding(log: &[(String, Job)]) -> Holding {
        Holding { books: Books::of(log.iter().map(|(_, job)| job)), log: log.to_vec() }
    }

    fn first_words(facts: &Facts) -> Vec<String> {
        let wrong = facts.judge();
        wrong.iter().filter_map(|text| Some(text.split(':').next()?.to_owned())).collect()
    }

    #[test]
    fn what_each_had_its_effect_once_is_right_on_every_node() {
        let mut facts = facts();
        let same = facts.holdings[0].clone();
        facts.holdings.push(same);
        assert!(facts.judge().is_empty());
        assert!(facts.holdings[0].settled());
    }

    #[test]
    fn each_rule_of_the_end_finds_its_fault() {
        let found = |log: &[(String, Job)], change: fn(&mut Facts)| {
            let mut facts = Facts { holdings: vec![holding(log)], ..facts() };
            change(&mut facts);
            first_words(&facts)
        };
        let same = |_: &mut Facts| {};
        assert_eq!(found(&[handed(0)], same), ["lost", "lost"], "the answer and the job");
        let twice = [handed(0), ("t2".to_owned(), job(0)), handed(1)];
        let again = |facts: &mut Facts| {
            let one = Try { handed: "t2".into(), job: (0, 0), asked: 15, end: End::Unknown };
            facts.tries.push(one);
        };
        assert_eq!(found(&twice, again), ["order"], "a job that was done twice");
        assert_eq!(found(&twice, same), ["invented", "order"]);
        let undone = |facts: &mut Facts| facts.tries[1].end = End::Undone;
        assert_eq!(found(&[handed(0), handed(1)], undone), ["undone"]);
        let other = Job { amount: 1, ..job(1) };
        assert_eq!(found(&[handed(0), ("t1".to_owned(), other)], same), ["invented"]);
        let half = |facts: &mut Facts| facts.holdings[0].books.accounts[1] -= 11;
        assert_eq!(found(&[handed(0), handed(1)], half), ["books"]);
    }

    #[test]
    fn a_look_sees_whole_transactions_and_all_that_were_answered() {
        let found = |asked: u64, told: u64, jobs: &[Job], change: fn(&mut Books)| {
            let mut books = Books::of(jobs.iter());
            change(&mut books);
            let looks = vec![Look { asked, told, books }];
            first_words(&Facts { looks, ..facts() })
        };
        let same = |_: &mut Books| {};
        assert!(found(21, 22, &[job(0)], same).is_empty());
        assert!(found(31, 39, &[job(0)], same).is_empty(), "the second is on its way");
        assert!(found(31, 39, &[job(0), job(1)], same).is_empty());
        assert_eq!(found(21, 22, &[], same), ["count", "count"], "stale, and it fell");
        assert_eq!(found(21, 22, &[job(0), job(1)], same), ["count"], "before it was asked for");
        assert_eq!(found(41, 42, &[job(0)], same), ["count", "count"]);
        let half = |books: &mut Books| books.accounts[0] += 1;
        assert_eq!(found(31, 39, &[job(0)], half), ["money"]);
    }

    #[test]
    fn two_that_were_told_the_same_count_are_found() {
        let mut facts = facts();
        facts.tries[1].end = End::Done { count: 1, told: 40 };
        assert_eq!(first_words(&facts), ["count"]);
    }
}
