//! Brings the machine up to the log's end before the node takes part.
//!
//! Owns: checking that log and machine are of the same moment, applying what the machine lacks and is known
//! to be committed, in bounded steps. Leaves to others: reading (`wal`), applying (`state_machine`).
//!
//! Where the newest membership in the log has this node as its only voter, every synced entry is
//! committed: that membership could only be written once the ones before it were. So all of it is
//! applied. Otherwise entries beyond what the machine holds may still be replaced, and wait for a leader.

use crate::host::{Host, Journal, SavedVote};
use crate::mark::Mark;
use crate::state_machine::StateMachine;
use crate::types::{self, Entry, Members, Payload};
use crate::wal::EntryId;
use crate::{Machine, RaftOptions, StartError};
use std::io;
use std::sync::Arc;

/// Bytes of entries applied in one step, about.
const STEP_BYTES: u64 = 4 << 20;

/// A machine that holds all that is known to be committed.
pub(crate) struct Replayed {
    pub(crate) state_machine: StateMachine,
    /// This node is the only voter of its group.
    pub(crate) alone: bool,
}

/// What the machine holds.
pub(crate) fn durable(
    options: &RaftOptions,
    machine: &dyn Machine,
) -> Result<Option<Mark>, StartError> {
    if options.node_id == 0 || u32::try_from(options.node_id).is_err() {
        let id = options.node_id;
        return Err(StartError::Failed(format!("node id {id} is not in 1 to 4294967295")));
    }
    let Some(bytes) = machine.applied() else { return Ok(None) };
    Mark::decode(&bytes).map(Some).ok_or_else(|| {
        let text = "the log position kept with the tables cannot be read: they were written by another \
            release or are damaged";
        StartError::Mismatch(text.into())
    })
}

pub(crate) fn replay(
    options: &RaftOptions,
    host: &Arc<dyn Host>,
    wal: &Arc<dyn Journal>,
    machine: Arc<dyn Machine>,
    durable: Option<Mark>,
) -> Result<Replayed, StartError> {
    let mut at = check_positions(options, &**wal, durable.as_ref())?;
    let mut state_machine = StateMachine::new(machine, durable);
    if options.cluster.is_some() {
        state_machine.run_beside(host.clone(), wal.clone());
        let newest = newest_members(&**wal, at)?;
        let newest = newest.as_ref().unwrap_or(state_machine.members().membership());
        let voters: Vec<u64> = newest.voter_ids().collect();
        if voters != [options.node_id] {
            return Ok(Replayed { state_machine, alone: false });
        }
    }
    let (start, began) = (at, std::time::Instant::now());
    loop {
        let entries = read(&**wal, at)?;
        let Some(last) = entries.last() else { break };
        at = last.log_id.index + 1;
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
    Ok(Replayed { state_machine, alone: true })
}

/// Some entries from `at` on; none behind the last.
fn read(wal: &dyn Journal, at: u64) -> Result<Vec<Entry>, StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::Failed(error.to_string());
    let entries = wal.read(at, u64::MAX, STEP_BYTES).map_err(|error| failed(&error))?;
    let entries: Result<Vec<_>, _> = entries.into_iter().map(types::from_wal).collect();
    entries.map_err(|error| failed(&error))
}

/// The last membership in the log at or behind `at`.
fn newest_members(wal: &dyn Journal, mut at: u64) -> Result<Option<Members>, StartError> {
    let mut newest = None;
    loop {
        let entries = read(wal, at)?;
        let Some(last) = entries.last() else { return Ok(newest) };
        at = last.log_id.index + 1;
        for entry in entries {
            if let Payload::Membership(members) = entry.payload {
                newest = Some(members);
            }
        }
    }
}

/// Does the last step of a snapshot that was being installed when the process ended, if the machine holds
/// it: the log starts anew behind it.
pub(crate) async fn finish_snapshot(
    options: &RaftOptions,
    host: &dyn Host,
    wal: &dyn Journal,
    durable: Option<&Mark>,
) -> Result<(), StartError> {
    if !host.was_installing() {
        return Ok(());
    }
    let io_error = |source| StartError::Io {
        action: "finish a snapshot in",
        path: options.dir.clone(),
        source,
    };
    if let Some(mark) = durable
        && wal.id_of(mark.id.index).map(types::from_wal_id) != Some(mark.id)
    {
        tracing::info!(upto = mark.id.index, "the log starts anew behind a snapshot");
        let after =
            types::to_wal_id(&mark.id).map_err(|error| io_error(io::Error::other(error)))?;
        wal.purge(after).await.map_err(io_error)?;
    }
    host.set_installing(false).map_err(io_error)
}

/// The index to apply next, if the log can go on from where the machine stands.
fn check_positions(
    options: &RaftOptions,
    wal: &dyn Journal,
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
        // In a group a node may vote before it receives anything.
        None if vote.is_some() && options.cluster.is_none() => {
            format!("there is a vote of term {voted}, but the log is empty")
        }
        _ => return Ok(()),
    };
    Err(StartError::Mismatch(format!(
        "{what}: files of {} are missing; restore the whole data directory from one copy",
        options.dir.display()
    )))
}

/// Without a raft listener a node can only be alone.
fn check_alone(options: &RaftOptions, voters: impl Iterator<Item = u64>) -> Result<(), StartError> {
    let voters: Vec<u64> = voters.collect();
    if options.cluster.is_some() || voters.is_empty() || voters == [options.node_id] {
        return Ok(());
    }
    Err(StartError::Mismatch(format!(
        "the log in {} belongs to a group whose voters are {voters:?}, this is node {}: start it \
         with its raft listener and the group's peers",
        options.dir.display(),
        options.node_id
    )))
}
