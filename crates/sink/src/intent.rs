//! What an intent says of a window, and the work that follows from it.
//!
//! Owns: the mapping from window and settings to the intent, and from the intent to the job of the
//! encoder.
//! Leaves to others: writing it (`commit`), the encoder (`produce`).
//! Upholds: `window-is-final` (nothing but the intent decides a window's bytes).

use crate::context::{Context, Stop};
use crate::encode::{Encoding, ObjectSpec};
use crate::host::Place;
use crate::layout::{Layout, QueueKeys};
use crate::needs::{index_room, manifest_bytes, working_bytes};
use crate::produce::Job;
use crate::read::Source;
use crate::turns::Kind;
use crate::window::{Closed, Window};
use queen_core::QueueId;
use queen_core::sink::{Intent, LogPlace};
use std::sync::Arc;

/// A window of less than this part of the target is small.
const SMALL: u64 = 4;

/// The intent of window `k`; `prev`: SHA-256 of the manifest before.
pub fn intent_of(context: &Context, queue: &str, window: &Window, k: u64, prev: String) -> Intent {
    let settings = &context.settings;
    let keys = QueueKeys::new(&settings.prefix, context.tenant, queue);
    Intent {
        queue_id: window.queue.0,
        k,
        t_start: window.t_start.0,
        t_end: window.t_end.0,
        log_from: LogPlace(window.from.segment, window.from.at),
        log_to: LogPlace(window.to.segment, window.to.at),
        shape: window.shape,
        format: settings.encoding.format().to_owned(),
        compression: settings.encoding.compression().to_owned(),
        level: settings.encoding.level(),
        wrap: settings.wrap,
        layout: settings.layout.word().to_owned(),
        align: settings.align.word().to_owned(),
        encoder: settings.encoder,
        writer: settings.encoding.writer(),
        prefix: settings.prefix.clone(),
        key: keys.window(settings.align, k, window.t_start, window.t_end),
        bucket: settings.bucket.bucket.clone(),
        at: context.host.now().0,
        prev,
    }
}

/// The part of the log that holds the window.
pub fn source_of(context: &Context, intent: &Intent) -> Source {
    let place = |at: LogPlace| Place { segment: at.0, at: at.1 };
    Source {
        host: Arc::clone(&context.host),
        queue: QueueId(intent.queue_id),
        from: place(intent.log_from),
        to: place(intent.log_to),
    }
}

/// The encoder's job.
pub fn job_of(context: &Context, queue: &str, intent: &Intent, kind: Kind) -> Result<Job, Stop> {
    let encoding = encoding_of(intent)?;
    let shape = intent.shape;
    let room = index_room(context.budget.limit(), encoding);
    let keys = QueueKeys::new(&intent.prefix, context.tenant, queue);
    let layout = Layout::from_word(&intent.layout)
        .ok_or_else(|| unknown(intent, "layout", &intent.layout))?;
    Ok(Job {
        source: source_of(context, intent),
        spec: ObjectSpec {
            encoding,
            wrap: intent.wrap,
            tenant: context.tenant,
            queue: queue.into(),
        },
        layout,
        k: intent.k,
        key: intent.key.clone(),
        ranges_key: keys.partitions(intent.k),
        kind,
        shape,
        room,
        working_bytes: working_bytes(&shape, encoding, room),
        manifest_bytes: manifest_bytes(&shape, layout),
        budget: context.budget.clone(),
    })
}

/// Format and compression.
pub fn encoding_of(intent: &Intent) -> Result<Encoding, Stop> {
    let Intent { format, compression, level, .. } = intent;
    Encoding::from_words(format, compression, *level)
        .ok_or_else(|| unknown(intent, "format", &format!("{format} {compression} {level}")))
}

fn unknown(intent: &Intent, what: &str, word: &str) -> Stop {
    Stop::failed(format!(
        "window {} was begun with {what} {word}, which this release does not know; finish it with the release that began it",
        intent.k
    ))
}

/// How a window that has just been closed waits for a thread.
pub fn kind_of(window: &Window, target_bytes: u64) -> Kind {
    match window.why {
        Closed::Size if window.weight > target_bytes / SMALL => Kind::Backfill,
        _ => Kind::Live,
    }
}

/// How a window waits of which no more is known than its part of the log.
pub fn kind_of_found(intent: &Intent, target_bytes: u64) -> Kind {
    let (from, to) = (intent.log_from, intent.log_to);
    match from.0 == to.0 && to.1.saturating_sub(from.1) <= target_bytes / SMALL {
        true => Kind::Live,
        false => Kind::Backfill,
    }
}
