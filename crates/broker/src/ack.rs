//! Settling messages.

use crate::admission::Class;
use crate::broker::Broker;
use queen_core::command::{Ack, Command};
use queen_core::reply::{AckOutcome, Reply};
use queen_core::{Code, Error};

impl Broker {
    /// Settles messages; one outcome per item, in order.
    pub async fn ack(&self, ack: Ack<'_>) -> Result<Vec<AckOutcome>, Error> {
        let items = ack.items.len();
        let answered = self.ask(Class::Settle, &Command::Ack(ack), 96 * items).await?;
        let Reply::Ack(outcomes) = answered.reply else {
            return Err(Error::new(Code::Internal, "an ack was answered as something else"));
        };
        self.counters().ack_requests.add(1);
        self.counters().ack_messages.add(items as u64);
        Ok(outcomes)
    }
}
