//! A snapshot of a simulated broker, in bytes.
//!
//! Owns: its layout, for the time of a run: `kind u8 | key length u32 | key | value length u32 | value`
//! for each row (kind: the table's place in the list) and each segment (kind 255, key: queue and
//! segment). Leaves to others: the images that ship (`queen-store`).

use queen_core::QueueId;
use queen_core::table::Table;
use queen_state::{MemoryStore, Place, QueueLogsMut as _, TablesMut as _};
use std::io;

const SEGMENT: u8 = u8::MAX;

fn put(out: &mut Vec<u8>, kind: u8, key: &[u8], value: &[u8]) {
    out.push(kind);
    for part in [key, value] {
        out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        out.extend_from_slice(part);
    }
}

/// All of a store.
pub fn encode(store: &MemoryStore) -> Vec<u8> {
    let mut out = Vec::new();
    for (table, key, value) in store.rows() {
        let kind = Table::ALL.iter().position(|other| *other == table).unwrap() as u8;
        put(&mut out, kind, key, value);
    }
    for (queue, segment, bytes) in store.segments() {
        let key = [queue.0.to_le_bytes(), segment.to_le_bytes()].concat();
        put(&mut out, SEGMENT, &key, bytes);
    }
    out
}

/// A store from all of its bytes.
pub fn decode(mut bytes: &[u8]) -> io::Result<MemoryStore> {
    let mut store = MemoryStore::default();
    while !bytes.is_empty() {
        let kind = take(&mut bytes, 1)?[0];
        let key = part(&mut bytes)?;
        let value = part(&mut bytes)?;
        if kind == SEGMENT {
            let number = |at: usize| u32::from_le_bytes(key[at..at + 4].try_into().unwrap());
            let place = Place { queue: QueueId(number(0)), segment: number(4), position: 0 };
            store.write(place, &[value]).map_err(io::Error::other)?;
        } else {
            store.put(Table::ALL[usize::from(kind)], key, value);
        }
    }
    Ok(store)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> io::Result<&'a [u8]> {
    let (front, rest) = bytes.split_at_checked(count).ok_or(io::ErrorKind::UnexpectedEof)?;
    *bytes = rest;
    Ok(front)
}

fn part<'a>(bytes: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let length = take(bytes, 4)?;
    take(bytes, u32::from_le_bytes(length.try_into().unwrap()) as usize)
}
