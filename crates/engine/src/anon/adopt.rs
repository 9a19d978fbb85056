//! Taking over the memory that a process inherited at its fork.

use super::pages::Pages;
use super::view::PrivateFile;
use super::{Anonymous, NotShown};
use crate::PAGE_SIZE;
use crate::cache::window::CountResult;
use crate::cache::{Node, OnTruncate};
use crate::mmu::Reservation;
use core::ops::Range;
use sync::Arc;

/// Pages between two clean ones that are protected with them: each of them faults at
/// its next write, and a range of its own costs more than that.
const BETWEEN: usize = 16;

impl Anonymous {
    /// In a forked process: the memory that `parent` was, on `node`, which is the child's
    /// own, in the window that the child has inherited. Its words were copied by the
    /// fork and are the child's from now on, and `parent` is not to be used any more,
    /// nor dropped. Resident pages are charged, and clean pages are write-protected, since the
    /// child does not inherit the protection. No page stays ([`fault::lock`](crate::fault::lock)).
    ///
    /// No page is locked: the forking thread keeps faults and reclaim out
    /// ([`AddressSpace::freeze`], [`Node::stop_eviction`]). The budget has room for
    /// as much as the parent's had.
    ///
    /// [`AddressSpace::freeze`]: crate::mm::AddressSpace::freeze
    pub fn adopt(
        node: Arc<Node>,
        parent: &Anonymous,
        reservation: Reservation,
        private_file: Option<PrivateFile>,
        on_truncate: OnTruncate,
    ) -> Result<Arc<Self>, NotShown> {
        let pages: Arc<Pages> = parent.pages.clone();
        let anon = Self::over(node, reservation, pages, private_file, on_truncate);
        let anon = anon?;
        match anon.adopt_all(parent) {
            Ok(()) => Ok(anon),
            Err(error) => {
                anon.adopt_nothing();
                Err(error)
            }
        }
    }

    /// Counts all in. After an error the words are not paid for, and only the first page tables are counted in.
    fn adopt_all(&self, parent: &Anonymous) -> Result<(), NotShown> {
        if parent.node.pinned_pages() > 0 {
            self.release_all();
        }
        let mut clean = None;
        for span in self.window.spans(self.addresses()) {
            // The counts were copied too, and cost less to look at than words.
            if parent.window.residents(span.start) > 0 {
                self.adopt_span(span, &mut clean)?;
            }
        }
        self.protect(clean);
        match self.node.budget.try_charge(self.pages.charged_pages(), 0) {
            true => Ok(()),
            false => Err(NotShown::Budget),
        }
    }

    /// Gives all pages up, and pays back what was counted in. So the drop finds nothing to pay back.
    #[cold]
    fn adopt_nothing(&self) {
        self.pages.clear_charged();
        for span in self.window.spans(self.addresses()) {
            let (residents, charged) = self.forget_span(&span);
            if self.window.residents(span.start) > 0 {
                let (node, window) = (&self.node, &self.window);
                window.leave_and_zap(span.start, residents, &*node.mmu, &node.budget);
                node.private.uncharged(charged);
                node.budget.uncharge(charged);
            }
        }
    }

    /// No page stays.
    fn release_all(&self) {
        let mut page = self.pages.next_used(0);
        while page < self.pages.count() {
            let state = self.pages.state(page);
            if state.stays() {
                self.pages.change(page, state, state.with_stays(false));
            }
            page = self.pages.next_used(page + 1);
        }
    }

    /// Counts the residents of a page table in, and protects those that are clean, as far
    /// as none of a next table may join them: the rest of them is in `clean`.
    fn adopt_span(
        &self,
        span: Range<usize>,
        clean: &mut Option<Range<usize>>,
    ) -> Result<(), NotShown> {
        let (mut residents, mut charged) = (0, 0);
        for page in self.page_range(&span) {
            let state = self.pages.state(page);
            if !state.is_resident() {
                continue;
            }
            residents += 1;
            charged += u64::from(!state.is_zero());
            if !state.is_clean() {
                continue;
            }
            match clean {
                Some(range) if page - range.end <= BETWEEN => range.end = page + 1,
                _ => self.protect(clean.replace(page..page + 1)),
            }
        }
        if residents == 0 {
            return Ok(());
        }
        let budget = &self.node.budget;
        if !budget.try_charge(charged, 0) {
            return Err(NotShown::Budget);
        }
        match self.window.enter(span.start, residents, budget, 0) {
            CountResult::Counted => {
                self.node.private.charged(charged);
                Ok(())
            }
            CountResult::NoMemory | CountResult::Zapping => {
                budget.uncharge(charged);
                Err(NotShown::Budget)
            }
        }
    }

    fn protect(&self, pages: Option<Range<usize>>) {
        if let Some(pages) = pages {
            let start = self.window.address(pages.start as u64, 0);
            let range = start..start + pages.len() * PAGE_SIZE;
            self.node.mmu.protect(core::slice::from_ref(&range));
        }
    }
}
