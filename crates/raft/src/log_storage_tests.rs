//! The library's own storage tests, over this log.
//!
//! Left out of its suite: `transfer_snapshot` (a snapshot here is the machine's own durable checkpoint
//! and cannot be sent), `get_initial_state_re_apply_committed` (the committed id is not saved, see the
//! module), `get_initial_state_membership_from_log_and_sm` (appends over entries that it did not
//! truncate), `get_initial_state_with_state` and `get_initial_state_log_ids` (purge what no checkpoint
//! holds, which the node never does).

use super::*;
use crate::host::RealHost;
use crate::mark::Mark;
use crate::state_machine::{Checkpoint, StateMachine};
use crate::wal::RealDisk;
use crate::{Committed, Machine, MachineFailed, RaftOptions, WalOptions};
use openraft::testing::{StoreBuilder, Suite};
use std::future::Future;
use std::sync::{Arc, OnceLock};

/// Holds nothing, and calls everything durable at once.
#[derive(Default)]
struct AtOnce(OnceLock<Checkpoint>);

impl Machine for AtOnce {
    fn applied(&self) -> Option<Vec<u8>> {
        None
    }

    fn apply(&self, entries: Vec<Committed>) -> Result<(), MachineFailed> {
        if let (Some(checkpoint), Some(last)) = (self.0.get(), entries.last()) {
            checkpoint.set(Mark::decode(&last.mark).unwrap());
        }
        Ok(())
    }

    fn leadership(&self, _: Option<u64>) {}
}

struct Builder;

impl StoreBuilder<TypeConfig, LogStorage, StateMachine, tempfile::TempDir> for Builder {
    async fn build(&self) -> Result<(tempfile::TempDir, LogStorage, StateMachine), StorageError> {
        let dir = tempfile::tempdir().unwrap();
        let options = WalOptions {
            segment_bytes: 8 << 10,
            first_segment_bytes: 5 << 10,
            cache_bytes: 100,
            ..WalOptions::default()
        };
        let options = RaftOptions { wal: options, ..RaftOptions::new(dir.path()) };
        let host = Arc::new(RealHost::new(dir.path().to_owned(), Arc::new(RealDisk)));
        let wal = host.open_journal(&options).unwrap();
        let storage = LogStorage::new(wal, host);
        let machine = Arc::new(AtOnce::default());
        let state_machine = StateMachine::new(machine.clone(), None);
        let _ = machine.0.set(state_machine.checkpoint());
        Ok((dir, storage, state_machine))
    }
}

type Tests = Suite<TypeConfig, LogStorage, StateMachine, Builder, tempfile::TempDir>;

async fn pass<Test, Passing>(test: Test)
where
    Test: FnOnce(LogStorage, StateMachine) -> Passing,
    Passing: Future<Output = Result<(), StorageError>>,
{
    let (_dir, storage, state_machine) = Builder.build().await.unwrap();
    let wal = storage.wal.clone();
    test(storage, state_machine).await.unwrap();
    wal.close();
}

#[tokio::test]
async fn the_suite_passes_for_memberships_and_the_initial_state() {
    pass(Tests::last_membership_in_log_initial).await;
    pass(Tests::last_membership_in_log).await;
    pass(Tests::last_membership_in_log_multi_step).await;
    pass(Tests::get_membership_initial).await;
    pass(Tests::get_membership_from_log_and_empty_sm).await;
    pass(Tests::get_membership_from_empty_log_and_sm).await;
    pass(Tests::get_membership_from_log_le_sm_last_applied).await;
    pass(Tests::get_membership_from_log_gt_sm_last_applied_1).await;
    pass(Tests::get_membership_from_log_gt_sm_last_applied_2).await;
    pass(Tests::get_initial_state_without_init).await;
    pass(Tests::get_initial_state_last_log_gt_sm).await;
    pass(Tests::get_initial_state_last_log_lt_sm).await;
}

#[tokio::test]
async fn the_suite_passes_for_vote_log_and_apply() {
    pass(Tests::save_vote).await;
    pass(Tests::get_log_entries).await;
    pass(Tests::limited_get_log_entries).await;
    pass(Tests::try_get_log_entry).await;
    pass(Tests::initial_logs).await;
    pass(Tests::get_log_state).await;
    pass(Tests::get_log_id).await;
    pass(Tests::last_id_in_log).await;
    pass(Tests::last_applied_state).await;
    pass(Tests::purge_logs_upto_0).await;
    pass(Tests::purge_logs_upto_5).await;
    pass(Tests::purge_logs_upto_20).await;
    pass(Tests::delete_logs_since_11).await;
    pass(Tests::delete_logs_since_0).await;
    pass(Tests::append_to_log).await;
    pass(Tests::snapshot_meta).await;
    pass(Tests::apply_single).await;
    pass(Tests::apply_multiple).await;
}
