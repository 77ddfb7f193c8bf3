//! Configuring and deleting queues.

use crate::step::Step;
use crate::tables::StorageError;
use crate::{Storage, not_built};
use queen_core::command::{Configure, QueueRef};
use queen_core::reply::Reply;

/// Creates a queue or changes its options.
pub fn configure<S: Storage>(
    _step: &mut Step<'_, S>,
    _command: &Configure<'_>,
) -> Result<Reply, StorageError> {
    Ok(not_built())
}

/// Deletes a queue with everything of it.
pub fn delete<S: Storage>(
    _step: &mut Step<'_, S>,
    _command: &QueueRef<'_>,
) -> Result<Reply, StorageError> {
    Ok(not_built())
}
