//! Appending messages.

use crate::step::Step;
use crate::tables::StorageError;
use crate::{Storage, not_built};
use queen_core::command::Push;
use queen_core::reply::Reply;

/// Appends messages.
pub fn apply<S: Storage>(
    _step: &mut Step<'_, S>,
    _command: &Push<'_>,
) -> Result<Reply, StorageError> {
    Ok(not_built())
}
