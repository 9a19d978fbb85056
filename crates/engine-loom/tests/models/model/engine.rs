//! A whole engine for a model: one file of a few pages under the least budget.
//!
//! ```text
//!   Tables    which pages are mapped, and nothing else: no lock, no atomics
//!   Disk      reads at once, or keeps asynchronous reads until they are reaped
//!   Memory    for frames; each has a cell that loom watches
//! ```
//!
//! The setup runs before there is a second thread, and costs no schedules.

use core::ptr::NonNull;
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use loom::cell::UnsafeCell;
use softfault_engine_loom::anon::Anonymous;
use softfault_engine_loom::budget::Budget;
use softfault_engine_loom::cache::node::MIN_BYTES;
use softfault_engine_loom::cache::{FrameMemory, Node, NodeOptions, OnTruncate, PageCache};
use softfault_engine_loom::fault::{self, FaultFlags, NeverInterrupted, Outcome};
use softfault_engine_loom::mm::{AddressSpace, Attributes, Backing, Protection, VmaSlabs};
use softfault_engine_loom::mmu::{
    Access, MmuError, PartialMove, Place, Reservation, TABLE_SPAN, Zeroed,
};
use softfault_engine_loom::policy::Policies;
use softfault_engine_loom::store::{Complete, Read, Reap, Store, StoreError};
use softfault_engine_loom::{Mmu, PAGE_SIZE};

use super::Still;

/// Where the first window is.
const FIRST: usize = 8 * TABLE_SPAN;
/// Frames with a cell: no model uses more.
const FRAMES: usize = 64;

/// Page tables that are a set of pages. The set has no lock of the model: the engine
/// orders changes of a page, and each page's cell
/// checks it.
#[derive(Default)]
pub struct Tables {
    mapped: Mutex<BTreeSet<usize>>,
    reserved: Mutex<usize>,
    /// One a page of the first window.
    pages: [Cell; 8],
    memory: Arc<Memory>,
}

impl Tables {
    /// True if the page at `addr` is there.
    pub fn has(&self, addr: usize) -> bool {
        self.mapped.lock().unwrap().contains(&addr)
    }

    fn change(&self, addr: usize, change: impl FnOnce(&mut BTreeSet<usize>)) {
        let page = addr.wrapping_sub(FIRST) / PAGE_SIZE;
        let all = || change(&mut self.mapped.lock().unwrap());
        match self.pages.get(page) {
            Some(cell) => cell.0.with_mut(|_| all()),
            None => all(),
        }
    }
}

impl Mmu for Tables {
    fn reserve(&self, bytes: usize, _: Protection) -> Result<Reservation, MmuError> {
        let mut reserved = self.reserved.lock().unwrap();
        let addr = FIRST + *reserved;
        *reserved += bytes.next_multiple_of(TABLE_SPAN);
        Ok(Reservation {
            addr,
            bytes,
            token: 0,
        })
    }

    fn release(&self, _: Reservation) {}

    unsafe fn copy(&self, to: Place<'_>, of: *const [u8], _: Access) -> Result<(), MmuError> {
        for at in (0..of.len()).step_by(PAGE_SIZE) {
            let page = of.cast::<u8>().wrapping_add(at);
            self.memory.cell(page).0.with(|_| ());
        }
        self.fill(to.0, to.1, of.len())
    }

    fn zero(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        self.fill(window, addr, bytes)
    }

    fn fill(&self, _: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        for addr in (addr..addr + bytes).step_by(PAGE_SIZE) {
            self.change(addr, |mapped| assert!(mapped.insert(addr), "mapped twice"));
        }
        Ok(())
    }

    fn zero_page(&self, window: &Reservation, addr: usize) -> Result<Zeroed, MmuError> {
        self.fill(window, addr, PAGE_SIZE)?;
        Ok(Zeroed::Memory)
    }

    fn protect(&self, ranges: &[Range<usize>]) {
        for range in ranges {
            for addr in range.clone().step_by(PAGE_SIZE) {
                self.change(addr, |_| ());
            }
        }
    }

    fn make_writable(&self, _: &Reservation, addr: usize) -> Result<(), MmuError> {
        self.change(addr, |_| ());
        Ok(())
    }

    fn bytes(&self, _: &Reservation, _: usize) -> *const u8 {
        self.memory.base()
    }

