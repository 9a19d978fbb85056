//! An engine with private memory and swap, for a model: a page or two, each of which
//! is a number.
//!
//! ```text
//!   Hardware  which pages are there, their bytes, and whether they may be
//!             written to: one step each, as a processor's access is
//!   Device    the bytes of each slot
//!   Memory    for frames: real bytes, of which the first four count
//! ```
//!
//! None of these has a lock of the model: whatever orders two accesses is the
//! engine's. But loom tries other orders only of accesses that it sees: each access to a page
//! counts in an atomic, Relaxed, which hands nothing over. A slot that is read and was never written, or is given up meanwhile, ends
//! the model.

use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use softfault_engine_loom::anon::Anonymous;
use softfault_engine_loom::budget::Budget;
use softfault_engine_loom::cache::node::MIN_BYTES;
use softfault_engine_loom::cache::{FrameMemory, Node, NodeOptions};
use softfault_engine_loom::fault::{self, FaultFlags, NeverInterrupted, Outcome};
use softfault_engine_loom::mm::{
    AddressSpace, Advice, Attributes, Backing, Frozen, MmError, Protection, VmaSlabs,
};
use softfault_engine_loom::mmu::{
    Access, MmuError, PartialMove, Place, Reservation, TABLE_SPAN, Zeroed,
};
use softfault_engine_loom::store::{Store, StoreError};
use softfault_engine_loom::swap::{Swap, SwapDevice};
use softfault_engine_loom::{Mmu, PAGE_SIZE};

use loom::sync::atomic::{AtomicU32, Ordering};

use super::Still;

/// Where the first window is.
const FIRST: usize = 8 * TABLE_SPAN;
/// Slots of the device.
const SLOTS: usize = 4;

/// A page that is there.
#[derive(Clone, Copy)]
struct Page {
    number: u32,
    writable: bool,
}

/// Memory of one window.
pub struct Hardware {
    pages: Mutex<BTreeMap<usize, Page>>,
    /// Accesses to each page, for loom to put them in order.
    steps: [AtomicU32; 2],
    /// The target of `bytes`: a page's number when it was asked for.
    shown: Box<[Mutex<u32>; 4]>,
}

impl Hardware {
    pub fn new() -> Self {
        Self {
            pages: Mutex::default(),
            steps: Default::default(),
            shown: Box::default(),
        }
    }

    /// True if the processor may write to a page.
    pub fn is_writable(&self, addr: usize) -> bool {
        let pages = self.pages.lock().unwrap();
        pages.get(&addr).is_some_and(|page| page.writable)
    }

    /// An access to a page comes now, or later.
    fn step(&self, addr: usize) {
        self.steps[(addr - FIRST) / PAGE_SIZE].fetch_add(1, Ordering::Relaxed);
    }

    /// The same, for all pages of some ranges.
    fn step_all(&self, ranges: &[Range<usize>]) {
        let pages = (FIRST..).step_by(PAGE_SIZE).take(self.steps.len());
        pages
            .filter(|addr| ranges.iter().any(|range| range.contains(addr)))
            .for_each(|addr| self.step(addr));
    }

    /// Adds one to the number of a page, as a processor does: `false` for a fault.
    pub fn add(&self, addr: usize) -> bool {
        self.step(addr);
        match self.pages.lock().unwrap().get_mut(&addr) {
            Some(page) if page.writable => {
                page.number += 1;
                true
            }
            _ => false,
        }
    }

    pub fn load(&self, addr: usize) -> Option<u32> {
        self.step(addr);
        let pages = self.pages.lock().unwrap();
        pages.get(&addr).map(|page| page.number)
    }

    fn map(&self, addr: usize, number: u32, writable: bool) {
        self.step(addr);
        let page = Page { number, writable };
        let before = self.pages.lock().unwrap().insert(addr, page);
        assert!(before.is_none(), "mapped twice");
    }
}

impl Mmu for Hardware {
    fn reserve(&self, bytes: usize, _: Protection) -> Result<Reservation, MmuError> {
        Ok(Reservation {
            addr: FIRST,
            bytes,
            token: 0,
        })
    }

