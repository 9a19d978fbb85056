//! The engine over the soft page tables.

use crate::store::TestStore;
use crate::swap::TestSwap;
use softfault_engine::anon::Anonymous;
use softfault_engine::budget::Budget;
use softfault_engine::cache::{FrameMemory, Node, NodeOptions, OnTruncate, PageCache};
use softfault_engine::fault::{self, FaultError, FaultFlags, NeverInterrupted, Outcome};
use softfault_engine::fault::{Stop, Stopped};
use softfault_engine::mm::{AddressSpace, Attributes, Backing, Protection, VmaSlabs};
use softfault_engine::mmu::soft::SoftMoves;
use softfault_engine::mmu::{Core, Mmu, Moved, SoftMmu, TABLE_SPAN};
use softfault_engine::policy::Policies;
use softfault_engine::store::WriteBack;
use softfault_engine::swap::{Swap, SwapDevice};
use softfault_engine::{Clock, PAGE_SIZE, Store};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
// No thread is suspended with one of these in hand.
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use sync::Arc;

/// Memory for frames, untouched until used.
pub struct TestFrames {
    base: *mut u8,
    bytes: usize,
    /// Bytes that were discarded so far.
    discarded: AtomicUsize,
}

// SAFETY: owns the memory; frames are handed out by the pool.
unsafe impl Send for TestFrames {}
// SAFETY: as above.
unsafe impl Sync for TestFrames {}

impl TestFrames {
    /// Room for `pages` pages, rounded up to whole chunks.
    pub fn new(pages: usize) -> Arc<Self> {
        let bytes = (pages * PAGE_SIZE).next_multiple_of(TABLE_SPAN);
        let base = sync::pages::map(bytes).expect("memory for frames");
        Arc::new(Self {
            base: base.as_ptr(),
            bytes,
            discarded: AtomicUsize::new(0),
        })
    }

    /// Reads byte `at` of frame `frame`, or of one behind it, after writing it
    /// if there is a value. The pool has handed the frames to the caller, and
    /// so to nobody else: tests use it to find that out.
    pub fn byte(&self, frame: u32, at: usize, value: Option<u8>) -> u8 {
        let offset = frame as usize * PAGE_SIZE + at;
        assert!(offset < self.bytes);
        // SAFETY: within the memory. Atomic, for a pool that is wrong hands it
        // to two threads.
        let byte = unsafe { AtomicU8::from_ptr(self.base.add(offset)) };
        if let Some(value) = value {
            byte.store(value, Ordering::Relaxed);
        }
        byte.load(Ordering::Relaxed)
    }

    /// Bytes that the pool gave back so far.
    pub fn discarded(&self) -> usize {
        self.discarded.load(Ordering::Relaxed)
    }
}

impl FrameMemory for TestFrames {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn provide(&self, chunk: usize) -> Option<NonNull<u8>> {
        assert!((chunk + 1) * TABLE_SPAN <= self.bytes);
        // SAFETY: within the memory, as just asserted.
        NonNull::new(unsafe { self.base.add(chunk * TABLE_SPAN) })
    }

    fn discard(&self, _chunk: usize, at: NonNull<u8>) {
        // A thread that still reads it is found out. Pages that nobody has touched stay so: to fill
        // them took most of the time of many a test.
        let mut present = [0u8; TABLE_SPAN / PAGE_SIZE];
        // SAFETY: a whole chunk, with a byte for each of its pages.
        let told = unsafe { libc::mincore(at.as_ptr().cast(), TABLE_SPAN, present.as_mut_ptr()) };
        for (page, present) in present.iter().enumerate() {
            if told != 0 || present & 1 != 0 {
                // SAFETY: a page of the chunk; the pool says that nobody uses it.
                unsafe { at.add(page * PAGE_SIZE).write_bytes(0xDD, PAGE_SIZE) };
            }
        }
        self.discarded.fetch_add(TABLE_SPAN, Ordering::Relaxed);
    }
}

