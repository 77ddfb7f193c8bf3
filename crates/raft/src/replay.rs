//! Brings the machine up to the log's end before the node takes part.
//!
//! Owns: checking that log and machine are of the same moment, applying what the machine lacks in bounded
//! steps. Leaves to others: reading (`wal`), applying (`state_machine`).
//!
//! On one voter every synced entry is committed, so all of it is applied.

use crate::mark::Mark;
use crate::state_machine::StateMachine;
use crate::types::{self, Payload};
use crate::vote::SavedVote;
use crate::wal::{EntryId, Wal};
use crate::{Machine, RaftOptions, StartError};
use std::sync::Arc;

/// Bytes of entries applied in one step, about.
const STEP_BYTES: u64 = 4 << 20;

pub(crate) fn replay(
    options: &RaftOptions,
    wal: &Wal,
    machine: Arc<dyn Machine>,
) -> Result<StateMachine, StartError> {
    if options.node_id == 0 || u32::try_from(options.node_id).is_err() {
        let id = options.node_id;
        return Err(StartError::Failed(format!("node id {id} is not in 1 to 4294967295")));
    }
    let durable = match machine.applied() {
        None => None,
        Some(bytes) => Some(Mark::decode(&bytes).ok_or_else(|| {
            let text = "the log position kept with the tables cannot be read: they were written by a \
                another release or are damaged";
            StartError::Mismatch(text.into())
        })?),
    };
    let mut at = check_positions(options, wal, durable.as_ref())?;
    let mut state_machine = StateMachine::new(machine, durable);
    let (start, began) = (at, std::time::Instant::now());
    loop {
        let entries = wal.read(at, u64::MAX, STEP_BYTES);
        let entries = entries.map_err(|error| StartError::Failed(error.to_string()))?;
        let Some(last) = entries.last() else { break };
        at = last.id.index + 1;
        let entries: Result<Vec<_>, _> = entries.into_iter().map(types::from_wal).collect();
        let entries = entries.map_err(|error| StartError::Failed(error.to_string()))?;
        for entry in &entries {
            if let Payload::Membership(members) = &entry.payload {
                check_alone(options, members.voter_ids())?;
            }
        }
        state_machine
            .apply_all(entries)
            .map_err(|error| StartError::Failed(format!("apply the log: {error}")))?;
    }
    if start < at {
        let took_ms = began.elapsed().as_millis() as u64;
        tracing::info!(from = start, to = at - 1, took_ms, "applied the log");
    }
    check_alone(options, state_machine.members().voter_ids())?;
    Ok(state_machine)
}

/// The index to apply next, if the log can go on from where the machine stands.
fn check_positions(
    options: &RaftOptions,
    wal: &Wal,
    durable: Option<&Mark>,
) -> Result<u64, StartError> {
    let (purged, last) = wal.state();
    let dir = options.dir.join("wal");
    let dir = dir.display();
    let next = durable.map_or(0, |mark| mark.id.index + 1);
    if let Some(mark) = durable {
        let behind = last.is_none_or(|last| last.index < mark.id.index);
        let known = wal.id_of(mark.id.index).map(types::from_wal_id);
        if behind || known.is_some_and(|known| known != mark.id) {
            return Err(StartError::Mismatch(format!(
                "the log in {dir} does not hold entry {}, which the tables were built from: log and tables \
                 are not of the same moment; restore the whole data directory from one copy",
                mark.id
            )));
        }
    }
    let first = purged.map_or(0, |purged| purged.index + 1);
    if first > next {
        return Err(StartError::Mismatch(format!(
            "the tables hold the log up to entry {}, but the log in {dir} begins at entry {first}: log and \
             tables are not of the same moment; restore the whole data directory from one copy",
            next as i128 - 1
        )));
    }
    Ok(next)
}

/// The vote is saved before entries of its term: one that is older, or a vote without a log, means that a
/// file was taken away.
pub(crate) fn check_vote(
    options: &RaftOptions,
    last: Option<EntryId>,
    vote: Option<SavedVote>,
) -> Result<(), StartError> {
    let voted = vote.map_or(0, |vote| vote.term);
    let what = match last {
        Some(last) if last.term > voted => {
            format!("the vote is of term {voted}, but the log holds entries of term {}", last.term)
        }
        None if vote.is_some() => format!("there is a vote of term {voted}, but the log is empty"),
        _ => return Ok(()),
    };
    Err(StartError::Mismatch(format!(
        "{what}: files of {} are missing; restore the whole data directory from one copy",
        options.dir.display()
    )))
}

fn check_alone(options: &RaftOptions, voters: impl Iterator<Item = u64>) -> Result<(), StartError> {
    let voters: Vec<u64> = voters.collect();
    if voters.is_empty() || voters == [options.node_id] {
        return Ok(());
    }
    Err(StartError::Mismatch(format!(
        "the log in {} belongs to a group whose voters are {voters:?}, this is node {}: a group has one \
         voter in this release",
        options.dir.display(),
        options.node_id
    )))
}
