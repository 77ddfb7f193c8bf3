//! A record, as every format takes it.
//!
//! Owns: the type, and the text of an id that no producer gave.
//! Leaves to others: how each format writes it (`jsonl`, `parquet`).

/// A record of the partition and the stamp that were named before it.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Offset in the partition.
    pub offset: u64,
    /// The producer's transaction id, or the text of the message id.
    pub transaction_id: TransactionId<'a>,
    /// The payload's bytes: JSON text, or nothing.
    pub payload: &'a [u8],
}

/// A transaction id.
#[derive(Clone, Copy, Debug)]
pub enum TransactionId<'a> {
    /// The producer's own.
    Own(&'a str),
    /// The message id's text.
    Minted([u8; 16]),
}

/// Bytes of an id's text.
pub const ID_TEXT_BYTES: usize = 36;

/// An id as text, such as `01a16d70-3e1e-7001-9fb4-299167829f1d`.
pub fn id_text(id: &[u8; 16]) -> [u8; ID_TEXT_BYTES] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = *b"00000000-0000-0000-0000-000000000000";
    let mut at = 0;
    for (i, byte) in id.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            at += 1;
        }
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 15)];
        at += 2;
    }
    text
}
