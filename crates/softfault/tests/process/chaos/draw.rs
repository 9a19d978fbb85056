//! Draws from a seed.

use softfault_oracle::Random;

pub struct Draw(Random);

impl Draw {
    pub fn new(seed: u64, thread: u64) -> Self {
        Self(Random::new(seed ^ (thread << 48)))
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}
