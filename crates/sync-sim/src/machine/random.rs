//! Numbers drawn by a seed: splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").

/// The step by which a state advances.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A well-mixed function of `x`: the number that splitmix64 draws in the state `x`.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(STEP);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A stream of numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> u64 {
        let drawn = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        drawn
    }

    /// A number below `end`, or 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}
