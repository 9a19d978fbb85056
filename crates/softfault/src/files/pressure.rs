//! Which windows the kernel serves: a thread looks at the memory there is, and changes it. And it lets a budget that
//! nobody asked for follow the limits (`store/follow.rs`).
//!
//! The kernel's own mapping is the fastest way to bytes that the page cache has: nothing is copied, and
//! processes share the pages. It is the slowest to bytes that it has
//! not, but in order, or has no room for. So
//!
//! - a file that the page cache has, as cachestat(2) says, is given to the kernel: when it is mapped, or
//!   once a 16th of it was read through the page cache. If the page cache has enough of it then, and
//!   there is room for the rest, the thread brings in the rest first (`store/fill.rs`);
//! - so is one that fits there, once it was read in order for 16 MiB: both read ahead of that, and the
//!   kernel copies nothing;
//! - all are taken back, and the engine's budget holds again, as soon as there is no room
//!   (`docs/reads.md` defines it), or the kernel reads in vain for touches of this process
//!   (`store/kernel_reads.rs`).
//!
//! While the kernel serves any, the thread looks ten times a second; otherwise it sleeps until
//! files have been read so far.

use super::idle::SharedTable;
use super::served::{Served, Server};
use super::{Files, lock};
use crate::store::{CacheProgress, FileStore, Fill, Filled, KernelReads, ReadPolicy};
use crate::thread::{self, Thread};
use core::sync::atomic::{AtomicBool, Ordering};
use softfault_engine::cache::PageCache;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Between two looks while the kernel serves windows.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_NS: u64 = LOOK.as_nanos() as u64;

/// The thread, from the first file on that the kernel may serve.
#[derive(Default)]
pub(super) struct Watch {
    thread: Mutex<Option<Watcher>>,
}

struct Watcher {
    thread: Thread,
    over: Arc<AtomicBool>,
    policy: Arc<ReadPolicy>,
}

impl Files {
    /// Lets the kernel serve a file that was just mapped, if it is there already.
    pub(crate) fn consider(&self, policy: &Arc<ReadPolicy>, cache: &PageCache, served: &Served) {
        let Some(file) = served.shown_file() else {
            return;
        };
        if served.by() == Server::Engine && policy.has_room() && file.is_in_the_page_cache() {
            // A file that the kernel refuses is served as before.
            let _ = served.show(cache, true);
        }
    }

    /// Watches the memory that there is, for a file that was just mapped.
    pub(crate) fn watch(&self, policy: &Arc<ReadPolicy>) {
        if policy.kernel_may_serve() || policy.looks_at_the_page_cache() && policy.may_follow() {
            self.watch.start(&self.shared, policy);
        }
    }

    /// The kernel may serve windows that the thread has not given to it: it looks at them, too.
    pub(super) fn look_again(&self) {
        if let Some(watcher) = &*lock(&self.watch.thread) {
            watcher.policy.bell.ring();
        }
    }
}

impl Watch {
    fn start(&self, shared: &Arc<SharedTable>, policy: &Arc<ReadPolicy>) {
        let mut thread = lock(&self.thread);
        if thread.is_some() {
            // It may have been asleep, with none that the kernel serves.
            return policy.bell.ring();
        }
        // No signal is for the thread: a handler that touched a window which is changing would wait for it.
        let over = Arc::new(AtomicBool::new(false));
        let (ends, shared, watched) = (over.clone(), shared.clone(), policy.clone());
        let look = move || watch(&shared, &watched, &ends);
        let started = thread::start(c"softfault-room", thread::STACK, look);
        *thread = started.ok().map(|thread| Watcher {
            thread,
            over,
            policy: policy.clone(),
        });
    }

    /// Ends the thread.
    pub(super) fn stop(&mut self) {
        let watcher = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(watcher) = watcher.take() {
            watcher.over.store(true, Ordering::Release);
            watcher.policy.bell.ring();
            watcher.thread.join();
        }
    }

    /// In a child of fork: it is the parent's.
    pub(super) fn leave(&mut self) {
        let watcher = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        core::mem::forget(watcher.take());
    }
}

/// The state of the thread between two looks.
struct Looks<'a> {
    shared: &'a SharedTable,
    over: &'a AtomicBool,
    reads: KernelReads,
    /// The first of them is being filled.
    filling: VecDeque<Filling>,
}

