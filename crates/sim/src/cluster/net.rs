//! The network between the nodes of a run.
//!
//! Owns: connections that lose no byte and no order within (as TCP does), and lose time: delays, lost
//! packets that are sent again, cuts in one direction or both, connections that break; who can be reached.
//! Leaves to others: what crosses them (`queen-raft`), when links are cut (`run`).
//!
//! Two connections keep no order between each other. Bytes move only between two turns of the nodes.

use super::vitals::Vitals;
use crate::chance::Chance;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use queen_raft::host::{Dial, Handshake, Incoming, Stream};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// Bytes on their way in one direction before a writer has to wait.
const WINDOW: usize = 256 << 10;
/// Microseconds until a lost packet is sent again.
const AGAIN: (u64, u64) = (50_000, 400_000);

/// The network; clones share it.
#[derive(Clone)]
pub struct Net(Arc<Mutex<State>>);

struct State {
    /// Microseconds since the run began.
    now: u64,
    chance: Chance,
    /// Longest usual delay, µs.
    delay: u64,
    /// Of a thousand writes so many are lost once.
    loss: u64,
    sequence: u64,
    due: BTreeMap<(u64, u64), Due>,
    pipes: Vec<Pipe>,
    ports: BTreeMap<u64, Port>,
    /// Directions in which nothing arrives.
    cut: BTreeSet<(u64, u64)>,
    /// Directions that take up to so many µs more.
    slow: BTreeMap<(u64, u64), u64>,
}

enum Due {
    Arrival(usize),
    Dial(Call),
    Dialled(Call, End),
}

struct Call {
    from: u64,
    to: u64,
    vitals: Arc<Vitals>,
    answer: oneshot::Sender<io::Result<End>>,
}

/// Where a node is reached.
struct Port {
    vitals: Arc<Vitals>,
    waiting: VecDeque<(End, u64)>,
    waker: Option<Waker>,
}

/// One direction of a connection. A connection's two follow each other in the list.
struct Pipe {
    from: u64,
    to: u64,
    flight: VecDeque<(u64, Vec<u8>)>,
    in_flight: usize,
    inbox: VecDeque<u8>,
    /// The writer has gone: when that arrives.
    end_at: Option<u64>,
    ended: bool,
    reset: bool,
    reader_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// One end of a connection.
struct End {
    net: Net,
    vitals: Arc<Vitals>,
    reads: usize,
    writes: usize,
}

/// The raft address of a node.
pub fn address(id: u64) -> String {
    format!("node-{id}:7400")
}

fn id_of(address: &str) -> Option<u64> {
    address.strip_prefix("node-")?.strip_suffix(":7400")?.parse().ok()
}

impl Net {
    /// A network without nodes.
    pub fn new(chance: Chance, delay: u64, loss: u64) -> Net {
        Net(Arc::new(Mutex::new(State {
            now: 0,
            chance,
            delay,
            loss,
            sequence: 0,
            due: BTreeMap::new(),
            pipes: Vec::new(),
            ports: BTreeMap::new(),
            cut: BTreeSet::new(),
            slow: BTreeMap::new(),
        })))
    }

    /// Nothing arrives at `to` from `from` any more, or it does again.
    pub fn cut(&self, from: u64, to: u64, cut: bool) {
        let mut state = self.0.lock();
        match cut {
            true => state.cut.insert((from, to)),
            false => state.cut.remove(&(from, to)),
        };
    }

    /// What goes from `from` to `to` takes up to so many µs more.
    pub fn slow(&self, from: u64, to: u64, more: u64) {
        self.0.lock().slow.insert((from, to), more);
    }

    /// All links are whole and quick again.
    pub fn heal(&self) {
        let mut state = self.0.lock();
        state.cut.clear();
        state.slow.clear();
        state.loss = 0;
    }

    /// The run is over: nothing is on its way any more.
    pub fn close(&self) {
        let mut state = self.0.lock();
        let (due, ports) = (std::mem::take(&mut state.due), std::mem::take(&mut state.ports));
        drop(state);
        // Ends of connections lock the network when they go.
        drop((due, ports));
    }

