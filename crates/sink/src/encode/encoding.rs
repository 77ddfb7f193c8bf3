//! Format, compression and level of data objects, as one value.
//!
//! Owns: the combinations that can be written, and everything that follows from one: the words of
//! settings, intent and manifest, extension, content type.
//! Leaves to others: the bytes (`jsonl`, `compress`, `parquet`), the revision of the encoder that makes them.
//!
//! An intent keeps an encoding as three words: format, compression, level. Whoever redoes a window
//! reads them back with [`Encoding::from_words`]; today's settings have no say.

/// What the bytes of data objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// One JSON object per line, the whole object compressed.
    Jsonl(Compression),
    /// A Parquet file, each page compressed.
    Parquet(PageCompression),
}

/// Compression of a JSONL object, with its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// One zstd frame with a checksum; level 1 to 19, above which readers refuse the window.
    Zstd(i32),
    /// One gzip member; level 1 to 9.
    Gzip(u32),
    /// None.
    None,
}

/// Compression of the pages of a Parquet object, with its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageCompression {
    /// zstd; level 1 to 19.
    Zstd(i32),
    /// Snappy.
    Snappy,
}

impl PageCompression {
    /// zstd at the level of new windows.
    pub const ZSTD: PageCompression = PageCompression::Zstd(3);

    fn from_words(word: &str, level: i32) -> Option<PageCompression> {
        match (word, level) {
            ("zstd", 1..=19) => Some(PageCompression::Zstd(level)),
            ("snappy", 0) => Some(PageCompression::Snappy),
            _ => None,
        }
    }
}

impl Compression {
    /// zstd at the level of new windows.
    pub const ZSTD: Compression = Compression::Zstd(3);
    /// gzip at the level of new windows.
    pub const GZIP: Compression = Compression::Gzip(6);

    fn from_words(word: &str, level: i32) -> Option<Compression> {
        match (word, level) {
            ("zstd", 1..=19) => Some(Compression::Zstd(level)),
            ("gzip", 1..=9) => Some(Compression::Gzip(level.unsigned_abs())),
            ("none", 0) => Some(Compression::None),
            _ => None,
        }
    }
}

impl Encoding {
    /// Reads an intent's words; `None` when this release cannot write what they say.
    pub fn from_words(format: &str, compression: &str, level: i32) -> Option<Encoding> {
        match format {
            "jsonl" => Compression::from_words(compression, level).map(Encoding::Jsonl),
            "parquet" => PageCompression::from_words(compression, level).map(Encoding::Parquet),
            _ => None,
        }
    }

