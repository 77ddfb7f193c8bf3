//! One queue's log in memory, for tests of what reads a window.
//!
//! It answers reads alone: whoever writes rows is tested against the twins of `queen-sim`.

use crate::host::{
    Host, HostError, LogBytes, Loss, Place, QueueInfo, ScanFrom, TimelinePage, TimelineRun,
};
use crate::plan::weight;
use crate::read::Source;
use crate::window::Shape;
use async_trait::async_trait;
use queen_core::frame::Frame;
use queen_core::kv::{KvOp, KvOutcome};
use queen_core::run::RunHeader;
use queen_core::sink::LostRange;
use queen_core::{Offset, PartitionId, QueueId, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

const QUEUE: QueueId = QueueId(1);

/// An appended record, as a test remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    pub partition: String,
    pub offset: u64,
    pub payload: String,
}

/// A partition: its id, and the next offset.
type Partition = (PartitionId, u64);

/// The log.
#[derive(Default)]
pub struct Log {
    pub runs: Vec<TimelineRun>,
    bytes: Vec<u8>,
    partitions: BTreeMap<String, Partition>,
    names: Vec<Arc<str>>,
    stamp: u64,
}

impl Log {
    /// One push: (partition, payload) each.
    pub fn push(&mut self, items: &[(&str, &str)]) -> Vec<Appended> {
        self.stamp += 1;
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (partition, payload) in items {
            groups.entry(partition).or_default().push(payload);
        }
        let mut out = Vec::new();
        for (partition, payloads) in groups {
            if !self.partitions.contains_key(partition) {
                self.names.push(partition.into());
                let id = PartitionId(self.names.len() as u64);
                self.partitions.insert(partition.to_owned(), (id, 0));
            }
            let (id, next) = self.partitions.get_mut(partition).unwrap();
            let mut header = RunHeader {
                partition: *id,
                first_offset: Offset(*next),
                count: payloads.len() as u32,
                stamp: Stamp(self.stamp),
                frames_len: 0,
                text_bytes: 0,
            };
            let mut frames = Vec::new();
            for payload in payloads {
                let frame = Frame { payload: payload.as_bytes(), ..Frame::default() };
                frame.encode(&mut frames);
                header.text_bytes += frame.text_bytes() as u32;
                let (partition, payload) = (partition.to_owned(), payload.to_owned());
                out.push(Appended { partition, offset: *next, payload });
                *next += 1;
            }
            header.frames_len = frames.len() as u32;
            let place = Place { segment: 0, at: self.bytes.len() as u64 };
            self.bytes.extend_from_slice(&header.encode(&frames));
            self.bytes.extend_from_slice(&frames);
            self.runs.push(TimelineRun { header, place });
        }
        out
    }

    /// All of it, as a window.
    pub fn source(self) -> Source {
        let to = Place { segment: 0, at: self.bytes.len() as u64 };
        Source { host: Arc::new(self), queue: QUEUE, from: Place::default(), to }
    }
}

/// What the headers of a window say, as the plan counts it.
pub fn shape_of(source: &Source) -> Shape {
    let page = source.host.timeline(source.queue, ScanFrom::Place(source.from), usize::MAX);
    let runs = page.unwrap().runs.into_iter().filter(|run| run.place < source.to);
    let (mut shape, mut partitions) = (Shape::default(), BTreeMap::new());
    for run in runs {
        shape.records += u64::from(run.header.count);
        shape.runs += 1;
        shape.run_bytes_max = shape.run_bytes_max.max(run.header.run_len());
        shape.weight += weight(&run, 0);
        partitions.insert(run.header.partition, ());
    }
    let ids: Vec<PartitionId> = partitions.into_keys().collect();
    let names = source.host.partition_names(source.queue, &ids).unwrap();
    shape.partitions = ids.len() as u64;
    shape.name_bytes = names.iter().map(|name| name.len() as u64).sum();
    shape
}

#[async_trait]
impl Host for Log {
    fn timeline(
        &self,
        _queue: QueueId,
        from: ScanFrom,
        runs_max: usize,
    ) -> Result<TimelinePage, HostError> {
        let first = self.runs.partition_point(|run| match from {
            ScanFrom::Stamp(stamp) => run.header.stamp < stamp,
            ScanFrom::Place(place) => run.place < place,
        });
        let runs: Vec<TimelineRun> = self.runs[first..].iter().take(runs_max).copied().collect();
        let end = first + runs.len() == self.runs.len();
        let next = match self.runs.get(first + runs.len()) {
            Some(run) => run.place,
            None => Place { segment: 0, at: self.bytes.len() as u64 },
        };
        Ok(TimelinePage { runs, next, end, through: Stamp(self.stamp) })
    }

    fn log(&self, _queue: QueueId) -> Box<dyn LogBytes + '_> {
        Box::new(|place: Place, into: &mut [u8]| {
            let at = place.at as usize;
            into.copy_from_slice(&self.bytes[at..at + into.len()]);
            Ok(())
        })
    }

    fn partition_names(
        &self,
        _queue: QueueId,
        partitions: &[PartitionId],
    ) -> Result<Vec<Arc<str>>, HostError> {
        Ok(partitions.iter().map(|id| self.names[id.0 as usize - 1].clone()).collect())
    }

    fn queues(&self) -> Vec<QueueInfo> {
        unreachable!("a window's reader does not ask")
    }

    async fn queues_changed(&self, _seen: u64) -> u64 {
        unreachable!("a window's reader does not ask")
    }

    async fn kv(&self, _ops: &[KvOp<'_>]) -> Result<KvOutcome, HostError> {
        unreachable!("a window's reader does not ask")
    }

    fn applied(&self) -> Stamp {
        unreachable!("a window's reader does not ask")
    }

    fn now(&self) -> Stamp {
        unreachable!("a window's reader does not ask")
    }

    async fn tick(&self) -> Result<Stamp, HostError> {
        unreachable!("a window's reader does not ask")
    }

    async fn written(&self, _queue: QueueId, _after: Stamp) {
        unreachable!("a window's reader does not ask")
    }

    fn first_retained(&self, _queue: QueueId) -> Result<Option<Stamp>, HostError> {
        unreachable!("a window's reader does not ask")
    }

    fn loss(&self, _queue: &str, _k: u64) -> Result<Option<Loss>, HostError> {
        unreachable!("a window's reader does not ask")
    }

    fn lost(&self, _queue: &str, _k: u64) -> Result<Vec<LostRange>, HostError> {
        unreachable!("a window's reader does not ask")
    }

    fn committed(&self, _queue: &str) -> Result<u64, HostError> {
        unreachable!("a window's reader does not ask")
    }

    fn begun(&self, _queue: &str) -> Result<u64, HostError> {
        unreachable!("a window's reader does not ask")
    }

    fn decrypt(
        &self,
        _queue: QueueId,
        _partition: &str,
        _envelope: &[u8],
        _into: &mut Vec<u8>,
    ) -> Result<(), String> {
        unreachable!("nothing here is sealed")
    }
}
