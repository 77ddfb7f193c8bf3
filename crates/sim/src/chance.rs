//! Seeded chance: the same seed gives the same run.
//!
//! Owns: the generator, the seed's setting and the mutations of the decoder tests. Leaves to
//! others: what is drawn, and printing the seed when a test fails.

/// Setting that fixes the seed of a run, decimal.
pub const SEED_VARIABLE: &str = "QUEEN_TEST_SEED";

/// A generator of numbers (splitmix64): small, and the same on every machine and release.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// A generator that starts at `seed`.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// A generator seeded by `QUEEN_TEST_SEED`, else by the clock; prints the seed, so that a
    /// failure can be run again.
    pub fn of_the_day(what: &str) -> Chance {
        let set = std::env::var(SEED_VARIABLE).ok().and_then(|text| text.trim().parse().ok());
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = set.unwrap_or_else(|| clock.map(|d| d.as_nanos() as u64).unwrap_or_default());
        println!("{what}: seed {seed} (set {SEED_VARIABLE}={seed} to run it again)");
        Chance(seed)
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }

    /// One of the items; `None` when there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }

    /// `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.draw() as u8).collect()
    }

    /// A damaged copy of `bytes`: some bits flipped, some bytes set to edge values, and often a
    /// part cut out, doubled, or filled with noise.
    pub fn mutated(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(out.len() as u64) as usize;
            let len = 1 + self.below(8.min(out.len().max(1) as u64)) as usize;
            let end = (at + len).min(out.len());
            match self.below(7) {
                0 if at < out.len() => out[at] ^= 1 << self.below(8),
                1 if at < out.len() => out[at] = [0, 0x7f, 0x80, 0xff][self.below(4) as usize],
                2 => out.truncate(at),
                3 => drop(out.drain(at..end)),
                4 => {
                    let part = out[at..end].to_vec();
                    out.splice(at..at, part);
                }
                5 => {
                    let noise = self.bytes(end - at);
                    out[at..end].copy_from_slice(&noise);
                }
                _ => {
                    let noise = self.bytes(len);
                    out.extend(noise);
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_run() {
        let run = |seed| {
            let mut chance = Chance::new(seed);
            (0..50).map(|_| chance.mutated(b"some bytes to damage")).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        assert!(run(7).iter().filter(|m| *m != b"some bytes to damage").count() > 40);
    }
}
