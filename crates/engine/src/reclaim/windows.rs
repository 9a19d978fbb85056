//! The windows of private memory that reclaim goes over, and its hand.
//!
//! The hand goes by address, a page table's span at a time, window after window:
//! neighbouring pages go together, so that one call protects them, one
//! write takes them to neighbouring slots, and one zap takes their page table too.
//! There is no list, and so nothing that every fault would have to lock.
//!
//! Lock: one, held while pages are chosen. Windows that have pages in a batch are
//! busy, and the release of a window waits for that.

use crate::anon::Anonymous;
use crate::lock::{Mutex, MutexGuard, order};
use core::ptr::NonNull;

/// All windows that reclaim may take pages from.
pub struct Windows {
    inner: Mutex<Inner, { order::RECLAIM_WINDOWS }>,
}

struct Inner {
    entries: Vec<Registered>,
    /// The window that the hand is in, and the page.
    hand: (usize, usize),
}

struct Registered {
    /// Alive while it is registered.
    anon: NonNull<Anonymous>,
    /// Batches that have pages of it.
    busy: u32,
}

// SAFETY: memory that is shared by its owners anyway; its drop takes it
// out first.
unsafe impl Send for Registered {}

/// The windows, while pages are chosen.
pub(super) struct Choosing<'a> {
    inner: MutexGuard<'a, Inner, { order::RECLAIM_WINDOWS }>,
}

/// A window with pages in a batch. It is alive until [`Windows::done`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Busy(NonNull<Anonymous>);

// SAFETY: as for `Registered`.
unsafe impl Send for Busy {}

impl Busy {
    /// Memory that the caller keeps alive as long as this is used.
    pub(super) fn of(anon: &Anonymous) -> Self {
        Self(NonNull::from(anon))
    }

    /// The memory.
    pub(super) fn get(&self) -> &Anonymous {
        // SAFETY: it is busy, and its drop waits until it is not.
        unsafe { self.0.as_ref() }
    }
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            inner: Mutex::ranked(Inner {
                entries: Vec::new(),
                hand: (0, 0),
            }),
        }
    }
}

impl Windows {
    /// Lets reclaim take pages of `anon` until it is deregistered.
    pub(crate) fn register(&self, anon: &Anonymous) {
        let entry = Registered {
            anon: NonNull::from(anon),
            busy: 0,
        };
        self.inner.lock().entries.push(entry);
    }

    /// Ends that; returns when no batch has pages of it.
    pub(crate) fn deregister(&self, anon: &Anonymous) {
        loop {
            let mut inner = self.inner.lock();
            let place = inner.place(anon).expect("a window that was registered");
            if inner.entries[place].busy == 0 {
                inner.entries.remove(place);
                if inner.hand.0 > place {
                    inner.hand.0 -= 1;
                } else if inner.hand.0 == place {
                    inner.hand.1 = 0;
                }
                return;
            }
            drop(inner);
            sync::thread::yield_now();
        }
    }

    /// Pages that are charged for all of them.
    pub(crate) fn charged_pages(&self) -> u64 {
        let inner = self.inner.lock();
        let windows = inner.entries.iter().map(|entry| Busy(entry.anon));
        windows.map(|window| window.get().charged_pages()).sum()
    }

    /// True if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.inner.lock().entries.is_empty()
    }

    /// Begins to choose.
    pub(super) fn choose(&self) -> Choosing<'_> {
        Choosing {
            inner: self.inner.lock(),
        }
    }

    /// A batch has no pages any more of the windows that it made busy.
    pub(super) fn done(&self, windows: &[Busy]) {
        let mut inner = self.inner.lock();
        for window in windows {
            let place = inner.place(window.get()).expect("a busy window stays");
            inner.entries[place].busy -= 1;
        }
    }
}

impl Inner {
    fn place(&self, anon: &Anonymous) -> Option<usize> {
        let is = |entry: &Registered| core::ptr::eq(entry.anon.as_ptr(), anon);
        self.entries.iter().position(is)
    }
}

impl Choosing<'_> {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.inner.entries.len()
    }

    /// The window that the hand is in, and the page; `None` if there is no window.
    pub(super) fn at_hand(&mut self) -> Option<(Busy, usize)> {
        if self.inner.hand.0 >= self.inner.entries.len() {
            self.inner.hand = (0, 0);
        }
        let entry = self.inner.entries.get(self.inner.hand.0)?;
        Some((Busy(entry.anon), self.inner.hand.1))
    }

    /// Moves the hand to a page of its window, or into the next window.
    pub(super) fn move_hand(&mut self, page: Option<usize>) {
        match page {
            Some(page) => self.inner.hand.1 = page,
            None => self.inner.hand = (self.inner.hand.0 + 1, 0),
        }
    }

    /// A batch has pages of it from now on.
    pub(super) fn make_busy(&mut self, window: Busy) {
        // SAFETY: registered, since it was found under this lock.
        let anon = unsafe { window.0.as_ref() };
        let place = self.inner.place(anon).expect("a window that was found");
        self.inner.entries[place].busy += 1;
    }
}
