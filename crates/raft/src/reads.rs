//! Reads that are linearizable: an index that a majority stood behind after the question.
//!
//! Owns: asking the library once for all questions that wait. Leaves to others: who may ask (`group`).

use crate::NotProposed;
use crate::exchange::Exchange;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::sync::oneshot;

/// A majority that does not answer in this time is taken to be lost.
const CONFIRM: Duration = Duration::from_secs(3);

type Question = oneshot::Sender<Result<u64, NotProposed>>;

/// Questions that wait for the next round.
#[derive(Default)]
pub(crate) struct Reads(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    questions: Vec<Question>,
    asking: bool,
}

impl Exchange {
    /// The index that holds all that was answered before this call. Only on the leader.
    ///
    /// A round that is on its way began before this question, so the question joins the next one.
    pub(crate) async fn confirmed_index(self: &std::sync::Arc<Self>) -> Result<u64, NotProposed> {
        if !self.leads() {
            return Err(NotProposed::NotLeader);
        }
        let (question, answer) = oneshot::channel();
        {
            let mut waiting = self.reads.0.lock();
            waiting.questions.push(question);
            if !waiting.asking {
                waiting.asking = true;
                let exchange = self.clone();
                self.runtime.spawn(async move { exchange.ask_rounds().await });
            }
        }
        answer.await.unwrap_or(Err(NotProposed::Stopped))
    }

    async fn ask_rounds(&self) {
        loop {
            let questions = {
                let mut waiting = self.reads.0.lock();
                waiting.asking = !waiting.questions.is_empty();
                std::mem::take(&mut waiting.questions)
            };
            if questions.is_empty() {
                return;
            }
            let result = match self.raft.get() {
                Some(raft) => match tokio::time::timeout(CONFIRM, raft.get_read_log_id()).await {
                    Ok(Ok((at, _))) => Ok(at.map_or(0, |id| id.index)),
                    _ => Err(NotProposed::NotLeader),
                },
                None => Err(NotProposed::Stopped),
            };
            for question in questions {
                let _ = question.send(result);
            }
        }
    }
}
