//! Pushing: from groups of frames to their places in the log.
//!
//! Owns: the loop around a push whose queue became encrypted under it. Leaves to others: sealing
//! (`sealing`), the append (`queen-state`).

use crate::admission::Class;
use crate::broker::Broker;
use queen_core::command::{Command, Push};
use queen_core::reply::{PushedGroup, Reply};
use queen_core::{Code, Error};

/// Times that a command is sealed and proposed again.
pub(crate) const TRIES: u32 = 3;

impl Broker {
    /// Appends messages; answers when they are durable and visible. One result per group.
    pub async fn push(&self, push: Push<'_>) -> Result<Vec<PushedGroup>, Error> {
        let items: u64 = push.groups.iter().map(|group| u64::from(group.count)).sum();
        let bytes = push.groups.iter().map(|g| g.frames.len() + g.queue.len() + 64).sum();
        let mut tries = 0;
        let answered = loop {
            let (tenant, sealed) =
                (push.tenant, self.shared.sealing.seal_push(push.tenant, &push.groups)?);
            let command = match &sealed {
                Some(sealed) => Command::Push(Push { tenant, groups: sealed.groups(&push.groups) }),
                None => Command::Push(push.clone()),
            };
            match self.ask(Class::Write, &command, bytes).await {
                // The queue became encrypted since the look: what was refused was not written.
                Err(e) if e.code == Code::NotSealed && tries < TRIES => tries += 1,
                answered => break answered?,
            }
        };
        let Reply::Push(groups) = answered.reply else {
            return Err(Error::new(Code::Internal, "a push was answered as something else"));
        };
        self.counters().push_requests.add(1);
        self.counters().push_messages.add(items);
        Ok(groups)
    }
}
