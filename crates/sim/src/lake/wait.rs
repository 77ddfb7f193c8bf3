//! Waiting for records to arrive in a lake.
//!
//! Owns: looking again until nothing is missing. Leaves to others: the check (`super`).

use super::{Expected, Files, Kind, Layout, Report, check};
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// Checks the bucket until nothing is missing (or the patience is over) and gives the last report.
///
/// Anything but missing records ends the wait at once.
pub async fn whole_lake(
    endpoint: &str,
    expected: &Expected,
    patience: Duration,
) -> anyhow::Result<(Files, Report)> {
    whole_lake_of(endpoint, Layout::default(), expected, patience).await
}

/// The same of what lies below a prefix.
pub async fn whole_lake_of(
    endpoint: &str,
    layout: Layout<'_>,
    expected: &Expected,
    patience: Duration,
) -> anyhow::Result<(Files, Report)> {
    let below = format!("{}/", layout.prefix);
    let bucket = crate::process::bucket(endpoint)?;
    let until = Instant::now() + patience;
    loop {
        // A server that has just started answers 500 for what lies on a part of it that is not up yet.
        let mut files = match Files::of_bucket(&bucket).await {
            Ok(files) => files,
            Err(_) if Instant::now() < until => {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        files.0.retain(|key, _| key.starts_with(&below));
        let report = check(&files, layout, expected);
        // A window in the middle of its upload has objects and no manifest yet.
        let settling =
            |kind| matches!(kind, Kind::RecordLost | Kind::ObjectStranger | Kind::ManifestMissing);
        let settled = report.faults.is_empty();
        if settled || !report.faults.iter().all(|f| settling(f.kind)) || Instant::now() > until {
            return Ok((files, report));
        }
        tokio::time::sleep(LOOK).await;
    }
}
