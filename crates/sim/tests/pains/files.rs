//! Files: what readers find, and how it is packed.
//!
//! Rows that are elsewhere: 60 (a record that shows a bug) in `queen_sink::encode::object`; 52, 56, 59
//! (the readers themselves) in `readers`; 15 in `sink/loss.rs` and `e2e/loss.rs`, 17 beside the rules of
//! `queen_state::hold`, 18 in `sink/life.rs` and `sink/failure.rs`; 20, 22 (speed, memory) are benchmarks,
//! with the order of turns in `sink/ahead.rs` and the memory counted in `queen_sink::needs`; 23 (few files)
//! follows from the settings: a window is closed by its age of five minutes, so an hour has 13 at most.

use crate::place::{Place, item};
use queen_sim::double::Op;

/// Row 54: one frame with its checksum, a window of 8 MiB at most, no dictionary, nothing skippable.
#[tokio::test]
async fn a_zstd_file_is_one_plain_frame() {
    let mut place = Place::new(&[]).await;
    place.push(&[("p", "1")]).await;
    place.whole().await;
    place.push_large(20).await;
    place.whole().await;
    for key in place.data() {
        assert!(key.ends_with(".jsonl.zst"), "{key}");
        let bytes = place.double.object(&key).unwrap().bytes;
        assert_eq!(bytes[..4], [0x28, 0xb5, 0x2f, 0xfd], "{key}: a frame, not a skippable one");
        let descriptor = bytes[4];
        assert_eq!(descriptor & 0b100, 0b100, "{key}: with a checksum");
        assert_eq!(descriptor & 0b11, 0, "{key}: without a dictionary");
        assert_eq!(descriptor & 0b10_0000, 0, "{key}: not of one segment as long as the file");
        let (exponent, mantissa) = (u32::from(bytes[5] >> 3), u64::from(bytes[5] & 7));
        let window = (1u64 << (10 + exponent)) / 8 * (8 + mantissa);
        assert!(window <= 8 << 20, "{key}: a window of {window} bytes");
        let frame = zstd::zstd_safe::find_frame_compressed_size(&bytes).unwrap();
        assert_eq!(frame, bytes.len(), "{key}: one frame");
    }
    place.stop().await;
}

/// Row 52: `_queen/` holds nothing that a glob of data takes, and no file has a name that hides it.
#[tokio::test]
async fn what_is_no_data_has_no_name_of_data() {
    let mut place = Place::new(&[("QUEEN_S3_LAYOUT", "per-partition")]).await;
    place.push_items(vec![item("_hidden", "_p", "1"), item(".dot", ".p", "2")]).await;
    place.whole().await;
    for key in place.double.objects().into_keys() {
        let hidden = |part: &str| part.starts_with(['_', '.']);
        match key.contains("/_queen/") {
            true => assert!(key.ends_with(".json"), "{key}"),
            false => assert!(!key.split('/').any(hidden), "{key}"),
        }
    }
    place.stop().await;
}

/// Row 66: no decision rests on a listing, since none is asked for; nothing is ever deleted.
#[tokio::test]
async fn no_listing_is_ever_asked_for() {
    let mut place = Place::new(crate::place::IN_PARTS).await;
    place.push_large(9).await;
    place.whole().await;
    place.broker.kill().unwrap();
    place.restart().await;
    place.push(&[("p", "1")]).await;
    place.whole().await;
    for op in [Op::List, Op::Uploads, Op::Delete, Op::HeadBucket, Op::Other] {
        assert_eq!(place.double.count(op), 0, "{op:?}");
    }
    place.stop().await;
}

/// Row 26: the zone of the machine decides nothing. (The edges of the calendar, under a clock that
/// leaps there, are in `sink/calendar.rs`.)
#[tokio::test]
async fn folders_are_of_utc_whatever_the_zone() {
    for zone in ["Europe/Rome", "Asia/Kathmandu", "Pacific/Kiritimati", "No/Such_Zone"] {
        let mut place = Place::new(&[("TZ", zone)]).await;
        place.push(&[("p", "1")]).await;
        // The checker reckons day and hour of each file from its stamps, in UTC.
        place.whole().await;
        place.stop().await;
    }
}
