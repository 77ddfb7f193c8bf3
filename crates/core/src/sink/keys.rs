//! Keys of the sink's KV rows, and the escaping of names that object keys share.
//!
//! ```text
//! s3:<sink>:on                       when the sink was first turned on
//! s3:<sink>:node=<esc instance>      presence of a node
//! s3:<sink>:<esc queue>:start        where the queue's copy begins
//! s3:<sink>:<esc queue>:lease        which node copies the queue
//! s3:<sink>:<esc queue>:intent       the window being written
//! s3:<sink>:<esc queue>:committed    the last window that is in the bucket
//! ```

/// Row of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// Where the copy begins.
    Start,
    /// Which node copies.
    Lease,
    /// The window being written.
    Intent,
    /// The last window that is in the bucket.
    Committed,
    /// Uploads in parts on their way.
    Uploads,
}

impl RowKind {
    /// Last part of the key.
    pub fn word(self) -> &'static str {
        match self {
            RowKind::Start => "start",
            RowKind::Lease => "lease",
            RowKind::Intent => "intent",
            RowKind::Committed => "committed",
            RowKind::Uploads => "uploads",
        }
    }
}

/// Key of a queue's row.
pub fn row_key(sink: &str, queue: &str, kind: RowKind) -> String {
    format!("s3:{sink}:{}:{}", escape(queue), kind.word())
}

/// Key of the row that says when a sink was first turned on.
pub fn on_key(sink: &str) -> String {
    format!("s3:{sink}:on")
}

/// Prefix of the presence rows of a sink's nodes.
pub fn node_prefix(sink: &str) -> String {
    format!("s3:{sink}:node=")
}

/// Key of a node's presence row.
pub fn node_key(sink: &str, instance: &str) -> String {
    format!("s3:{sink}:node={}", escape(instance))
}

/// Percent-encodes bytewise: keeps `A-Z a-z 0-9 . _ -`, every other byte becomes `%XX` in upper-case
/// hex. The names `.` and `..` are encoded whole, since a path may not hold them.
pub fn escape(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let dots = matches!(name, "." | "..");
    for byte in name.bytes() {
        if !dots && (byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            out.push(byte as char);
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            out.push('%');
            out.push(HEX[usize::from(byte >> 4)] as char);
            out.push(HEX[usize::from(byte & 15)] as char);
        }
    }
    out
}

/// What readers of folders take for a missing value, and write for one.
const NO_VALUE: &str = "__HIVE_DEFAULT_PARTITION__";

/// The value of a folder `key=value` for a name: [`escape`], but for the names that readers do not
/// take for text.
///
/// An empty value stops Spark for the whole lake, so the empty name is what Hive writes for it. That
/// very word, and `null` in any case, read as a missing value: of these the first byte is encoded.
pub fn folder_value(name: &str) -> String {
    match name {
        "" => NO_VALUE.to_owned(),
        name if name == NO_VALUE || name.eq_ignore_ascii_case("null") => {
            format!("%{:02X}{}", name.as_bytes()[0], &name[1..])
        }
        name => escape(name),
    }
}

/// Undoes [`escape`]; `None` for a text that it cannot have written.
pub fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digit = |b: u8| match b {
                b'0'..=b'9' => Some(b - b'0'),
                b'A'..=b'F' => Some(b - b'A' + 10),
                _ => None,
            };
            out.push(digit(bytes.next()?)? << 4 | digit(bytes.next()?)?);
        } else {
            out.push(byte);
        }
    }
    let name = String::from_utf8(out).ok()?;
    (escape(&name) == text).then_some(name)
}
