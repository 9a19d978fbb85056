//! The last touches that no stream expected, and progressions among them.
//!
//! A stream is found by looking for touches `page - d`, `page - 2d`, ... that
//! came in this order, with anything in between: other streams, random
//! touches. Differences are taken modulo the file, so that a progression may
//! pass its end.

/// Touches remembered.
const TOUCHES: usize = 64;

/// Longest progression looked for.
const TERMS: u32 = 8;

/// Newest first. Protected by the lock of the page cache. Pages are kept
/// modulo 2^32 (16 TiB): in larger files two pages may be taken for one, which
/// makes a guess worse and nothing else.
pub(super) struct History {
    pages: [u32; TOUCHES],
    len: u8,
}

/// A progression that ends with the touch that was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proof {
    /// Pages from one touch to the next, never zero.
    pub(super) stride: i32,
    /// Touches, this one included.
    pub(super) terms: u32,
    /// Of these, how many at the end followed each other with no other touch
    /// in between.
    pub(super) in_a_row: u32,
    /// Whether it passed the end of the file.
    pub(super) wraps: bool,
}

impl Proof {
    /// The belief that a run starts here, on one touch alone.
    pub(super) fn start() -> Proof {
        Proof {
            stride: 1,
            terms: 1,
            in_a_row: 1,
            wraps: false,
        }
    }
}

/// Distances between pages of a file, and the file as a ring.
struct Ring {
    pages: u64,
}

impl Ring {
    fn new(file_pages: u64) -> Ring {
        Ring {
            pages: file_pages.min(1 << 32),
        }
    }

    /// `a - b`, in `0..pages`; both are in the ring.
    fn sub(&self, a: u32, b: u64) -> u64 {
        let a = u64::from(a);
        if a >= b { a - b } else { a + self.pages - b }
    }

    /// The same distance, as the shorter way.
    fn signed(&self, distance: u64) -> i32 {
        if distance > (self.pages - 1) / 2 {
            (distance as i64 - self.pages as i64) as i32
        } else {
            distance as i32
        }
    }
}

/// The touches, and a few others: a bit for each of their hashes. Without it a touch without a pattern is compared with 2,000 others.
/// Four words: it lies on the handler's stack.
struct Filter([u64; 4]);

impl Filter {
    fn of(touches: &[u32]) -> Filter {
        let mut filter = Filter([0; 4]);
        for &touch in touches {
            let (word, bit) = Filter::place(touch);
            filter.0[word] |= bit;
        }
        filter
    }

    fn may_have(&self, touch: u32) -> bool {
        let (word, bit) = Filter::place(touch);
        self.0[word] & bit != 0
    }

    fn place(touch: u32) -> (usize, u64) {
        let hash = touch.wrapping_mul(0x9E37_79B9) >> 24;
        ((hash / 64) as usize, 1 << (hash % 64))
    }
}

impl History {
    pub(super) const fn new() -> Self {
        History {
            pages: [0; TOUCHES],
            len: 0,
        }
    }

    /// No touch seen.
    pub(super) fn forget(&mut self) {
        self.len = 0;
    }

    pub(super) fn push(&mut self, page: u64) {
        self.pages.copy_within(..TOUCHES - 1, 1);
        self.pages[0] = page as u32;
        self.len = (self.len + 1).min(TOUCHES as u8);
    }

    /// A progression ending at `page` that `enough` accepts: runs first, then
    /// the one whose last step is the most recent.
    pub(super) fn progression(
        &self,
        page: u64,
        file_pages: u64,
        runs_only: bool,
        enough: impl Fn(&Proof) -> bool,
    ) -> Option<Proof> {
        let ring = Ring::new(file_pages);
        let touches = &self.pages[..usize::from(self.len)];
        let page = page as u32;
        if ring.pages < 2 {
            return None;
        }
        for step in [1, ring.pages - 1] {
            let proof = follow(&ring, touches, page, step);
            if proof.terms > 1 && enough(&proof) {
                return Some(proof);
            }
        }
        if runs_only {
            return None;
        }
        let filter = Filter::of(touches);
        for (index, &before) in touches.iter().enumerate() {
            if u64::from(before) >= ring.pages {
                continue; // The file was longer then.
            }
            let step = ring.sub(page, u64::from(before));
            if step <= 1 || step == ring.pages - 1 {
                continue;
            }
            // Most candidates end here: no third touch.
            let third = ring.sub(before, step) as u32;
            if !filter.may_have(third) || !touches[index + 1..].contains(&third) {
                continue;
            }
            let proof = follow(&ring, touches, page, step);
            if enough(&proof) {
                return Some(proof);
            }
        }
        None
    }
}

