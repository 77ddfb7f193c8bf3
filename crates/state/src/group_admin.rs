//! Seeking, deleting and moving groups.

use crate::step::Step;
use crate::tables::StorageError;
use crate::{Storage, not_built};
use queen_core::command::{DeleteGroup, MoveSubscription, Seek};
use queen_core::reply::Reply;

/// Moves cursors.
pub fn seek<S: Storage>(
    _step: &mut Step<'_, S>,
    _command: &Seek<'_>,
) -> Result<Reply, StorageError> {
    Ok(not_built())
}

/// Forgets a group.
pub fn delete<S: Storage>(
    _step: &mut Step<'_, S>,
    _command: &DeleteGroup<'_>,
) -> Result<Reply, StorageError> {
    Ok(not_built())
}

/// Moves a group's stored subscription time.
pub fn move_subscription<S: Storage>(
    _step: &mut Step<'_, S>,
    _command: &MoveSubscription<'_>,
) -> Result<Reply, StorageError> {
    Ok(not_built())
}
