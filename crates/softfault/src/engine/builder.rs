//! Settings of an engine, and building the engine from them.

use super::{Engine, EngineInner};
use crate::environment;
use crate::error;
use crate::exit_stats;
use crate::faults::{self, NoProcess};
use crate::fork;
use crate::frames::AnonymousFrames;
use crate::managed::Managed;
use crate::options::Coherence;
use crate::process::Process;
use crate::required_calls;
use crate::signal;
use crate::store::{Make, QueueKind, ReadPolicy, Reads, Rings, RingsOnDemand};
use crate::swap::{Swap, SwapBackend, SwapSource};
use crate::uffd::Faults;
use softfault_engine::budget::Budget;
use softfault_engine::cache::node::MIN_BYTES;
use softfault_engine::cache::{Node, NodeError, NodeOptions, OnTruncate};
use softfault_engine::mm::AddressSpace;
use softfault_engine::mmu::SoftMmu;
use softfault_engine::policy::Policies;
use softfault_engine::swap::SwapDevice;
use softfault_engine::{Clock, Mmu, PAGE_SIZE};
use std::io;
use std::sync::{Arc, Weak};

/// The behaviour where userfaultfd cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fallback {
    /// [`Builder::build`] fails, and so does a map over the default engine. The error names `softfault doctor`.
    #[default]
    Error,
    /// `map` uses the kernel's mmap, without a budget; [`Stats::kernel_fallback`](crate::Stats::kernel_fallback) is true then, and nothing
    /// is counted. Also where only [`Faults::Messages`] is not allowed, or memory or descriptors are short.
    Kernel,
}

/// The interface that submits read-ahead and the reads of [`Mmap::fault_in_many`](crate::Mmap::fault_in_many). A single fault that its own
/// thread serves reads by `pread`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AsyncReads {
    /// `io_submit(2)`, or `io_uring` where `io_submit` is not allowed or its limit is used up.
    ///
    /// io_uring completes a read in the context of the thread that submitted
    /// it. This interrupts an `epoll_wait`, `poll` or `nanosleep` of that thread
    /// with EINTR. Programs do not expect that from a touch of memory.
    #[default]
    Auto,
    /// `io_submit(2)`. Files without direct I/O whose pages are dropped from the page cache after each read get no read-ahead.
    IoSubmit,
    /// io_uring.
    IoUring,
    /// No read-ahead: each fault reads its own page.
    Never,
}

/// The reason why the engine cannot serve faults.
enum NoFaults {
    /// The system does not allow it: the kernel may serve the maps.
    Closed(io::Error),
    /// The settings are invalid.
    Wrong(io::Error),
}