/// How far back touches go on in `step`s from `page`.
fn follow(ring: &Ring, touches: &[u32], page: u32, step: u64) -> Proof {
    let stride = ring.signed(step);
    let mut proof = Proof {
        stride,
        terms: 1,
        in_a_row: 1,
        wraps: false,
    };
    let mut current = page;
    let mut older = 0;
    while proof.terms < TERMS {
        let before = ring.sub(current, step) as u32;
        let Some(at) = touches[older..].iter().position(|&touch| touch == before) else {
            break;
        };
        if at == 0 && proof.in_a_row == proof.terms {
            proof.in_a_row += 1;
        }
        proof.terms += 1;
        proof.wraps |= (before > current) == (stride > 0);
        older += at + 1;
        current = before;
    }
    proof
}

#[cfg(test)]
mod tests {
    use super::super::areas::mixed;
    use super::*;

    fn ask(touches: &[u64], page: u64, file_pages: u64) -> Option<Proof> {
        let mut history = History::new();
        for &touch in touches {
            history.push(touch);
        }
        history.progression(page, file_pages, false, |proof| proof.terms >= 3)
    }

    #[test]
    fn finds_a_stride_between_other_touches() {
        let proof = ask(&[100, 9, 1100, 70_000, 5, 2100], 3100, 1 << 20).unwrap();
        assert_eq!((proof.stride, proof.terms, proof.in_a_row), (1000, 4, 2));
        assert!(!proof.wraps);
    }

    #[test]
    fn finds_it_backwards_and_over_the_end() {
        let proof = ask(&[300, 200], 100, 1 << 20).unwrap();
        assert_eq!((proof.stride, proof.terms, proof.in_a_row), (-100, 3, 3));
        let proof = ask(&[900, 970], 40, 1000).unwrap();
        assert_eq!((proof.stride, proof.wraps), (70, true));
        let proof = ask(&[30, 990], 950, 1000).unwrap();
        assert_eq!((proof.stride, proof.wraps), (-40, true));
    }

    #[test]
    fn order_counts() {
        assert_eq!(ask(&[1100, 100], 2100, 1 << 20), None);
    }

    #[test]
    fn runs_come_first_and_strides_can_be_left_out() {
        let touches = [10, 5, 11, 7, 9];
        let proof = ask(&touches, 12, 1 << 20).unwrap();
        assert_eq!((proof.stride, proof.terms), (1, 3));
        let mut history = History::new();
        history.push(10);
        history.push(20);
        assert_eq!(history.progression(30, 1 << 20, true, |_| true), None);
    }

    #[test]
    fn a_file_beyond_32_bits_of_pages() {
        let base = 1 << 40;
        let proof = ask(&[base, base + 9000], base + 18_000, 1 << 41).unwrap();
        assert_eq!((proof.stride, proof.terms), (9000, 3));
        let edge = (1 << 33) + 10;
        let proof = ask(&[edge - 30, edge - 15], edge, 1 << 41).unwrap();
        assert_eq!(proof.stride, 15);
    }

    /// As `progression`, without the filter.
    fn plainly(touches: &[u32], page: u32, file_pages: u64) -> Option<Proof> {
        let ring = Ring::new(file_pages);
        let steps = touches
            .iter()
            .filter(|&&before| u64::from(before) < file_pages);
        let steps = steps.map(|&before| ring.sub(page, u64::from(before)));
        let strides = steps.filter(|&step| step > 1 && step != file_pages - 1);
        let steps = [1, file_pages - 1].into_iter().chain(strides);
        let mut proofs = steps.map(|step| follow(&ring, touches, page, step));
        proofs.find(|proof| proof.terms >= 3)
    }

    #[test]
    fn the_filter_hides_no_progression() {
        let mut found = 0;
        for seed in 0..4000 {
            let drawn = |at: u64, below: u64| mixed(seed << 32 | at) % below;
            // In a small file most touches are in a progression, in a large one few.
            let file_pages = 8 + drawn(0, 1 << (3 + seed % 18));
            let step = drawn(1, file_pages);
            let mut history = History::new();
            for at in 0..drawn(2, 90) {
                history.push(match drawn(2 * at + 3, 4) {
                    0 => at * step % file_pages,
                    _ => drawn(2 * at + 4, file_pages),
                });
            }
            let page = drawn(999, file_pages);
            let touches = &history.pages[..usize::from(history.len)];
            let plain = plainly(touches, page as u32, file_pages);
            let filtered = history.progression(page, file_pages, false, |proof| proof.terms >= 3);
            assert_eq!(filtered, plain, "seed {seed}");
            found += u32::from(plain.is_some_and(|proof| proof.stride.abs() > 1));
        }
        assert!(found > 100, "{found}");
    }

    #[test]
    fn a_file_that_shrank_is_harmless() {
        assert_eq!(ask(&[5000, 6000], 3, 100), None);
        assert_eq!(ask(&[5000, 6000], 0, 1), None);
    }
}
