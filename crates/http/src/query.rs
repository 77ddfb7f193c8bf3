//! Query parameters: decoded on demand, unknown ones ignored, the first of a name counts.

use percent_encoding::percent_decode;
use queen_core::Stamp;
use std::borrow::Cow;

/// The raw query of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    /// Of a URI's query part.
    pub(crate) fn new(raw: Option<&'a str>) -> Query<'a> {
        Query(raw.unwrap_or_default())
    }

    /// Every parameter in order, decoded: `+` is a blank; bytes that are no UTF-8 are replaced.
    pub(crate) fn pairs(self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
        self.0.split('&').filter(|part| !part.is_empty()).map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(name), decode(value))
        })
    }

    /// The first value of a parameter. An empty value is as absent.
    pub(crate) fn get(self, name: &str) -> Option<Cow<'a, str>> {
        self.pairs().find(|(key, _)| key == name).map(|(_, v)| v).filter(|v| !v.is_empty())
    }

    /// A time, or what is wrong with it. An offset's `+` arrives as a blank when it is not encoded.
    pub(crate) fn time(self, name: &str) -> Result<Option<Stamp>, String> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let at = Stamp::parse_iso(&text).or_else(|| Stamp::parse_iso(&text.replace(' ', "+")));
        at.map(Some).ok_or_else(|| format!("{name}: {text:?} is not an ISO 8601 time"))
    }

    /// A whole number, or what is wrong with it.
    pub(crate) fn number(self, name: &str) -> Result<Option<i64>, String> {
        self.get(name).map(|text| whole(name, &text)).transpose()
    }
}

/// A parameter's text as a whole number, or what is wrong with it.
pub(crate) fn whole(name: &str, text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| format!("parameter {name}: {text:?} is not a whole number"))
}

/// A parameter's text as a switch: anything but `true`, `1`, `yes`, `on` is off.
pub(crate) fn on(text: &str) -> bool {
    ["true", "1", "yes", "on"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn decode(part: &str) -> Cow<'_, str> {
    if !part.contains(['%', '+']) {
        return Cow::Borrowed(part);
    }
    let blanks = part.replace('+', " ");
    Cow::Owned(percent_decode(blanks.as_bytes()).decode_utf8_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_the_first_counts() {
        let query = Query::new(Some("a=1&b=x%2Fy+z&a=2&c&d="));
        assert_eq!(query.get("a").unwrap(), "1");
        assert_eq!(query.get("b").unwrap(), "x/y z");
        assert_eq!(query.get("c"), None);
        assert_eq!(query.get("d"), None);
        assert_eq!(whole("n", " 7 "), Ok(7));
        assert_eq!(whole("n", "x").unwrap_err(), "parameter n: \"x\" is not a whole number");
        assert!(on("TRUE") && on("1") && !on("no"));
    }
}
