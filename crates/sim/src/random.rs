//! Random values: functions of the seed and of their use, so that they
//! do not depend on the order of threads. The lab draws by them too.

pub use sync::machine::mix;

/// A number below `below` from a mixed word.
#[inline]
pub fn uniform(word: u64, below: u64) -> u64 {
    ((u128::from(word) * u128::from(below)) >> 64) as u64
}
