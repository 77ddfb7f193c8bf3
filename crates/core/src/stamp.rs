//! The broker's log clock.
//!
//! Owns: the type and its text forms. Leaves to others: giving stamps (`queen-broker`) and checking
//! that they rise (`queen-state`, invariant `stamps-rise`).

use serde::{Deserialize, Serialize};

/// Microseconds since 1970-01-01 UTC on the broker's log clock.
///
/// Given by the leader when it appends a command: strictly greater than every earlier stamp in log
/// order, whatever the wall clock does. No two commands share one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Stamp(pub u64);

impl Stamp {
    /// Before every stamp that can be given.
    pub const ZERO: Stamp = Stamp(0);
    /// After every stamp that can be given.
    pub const MAX: Stamp = Stamp(u64::MAX);

    /// This stamp moved on by whole seconds, held at [`Stamp::MAX`].
    pub fn plus_seconds(self, seconds: u64) -> Stamp {
        Stamp(self.0.saturating_add(seconds.saturating_mul(1_000_000)))
    }

    /// This stamp moved back by whole seconds, held at [`Stamp::ZERO`].
    pub fn minus_seconds(self, seconds: u64) -> Stamp {
        Stamp(self.0.saturating_sub(seconds.saturating_mul(1_000_000)))
    }

    /// ISO 8601 in UTC with exactly six fractional digits and `Z`: `2026-10-24T10:23:54.910988Z`.
    ///
    /// Fixed width until the year 9999, so that texts sort as stamps do.
    pub fn to_iso(self) -> String {
        let mut text = String::with_capacity(27);
        self.write_iso(&mut text);
        text
    }

    /// Appends [`Stamp::to_iso`] to `out` without an allocation of its own.
    pub fn write_iso(self, out: &mut String) {
        let (year, month, day) = civil_from_days(self.0 / 86_400_000_000);
        let micros = self.0 % 86_400_000_000;
        let (secs, frac) = (micros / 1_000_000, micros % 1_000_000);
        let mut buf = *b"0000-00-00T00:00:00.000000Z";
        digits(&mut buf[0..4], year);
        digits(&mut buf[5..7], month);
        digits(&mut buf[8..10], day);
        digits(&mut buf[11..13], secs / 3600);
        digits(&mut buf[14..16], secs / 60 % 60);
        digits(&mut buf[17..19], secs % 60);
        digits(&mut buf[20..26], frac);
        out.extend(buf.iter().map(|b| *b as char));
    }

    /// Reads ISO 8601 with `Z` or an offset, any number of fractional digits.
    ///
    /// `None` for anything else and for times before 1970.
    pub fn parse_iso(text: &str) -> Option<Stamp> {
        let at: jiff::Timestamp = text.trim().parse().ok()?;
        u64::try_from(at.as_microsecond()).ok().map(Stamp)
    }

    /// Calendar day and hour in UTC: (year, month, day, hour).
    pub fn utc_hour(self) -> (u64, u64, u64, u64) {
        let (year, month, day) = civil_from_days(self.0 / 86_400_000_000);
        (year, month, day, self.0 / 3_600_000_000 % 24)
    }
}

fn digits(out: &mut [u8], mut value: u64) {
    for slot in out.iter_mut().rev() {
        *slot = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Proleptic Gregorian date of a day count since 1970-01-01 (the "days from civil" era method).
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let mp = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_text_has_six_digits_and_reads_back() {
        for micros in [0, 951_782_400_000_000, 1_792_837_434_910_988, 4_102_444_799_999_999] {
            let text = Stamp(micros).to_iso();
            assert_eq!(text.len(), 27);
            assert_eq!(Stamp::parse_iso(&text), Some(Stamp(micros)), "{text}");
        }
        assert_eq!(Stamp(1_792_837_434_910_988).to_iso(), "2026-10-24T10:23:54.910988Z");
        assert_eq!(
            Stamp::parse_iso("2026-10-24T12:23:54.91+02:00").unwrap().to_iso(),
            "2026-10-24T10:23:54.910000Z"
        );
        assert_eq!(Stamp::parse_iso("yesterday"), None);
    }
}
