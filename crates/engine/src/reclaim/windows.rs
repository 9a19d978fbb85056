//! The windows of private memory that reclaim goes over, and its hand.
//!
//! The hand goes by address, a page table's span at a time, window after window:
//! neighbouring pages go together, so that one call protects them, one
//! write takes them to neighbouring slots, and one zap takes their page table too.
//! There is no list, and so nothing that every fault would have to lock.
//!
//! Lock: one, held while pages are chosen. Windows that have pages in a batch are
//! busy, and the release of a window sleeps until the last such batch is done: it may be a write to swap.

use crate::anon::Anonymous;
use crate::budget::SLICE_NS;
use crate::lock::{Mutex, MutexGuard, order};
use core::ptr::NonNull;
use sync::atomic::{AtomicUsize, Ordering};
use sync::wait::WaitWord;

/// All windows that reclaim may take pages from.
pub struct Windows {
    inner: Mutex<Inner, { order::RECLAIM_WINDOWS }>,
    /// How many windows that a release waits for have become idle.
    idle: WaitWord,
}

struct Inner {
    /// In any order.
    entries: Vec<Registered>,
    /// The window that the hand is in, and the page.
    hand: (usize, usize),
    /// Windows that the hand has left so far.
    left: usize,
}

struct Registered {
    /// Alive while it is registered.
    anon: NonNull<Anonymous>,
    /// Batches that have pages of it.
    busy: u32,
    /// Its release waits for their end.
    is_awaited: bool,
}

/// Where a window is among the registered ones. Protected by their lock; Relaxed.
#[derive(Default)]
pub(crate) struct Place(AtomicUsize);

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
                left: 0,
            }),
            idle: WaitWord::new(0),
        }
    }
}

impl Windows {
    /// Lets reclaim take pages of `anon` until it is deregistered.
    pub(crate) fn register(&self, anon: &Anonymous) {
        let mut inner = self.inner.lock();
        anon.place.0.store(inner.entries.len(), Ordering::Relaxed);
        inner.entries.push(Registered {
            anon: NonNull::from(anon),
            busy: 0,
            is_awaited: false,
        });
    }

    /// Ends that; returns when no batch has pages of it.
    pub(crate) fn deregister(&self, anon: &Anonymous) {
        loop {
            let mut inner = self.inner.lock();
            let place = inner.place(anon);
            if inner.entries[place].busy == 0 {
                inner.remove(place);
                return;
            }
            inner.entries[place].is_awaited = true;
            // Relaxed: under the lock, and the batch that is the last adds to it after that.
            let idle = self.idle.load(Ordering::Relaxed);
            drop(inner);
            self.idle.wait(idle, Some(SLICE_NS));
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
        let mut is_awaited = false;
        for window in windows {
            let place = inner.place(window.get());
            let entry = &mut inner.entries[place];
            entry.busy -= 1;
            is_awaited |= entry.busy == 0 && entry.is_awaited;
        }
        drop(inner);
        if is_awaited {
            // Relaxed: the lock hands everything over.
            self.idle.fetch_add(1, Ordering::Relaxed);
            self.idle.wake(u32::MAX);
        }
    }
}

impl Inner {
    /// Where a registered window is.
    fn place(&self, anon: &Anonymous) -> usize {
        let place = anon.place.0.load(Ordering::Relaxed);
        let is_there = core::ptr::eq(self.entries[place].anon.as_ptr(), anon);
        assert!(is_there, "a window that is registered");
        place
    }

    /// Takes an entry out. The last one gets its place, and the hand stays in the window where it is.
    fn remove(&mut self, place: usize) {
        self.entries.swap_remove(place);
        let last = self.entries.len();
        if self.hand.0 == place {
            self.hand.1 = 0;
        } else if self.hand.0 == last {
            self.hand.0 = place;
        }
        if let Some(moved) = self.entries.get(place) {
            // SAFETY: registered, so its drop has yet to come here.
            let moved = unsafe { moved.anon.as_ref() };
            moved.place.0.store(place, Ordering::Relaxed);
        }
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
            None => {
                self.inner.hand = (self.inner.hand.0 + 1, 0);
                self.inner.left = self.inner.left.wrapping_add(1);
            }
        }
    }

    /// How many windows the hand has left so far, one after another and round.
    pub(super) fn left_windows(&self) -> usize {
        self.inner.left
    }

    /// A batch has pages of it from now on.
    pub(super) fn make_busy(&mut self, window: Busy) {
        // SAFETY: registered, since it was found under this lock.
        let anon = unsafe { window.0.as_ref() };
        let place = self.inner.place(anon);
        self.inner.entries[place].busy += 1;
    }
}
