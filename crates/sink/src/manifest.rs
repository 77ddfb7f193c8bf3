//! What a window's manifest says, and whether a manifest found in the bucket is that of an intent.
//!
//! Owns: the mapping from intent and objects to the document.
//! Leaves to others: its bytes (`queen_core::sink`), sending it (`commit`).
//! Upholds: `manifest-chain`, `loss-is-listed`.
//!
//! Nothing in a manifest varies with the node or the try: a late copy of it is the same bytes.

use crate::upload::Uploaded;
use queen_core::sink::{Intent, LostRange, Manifest};
use queen_core::{Stamp, TenantId};

/// Whose window it is.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Name of the sink.
    pub sink: &'a str,
    /// Tenant.
    pub tenant: TenantId,
    /// Queue, unescaped.
    pub queue: &'a str,
}

/// The manifest of a window.
pub fn manifest(
    owner: Owner<'_>,
    intent: &Intent,
    uploaded: Uploaded,
    lost: Vec<LostRange>,
) -> Manifest {
    let Uploaded { objects, ranges, summary } = uploaded;
    let (ranges_object, ranges_sha256) = ranges.map(|object| (object.key, object.sha256)).unzip();
    Manifest {
        sink: owner.sink.to_owned(),
        tenant: owner.tenant.to_string(),
        queue: owner.queue.to_owned(),
        k: intent.k,
        t_start: intent.t_start,
        t_end: intent.t_end,
        format: intent.format.clone(),
        compression: intent.compression.clone(),
        layout: intent.layout.clone(),
        bytes: objects.iter().map(|object| object.bytes).sum(),
        objects,
        records: summary.records,
        partitions: summary.partitions,
        min_ts: summary.min_ts,
        max_ts: summary.max_ts,
        lost,
        writer: intent.writer.clone(),
        committed_at: Stamp(intent.at).to_iso(),
        v: 1,
        encoder: intent.encoder,
        queue_id: intent.queue_id,
        wrapped: summary.wrapped,
        max_record_bytes: summary.record_bytes_max,
        ranges: summary.ranges,
        ranges_object,
        ranges_sha256,
        prev: intent.prev.clone(),
    }
}

/// Whether the manifest is that of the window the intent pins.
pub fn is_of(manifest: &Manifest, owner: Owner<'_>, intent: &Intent) -> bool {
    let empty = manifest_like(owner, intent);
    let same = |field: fn(&Manifest) -> String| field(manifest) == field(&empty);
    (manifest.k, manifest.t_start, manifest.t_end) == (intent.k, intent.t_start, intent.t_end)
        && (manifest.queue_id, manifest.encoder) == (intent.queue_id, intent.encoder)
        && same(|m| format!("{}\n{}\n{}", m.sink, m.tenant, m.queue))
        && same(|m| format!("{}\n{}\n{}", m.format, m.compression, m.layout))
        && same(|m| format!("{}\n{}\n{}", m.writer, m.committed_at, m.prev))
}

/// Whether the manifest is that of the same window, by this release or by one whose bytes differ.
pub fn is_of_release(manifest: &Manifest, owner: Owner<'_>, intent: &Intent) -> bool {
    let (encoder, writer) = (manifest.encoder, manifest.writer.clone());
    is_of(manifest, owner, &Intent { encoder, writer, ..intent.clone() })
}

fn manifest_like(owner: Owner<'_>, intent: &Intent) -> Manifest {
    manifest(owner, intent, Uploaded::default(), Vec::new())
}