    /// Both ends of the seam of a process.
    pub fn of(&self, id: u64, vitals: &Arc<Vitals>) -> queen_raft::host::Network {
        let port = Port { vitals: vitals.clone(), waiting: VecDeque::new(), waker: None };
        let old = self.0.lock().ports.insert(id, port);
        // Ends of connections lock the network when they go.
        drop(old);
        let dial = Dialer { net: self.clone(), id, vitals: vitals.clone() };
        let incoming = Accepting { net: self.clone(), id };
        queen_raft::host::Network { dial: Arc::new(dial), incoming: Box::new(incoming) }
    }

    /// Time goes on to `now`: what is due arrives.
    pub fn deliver(&self, now: u64) {
        loop {
            let mut wake = Vec::new();
            let mut gone = None;
            {
                let mut state = self.0.lock();
                state.now = now;
                let Some(entry) = state.due.first_entry() else { return };
                if entry.key().0 > now {
                    return;
                }
                match entry.remove() {
                    Due::Arrival(pipe) => state.arrive(pipe, &mut wake),
                    Due::Dial(call) => gone = state.dial(call, self, &mut wake),
                    Due::Dialled(call, end) => gone = call.answer.send(Ok(end)).err(),
                }
            }
            drop(gone);
            wake.into_iter().for_each(Waker::wake);
        }
    }
}

impl State {
    fn at(&mut self, when: u64, due: Due) {
        self.sequence += 1;
        self.due.insert((when, self.sequence), due);
    }

    fn between(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.chance.below(most - least)
    }

    /// When what leaves now arrives.
    fn arrival(&mut self, from: u64, to: u64) -> u64 {
        let more = self.slow.get(&(from, to)).copied().unwrap_or(0);
        let lost = self.chance.below(1000) < self.loss;
        let again = if lost { self.between(AGAIN) } else { 0 };
        let (usual, slow) = (self.chance.below(self.delay), self.chance.below(more));
        self.now + 1 + usual + slow + again
    }

    /// Whether a packet from one to the other arrives now.
    fn reaches(&self, from: u64, to: u64) -> bool {
        // A machine that is down answers nothing; a process that died is answered for by its machine.
        let down = self.ports.get(&to).is_some_and(|p| !p.vitals.lives() && p.vitals.is_silent());
        !down && !self.cut.contains(&(from, to))
    }

    fn arrive(&mut self, number: usize, wake: &mut Vec<Waker>) {
        let now = self.now;
        let (from, to) = (self.pipes[number].from, self.pipes[number].to);
        if !self.reaches(from, to) {
            let again = self.between(AGAIN);
            return self.at(now + again, Due::Arrival(number));
        }
        let pipe = &mut self.pipes[number];
        let mut broke = false;
        while pipe.flight.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, bytes)) = pipe.flight.pop_front() else { break };
            pipe.in_flight -= bytes.len();
            broke |= pipe.reader_gone;
            pipe.inbox.extend(bytes);
        }
        if pipe.flight.is_empty() && pipe.end_at.is_some_and(|at| at <= now) {
            pipe.ended = true;
        }
        wake.extend(pipe.reader.take());
        if broke {
            // Nobody is there: the other end is told, in both directions.
            for number in [number, number ^ 1] {
                let pipe = &mut self.pipes[number];
                pipe.reset = true;
                wake.extend(pipe.reader.take());
                wake.extend(pipe.writer.take());
            }
        }
    }

    /// Connects, if the other is there. Gives back what has to be dropped without the lock.
    fn dial(&mut self, call: Call, net: &Net, wake: &mut Vec<Waker>) -> Option<io::Result<End>> {
        let Call { from, to, .. } = call;
        if call.answer.is_closed() {
            return None;
        }
        if !self.reaches(from, to) || !self.reaches(to, from) {
            let again = self.now + self.between(AGAIN);
            self.at(again, Due::Dial(call));
            return None;
        }
        let Some(vitals) = self.ports.get(&to).map(|port| port.vitals.clone()) else {
            let refused = io::ErrorKind::ConnectionRefused.into();
            return call.answer.send(Err(refused)).err();
        };
        if !vitals.lives() {
            let refused = io::ErrorKind::ConnectionRefused.into();
            return call.answer.send(Err(refused)).err();
        }
        let there = self.pipes.len();
        self.pipes.push(Pipe::new(from, to));
        self.pipes.push(Pipe::new(to, from));
        let near =
            End { net: net.clone(), vitals: call.vitals.clone(), reads: there + 1, writes: there };
        let far = End { net: net.clone(), vitals, reads: there, writes: there + 1 };
        if let Some(port) = self.ports.get_mut(&to) {
            port.waiting.push_back((far, from));
            wake.extend(port.waker.take());
        }
        let back = self.arrival(to, from);
        self.at(back, Due::Dialled(call, near));
        None
    }
}

