//! One line of a JSONL object, read as strictly as it is promised.
//!
//! Owns: the order of the fields, the spelling of strings, numbers and stamps. Leaves to others:
//! what the values must be (`window`, `records`).

use base64::Engine;
use queen_core::Stamp;

/// The values of a record: of a line, or of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Partition name.
    pub partition: String,
    /// Offset.
    pub offset: u64,
    /// Transaction id.
    pub transaction_id: String,
    /// Stamp of the append.
    pub stamp: Stamp,
    /// Payload text; of a wrapped payload, its decoded bytes.
    pub payload: Vec<u8>,
    /// The payload was wrapped in base64.
    pub wrapped: bool,
    /// The payload is as it was pushed; on a line, breaks between its tokens become spaces.
    pub as_pushed: bool,
    /// Bytes of the record as its format counts them: the line without its line feed, or the texts of
    /// a row and 16 for its numbers.
    pub length: u64,
}

/// Reads a line without its line feed: exactly the fields partition, offset, transactionId, ts,
/// payload, in this order, no spaces between them.
pub fn parse(line: &[u8]) -> Result<Line, String> {
    let text = std::str::from_utf8(line).map_err(|e| format!("not UTF-8: {e}"))?;
    let (partition, rest) = string(expect(text, "{\"partition\":")?)?;
    let rest = expect(rest, ",\"offset\":")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let offset: u64 = rest[..digits].parse().map_err(|_| format!("no offset at {}", near(rest)))?;
    if offset.to_string().len() != digits {
        return Err(format!("offset {} has leading zeros", &rest[..digits]));
    }
    let (transaction_id, rest) = string(expect(&rest[digits..], ",\"transactionId\":")?)?;
    let (ts, rest) = string(expect(rest, ",\"ts\":")?)?;
    let stamp = Stamp::parse_iso(&ts).filter(|s| s.to_iso() == ts);
    let stamp =
        stamp.ok_or_else(|| format!("ts {ts:?} is not like 2026-10-24T10:23:54.910988Z"))?;
    let rest = expect(rest, ",\"payload\":")?;
    let payload = rest.strip_suffix('}').ok_or("no } at the end")?;
    let (payload, wrapped) = match payload.strip_prefix("null,\"payloadBase64\":") {
        Some(wrapped) => {
            let (base64, rest) = string(wrapped)?;
            if !rest.is_empty() {
                return Err(format!("more fields than promised: {}", near(rest)));
            }
            let bytes = base64::engine::general_purpose::STANDARD.decode(base64);
            (bytes.map_err(|e| format!("payloadBase64: {e}"))?, true)
        }
        None => {
            // Also finds a second field after the payload: `1,"x":2` is no JSON value.
            serde_json::from_str::<serde::de::IgnoredAny>(payload)
                .map_err(|e| format!("payload is no JSON value: {e}"))?;
            (payload.as_bytes().to_vec(), false)
        }
    };
    let length = line.len() as u64;
    let as_pushed = wrapped;
    Ok(Line { partition, offset, transaction_id, stamp, payload, wrapped, as_pushed, length })
}

/// The payload as a line must show it: raw line breaks between tokens become spaces.
pub fn on_one_line(payload: &[u8]) -> Vec<u8> {
    payload.iter().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b }).collect()
}

impl Line {
    /// The record as a line.
    pub fn text(&self) -> anyhow::Result<Vec<u8>> {
        let mut text = format!(
            "{{\"partition\":{},\"offset\":{},\"transactionId\":{},\"ts\":\"{}\",\"payload\":",
            serde_json::to_string(&self.partition)?,
            self.offset,
            serde_json::to_string(&self.transaction_id)?,
            self.stamp.to_iso()
        )
        .into_bytes();
        text.extend_from_slice(&self.payload);
        text.push(b'}');
        Ok(text)
    }
}

fn expect<'a>(text: &'a str, token: &str) -> Result<&'a str, String> {
    text.strip_prefix(token).ok_or_else(|| format!("{token} expected at {}", near(text)))
}

/// A JSON string in its canonical spelling, and what follows it.
fn string(text: &str) -> Result<(String, &str), String> {
    let mut escaped = false;
    let end = text.bytes().enumerate().skip(1).find(|(_, byte)| {
        let closes = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        closes
    });
    let (end, _) = end.ok_or_else(|| format!("no string at {}", near(text)))?;
    let (token, rest) = text.split_at(end + 1);
    let value: String =
        serde_json::from_str(token).map_err(|e| format!("no string at {}: {e}", near(text)))?;
    // serde_json's writer escapes what the format says and nothing else.
    if serde_json::to_string(&value).ok().as_deref() != Some(token) {
        return Err(format!("the string {} is not in its shortest spelling", near(token)));
    }
    Ok((value, rest))
}

fn near(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"partition":"c\"1","offset":7,"transactionId":"t","ts":"2026-10-24T10:23:54.910988Z","payload":{"total":42.00}}"#;

    #[test]
    fn a_line_of_the_format_is_read() {
        let line = parse(GOOD.as_bytes()).unwrap();
        assert_eq!((line.partition.as_str(), line.offset, line.wrapped), ("c\"1", 7, false));
        assert_eq!(line.payload, b"{\"total\":42.00}");
        let wrapped = GOOD.replace("{\"total\":42.00}", "null,\"payloadBase64\":\"Ilx1ZDgwMCI=\"");
        let line = parse(wrapped.as_bytes()).unwrap();
        assert_eq!((line.payload.as_slice(), line.wrapped), (&b"\"\\ud800\""[..], true));
    }

    #[test]
    fn a_line_that_strays_from_the_format_is_refused() {
        for (from, to) in [
            ("\"offset\":7", "\"offset\":07"),
            ("\"offset\":7", "\"offset\": 7"),
            (".910988Z", ".91Z"),
            ("c\\\"1", "\\u0063"),
            ("42.00}}", "42.00}"),
            ("42.00}}", "42.00},\"x\":1}"),
            ("\"transactionId\":\"t\",", ""),
            ("partition", "Partition"),
        ] {
            let bad = GOOD.replace(from, to);
            assert_ne!(bad, GOOD);
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
