//! The machine: one command after the other, each to its noun.
//!
//! Owns: the order of commands (`stamps-rise`) and their dispatch. Leaves to others: each command.

use crate::step::{Memo, Step, get};
use crate::tables::StorageError;
use crate::{
    Storage, ack, dead_letter_admin, ephemeral, group_admin, kv, lease, lock, pop, push,
    queue_admin, stream, switch, tick, timer, trace, transaction,
};
use queen_core::command::Command;
use queen_core::reply::{Event, Reply};
use queen_core::row::{LastStampRow, key};
use queen_core::{Code, Error, Stamp};

/// Applies commands to a store, and remembers decoded rows between them.
///
/// What it remembers is derived from the store: a new machine over the same store goes on alike.
#[derive(Debug, Default)]
pub struct Machine {
    memo: Memo,
    last: Option<Stamp>,
}

impl Machine {
    /// A machine that remembers nothing yet.
    pub fn new() -> Machine {
        Machine::default()
    }

    /// Applies one command under its stamp; tells in `events` what others may now want to do.
    ///
    /// A stamp that is not after the last applied one is refused and changes nothing. After an
    /// error the store may hold half a command: nothing may be applied to it any more.
    pub fn apply<S: Storage>(
        &mut self,
        command: &Command<'_>,
        stamp: Stamp,
        store: &mut S,
        events: &mut Vec<Event>,
    ) -> Result<Reply, StorageError> {
        if stamp <= self.last_stamp(store)? {
            let text = "the command's stamp is not after the last applied one, send it again";
            return Ok(Reply::Refused(Error::new(Code::Retry, text)));
        }
        self.last = Some(stamp);
        let mut step = Step { store, memo: &mut self.memo, stamp, events };
        step.put(key::META_LAST_STAMP, &LastStampRow(stamp));
        let reply = match command {
            Command::Push(push) => push::apply(&mut step, push),
            Command::Pop(pop) => pop::apply(&mut step, pop),
            Command::Ack(ack) => ack::apply(&mut step, ack),
            Command::ExtendLease(extend) => lease::extend(&mut step, extend),
            Command::ReturnLease(back) => lease::give_back(&mut step, back),
            Command::Configure(configure) => queue_admin::configure(&mut step, configure),
            Command::DeleteQueue(queue) => queue_admin::delete(&mut step, queue),
            Command::Kv(batch) => kv::apply(batch, stamp, step.store).map(Reply::Kv),
            Command::Seek(seek) => group_admin::seek(&mut step, seek),
            Command::DeleteGroup(delete) => group_admin::delete(&mut step, delete),
            Command::MoveSubscription(to) => group_admin::move_subscription(&mut step, to),
            Command::ReplayDeadLetter(replay) => dead_letter_admin::replay(&mut step, replay, None),
            Command::ReplaySealed(sealed) => {
                dead_letter_admin::replay(&mut step, &sealed.replay, Some(sealed.envelope))
            }
            Command::PurgeDeadLetters(purge) => dead_letter_admin::purge(&mut step, purge),
            Command::Tick(tick) => tick::apply(&mut step, tick),
            Command::BreakHolds(command) => tick::break_holds(&mut step, command),
            Command::Transaction(all) => transaction::apply(&mut step, all),
            Command::Locks(locks) => lock::apply(locks, stamp, step.store).map(Reply::Locks),
            Command::Timers(timers) => timer::apply(&mut step, timers),
            Command::FireTimers => timer::fire(&mut step),
            Command::SetSwitches(change) => switch::set(&mut step, change),
            Command::PopWith(with) => pop::apply_with(&mut step, with),
            Command::RecordTrace(event) => trace::record(&mut step, event),
            Command::Stream(command) => stream::apply(&mut step, command),
            Command::DeclareEphemeral(queue) => ephemeral::declare(&mut step, queue),
        };
        step.flush_segments();
        reply
    }

    /// The stamp of the last applied command; [`Stamp::ZERO`] before the first.
    pub fn last_stamp<S: Storage>(&mut self, store: &S) -> Result<Stamp, StorageError> {
        if let Some(last) = self.last {
            return Ok(last);
        }
        let row = get::<LastStampRow>(store, key::META_LAST_STAMP)?.unwrap_or_default();
        self.last = Some(row.0);
        Ok(row.0)
    }

    /// Lets a test change rows as a command would, under a stamp.
    #[cfg(test)]
    pub(crate) fn with_step<S: Storage, T>(
        &mut self,
        stamp: Stamp,
        store: &mut S,
        events: &mut Vec<Event>,
        change: impl FnOnce(&mut Step<'_, S>) -> T,
    ) -> T {
        change(&mut Step { store, memo: &mut self.memo, stamp, events })
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
