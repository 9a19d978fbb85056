//! The part of a sum that each of several is due: max-min fair.
//!
//! A member that wants less than an equal part gets that, and the others divide the rest in the same way. So there is a level
//! that the wants of all are cut at.

/// The level at which the wants, cut there, come to `all`; `u64::MAX` if they are less than that in all.
pub fn level(all: u64, wants: &[u64]) -> u64 {
    let mut level = 0;
    loop {
        // Those below the level have all that they want.
        let below = wants.iter().filter(|&&want| want <= level);
        let (count, sum) = below.fold((0, 0_u64), |(count, sum), &want| {
            (count + 1, sum.saturating_add(want))
        });
        let others = wants.len() as u64 - count;
        if others == 0 {
            return u64::MAX;
        }
        let next = all.saturating_sub(sum) / others;
        if next <= level {
            return level;
        }
        level = next;
    }
}
