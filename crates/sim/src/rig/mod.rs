//! A process on the simulated machine: a budget, a space, page tables, files, swap.

mod anonymous;
mod disk;
mod files;
mod frames;
mod huge;
mod ring;
mod store;
mod swap;

pub use anonymous::AnonymousMap;
pub use files::{FileMap, Files};
pub use huge::{HUGE, Huge, HugeMap, HugeSpace};

use disk::Disk;
use swap::SwapDisk;

use crate::job::{Job, MmuKind, Workload};
use crate::uffd::{KernelWaits, UffdMmu};
use crate::world;
use softfault_engine::budget::Budget;
use softfault_engine::cache::{Node, NodeError, NodeOptions};
use softfault_engine::fault::{self, FaultError, NeverInterrupted, Stop, Stopped};
use softfault_engine::mm::{AddressSpace, VmaSlabs, VmaSlots};
use softfault_engine::mmu::{Core, Mmu, SoftMmu};
use softfault_engine::policy::{FirstTouch, Policies};
use softfault_engine::swap::Swap;
use softfault_engine::{Clock, PAGE_SIZE};
use std::mem::ManuallyDrop;
use sync::Arc;

/// VMAs that there is room for, in the space and its forks.
const MAPPINGS: u32 = 1 << 20;

/// The clock of the machine.
struct VirtualClock;

impl Clock for VirtualClock {
    fn now_ns(&self) -> u64 {
        world::now_ns()
    }
}

/// A thread's way to the bytes.
pub enum View {
    /// A core of the soft page tables.
    Soft(Core),
    /// Loads and stores.
    Real(Arc<UffdMmu>),
}

/// The state that the threads of a workload share.
pub struct Rig {
    /// The node, whose budget pays.
    pub node: Arc<Node>,
    /// Where faults look mappings up. Left as it is when a run fails: it would
    /// say that it is not empty.
    pub space: ManuallyDrop<AddressSpace>,
    /// Where VMAs come from, for forks.
    slabs: Arc<VmaSlabs>,
    soft: Arc<SoftMmu>,
    /// Over the soft tables, where the kernel's are simulated.
    uffd: Option<Arc<UffdMmu>>,
    /// The files that can be mapped.
    pub files: Files,
    /// A file of huge pages, where the workload has one.
    pub huge: Option<Huge>,
    clock: Arc<dyn Clock>,
}

