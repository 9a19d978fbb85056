//! The limit of pages that read-ahead by density has read and not seen used.

/// Unused pages that are always allowed.
const ALWAYS: u64 = 512;
/// Pages taken for used at the start.
const USED: u64 = 4096;
/// Used pages that a page read in vain undoes.
const UNDONE: u64 = 8;

/// Protected by the lock of the page cache.
pub(super) struct UnusedPages {
    /// Pages read ahead and used, less the lost ones.
    used: u64,
    /// Pages read ahead and not used yet.
    unused: u64,
}

impl UnusedPages {
    pub(super) const NONE: UnusedPages = UnusedPages {
        used: USED,
        unused: 0,
    };

    /// Pages that may be read ahead now, where all unused pages together are one of `share` used ones.
    pub(super) fn remaining(&self, share: u64) -> u64 {
        ALWAYS.max(self.used / share).saturating_sub(self.unused)
    }

    /// The same, where all unused pages together are so many.
    pub(super) fn remaining_of(&self, pages: u64) -> u64 {
        ALWAYS.max(pages).saturating_sub(self.unused)
    }

    pub(super) fn add(&mut self, pages: u64) {
        self.unused += pages;
    }

    /// Some were not read after all.
    pub(super) fn take_back(&mut self, pages: u64) {
        self.unused = self.unused.saturating_sub(pages);
    }

    pub(super) fn use_up(&mut self, pages: u64) {
        self.take_back(pages);
        self.used += pages;
    }

    /// Pages were read in vain.
    pub(super) fn lose(&mut self, pages: u64) {
        self.take_back(pages);
        self.used = self.used.saturating_sub(pages * UNDONE);
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.unused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_pages_are_not_lent_again_until_they_are_used() {
        let mut unused = UnusedPages::NONE;
        assert_eq!(unused.remaining(4), USED / 4);
        unused.add(1000);
        assert_eq!(unused.remaining(4), USED / 4 - 1000);
        unused.use_up(400);
        assert_eq!(unused.remaining(4), (USED + 400) / 4 - 600);
        unused.take_back(600);
        assert_eq!((unused.count(), unused.remaining(4)), (0, (USED + 400) / 4));
    }

    #[test]
    fn pages_lent_in_vain_undo_eight_each_and_leave_the_least() {
        let mut unused = UnusedPages::NONE;
        unused.add(100);
        unused.lose(100);
        assert_eq!(unused.remaining(2), (USED - 800) / 2);
        unused.add(1000);
        unused.lose(1000);
        assert_eq!(
            (unused.remaining(2), unused.remaining(16)),
            (ALWAYS, ALWAYS)
        );
        unused.add(ALWAYS);
        assert_eq!(unused.remaining(2), 0);
    }
}
