//! The library's requests to other nodes.
//!
//! Owns: turning them into frames and back, their time limits. Leaves to others: connections (`net`),
//! answering (`exchange`), snapshots (`snapshots`).

use crate::exchange::Exchange;
use crate::held;
use crate::message;
use crate::net::frame::{Kind, Parts};
use crate::net::greeting::Purpose;
use crate::net::link::{Link, LinkError};
use crate::snapshots;
use crate::types::{Id, TypeConfig, Vote};
use bytes::Bytes;
use openraft::error::{Fatal, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend, RaftNetwork, RaftNetworkFactory, Snapshot};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A follower that has not synced an append in this time is asked again.
const APPEND: Duration = Duration::from_secs(15);
const VOTE: Duration = Duration::from_secs(2);
/// A peer that cannot be reached is tried again after this long.
const RETRY: Duration = Duration::from_millis(50);

type RpcError = RPCError<u64, BasicNode, RaftError<u64>>;

/// Makes clients; `None` on a node that has no listener and hence no peers.
pub(crate) struct Network(pub(crate) Option<Arc<Exchange>>);

/// Requests to one peer.
pub(crate) struct Client {
    exchange: Option<Arc<Exchange>>,
    target: u64,
    /// The newest entry that the peer said to hold.
    acked: Option<Id>,
}

fn unreachable(error: &(impl std::error::Error + 'static)) -> Unreachable {
    Unreachable::new(error)
}

impl Client {
    fn link(&self, purpose: Purpose) -> Result<Link, Unreachable> {
        let exchange = self.exchange.as_ref();
        exchange.and_then(|exchange| exchange.link(self.target, purpose)).ok_or_else(|| {
            let text = format!("the address of node {} is not known", self.target);
            unreachable(&std::io::Error::other(text))
        })
    }

    async fn ask(
        &self,
        purpose: Purpose,
        kind: Kind,
        body: Parts,
        limit: Duration,
    ) -> Result<Bytes, Unreachable> {
        let link = self.link(purpose)?;
        link.ask_parts(kind, body, limit).await.map_err(|error: LinkError| unreachable(&error))
    }

    fn read<T: serde::de::DeserializeOwned>(&self, answer: &[u8]) -> Result<T, Unreachable> {
        message::decode(answer).ok_or_else(|| {
            let text = format!("node {} gave an answer that cannot be read", self.target);
            unreachable(&std::io::Error::other(text))
        })
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: u64, _: &BasicNode) -> Client {
        Client { exchange: self.0.clone(), target, acked: None }
    }
}

impl RaftNetwork<TypeConfig> for Client {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RpcError> {
        let Some(exchange) = &self.exchange else {
            return Err(self.link(Purpose::Append).err().map_or_else(
                || RPCError::Unreachable(unreachable(&std::io::Error::other("no peers"))),
                RPCError::Unreachable,
            ));
        };
        // What is not synced here is not committed yet, whatever the library says: see `log_storage`.
        if let Some(committed) = request.leader_commit {
            let synced = exchange.wal.synced(committed.index).await;
            synced.map_err(|error| RPCError::Unreachable(unreachable(&error)))?;
        }
        let previous = request.prev_log_id;
        let last = request.entries.last().map(|entry| entry.log_id).or(previous);
        let body = exchange.encoder.append(request);
        let body = body.map_err(|error| RPCError::Unreachable(unreachable(&error)))?;
        #[cfg(feature = "planted-bugs")]
        if crate::planted("answer-before-majority") {
            // Says that the other has it before it has.
            let asked = self.ask(Purpose::Append, Kind::Append, body, APPEND);
            let soon = std::time::Duration::from_millis(20);
            return Ok(match tokio::time::timeout(soon, asked).await {
                Ok(Ok(answer)) => self.read(&answer)?,
                _ => AppendEntriesResponse::Success,
            });
        }
        let answer = self.ask(Purpose::Append, Kind::Append, body, APPEND).await?;
        let answer = self.read(&answer)?;
        match answer {
            AppendEntriesResponse::Success => self.acked = self.acked.max(last),
            AppendEntriesResponse::Conflict if previous <= self.acked => {
                let text = held::went_back(self.target);
                tracing::error!(node = self.target, "{text}");
                return Err(unreachable(&std::io::Error::other(text)).into());
            }
            _ => {}
        }
        Ok(answer)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, RpcError> {
        let body = [message::encode(&request), Bytes::new()];
        let answer = self.ask(Purpose::Control, Kind::Vote, body, VOTE).await?;
        let answer: VoteResponse<u64> = self.read(&answer)?;
        let barred =
            self.exchange.as_ref().and_then(|own| own.bars(self.target, answer.last_log_id));
        match barred {
            Some(why) => Err(unreachable(&std::io::Error::other(why)).into()),
            None => Ok(answer),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<TypeConfig>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<TypeConfig, Fatal<u64>>> {
        let link = self.link(Purpose::Snapshot)?;
        let Some(exchange) = self.exchange.clone() else { return Err(link_gone()) };
        let least = snapshot.meta.last_log_id;
        let sending = async move {
            snapshots::send(&*exchange.host, exchange.machine.clone(), &link, vote, least).await
        };
        // On the runtime of the exchange: this one's thread drives the log.
        let runtime = self.exchange.as_ref().map(|exchange| exchange.runtime.clone());
        let Some(runtime) = runtime else { return Err(link_gone()) };
        let mut task = runtime.spawn(sending);
        let sent = tokio::select! {
            sent = &mut task => sent,
            closed = cancel => {
                task.abort();
                return Err(closed.into());
            }
        };
        let sent = sent.map_err(std::io::Error::other).and_then(|sent| sent);
        let answer = sent.map_err(|error| {
            tracing::warn!(node = self.target, %error, "a snapshot did not reach a node");
            unreachable(&error)
        })?;
        Ok(self.read(&answer)?)
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(RETRY))
    }
}

fn link_gone() -> StreamingError<TypeConfig, Fatal<u64>> {
    StreamingError::Unreachable(unreachable(&std::io::Error::other("this node has no peers")))
}
