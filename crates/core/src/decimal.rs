//! Exact decimal numbers, for counters.
//!
//! Owns: reading JSON number text without loss, adding and comparing it. No binary floats: the result
//! is the same on every node, and 0.1 + 0.2 is 0.3.

/// A decimal number: `digits / 10^scale`, less than 2^63 in size, at most 18 fractional digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    digits: i128,
    scale: u32,
}

const SCALE_MAX: u32 = 18;

impl Decimal {
    /// Zero.
    pub const ZERO: Decimal = Decimal { digits: 0, scale: 0 };

    /// Reads JSON number text, exponents included.
    ///
    /// `None` for anything that is not a JSON number, and for numbers of 2^63 or more in size or
    /// with more than 18 fractional digits other than trailing zeros.
    pub fn parse(text: &str) -> Option<Decimal> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
            Some(_) => return None,
            None => (mantissa, ""),
        };
        let plain = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !plain(whole) || !plain(fraction) {
            return None;
        }
        if whole.len() > 1 && whole.starts_with('0') {
            return None;
        }
        let digits = [whole, fraction].concat();
        let significant = digits.trim_start_matches('0').trim_end_matches('0');
        if significant.is_empty() {
            return Some(Decimal::ZERO);
        }
        if significant.len() > 37 {
            return None;
        }
        let dropped = digits.len() - digits.trim_end_matches('0').len();
        let scale = i64::try_from(fraction.len()).ok()? - i64::try_from(dropped).ok()? - exponent;
        let size: i128 = significant.parse().ok()?;
        let (size, scale) = if scale < 0 {
            let factor = 10i128.checked_pow(u32::try_from(-scale).ok()?)?;
            (size.checked_mul(factor)?, 0)
        } else {
            (size, u32::try_from(scale).ok()?)
        };
        Decimal { digits: if negative { -size } else { size }, scale }.within_limits()
    }

    /// The sum; `None` when it is of 2^63 or more in size.
    pub fn plus(self, other: Decimal) -> Option<Decimal> {
        let scale = self.scale.max(other.scale);
        let digits = self.at_scale(scale).checked_add(other.at_scale(scale))?;
        Decimal { digits, scale }.reduced().within_limits()
    }

    /// Smaller than `other`.
    pub fn below(self, other: Decimal) -> bool {
        let scale = self.scale.max(other.scale);
        self.at_scale(scale) < other.at_scale(scale)
    }

    /// Within the limits both factors are: digits < 2^63 × 10^18 < 2^127.
    fn at_scale(self, scale: u32) -> i128 {
        self.digits * 10i128.pow(scale - self.scale)
    }

    fn reduced(mut self) -> Decimal {
        while self.scale > 0 && self.digits % 10 == 0 {
            self.digits /= 10;
            self.scale -= 1;
        }
        self
    }

    fn within_limits(self) -> Option<Decimal> {
        let fits =
            self.scale <= SCALE_MAX && i64::try_from(self.digits / 10i128.pow(self.scale)).is_ok();
        fits.then_some(self)
    }
}

fn read_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) || digits.len() > 6 {
        return None;
    }
    text.parse().ok()
}

impl std::fmt::Display for Decimal {
    /// JSON number text: no exponent, no trailing zeros, an integer when it is one.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.scale == 0 {
            return self.digits.fmt(f);
        }
        let sign = if self.digits < 0 { "-" } else { "" };
        let unit = 10u128.pow(self.scale);
        let size = self.digits.unsigned_abs();
        let width = self.scale as usize;
        write!(f, "{sign}{}.{:0width$}", size / unit, size % unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> Option<String> {
        Decimal::parse(text).map(|d| d.to_string())
    }

    #[test]
    fn numbers_are_read_without_loss_or_refused() {
        for (text, want) in [
            ("0", "0"),
            ("-0.0", "0"),
            ("1.50", "1.5"),
            ("1e3", "1000"),
            ("12.5E-2", "0.125"),
            ("100e-2", "1"),
            ("-0.001", "-0.001"),
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("0.100000000000000005", "0.100000000000000005"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(want), "{text}");
        }
        for text in [
            "",
            "-",
            "+1",
            "01",
            ".5",
            "1.",
            "1e",
            "1e+",
            "0x1",
            "true",
            "\"1\"",
            "NaN",
            "1 ",
            "9223372036854775808",
            "1e300",
            "1e-19",
            "1e9999999",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
    }

    #[test]
    fn sums_are_exact_and_bounded() {
        let d = |text| Decimal::parse(text).unwrap();
        assert_eq!(d("0.1").plus(d("0.2")), Decimal::parse("0.3"));
        assert_eq!(d("2.5").plus(d("-0.5")).unwrap().to_string(), "2");
        assert_eq!(d("9223372036854775807").plus(d("1")), None);
        assert!(d("-1").below(d("0.5")) && !d("1").below(d("1.0")));
    }

    proptest! {
        #[test]
        fn whole_numbers_add_as_integers_do(a: i64, b: i64) {
            let sum = Decimal::parse(&a.to_string()).unwrap().plus(Decimal::parse(&b.to_string()).unwrap());
            prop_assert_eq!(sum.map(|s| s.to_string()), a.checked_add(b).map(|s| s.to_string()));
        }

        #[test]
        fn what_is_shown_reads_back(a: i64, scale in 0u32..=18, negative: bool) {
            let text = format!("{}{}e-{scale}", if negative && a >= 0 { "-" } else { "" }, a);
            let one = Decimal::parse(&text).unwrap();
            prop_assert_eq!(Decimal::parse(&one.to_string()), Some(one));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.eE]{0,60}") {
            if let Some(one) = Decimal::parse(&text) {
                prop_assert!(text.parse::<f64>().is_ok());
                prop_assert_eq!(Decimal::parse(&one.to_string()), Some(one));
            }
        }
    }
}
