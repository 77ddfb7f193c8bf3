//! Where clients reach a node.
//!
//! Owns: a request's way into the process and its answer's way out, either of which a crash may cut.
//! Leaves to others: what is asked (`kv_clients`, `queue_clients`).

use super::broker::Broker;
use super::forward::Failure;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(8);

/// The door of a node; open while its process runs.
#[derive(Default)]
pub struct Door(Mutex<Option<(Handle, Arc<Broker>)>>);

impl Door {
    /// A process is reached here from now on, or none.
    pub fn set(&self, process: Option<(Handle, Arc<Broker>)>) {
        let old = std::mem::replace(&mut *self.0.lock(), process);
        drop(old);
    }

    /// Asks the process; the work is done on its runtime.
    pub async fn call<T, F>(
        &self,
        work: impl FnOnce(Arc<Broker>) -> F + Send + 'static,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let process = self.0.lock().clone();
        let Some((runtime, broker)) = process else { return Err(Failure::NotDone) };
        let (answer, told) = oneshot::channel();
        runtime.spawn(async move {
            let vitals = broker.vitals.clone();
            let result = work(broker).await;
            if vitals.effect() {
                let _ = answer.send(result);
            }
        });
        match tokio::time::timeout(PATIENCE, told).await {
            Ok(Ok(result)) => result,
            _ => Err(Failure::Unknown),
        }
    }
}