impl Drop for TestFrames {
    fn drop(&mut self) {
        let base = NonNull::new(self.base).expect("mapped in `new`");
        // SAFETY: from `map` with the same size; nobody has it any more.
        unsafe { sync::pages::unmap(base, self.bytes) };
    }
}

/// A clock that goes on by one at each look.
#[derive(Debug, Default)]
pub struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Of a rig without swap.
const NO_SWAP: Option<fn(Arc<Budget>) -> Arc<Swap>> = None;

/// A node, a space and the soft page tables.
pub struct Rig {
    /// Where faults look mappings up. Left as it is when a test panics: it
    /// would say that it is not empty, and abort.
    pub space: ManuallyDrop<AddressSpace>,
    /// Where VMAs come from.
    pub slabs: Arc<VmaSlabs>,
    /// The page tables.
    pub mmu: Arc<SoftMmu>,
    /// The node, whose budget pays.
    pub node: Arc<Node>,
    /// Around the node's budget: the charge that is left when all is gone.
    pub parent: Arc<Budget>,
    /// The frames of the pool.
    pub frames: Arc<TestFrames>,
    /// Cores that nobody uses at the moment: as many as there were threads at
    /// a time.
    cores: Mutex<Vec<Core>>,
    /// The highest limit so far.
    most: AtomicU64,
}

impl Rig {
    /// A budget of `pages` that may be raised to four times as much.
    pub fn new(pages: u64) -> Self {
        Self::within(pages, &Budget::new(u64::MAX / 4))
    }

    /// The same, with policies.
    pub fn with_policies(pages: u64, policies: Policies) -> Self {
        Self::made(pages, &Budget::new(u64::MAX / 4), policies, NO_SWAP)
    }

