//! Which windows there are, and which of their pages: what the processor finds
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
    /// Where a word was written last, from the page's start, and what.
    written: (usize, u64),
    /// Whether a write ends in no fault.
    writable: bool,
}

/// What came of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is there.
    Yes,
    /// The page is not.
    Missing,
    /// The page is protected.
    Protected,
}

impl Page {
    /// As it was filled.
    pub fn new(first: u64, writable: bool) -> Self {
        Self {
            first,
            written: (0, first),
            writable,
        }
    }

    /// The words of it that anybody looks at, and where they are.
    pub fn words(&self) -> [(usize, u64); 2] {
        // The last one written may be the first one.
        [(0, self.first), self.written]
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

    /// Writes a word of a page.
    pub fn write(&self, addr: usize, word: u64) -> Written {
        let written = self.change(addr, |page| match page {
            Some(page) if page.writable => {
                page.written = (addr % PAGE_SIZE, word);
                Written::Yes
            }
            Some(_) => Written::Protected,
            None => Written::Missing,
        });
        written.unwrap_or(Written::Missing)
    }

    /// Lets a page be written to, or not any more; false if it is not there, or as
    /// it is to be.
    pub fn set_writable(&self, addr: usize, writable: bool) -> bool {
        let changed = self.change(addr, |page| {
            let page = page.as_mut()?;
            Some(core::mem::replace(&mut page.writable, writable) != writable)
        });
        changed.flatten() == Some(true)
    }

    /// Takes the leave to write away from all pages of a range; returns how many
    /// had it.
    pub fn protect(&self, range: &Range<usize>) -> u64 {
        let pages = range.clone().step_by(PAGE_SIZE);
        pages.filter(|&addr| self.set_writable(addr, false)).count() as u64
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
