//! What is left of a request's body when its answer is ready.
//!
//! Owns: reading the rest away, so that a client that is still sending gets its answer (413, 429, 404)
//! and not a broken connection, and saying that the connection ends where that would take too long.
//! Leaves to others: reading a body that is wanted (`call`).

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Most bytes that are read away; a longer rest ends the connection.
const DISCARD_BYTES_MAX: u64 = 128 << 20;
/// Longest time that a client may take to send them.
const DISCARD_TIME_MAX: Duration = Duration::from_secs(5);

/// A request's body, shared by the one who may read it and the one who must not leave it unread.
#[derive(Clone)]
pub(crate) struct Unread(Arc<Mutex<Option<Incoming>>>);

impl Unread {
    pub(crate) fn new(body: Incoming) -> Unread {
        Unread(Arc::new(Mutex::new((!body.is_end_stream()).then_some(body))))
    }

    /// The body, for its one reader; `None` when there is none or it was taken.
    pub(crate) fn take(&self) -> Option<Incoming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Puts back a body whose rest nobody wants.
    pub(crate) fn put_back(&self, body: Incoming) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
    }

    /// Reads the rest away; whether the connection can be used again. `expects`: the client waits for
    /// leave to send.
    pub(crate) async fn discard(&self, expects: bool) -> bool {
        let Some(mut body) = self.take() else { return true };
        if body.is_end_stream() {
            return true;
        }
        // Reading would tell the client to send what it asked leave for.
        if expects || body.size_hint().lower() > DISCARD_BYTES_MAX {
            return false;
        }
        let rest = async {
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return false };
                bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                if bytes > DISCARD_BYTES_MAX {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(DISCARD_TIME_MAX, rest).await.unwrap_or(false)
    }
}
