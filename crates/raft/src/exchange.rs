//! What this node says to the others and hears from them.
//!
//! Owns: the links to peers, answering their requests, whose disk is whose, when the leader was last
//! heard. Leaves to others: connections (`net`), elections (`pacing`), the log (the library).
//! Upholds: `a-wiped-disk-has-no-vote`: a node whose disk is not the one in the membership is spoken to
//! by nobody, so it can neither vote nor count as a holder of entries until it is added again. A disk
//! that went back in time takes another name once its node is told.

use crate::address::Address;
use crate::cluster::{ClusterOptions, Leader, Peer, Service};
use crate::gather::Gather;
use crate::held::{Holdings, wrong_disk};
use crate::host::{Dial, Host, Journal, Stream};
use crate::machine::Machine;
use crate::message::{self, Change, Encoder};
use crate::net::frame::Kind;
use crate::net::greeting::{self, Caller, DiskId, Listener, Purpose, Verdict};
use crate::net::link::Link;
use crate::net::listener::{Answered, Answers, Held};
use crate::net::stream::Unmet;
use crate::reads::Reads;
use crate::snapshots::Arriving;
use crate::types::TypeConfig;
use aws_lc_rs::hmac;
use bytes::Bytes;
use futures::future::BoxFuture;
use openraft::raft::VoteRequest;
use openraft::{BasicNode, Raft};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

/// Bytes of requests to the leader that are on their way from this node, at most.
pub(crate) const ASKED_BYTES: usize = 256 << 20;

/// A stopping node without a majority gives up what it proposed after this long.
const STOP: std::time::Duration = std::time::Duration::from_secs(3);

/// See the module's header.
pub(crate) struct Exchange {
    pub(crate) me: u64,
    /// Its name now; another one once the disk is found to have gone back in time.
    pub(crate) disk_now: Mutex<DiskId>,
    pub(crate) holdings: Holdings,
    pub(crate) options: ClusterOptions,
    pub(crate) host: Arc<dyn Host>,
    dial: Arc<dyn Dial>,
    pub(crate) token: hmac::Key,
    /// The runtime of all that is done here, but for appends.
    pub(crate) runtime: Handle,
    /// The runtime of the library, which appends come from and go to: between it and their connections
    /// no thread wakes another.
    pub(crate) core: Handle,
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) wal: Arc<dyn Journal>,
    pub(crate) gather: Arc<Gather>,
    pub(crate) raft: OnceLock<Raft<TypeConfig>>,
    pub(crate) service: Arc<OnceLock<Arc<dyn Service>>>,
    pub(crate) leader: Arc<watch::Sender<Option<Leader>>>,
    pub(crate) encoder: Encoder,
    pub(crate) reads: Reads,
    pub(crate) asked: Semaphore,
    pub(crate) heard: Mutex<Heard>,
    /// When each other node last answered this one's pulse.
    pub(crate) acks: Mutex<BTreeMap<u64, Instant>>,
    /// Rung at each answer to a pulse.
    pub(crate) answered: Notify,
    /// Whether a majority has answered lately; true on a node that does not lead.
    pub(crate) quorum: watch::Sender<bool>,
    /// The lead is being given away.
    stepping_down: AtomicBool,
    /// Index, plus one, up to which a leader said that entries are committed.
    told_committed: AtomicU64,
    /// Why this node takes no part.
    pub(crate) refused: watch::Sender<Option<String>>,
    links: Mutex<HashMap<u64, Links>>,
    unmet: Unmet,
    weak: Weak<Exchange>,
    /// Neither hears nor reaches anybody.
    #[cfg(test)]
    isolated: AtomicBool,
}

/// The links to one node, and where they lead.
struct Links {
    address: Address,
    by_purpose: HashMap<Purpose, Link>,
}

/// The last word of a leader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    pub(crate) at: Instant,
    pub(crate) leader: Option<u64>,
    /// The connection over which the leader's pulses came has ended.
    pub(crate) lost: bool,
}

/// Parts that an [`Exchange`] is made of.
pub(crate) struct Parts {
    pub(crate) me: u64,
    pub(crate) disk: DiskId,
    pub(crate) options: ClusterOptions,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) runtime: Handle,
    pub(crate) core: Handle,
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) wal: Arc<dyn Journal>,
    pub(crate) gather: Arc<Gather>,
    pub(crate) service: Arc<OnceLock<Arc<dyn Service>>>,
    pub(crate) leader: Arc<watch::Sender<Option<Leader>>>,
}

