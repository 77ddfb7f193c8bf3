//! Replaying and purging dead letters.

use crate::step::Step;
use crate::tables::StorageError;
use crate::{Storage, not_built};
use queen_core::command::{PurgeDeadLetters, ReplayDeadLetter};
use queen_core::reply::Reply;

/// Pushes a copy of a dead letter and removes it.
pub fn replay<S: Storage>(
    _step: &mut Step<'_, S>,
    _command: &ReplayDeadLetter<'_>,
) -> Result<Reply, StorageError> {
    Ok(not_built())
}

/// Removes dead letters.
pub fn purge<S: Storage>(
    _step: &mut Step<'_, S>,
    _command: &PurgeDeadLetters<'_>,
) -> Result<Reply, StorageError> {
    Ok(not_built())
}
