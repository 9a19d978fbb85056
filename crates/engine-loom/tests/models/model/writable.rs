//! An engine with a file that is written to, for a model: two pages, each of which is a number.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use loom::sync::atomic::{AtomicU32, Ordering};

use softfault_engine_loom::PAGE_SIZE;
use softfault_engine_loom::budget::Budget;
use softfault_engine_loom::cache::node::MIN_BYTES;
use softfault_engine_loom::cache::{Node, NodeOptions, PageCache};
use softfault_engine_loom::fault::{self, FaultFlags, NeverInterrupted, Outcome};
use softfault_engine_loom::mm::{AddressSpace, Advice, Attributes, Backing, Protection, VmaSlabs};
use softfault_engine_loom::store::{PageWrite, Store, StoreError, WriteBack};

use super::Still;
use super::private::{Hardware, memory, number_at};

const PAGES: usize = 2;

/// The contents of the file.
#[derive(Default)]
pub struct File {
    pages: Mutex<[u32; PAGES]>,
    /// Pages of writes that are under way, none of which is under way twice.
    written: Mutex<BTreeSet<u64>>,
    /// The next write fails.
    fails: Mutex<bool>,
    /// The next sync fails.
    sync_fails: Mutex<bool>,
    /// Accesses to the file, for loom to put them in order.
    steps: AtomicU32,
}

impl File {
    pub fn number(&self, page: usize) -> u32 {
        self.step();
        self.pages.lock().unwrap()[page]
    }

    /// Another number comes into a page, of which no write is under way.
    pub fn set(&self, page: usize, number: u32) {
        self.step();
        let offset = (page * PAGE_SIZE) as u64;
        let written = self.written.lock().unwrap();
        assert!(!written.contains(&offset), "a write is under way");
        self.pages.lock().unwrap()[page] = number;
    }

    /// An access comes now, or later.
    fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets the next sync fail: the kernel tells an open file's error once.
    pub fn fail_sync_once(&self) {
        *self.sync_fails.lock().unwrap() = true;
    }

    /// Lets the next write fail.
    pub fn fail_once(&self) {
        *self.fails.lock().unwrap() = true;
    }
}

impl Store for File {
    fn len(&self) -> Result<u64, StoreError> {
        Ok((PAGES * PAGE_SIZE) as u64)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        let first = offset as usize / PAGE_SIZE;
        for nth in 0..bytes / PAGE_SIZE {
            let number = self.number(first + nth);
            // SAFETY: a frame, which is page-aligned and the caller's.
            unsafe { buffer.byte_add(nth * PAGE_SIZE).cast::<u32>().write(number) };
        }
        Ok(bytes)
    }
}

impl WriteBack for File {
    unsafe fn write(&self, pages: &mut [PageWrite], _: u64) {
        for page in &*pages {
            assert!(
                self.written.lock().unwrap().insert(page.offset),
                "written twice at a time"
            );
        }
        // Others may run meanwhile.
        self.step();
        let fails = core::mem::take(&mut *self.fails.lock().unwrap());
        for page in pages {
            if fails {
                self.written.lock().unwrap().remove(&page.offset);
                page.result = Err(StoreError::Io(5));
                continue;
            }
            // SAFETY: an address that `Hardware::bytes` or `copy_out` has handed out.
            let number = unsafe { number_at(page.page) };
            self.pages.lock().unwrap()[page.offset as usize / PAGE_SIZE] = number;
            self.written.lock().unwrap().remove(&page.offset);
            page.result = Ok(());
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.step();
        match core::mem::take(&mut *self.sync_fails.lock().unwrap()) {
            true => Err(StoreError::Io(5)),
            false => Ok(()),
        }
    }

    fn is_reserved(&self, _: u64) -> bool {
        true
    }

    fn reserve(&self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }
}

/// An engine with a file of two pages.
pub struct Writable {
    pub node: Arc<Node>,
    pub cache: Arc<PageCache>,
    pub hardware: Arc<Hardware>,
    pub file: Arc<File>,
    space: ManuallyDrop<AddressSpace>,
}

impl Writable {
    pub fn new() -> Arc<Self> {
        let budget = Budget::new((MIN_BYTES / PAGE_SIZE) as u64);
        let hardware = Arc::new(Hardware::new());
        let (clock, frames) = (Arc::new(Still), Arc::new(memory()));
        let options = NodeOptions::default();
        let node = Node::new(budget, hardware.clone(), frames, clock, options).unwrap();
        let space = AddressSpace::new(VmaSlabs::with_max_nodes(4, 2), Arc::new(Still)).unwrap();
        let file = Arc::new(File::default());
        let stores: (Arc<dyn Store>, Arc<dyn WriteBack>) = (file.clone(), file.clone());
        let bytes = (PAGES * PAGE_SIZE) as u64;
        let cache = PageCache::new_writable(Arc::clone(&node), stores, bytes).unwrap();
        let attributes = Attributes {
            backing: Backing::from(Arc::clone(&cache)),
            protection: Protection::ReadWrite,
            advice: Advice::Random,
            ..Attributes::default()
        };
        space.mmap(cache.addresses(), attributes).unwrap();
        Arc::new(Self {
            node,
            cache,
            hardware,
            file,
            space: ManuallyDrop::new(space),
        })
    }

    fn addr(&self, page: usize) -> usize {
        self.cache.addresses().start + page * PAGE_SIZE
    }

    fn fault(&self, page: usize, write: bool) {
        let flags = FaultFlags {
            write,
            ..FaultFlags::default()
        };
        let outcome = fault::handle(&self.space, self.addr(page), flags, &NeverInterrupted);
        assert_eq!(outcome, Outcome::Mapped);
        // The touch again; it does not see old values for ever.
        loom::thread::yield_now();
    }

    /// A program's write: adds one to a page's number, with faults until it can.
    pub fn add(&self, page: usize) {
        while !self.hardware.add(self.addr(page)) {
            self.fault(page, true);
        }
    }

    /// A program's read.
    pub fn load(&self, page: usize) -> u32 {
        loop {
            match self.hardware.load(self.addr(page)) {
                Some(number) => return number,
                None => self.fault(page, false),
            }
        }
    }

    /// True if the processor may write to the page.
    pub fn is_writable(&self, page: usize) -> bool {
        self.hardware.is_writable(self.addr(page))
    }

    /// `msync`.
    pub fn flush(&self) {
        let mut cursor = self.cache.write_back_of(self.cache.addresses());
        while self.cache.write_back(&mut cursor) {}
    }

    /// Eviction of all evictable pages.
    pub fn evict(&self) {
        self.node.reclaim(PAGES);
    }

    /// The addresses of a page.
    pub fn range(&self, page: usize) -> Range<usize> {
        self.addr(page)..self.addr(page + 1)
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: it is not used any more.
        let space = unsafe { ManuallyDrop::take(&mut self.space) };
        space.exit(|_, _| {});
    }
}
