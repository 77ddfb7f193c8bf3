//! Claiming messages.

use crate::step::Step;
use crate::tables::StorageError;
use crate::{Storage, not_built};
use queen_core::command::Pop;
use queen_core::reply::Reply;

/// Claims messages.
pub fn apply<S: Storage>(
    _step: &mut Step<'_, S>,
    _command: &Pop<'_>,
) -> Result<Reply, StorageError> {
    Ok(not_built())
}
