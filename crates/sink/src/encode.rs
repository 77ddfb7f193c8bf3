//! From records to the bytes of a data object.
//!
//! Owns: formats and codecs, and the encoder revision that pins their bytes.
//! Leaves to others: reading records (`read`), sending bytes (`upload`).
//! Upholds: `window-is-final` (same records, same bytes).

pub mod jsonl;
pub mod object;
pub mod wrap;

/// Raised with every change that changes the bytes of an object: the line format, a codec's level
/// or frame options, a library release that compresses otherwise. The golden files tell.
pub const ENCODER_REVISION: u32 = 1;

/// Format of a data object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// One JSON object per line.
    Jsonl,
}

impl Format {
    /// The word of settings and documents.
    pub fn word(self) -> &'static str {
        match self {
            Format::Jsonl => "jsonl",
        }
    }

    /// Undoes [`Format::word`].
    pub fn from_word(word: &str) -> Option<Format> {
        (word == "jsonl").then_some(Format::Jsonl)
    }

    /// `content-type` of the object; there is never a content encoding.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Jsonl => "application/x-ndjson",
        }
    }
}

/// Compression of a JSONL object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// One zstd frame, level 3, with a checksum.
    Zstd,
    /// One gzip member, level 6.
    Gzip,
    /// None.
    None,
}

impl Codec {
    /// The word of settings and documents.
    pub fn word(self) -> &'static str {
        match self {
            Codec::Zstd => "zstd",
            Codec::Gzip => "gzip",
            Codec::None => "none",
        }
    }

    /// Undoes [`Codec::word`].
    pub fn from_word(word: &str) -> Option<Codec> {
        [Codec::Zstd, Codec::Gzip, Codec::None].into_iter().find(|c| c.word() == word)
    }

    /// The level that new windows are written with.
    pub fn level(self) -> i32 {
        match self {
            Codec::Zstd => 3,
            Codec::Gzip => 6,
            Codec::None => 0,
        }
    }

    /// Last part of an object's key.
    pub fn extension(self) -> &'static str {
        match self {
            Codec::Zstd => "jsonl.zst",
            Codec::Gzip => "jsonl.gz",
            Codec::None => "jsonl",
        }
    }
}

/// The manifest's `writer`.
pub fn writer(format: Format, codec: Codec) -> String {
    let release = env!("CARGO_PKG_VERSION");
    match codec {
        Codec::None => format!("queen-s3/{release} {}", format.word()),
        codec => format!("queen-s3/{release} {}+{}", format.word(), codec.word()),
    }
}
