//! The faults that the checker knows, each under its own name.
//!
//! Owns: the list. Leaves to others: finding them.

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// What is wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// The fault's name.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// A key that is neither in the layout nor named by a manifest.
    ObjectStranger = "object-stranger",
    /// A manifest names an object that is not there.
    ObjectMissing = "object-missing",
    /// An object is longer or shorter than its manifest says.
    ObjectBytes = "object-bytes",
    /// An object's SHA-256 is not that of its manifest.
    ObjectHash = "object-hash",
    /// An object cannot be decompressed or decoded, or does not end its last line.
    ObjectUnreadable = "object-unreadable",
    /// The names and numbers of an object's key are not those of its manifest.
    ObjectName = "object-name",
    /// A window number below the highest one has no manifest.
    ManifestMissing = "manifest-missing",
    /// A manifest is no JSON document of the format.
    ManifestUnreadable = "manifest-unreadable",
    /// A manifest speaks of another queue or window than its key.
    ManifestName = "manifest-name",
    /// A manifest's `prev` is not the SHA-256 of the manifest before.
    ManifestChain = "manifest-chain",
    /// A manifest's sums are not those of its objects.
    ManifestCount = "manifest-count",
    /// A window does not begin where the one before ended, or at the hour of its first record.
    WindowsTile = "windows-tile",
    /// A sidecar of an hour is wrong.
    HourWrong = "hour-wrong",
    /// A Parquet file's footer does not promise what it must, or promises what is not so.
    FooterWrong = "footer-wrong",
    /// A line that is not exactly the five fields.
    LineMalformed = "line-malformed",
    /// Records that do not rise by (partition, offset).
    LinesUnsorted = "lines-unsorted",
    /// A record's stamp is outside its window.
    StampOutsideWindow = "stamp-outside-window",
    /// A record's stamp is outside its folder's day and hour.
    StampOutsideFolder = "stamp-outside-folder",
    /// A later offset of a partition has an earlier stamp.
    StampsFall = "stamps-fall",
    /// A (partition, offset) more than once in the lake.
    RecordDuplicated = "record-duplicated",
    /// An accepted record that is in no object and no list of loss.
    RecordLost = "record-lost",
    /// A list of loss names a record that is in the lake.
    LossUntrue = "loss-untrue",
    /// A record stands more than once in the lists of loss.
    LossRepeated = "loss-repeated",
    /// A record that nobody pushed.
    RecordUnknown = "record-unknown",
    /// A partition's offsets have a gap.
    OffsetGap = "offset-gap",
    /// A payload differs from the producer's bytes.
    PayloadDiffers = "payload-differs",
    /// A transaction id differs from the answered one.
    TransactionDiffers = "transaction-differs",
}

/// One thing that is wrong with the lake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// Where: an object's key, or a queue and partition.
    pub at: String,
    /// The values that do not agree.
    pub what: String,
}

impl Fault {
    /// A fault.
    pub fn new(kind: Kind, at: impl Into<String>, what: impl Into<String>) -> Fault {
        Fault { kind, at: at.into(), what: what.into() }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.kind.name(), self.at, self.what)
    }
}
