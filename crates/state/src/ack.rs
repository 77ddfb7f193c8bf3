//! Settling messages.

use crate::step::Step;
use crate::tables::StorageError;
use crate::{Storage, not_built};
use queen_core::command::Ack;
use queen_core::reply::Reply;

/// Settles messages.
pub fn apply<S: Storage>(
    _step: &mut Step<'_, S>,
    _command: &Ack<'_>,
) -> Result<Reply, StorageError> {
    Ok(not_built())
}