impl Exchange {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts { me, disk, options, host, dial, runtime, core, .. } = parts;
        let Parts { machine, wal, gather, service, leader, .. } = parts;
        Arc::new_cyclic(|weak| Self {
            me,
            disk_now: Mutex::new(disk),
            holdings: Holdings::default(),
            token: hmac::Key::new(hmac::HMAC_SHA256, options.token.as_bytes()),
            options,
            host,
            dial,
            runtime,
            core,
            machine,
            wal,
            gather,
            raft: OnceLock::new(),
            service,
            leader,
            encoder: Encoder::default(),
            reads: Reads::default(),
            asked: Semaphore::new(ASKED_BYTES),
            heard: Mutex::new(Heard { at: Instant::now(), leader: None, lost: false }),
            acks: Mutex::default(),
            answered: Notify::new(),
            quorum: watch::channel(true).0,
            stepping_down: AtomicBool::new(false),
            told_committed: AtomicU64::new(0),
            refused: watch::channel(None).0,
            links: Mutex::default(),
            unmet: Unmet::default(),
            weak: weak.clone(),
            #[cfg(test)]
            isolated: AtomicBool::new(false),
        })
    }

    /// This node's own entry in a membership.
    pub(crate) fn own_address(&self) -> Address {
        let peer = self.options.peers.get(&self.me).cloned();
        let listen = || Peer { raft: self.options.listen.to_string(), http: String::new() };
        Address { peer: peer.unwrap_or_else(listen), disk: self.disk() }
    }

    /// The name of this node's disk.
    pub(crate) fn disk(&self) -> DiskId {
        *self.disk_now.lock()
    }

    /// Where `id` is, by the newest membership in the log, else by the options.
    pub(crate) fn address(&self, id: u64) -> Option<Address> {
        let known = self.raft.get().and_then(|raft| {
            let metrics = raft.server_metrics();
            let metrics = metrics.borrow();
            metrics.membership_config.membership().get_node(&id).map(Address::of)
        });
        let founding = || {
            let peer = self.options.peers.get(&id)?.clone();
            Some(Address { peer, disk: [0; 16] })
        };
        known.filter(|address| !address.peer.raft.is_empty()).or_else(founding)
    }

    /// Every other node that this one knows of.
    pub(crate) fn others(&self) -> Vec<u64> {
        let Some(raft) = self.raft.get() else { return Vec::new() };
        let metrics = raft.server_metrics();
        let metrics = metrics.borrow();
        let nodes = metrics.membership_config.membership().nodes();
        nodes.map(|(id, _)| *id).filter(|id| *id != self.me).collect()
    }

    /// The link to `id`, made when there is none to where it is now.
    pub(crate) fn link(&self, id: u64, purpose: Purpose) -> Option<Link> {
        let address = self.address(id)?;
        let mut links = self.links.lock();
        let none = || Links { address: address.clone(), by_purpose: HashMap::new() };
        let of_node = links.entry(id).or_insert_with(none);
        if of_node.address != address {
            *of_node = none();
        }
        let link = of_node.by_purpose.entry(purpose).or_insert_with(|| {
            let weak = self.weak.clone();
            let connect = Box::new(move || {
                let (weak, address) = (weak.clone(), address.clone());
                let connecting: BoxFuture<'static, _> = Box::pin(async move {
                    let exchange = weak.upgrade();
                    let exchange = exchange.ok_or_else(|| io::Error::other("stopping"))?;
                    exchange.connect(id, &address, purpose).await.map(|(stream, _)| stream)
                });
                connecting
            });
            let _runtime = self.home(purpose).enter();
            Link::new(purpose, connect)
        });
        Some(link.clone())
    }

    /// The runtime of connections for `purpose`.
    fn home(&self, purpose: Purpose) -> &Handle {
        if purpose == Purpose::Append { &self.core } else { &self.runtime }
    }

    /// Connects to a node and greets it.
    pub(crate) async fn connect(
        &self,
        id: u64,
        address: &Address,
        purpose: Purpose,
    ) -> io::Result<(Box<dyn Stream>, Listener)> {
        #[cfg(test)]
        if self.isolated.load(Ordering::Acquire) {
            return Err(io::Error::other("isolated"));
        }
        let dialled = self.dial.dial(address.peer.raft.clone()).await;
        self.unmet.note(id, dialled.as_ref().err());
        let mut stream = dialled?;
        let caller =
            Caller { purpose, from: self.me, to: id, disk: self.disk(), expects: address.disk };
        let (listener, verdict) = greeting::call(&mut stream, &self.token, &caller).await?;
        match verdict {
            Verdict::WrongDisk(why) => {
                self.refuse(&why);
                return Err(io::Error::other(why));
            }
            Verdict::Refused(why) => return Err(io::Error::other(why)),
            Verdict::Welcome => {}
        }
        if listener.node != id {
            return Err(io::Error::other(format!("node {} answers there", listener.node)));
        }
        if listener.knows == self.disk() && listener.in_group {
            self.known_again(id);
        }
        Ok((stream, listener))
    }

    /// The group of node `by` knows this node's disk.
    fn known_again(&self, by: u64) {
        if self.refused.send_if_modified(|refused| refused.take().is_some()) {
            tracing::info!(by, "the group knows this node's disk again");
        }
    }

    /// Ends every connection that this node has made.
    pub(crate) fn cut_links(&self) {
        self.links.lock().clear();
    }

    /// Cuts every connection of this node, or lets it connect again.
    #[cfg(test)]
    pub(crate) fn isolate(&self, isolated: bool) {
        self.isolated.store(isolated, Ordering::Release);
        self.cut_links();
    }

    /// Notes why this node takes no part in its group.
    pub(crate) fn refuse(&self, why: &str) {
        let new = self.refused.send_if_modified(|refused| {
            let new = refused.as_deref() != Some(why);
            *refused = Some(why.to_owned());
            new
        });
        if new {
            tracing::error!(node = self.me, %why, "this node takes no part in its group");
        }
    }

    /// The library says that a leader of `term` was followed just now.
    pub(crate) fn heard(&self, leader: u64) {
        let mut heard = self.heard.lock();
        *heard = Heard { at: Instant::now(), leader: Some(leader), lost: false };
    }

    /// Whether a leader other than this node is alive, as far as can be told.
    pub(crate) fn hears_a_leader(&self) -> bool {
        let heard = *self.heard.lock();
        heard.leader.is_some() && !heard.lost && heard.at.elapsed() < self.options.election.0
    }

    pub(crate) fn leads(&self) -> bool {
        self.gather.leads()
    }

    /// Whether this node may take proposals if it leads.
    pub(crate) fn may_lead(&self) -> watch::Receiver<bool> {
        self.quorum.subscribe()
    }

    /// Begins or ends giving the lead away.
    pub(crate) fn step_down(&self, begins: bool) {
        self.stepping_down.store(begins, Ordering::Release);
        if begins {
            self.quorum.send_replace(false);
        }
    }

    pub(crate) fn is_stepping_down(&self) -> bool {
        self.stepping_down.load(Ordering::Acquire)
    }

    /// How long a stopping node waits for what it proposed.
    pub(crate) async fn stop_limit(&self) {
        tokio::time::sleep(STOP).await;
    }

    /// Index up to which a leader said that entries are committed.
    pub(crate) fn committed(&self) -> Option<u64> {
        self.told_committed.load(Ordering::Acquire).checked_sub(1)
    }

    fn in_group(&self) -> bool {
        let Some(raft) = self.raft.get() else { return false };
        raft.metrics().borrow().last_log_index.is_some()
    }

    async fn ask(&self, request: Bytes) -> Answered {
        let service = self.service.get().filter(|_| self.leads());
        let service = service.ok_or_else(|| format!("node {} does not lead", self.me))?;
        Ok(service.clone().answer(request).await)
    }

    async fn append(&self, body: Bytes) -> Answered {
        let raft = self.raft.get().ok_or("starting")?;
        let request = message::decode_append(body).ok_or("the append cannot be read")?;
        let leader = request.vote.leader_id;
        if let Some(id) = request.leader_commit {
            self.told_committed.fetch_max(id.index + 1, Ordering::AcqRel);
        }
        if leader.term >= raft.server_metrics().borrow().vote.leader_id.term {
            self.heard(leader.node_id);
        }
        let answer = raft.append_entries(request).await.map_err(|error| error.to_string())?;
        if !matches!(answer, openraft::raft::AppendEntriesResponse::HigherVote(_)) {
            self.heard(leader.node_id);
        }
        Ok(message::encode(&answer))
    }

    async fn snapshot(&self, held: Held, kind: Kind, body: Bytes) -> Answered {
        let raft = self.raft.get().ok_or("starting")?;
        let mut held = held.lock().await;
        let words = |error: io::Error| error.to_string();
        match kind {
            Kind::SnapshotBegin => {
                let head = message::decode(&body).ok_or("the snapshot's head cannot be read")?;
                // Lets go of what came before.
                *held = None;
                *held = Some(
                    Arriving::begin(&*self.host, self.machine.clone(), head)
                        .await
                        .map_err(words)?,
                );
                Ok(Bytes::new())
            }
            Kind::SnapshotPiece => {
                let arriving = held.take().ok_or("no snapshot has begun")?;
                *held = Some(arriving.piece(&*self.host, body).await.map_err(words)?);
                Ok(Bytes::new())
            }
            _ => {
                let arriving = held.take().ok_or("no snapshot has begun")?;
                let sum = message::decode(&body).ok_or("the snapshot's end cannot be read")?;
                let (vote, snapshot) = arriving.end(sum).map_err(words)?;
                let installed = raft.install_full_snapshot(vote, snapshot).await;
                installed.map(|done| message::encode(&done)).map_err(|error| error.to_string())
            }
        }
    }
}