impl Rig {
    /// As the job says, with files of these sizes, and swap if it has some.
    pub fn new(job: &Job, files: &[u64]) -> Result<Arc<Self>, String> {
        let no_memory = || "no address space for the simulated memory".to_owned();
        let memory = job.memory as usize;
        let soft = SoftMmu::with_memory(memory.saturating_mul(2)).map_err(|_| no_memory())?;
        let soft = Arc::new(soft);
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock);
        let uffd = match job.mmu {
            MmuKind::Soft => None,
            MmuKind::Uffd => Some(Arc::new(UffdMmu::new(job, &soft, &clock))),
        };
        let mmu: Arc<dyn Mmu> = match &uffd {
            Some(uffd) => uffd.clone(),
            None => soft.clone(),
        };
        // A fault a page, as on the documents' machines.
        let policies = Policies {
            first_touch: FirstTouch::Page,
            ..job.policies
        };
        let quarters = policies.miss_accounting.frame_quarters().max(2);
        let frames = frames::Frames::new(memory / 4 * quarters).ok_or_else(no_memory)?;
        let budget = Budget::new((memory / PAGE_SIZE) as u64);
        let disk = Arc::new(Disk::new(job));
        let swap = match job.swap {
            0 => None,
            bytes => {
                let device = Arc::new(SwapDisk::new(&disk, bytes));
                let swap = Swap::new(device, budget.clone()).ok_or_else(no_memory)?;
                Some(Arc::new(swap))
            }
        };
        let options = NodeOptions {
            most_bytes: memory,
            policies,
            swap,
            on_reclaim: None,
            reads: None,
        };
        let node = Node::new(budget, mmu, Arc::new(frames), clock.clone(), options);
        let node = node.map_err(|error| match error {
            NodeError::BudgetTooSmall | NodeError::NoMemory => {
                format!("a budget of {memory} bytes is too small")
            }
            NodeError::BudgetTooLarge => "the budget is too large".to_owned(),
            NodeError::Held => "the held pages leave no room for faults".to_owned(),
        })?;
        node.enlist();
        let slabs = VmaSlabs::new(MAPPINGS);
        let space = AddressSpace::with_lock(slabs.clone(), clock.clone(), policies.locks);
        let space = space.map_err(|_| "no room for a space".to_owned())?;
        let huge = match job.workload {
            Workload::Hugetlb => Some(Huge::new(job, &clock)?),
            _ => None,
        };
        Ok(Arc::new(Self {
            node,
            space: ManuallyDrop::new(space),
            slabs,
            soft,
            uffd,
            files: Files::new(job, disk, files),
            huge,
            clock,
        }))
    }

    /// A thread's way to the bytes.
    pub fn view(&self) -> Result<View, String> {
        match &self.uffd {
            Some(uffd) => Ok(View::Real(uffd.clone())),
            None => match self.soft.core() {
                Some(core) => Ok(View::Soft(core)),
                None => Err("more threads than page tables know cores".to_owned()),
            },
        }
    }

    /// Reads an aligned word.
    pub fn read(&self, view: &mut View, addr: usize) -> Result<u64, FaultError> {
        let core = match view {
            View::Soft(core) => core,
            View::Real(uffd) => return uffd.load(&self.space, addr),
        };
        let mut word = [0; 8];
        let read = fault::read_at(core, &self.space, addr, &mut word, &NeverInterrupted);
        read.map_err(error)?;
        Ok(u64::from_ne_bytes(word))
    }

    /// Writes an aligned word.
    pub fn write(&self, view: &mut View, addr: usize, word: u64) -> Result<(), FaultError> {
        let core = match view {
            View::Soft(core) => core,
            View::Real(uffd) => return uffd.store(&self.space, addr, word),
        };
        let word = word.to_ne_bytes();
        fault::write_at(core, &self.space, addr, &word, &NeverInterrupted).map_err(error)
    }

    /// The waits in the kernel beneath, if there is one.
    pub fn kernel_waits(&self) -> Option<KernelWaits> {
        self.uffd.as_ref().map(|uffd| uffd.kernel().waits())
    }

    /// The counts of its VMAs' slots.
    pub fn vma_slots(&self) -> VmaSlots {
        self.slabs.vma_slots()
    }

    /// Another space with the memory of this one, given up again.
    /// With the kernel's page tables it is the process that forks: windows of files
    /// are not for the child, and those of anonymous memory stand still meanwhile,
    /// as the product keeps them.
    pub fn fork(&self) -> Result<(), String> {
        if let Some(uffd) = &self.uffd {
            if self.node.swap.is_none() {
                uffd.kernel().fork(0);
                return Ok(());
            }
            let frozen = self.space.freeze(core::iter::once(0..usize::MAX));
            let stopped = self.node.stop_eviction();
            uffd.kernel().fork(uffd.pages());
            drop(frozen);
            drop(stopped);
            return Ok(());
        }
        let locks = self.node.policies.locks;
        let child = AddressSpace::with_lock(self.slabs.clone(), self.clock.clone(), locks);
        let child = child.map_err(|_| "no room for another space".to_owned())?;
        self.space
            .fork(&child)
            .map_err(|error| format!("cannot fork: {error:?}"))?;
        child.exit(|_, _| {});
        Ok(())
    }

    /// Takes everything down again; the run has ended well.
    pub fn finish(self: Arc<Self>) {
        let rig = Arc::into_inner(self).expect("all threads have ended");
        let Self {
            node,
            space,
            files,
            uffd,
            ..
        } = rig;
        let space = ManuallyDrop::into_inner(space);
        files.close();
        space.exit(|_, _| {});
        if let Some(uffd) = uffd {
            uffd.close();
        }
        node.delist();
    }
}

/// Nothing interrupts.
fn error(stopped: Stopped) -> FaultError {
    match stopped.why {
        Stop::Error(error) => error,
        Stop::Interrupted => unreachable!("interrupted by nobody"),
    }
}