    fn move_pages(&self, _: Place<'_>, _: Place<'_>, _: usize) -> Result<(), PartialMove> {
        unreachable!("no model moves pages");
    }

    fn zap(&self, ranges: &[Range<usize>]) {
        for range in ranges {
            let there = |&addr: &usize| range.contains(&addr);
            let pages: Vec<usize> = {
                let mapped = self.mapped.lock().unwrap();
                mapped.iter().copied().filter(there).collect()
            };
            for addr in pages {
                self.change(addr, |mapped| {
                    mapped.remove(&addr);
                });
            }
        }
    }

    unsafe fn read(&self, addr: usize, _: *mut u8, _: usize) -> bool {
        self.has(addr)
    }
}

/// Something that one thread uses at a time; loom checks it.
#[derive(Default)]
struct Cell(UnsafeCell<()>);

// SAFETY: there is nothing in it; loom checks that accesses are ordered.
unsafe impl Send for Cell {}
// SAFETY: as above.
unsafe impl Sync for Cell {}

/// Memory for frames. The bytes are the same in all schedules and
/// not checked; cells record their users.
pub struct Memory {
    cells: Vec<Cell>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            cells: (0..FRAMES).map(|_| Cell::default()).collect(),
        }
    }
}

impl Memory {
    fn cell(&self, addr: *const u8) -> &Cell {
        &self.cells[(addr.addr() - self.base().addr()) / PAGE_SIZE]
    }

    fn base(&self) -> *mut u8 {
        static BYTES: OnceLock<usize> = OnceLock::new();
        let bytes = BYTES.get_or_init(|| {
            let bytes = vec![0_u8; 2 * TABLE_SPAN].leak();
            bytes
                .as_ptr()
                .expose_provenance()
                .next_multiple_of(PAGE_SIZE)
        });
        core::ptr::with_exposed_provenance_mut(*bytes)
    }
}

impl FrameMemory for Memory {
    fn bytes(&self) -> usize {
        TABLE_SPAN
    }

    fn provide(&self, _: usize) -> Option<NonNull<u8>> {
        NonNull::new(self.base())
    }

    fn discard(&self, _: usize, _: NonNull<u8>) {}
}

/// A file of nothing but data.
pub struct Disk {
    pages: u64,
    /// Takes asynchronous reads.
    queue: bool,
    memory: Arc<Memory>,
    /// Reads begun, as first page and pages.
    reads: Mutex<Vec<Range<u64>>>,
    in_flight: Mutex<Vec<InFlight>>,
}

#[derive(Clone, Copy)]
struct InFlight(Read);

// SAFETY: the buffer belongs to the read, wherever that is completed.
unsafe impl Send for InFlight {}

impl Disk {
    /// Reads begun so far.
    pub fn reads(&self) -> usize {
        self.reads.lock().unwrap().len()
    }

    fn arrive(&self, buffer: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(PAGE_SIZE) {
            self.memory.cell(buffer.wrapping_add(at)).0.with_mut(|_| ());
        }
    }

    fn note(&self, offset: u64, bytes: usize) {
        let page = PAGE_SIZE as u64;
        let pages = offset / page..(offset + bytes as u64) / page;
        self.reads.lock().unwrap().push(pages);
    }
}

impl Store for Disk {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.pages * PAGE_SIZE as u64)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        self.note(offset, bytes);
        self.arrive(buffer, bytes);
        Ok(bytes)
    }

    unsafe fn submit(&self, reads: &[Read]) -> usize {
        if !self.queue {
            return 0;
        }
        for read in reads {
            self.note(read.offset, read.bytes);
            self.in_flight.lock().unwrap().push(InFlight(*read));
        }
        reads.len()
    }

    fn reap(&self, _: u64, complete: &dyn Complete, _: u64) -> Reap {
        // Each completion is delivered by one thread, at once. A cookie that is
        // in another thread's hands is not in flight: its folio says the rest.
        loop {
            let first = self.in_flight.lock().unwrap().pop();
            let Some(InFlight(read)) = first else {
                return Reap::NotInFlight;
            };
            self.arrive(read.buffer, read.bytes);
            complete.complete(read.cookie, Ok(read.bytes));
        }
    }
}

