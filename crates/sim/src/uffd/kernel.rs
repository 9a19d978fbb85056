//! The kernel's state that is shared within a process.

use super::spin::SpinLock;
use crate::job::Job;
use crate::world;
use softfault_engine::Clock;
use softfault_engine::lock::{RwSem, WaitSnapshot};
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering::AcqRel};
use sync::topology::KernelCosts;

/// System calls that make a window, each of which writes `mmap_lock`: two or
/// three of mmap and munmap until it begins where a page table does, two of
/// madvise, and registering it.
const CALLS_OF_A_WINDOW: usize = 6;
/// fork of a process whose windows are not for the child, in nanoseconds. As
/// measured with 1 GiB in them, on Linux 6.18 and a virtual machine.
const FORK_NS: u64 = 200_000;
/// Each page that the child inherits, in nanoseconds: taken to be the cost of
/// write-protecting one, 2.9 ms for 65,536 of them on the same machine.
const FORK_PAGE_NS: u64 = 45;
/// Picoseconds of a nanosecond.
const PS: u64 = 1000;

// The cost of write protection, in tenths of the cost of UFFDIO_COPY without its
// pages: as measured side by side on Linux 6.18 and a virtual machine, where that
// is 0.51 us.
/// UFFDIO_WRITEPROTECT of a range, without the steps after it.
const PROTECT: f64 = 21.0;
/// Each page of it.
const PROTECT_PAGE: f64 = 0.75;
/// The opposite, of one page.
const UNPROTECT: f64 = 26.0;
/// UFFDIO_ZEROPAGE of one page.
const ZERO: f64 = 16.0;
/// UFFDIO_WRITEPROTECT of pages that are not writable.
const PROTECT_ZERO: f64 = 12.0;
/// PAGEMAP_SCAN of one page.
const SCAN: f64 = 18.0;
/// Each page of UFFDIO_MOVE.
const MOVE_PAGE: f64 = 1.2;
/// Those are tenths.
const TENTHS: f64 = 10.0;

/// A count on a line of its own, up and down again.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Count(AtomicU64);

impl Count {
    /// One more.
    pub fn get(&self) {
        self.0.fetch_add(1, AcqRel);
    }

    /// One less.
    pub fn put(&self) {
        self.0.fetch_sub(1, AcqRel);
    }
}

/// The kernel's side of the process.
pub struct Kernel {
    /// Immutable.
    pub costs: KernelCosts,
    /// Into the kernel and back, in nanoseconds. Immutable.
    call_ns: u64,
    /// A load or store that finds its page. Immutable.
    access_ns: u64,
    signal_lock: SpinLock,
    mmap_lock: RwSem,
    /// Users of the process's memory: each UFFDIO_COPY is one.
    mm_users: Count,
}

/// How often locks of the kernel were taken, and waited for.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelWaits {
    /// The process's signal lock.
    pub signal: WaitSnapshot,
    /// `mmap_lock` for reading.
    pub mmap_read: WaitSnapshot,
    /// `mmap_lock` for writing.
    pub mmap_write: WaitSnapshot,
}

impl Kernel {
    /// Of the job's machine.
    pub fn new(job: &Job, clock: &Arc<dyn Clock>) -> Self {
        let costs = job.topology.kernel.clone();
        // Some waiters are on the other socket: the cost between that of a neighbour and that of
        // the farthest, where there is a difference.
        let pass_ns = job.topology.line.socket / PS;
        Self {
            call_ns: job.topology.scheduler.call / PS,
            access_ns: (job.topology.line.memory / PS).max(1),
            signal_lock: SpinLock::new(costs.signal_lock / PS, pass_ns),
            mmap_lock: RwSem::new(clock.clone()),
            mm_users: Count::default(),
            costs,
        }
    }

    /// The processor loads or stores, or tries to: a line from memory.
    pub fn access(&self) {
        sync::work(self.access_ns);
    }

    /// A touch ends in a signal: all that happens before the handler.
    pub fn deliver_signal(&self) {
        sync::work(self.costs.signal / PS);
        for _ in 1..self.costs.signal_lock_takings {
            self.signal_lock.take();
        }
    }

    /// The handler returns.
    pub fn return_from_signal(&self) {
        if self.costs.signal_lock_takings > 0 {
            self.signal_lock.take();
        }
    }

