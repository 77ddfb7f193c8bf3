//! Names of objects in the bucket, read back into their parts.
//!
//! Owns: this checker's own reading of the key layout of the specification. Leaves to others:
//! whether the parts agree with a manifest (`window`).

/// What a key of the bucket names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A file of records.
    Data(DataName),
    /// A manifest: tenant, queue, window number.
    Manifest(String, String, u64),
    /// Another sidecar of a window or of an hour: tenant, queue, the rest of the key.
    Sidecar(String, String, String),
}

/// The parts of a data object's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataName {
    /// Tenant id as text.
    pub tenant: String,
    /// Queue name, unescaped.
    pub queue: String,
    /// `YYYY-MM-DD`.
    pub day: String,
    /// `HH`; `None` when folders are days.
    pub hour: Option<String>,
    /// Window number.
    pub k: u64,
    /// First stamp of the window, microseconds.
    pub t_start: u64,
    /// The stamp after the last of the window, microseconds.
    pub t_end: u64,
    /// In the per-partition layout: partition, first offset, last offset.
    pub partition: Option<(String, u64, u64)>,
    /// `jsonl.zst`, `jsonl.gz`, `jsonl` or `parquet`.
    pub extension: String,
}

/// Reads a key below `prefix`; the error says what does not fit the layout.
pub fn parse(prefix: &str, key: &str) -> Result<Name, String> {
    let rest = key.strip_prefix(prefix).and_then(|r| r.strip_prefix('/'));
    let rest = rest.ok_or_else(|| format!("is not below the prefix {prefix:?}"))?;
    let (sidecar, rest) = match rest.strip_prefix("_queen/") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let parts: Vec<&str> = rest.split('/').collect();
    let [tenant, queue, tail @ ..] = parts.as_slice() else {
        return Err("has fewer folders than tenant and queue".to_owned());
    };
    let tenant = unescape(tenant.strip_prefix("tenant=").ok_or("has no tenant= folder")?)?;
    let queue = queue_of(queue.strip_prefix("queue=").ok_or("has no queue= folder")?)?;
    if !sidecar {
        return data(tenant, queue, tail).map(Name::Data);
    }
    match tail {
        ["windows", file] => match file.strip_suffix(".json").map(|k| number(k, 10)) {
            Some(Ok(k)) => Ok(Name::Manifest(tenant, queue, k)),
            _ => Ok(Name::Sidecar(tenant, queue, tail.join("/"))),
        },
        _ => Ok(Name::Sidecar(tenant, queue, tail.join("/"))),
    }
}

fn data(tenant: String, queue: String, tail: &[&str]) -> Result<DataName, String> {
    let (day, hour, file) = match tail {
        [day, hour, file] => (day, Some(hour), file),
        [day, file] => (day, None, file),
        _ => return Err("is not dt=…/hour=…/file".to_owned()),
    };
    let day = day.strip_prefix("dt=").ok_or("has no dt= folder")?.to_owned();
    let hour = match hour {
        Some(hour) => Some(hour.strip_prefix("hour=").ok_or("has no hour= folder")?.to_owned()),
        None => None,
    };
    let body = file.strip_prefix("w-").ok_or("is no window file (w-…)")?;
    let known = ["jsonl.zst", "jsonl.gz", "jsonl", "parquet"].into_iter();
    let mut cut = known.filter_map(|known| {
        let numbers = body.strip_suffix(known)?.strip_suffix('.')?;
        Some((numbers, known.to_owned()))
    });
    let (numbers, extension) = cut.next().ok_or("is no .jsonl or .parquet file")?;
    let parts: Vec<&str> = numbers.splitn(4, '-').collect();
    let [k, t_start, t_end, rest @ ..] = parts.as_slice() else {
        return Err("is not w-k-tStart-tEnd".to_owned());
    };
    let partition = match rest {
        [] => None,
        [rest] => {
            let named = rest.strip_prefix("p-").ok_or("has something after tEnd")?;
            let mut ends = named.rsplitn(3, '-');
            let last = number(ends.next().unwrap_or_default(), 12)?;
            let first = number(ends.next().unwrap_or_default(), 12)?;
            Some((unescape(ends.next().unwrap_or_default())?, first, last))
        }
        _ => return Err("has something after tEnd".to_owned()),
    };
    let (k, t_start, t_end) = (number(k, 10)?, number(t_start, 16)?, number(t_end, 16)?);
    Ok(DataName { tenant, queue, day, hour, k, t_start, t_end, partition, extension })
}

/// A zero-padded number of at least `width` digits.
fn number(text: &str, width: usize) -> Result<u64, String> {
    let plain = text.bytes().all(|b| b.is_ascii_digit());
    let padded = text.len() == width || (text.len() > width && !text.starts_with('0'));
    match text.parse() {
        Ok(value) if plain && padded => Ok(value),
        _ => Err(format!("has {text:?} where a number of {width} digits belongs")),
    }
}

