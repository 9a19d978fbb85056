//! A counter that every fault adds to.

use sync::PROCESSORS;
use sync::stat::Counter;

/// A [`Counter`] with a line for each processor.
#[derive(Debug)]
pub struct PerCpuCounter(Box<[Line]>);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(Counter);

impl Default for PerCpuCounter {
    fn default() -> Self {
        Self((0..PROCESSORS).map(|_| Line::default()).collect())
    }
}

impl PerCpuCounter {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0[sync::cpu() % PROCESSORS].0.add(n);
    }

    /// The sum now.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|line| line.0.get()).sum()
    }
}