    /// UFFDIO_COPY through `descriptor` into the window of `vma`, around the work of
    /// the tables, which includes so many picoseconds for a page's bytes.
    pub fn uffd_copy<T>(
        &self,
        descriptor: &Count,
        vma: &Count,
        pages: u64,
        bytes_ps: u64,
        act: impl FnOnce() -> T,
    ) -> T {
        descriptor.get();
        self.mm_users.get();
        vma.get();
        let page = self.costs.uffd_copy_page.saturating_sub(bytes_ps);
        sync::work((self.costs.uffd_copy + page * pages) / PS);
        let result = act();
        vma.put();
        self.mm_users.put();
        descriptor.put();
        result
    }

    /// Unmapping so many pages in one call, around the work of the tables.
    pub fn zap(&self, pages: u64, act: impl FnOnce()) {
        sync::work(self.call_ns + self.costs.zap / PS);
        let mmap_lock = self.mmap_lock.read();
        act();
        if pages > 0 {
            sync::work(self.costs.zap_page * pages / PS);
            self.shoot_down();
        }
        drop(mmap_lock);
    }

    /// So many tenths of a UFFDIO_COPY without its pages.
    fn tenths(&self, count: f64) {
        sync::work((self.costs.uffd_copy as f64 * count / TENTHS / PS as f64) as u64);
    }

    /// UFFDIO_WRITEPROTECT of one range, around the work of the tables, which says how
    /// many of its pages could be written to.
    pub fn protect(&self, act: impl FnOnce() -> u64) {
        self.tenths(PROTECT);
        let mmap_lock = self.mmap_lock.read();
        let pages = act();
        if pages > 0 {
            self.tenths(PROTECT_PAGE * pages as f64);
            self.shoot_down();
        }
        drop(mmap_lock);
    }

    /// The opposite, of one page that was protected. x86 has a shootdown for that
    /// as well.
    pub fn unprotect<T>(&self, act: impl FnOnce() -> T) -> T {
        self.tenths(UNPROTECT);
        let _mmap_lock = self.mmap_lock.read();
        let result = act();
        self.shoot_down();
        result
    }

    /// UFFDIO_ZEROPAGE of one page, through `descriptor` into the window of `vma`,
    /// around the work of the tables.
    pub fn zero_page(&self, descriptor: &Count, vma: &Count, act: impl FnOnce()) {
        self.tenths(ZERO - TENTHS);
        self.uffd_copy(descriptor, vma, 0, 0, act);
    }

    /// UFFDIO_WRITEPROTECT of a page of zeros, which nobody can have for writing.
    pub fn protect_zeros(&self, act: impl FnOnce()) {
        self.tenths(PROTECT_ZERO);
        let _mmap_lock = self.mmap_lock.read();
        act();
    }

    /// PAGEMAP_SCAN of one page.
    pub fn scan<T>(&self, act: impl FnOnce() -> T) -> T {
        self.tenths(SCAN);
        let _mmap_lock = self.mmap_lock.read();
        act()
    }

    /// UFFDIO_MOVE, around the work of the tables, which says how many pages there
    /// were; and protecting them in their new place.
    pub fn move_pages(&self, descriptor: &Count, vma: &Count, act: impl FnOnce() -> u64) {
        let pages = self.uffd_copy(descriptor, vma, 0, 0, act);
        self.tenths(MOVE_PAGE * pages as f64);
        self.shoot_down();
        self.protect(|| pages);
    }

    /// Interrupts the other processors, and waits for the last of them.
    fn shoot_down(&self) {
        let others = world::interrupt_others(self.costs.ipi_receive / PS) as u64;
        if others > 0 {
            sync::work((self.costs.ipi_send * others + self.costs.ipi_receive) / PS);
        }
    }

    /// Makes a window.
    pub fn map_window(&self) {
        for _ in 0..CALLS_OF_A_WINDOW {
            self.write_mmap_lock();
        }
    }

    /// Gives a window up that has no pages.
    pub fn unmap_window(&self) {
        self.write_mmap_lock();
    }

    fn write_mmap_lock(&self) {
        sync::work(self.call_ns);
        let _mmap_lock = self.mmap_lock.write();
        sync::work(self.costs.map / PS);
    }

    /// fork, in the parent, with so many pages that the child inherits: the parent's
    /// writable pages are write-protected, which the other processors are
    /// told.
    pub fn fork(&self, pages: u64) {
        sync::work(self.call_ns);
        let _mmap_lock = self.mmap_lock.write();
        sync::work(FORK_NS + FORK_PAGE_NS * pages);
        self.shoot_down();
    }

    /// How often locks were taken, and waited for.
    pub fn waits(&self) -> KernelWaits {
        KernelWaits {
            signal: self.signal_lock.waits(),
            mmap_read: self.mmap_lock.read_waits().snapshot(),
            mmap_write: self.mmap_lock.write_waits().snapshot(),
        }
    }
}
