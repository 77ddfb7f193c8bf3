//! Extending leases.

use crate::admission::Class;
use crate::broker::Broker;
use queen_core::command::{Command, ExtendLease};
use queen_core::reply::{LeaseExtended, Reply};
use queen_core::{Code, Error};

impl Broker {
    /// Moves the end of a lease; never to an earlier time.
    pub async fn extend_lease(&self, extend: ExtendLease) -> Result<LeaseExtended, Error> {
        match self.submit(Class::Settle, &Command::ExtendLease(extend)).await? {
            Reply::Lease(extended) => Ok(extended),
            _ => Err(Error::new(Code::Internal, "an extension was answered as something else")),
        }
    }
}
