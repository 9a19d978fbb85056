//! Which windows the kernel serves: a thread looks at the memory there is, and changes it. And it lets a budget that
//! nobody asked for follow the limits (`store/follow.rs`).
//!
//! The kernel's own mapping is the fastest way to bytes that the page cache has: nothing is copied, and
//! processes share the pages. It is the slowest to bytes that it has
//! not, but in order, or has no room for. So
//!
//! - a file that the page cache has, as cachestat(2) says, is given to the kernel: when it is mapped, or
//!   once a 16th of it was read through the page cache. If the page cache has enough of it then, and
//!   there is room for the rest, that is brought in first (`fills.rs`, `store/fill.rs`);
//! - so is one that fits there, once it was read in order for 16 MiB: both read ahead of that, and the
//!   kernel copies nothing;
//! - one that does not fit there is served a few MiB at a time, while it is read in order (`served/scan.rs`);
//! - all are taken back, and the engine's budget holds again, as soon as there is no room
//!   (`docs/reads.md` defines it), or the kernel reads in vain for touches of this process
//!   (`store/kernel_reads.rs`).
//!
//! While the kernel serves any, the thread looks ten times a second; while the budget follows the limits, once a second; otherwise it sleeps until
//! files have been read so far.

use super::fills::Fills;
use super::idle::SharedTable;
use super::served::{LEAST_BUDGET, Scans, Served, Server};
use super::{Files, lock};
use crate::managed::Managed;
use crate::store::{CacheProgress, FileStore, KernelReads, ReadPolicy};
use crate::thread::{self, Thread};
use core::sync::atomic::{AtomicBool, Ordering};
use softfault_engine::cache::{Node, PageCache};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Between two looks while the kernel serves windows, or a file is being filled.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_NS: u64 = LOOK.as_nanos() as u64;
/// The same while only the budget follows the limits: private memory rings no bell.
const LIMITS_NS: u64 = 1_000_000_000;

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
    /// Lets the kernel serve a file that was just mapped, if it is there already, and a thread can take it back.
    pub(crate) fn consider(&self, policy: &Arc<ReadPolicy>, cache: &PageCache, served: &Served) {
        if lock(&self.watch.thread).is_none() {
            return;
        }
        let Some(file) = served.shown_file() else {
            return;
        };
        if served.by() == Server::Engine && policy.has_room() && file.is_in_the_page_cache() {
            // A file that the kernel refuses is served as before.
            if served.show(cache, true) == Ok(true) {
                // The thread may be asleep, as the kernel served none.
                policy.bell.ring();
            }
        }
    }

    /// Watches the memory that there is, for a file that is being mapped. Signals are masked.
    pub(crate) fn watch(&self, managed: &Managed) {
        if managed.reads.kernel_may_serve() {
            self.watch.start(&self.shared, managed);
        }
        self.watch_limits(managed);
    }

    /// Watches the limits, if the budget follows them, whatever it pays for. Signals are masked.
    pub(crate) fn watch_limits(&self, managed: &Managed) {
        if managed.reads.follows() {
            self.watch.start(&self.shared, managed);
        }
    }

    /// The budget is to be so many bytes: ends scans, if it has no room for their memory then. Signals are masked.
    pub(crate) fn end_scans(&self, managed: &Managed, budget: usize) {
        // In a child of fork they are the parent's, which another thread may have locked.
        if managed.reads.kernel_may_serve() && !self.generation.is_parents() {
            self.shared.end_scans(budget);
        }
    }

    /// The kernel may serve windows that the thread has not given to it: it looks at them, too.
    pub(super) fn look_again(&self) {
        if let Some(watcher) = &*lock(&self.watch.thread) {
            watcher.policy.bell.ring();
        }
    }
}

impl SharedTable {
    fn end_scans(&self, budget: usize) {
        if budget as u64 >= LEAST_BUDGET {
            return;
        }
        let windows = self.table().in_use();
        for (cache, served) in windows {
            // It stays meanwhile.
            if let Some(_cache) = self.upgrade(&cache) {
                served.end_any_scan();
            }
        }
    }
}