    fn release(&self, _: Reservation) {}

    unsafe fn copy(&self, to: Place<'_>, of: *const [u8], access: Access) -> Result<(), MmuError> {
        for at in (0..of.len()).step_by(PAGE_SIZE) {
            // SAFETY: a frame, which is page-aligned and the caller's.
            let number = unsafe { of.byte_add(at).cast::<u32>().read() };
            self.map(to.1 + at, number, access == Access::Writable);
        }
        Ok(())
    }

    fn zero(&self, _: &Reservation, _: usize, _: usize) -> Result<(), MmuError> {
        unreachable!("no model has a hole");
    }

    fn zero_page(&self, _: &Reservation, addr: usize) -> Result<Zeroed, MmuError> {
        self.map(addr, 0, false);
        Ok(Zeroed::Nothing)
    }

    fn fill(&self, _: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        for page in (addr..addr + bytes).step_by(PAGE_SIZE) {
            self.map(page, 0, true);
        }
        Ok(())
    }

    fn protect(&self, ranges: &[Range<usize>]) {
        self.step_all(ranges);
        for (&addr, page) in self.pages.lock().unwrap().iter_mut() {
            page.writable &= !ranges.iter().any(|range| range.contains(&addr));
        }
    }

    /// A page after the other.
    fn protect_window(&self, _: &Reservation) -> bool {
        for page in 0..self.steps.len() {
            let addr = FIRST + page * PAGE_SIZE;
            self.protect(core::slice::from_ref(&(addr..addr + PAGE_SIZE)));
        }
        true
    }

    fn make_writable(&self, _: &Reservation, addr: usize) -> Result<(), MmuError> {
        self.step(addr);
        if let Some(page) = self.pages.lock().unwrap().get_mut(&addr) {
            page.writable = true;
        }
        Ok(())
    }

    fn bytes(&self, _: &Reservation, addr: usize) -> *const u8 {
        let place = &self.shown[(addr - FIRST) / PAGE_SIZE];
        *place.lock().unwrap() = self.load(addr).expect("what is written is there");
        core::ptr::from_ref(place).cast()
    }

    unsafe fn copy_out(&self, _: &Reservation, addr: usize, to: *mut u8) -> Result<bool, i32> {
        let number = self.load(addr).expect("what is dirty is there");
        // SAFETY: a page, which is the caller's; a number as `bytes` shows it.
        unsafe { to.cast::<Mutex<u32>>().write(Mutex::new(number)) };
        Ok(true)
    }

    fn move_pages(&self, _: Place<'_>, _: Place<'_>, _: usize) -> Result<(), PartialMove> {
        unreachable!("no model moves pages");
    }

    fn zap(&self, ranges: &[Range<usize>]) {
        self.step_all(ranges);
        let mut pages = self.pages.lock().unwrap();
        pages.retain(|addr, _| !ranges.iter().any(|range| range.contains(addr)));
    }

    unsafe fn read(&self, addr: usize, _: *mut u8, _: usize) -> bool {
        self.load(addr).is_some()
    }
}

/// The contents of each slot.
#[derive(Default)]
pub struct Device {
    slots: Mutex<BTreeMap<u64, u32>>,
    /// Writes fail.
    pub fails: bool,
}

impl Store for Device {
    fn len(&self) -> Result<u64, StoreError> {
        Ok((SLOTS * PAGE_SIZE) as u64)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        let read = || -> Vec<u32> {
            let slots = self.slots.lock().unwrap();
            let offsets = (offset..offset + bytes as u64).step_by(PAGE_SIZE);
            let number = |offset| *slots.get(&offset).expect("a slot that has something in it");
            offsets.map(number).collect()
        };
        let numbers = read();
        // Other threads meanwhile may give a slot up, and write it.
        loom::thread::yield_now();
        assert_eq!(read(), numbers, "a slot changed while it was read");
        for (nth, number) in numbers.into_iter().enumerate() {
            // SAFETY: a frame, which is page-aligned and the caller's.
            unsafe { buffer.byte_add(nth * PAGE_SIZE).cast::<u32>().write(number) };
        }
        Ok(bytes)
    }
}

