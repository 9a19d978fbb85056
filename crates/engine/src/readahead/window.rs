//! How much a progression has to show, and how far ahead a stream may read.
//!
//! The bounds are on bytes: a run of 64 pages or more that ends at any point
//! has had at most a quarter read in vain.

use super::Kind;
use super::accuracy::Accuracy;
use super::history::Proof;

/// Consumed pages from which the windows of a run grow by an eighth, no more
/// by a quarter.
pub(super) const WIDE: u32 = 8192;

/// Pages that a run may have read in all while it has consumed 16 to 64.
const EARLY: u32 = 80;

/// Pages that a run may have read in all at first: its block.
const BLOCK: u32 = super::FOLIO as u32;

/// Trust at which all of [`BLOCK`] and [`EARLY`] is allowed, and none of it.
const FULL_TRUST: u32 = 192;
const NO_TRUST: u32 = 64;

/// Touches (this one included) that make a stream of `proof`. A progression
/// with nothing in between needs one less: in a file of n pages two random
/// touches are neighbours once in n/2, but among the last 64 touches one is
/// found sixty times as often.
pub(super) fn terms_needed(proof: &Proof, accuracy: &Accuracy) -> u32 {
    let (kind, usual) = match proof.stride {
        1 | -1 => (Kind::Run, 3),
        _ => (Kind::Stride, 4),
    };
    let quick = u32::from(proof.in_a_row >= usual - 1);
    usual - quick + accuracy.extra_touches_required(kind)
}

/// Pages that a run may have read beyond the touched one, which is its
/// `consumed`th.
pub(super) fn run_window(consumed: u32, trust: u8) -> u32 {
    let trust = u32::from(trust).clamp(NO_TRUST, FULL_TRUST) - NO_TRUST;
    let trusted = |pages: u32| pages * trust / (FULL_TRUST - NO_TRUST);
    let early = match consumed {
        0..8 => trusted(BLOCK),
        8..16 => trusted(2 * BLOCK),
        _ => trusted(EARLY),
    };
    let grown = if consumed < WIDE {
        consumed / 4
    } else {
        WIDE / 4 + (consumed - WIDE) / 8
    };
    grown.max(early.saturating_sub(consumed))
}

/// Steps that a stride may have read beyond the touched one, which is its
/// `consumed`th.
pub(super) fn stride_window(consumed: u32) -> u32 {
    // A power of two, so that it grows seldom and by much.
    1 << (consumed / 2).max(4).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_never_has_more_than_a_quarter_in_vain() {
        for trust in [0, 100, 192, 255] {
            for consumed in 64..1_000_000 {
                let total = consumed + run_window(consumed, trust);
                assert!(total * 4 <= consumed * 5, "{consumed} {trust}");
            }
        }
    }

    #[test]
    fn a_run_doubles_early_if_trusted() {
        assert_eq!(run_window(1, 192), 15);
        assert_eq!(run_window(10, 192), 22);
        assert_eq!(run_window(17, 192), 63);
        assert_eq!(run_window(17, 20), 4);
        assert_eq!(run_window(8192, 192), 2048);
        assert_eq!(run_window(16384, 192), 3072);
    }

    #[test]
    fn a_stride_ramps() {
        let windows = [3, 8, 16, 31, 64, 100].map(stride_window);
        assert_eq!(windows, [4, 4, 8, 8, 32, 32]);
    }
}
