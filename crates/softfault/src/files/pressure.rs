//! Which windows the kernel serves: a thread looks at the memory there is, and changes it. And it lets a budget that
//! nobody asked for follow the limits (`store/follow.rs`).
//!
//! The kernel's own mapping is the fastest way to bytes that the page cache has: nothing is copied, and
//! processes share the pages. It is the slowest to bytes that it has
//! not, but in order, or has no room for. So
//!
//! - a file that the page cache has, as cachestat(2) says, is given to the kernel: when it is mapped, or
//!   once as much as a quarter of it was read through the page cache;
//! - so is one that fits there, once it was read in order for 16 MiB: both read ahead of that, and the
//!   kernel copies nothing;
//! - all are taken back, and the engine's budget holds again, as soon as there is no room
//!   (`docs/reads.md` has what that is), or the kernel reads in vain for touches of this process
//!   (`store/kernel_reads.rs`).
//!
//! While the kernel serves any, the thread looks ten times a second; otherwise it sleeps until
//! files have been read so far.

use super::Files;
use super::idle::SharedTable;
use super::served::{Served, Server};
use crate::store::{KernelReads, Reached, ReadPolicy};
use crate::thread::{self, Thread};
use core::sync::atomic::{AtomicBool, Ordering};
use softfault_engine::cache::PageCache;
use std::sync::{Arc, Mutex, PoisonError};

/// Between two looks while the kernel serves windows.
const LOOK_NS: u64 = 100_000_000;

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
        let Some(file) = served.file() else { return };
        if policy.looks_at_the_page_cache()
            && served.by() == Server::Engine
            && policy.has_room()
            && file.is_in_the_page_cache()
        {
            // What is refused is served as before.
            let _ = served.show(cache, true);
        }
    }

    /// Watches the memory that there is, for a file that was just mapped.
    pub(crate) fn watch(&self, policy: &Arc<ReadPolicy>, may_be_kernels: bool) {
        if policy.looks_at_the_page_cache() && (may_be_kernels || policy.may_follow()) {
            self.watch.start(&self.shared, policy, may_be_kernels);
        }
    }
}

impl Watch {
    fn start(&self, shared: &Arc<SharedTable>, policy: &Arc<ReadPolicy>, shows: bool) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_some() {
            // It may have been asleep, with none that the kernel serves.
            return policy.bell.ring();
        }
        // No signal is for the thread: a handler that touched a window which is changing would wait for it.
        let over = Arc::new(AtomicBool::new(false));
        let (ends, shared, watched) = (over.clone(), shared.clone(), policy.clone());
        let look = move || watch(&shared, &watched, &ends, shows);
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

fn watch(shared: &SharedTable, policy: &ReadPolicy, over: &AtomicBool, shows: bool) {
    // Without a table of descriptors the kernel serves none.
    let Some(mut reads) = KernelReads::new() else {
        return;
    };
    let mut shown = shows;
    loop {
        policy.bell.wait(shown.then_some(LOOK_NS));
        if over.load(Ordering::Acquire) {
            return;
        }
        let windows = shared.table().in_use();
        if let Some((cache, _)) = windows.first() {
            policy.follow(cache.node());
        }
        let in_vain = reads.are_in_vain() && shown;
        let short = in_vain || !policy.has_room();
        shown = false;
        if !shows {
            continue;
        }
        for (cache, served) in windows {
            shown |= look_at(&cache, &served, short);
        }
    }
}

/// Changes who serves a window, if that is to be; true if the kernel does then.
fn look_at(cache: &PageCache, served: &Served, short: bool) -> bool {
    let Some(file) = served.file() else {
        return false;
    };
    // What is refused is tried again at the next look.
    match served.by() {
        Server::Kernel if short => {
            let _ = served.take_over(cache);
        }
        Server::Kernel => {}
        Server::Engine => {
            let may = match file.take_reached() {
                Some(Reached::InOrder) => true,
                Some(Reached::Far) => file.is_in_the_page_cache(),
                None => false,
            };
            if may && !short {
                let _ = served.show(cache, true);
            }
        }
    }
    served.by() == Server::Kernel
}