    /// The word of the format: in settings, intent, manifest and status.
    pub fn format(self) -> &'static str {
        match self {
            Encoding::Jsonl(_) => "jsonl",
            Encoding::Parquet(_) => "parquet",
        }
    }

    /// The word of the compression: in settings, intent, manifest and status.
    pub fn compression(self) -> &'static str {
        match self {
            Encoding::Jsonl(Compression::Zstd(_)) | Encoding::Parquet(PageCompression::Zstd(_)) => {
                "zstd"
            }
            Encoding::Jsonl(Compression::Gzip(_)) => "gzip",
            Encoding::Jsonl(Compression::None) => "none",
            Encoding::Parquet(PageCompression::Snappy) => "snappy",
        }
    }

    /// The intent's level; 0 where there are no levels.
    pub fn level(self) -> i32 {
        match self {
            Encoding::Jsonl(Compression::Zstd(level))
            | Encoding::Parquet(PageCompression::Zstd(level)) => level,
            Encoding::Jsonl(Compression::Gzip(level)) => level.cast_signed(),
            Encoding::Jsonl(Compression::None) | Encoding::Parquet(PageCompression::Snappy) => 0,
        }
    }

    /// What follows the last dot of a window's key.
    pub fn extension(self) -> &'static str {
        match self {
            Encoding::Jsonl(Compression::Zstd(_)) => "jsonl.zst",
            Encoding::Jsonl(Compression::Gzip(_)) => "jsonl.gz",
            Encoding::Jsonl(Compression::None) => "jsonl",
            Encoding::Parquet(_) => "parquet",
        }
    }

    /// `content-type` of the object; there is never a content encoding.
    pub fn content_type(self) -> &'static str {
        match self {
            Encoding::Jsonl(_) => "application/x-ndjson",
            Encoding::Parquet(_) => "application/vnd.apache.parquet",
        }
    }

    /// Memory that an object being encoded takes besides its finished bytes, when no record is longer
    /// than `record_bytes_max`, bytes.
    pub fn memory(self, record_bytes_max: u64) -> u64 {
        match self {
            // The line of a record, in base64 if need be, and the compressor.
            Encoding::Jsonl(compression) => {
                let codec = match compression {
                    Compression::Zstd(..=6) => 8 << 20,
                    Compression::Zstd(_) => 96 << 20,
                    Compression::Gzip(_) => 1 << 20,
                    Compression::None => 0,
                };
                record_bytes_max / 3 * 4 + (1 << 20) + codec
            }
            // The value in its step, in its page, and in the compressed one.
            Encoding::Parquet(_) => super::parquet::GROUP_MEMORY + record_bytes_max * 4,
        }
    }

    /// The manifest's `writer`: this release and what it writes.
    pub fn writer(self) -> String {
        let release = env!("CARGO_PKG_VERSION");
        match self {
            Encoding::Jsonl(Compression::None) => format!("queen-s3/{release} jsonl"),
            Encoding::Jsonl(_) => format!("queen-s3/{release} jsonl+{}", self.compression()),
            Encoding::Parquet(_) => format!("queen-s3/{release} parquet/60 {}", self.compression()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Encoding; 5] = [
        Encoding::Jsonl(Compression::ZSTD),
        Encoding::Jsonl(Compression::GZIP),
        Encoding::Jsonl(Compression::None),
        Encoding::Parquet(PageCompression::ZSTD),
        Encoding::Parquet(PageCompression::Snappy),
    ];

    #[test]
    fn an_encoding_is_read_back_from_the_words_of_an_intent() {
        for encoding in ALL.into_iter().chain([Encoding::Jsonl(Compression::Zstd(9))]) {
            let words = (encoding.format(), encoding.compression(), encoding.level());
            assert_eq!(Encoding::from_words(words.0, words.1, words.2), Some(encoding));
        }
    }

    #[test]
    fn words_that_no_release_wrote_are_no_encoding() {
        for (format, compression, level) in [
            ("csv", "zstd", 3),
            ("jsonl", "snappy", 0),
            ("jsonl", "zstd", 20),
            ("jsonl", "zstd", 0),
            ("jsonl", "gzip", -1),
            ("jsonl", "none", 3),
            ("parquet", "gzip", 6),
            ("parquet", "none", 0),
            ("parquet", "snappy", 3),
            ("parquet", "zstd", 20),
        ] {
            let read = Encoding::from_words(format, compression, level);
            assert_eq!(read, None, "{format} {compression} {level}");
        }
    }

    #[test]
    fn names_are_those_of_the_lake() {
        let shown = ALL.map(|e| (e.extension(), e.content_type(), e.writer()));
        let release = env!("CARGO_PKG_VERSION");
        let ndjson = "application/x-ndjson";
        let parquet = "application/vnd.apache.parquet";
        let want = [
            ("jsonl.zst", ndjson, format!("queen-s3/{release} jsonl+zstd")),
            ("jsonl.gz", ndjson, format!("queen-s3/{release} jsonl+gzip")),
            ("jsonl", ndjson, format!("queen-s3/{release} jsonl")),
            ("parquet", parquet, format!("queen-s3/{release} parquet/60 zstd")),
            ("parquet", parquet, format!("queen-s3/{release} parquet/60 snappy")),
        ];
        assert_eq!(shown, want);
    }
}
