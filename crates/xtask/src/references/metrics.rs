//! The page of metrics. The tables it is made of are `queen_core::metric`.

use queen_core::metric::{Family, broker, sink};
use std::fmt::Write;

const INTRODUCTION: &str = "\
# Metrics

<!-- Made from the code by `cargo xtask references`. -->

`GET /metrics/prometheus` answers the families below as Prometheus text. Counters begin at 0 with the process, unless they
say otherwise. Labels are bounded: queues are those that exist, or that the sink copies; all others are closed sets.
";

const SINK: &str = "
On a node that runs the sink. Those with a label `queue` have a sample for each queue that this node copies: over all nodes,
each queue has one. Alarm on `queen_s3_lag_seconds` above three windows, on `queen_s3_records_lost_total` rising, and on
`queen_s3_bucket_reachable` being 0. [The guide](../guide/sink.md) says what else `/status` tells.
";

/// The page.
pub fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    section(&mut page, "The broker", "", broker::ALL);
    section(&mut page, "The S3 sink", SINK, sink::ALL);
    page
}

fn section(page: &mut String, title: &str, about: &str, families: &[&Family]) {
    let _ = write!(page, "\n## {title}\n{about}\n");
    page.push_str("| family | type | labels | says |\n| --- | --- | --- | --- |\n");
    for Family { name, kind, labels, help } in families {
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(page, "| `{name}` | {} | {labels} | {help} |", kind.word());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_says_name_type_labels_and_help() {
        let page = super::page();
        for line in [
            "| `queen_uptime_seconds` | gauge |  | Seconds since the start |",
            "| `queen_s3_s3_requests_total` | counter | `op`, `result` | Requests to the bucket",
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
    }
}
