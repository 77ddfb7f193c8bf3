//! What lies between an owner and the rest of the world: each request meets its fate here.
//!
//! Owns: carrying requests, late, twice, for nothing, with an answer that is lost, or as the last
//! thing the owner did. Leaves to others: the fates, what a request asks for (`requests`).
//!
//! A request on its way outlives its owner. A dead owner's calls never return.

use super::requests::{OwnerBucket, OwnerHost};
use super::{SimBroker, SimStore};
use parking_lot::Mutex;
use queen_core::kv::{KvOp, KvOutcome};
use queen_sink::bucket::Bucket;
use queen_sink::host::Host;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// `kv`, `kv_read`, `tick`, `put`, `get`, `head`, `begin`, `part` or `complete`.
    pub op: &'static str,
    /// Key of the object, or of the last row of the batch.
    pub key: &'a str,
}

/// When an owner dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dies {
    /// Before the request is sent.
    Before,
    /// With the request on its way.
    OnTheWay,
    /// After it took effect, before its answer.
    After,
}

/// What becomes of a request; by default it takes effect and is answered at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// Time until it arrives.
    pub there: Duration,
    /// It never arrives.
    pub lost: bool,
    /// Time from its effect to the answer.
    pub back: Duration,
    /// The answer never arrives.
    pub unanswered: bool,
    /// It arrives a second time, so much after the first.
    pub again: Option<Duration>,
    /// The owner waits no longer than this for the answer.
    pub patience: Option<Duration>,
    /// It is the owner's last.
    pub dies: Option<Dies>,
}

/// Decides the fates of a run.
pub trait Fates: Send + Sync + 'static {
    /// What becomes of the next request of an owner.
    fn fate(&self, owner: u64, call: Call<'_>) -> Fate;

    /// A KV batch of an owner was applied.
    fn applied(&self, _owner: u64, _ops: &[KvOp<'_>], _outcome: &KvOutcome) {}

    /// Bits for the sink's own chance.
    fn random(&self) -> u64;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Awake,
    Frozen,
    Dead,
}

/// The life of an owner. Those that wait for a change are woken in the order in which they came: a
/// `watch` channel would draw it.
#[derive(Debug)]
pub(super) struct State {
    life: Mutex<Life>,
    turned: Notify,
}

impl Default for State {
    fn default() -> State {
        State { life: Mutex::new(Life::Awake), turned: Notify::new() }
    }
}

impl State {
    pub(super) fn get(&self) -> Life {
        *self.life.lock()
    }

    /// Nobody comes back from the dead.
    fn turn(&self, to: Life) {
        let mut life = self.life.lock();
        if *life != Life::Dead {
            *life = to;
        }
        drop(life);
        self.turned.notify_waiters();
    }

    pub(super) async fn until(&self, wanted: Life) {
        loop {
            let turned = self.turned.notified();
            tokio::pin!(turned);
            turned.as_mut().enable();
            if self.get() == wanted {
                return;
            }
            turned.await;
        }
    }
}

/// What an owner's requests go through.
#[derive(Clone)]
pub struct Line {
    pub(super) owner: u64,
    pub(super) broker: Arc<SimBroker>,
    pub(super) store: Arc<SimStore>,
    pub(super) fates: Arc<dyn Fates>,
    pub(super) life: Arc<State>,
    pub(super) abort: Arc<Mutex<Option<AbortHandle>>>,
    pub(super) under_way: Arc<AtomicUsize>,
}

/// What is known of a request.
pub(super) enum Sent<T> {
    Answered(T),
    /// It was not carried out.
    Never,
    /// It may have been carried out.
    Unknown,
}

impl Line {
    /// The broker behind the line.
    pub fn host(&self) -> Arc<dyn Host> {
        Arc::new(OwnerHost(self.clone()))
    }

    /// The bucket behind the line.
    pub fn bucket(&self) -> Arc<dyn Bucket> {
        Arc::new(OwnerBucket(self.clone()))
    }

    pub(super) fn turn(&self, to: Life) {
        self.life.turn(to);
    }

    pub(super) fn kill(&self) {
        self.life.turn(Life::Dead);
        if let Some(abort) = &*self.abort.lock() {
            abort.abort();
        }
    }

    async fn die<T>(&self) -> T {
        self.kill();
        std::future::pending().await
    }

    /// Completes while the owner is awake.
    pub(super) async fn gate(&self) {
        self.life.until(Life::Awake).await;
    }

    pub(super) async fn send<T: Send + 'static>(
        &self,
        call: Call<'_>,
        effect: impl FnMut() -> T + Send + 'static,
    ) -> Sent<T> {
        self.gate().await;
        let fate = self.fates.fate(self.owner, call);
        if fate.dies == Some(Dies::Before) {
            return self.die().await;
        }
        let answer = self.carry(fate, effect);
        if fate.dies == Some(Dies::OnTheWay) {
            return self.die().await;
        }
        let answer = match fate.patience {
            None => answer.await.ok(),
            Some(patience) => {
                tokio::time::timeout(patience, answer).await.ok().and_then(Result::ok)
            }
        };
        if fate.dies == Some(Dies::After) {
            return self.die().await;
        }
        self.gate().await;
        match answer {
            Some(answer) if !fate.unanswered => Sent::Answered(answer),
            _ if fate.lost => Sent::Never,
            _ => Sent::Unknown,
        }
    }

    /// Carries a request on a task of its own.
    fn carry<T: Send + 'static>(
        &self,
        fate: Fate,
        mut effect: impl FnMut() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (tell, answer) = oneshot::channel();
        let Fate { unanswered, dies, .. } = fate;
        if fate == (Fate { unanswered, dies, ..Fate::default() }) {
            let _ = tell.send(effect());
            return answer;
        }
        let under_way = self.under_way.clone();
        under_way.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            tokio::time::sleep(fate.there).await;
            if !fate.lost {
                let result = effect();
                if let Some(again) = fate.again {
                    tokio::spawn(async move {
                        tokio::time::sleep(fate.back).await;
                        let _ = tell.send(result);
                    });
                    tokio::time::sleep(again).await;
                    effect();
                } else {
                    tokio::time::sleep(fate.back).await;
                    let _ = tell.send(result);
                }
            }
            under_way.fetch_sub(1, Ordering::Relaxed);
        });
        answer
    }
}
