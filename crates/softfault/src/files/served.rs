//! The server of a window: the engine, or the kernel by a mapping of its own in the window's place.
//!
//! ```text
//!            the page cache has the file, and there is room
//!   Engine ─────────────────────────────────────────────────► Kernel
//!          ◄─────────────────────────────────────────────────
//!            memory gets short, or the kernel has to read
//! ```
//!
//! It changes under readers that touch the window, at any time; but not while somebody *holds* it as it
//! is: calls that are under way, which a change waits for and which wait for a change, both for a moment;
//! and pages that are pinned or locked, which it does not wait for. While the file has shared writable maps,
//! which are the kernel's, the kernel is to serve all windows of it: then the change is made as soon as nobody holds the
//! window any more.
//!
//! To the kernel: its mapping goes to the window's place first, which throws away all pages that are there,
//! and no page can be brought in any more (`MmuError::Gone`, and the touch is made again). Then
//! the cache forgets them. The VMA stays: from the kernel's mapping faults come only for pages that the kernel
//! cannot read, and these are errors of ours too.

use crate::generation::ProcessGeneration;
use crate::kernel::KernelCount;
use crate::process::Process;
use crate::signal;
use crate::store::FileStore;
use crate::uffd::{Faults, FileToShow};
use core::ops::Range;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::cache::PageCache;
use softfault_engine::mmu::MmuError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

mod scan;
use scan::ScanState;
pub(super) use scan::{LEAST_BUDGET, Scans};

/// Before the kernel serves a window again that was taken from it; each time twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// For calls that are under way.
const PATIENCE: Duration = Duration::from_millis(10);

/// The server of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Engine,
    Kernel,
}

/// The server of a window, and the state for a change of it.
pub(crate) struct Served {
    /// Locked while it changes. Meanwhile only the locks of reclaim are taken.
    state: Mutex<State>,
    /// Of `holds` while somebody waits to change it, and of `changing`.
    changed: Condvar,
    /// Immutable. The file, if the window is one's.
    file: Option<Arc<FileStore>>,
    /// Immutable. `None`: the engine does, for ever.
    of: Option<Place>,
    /// In a child of fork: the kernel maps the file there (`inherited.rs`). Relaxed: set while it has one thread.
    inherited: AtomicBool,
    /// A child of fork is not to have it. Relaxed: as of the moment of a fork.
    kept_from_children: AtomicBool,
    /// A child has it as a private mapping. Relaxed: as of the moment of a fork.
    private_in_children: AtomicBool,
}

struct State {
    by: Server,
    /// The number of holds on the present server.
    holds: usize,
    /// Those of them that last as long as the program likes.
    kept: usize,
    /// Locks by the kernel, which held callers asked for.
    kernel_locks: usize,
    /// How often all holds were forgotten. Those from before count no more.
    forgotten: u64,
    /// Somebody waits for the calls that are under way: others begin afterwards.
    changing: bool,
    /// The kernel serves it, and the cache forgets its pages: for so long it does.
    forgetting: bool,
    /// The number of shared writable maps of the file, which are the kernel's: the kernel is to serve the window, too.
    writers: usize,
    /// When the kernel may serve it again.
    not_before: Option<Instant>,
    pause: Duration,
    scans: ScanState,
}

struct Place {
    process: &'static Process,
    cache: Weak<PageCache>,
}

impl Served {
    /// A window that the engine serves for ever.
    pub(crate) fn always() -> Arc<Self> {
        Self::with(None, None)
    }

    /// A file's window. The kernel may serve it at times, if it `may` and it can.
    pub(super) fn of_file(file: &Arc<FileStore>, cache: &Arc<PageCache>, may: bool) -> Arc<Self> {
        let process = crate::process::get();
        let process = process.filter(|process| process.faults() == Faults::Signals);
        // Small windows share a mapping. Where memory is moved in, pages are protected: in the private mapping of a file that a window has
        // once it was taken over again, the kernel would keep that over an eviction, as a mark of each page.
        let can = file.can_be_mapped() && cache.has_own_reservation() && !cache.is_for_moves();
        let place = process.filter(|_| may && can).map(|process| Place {
            process,
            cache: Arc::downgrade(cache),
        });
        Self::with(Some(file.clone()), place)
    }

