//! Random values: functions of the seed and of their use, so that they
//! do not depend on the order of threads. The lab draws by them too.

/// A well-mixed function of `x`: the finaliser of splitmix64 (Steele, Lea,
/// Flood: "Fast splittable pseudorandom number generators").
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A number below `below` from a mixed word.
#[inline]
pub fn uniform(word: u64, below: u64) -> u64 {
    ((u128::from(word) * u128::from(below)) >> 64) as u64
}
