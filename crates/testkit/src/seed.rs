//! Deterministic random numbers: the same seed gives the same test.

use std::time::{SystemTime, UNIX_EPOCH};

/// A source of random numbers that a printed seed reproduces.
///
/// Uses SplitMix64: it has one word of state, accepts every seed, and needs no crate.
#[derive(Clone, Debug)]
pub struct Seed {
    state: u64,
}

// === impl Seed ===

impl Seed {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns a source from the seed in the environment variable `name`, or from the clock, with the seed, so that the test can print it.
    pub fn from_env(name: &str) -> (u64, Self) {
        let seed =
            std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
                SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .map_or(0, |since| since.as_micros() as u64)
            });
        (seed, Self::new(seed))
    }

    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; zero if the bound is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw().checked_rem(bound).unwrap_or(0)
    }

    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        choices.get(self.below(choices.len() as u64) as usize)
    }

    /// A separate source for another task, so that the order of the tasks does not matter.
    pub fn fork(&mut self) -> Self {
        Self::new(self.draw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_itself_and_another_does_not() {
        let take = |seed| {
            let mut seed = Seed::new(seed);
            (0..64).map(|_| seed.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
        assert!(take(7).iter().any(|number| *number > 500));
        assert!(take(7).iter().any(|number| *number < 500));
    }
}