    fn with(file: Option<Arc<FileStore>>, of: Option<Place>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                by: Server::Engine,
                holds: 0,
                kept: 0,
                kernel_locks: 0,
                forgotten: 0,
                changing: false,
                forgetting: false,
                writers: 0,
                not_before: None,
                pause: FIRST_PAUSE,
                scans: ScanState::default(),
            }),
            changed: Condvar::new(),
            file,
            of,
            inherited: AtomicBool::new(false),
            kept_from_children: AtomicBool::new(false),
            private_in_children: AtomicBool::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present server.
    pub(crate) fn by(&self) -> Server {
        self.state().by
    }

    /// The file, if the kernel may serve it at times.
    pub(super) fn shown_file(&self) -> Option<&Arc<FileStore>> {
        self.file.as_ref().filter(|_| self.of.is_some())
    }

    /// No map of the window is left: the next one finds no advice.
    pub(super) fn forget_advice(&self, window: &Range<usize>) {
        self.allow_inherit(true);
        self.allow_inherit_as_private(false);
        self.advise(false);
        let state = self.state();
        if state.by == Server::Kernel {
            let start = window.start as *mut libc::c_void;
            // SAFETY: advice about the kernel's mapping in the window's place, which stays there with the state locked.
            unsafe { sync::kernel_calls::madvise(start, window.len(), libc::MADV_NORMAL) };
        }
    }

    /// Whether children of fork are to have it; they are, if nobody says otherwise.
    pub(crate) fn allow_inherit(&self, allowed: bool) {
        self.kept_from_children.store(!allowed, Relaxed);
    }

    /// Whether children of fork have it as a private mapping of the file, which they may make writable.
    pub(crate) fn allow_inherit_as_private(&self, private: bool) {
        self.private_in_children.store(private, Relaxed);
    }

    pub(super) fn is_private_in_children(&self) -> bool {
        self.private_in_children.load(Relaxed)
    }

    pub(super) fn is_for_children(&self) -> bool {
        !self.kept_from_children.load(Relaxed)
    }

    /// In a child of fork: the kernel maps the file in the window's place.
    pub(super) fn inherit(&self) {
        self.inherited.store(true, Relaxed);
    }

    /// True in a child of fork, of a parent's window, if the kernel maps the file in its place.
    pub(crate) fn was_inherited(&self) -> bool {
        self.inherited.load(Relaxed)
    }

    /// Lets faults read ahead in it, unless the kernel serves it.
    pub(crate) fn will_be_read(&self) {
        if let Some(file) = self.shown_file()
            && self.by() == Server::Engine
        {
            file.will_be_read();
        }
    }

    /// Somebody knows how most of it will be read.
    pub(crate) fn advise(&self, random: bool) {
        if let Some(file) = &self.file {
            file.advise(random);
        }
    }

    /// Keeps it as it is for a call.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        let mut state = self.without_scan();
        state.holds += 1;
        Hold {
            by: state.by,
            kept: false,
            forgotten: state.forgotten,
            of: self.clone(),
            made: ProcessGeneration::here(),
        }
    }

    /// Forgets leftover holds; true if there were any, and then [`was_let_go`](Self::was_let_go) has to follow, with nothing locked. No
    /// map of the window is left, and a hold lives no longer than its map, or is of no use any more: one that is left was forgotten, as
    /// any value may be.
    pub(super) fn forget_holds(&self) -> bool {
        let mut state = self.state();
        let any = state.holds > 0;
        if any {
            state.forgotten += 1;
            (state.holds, state.kept, state.kernel_locks) = (0, 0, 0);
        }
        any
    }

    /// There are fewer holds than before.
    pub(super) fn was_let_go(&self) {
        let state = self.state();
        let wanted = state.changing;
        let due = state.holds == 0 && state.writers > 0 && state.by == Server::Engine;
        drop(state);
        if wanted {
            self.changed.notify_all();
        }
        if due
            && let Some(place) = &self.of
            && let Some(cache) = place.cache.upgrade()
        {
            let _masked = signal::masked();
            // As in `Writer::of`.
            let _ = self.show(&cache, false);
        }
    }

    /// Waits for the calls that are under way, while others wait; the state, if nobody holds it then.
    fn unheld(&self) -> Option<MutexGuard<'_, State>> {
        let mut state = self.without_scan();
        // Another changes it, or the kernel cannot give a segment back.
        if state.kept > 0 || state.changing || state.scans.now.is_some() {
            return None;
        }
        if state.holds > 0 {
            state.changing = true;
            let held = |state: &mut State| state.holds > state.kept;
            let waited = self.changed.wait_timeout_while(state, PATIENCE, held);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.changing = false;
            self.changed.notify_all();
        }
        (state.holds == 0).then_some(state)
    }

    /// The kernel serves the window from now on. False if it does already, or somebody holds it, or it
    /// was taken from it a short while ago. Signals are masked: a handler that touches the window would
    /// wait for this thread.
    pub(crate) fn show(&self, cache: &PageCache, patient: bool) -> Result<bool, MmuError> {
        let (Some(Place { process, .. }), Some(file)) = (&self.of, &self.file) else {
            return Ok(false);
        };
        if self.by() == Server::Kernel {
            return Ok(false);
        }
        let Some(mut state) = self.unheld() else {
            return Ok(false);
        };
        // A writer may have come while this waited, and found it changing.
        let patient = patient && state.writers == 0;
        let early = patient && state.not_before.is_some_and(|then| Instant::now() < then);
        if state.by == Server::Kernel || early {
            return Ok(false);
        }
        let Some(file) = to_show(file) else {
            return Ok(false);
        };
        let prepared = process.mmu().prepare_take_over();
        // Beside a map that writes it has to be shown.
        if patient {
            prepared?;
        }
        // SAFETY: a window that is only read, whose pages are the file's from the first on. No page
        // is brought in from then on, and those that were are forgotten below.
        unsafe { process.mmu().show(cache.reservation(), file) }?;
        state.by = Server::Kernel;
        state.forgetting = true;
        drop(state);
        // Waits for reads that are under way, and nobody else waits for this: not for a device.
        cache.invalidate(cache.addresses());
        self.state().forgetting = false;
        KernelCount::SwitchedToKernel.add(1);
        KernelCount::SwitchedToKernelBytes.add(cache.addresses().len() as u64);
        Ok(true)
    }

    /// The engine serves the window again. False if it does already, or somebody holds it. Signals
    /// are masked, as in [`show`](Self::show).
    pub(crate) fn take_over(&self, cache: &PageCache) -> Result<bool, MmuError> {
        let (Some(Place { process, .. }), Some(file)) = (&self.of, &self.file) else {
            return Ok(false);
        };
        if self.by() == Server::Engine {
            return Ok(false);
        }
        // Touches that began before the kernel served it have brought pages into the cache since, and could not map them: the
        // file may have changed meanwhile. Those that are being read are waited for first, with nothing locked.
        cache.invalidate(cache.addresses());
        let Some(mut state) = self.unheld() else {
            return Ok(false);
        };
        if state.by == Server::Engine || state.forgetting || state.writers > 0 {
            return Ok(false);
        }
        cache.invalidate(cache.addresses());
        file.will_be_read();
        let Some(shown) = to_show(file) else {
            return Ok(false);
        };
        // SAFETY: it was shown; and its VMA is there as long as anybody maps it.
        unsafe { process.mmu().take_over(cache.reservation(), shown) }?;
        state.by = Server::Engine;
        state.not_before = Some(Instant::now() + state.pause);
        state.pause = (state.pause * 2).min(LONGEST_PAUSE);
        KernelCount::SwitchedToEngine.add(1);
        Ok(true)
    }
}

