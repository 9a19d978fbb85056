//! A space with soft page tables, on a simulated machine.

use core::ptr::NonNull;
use softfault_engine_sim::anon::Anonymous;
use softfault_engine_sim::budget::Budget;
use softfault_engine_sim::cache::{FrameMemory, Node, NodeOptions};
use softfault_engine_sim::fault::{NeverInterrupted, write_at};
use softfault_engine_sim::mm::{AddressSpace, Attributes, Backing, Protection, VmaSlabs};
use softfault_engine_sim::mmu::{Core, SoftMmu, TABLE_SPAN};
use softfault_engine_sim::policy::{Policies, VmaLockKind};
use softfault_engine_sim::{Clock, PAGE_SIZE};
use sync::Arc;
use sync::topology::{
    Disk, KernelCosts, LineCosts, MemoryCosts, PageCosts, Placement, SchedulerCosts, Topology,
};

/// A round machine: no real one's figures.
pub fn topology(sockets: u16, cores: u16) -> Topology {
    Topology {
        name: "round".to_owned(),
        source: "round numbers".to_owned(),
        sockets,
        nodes: 1,
        clusters: 1,
        cores,
        smt: 1,
        placement: Placement::Spread,
        smt_extra: 0,
        memory: MemoryCosts {
            bandwidth: u64::MAX,
            remote: 1_000_000,
        },
        line: LineCosts {
            code: 2_000,
            hit: 1_000,
            rmw: 5_000,
            sibling: 10_000,
            cluster: 50_000,
            node: 50_000,
            socket: 50_000,
            remote: 120_000,
            memory: 90_000,
            hold: 20_000,
        },
        scheduler: SchedulerCosts {
            call: 100_000,
            switch: 1_000_000,
            wake: 500_000,
            wake_latency: 3_000_000,
            slice: 3_000_000_000,
        },
        page: PageCosts {
            clear: 150_000,
            copy: 200_000,
            map: 1_000_000,
        },
        disk: Disk {
            latency: 60_000_000,
            bandwidth: 2_000_000_000,
            depth: 64,
            request: 0,
            submit: 1_000_000,
        },
        kernel: KernelCosts::default(),
    }
}

/// Virtual time, for the engine.
pub struct VirtualClock;

impl Clock for VirtualClock {
    fn now_ns(&self) -> u64 {
        sync::machine::now_ns()
    }
}

struct Frames(NonNull<u8>, usize);

// SAFETY: the pool hands frames out one by one.
unsafe impl Send for Frames {}
// SAFETY: as above.
unsafe impl Sync for Frames {}

impl FrameMemory for Frames {
    fn bytes(&self) -> usize {
        self.1
    }

    fn provide(&self, chunk: usize) -> Option<NonNull<u8>> {
        assert!((chunk + 1) * TABLE_SPAN <= self.1);
        // SAFETY: within the memory, as just asserted.
        Some(unsafe { self.0.add(chunk * TABLE_SPAN) })
    }

    fn discard(&self, _chunk: usize, _at: NonNull<u8>) {}
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: all of the mapping; the pool is gone.
        unsafe { sync::pages::unmap(self.0, self.1) };
    }
}

/// The state that threads share.
pub struct Rig {
    pub space: AddressSpace,
    mmu: Arc<SoftMmu>,
    node: Arc<Node>,
}

impl Rig {
    /// Room for so many pages.
    pub fn new(pages: usize, vma_lock: VmaLockKind) -> Arc<Self> {
        let bytes = pages * PAGE_SIZE;
        let mmu = Arc::new(SoftMmu::with_memory(2 * bytes).expect("address space"));
        let pool = bytes.next_multiple_of(TABLE_SPAN);
        let frames = Frames(sync::pages::map(pool).expect("address space"), pool);
        let clock = Arc::new(VirtualClock);
        let policies = Policies {
            locks: vma_lock.into(),
            ..Policies::default()
        };
        let options = NodeOptions {
            policies,
            ..NodeOptions::default()
        };
        let budget = Budget::new(pages as u64);
        let node = Node::new(
            budget,
            mmu.clone(),
            Arc::new(frames),
            clock.clone(),
            options,
        );
        let space = AddressSpace::with_lock(VmaSlabs::new(1 << 12), clock, vma_lock);
        Arc::new(Self {
            space: space.expect("room for a space"),
            mmu,
            node: node.expect("a budget that is large enough"),
        })
    }

    /// A thread's view of memory.
    pub fn core(&self) -> Core {
        self.mmu.core().expect("room for a core")
    }

    /// Maps so many pages of zeros and returns where.
    pub fn map(&self, pages: usize) -> usize {
        let anon = Anonymous::new(self.node.clone(), pages * PAGE_SIZE).expect("a window");
        let range = anon.addresses();
        let attributes = Attributes {
            backing: Backing::from(anon),
            protection: Protection::ReadWrite,
            ..Attributes::default()
        };
        self.space.mmap(range.clone(), attributes).expect("room");
        range.start
    }

    /// Takes them away again.
    pub fn unmap(&self, start: usize, pages: usize) {
        let range = start..start + pages * PAGE_SIZE;
        self.space.munmap(range, |_, _| {}).expect("it is mapped");
    }

    /// Faults a page in.
    pub fn touch(&self, core: &mut Core, start: usize, page: usize) {
        let addr = start + page * PAGE_SIZE;
        let written = write_at(core, &self.space, addr, &[page as u8], &NeverInterrupted);
        written.expect("memory enough");
    }
}
