//! Waiting for records to arrive in a lake.

use queen_sim::lake::{Expected, Files, Kind, Layout, Report, check};
use std::time::{Duration, Instant};

/// Checks the bucket until nothing is missing (or the patience is over) and gives the last report.
///
/// Anything but missing records ends the wait at once.
pub async fn whole_lake(
    endpoint: &str,
    expected: &Expected,
    patience: Duration,
) -> anyhow::Result<(Files, Report)> {
    let bucket = queen_sim::process::bucket(endpoint)?;
    let until = Instant::now() + patience;
    loop {
        let files = Files::of_bucket(&bucket).await?;
        let report = check(&files, Layout::default(), expected);
        // A window in the middle of its upload has objects and no manifest yet.
        let settling =
            |kind| matches!(kind, Kind::RecordLost | Kind::ObjectStranger | Kind::ManifestMissing);
        let settled = report.faults.is_empty();
        if settled || !report.faults.iter().all(|f| settling(f.kind)) || Instant::now() > until {
            return Ok((files, report));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
