//! Numbers from a seed, the same each time: SplitMix64.

/// The step by which a state advances.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The number that is drawn in the state `x`.
pub fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of `seed`.
    pub fn new(seed: u64) -> Self {
        // Apart from the others that draw from this seed.
        Self(seed ^ 0x5851_F42D_4C95_7F2D)
    }

    /// The next number, less than `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        let drawn = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        (drawn % end as u64) as usize
    }
}