/// The file, if it is in the table.
fn to_show(file: &FileStore) -> Option<FileToShow<'_>> {
    Some(FileToShow {
        file: file.in_table()?,
        random: file.is_random(),
    })
}

/// A shared writable map of the file, which is the kernel's.
pub(crate) struct Writer {
    of: Arc<Served>,
    made: ProcessGeneration,
}

impl Writer {
    /// From now on the kernel serves the window, if it can be: at once, or when nobody holds it any more. Signals are masked.
    pub(super) fn of(served: &Arc<Served>, cache: &PageCache) -> Self {
        served.state().writers += 1;
        // A window that cannot be handed over stays as it is.
        let _ = served.show(cache, false);
        Self {
            of: served.clone(),
            made: ProcessGeneration::here(),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // In a child it was the parent's, and another thread may have had the lock at the fork.
        if !self.made.is_parents() {
            self.of.state().writers -= 1;
        }
    }
}

/// A caller that needs the window to be served in the same way meanwhile.
pub(crate) struct Hold {
    /// The server meanwhile.
    by: Server,
    /// As long as the program likes.
    kept: bool,
    /// As [`State::forgotten`] was.
    forgotten: u64,
    of: Arc<Served>,
    made: ProcessGeneration,
}

impl Hold {
    /// True if the kernel serves it meanwhile.
    pub(crate) fn is_kernels(&self) -> bool {
        self.by == Server::Kernel
    }

    /// True if the kernel serves a segment of it, and could not be made to give it back.
    pub(crate) fn has_scan(&self) -> bool {
        self.of.state().scans.now.is_some()
    }

    /// The kernel is about to lock pages for the holder.
    pub(crate) fn begin_kernel_lock(&self) {
        self.of.state().kernel_locks += 1;
    }

    /// The holder needs them no more. If no other does, `unlock` is called, before another can begin to lock.
    pub(crate) fn end_kernel_lock(&self, unlock: impl FnOnce()) {
        let mut state = self.of.state();
        state.kernel_locks = state.kernel_locks.saturating_sub(1);
        if state.kernel_locks == 0 {
            unlock();
        }
    }

    /// From now on it is held as long as the program likes, and nobody waits for it.
    pub(crate) fn keep(&mut self) {
        if !self.kept {
            self.kept = true;
            let mut state = self.of.state();
            state.kept += usize::from(self.forgotten == state.forgotten);
            drop(state);
            self.of.changed.notify_all();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.made.is_parents() {
            // Another thread may have had the lock when this process was forked.
            return;
        }
        let mut state = self.of.state();
        if self.forgotten != state.forgotten {
            // No map of its time is left.
            return;
        }
        state.holds -= 1;
        state.kept -= usize::from(self.kept);
        drop(state);
        self.of.was_let_go();
    }
}