impl Pipe {
    fn new(from: u64, to: u64) -> Pipe {
        Pipe {
            from,
            to,
            flight: VecDeque::new(),
            in_flight: 0,
            inbox: VecDeque::new(),
            end_at: None,
            ended: false,
            reset: false,
            reader_gone: false,
            reader: None,
            writer: None,
        }
    }
}

struct Dialer {
    net: Net,
    id: u64,
    vitals: Arc<Vitals>,
}

impl Dial for Dialer {
    fn dial(&self, address: String) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let (answer, told) = oneshot::channel();
        if self.vitals.effect()
            && let Some(to) = id_of(&address)
        {
            let call = Call { from: self.id, to, vitals: self.vitals.clone(), answer };
            let mut state = self.net.0.lock();
            let at = state.arrival(self.id, to);
            state.at(at, Due::Dial(call));
        }
        Box::pin(async move {
            let end = told.await.map_err(|_| io::Error::from(io::ErrorKind::HostUnreachable))??;
            let stream: Box<dyn Stream> = Box::new(end);
            Ok(stream)
        })
    }
}

struct Accepting {
    net: Net,
    id: u64,
}

impl Incoming for Accepting {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Handshake, String)>> {
        Box::pin(std::future::poll_fn(|context| {
            let mut state = self.net.0.lock();
            let Some(port) = state.ports.get_mut(&self.id) else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            let Some((end, from)) = port.waiting.pop_front() else {
                port.waker = Some(context.waker().clone());
                return Poll::Pending;
            };
            let shaken: Handshake = Box::pin(async move {
                let stream: Box<dyn Stream> = Box::new(end);
                Ok(stream)
            });
            Poll::Ready(Ok((shaken, address(from))))
        }))
    }
}

impl Stream for End {
    fn moved_here(self: Box<Self>) -> io::Result<Box<dyn Stream>> {
        Ok(self)
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.net.0.lock();
        let pipe = &mut state.pipes[self.reads];
        if pipe.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if pipe.inbox.is_empty() && !pipe.ended {
            pipe.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let (front, _) = pipe.inbox.as_slices();
        let count = front.len().min(into.remaining());
        into.put_slice(&front[..count]);
        pipe.inbox.drain(..count);
        let waker = pipe.writer.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.net.0.lock();
        let pipe = &mut state.pipes[self.writes];
        if pipe.reset {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if pipe.in_flight + pipe.inbox.len() > WINDOW {
            pipe.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        if !self.vitals.effect() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let (from, to) = (pipe.from, pipe.to);
        let behind = pipe.flight.back().map_or(0, |(due, _)| *due);
        let at = state.arrival(from, to).max(behind);
        let pipe = &mut state.pipes[self.writes];
        pipe.in_flight += bytes.len();
        pipe.flight.push_back((at, bytes.to_vec()));
        state.at(at, Due::Arrival(self.writes));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.net.0.lock();
        let reads = &mut state.pipes[self.reads];
        reads.reader_gone = true;
        reads.reader = None;
        let pipe = &mut state.pipes[self.writes];
        pipe.writer = None;
        let (from, to) = (pipe.from, pipe.to);
        let behind = pipe.flight.back().map_or(0, |(due, _)| *due);
        if !self.vitals.lives() && self.vitals.is_silent() {
            return;
        }
        let at = state.arrival(from, to).max(behind);
        state.pipes[self.writes].end_at = Some(at);
        state.at(at, Due::Arrival(self.writes));
    }
}
