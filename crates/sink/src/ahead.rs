//! The window after the one on its way, planned and encoded before its turn.
//!
//! Owns: what may be encoded ahead, and when it may be used.
//! Leaves to others: the close rule (`plan`), encoding (`making`), the commit (`commit`).
//! Upholds: `window-is-final`, `loss-is-listed`.
//!
//! Nothing here has an effect, so nothing here can break the order of effects: the window's intent is
//! written after the commit of the one before, and what was encoded goes into the bucket only if that
//! intent says the same in everything that decides the bytes. Until the intent pins the records
//! retention may take them away. Then they are listed as lost with this very window, so what was
//! encoded is dropped when the window has any loss to list; and an encoder that finds them gone, or
//! fails in any other way, is as if it had not run.

use crate::context::{Context, Stop};
use crate::filling::Filling;
use crate::host::ScanFrom;
use crate::intent::{intent_of, job_of};
use crate::making::{Made, make_whole};
use crate::read::ReadError;
use crate::turns::Kind;
use crate::window::{Window, windows_tile};
use futures::future::BoxFuture;
use queen_core::sink::Intent;
use std::convert::Infallible;
use tokio::sync::Notify;

/// A window planned while the one before is on its way.
pub struct Ahead {
    /// The window.
    pub window: Window,
    encoding: Encoding,
}

enum Encoding {
    /// No thread was free for it.
    NotBegun,
    Running(Intent, BoxFuture<'static, Result<Made, ReadError>>),
    Done(Intent, Result<Made, ReadError>),
}

impl Ahead {
    /// Whether it is the next window of its queue still, `k` being its number.
    pub fn is_next(&self, context: &Context, queue: &str, k: u64) -> bool {
        context.host.queue(queue).is_some_and(|live| live.id == self.window.queue)
            && context.host.loss(queue, k).is_ok_and(|loss| loss.is_none())
    }

    /// What was encoded, if it is what the intent says.
    pub async fn made(self, intent: &Intent) -> Option<Made> {
        let (encoded, made) = match self.encoding {
            Encoding::NotBegun => return None,
            Encoding::Running(encoded, encoding) if is_same(&encoded, intent) => {
                (encoded, encoding.await)
            }
            Encoding::Running(..) => return None,
            Encoding::Done(encoded, made) => (encoded, made),
        };
        let made = made.inspect_err(|err| tracing::debug!(%err, "encoding ahead was given up"));
        made.ok().filter(|_| is_same(&encoded, intent))
    }

    /// Goes on encoding; never completes.
    async fn go_on(&mut self) -> Infallible {
        if let Encoding::Running(intent, encoding) = &mut self.encoding {
            let made = encoding.await;
            self.encoding = Encoding::Done(intent.clone(), made);
        }
        std::future::pending().await
    }
}

/// Whether two intents make the same bytes.
fn is_same(one: &Intent, other: &Intent) -> bool {
    let pinned = |intent: &Intent| Intent { at: 0, prev: String::new(), ..intent.clone() };
    pinned(one) == pinned(other)
}

/// The window that comes after one on its way.
pub struct Next<'a> {
    /// What workers share.
    pub context: &'a Context,
    /// The queue.
    pub queue: &'a str,
    /// Its number.
    pub k: u64,
    /// The window on its way.
    pub before: &'a Window,
    /// Told when the window on its way is encoded, or done.
    pub encoded: &'a Notify,
    /// Whether another window is wanted.
    pub wanted: &'a (dyn Fn() -> bool + Sync),
}

impl Next<'_> {
    /// Does `work`, which brings the window before into the bucket; beside it plans this one, and
    /// encodes it if a thread has nothing else to do. The plan is finished in any case.
    pub async fn beside<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<(T, Option<Ahead>), E> {
        tokio::pin!(work);
        let plan = self.plan();
        tokio::pin!(plan);
        let window = tokio::select! {
            biased;
            done = &mut work => {
                self.encoded.notify_one();
                let not_begun = |window| Ahead { window, encoding: Encoding::NotBegun };
                return Ok((done?, plan.await.map(not_begun)));
            }
            window = &mut plan => window,
        };
        let Some(window) = window else { return Ok((work.await?, None)) };
        let mut ahead = Ahead { window, encoding: Encoding::NotBegun };
        let done = tokio::select! {
            biased;
            done = &mut work => Some(done),
            encoding = self.begin(&window) => {
                ahead.encoding = encoding;
                None
            }
        };
        let done = match done {
            Some(done) => done,
            None => tokio::select! {
                biased;
                done = &mut work => done,
                never = ahead.go_on() => match never {},
            },
        };
        Ok((done?, Some(ahead)))
    }

    /// The window, if the log closes it already. Whatever is wrong shows again, and is told, when the
    /// window's turn comes.
    async fn plan(&self) -> Option<Window> {
        self.encoded.notified().await;
        let live = self.context.host.queue(self.queue)?;
        if !(self.wanted)() || live.id != self.before.queue {
            return None;
        }
        let window = next_closed(self.context, self.before).await.ok()??;
        windows_tile(Some(self.before.t_end), &window).ok()?;
        Some(window)
    }

    async fn begin(&self, window: &Window) -> Encoding {
        let intent = intent_of(self.context, self.queue, window, self.k, String::new());
        let Ok(job) = job_of(self.context, self.queue, &intent, Kind::Ahead) else {
            return Encoding::NotBegun;
        };
        let turn =
            self.context.turns.take(Kind::Ahead, job.working_bytes + job.manifest_bytes).await;
        Encoding::Running(intent, Box::pin(make_whole(job, turn)))
    }
}

/// The window after `before`, if the log closes it already.
async fn next_closed(context: &Context, before: &Window) -> Result<Option<Window>, Stop> {
    let mut filling = Filling::new(context, before.queue, Some(before.t_end));
    let mut from = ScanFrom::Place(before.to);
    loop {
        let page = filling.page(context, from).await?;
        if page.closed.is_some() {
            return Ok(page.closed);
        }
        if page.end {
            return Ok(filling.close_through(page.through));
        }
        from = ScanFrom::Place(page.next);
    }
}
