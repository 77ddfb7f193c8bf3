//! Pushing: from groups of frames to their places in the log.

use crate::admission::Class;
use crate::broker::Broker;
use queen_core::command::{Command, Push};
use queen_core::reply::{PushedGroup, Reply};
use queen_core::{Code, Error};

impl Broker {
    /// Appends messages; answers when they are durable and visible. One result per group.
    pub async fn push(&self, push: Push<'_>) -> Result<Vec<PushedGroup>, Error> {
        let items: u64 = push.groups.iter().map(|group| u64::from(group.count)).sum();
        let bytes = push.groups.iter().map(|g| g.frames.len() + g.queue.len() + 64).sum();
        let answered = self.ask(Class::Write, &Command::Push(push), bytes).await?;
        let Reply::Push(groups) = answered.reply else {
            return Err(Error::new(Code::Internal, "a push was answered as something else"));
        };
        self.counters().push_requests.add(1);
        self.counters().push_messages.add(items);
        Ok(groups)
    }
}
