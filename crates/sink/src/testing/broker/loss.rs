//! What the broker in memory keeps for a window, and what it records as lost: the state machine's rule.

use super::World;
use crate::host::QueueInfo;
use queen_core::Stamp;
use queen_core::run::RunHeader;
use queen_core::sink::{
    Committed, Intent, LossReason, LostRange, RowKind, SinkOn, Start, on_key, row_key,
};
use std::collections::HashMap;

/// The only sink there is.
pub(super) const SINK: &str = "default";

impl World {
    pub(super) fn document<T>(
        &self,
        key: &str,
        read: fn(&[u8]) -> Result<T, queen_core::sink::BadDocument>,
    ) -> Option<T> {
        self.kv.get(key).and_then(|row| read(&row.value).ok())
    }

    /// The stamp from which on the sink still has to copy a queue, and the next window without intent.
    fn position(&self, info: &QueueInfo) -> (Option<u64>, u64) {
        let key = |kind| row_key(SINK, &info.name, kind);
        let committed = self.document(&key(RowKind::Committed), Committed::from_json);
        let intent = self.document(&key(RowKind::Intent), Intent::from_json);
        let start = self.document(&key(RowKind::Start), Start::from_json);
        let all = self.document(&on_key(SINK), SinkOn::from_json).and_then(|on| on.all);
        let all =
            all.map(|all| if all.mode == "earliest" { 0 } else { all.stamp.max(info.created.0) });
        let (done, begun) = (committed.as_ref().map_or(0, |c| c.k), intent.map_or(0, |i| i.k));
        (committed.map(|c| c.t_end).or(start.map(|s| s.stamp)).or(all), done.max(begun) + 1)
    }

    pub(super) fn pin(&self, info: &QueueInfo) -> Option<Intent> {
        let key = |kind| row_key(SINK, &info.name, kind);
        let done = self.document(&key(RowKind::Committed), Committed::from_json).map_or(0, |c| c.k);
        let intent = self.document(&key(RowKind::Intent), Intent::from_json);
        intent.filter(|intent| intent.k > done && intent.queue_id == info.id.0)
    }

    /// Drops what committed windows kept: the loss they list, the log of a deleted queue.
    pub(super) fn after_commit(&mut self) {
        let done: HashMap<String, u64> =
            self.lost.keys().map(|(queue, _)| (queue.clone(), 0)).collect();
        for queue in done.into_keys() {
            let key = row_key(SINK, &queue, RowKind::Committed);
            let k = self.document(&key, Committed::from_json).map_or(0, |c| c.k);
            self.lost.retain(|(name, window), _| *name != queue || *window > k);
        }
        let over: Vec<u32> = self
            .logs
            .iter()
            .filter_map(|(id, log)| {
                let info = log.info.as_ref().filter(|info| info.deleted)?;
                self.pin(info).is_none().then_some(*id)
            })
            .collect();
        for id in over {
            self.logs.entry(id).and_modify(|log| log.info = None);
        }
    }

    /// Takes a run away, as the state machine does: nothing pinned, and loss is recorded.
    pub(super) fn take(&mut self, info: &QueueInfo, run: &RunHeader, reason: LossReason) {
        let (from, window) = self.position(info);
        if from.is_none_or(|from| run.stamp.0 < from) {
            return;
        }
        let newest = self.lost.keys().filter(|(queue, _)| **queue == *info.name);
        let mut window = newest.map(|(_, window)| *window).max().unwrap_or(0).max(window);
        let full = |window| {
            self.lost
                .get(&(info.name.to_string(), window))
                .is_some_and(|(_, r)| r.len() >= self.ranges_max)
        };
        window += u64::from(full(window));
        let partition = self.partitions[&run.partition.0].1.to_string();
        let since = Stamp(self.stamp);
        let lost = self.lost.entry((info.name.to_string(), window)).or_insert((since, Vec::new()));
        let (from, to) = (run.first_offset.0, run.end_offset().0 - 1);
        let same = |range: &&mut LostRange| {
            (&range.partition, range.incarnation, range.reason) == (&partition, info.id.0, reason)
                && range.to + 1 == from
        };
        match lost.1.iter_mut().find(same) {
            Some(range) => range.to = to,
            None => lost.1.push(LostRange { partition, incarnation: info.id.0, from, to, reason }),
        }
    }
}
