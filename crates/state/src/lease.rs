//! Leases.

use crate::step::Step;
use crate::tables::StorageError;
use crate::{Storage, not_built};
use queen_core::command::{ExtendLease, ReturnLease};
use queen_core::reply::Reply;

/// Moves the end of a lease.
pub fn extend<S: Storage>(
    _step: &mut Step<'_, S>,
    _command: &ExtendLease,
) -> Result<Reply, StorageError> {
    Ok(not_built())
}

/// Gives a claim back.
pub fn give_back<S: Storage>(
    _step: &mut Step<'_, S>,
    _command: &ReturnLease,
) -> Result<Reply, StorageError> {
    Ok(not_built())
}
