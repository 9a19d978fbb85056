//! The limit of pages that read-ahead by density has read and not seen used.

/// Pages that need no use before.
const CREDIT: u64 = 512;
/// Pages taken for used at the start.
const USED: u64 = 4096;
/// Used pages that a page read in vain undoes.
const UNDONE: u64 = 8;

/// Protected by the lock of the page cache.
pub(super) struct Loans {
    /// Pages lent and used, less the lost ones.
    used: u64,
    /// Pages lent and not used yet.
    lent: u64,
}

impl Loans {
    pub(super) const NONE: Loans = Loans {
        used: USED,
        lent: 0,
    };

    /// Pages that may be lent now, where all loans together are one of `share` used pages.
    pub(super) fn credit(&self, share: u64) -> u64 {
        CREDIT.max(self.used / share).saturating_sub(self.lent)
    }

    /// The same, where all loans together are so many.
    pub(super) fn credit_of(&self, pages: u64) -> u64 {
        CREDIT.max(pages).saturating_sub(self.lent)
    }

    pub(super) fn lend(&mut self, pages: u64) {
        self.lent += pages;
    }

    /// Lent pages were not read after all.
    pub(super) fn take_back(&mut self, pages: u64) {
        self.lent = self.lent.saturating_sub(pages);
    }

    pub(super) fn use_up(&mut self, pages: u64) {
        self.take_back(pages);
        self.used += pages;
    }

    /// Pages were lent in vain.
    pub(super) fn lose(&mut self, pages: u64) {
        self.take_back(pages);
        self.used = self.used.saturating_sub(pages * UNDONE);
    }

    #[cfg(test)]
    pub(super) fn lent(&self) -> u64 {
        self.lent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_pages_are_not_lent_again_until_they_are_used() {
        let mut loans = Loans::NONE;
        assert_eq!(loans.credit(4), USED / 4);
        loans.lend(1000);
        assert_eq!(loans.credit(4), USED / 4 - 1000);
        loans.use_up(400);
        assert_eq!(loans.credit(4), (USED + 400) / 4 - 600);
        loans.take_back(600);
        assert_eq!((loans.lent(), loans.credit(4)), (0, (USED + 400) / 4));
    }

    #[test]
    fn pages_lent_in_vain_undo_eight_each_and_leave_the_least() {
        let mut loans = Loans::NONE;
        loans.lend(100);
        loans.lose(100);
        assert_eq!(loans.credit(2), (USED - 800) / 2);
        loans.lend(1000);
        loans.lose(1000);
        assert_eq!((loans.credit(2), loans.credit(16)), (CREDIT, CREDIT));
        loans.lend(CREDIT);
        assert_eq!(loans.credit(2), 0);
    }
}