/// A file whose rest is being brought into the page cache.
struct Filling {
    served: Weak<Served>,
    fill: Fill,
}

fn watch(shared: &SharedTable, policy: &ReadPolicy, over: &AtomicBool) {
    // Without a table of descriptors the kernel serves none.
    let Some(reads) = KernelReads::new() else {
        return;
    };
    let mut looks = Looks {
        shared,
        over,
        reads,
        filling: VecDeque::new(),
    };
    let shows = policy.kernel_may_serve();
    let mut shown = shows;
    loop {
        if looks.filling.is_empty() {
            policy.bell.wait(shown.then_some(LOOK_NS));
        }
        if over.load(Ordering::Acquire) {
            return;
        }
        let windows = shared.table().in_use();
        let mut caches = windows.iter().map(|(cache, _)| cache);
        if let Some(cache) = caches.find_map(|cache| shared.upgrade(cache)) {
            policy.follow(cache.node());
        }
        let in_vain = looks.reads.are_in_vain() && shown;
        let short = in_vain || !policy.has_room();
        shown = false;
        if !shows {
            continue;
        }
        looks.give_up_fills(&windows, short);
        for (cache, served) in windows {
            shown |= looks.look_at(&cache, &served, short);
        }
    }
}

impl Looks<'_> {
    /// Changes the server of a window, if it is to change; true if the kernel serves it then. A fill may wait for a device, and
    /// does not keep a window whose last map is dropped meanwhile.
    fn look_at(&mut self, window: &Weak<PageCache>, served: &Arc<Served>, short: bool) -> bool {
        let Some(file) = served.shown_file() else {
            return false;
        };
        // A refused file is tried again at the next look.
        match served.by() {
            Server::Kernel if short => {
                if let Some(cache) = self.shared.upgrade(window) {
                    let _ = served.take_over(&cache);
                }
            }
            Server::Kernel => {}
            Server::Engine => {
                let may = match file.take_reached() {
                    _ if short => false,
                    Some(CacheProgress::InOrder) => true,
                    Some(CacheProgress::Far) => self.is_there(file, served),
                    None => false,
                };
                if (may || self.fill(file, served))
                    && let Some(cache) = self.shared.upgrade(window)
                    && served.show(&cache, true) == Ok(true)
                {
                    // Our own read for it was no touch of the program.
                    self.reads.forget();
                }
            }
        }
        served.by() == Server::Kernel
    }

    /// True if the page cache has the file. Otherwise it is filled, if that pays.
    fn is_there(&mut self, file: &FileStore, served: &Arc<Served>) -> bool {
        if file.is_in_the_page_cache() {
            return true;
        }
        if !self.filling.iter().any(|filling| filling.is_of(served))
            && let Some(fill) = file.begin_fill()
        {
            self.filling.push_back(Filling {
                served: Arc::downgrade(served),
                fill,
            });
        }
        false
    }

    /// Goes on to fill a file, if it is its turn, until it is time for another look; true if it is all there now.
    fn fill(&mut self, file: &FileStore, served: &Arc<Served>) -> bool {
        let first = self.filling.front_mut();
        let Some(filling) = first.filter(|filling| filling.is_of(served)) else {
            return false;
        };
        let begun = Instant::now();
        let mut filled = Filled::Some;
        while filled == Filled::Some && begun.elapsed() < LOOK && !self.over.load(Ordering::Acquire)
        {
            filled = file.go_on(&mut filling.fill);
        }
        if filled != Filled::Some {
            self.filling.pop_front();
        }
        filled == Filled::All && file.is_in_the_page_cache()
    }

    /// Ends the fill of files that nobody maps any more, or that the kernel serves; and all when memory is short.
    fn give_up_fills(&mut self, windows: &[(Weak<PageCache>, Arc<Served>)], short: bool) {
        self.filling.retain(|filling| {
            let mut served = windows.iter().map(|(_, served)| served);
            let found = served.find(|served| filling.is_of(served));
            !short && found.is_some_and(|served| served.by() == Server::Engine)
        });
    }
}

impl Filling {
    fn is_of(&self, served: &Arc<Served>) -> bool {
        self.served.as_ptr() == Arc::as_ptr(served)
    }
}
