//! Any bytes for the decoder `root`; what must hold is in `queen_sim::decoders`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    queen_sim::decoders::root(bytes);
});