/// Settings of an [`Engine`].
#[derive(Debug, Clone)]
pub struct Builder {
    memory: Option<usize>,
    max_memory: Option<usize>,
    /// For soft engines.
    huge_pages: usize,
    /// The outer engine and its budget.
    within: Option<(Weak<EngineInner>, Arc<Budget>)>,
    pub(crate) on_truncate: OnTruncate,
    pub(crate) fallback: Fallback,
    pub(crate) trust_handlers: bool,
    pub(crate) async_reads: AsyncReads,
    policies: Policies,
    swap: SwapSource,
    /// `None`: the environment decides, here and for the next four.
    faults: Option<Faults>,
    reads: Option<Reads>,
    small_maps: Option<usize>,
    allow_kernel_maps: Option<bool>,
    coherence: Option<Coherence>,
    /// See [`NodeOptions`].
    on_reclaim: Option<fn()>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            memory: None,
            max_memory: None,
            huge_pages: 0,
            within: None,
            on_truncate: OnTruncate::Error,
            fallback: Fallback::Error,
            trust_handlers: false,
            async_reads: AsyncReads::Auto,
            policies: Policies::default(),
            swap: SwapSource::None,
            faults: None,
            reads: None,
            small_maps: None,
            allow_kernel_maps: None,
            coherence: None,
            on_reclaim: None,
        }
    }

    /// The budget: the bytes that may be resident. It covers pages, page tables and frames, but no
    /// heap or stacks, not the tables of compressed swap (2 MiB for each GiB of it, and up to 6 MiB of buffers), and not the records of read-ahead
    /// (160 KiB for each file of 512 MiB or more). Default: a quarter of the machine's memory, or of
    /// the lowest limit of its memory cgroups. The default budget follows such a limit down, and up again
    /// to its first value ([`Reads::Auto`] watches the limits). Building the engine fails if the budget is below
    /// [`MIN_MEMORY`](crate::MIN_MEMORY) (8 MiB), or above the machine's memory and swap.
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// The largest budget that [`Engine::set_memory`] may set later. Default: the machine's
    /// memory. It is never more than the machine's memory and swap.
    pub fn max_memory(mut self, bytes: usize) -> Self {
        self.max_memory = Some(bytes);
        self
    }

    /// For soft engines ([`build_soft`](Self::build_soft)): bytes of huge pages, rounded down to
    /// 2 MiB, for [`SoftHugeFile`](crate::soft::SoftHugeFile)s. They do not count against the
    /// budget. They take memory once they are touched, and are never evicted. Default: none.
    pub fn huge_pages(mut self, bytes: usize) -> Self {
        self.huge_pages = bytes & !((2 << 20) - 1);
        self
    }

    /// Charges this engine's memory to `parent`'s budget too.
    pub fn within(mut self, parent: &Engine) -> Self {
        let managed = parent.inner.managed_here().ok().flatten();
        self.within = managed.map(|managed| {
            let budget = managed.node.budget.clone();
            (Arc::downgrade(&parent.inner), budget)
        });
        self
    }

    /// The result of a touch past the end of a truncated file.
    pub fn on_truncate(mut self, on_truncate: OnTruncate) -> Self {
        self.on_truncate = on_truncate;
        self
    }

    /// The behaviour where userfaultfd cannot be used.
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.fallback = fallback;
        self
    }

    /// Allows `map` although the program installed a SIGBUS handler after the engine was built. Set this
    /// if that handler passes on the signals that are not its own.
    pub fn trust_signal_handlers(mut self, trust: bool) -> Self {
        self.trust_handlers = trust;
        self
    }

    /// The interface that submits read-ahead.
    pub fn async_reads(mut self, how: AsyncReads) -> Self {
        self.async_reads = how;
        self
    }

    /// Whether files are read through the kernel's page cache. Default: the value of `SOFTFAULT_READS`
    /// (`direct`, `cached` or `auto`), or else [`Reads::Auto`].
    pub fn reads(mut self, reads: Reads) -> Self {
        self.reads = Some(reads);
        self
    }

    /// Whether the kernel may serve files by plain `mmap(2)`, outside of the budget, where that is faster:
    /// [small files](Self::small_maps), and larger files as long as the page cache has them and there
    /// is memory for that. It applies to [`Reads::Auto`] only. With faults
    /// by threads or by messages the kernel serves small files only. Default: the
    /// value of `SOFTFAULT_ALLOW_KERNEL_MAPS` (`0` or `1`), or else true.
    pub fn allow_kernel_maps(mut self, may: bool) -> Self {
        self.allow_kernel_maps = Some(may);
        self
    }

    /// Whether the kernel or the engine serves maps that write to their file. Default: the value of
    /// `SOFTFAULT_COHERENCE` (`kernel` or `engine`), or else [`Coherence::Kernel`].
    pub fn coherence(mut self, coherence: Coherence) -> Self {
        self.coherence = Some(coherence);
        self
    }

    /// Size in bytes of the largest file that counts as small. The kernel maps small files by itself, because there
    /// mapping, touching and dropping them is cheaper. At most an eighth of the budget is mapped so at a time. 0: the
    /// kernel maps none. Default: the value of `SOFTFAULT_SMALL_MAPS`, or else 1 MiB.
    pub fn small_maps(mut self, bytes: usize) -> Self {
        self.small_maps = Some(bytes);
        self
    }

    /// How faults reach the engine. Default: the value of `SOFTFAULT_FAULTS` (`signals`,
    /// `threads` or `messages`), or else [`Faults::Signals`].
    pub fn faults(mut self, how: Faults) -> Self {
        self.faults = Some(how);
        self
    }

    /// Calls `tell` each time that memory is short and the engine begins to evict. The call is in the thread that needs
    /// the memory, also in the fault handler. It lets a program divide memory between engines of several processes.
    #[doc(hidden)]
    pub fn on_reclaim(mut self, tell: fn()) -> Self {
        self.on_reclaim = Some(tell);
        self
    }

    /// Policies other than the default: the baselines of the documents that
    /// this engine follows, for comparison in measurements.
    pub fn policies(mut self, policies: Policies) -> Self {
        self.policies = policies;
        self
    }

    /// Lets the engine evict anonymous memory to swap when it does not fit the budget.
    pub fn swap(mut self, swap: Swap) -> Self {
        self.swap = SwapSource::File(swap);
        self
    }

    /// Swaps to a device of the caller. Its methods are called in the fault
    /// handler: see [`Store`](softfault_engine::Store). For tests.
    ///
    /// # Safety
    /// A read of a slot returns the bytes that were written there last, or an
    /// error. The device writes to a buffer only the part that it reports as
    /// read, and nothing after the read is complete. It completes each read that it starts
    /// once, by the read's own cookie. It keeps the rules of the handler.
    ///
    /// ```compile_fail,E0133
    /// use std::sync::Arc;
    /// fn safe(device: Arc<dyn softfault_engine::swap::SwapDevice>) -> softfault::Builder {
    ///     softfault::Engine::builder().swap_device(device)
    /// }
    /// ```
    #[doc(hidden)]
    pub unsafe fn swap_device(mut self, device: Arc<dyn SwapDevice>) -> Self {
        self.swap = SwapSource::Device(device);
        self
    }

    /// Builds the engine. Fails if the budget is too small, if the
    /// process has no address space left, if it may not use userfaultfd (unless [`fallback`](Self::fallback) is
    /// [`Fallback::Kernel`]), or if an earlier engine of the process has other [`Policies::locks`] or other [`Faults`]: all engines share one address space.
    pub fn build(mut self) -> io::Result<Engine> {
        let _masked = signal::masked();
        self.sizes()?;
        let faults = match self.faults {
            Some(faults) => faults,
            None => environment::faults()?,
        };
        self.faults = Some(faults);
        let allow_kernel_maps = match self.allow_kernel_maps {
            Some(may) => may,
            None => environment::allow_kernel_maps()?.unwrap_or(true),
        };
        self.allow_kernel_maps = Some(allow_kernel_maps);
        let coherence = match self.coherence {
            Some(coherence) => coherence,
            None => environment::coherence()?.unwrap_or_default(),
        };
        self.coherence = Some(coherence);
        let small = match self.small_maps {
            Some(bytes) => bytes,
            None => environment::small_maps()?.unwrap_or(SMALL_MAPS),
        };
        self.small_maps = Some(small);
        let managed = match self.process(faults) {
            Ok(process) => Some(self.managed(process)?),
            Err(NoFaults::Closed(_)) if self.fallback == Fallback::Kernel => None,
            Err(NoFaults::Closed(error) | NoFaults::Wrong(error)) => return Err(error),
        };
        let inner = EngineInner::new(managed, self);
        if let Some(managed) = inner.managed() {
            inner.files.watch_limits(managed);
        }
        Ok(Engine { inner })
    }

    /// The part that all engines of the process share, if faults can be served here.
    fn process(&self, faults: Faults) -> Result<&'static Process, NoFaults> {
        required_calls::for_faults().map_err(NoFaults::Closed)?;
        // Before there is anything that a child must not have: a concurrent fork waits.
        fork::watch();
        faults::get_or_make(self.policies.locks, faults).map_err(|no| match no {
            NoProcess::Closed(_) => NoFaults::Closed(no.into()),
            no => NoFaults::Wrong(no.into()),
        })
    }

    /// The policies.
    pub(crate) fn policies_ref(&self) -> &Policies {
        &self.policies
    }

    /// How faults reach an engine that is built.
    pub(crate) fn resolved_faults(&self) -> Faults {
        self.faults.unwrap_or_default()
    }

    /// Bytes of the largest small map of an engine that is built; 0 for a soft engine.
    pub(super) fn most_small(&self) -> usize {
        match self.may_be_kernels() {
            true => self.small_maps.unwrap_or(0),
            false => 0,
        }
    }

    /// True if the kernel may serve files of an engine that is built.
    pub(crate) fn may_be_kernels(&self) -> bool {
        self.allow_kernel_maps.unwrap_or(false)
    }

    /// Whether the kernel or the engine serves maps that write to their file, for an engine that is built.
    pub(crate) fn resolved_coherence(&self) -> Coherence {
        self.coherence.unwrap_or_default()
    }

    /// True if the memory is charged to another engine's budget too.
    pub(crate) fn is_nested(&self) -> bool {
        self.within.is_some()
    }

    /// The outer engine, if it lives.
    pub(crate) fn outer(&self) -> Option<Arc<EngineInner>> {
        self.within.as_ref()?.0.upgrade()
    }

    /// The budget, and the largest budget that may ever be set. An error if the budget is
    /// invalid.
    fn sizes(&self) -> io::Result<(usize, usize)> {
        let memory = self.memory_or_default();
        if memory < MIN_BYTES {
            return Err(error::budget_of(memory, NodeError::BudgetTooSmall));
        }
        let there_is = crate::machine::memory_and_swap_bytes();
        if memory > there_is {
            return Err(error::beyond_machine(memory, there_is));
        }
        Ok((memory, self.most(memory)))
    }

    fn memory_or_default(&self) -> usize {
        (self.memory)
            .unwrap_or_else(|| crate::machine::default_budget(crate::machine::memory_limit().0))
    }

    /// The largest that a budget of `memory` may be raised to.
    pub(super) fn most(&self, memory: usize) -> usize {
        let most = (self.max_memory).unwrap_or_else(crate::machine::memory_bytes);
        most.min(crate::machine::memory_and_swap_bytes())
            .max(memory)
    }

    /// Soft page tables for twice the largest budget that may ever be set, or
    /// for less if the address space is short.
    pub(crate) fn soft_page_tables(&self) -> io::Result<SoftMmu> {
        let (memory, most) = self.sizes()?;
        let halves = core::iter::successors(Some(most), |&most| {
            (most > memory).then(|| (most / 2).max(memory))
        });
        let mut sizes = halves.map(|most| most.saturating_mul(2));
        let huge = self.huge_pages;
        let tables = sizes.find_map(|bytes| SoftMmu::with_huge_memory(bytes, huge).ok());
        tables.ok_or_else(|| error::budget(NodeError::NoMemory))
    }

    /// Bytes of huge pages of a soft engine.
    pub(crate) fn huge_bytes(&self) -> usize {
        self.huge_pages
    }

    fn managed(&self, process: &'static Process) -> io::Result<Managed> {
        self.over(process.dyn_mmu(), process.space().clone(), process.clock())
    }

    /// The managed part over page tables, mappings and a clock.
    pub(crate) fn over(
        &self,
        mmu: Arc<dyn Mmu>,
        space: Arc<AddressSpace>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Managed> {
        let memory = self.memory_or_default();
        let within = self.within.as_ref().map(|(_, budget)| budget);
        let budget = Self::budget(memory, within);
        let swap = |rings: &RingsOnDemand| self.swap.open(memory, rings);
        self.assemble(budget, (mmu, space, clock), Rings::of, swap)
    }

    /// The managed part of an engine in a child, made after the parent's, `parents`.
    pub(crate) fn again(
        &self,
        parents: &Managed,
        outer: Option<Arc<Budget>>,
        process: &'static Process,
    ) -> io::Result<Managed> {
        let memory = parents.node.budget.limit() as usize * PAGE_SIZE;
        let budget = Self::budget(memory, outer.as_ref());
        let place = (process.dyn_mmu(), process.space().clone(), process.clock());
        // A child has one thread, for a while at least.
        let make = |kind| Rings::with(kind, CHILDS_RINGS, RING_ENTRIES);
        let swap = |rings: &RingsOnDemand| {
            let swap = parents.swap.as_ref();
            Ok(swap.map(|parents| parents.again(&self.swap, memory, rings.make())))
        };
        self.assemble(budget, place, make, swap)
    }

    fn budget(memory: usize, within: Option<&Arc<Budget>>) -> Arc<Budget> {
        let pages = (memory / PAGE_SIZE) as u64;
        match within {
            Some(parent) => Budget::nested(pages, parent),
            None => Budget::new(pages),
        }
    }

    fn assemble(
        &self,
        budget: Arc<Budget>,
        (mmu, space, clock): (Arc<dyn Mmu>, Arc<AddressSpace>, Arc<dyn Clock>),
        make: Make,
        swap: impl FnOnce(&RingsOnDemand) -> io::Result<Option<SwapBackend>>,
    ) -> io::Result<Managed> {
        let most = self.most(budget.limit() as usize * PAGE_SIZE);
        // At most half of it for faults, or the share that read-ahead may take.
        let quarters = self.policies.miss_accounting.frame_quarters().max(2);
        let frames = AnonymousFrames::new(most / 4 * quarters);
        let reads = match self.reads {
            Some(reads) => reads,
            None => environment::reads()?,
        };
        let is_default = self.memory.is_none();
        let reads = ReadPolicy::new(reads, &budget, is_default, self.may_be_kernels());
        let reads = Arc::new(reads);
        let kinds: &[_] = match self.async_reads {
            AsyncReads::Auto => &[QueueKind::Aio, QueueKind::Uring],
            AsyncReads::IoSubmit => &[QueueKind::Aio],
            AsyncReads::IoUring => &[QueueKind::Uring],
            AsyncReads::Never => &[],
        };
        let rings = RingsOnDemand::new(kinds, make);
        let swap = swap(&rings)?;
        let slots = swap.as_ref().map(|swap| swap.slots(budget.clone()));
        let slots = slots.transpose()?;
        let options = NodeOptions {
            most_bytes: most,
            policies: self.policies,
            swap: slots,
            on_reclaim: self.on_reclaim,
            reads: Some(rings.clone()),
        };
        let node = Node::new(budget, mmu, Arc::new(frames), clock, options);
        let node = node.map_err(error::budget)?;
        // Without them faults make them, where the system lets them.
        node.prepare_folios();
        node.enlist();
        exit_stats::made(&node);
        Ok(Managed {
            node,
            space,
            rings,
            reads,
            swap,
        })
    }
}

/// Default size of the largest file that the kernel maps by itself.
const SMALL_MAPS: usize = 1 << 20;

/// Rings of a child, and reads in flight in each.
const CHILDS_RINGS: usize = 2;
const RING_ENTRIES: usize = 256;