impl SwapDevice for Device {
    unsafe fn write(&self, offset: u64, pages: &[*const u8]) -> Result<(), StoreError> {
        if self.fails {
            return Err(StoreError::Io(5));
        }
        for (&page, offset) in pages.iter().zip((offset..).step_by(PAGE_SIZE)) {
            // SAFETY: handed out before.
            let number = unsafe { number_at(page) };
            self.slots.lock().unwrap().insert(offset, number);
        }
        Ok(())
    }

    fn discard(&self, range: Range<u64>) {
        let had = self.slots.lock().unwrap().remove(&range.start);
        assert!(had.is_some() || self.fails, "discarded twice");
    }
}

/// Memory for frames.
pub struct Memory(usize);

impl FrameMemory for Memory {
    fn bytes(&self) -> usize {
        TABLE_SPAN
    }

    fn provide(&self, _: usize) -> Option<NonNull<u8>> {
        NonNull::new(core::ptr::with_exposed_provenance_mut(self.0))
    }

    fn discard(&self, _: usize, _: NonNull<u8>) {}
}

/// The contents of an address that [`Hardware`] has handed out.
///
/// # Safety
/// It has.
pub unsafe fn number_at(page: *const u8) -> u32 {
    // SAFETY: one of `Hardware::shown`.
    *unsafe { &*page.cast::<Mutex<u32>>() }.lock().unwrap()
}

pub fn memory() -> Memory {
    // A model's threads are coroutines of one thread, and other models run in others.
    std::thread_local! {
        static BYTES: usize = {
            let bytes = vec![0_u8; 2 * TABLE_SPAN].leak();
            let start = bytes.as_ptr().expose_provenance();
            start.next_multiple_of(PAGE_SIZE)
        };
    }
    Memory(BYTES.with(|bytes| *bytes))
}

/// An engine with two pages of private memory.
pub struct Private {
    pub node: Arc<Node>,
    pub anon: ManuallyDrop<Arc<Anonymous>>,
    pub hardware: Arc<Hardware>,
    pub device: Arc<Device>,
    budget: Arc<Budget>,
    /// Charged from before the first page was touched.
    fixed: u64,
    space: ManuallyDrop<AddressSpace>,
    /// The memory is given up.
    is_given_up: AtomicBool,
}

impl Private {
    /// With a device whose writes succeed, or not.
    pub fn new(fails: bool) -> Arc<Self> {
        let budget = Budget::new((MIN_BYTES / PAGE_SIZE) as u64);
        let hardware = Arc::new(Hardware::new());
        let device = Arc::new(Device {
            fails,
            ..Device::default()
        });
        let swap = Swap::new(device.clone(), Arc::clone(&budget)).unwrap();
        let node = Node::new(
            Arc::clone(&budget),
            hardware.clone(),
            Arc::new(memory()),
            Arc::new(Still),
            NodeOptions {
                swap: Some(Arc::new(swap)),
                ..NodeOptions::default()
            },
        )
        .unwrap();
        let slabs = VmaSlabs::with_max_nodes(4, 2);
        let space = AddressSpace::new(slabs, Arc::new(Still)).unwrap();
        let fixed = budget.charged();
        let anon = Anonymous::new(Arc::clone(&node), 2 * PAGE_SIZE).unwrap();
        let attributes = Attributes {
            backing: Backing::from(Arc::clone(&anon)),
            protection: Protection::ReadWrite,
            ..Attributes::default()
        };
        space.mmap(anon.addresses(), attributes).unwrap();
        Arc::new(Self {
            node,
            anon: ManuallyDrop::new(anon),
            hardware,
            device,
            budget,
            fixed,
            space: ManuallyDrop::new(space),
            is_given_up: AtomicBool::new(false),
        })
    }

    /// Address of a page.
    pub fn addr(&self, page: usize) -> usize {
        FIRST + page * PAGE_SIZE
    }

    fn fault(&self, page: usize, write: bool) -> Outcome {
        let flags = FaultFlags {
            write,
            ..FaultFlags::default()
        };
        fault::handle(&self.space, self.addr(page), flags, &NeverInterrupted)
    }