/// The queue of a folder. No folder's value is empty or reads as a missing one, but that of the
/// queue without a name.
fn queue_of(folder: &str) -> Result<String, String> {
    match folder {
        "__HIVE_DEFAULT_PARTITION__" => Ok(String::new()),
        "" => Err("has an empty queue= folder".to_owned()),
        folder if folder.eq_ignore_ascii_case("null") => {
            Err(format!("has {folder:?}, which reads as no value"))
        }
        folder => unescape(folder),
    }
}

/// What [`parse`] makes of the folder of a queue: the name itself, unless the folder is shortened.
pub fn queue_in_key(name: &str) -> String {
    in_key(name, 240)
}

/// What [`parse`] makes of a partition's name in that of a file.
pub fn partition_in_key(name: &str) -> String {
    in_key(name, 160)
}

/// A name whose escaped form is longer than `most` bytes stands in keys as the beginning of that
/// form, without half an escape at its end, `~`, and 32 hex digits of its SHA-256: `most` bytes at
/// most.
fn in_key(name: &str, most: usize) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let mut escaped = String::new();
    let mut ends = vec![0];
    for byte in name.bytes() {
        match plain(byte) {
            true => escaped.push(char::from(byte)),
            false => escaped.push_str(&format!("%{byte:02X}")),
        }
        ends.push(escaped.len());
    }
    if escaped.len() <= most {
        return name.to_owned();
    }
    let end = ends.into_iter().take_while(|end| *end <= most - 33).last().unwrap_or_default();
    format!("{}~{}", &escaped[..end], &super::sha256(name.as_bytes())[..32])
}

/// Undoes the escaping of names: `A-Z a-z 0-9 . _ -` stand for themselves, every other byte is
/// `%XX` in upper case. Anything else is no escaped name. A shortened name comes back as it is.
fn unescape(text: &str) -> Result<String, String> {
    if let Some((begin, hash)) = text.split_once('~') {
        let hex = hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_hexdigit());
        let clean = begin.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-%".contains(&b));
        return match hex && clean {
            true => Ok(text.to_owned()),
            false => Err(format!("has {text:?}, which is no shortened name")),
        };
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            out.push(byte);
            continue;
        }
        let hex = [bytes.next().unwrap_or(b'?'), bytes.next().unwrap_or(b'?')];
        let digit = |b: u8| match b {
            b'0'..=b'9' => Some(b - b'0'),
            b'A'..=b'F' => Some(b - b'A' + 10),
            _ => None,
        };
        match (byte, digit(hex[0]), digit(hex[1])) {
            (b'%', Some(high), Some(low)) => out.push(high << 4 | low),
            _ => return Err(format!("has {text:?}, which is no escaped name")),
        }
    }
    String::from_utf8(out).map_err(|_| format!("has {text:?}, which is no UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_seed_are_read() {
        let tenant = "00000000-0000-0000-0000-000000000001";
        let data = format!(
            "queen/tenant={tenant}/queue=a%2Fb/dt=2026-10-24/hour=10/\
             w-0000000001-1792836000000000-1792837437745538.jsonl.zst"
        );
        let Ok(Name::Data(name)) = parse("queen", &data) else { panic!("{data}") };
        assert_eq!((name.tenant.as_str(), name.queue.as_str(), name.k), (tenant, "a/b", 1));
        assert_eq!((name.t_start, name.t_end), (1792836000000000, 1792837437745538));
        assert_eq!((name.day.as_str(), name.hour.as_deref()), ("2026-10-24", Some("10")));
        let manifest = format!("queen/_queen/tenant={tenant}/queue=orders/windows/0000000001.json");
        let want = Name::Manifest(tenant.to_owned(), "orders".to_owned(), 1);
        assert_eq!(parse("queen", &manifest), Ok(want));
    }

    #[test]
    fn folders_of_names_that_read_as_no_value_are_read_back() {
        assert_eq!(queue_of("__HIVE_DEFAULT_PARTITION__"), Ok(String::new()));
        assert_eq!(
            queue_of("%5F_HIVE_DEFAULT_PARTITION__").as_deref(),
            Ok("__HIVE_DEFAULT_PARTITION__")
        );
        assert_eq!(queue_of("%6EuLL").as_deref(), Ok("nuLL"));
        assert!(queue_of("null").is_err() && queue_of("").is_err());
    }

    #[test]
    fn a_key_outside_the_layout_is_refused() {
        for key in [
            "queen/x",
            "other/tenant=a/queue=b/dt=2026-10-24/hour=10/w-0000000001-1792836000000000-1792837437745538.jsonl",
            "queen/tenant=a/queue=b/dt=2026-10-24/hour=10/w-1-1792836000000000-1792837437745538.jsonl",
            "queen/tenant=a/queue=b/dt=2026-10-24/hour=10/w-0000000001-1792836000000000-1792837437745538.csv",
            "queen/tenant=a/queue=b%2f/dt=2026-10-24/hour=10/w-0000000001-1792836000000000-1792837437745538.jsonl",
        ] {
            assert!(parse("queen", key).is_err(), "{key}");
        }
    }
}
