//! Scripts: which requests are treated otherwise, how often, and how.
//!
//! Owns: matching and counting. Leaves to others: carrying it out (`serve`).

use super::{Answer, Op, Request};
use std::sync::Arc;
use std::time::Duration;

/// A hook that answers a request itself, or lets it pass.
pub type Hook = Arc<dyn Fn(&Request) -> Option<Answer> + Send + Sync>;

/// What happens to a request.
#[derive(Clone)]
pub enum Then {
    /// It is not done, and answered so.
    Answer(Answer),
    /// It is done, and answered so all the same.
    DoneAnswer(Answer),
    /// It is done as ever after this time.
    Wait(Duration),
    /// It is not done, and there is never an answer.
    Hang,
    /// It is not done, and the connection ends.
    DropBefore,
    /// It is done, and the connection ends without an answer.
    DropAfter,
    /// It is done, and its answer changed.
    Change(Arc<dyn Fn(Answer) -> Answer + Send + Sync>),
    /// The upload it belongs to is gone when it arrives.
    ForgetUpload,
}

/// Treats some requests otherwise. Made by [`Rule::on`] or [`Rule::any`], narrowed, and ended by what
/// happens; without an end it does nothing.
#[derive(Clone)]
pub struct Rule {
    ops: Vec<Op>,
    key: Option<String>,
    skip: usize,
    times: usize,
    hook: Option<Hook>,
    then: Option<Then>,
}

impl Rule {
    /// For requests of one kind.
    pub fn on(op: Op) -> Rule {
        Rule { ops: vec![op], ..Rule::any() }
    }

    /// For every request.
    pub fn any() -> Rule {
        Rule { ops: Vec::new(), key: None, skip: 0, times: usize::MAX, hook: None, then: None }
    }

    /// For requests of this kind as well.
    pub fn or(mut self, op: Op) -> Rule {
        self.ops.push(op);
        self
    }

    /// Only where the key contains this text.
    pub fn key(mut self, part: &str) -> Rule {
        self.key = Some(part.to_owned());
        self
    }

    /// Lets the first `count` that match pass.
    pub fn skip(mut self, count: usize) -> Rule {
        self.skip = count;
        self
    }

    /// Acts on `count` requests, then never again. Without it, for ever.
    pub fn times(mut self, count: usize) -> Rule {
        self.times = count;
        self
    }

    /// What happens.
    pub fn then(mut self, then: Then) -> Rule {
        self.then = Some(then);
        self
    }

    /// Not done, and answered so.
    pub fn answer(self, answer: Answer) -> Rule {
        self.then(Then::Answer(answer))
    }

    /// Not done, and answered with the XML error of S3.
    pub fn error(self, status: u16, code: &str) -> Rule {
        self.answer(Answer::error(status, code, "the test wants it so"))
    }

    /// Done, and answered so all the same.
    pub fn done_answer(self, answer: Answer) -> Rule {
        self.then(Then::DoneAnswer(answer))
    }

    /// Done, with its answer changed.
    pub fn change(self, change: impl Fn(Answer) -> Answer + Send + Sync + 'static) -> Rule {
        self.then(Then::Change(Arc::new(change)))
    }

    /// The hook answers, or leaves the request to the rules after this one. It runs under the
    /// double's lock and must not ask the double anything.
    pub fn ask(
        mut self,
        hook: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static,
    ) -> Rule {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Done after this time.
    pub fn wait(self, time: Duration) -> Rule {
        self.then(Then::Wait(time))
    }

    /// Never answered.
    pub fn hang(self) -> Rule {
        self.then(Then::Hang)
    }

    /// The connection ends before anything is done.
    pub fn drop_before(self) -> Rule {
        self.then(Then::DropBefore)
    }

    /// The connection ends after it is done.
    pub fn drop_after(self) -> Rule {
        self.then(Then::DropAfter)
    }

    /// The upload is gone when the request arrives.
    pub fn forget_upload(self) -> Rule {
        self.then(Then::ForgetUpload)
    }

    /// What this rule does to a request; takes one of its turns.
    pub(crate) fn take(&mut self, request: &Request) -> Option<Then> {
        let fits = self.ops.is_empty() || self.ops.contains(&request.op);
        let fits = fits && self.key.as_ref().is_none_or(|part| request.key.contains(part.as_str()));
        if !fits || self.times == 0 {
            return None;
        }
        let answer = match &self.hook {
            Some(hook) => Some(Then::Answer(hook(request)?)),
            None => None,
        };
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.times != usize::MAX {
            self.times -= 1;
        }
        answer.or_else(|| self.then.clone())
    }
}
