//! Row 26 of the public pains: folders at the edges of the calendar, in any zone.
//!
//! The zone is that of the process, so the test of each zone runs this binary again.

use crate::scene::*;
use queen_core::Stamp;

/// The moments, and the folder of each.
const MOMENTS: [(&str, &str); 8] = [
    // Clocks go back at 01:00 UTC in Europe: the hour after it is there twice, and here once.
    ("2026-10-25T00:30:00.000000Z", "dt=2026-10-25/hour=00"),
    ("2026-10-25T01:30:00.000000Z", "dt=2026-10-25/hour=01"),
    ("2026-10-25T02:30:00.000000Z", "dt=2026-10-25/hour=02"),
    ("2026-12-31T23:59:59.999999Z", "dt=2026-12-31/hour=23"),
    ("2027-01-01T00:30:00.000000Z", "dt=2027-01-01/hour=00"),
    // Clocks go forward: an hour is missing there.
    ("2027-03-28T01:30:00.000000Z", "dt=2027-03-28/hour=01"),
    ("2028-02-29T12:00:00.000000Z", "dt=2028-02-29/hour=12"),
    ("2028-03-01T00:00:00.000000Z", "dt=2028-03-01/hour=00"),
];

#[tokio::test(start_paused = true)]
async fn each_hour_of_the_log_has_one_folder() {
    let world = world();
    let _owner = plain(&world);
    let mut log = Vec::new();
    for (moment, _) in MOMENTS {
        let at = Stamp::parse_iso(moment).unwrap();
        world.broker.leap(at.0.cast_signed() - world.broker.now().0.cast_signed());
        let pushed = world.broker.push(ORDERS, &[("p", "1")]);
        assert_eq!(pushed[0].stamp, at.0, "{moment}");
        log.extend(pushed);
        all_there(&world, log.len()).await;
    }
    check_whole(&world, &log);
    let keys = world.store.keys();
    let data = keys.iter().filter(|key| !key.contains("/_queen/"));
    let folders = data.map(|key| key.rsplit_once('/').unwrap().0);
    let folders: Vec<&str> = folders.map(|folder| folder.split_once("/dt=").unwrap().1).collect();
    let want = MOMENTS.map(|(_, folder)| folder.strip_prefix("dt=").unwrap());
    assert_eq!(folders, want);
}

#[test]
fn the_zone_of_the_process_decides_nothing() {
    for zone in ["Europe/Rome", "Asia/Kathmandu", "America/St_Johns", "Pacific/Kiritimati"] {
        let mut test = std::process::Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", "calendar::each_hour_of_the_log_has_one_folder"]).env("TZ", zone);
        let output = test.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{zone}\n{text}");
    }
}