impl Answers for Exchange {
    fn about(&self, caller: &Caller) -> Listener {
        let knows = self.raft.get().and_then(|raft| {
            let metrics = raft.server_metrics();
            let metrics = metrics.borrow();
            let node: Option<&BasicNode> =
                metrics.membership_config.membership().get_node(&caller.from);
            node.map(|node| Address::of(node).disk)
        });
        Listener {
            in_group: self.in_group(),
            node: self.me,
            disk: self.disk(),
            knows: knows.unwrap_or_default(),
        }
    }

    fn judge(&self, caller: &Caller) -> Verdict {
        if caller.to != self.me {
            return Verdict::Refused(format!("this is node {}, not {}", self.me, caller.to));
        }
        let disk = self.disk();
        if caller.expects != [0; 16] && caller.expects != disk {
            let why = wrong_disk(self.me);
            self.refuse(&why);
            return Verdict::Refused(why);
        }
        let knows = self.about(caller).knows;
        if knows != [0; 16] && knows != caller.disk {
            return Verdict::WrongDisk(wrong_disk(caller.from));
        }
        if caller.expects == disk {
            self.known_again(caller.from);
        }
        Verdict::Welcome
    }

    fn home(&self, caller: &Caller) -> Handle {
        Exchange::home(self, caller.purpose).clone()
    }