impl Watch {
    fn start(&self, shared: &Arc<SharedTable>, managed: &Managed) {
        let mut thread = lock(&self.thread);
        if thread.is_some() {
            return;
        }
        // No signal is for the thread: a handler that touched a window which is changing would wait for it.
        let over = Arc::new(AtomicBool::new(false));
        let (ends, shared, policy) = (over.clone(), shared.clone(), managed.reads.clone());
        let (node, watched) = (managed.node.clone(), policy.clone());
        let look = move || watch(&shared, &node, &watched, &ends);
        let started = thread::start(c"softfault-room", thread::STACK, look);
        *thread = started.ok().map(|thread| Watcher {
            thread,
            over,
            policy,
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
    reads: KernelReads,
    fills: Fills,
    scans: Scans,
}

fn watch(shared: &SharedTable, node: &Node, policy: &Arc<ReadPolicy>, over: &AtomicBool) {
    // Without a table of descriptors the kernel serves none.
    let Some(reads) = KernelReads::new() else {
        return;
    };
    let mut looks = Looks {
        shared,
        reads,
        fills: Fills::default(),
        scans: Scans::default(),
    };
    let shows = policy.kernel_may_serve();
    let mut shown = shows;
    let (mut looked, mut put_off) = (Instant::now(), false);
    loop {
        let looks_again = shown || put_off || !looks.fills.is_empty() || !looks.scans.is_empty();
        let until_limits = || policy.follows().then_some(LIMITS_NS);
        policy
            .bell
            .wait(looks_again.then_some(LOOK_NS).or_else(until_limits));
        if over.load(Ordering::Acquire) {
            return;
        }
        looks.scans.follow(|cache| shared.upgrade(cache));
        let windows = shared.table().in_use();
        let mut asked = false;
        for (cache, served) in &windows {
            let window = (cache, || shared.upgrade(cache));
            asked |= looks.scans.consider(window, served, policy);
        }
        // Readers in order ring many times as often.
        put_off = (asked || !looks.scans.is_empty()) && looked.elapsed() < LOOK;
        if put_off {
            continue;
        }
        looked = Instant::now();
        policy.follow(node, |bytes| shared.end_scans(bytes));
        let in_vain = looks.reads.are_in_vain() && shown;
        let short = in_vain || !policy.has_room();
        shown = false;
        if !shows {
            continue;
        }
        looks.fills.keep(|served| {
            let is_mapped = windows.iter().any(|(_, one)| Arc::ptr_eq(one, served));
            !short && is_mapped && served.by() == Server::Engine
        });
        for (cache, served) in &windows {
            shown |= looks.look_at(cache, served, short);
        }
        while let Some(served) = looks.fills.go_on(policy) {
            let filled = windows.iter().find(|(_, one)| Arc::ptr_eq(one, &served));
            shown |= filled.is_some_and(|(cache, _)| looks.show_filled(cache, &served));
        }
    }
}

impl Looks<'_> {
    /// Changes the server of a window, if it is to change; true if the kernel serves it then.
    fn look_at(&mut self, window: &Weak<PageCache>, served: &Arc<Served>, short: bool) -> bool {
        let Some(file) = served.shown_file() else {
            return false;
        };
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
                if may {
                    self.show(window, served);
                }
            }
        }
        served.by() == Server::Kernel
    }

    /// Lets the kernel serve a window whose file has been filled; true if it does.
    fn show_filled(&mut self, window: &Weak<PageCache>, served: &Arc<Served>) -> bool {
        if served
            .shown_file()
            .is_some_and(|file| file.is_in_the_page_cache())
        {
            self.show(window, served);
        }
        served.by() == Server::Kernel
    }

    /// A file that the kernel refuses, or a window that somebody holds, is served as before.
    fn show(&mut self, window: &Weak<PageCache>, served: &Arc<Served>) {
        if let Some(cache) = self.shared.upgrade(window)
            && served.show(&cache, true) == Ok(true)
        {
            // Our own read for it was no touch of the program.
            self.reads.forget();
        }
    }

    /// True if the page cache has the file. Otherwise it is to be filled, if that pays.
    fn is_there(&mut self, file: &FileStore, served: &Arc<Served>) -> bool {
        let is_there = file.is_in_the_page_cache();
        if !is_there && file.is_worth_filling() {
            self.fills.add(served);
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::Server;
    use crate::table::scratch::Scratch;
    use crate::{Engine, Reads, signal};
    use std::time::{Duration, Instant};

    /// Failed before: the thread was woken before the kernel served the window, looked, and slept for as long as nobody read on.
    #[test]
    fn what_is_shown_to_a_sleeping_thread_is_taken_over() {
        let engine = Engine::builder().memory(16 << 20).small_maps(0);
        let engine = engine.reads(Reads::Auto).build().unwrap();
        let managed = engine.inner.managed().unwrap();
        if !managed.reads.looks_at_the_page_cache() {
            return softfault_skip::skipped("kernel", "there is no table of descriptors");
        }
        managed.reads.set_room(0);
        let scratch = Scratch::new(&vec![1; 4 << 20]);
        // SAFETY: nobody writes to it.
        let map = unsafe { engine.map(&scratch.to_read()) }.unwrap();
        drop(scratch);
        let (cache, served) = map.file().unwrap().parts();
        // It has fallen asleep by then, or this test finds less.
        std::thread::sleep(Duration::from_millis(500));
        managed.reads.set_room(1 << 40);
        {
            let _masked = signal::masked();
            engine.inner.files.consider(&managed.reads, &cache, &served);
        }
        if served.by() == Server::Engine {
            return softfault_skip::skipped("kernel", "the kernel may not serve the file");
        }
        managed.reads.set_room(0);
        let deadline = Instant::now() + Duration::from_secs(60);
        while served.by() == Server::Kernel {
            assert!(Instant::now() < deadline, "never");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(map.iter().all(|&byte| byte == 1));
    }
}
