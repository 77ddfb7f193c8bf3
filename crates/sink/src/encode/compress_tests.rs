//! The bytes of compressed text, held against golden hashes.

use super::*;
use crate::encode::Encoding;
use crate::encode::pieces::{PIECE_BYTES, sha256_hex};
use crate::testing::All;
use std::io::Read;

/// Text of a real size, from no random source.
fn text(lines: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut state = 7u64;
    for i in 0..lines {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        out.extend(format!("{{\"n\":{i},\"v\":\"{state:x}\"}}\n").into_bytes());
    }
    out
}

fn object(codec: Compression, text: &[u8], step: usize) -> (Finished, Vec<u8>, usize) {
    let mut writer = Compressor::new(codec, All::default()).unwrap();
    for part in text.chunks(step) {
        writer.text().extend_from_slice(part);
        writer.drain().unwrap();
    }
    let (done, all) = writer.finish().unwrap();
    let bytes = all.0.concat();
    assert_eq!(done, Finished { bytes: bytes.len() as u64, sha256: sha256_hex(&bytes) });
    assert!(all.0.iter().rev().skip(1).all(|p| p.len() == PIECE_BYTES));
    (done, bytes, all.0.len())
}

#[test]
fn the_bytes_of_objects_are_fixed() {
    let text = text(20_000);
    let got: Vec<String> = [Compression::ZSTD, Compression::GZIP, Compression::None]
        .map(|codec| {
            format!(
                "{} {}",
                Encoding::Jsonl(codec).compression(),
                object(codec, &text, 1000).0.sha256
            )
        })
        .to_vec();
    let golden = include_str!("../../golden/objects-r1.txt");
    assert_eq!(
        got,
        golden.lines().collect::<Vec<_>>(),
        "raise ENCODER_REVISION with a new golden file"
    );
}

#[test]
fn bytes_depend_on_the_text_alone() {
    let text = text(20_000);
    for codec in [Compression::ZSTD, Compression::GZIP, Compression::None] {
        let one = object(codec, &text, text.len());
        assert_eq!(one, object(codec, &text, 777), "{codec:?}");
    }
}

#[test]
fn objects_read_back() {
    let text = text(5_000);
    let (_, zst, _) = object(Compression::ZSTD, &text, 999);
    assert_eq!(zst[4] & 0b100, 0b100, "the frame has a checksum");
    assert_eq!(zst[4] & 0b1110_0000, 0, "and no size, and its own window");
    assert_eq!(zstd::stream::decode_all(&zst[..]).unwrap(), text);
    let (_, gz, _) = object(Compression::GZIP, &text, 999);
    assert_eq!((&gz[..3], &gz[4..8], gz[9]), (&[0x1f, 0x8b, 8][..], &[0; 4][..], 255));
    let mut back = Vec::new();
    flate2::read::GzDecoder::new(&gz[..]).read_to_end(&mut back).unwrap();
    assert_eq!(back, text);
    assert_eq!(object(Compression::None, &text, 999).1, text);
}

#[test]
fn large_objects_come_in_pieces_of_one_size() {
    let text = vec![b'x'; PIECE_BYTES * 2 + 1];
    assert_eq!(object(Compression::None, &text, 4096).2, 3);
    assert_eq!(object(Compression::None, &text[..PIECE_BYTES], 4096).2, 1);
}
