//! Any bytes: each decoder takes them or refuses them, and never panics or hangs.

use queen_sim::chance::Chance;
use queen_sim::decoders::DECODERS;

#[test]
fn every_decoder_takes_its_samples() {
    for decoder in DECODERS {
        let samples = (decoder.samples)();
        assert!(!samples.is_empty(), "{}", decoder.name);
        for (number, sample) in samples.iter().enumerate() {
            assert!((decoder.feed)(sample), "{} sample {number}", decoder.name);
        }
    }
}

#[test]
fn every_decoder_takes_or_refuses_any_bytes() {
    let mut chance = Chance::of_the_day("decoders");
    for decoder in DECODERS {
        let samples = (decoder.samples)();
        for _ in 0..20_000 {
            let mutated = match chance.pick(&samples) {
                Some(sample) => chance.mutated(sample),
                None => Vec::new(),
            };
            (decoder.feed)(&mutated);
            let len = chance.below(120) as usize;
            let noise = chance.bytes(len);
            (decoder.feed)(&noise);
        }
    }
}

#[test]
fn every_decoder_has_a_fuzz_target() {
    let folder = queen_sim::process::repository().join("fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    for decoder in DECODERS {
        let target = folder.join("fuzz_targets").join(format!("{}.rs", decoder.name));
        assert!(target.is_file(), "{} is missing", target.display());
        assert!(manifest.contains(&format!("name = \"{}\"", decoder.name)), "{}", decoder.name);
    }
}
