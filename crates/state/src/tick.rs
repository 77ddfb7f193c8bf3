//! Time.

use crate::step::Step;
use crate::tables::StorageError;
use crate::{Storage, not_built};
use queen_core::command::Tick;
use queen_core::reply::Reply;

/// Lets time pass.
pub fn apply<S: Storage>(_step: &mut Step<'_, S>, _command: &Tick) -> Result<Reply, StorageError> {
    Ok(not_built())
}
