//! Where the copy of a queue begins, durable before anything is skipped.
//!
//! Owns: the rows `on` and `start`, and the position that follows from `start` and `committed`.
//! Leaves to others: what is lost before it could be copied (`queen-state` counts from these rows).
//! Upholds: `loss-is-listed`.
//!
//! A named queue gets its row when the sink is turned on, whether it exists or not. A sink of all
//! queues says so in its own row, and each queue gets its row when a worker first sees it: until
//! then the state machine goes by the sink's.

use crate::commit::Progress;
use crate::context::{Context, Stop};
use crate::host::{Place, QueueInfo, ScanFrom, blocking};
use crate::lease::{kv, op, put_once};
use crate::retry::pause;
use crate::settings::{Queues, StartAt};
use queen_core::Stamp;
use queen_core::kv::KvOpKind;
use queen_core::sink::{RowKind, SinkOn, Start, on_key, row_key};

/// Says durably that the sink is on; gives the stamp from which on `latest` copies.
pub async fn turn_on(context: &Context) -> Stamp {
    let mut attempt = 0;
    let boot = loop {
        match context.host.tick().await {
            Ok(stamp) => break stamp,
            Err(_) => attempt += 1,
        }
        tokio::time::sleep(pause(context.host.random(), attempt)).await;
    };
    match &context.settings.queues {
        Queues::All => on_row(context, boot).await.all.map_or(boot, |all| Stamp(all.stamp)),
        Queues::Named(names) => {
            on_row(context, boot).await;
            for queue in names {
                // A row that cannot be read is shown by the queue's worker.
                let _ = start_row(context, queue, boot).await;
            }
            boot
        }
    }
}

/// Brings the row `on` in line with the settings: `all` stands there as long as all are copied.
async fn on_row(context: &Context, boot: Stamp) -> SinkOn {
    let key = on_key(&context.settings.sink);
    let mode = context.settings.start.word();
    let wants_all = context.settings.queues == Queues::All;
    let all = |stamp: u64| wants_all.then(|| Start { stamp, mode: mode.to_owned() });
    let fresh = SinkOn { stamp: boot.0, all: all(boot.0) };
    let mut attempt = 0;
    loop {
        let row = put_once(&*context.host, &key, &fresh.to_json()).await;
        let found = SinkOn::from_json(&row.value).unwrap_or_else(|_| fresh.clone());
        let since = found.all.as_ref().map_or(boot.0, |all| all.stamp);
        let wanted = SinkOn { stamp: found.stamp, all: all(since) };
        if wanted == found {
            return found;
        }
        let value = &wanted.to_json();
        let put = KvOpKind::Put { key: &key, value, ttl_seconds: None, expect: Some(row.version) };
        let _ = kv(&*context.host, &[op(put, false)]).await;
        attempt += 1;
        if attempt > 1 {
            tokio::time::sleep(pause(context.host.random(), attempt)).await;
        }
    }
}

/// The row that says where the queue's copy begins, written on first sight; `since` is what
/// [`turn_on`] gave.
///
/// `earliest` is settled in two steps: from the first on (stamp 0) whatever goes counts as lost, so
/// that nothing can go unseen while the oldest record is looked up.
pub async fn start_row(context: &Context, queue: &str, since: Stamp) -> Result<Start, Stop> {
    let key = row_key(&context.settings.sink, queue, RowKind::Start);
    let mode = context.settings.start;
    let live = context.host.queue(queue);
    let created = live.as_ref().map(|live| live.created).unwrap_or_default();
    let stamp = match mode {
        StartAt::Latest => since.max(created).0,
        StartAt::Earliest => 0,
    };
    let fresh = Start { stamp, mode: mode.word().to_owned() };
    let mut attempt = 0;
    loop {
        let row = put_once(&*context.host, &key, &fresh.to_json()).await;
        let start = Start::from_json(&row.value)
            .map_err(|err| Stop::failed(format!("{err}: KV row {key}")))?;
        if start.stamp > 0 {
            return Ok(start);
        }
        let stamp = oldest(context, queue, since).await?.0.max(1);
        let value = &Start { stamp, ..start }.to_json();
        let put = KvOpKind::Put { key: &key, value, ttl_seconds: None, expect: Some(row.version) };
        let _ = kv(&*context.host, &[op(put, false)]).await;
        attempt += 1;
        if attempt > 1 {
            tokio::time::sleep(pause(context.host.random(), attempt)).await;
        }
    }
}

/// Stamp of the oldest record of a queue; of an empty one, that of its creation.
async fn oldest(context: &Context, queue: &str, since: Stamp) -> Result<Stamp, Stop> {
    let Some(live) = context.host.queue(queue) else { return Ok(since) };
    let host = context.host.clone();
    let first = blocking(&*context.host, move || host.first_retained(live.id)).await?;
    Ok(first.unwrap_or(live.created))
}

/// Where the next window begins: the end of the one before, and where its records are looked for.
/// `queue`: the live incarnation.
pub fn position(
    progress: &Progress,
    start: &Start,
    queue: &QueueInfo,
) -> (Option<Stamp>, ScanFrom) {
    match &progress.committed.0 {
        Some(c) if c.queue_id == queue.id.0 => {
            let place = Place { segment: c.log_to.0, at: c.log_to.1 };
            (Some(Stamp(c.t_end)), ScanFrom::Place(place))
        }
        // The queue was made anew: its log begins anew.
        Some(c) => (Some(Stamp(c.t_end)), ScanFrom::Stamp(Stamp(c.t_end.max(start.stamp)))),
        None => {
            let first = Stamp(start.stamp);
            let free = start.mode == StartAt::Earliest.word();
            ((!free).then_some(first), ScanFrom::Stamp(first))
        }
    }
}
