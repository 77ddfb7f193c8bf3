//! The sidecars that say that an hour is whole.
//!
//! Owns: holding one against the manifests of its queue. Leaves to others: the windows themselves.

use super::manifest::{HourFile, Manifest};

/// Checks the hour file of a (tenant, queue, hour); the error says what does not agree.
pub fn check<'a>(
    (tenant, queue, hour): (&str, &str, &str),
    bytes: &[u8],
    manifests: impl Iterator<Item = &'a Manifest>,
) -> Result<(), String> {
    let file: HourFile = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let first = |m: &Manifest| queen_core::Stamp(m.min_ts.unwrap_or(m.t_end.saturating_sub(1)));
    let starts_in = |m: &&Manifest| first(m).to_iso().starts_with(hour);
    let windows: Vec<&Manifest> = manifests.filter(starts_in).collect();
    let want = HourFile {
        tenant: tenant.to_owned(),
        queue: queue.to_owned(),
        hour: hour.to_owned(),
        first_k: windows.first().map(|m| m.k).unwrap_or_default(),
        last_k: windows.last().map(|m| m.k).unwrap_or_default(),
        windows: windows.len() as u64,
        records: windows.iter().map(|m| m.records).sum(),
        bytes: windows.iter().map(|m| m.bytes).sum(),
        complete: true,
    };
    if file == want {
        Ok(())
    } else {
        Err(format!("it says {file:?}, the manifests give {want:?}"))
    }
}