    fn answer(
        self: Arc<Self>,
        caller: Caller,
        held: Held,
        kind: Kind,
        body: Bytes,
    ) -> BoxFuture<'static, Answered> {
        Box::pin(async move {
            #[cfg(test)]
            if self.isolated.load(Ordering::Acquire) {
                return Err("isolated".into());
            }
            if caller.expects != [0; 16] && caller.expects != self.disk() {
                return Err(wrong_disk(self.me));
            }
            let unreadable = || "the request cannot be read".to_owned();
            match kind {
                Kind::Append => self.append(body).await,
                Kind::Ask => self.ask(body).await,
                Kind::Consult => {
                    let service = self.service.get().ok_or("starting")?;
                    Ok(service.clone().consulted(body).await)
                }
                Kind::Pulse => self.pulse(message::decode(&body).ok_or_else(unreadable)?).await,
                Kind::Canvass => {
                    self.canvass(caller.from, message::decode(&body).ok_or_else(unreadable)?)
                }
                Kind::Vote => {
                    let raft = self.raft.get().ok_or("starting")?;
                    let request: VoteRequest<u64> =
                        message::decode(&body).ok_or_else(unreadable)?;
                    if let Some(why) = self.bars(caller.from, request.last_log_id) {
                        return Err(why);
                    }
                    let answer = raft.vote(request).await.map_err(|error| error.to_string())?;
                    Ok(message::encode(&answer))
                }
                Kind::Stand => {
                    let raft = self.raft.get().ok_or("starting")?;
                    tracing::info!(from = caller.from, "the leader hands over to this node");
                    raft.trigger().elect().await.map_err(|error| error.to_string())?;
                    Ok(Bytes::new())
                }
                Kind::ReadIndex => {
                    let index = self.confirmed_index().await.map_err(|error| error.to_string())?;
                    Ok(message::encode(&index))
                }
                Kind::Change => {
                    let change: Change = message::decode(&body).ok_or_else(unreadable)?;
                    Ok(message::encode(&self.change(change).await))
                }
                Kind::SnapshotBegin | Kind::SnapshotPiece | Kind::SnapshotEnd => {
                    self.snapshot(held, kind, body).await
                }
                Kind::Answer | Kind::Refused | Kind::Ping => Err(unreadable()),
            }
        })
    }

    fn gone(&self, caller: &Caller) {
        let mut heard = self.heard.lock();
        if caller.purpose == Purpose::Control && heard.leader == Some(caller.from) {
            heard.lost = true;
        }
    }
}
