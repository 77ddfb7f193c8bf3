//! Finds the payloads that readers of text cannot survive.
//!
//! Owns: the three reasons (a lone surrogate escape, nesting, size) and a scan that costs about one
//! pass at memory speed for the payloads that have none of them.
//! Leaves to others: how such a payload is written (`jsonl`, `parquet`).

/// Deepest nesting that goes as text.
pub const DEPTH_MAX: usize = 127;
/// Longest payload that goes as text, bytes.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// What one pass over a payload tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// It holds CR or LF, which become spaces on a line.
    pub line_breaks: bool,
    /// It must go as base64.
    pub unsafe_as_text: bool,
}

/// Looks at a payload: valid JSON text.
pub fn scan(payload: &[u8]) -> Traits {
    guarded(payload, Traits { line_breaks: true, unsafe_as_text: true }, look)
}

/// Looks at a payload, and takes one that shows a bug in the look for `worst`.
///
/// All of an encoder that looks into payloads goes through here: whoever builds the window, such a
/// payload is wrapped. A record must not stop its queue for ever.
pub fn guarded<T>(payload: &[u8], worst: T, look: fn(&[u8]) -> T) -> T {
    let looked = std::panic::catch_unwind(|| {
        #[cfg(test)]
        assert_ne!(payload, BUG.as_bytes(), "the test wants it so");
        look(payload)
    });
    looked.unwrap_or_else(|_| {
        tracing::error!(bytes = payload.len(), "a bug met a payload, which goes as base64");
        worst
    })
}

/// The payload that shows a bug, in tests.
#[cfg(test)]
pub const BUG: &str = "{\"bug\":\"in the encoder\"}";

fn look(payload: &[u8]) -> Traits {
    let mut openers = 0usize;
    let (mut breaks, mut slashes) = (0u8, 0u8);
    // 255 at a time, so that the sums stay in bytes and the loop in vector registers.
    for chunk in payload.chunks(255) {
        let mut open = 0u8;
        for &b in chunk {
            open += u8::from(b == b'{') + u8::from(b == b'[');
            breaks |= u8::from(b == b'\n') | u8::from(b == b'\r');
            slashes |= u8::from(b == b'\\');
        }
        openers += usize::from(open);
    }
    let unsafe_as_text = payload.len() > RECORD_BYTES_MAX
        || openers > DEPTH_MAX && depth(payload) > DEPTH_MAX
        || slashes != 0 && lone_surrogate(payload);
    Traits { line_breaks: breaks != 0, unsafe_as_text }
}

/// Deepest nesting of arrays and objects.
fn depth(payload: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut i) = (0usize, 0usize, false, 0usize);
    while i < payload.len() {
        match payload[i] {
            b'\\' if in_string => i += 1,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        i += 1;
    }
    deepest
}

/// Whether an escape `\uD800`..`\uDFFF` stands without its other half.
fn lone_surrogate(payload: &[u8]) -> bool {
    let mut i = 0;
    while i + 1 < payload.len() {
        if payload[i] != b'\\' {
            i += 1;
            continue;
        }
        match unit(payload, i) {
            Some(0xD800..=0xDBFF) => match unit(payload, i + 6) {
                Some(0xDC00..=0xDFFF) => i += 12,
                _ => return true,
            },
            Some(0xDC00..=0xDFFF) => return true,
            Some(_) => i += 6,
            None => i += 2,
        }
    }
    false
}

/// The UTF-16 unit of the escape `\uXXXX` at `at`.
fn unit(payload: &[u8], at: usize) -> Option<u16> {
    let text = payload.get(at..at + 6).filter(|t| t[0] == b'\\' && t[1] == b'u')?;
    u16::from_str_radix(std::str::from_utf8(&text[2..]).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wraps(text: &str) -> bool {
        scan(text.as_bytes()).unsafe_as_text
    }

    #[test]
    fn lone_surrogates_are_found_and_pairs_are_not() {
        assert!(wraps(r#""\ud800""#));
        assert!(wraps(r#""\uDC00x""#));
        assert!(wraps(r#""\ud83d\ud83d\ude00""#));
        assert!(!wraps(r#""\ud83d\ude00""#));
        assert!(!wraps(r#""\\ud800 \u0041 \n""#), "an escaped backslash, then letters");
        assert!(!wraps("{\"a\":\"\u{1F600}\"}"));
    }

    #[test]
    fn nesting_counts_outside_strings_only() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(!wraps(&nested(127)));
        assert!(wraps(&nested(128)));
        assert!(!wraps(&format!("[\"{}\\\"{}\"]", "[".repeat(200), "{".repeat(200))));
        assert!(!wraps(&format!("[{}0]", "[],".repeat(400))));
    }

    #[test]
    fn large_payloads_are_wrapped_and_line_breaks_seen() {
        let large = format!("\"{}\"", "x".repeat(RECORD_BYTES_MAX));
        assert!(wraps(&large));
        assert!(!wraps(&large[..RECORD_BYTES_MAX]));
        assert!(
            scan(b"{\n}").line_breaks && scan(b"[1,\r2]").line_breaks && !scan(b"{}").line_breaks
        );
    }
}
