//! Transactions: the limits of their riders, sealing their pushes.
//!
//! Owns: what a transaction may hold, and the loop around one whose queue became encrypted under it.
//! Leaves to others: sealing (`sealing`), limits of riders (`kv`, `timer`), the rules (`queen_state`), JSON
//! (`queen-http`).

use crate::Broker;
use crate::admission::Class;
use crate::kv::{self, KvError};
use crate::push::TRIES;
use crate::queues::unexpected;
use crate::timer;
use queen_core::Code;
use queen_core::command::Command;
use queen_core::kv::KvOp;
use queen_core::reply::Reply;
use queen_core::timer::TimerOp;
use queen_core::transaction::{Rider, RiderResult, Transaction, TransactionOutcome};

impl Broker {
    /// Applies all of a transaction or nothing; answers when it is durable and visible.
    ///
    /// Errors: a KV operation that is not taken in a transaction; those of [`Broker::submit`].
    pub async fn transaction(
        &self,
        transaction: &Transaction<'_>,
    ) -> Result<TransactionOutcome, KvError> {
        kv::check_riders(operations(transaction))?;
        timer::check(timers(transaction))?;
        let class = class(transaction);
        let mut tries = 0;
        let answered = loop {
            let (sealing, tenant) = (&self.shared.sealing, transaction.tenant);
            let sealed = sealing.seal_push(tenant, &transaction.pushes)?;
            let envelopes = sealing.seal_timers(tenant, timers(transaction))?;
            let mut sent = transaction.clone();
            let set = sent.riders.iter_mut().filter_map(|rider| match rider {
                Rider::Timer(op) => Some(op),
                Rider::Kv(_) | Rider::Position(_) => None,
            });
            timer::put_envelopes(set, &envelopes);
            if let Some(sealed) = &sealed {
                sent.pushes = sealed.groups(&transaction.pushes);
            }
            match self.ask(class, &Command::Transaction(sent), size_hint(transaction)).await {
                // The queue became encrypted since the look: what was refused was not written.
                Err(e) if e.code == Code::NotSealed && tries < TRIES => tries += 1,
                answered => break answered?,
            }
        };
        let Reply::Transaction(outcome) = answered.reply else {
            return Err(unexpected(&answered.reply).into());
        };
        self.count(transaction, &outcome);
        Ok(outcome)
    }

    fn count(&self, transaction: &Transaction<'_>, outcome: &TransactionOutcome) {
        let counters = self.counters();
        if outcome.result.is_err() {
            counters.transactions_rolled_back.add(1);
            return;
        }
        counters.transactions_committed.add(1);
        let pushed = transaction.pushes.iter().map(|group| u64::from(group.count)).sum();
        counters.push_messages.add(pushed);
        let acked = transaction.acks.iter().map(|group| group.items.len() as u64).sum();
        counters.ack_messages.add(acked);
        if let Ok(done) = &outcome.result {
            timer::count(
                counters,
                done.riders.iter().filter_map(|rider| match rider {
                    RiderResult::Timer(result) => Some(result),
                    RiderResult::Kv(_) | RiderResult::Position(_) => None,
                }),
            );
        }
    }
}

fn timers<'t, 'a>(
    transaction: &'t Transaction<'a>,
) -> impl Iterator<Item = &'t TimerOp<'a>> + Clone {
    transaction.riders.iter().filter_map(|rider| match rider {
        Rider::Timer(op) => Some(op),
        Rider::Kv(_) | Rider::Position(_) => None,
    })
}

fn operations<'t, 'a>(
    transaction: &'t Transaction<'a>,
) -> impl Iterator<Item = &'t KvOp<'a>> + Clone {
    transaction.riders.iter().filter_map(|rider| match rider {
        Rider::Kv(op) => Some(op),
        Rider::Position(_) | Rider::Timer(_) => None,
    })
}

/// What settles and deletes goes on while the disk is full.
fn class(transaction: &Transaction<'_>) -> Class {
    let grows = !transaction.pushes.is_empty()
        || operations(transaction).any(kv::grows)
        || timers(transaction).any(timer::grows);
    if grows { Class::Write } else { Class::Settle }
}

/// Bytes of the command, about.
fn size_hint(transaction: &Transaction<'_>) -> usize {
    let pushes = transaction.pushes.iter().map(|g| g.frames.len() + g.queue.len() + 64);
    let acks = transaction.acks.iter().map(|group| 96 * group.items.len());
    let timers = timers(transaction).map(timer::size_hint);
    pushes.chain(acks).chain(timers).sum::<usize>() + 256 * transaction.riders.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use queen_core::TenantId;
    use queen_core::command::PushGroup;
    use queen_core::kv::KvOpKind;

    fn of(kinds: Vec<KvOpKind<'_>>) -> Transaction<'_> {
        let rider = |kind| Rider::Kv(KvOp { ns: "shop", kind, required: false });
        Transaction {
            tenant: TenantId::DEFAULT,
            acks: Vec::new(),
            pushes: Vec::new(),
            riders: kinds.into_iter().map(rider).collect(),
        }
    }

    fn put(key: &str) -> KvOpKind<'_> {
        KvOpKind::Put { key, value: "1", ttl_seconds: None, expect: None }
    }

    #[test]
    fn a_transaction_takes_fewer_operations_than_a_batch_and_no_listing() {
        let refused = |kinds| kv::check_riders(operations(&of(kinds))).map_err(|no| no.reason);
        let get = KvOpKind::Get { key: "k" };
        assert_eq!(refused(vec![get.clone(); 64]), Ok(()));
        assert_eq!(refused(vec![get; 65]), Err("kv_too_many_operations"));
        let many = |count| vec![KvOpKind::GetMany { keys: vec!["k"; count] }];
        assert_eq!((refused(many(256)), refused(many(257))), (Ok(()), Err("kv_too_many_keys")));
        assert_eq!(refused(vec![put("a"), put("a")]), Err("kv_key_written_twice"));
        let list = KvOpKind::GetPrefix { prefix: "p", after: None, limit: 1, keys_only: true };
        assert_eq!(refused(vec![list]), Err("kv_get_prefix_not_allowed_in_transaction"));
    }

    #[test]
    fn only_what_grows_waits_for_disk_space() {
        let check = KvOpKind::Check { key: "k", expect: 0 };
        assert_eq!(class(&of(vec![check.clone()])), Class::Settle);
        assert_eq!(class(&of(vec![check, put("k")])), Class::Write);
        let mut pushes = of(Vec::new());
        pushes.pushes.push(PushGroup {
            queue: "q",
            partition: "p",
            count: 1,
            has_transaction_ids: false,
            text_bytes: 38,
            frames: b"\x00\x02{}",
        });
        assert_eq!(class(&pushes), Class::Write);
    }
}