    /// The same, with swap. The table of its slots is charged to the node's own
    /// budget, as the library does it.
    pub fn with_swap<S: SwapDevice + 'static>(
        pages: u64,
        policies: Policies,
        device: &Arc<S>,
    ) -> Self {
        let device = device.clone();
        let swap = |budget| Arc::new(Swap::new(device, budget).expect("room for slots"));
        Self::made(pages, &Budget::new(u64::MAX / 4), policies, Some(swap))
    }

    /// The same, whose node sees the page tables through others.
    pub fn over<M: Mmu + 'static>(
        pages: u64,
        device: &Arc<TestSwap>,
        through: impl FnOnce(Arc<SoftMmu>) -> M,
    ) -> Self {
        let device = device.clone();
        let swap = |budget| Arc::new(Swap::new(device, budget).expect("room for slots"));
        let parent = Budget::new(u64::MAX / 4);
        let through = |mmu| -> Arc<dyn Mmu> { Arc::new(through(mmu)) };
        Self::made_over(pages, &parent, Policies::default(), Some(swap), through)
    }

    /// One inside `parent`.
    pub fn within(pages: u64, parent: &Arc<Budget>) -> Self {
        Self::made(pages, parent, Policies::default(), NO_SWAP)
    }

    fn made(
        pages: u64,
        parent: &Arc<Budget>,
        policies: Policies,
        swap: Option<impl FnOnce(Arc<Budget>) -> Arc<Swap>>,
    ) -> Self {
        Self::made_over(pages, parent, policies, swap, |mmu| mmu)
    }

    fn made_over(
        pages: u64,
        parent: &Arc<Budget>,
        policies: Policies,
        swap: Option<impl FnOnce(Arc<Budget>) -> Arc<Swap>>,
        through: impl FnOnce(Arc<SoftMmu>) -> Arc<dyn Mmu>,
    ) -> Self {
        let mmu = Arc::new(SoftMmu::new());
        mmu.set_moves(SoftMoves {
            moved: Moved::All,
            splits: true,
        });
        let clock = Arc::new(Ticks::default());
        let quarters = policies.miss_accounting.frame_quarters().max(2);
        let frames = TestFrames::new(pages as usize * quarters);
        let budget = Budget::nested(pages, parent);
        let options = NodeOptions {
            most_bytes: pages as usize * 4 * PAGE_SIZE,
            policies,
            swap: swap.map(|swap| swap(budget.clone())),
            on_reclaim: None,
            reads: None,
        };
        let tables = through(mmu.clone());
        let node = Node::new(budget, tables, frames.clone(), clock.clone(), options);
        let node = node.expect("a budget that is large enough");
        node.enlist();
        let slabs = VmaSlabs::new(1 << 16);
        let space = AddressSpace::with_lock(slabs.clone(), clock, policies.locks);
        Self {
            slabs,
            space: ManuallyDrop::new(space.expect("room for a space")),
            mmu,
            node,
            parent: parent.clone(),
            frames,
            cores: Mutex::default(),
            most: AtomicU64::new(pages),
        }
    }

    /// Another space of the same slabs. It has to be empty when it is dropped.
    pub fn another_space(&self) -> AddressSpace {
        let (clock, locks) = (self.node.clock.clone(), self.node.policies.locks);
        let space = AddressSpace::with_lock(self.slabs.clone(), clock, locks);
        space.expect("room for a space")
    }

    /// Changes the budget to `pages` and asserts that it is kept.
    pub fn set_memory(&self, pages: u64) {
        self.most.fetch_max(pages, Ordering::Relaxed);
        let set = self.node.set_memory(pages as usize * PAGE_SIZE);
        set.expect("a budget that the parent has");
        assert_eq!(self.node.budget.excess(), 0, "{:?}", self.node.budget);
    }

    /// The same while others use the memory: it may not be kept yet.
    pub fn change_memory(&self, pages: u64) {
        self.most.fetch_max(pages, Ordering::Relaxed);
        let set = self.node.set_memory(pages as usize * PAGE_SIZE);
        set.expect("a budget that the parent has");
    }

    /// Maps the whole of a store.
    pub fn map<S: Store + 'static>(&self, store: &Arc<S>) -> Arc<PageCache> {
        self.map_with(store, OnTruncate::Error)
    }

    /// The same, with the result of a touch past the end.
    pub fn map_with<S: Store + 'static>(
        &self,
        store: &Arc<S>,
        on_truncate: OnTruncate,
    ) -> Arc<PageCache> {
        let bytes = store.len().expect("the store has a length");
        let cache = PageCache::new(self.node.clone(), store.clone(), bytes, on_truncate);
        let cache = cache.expect("room for a window");
        self.map_window(&cache);
        cache
    }

    /// Maps the whole of a store, to be written to.
    pub fn map_writable(&self, store: &Arc<TestStore>) -> Arc<PageCache> {
        let bytes = store.len().expect("the store has a length");
        let stores: (Arc<dyn Store>, Arc<dyn WriteBack>) = (store.clone(), store.clone());
        let cache = PageCache::new_writable(self.node.clone(), stores, bytes);
        let cache = cache.expect("room for a window");
        self.map_window(&cache);
        cache
    }

    /// Enters a mapping of a cache's whole window.
    pub fn map_window(&self, cache: &Arc<PageCache>) {
        let attributes = Attributes {
            backing: Backing::from(cache.clone()),
            protection: match cache.is_writable() {
                true => Protection::ReadWrite,
                false => Protection::Read,
            },
            ..Attributes::default()
        };
        let mapped = self.space.mmap(cache.addresses(), attributes);
        mapped.expect("nothing else is there");
    }

    /// Enters a mapping of all of some private memory, where its window is.
    pub fn map_anonymous(&self, anon: &Arc<Anonymous>) {
        let attributes = Attributes {
            backing: Backing::from(anon.clone()),
            protection: Protection::ReadWrite,
            ..Attributes::default()
        };
        let mapped = self.space.mmap(anon.addresses(), attributes);
        mapped.expect("nothing else is there");
    }

    /// Takes a mapping out again; the cache stays.
    pub fn unmap(&self, range: Range<usize>) {
        let unmapped = self.space.munmap(range, |_, _| {});
        unmapped.expect("a mapping that is there");
    }

    /// Sets the protection of a range; unmapped parts are left alone.
    pub fn protect(&self, range: Range<usize>, protection: Protection) {
        let _in_part = self.space.mprotect(range, protection);
    }

    /// Serves a fault, as the first touch of a page has one.
    pub fn fault(&self, addr: usize) -> Outcome {
        fault::handle(&self.space, addr, FaultFlags::default(), &NeverInterrupted)
    }

    /// Reads a byte as a program does: faults until the page is there.
    pub fn touch(&self, addr: usize) -> Result<u8, FaultError> {
        let mut byte = [0];
        self.read(addr, &mut byte)?;
        Ok(byte[0])
    }

    /// Reads bytes.
    pub fn read(&self, addr: usize, bytes: &mut [u8]) -> Result<(), FaultError> {
        self.read_in(&self.space, addr, bytes)
    }

    /// Reads bytes of another space.
    pub fn read_in(
        &self,
        space: &AddressSpace,
        addr: usize,
        bytes: &mut [u8],
    ) -> Result<(), FaultError> {
        self.with_core(|core| {
            fault::read_at(core, space, addr, bytes, &NeverInterrupted).map_err(error)
        })
    }

    /// Writes bytes.
    pub fn write(&self, addr: usize, bytes: &[u8]) -> Result<(), FaultError> {
        self.with_core(|core| {
            fault::write_at(core, &self.space, addr, bytes, &NeverInterrupted).map_err(error)
        })
    }

    /// Calls `f` with a core that nobody else has meanwhile: one that was used
    /// before, if there is one.
    pub fn with_core<R>(&self, f: impl FnOnce(&mut Core) -> R) -> R {
        let core = self.cores.lock().unwrap().pop();
        let mut core = core.unwrap_or_else(|| self.mmu.core().expect("room for a core"));
        let result = f(&mut core);
        self.cores.lock().unwrap().push(core);
        result
    }

    /// Evicts all that can be evicted.
    pub fn evict_all(&self) {
        self.node.reclaim(usize::MAX / 2);
    }

    /// Drops everything, and asserts that the budget was kept and that nothing
    /// is charged any more. No cache is left, nor is any page pinned.
    pub fn finish(self) {
        let Self {
            space,
            slabs,
            mmu,
            node,
            parent,
            frames,
            cores,
            most,
        } = self;
        drop(cores);
        let space = ManuallyDrop::into_inner(space);
        space.exit(|_, _| {});
        let budget = node.budget.clone();
        assert!(budget.peak() <= most.into_inner(), "{budget:?}");
        assert_eq!(mmu.present_pages(), 0, "pages were left in a window");
        node.delist();
        assert_eq!(node.folios_in_use(), 0, "folios are referred to");
        assert_eq!(node.frames_in_use(), 0, "frames were lost");
        if let Some(swap) = &node.swap {
            assert_eq!(swap.slots.used(), 0, "slots were lost");
        }
        let node = Arc::into_inner(node).expect("nobody else has the node");
        drop(node);
        drop((space, mmu, frames));
        assert_eq!(slabs.vmas_in_use(), 0, "VMAs were lost");
        assert_eq!(slabs.vma_locks_in_use(), 0, "locks of VMAs were lost");
        assert_eq!(slabs.nodes_in_use(), 0, "tree nodes were lost");
        // Pages that processors keep in stock would hide a page that was paid back twice: a
        // charge that is too large has it given back first.
        assert!(!budget.try_charge(budget.limit() + 1, 0));
        assert_eq!(budget.charged(), 0, "{budget:?}");
        drop(parent);
    }
}

/// Nothing interrupts a rig.
fn error(stopped: Stopped) -> FaultError {
    match stopped.why {
        Stop::Error(error) => error,
        Stop::Interrupted => panic!("interrupted by nobody"),
    }
}

/// Time that stands still, for code that does not depend on it.
pub struct Still;

impl Clock for Still {
    fn now_ns(&self) -> u64 {
        0
    }
}

/// Has this thread run on one processor from now on; false if the thread may not.
pub fn run_on(processor: usize) -> bool {
    // SAFETY: zeros are an empty set, and the call reads the set only.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set) == 0
    }
}
