//! The windows, and their pages: the processor finds these
//! in the real tables by itself.
//!
//! Kept beside the machine, under a real lock that is never held over an
//! operation of the façade: to look here is no operation of anybody.

use super::kernel::Count;
use softfault_engine::PAGE_SIZE;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use sync::Arc;

/// A page that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Its first word, as it was filled.
    first: u64,
    /// The place of the word that was written last, from the page's start, and its value.
    written: (usize, u64),
    /// A write to it ends in a fault.
    protected: bool,
    /// It is the kernel's page of zeros.
    zeros: bool,
}

impl Page {
    /// As it was filled.
    pub fn new(first: u64) -> Self {
        Self {
            first,
            written: (0, first),
            protected: false,
            zeros: false,
        }
    }

    /// With all that anybody looks at of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let (words, _) = bytes.as_chunks();
        let word = |at: usize| u64::from_ne_bytes(words[at]);
        let last = (0..words.len())
            .rev()
            .find(|&at| word(at) != 0)
            .unwrap_or(0);
        Self {
            written: (last * size_of::<u64>(), word(last)),
            ..Self::new(word(0))
        }
    }

    /// The kernel's page of zeros.
    pub fn zeros() -> Self {
        Self {
            zeros: true,
            ..Self::new(0)
        }
    }

    /// The same page, not to be written to.
    pub fn protected(self) -> Self {
        Self {
            protected: true,
            ..self
        }
    }

    /// The word at a place: the one that was written last, the first one, or
    /// zero, which the rest of all pages is as far as anybody looks.
    pub fn word(&self, at: usize) -> u64 {
        match (at == self.written.0, at) {
            (true, _) => self.written.1,
            (false, 0) => self.first,
            (false, _) => 0,
        }
    }

    /// The places of words that may not be zero, and their values.
    pub fn words(&self) -> [(usize, u64); 2] {
        [(0, self.first), self.written]
    }
}

/// A window.
struct Window {
    end: usize,
    /// The lock of the kernel's VMA, as a count of readers.
    vma: Arc<Count>,
    pages: Vec<Option<Page>>,
}

/// All windows, by their start.
#[derive(Default)]
pub struct Windows(Mutex<BTreeMap<usize, Window>>);

impl Windows {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Window>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new one.
    pub fn add(&self, range: Range<usize>) {
        let window = Window {
            end: range.end,
            vma: Arc::new(Count::default()),
            pages: vec![None; range.len().div_ceil(PAGE_SIZE)],
        };
        self.lock().insert(range.start, window);
    }

    /// One goes.
    pub fn remove(&self, start: usize) {
        let gone = self.lock().remove(&start);
        assert!(gone.is_some(), "a window is released once");
    }

    /// The VMA of the window at `addr`.
    pub fn vma(&self, addr: usize) -> Option<Arc<Count>> {
        let windows = self.lock();
        let (_, window) = windows.range(..=addr).next_back()?;
        (addr < window.end).then(|| window.vma.clone())
    }

    /// The page at `addr`, if it is there.
    pub fn page(&self, addr: usize) -> Option<Page> {
        self.change(addr, |page| *page).flatten()
    }

    /// Writes a word of a page; false if that is not there, or protected.
    pub fn write(&self, addr: usize, word: u64) -> bool {
        let at = addr % PAGE_SIZE;
        let written = self.change(addr, |page| match page {
            Some(page) if !page.protected => {
                if at == 0 {
                    page.first = word;
                }
                page.written = (at, word);
                page.zeros = false;
                true
            }
            _ => false,
        });
        written == Some(true)
    }

    /// Protects the pages of a range; returns how many were not.
    pub fn protect(&self, range: &Range<usize>) -> u64 {
        let protect = |page: &mut Option<Page>| match page {
            Some(page) => !core::mem::replace(&mut page.protected, true),
            None => false,
        };
        let pages = range.clone().step_by(PAGE_SIZE);
        pages
            .filter(|&addr| self.change(addr, protect) == Some(true))
            .count() as u64
    }

    /// Lets a page be written to.
    pub fn make_writable(&self, addr: usize) {
        self.change(addr, |page| {
            if let Some(page) = page {
                page.protected = false;
            }
        });
    }

    /// True if the page at `addr` is the kernel's page of zeros.
    pub fn is_zeros(&self, addr: usize) -> bool {
        self.page(addr).is_some_and(|page| page.zeros)
    }

    /// Moves the pages of a range, which are protected then; returns how many.
    pub fn move_pages(&self, from: &Range<usize>, to: usize) -> u64 {
        let mut moved = 0;
        for addr in from.clone().step_by(PAGE_SIZE) {
            if let Some(page) = self.change(addr, Option::take).flatten() {
                self.enter(to + (addr - from.start), page.protected());
                moved += 1;
            }
        }
        moved
    }

    /// How many pages there are.
    pub fn count(&self) -> u64 {
        let windows = self.lock();
        let pages = windows.values().flat_map(|window| &window.pages);
        pages.flatten().count() as u64
    }

    /// Enters a page, unless it is there.
    pub fn enter(&self, addr: usize, page: Page) {
        self.change(addr, |there| there.get_or_insert(page).first);
    }

    /// Takes all pages of a range out; returns how many there were.
    pub fn take_out(&self, range: &Range<usize>) -> u64 {
        let pages = range.clone().step_by(PAGE_SIZE);
        pages
            .filter(|&addr| self.change(addr, Option::take).flatten().is_some())
            .count() as u64
    }

    fn change<T>(&self, addr: usize, f: impl FnOnce(&mut Option<Page>) -> T) -> Option<T> {
        let mut windows = self.lock();
        let (start, window) = windows.range_mut(..=addr).next_back()?;
        let page = (addr - start) / PAGE_SIZE;
        window.pages.get_mut(page).map(f)
    }
}
