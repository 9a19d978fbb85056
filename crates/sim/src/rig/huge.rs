//! A file of huge pages, and spaces that map it.
//!
//! Its page tables are apart from those of the rig: no processor of those reads or writes
//! by them, so a flush of them finds nobody. Each space has one thread, whose
//! processor flushes for itself alone.

use super::Rig;
use crate::job::Job;
use crate::world;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use softfault_engine::fault::{self, FaultFlags, NeverInterrupted, Outcome};
use softfault_engine::huge::{HugeFile, HugeMapping, HugePool, HugeSize, HugeSnapshot, Reserve};
use softfault_engine::mm::{AddressSpace, Attributes, Backing, Protection};
use softfault_engine::mmu::SoftMmu;
use softfault_engine::{Clock, PAGE_SIZE};
use std::mem::ManuallyDrop;
use std::sync::Mutex;
use sync::Arc;
use sync::topology::Topology;

/// Bytes of a page.
pub const HUGE: usize = HugeSize::TwoMiB.bytes();
/// Where each space maps the file.
const START: usize = 0x4000_0000_0000;
/// Memory that is not of huge pages: there is none to speak of.
const SMALL: usize = 1 << 20;

/// The file, and the pool of its pages.
pub struct Huge {
    pool: Arc<HugePool>,
    file: Arc<HugeFile>,
    /// NUMA nodes, over which the file's pages are spread in turn.
    nodes: u64,
    /// About the cost of a load that no cache has.
    load_ns: u64,
    /// Pages that nobody has touched yet, where the file begins empty. No lines of the
    /// machine's: the thread that finds one pays for its clearing.
    untouched: Box<[AtomicBool]>,
    /// The moment when counting began, and the counts by then.
    mark: Mutex<Option<(u64, HugeSnapshot)>>,
    counts: AtomicBool,
}

/// A space that maps the file, or does not. Left as it is when a run fails.
pub struct HugeSpace(ManuallyDrop<AddressSpace>);

/// The file in a space. To be given back by [`HugeSpace::unmap`].
pub struct HugeMap(Arc<HugeMapping>);

impl Huge {
    /// A pool as large as the job's file, and the file, with no page.
    pub fn new(job: &Job, clock: &Arc<dyn Clock>) -> Result<Self, String> {
        let bytes = job.file as usize;
        let mmu = SoftMmu::with_huge_memory(SMALL, bytes);
        let mmu = mmu.map_err(|_| "no address space for the huge pages".to_owned())?;
        let pages = (bytes / HUGE) as u32;
        let size = HugeSize::TwoMiB;
        let policies = job.policies.huge;
        let pool = HugePool::new(Arc::new(mmu), clock.clone(), size, pages, policies);
        let pool = pool.map_err(|error| error.to_string())?;
        let file = HugeFile::new(&pool, pages.into()).map_err(|error| error.to_string())?;
        Ok(Self {
            pool,
            file,
            nodes: job.topology.memory_nodes() as u64,
            load_ns: load_ns(&job.topology),
            untouched: match job.populated {
                true => Box::default(),
                false => (0..pages).map(|_| AtomicBool::new(true)).collect(),
            },
            mark: Mutex::new(None),
            counts: AtomicBool::new(!job.populated),
        })
    }

    /// Pages of the file.
    pub fn pages(&self) -> u64 {
        self.file.capacity()
    }

    /// How long the loads of a round take.
    pub fn round_ns(&self) -> u64 {
        self.pages() * self.load_ns
    }

    /// Statistics of faults.
    pub fn stats(&self) -> HugeSnapshot {
        self.pool.stats()
    }

    /// Begins the counting now.
    pub fn mark(&self) {
        *self.mark.lock().unwrap() = Some((world::now_ns(), self.stats()));
        self.counts.store(true, Relaxed);
    }

    /// Whether counting has begun.
    pub fn counts(&self) -> bool {
        self.counts.load(Relaxed)
    }

    /// The moment when counting began, and the counts by then, unless it was from the
    /// start.
    pub fn marked(&self) -> Option<(u64, HugeSnapshot)> {
        *self.mark.lock().unwrap()
    }

    /// Bytes of tables now.
    pub fn table_bytes(&self) -> u64 {
        self.pool.table_bytes()
    }
}

impl Rig {
    /// A space with nothing in it.
    pub fn huge_space(&self) -> Result<HugeSpace, String> {
        let locks = self.node.policies.locks;
        let space = AddressSpace::with_lock(self.slabs.clone(), self.clock.clone(), locks);
        let space = space.map_err(|_| "no room for another space".to_owned())?;
        Ok(HugeSpace(ManuallyDrop::new(space)))
    }
}

impl HugeSpace {
    /// Maps all of the file.
    pub fn map(&self, huge: &Huge) -> Result<HugeMap, String> {
        let mapping = HugeMapping::new(&huge.file, 0..huge.pages(), Reserve::Yes);
        let mapping = mapping.map_err(|error| error.to_string())?;
        let attributes = Attributes {
            backing: Backing::from(mapping.clone()),
            protection: Protection::ReadWrite,
            ..Attributes::default()
        };
        let mapped = self.0.mmap(range(huge), attributes);
        mapped.map_err(|error| format!("cannot map the huge file: {error:?}"))?;
        Ok(HugeMap(mapping))
    }

    /// Touches a byte of a page: the walk, a fault if that finds nothing, and the
    /// load of the byte.
    pub fn touch(&self, huge: &Huge, map: &HugeMap, page: u64) -> Result<(), String> {
        let base_page = page * HugeSize::TwoMiB.pages() as u64;
        while !map.0.is_mapped(base_page) {
            let addr = START + page as usize * HUGE;
            let flags = FaultFlags::default();
            match fault::handle(&self.0, addr, flags, &NeverInterrupted) {
                Outcome::Mapped => {}
                Outcome::Interrupted => unreachable!("interrupted by nobody"),
                Outcome::Error(error) => {
                    return Err(format!("cannot touch huge page {page}: {error:?}"));
                }
            }
        }
        // No cache has the byte: those of a loop that touches one every 2 MiB meet in a few sets.
        world::loads_from((page % huge.nodes) as usize);
        // Relaxed: threads of the machine are executed one after the other.
        let untouched = huge.untouched.get(page as usize);
        if untouched.is_some_and(|untouched| untouched.swap(false, Relaxed)) {
            (0..HugeSize::TwoMiB.pages()).for_each(|_| world::clears(PAGE_SIZE));
        }
        Ok(())
    }

    /// Unmaps all of it.
    pub fn unmap(&self, huge: &Huge, map: HugeMap) {
        let unmapped = self.0.munmap(range(huge), |_, _| {});
        assert!(unmapped.is_ok(), "unmapping all of it needs no node");
        drop(map);
    }

    /// Takes it down.
    pub fn exit(self) {
        ManuallyDrop::into_inner(self.0).exit(|_, _| {});
    }
}

fn range(huge: &Huge) -> std::ops::Range<usize> {
    START..START + huge.pages() as usize * HUGE
}

/// The mean cost of a load from memory of all sockets.
fn load_ns(topology: &Topology) -> u64 {
    let sockets = u64::from(topology.sockets);
    let all = topology.line.memory + (sockets - 1) * topology.memory.remote;
    (all / sockets).div_ceil(1000)
}