    /// A program's write: adds one to a page's number, with faults until it can.
    /// `false` where the page is not mapped any more.
    pub fn add(&self, page: usize) -> bool {
        while !self.hardware.add(self.addr(page)) {
            match self.fault(page, true) {
                // The touch again; it does not see old values for ever.
                Outcome::Mapped => loom::thread::yield_now(),
                Outcome::Error(_) => return false,
                Outcome::Interrupted => unreachable!("by nobody"),
            }
        }
        true
    }

    /// A program's read.
    pub fn load(&self, page: usize) -> Option<u32> {
        loop {
            if let Some(number) = self.hardware.load(self.addr(page)) {
                return Some(number);
            }
            match self.fault(page, false) {
                Outcome::Mapped => loom::thread::yield_now(),
                Outcome::Error(_) => return None,
                Outcome::Interrupted => unreachable!("by nobody"),
            }
        }
    }

    /// True if the page is there as its slot has it, and a write would fault.
    pub fn is_clean(&self, page: usize) -> bool {
        let addr = self.addr(page);
        let pages = self.hardware.pages.lock().unwrap();
        let is_protected = pages.get(&addr).is_some_and(|page| !page.writable);
        let state = self.anon.page_state(addr);
        is_protected && state.is_clean() && !state.is_zero() && self.anon.swap_slots() == 1
    }

    /// The contents of the page, if it is there.
    pub fn hardware_has(&self, page: usize) -> Option<u32> {
        self.hardware.load(self.addr(page))
    }

    /// The pages' addresses.
    pub fn range(&self, pages: Range<usize>) -> Range<usize> {
        self.addr(pages.start)..self.addr(pages.end)
    }

    /// `MADV_PAGEOUT` of the pages that are still mapped.
    pub fn page_out(&self, pages: Range<usize>) {
        let done = self.space.page_out(self.range(pages));
        assert!([Ok(()), Err(MmError::Unmapped)].contains(&done), "{done:?}");
    }

    /// `MADV_DONTNEED`.
    pub fn dont_need(&self, pages: Range<usize>) {
        self.space.dont_need(self.range(pages)).unwrap();
    }

    /// `MADV_SEQUENTIAL`: neighbours are read together.
    pub fn sequential(&self, pages: Range<usize>) {
        let range = self.range(pages);
        self.space.madvise(range, Advice::Sequential).unwrap();
    }

    /// The work of a forking process on its private memory.
    pub fn freeze(&self) -> Frozen<'_> {
        self.space.freeze([self.range(0..2)])
    }

    /// True if somebody has the page's word locked.
    pub fn is_locked(&self, page: usize) -> bool {
        self.anon.is_locked(self.addr(page))
    }

    /// `munmap`.
    pub fn unmap(&self, pages: Range<usize>) {
        self.space.munmap(self.range(pages), |_, _| {}).unwrap();
    }

    /// Unmaps all of the memory, and gives it up. Nobody uses `anon` meanwhile, or later.
    pub fn give_up(&self) {
        self.unmap(0..2);
        assert!(!self.is_given_up.swap(true, Relaxed), "given up twice");
        // SAFETY: once, and nobody uses it any more.
        drop(unsafe { core::ptr::read(&raw const *self.anon) });
    }
}

impl Drop for Private {
    /// Nothing is left mapped, in swap, or charged.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.space.exit(|_, _| {});
        assert!(self.hardware.pages.lock().unwrap().is_empty());
        // SAFETY: it is not used any more.
        unsafe { ManuallyDrop::drop(&mut self.space) };
        if !self.is_given_up.load(Relaxed) {
            assert!(Anonymous::is_unused(&self.anon), "somebody has the memory");
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.anon) };
        }
        let swap = self.node.swap.as_ref().unwrap();
        assert_eq!(swap.slots.used(), 0, "slots were lost");
        assert!(self.device.slots.lock().unwrap().is_empty());
        // Pages of the slots' table stay charged.
        assert!(self.budget.charged() <= self.fixed + 1, "left charged");
    }
}