/// An engine with one file mapped at [`Engine::addr`].
pub struct Engine {
    pub node: Arc<Node>,
    pub budget: Arc<Budget>,
    pub tables: Arc<Tables>,
    pub disk: Arc<Disk>,
    /// Its only reference beside that of the mapping. Not dropped as `space`.
    pub cache: ManuallyDrop<Arc<PageCache>>,
    /// Pages that are charged for the node's whole life.
    pub fixed: u64,
    /// Not dropped where the model failed: it may be in any state.
    pub space: ManuallyDrop<AddressSpace>,
}

impl Engine {
    /// A file of `pages` pages, with a queue of reads or without.
    pub fn new(pages: usize, queue: bool, policies: &str) -> Arc<Self> {
        let budget = Budget::new((MIN_BYTES / PAGE_SIZE) as u64);
        let memory = Arc::new(Memory::default());
        let tables = Arc::new(Tables {
            memory: Arc::clone(&memory),
            ..Tables::default()
        });
        let policies: Policies = policies.parse().unwrap();
        let node = Node::new(
            Arc::clone(&budget),
            tables.clone(),
            memory.clone(),
            Arc::new(Still),
            NodeOptions {
                policies,
                ..NodeOptions::default()
            },
        )
        .unwrap();
        let fixed = budget.charged();
        let disk = Arc::new(Disk {
            pages: pages as u64,
            queue,
            memory,
            reads: Mutex::default(),
            in_flight: Mutex::default(),
        });
        let bytes = pages * PAGE_SIZE;
        let cache = PageCache::new(
            Arc::clone(&node),
            disk.clone(),
            bytes as u64,
            OnTruncate::Error,
        )
        .unwrap();
        // No more slots than are needed: each is a dozen atomics to loom.
        let slabs = VmaSlabs::with_max_nodes(4, 2);
        let space = AddressSpace::new(slabs, Arc::new(Still)).unwrap();
        let attributes = Attributes {
            backing: Backing::from(Arc::clone(&cache)),
            protection: Protection::Read,
            ..Attributes::default()
        };
        let addr = cache.addresses().start;
        space.mmap(addr..addr + bytes, attributes).unwrap();
        Arc::new(Self {
            fixed,
            node,
            budget,
            tables,
            disk,
            cache: ManuallyDrop::new(cache),
            space: ManuallyDrop::new(space),
        })
    }

    /// Address of a page.
    pub fn addr(&self, page: usize) -> usize {
        self.cache.addresses().start + page * PAGE_SIZE
    }

    /// Faults until the page is mapped, or there is an error.
    pub fn fault(&self, page: usize) -> Outcome {
        self.fault_at(self.addr(page))
    }

    /// The same by address.
    pub fn fault_at(&self, addr: usize) -> Outcome {
        fault::handle(&self.space, addr, FaultFlags::default(), &NeverInterrupted)
    }

    /// Maps two pages of anonymous memory, each by a VMA of its own: address of
    /// the first. The second is shown two pages further on.
    pub fn map_anonymous(&self) -> usize {
        let anon = Anonymous::new(Arc::clone(&self.node), 2 * PAGE_SIZE).unwrap();
        let start = anon.addresses().start;
        for page in 0..2 {
            let addr = start + 2 * page * PAGE_SIZE;
            let attributes = Attributes {
                backing: Backing::from(Arc::clone(&anon)),
                protection: Protection::ReadWrite,
                pgoff: page as u64,
                ..Attributes::default()
            };
            self.space.mmap(addr..addr + PAGE_SIZE, attributes).unwrap();
        }
        start
    }

    /// Unmaps the page at `addr`.
    pub fn unmap(&self, addr: usize) {
        let range = addr..addr + PAGE_SIZE;
        self.space.munmap(range, |_, _| {}).unwrap();
    }
}

impl Drop for Engine {
    /// Nothing is left mapped, and nothing charged.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.space.exit(|_, _| {});
        // SAFETY: neither is used any more.
        unsafe {
            ManuallyDrop::drop(&mut self.space);
            ManuallyDrop::drop(&mut self.cache);
        }
        assert!(self.tables.mapped.lock().unwrap().is_empty());
        assert!(self.budget.peak() <= self.budget.limit());
        assert_eq!(self.budget.charged(), self.fixed, "left charged");
    }
}
