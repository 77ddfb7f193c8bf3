//! JSON text piece by piece, for the requests and answers that are read and written most often.

use serde::Deserialize;
use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Deref;

/// A text that stays in the body it was read from, unless it has escapes.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Text<'a> {
        Text(Cow::Borrowed(text))
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends a number in decimal.
pub(crate) fn put_number(out: &mut String, value: u64) {
    let mut buf = [0u8; 20];
    let mut at = buf.len();
    let mut rest = value;
    loop {
        at -= 1;
        buf[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    // Digits are ASCII.
    out.push_str(std::str::from_utf8(&buf[at..]).unwrap_or_default());
}

/// Appends a UUID in its hyphenated lower-case form, without quotes.
pub(crate) fn put_uuid(out: &mut String, id: &[u8; 16]) {
    let mut buf = [b'-'; 36];
    let mut at = 0;
    for (i, byte) in id.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            at += 1;
        }
        buf[at] = HEX[usize::from(byte >> 4)];
        buf[at + 1] = HEX[usize::from(byte & 15)];
        at += 2;
    }
    // Hex digits and hyphens are ASCII.
    out.push_str(std::str::from_utf8(&buf).unwrap_or_default());
}

/// Appends a text as a JSON string, quotes included.
pub(crate) fn put_json_str(out: &mut String, text: &str) {
    out.push('"');
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escaped = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[from..at]);
        if escaped.is_empty() {
            // Writing into a String cannot fail.
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.push_str(escaped);
        }
        from = at + 1;
    }
    out.push_str(&text[from..]);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_escapes_is_borrowed() {
        let read = |json: &'static str| serde_json::from_str::<Option<Text<'_>>>(json).unwrap();
        assert!(matches!(read("\"plain ä\"").unwrap().0, Cow::Borrowed("plain ä")));
        assert_eq!(&*read("\"a\\nb\"").unwrap(), "a\nb");
        assert!(read("null").is_none());
    }

    #[test]
    fn texts_numbers_and_ids_are_written_as_a_json_library_writes_them() {
        for text in ["", "a", "ä/€ 😀", "a\"b\\c\n\r\t\u{1}\u{1f}d", "\u{7f}"] {
            let mut out = String::new();
            put_json_str(&mut out, text);
            assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
        for value in [0, 7, 10, 12345, u64::MAX] {
            let mut out = String::from("x");
            put_number(&mut out, value);
            assert_eq!(out, format!("x{value}"));
        }
        let id = queen_core::MessageId([0x0f, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff]);
        let mut out = String::new();
        put_uuid(&mut out, &id.0);
        assert_eq!(out, id.to_string());
    }
}
