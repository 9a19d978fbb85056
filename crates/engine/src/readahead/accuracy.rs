//! The used share of prefetched pages, and its consequences.
//!
//! Two measures, because they answer different questions. *Trust* is the
//! share of young streams' windows that their readers reached: it says how
//! long a progression has to be before it is believed, and it needs no help
//! from reclaim. The *shrink* comes from pages that reclaim dropped untouched:
//! windows are too large for the memory there is.

use super::Kind;

/// Protected by the lock of the page cache, as everything of `ReadAhead`.
pub(super) struct Accuracy {
    /// Pages read ahead and not yet touched or dropped.
    pub(super) outstanding: u32,
    /// Moving share of windows that were used, of 255; runs, strides.
    trust: [u8; 2],
    /// Pages used and dropped lately; halved together.
    recent_used: u16,
    recent_unused: u16,
    /// Totals.
    pub(super) readahead_pages: u64,
    pub(super) readahead_used: u64,
    pub(super) readahead_unused: u64,
}

/// Trust before anything is known: enough to start quickly, and one window
/// in vain ends that.
const START: u8 = 192;

/// Sum of recent pages at which they are halved.
const RECENT: u16 = 4096;

impl Accuracy {
    pub(super) const fn new() -> Self {
        Accuracy {
            outstanding: 0,
            trust: [START; 2],
            recent_used: 0,
            recent_unused: 0,
            readahead_pages: 0,
            readahead_used: 0,
            readahead_unused: 0,
        }
    }

    pub(super) fn submitted(&mut self, pages: u32) {
        self.outstanding = self.outstanding.saturating_add(pages);
        self.readahead_pages += u64::from(pages);
    }

    /// A folio read ahead was mapped; its used pages are reported separately.
    pub(super) fn mapped(&mut self, pages: u64) {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        self.outstanding = self.outstanding.saturating_sub(pages);
    }

    pub(super) fn used(&mut self, pages: u64) {
        self.readahead_used += pages;
        let pages = u16::try_from(pages).unwrap_or(RECENT).min(RECENT);
        self.recent_used = self.recent_used.saturating_add(pages);
        self.halve();
    }

    pub(super) fn unused(&mut self, pages: u32) {
        self.outstanding = self.outstanding.saturating_sub(pages);
        self.readahead_unused += u64::from(pages);
        let pages = u16::try_from(pages).unwrap_or(RECENT).min(RECENT);
        self.recent_unused = self.recent_unused.saturating_add(pages);
        self.halve();
    }

    fn halve(&mut self) {
        if self.recent_used.saturating_add(self.recent_unused) > RECENT {
            self.recent_used /= 2;
            self.recent_unused /= 2;
        }
    }

    /// A stream's window was used to `share` of 255.
    pub(super) fn sample(&mut self, kind: Kind, share: u8) {
        let trust = &mut self.trust[kind as usize];
        // Rounds towards the sample, so that the ends can be reached.
        *trust = if share >= *trust {
            *trust + (share - *trust).div_ceil(4)
        } else {
            *trust - (*trust - share).div_ceil(4)
        };
    }

    pub(super) fn trust(&self, kind: Kind) -> u8 {
        self.trust[kind as usize]
    }

    /// Touches that a progression has to show beyond the usual.
    pub(super) fn extra_touches_required(&self, kind: Kind) -> u32 {
        match self.trust(kind) {
            160.. => 0,
            128.. => 1,
            96.. => 2,
            _ => 4,
        }
    }

    /// Halvings of every window.
    pub(super) fn shrink(&self) -> u32 {
        let used = u32::from(self.recent_used);
        let unused = u32::from(self.recent_unused);
        if used + unused < 256 || used >= unused {
            0
        } else if used * 3 >= unused {
            1
        } else if used * 7 >= unused {
            2
        } else {
            3
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_in_vain_cost_trust_and_good_ones_bring_it_back() {
        let mut accuracy = Accuracy::new();
        assert_eq!(accuracy.extra_touches_required(Kind::Run), 0);
        accuracy.sample(Kind::Run, 0);
        assert_eq!(accuracy.extra_touches_required(Kind::Run), 1);
        for _ in 0..20 {
            accuracy.sample(Kind::Run, 0);
        }
        assert_eq!(
            (
                accuracy.trust(Kind::Run),
                accuracy.extra_touches_required(Kind::Run)
            ),
            (0, 4)
        );
        assert_eq!(
            accuracy.extra_touches_required(Kind::Stride),
            0,
            "kinds are apart"
        );
        for _ in 0..4 {
            accuracy.sample(Kind::Run, u8::MAX);
        }
        assert_eq!(accuracy.extra_touches_required(Kind::Run), 0);
    }

    #[test]
    fn dropped_pages_shrink_windows_and_used_ones_restore_them() {
        let mut accuracy = Accuracy::new();
        accuracy.submitted(3000);
        accuracy.unused(3000);
        assert_eq!((accuracy.shrink(), accuracy.outstanding), (3, 0));
        for _ in 0..200 {
            accuracy.used(16);
        }
        assert_eq!(accuracy.shrink(), 0);
        assert_eq!(accuracy.readahead_unused, 3000);
        assert_eq!(accuracy.readahead_used, 3200);
    }
}
