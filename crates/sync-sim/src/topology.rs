//! A machine to simulate: how many cores, how far apart, and the costs
//! on it. Times are picoseconds, so that an access that hits is not nothing.

use serde::{Deserialize, Serialize};

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// How it is named on the command line.
    pub name: String,
    /// Where its figures are from.
    pub source: String,
    /// Sockets.
    pub sockets: u16,
    /// NUMA nodes of a socket.
    pub nodes: u16,
    /// Groups of cores of a node that share a last-level cache.
    pub clusters: u16,
    /// Cores of such a group.
    pub cores: u16,
    /// Hardware threads of a core; each is a CPU.
    pub smt: u16,
    /// In which order CPUs are filled.
    pub placement: Placement,
    /// By how many percent work takes longer while another hardware thread of its core works too.
    pub smt_extra: u64,
    /// The cost of cache lines.
    pub line: LineCosts,
    /// Memory, which CPUs share.
    pub memory: MemoryCosts,
    /// The cost of the scheduler.
    pub scheduler: SchedulerCosts,
    /// The cost of the bytes of pages.
    pub page: PageCosts,
    /// The disk.
    pub disk: Disk,
    /// The cost of the kernel beneath real page faults.
    pub kernel: KernelCosts,
}

/// In which order CPUs are given work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// By turns over sockets, nodes and clusters; SMT siblings last: as a
    /// load balancer places threads that all run.
    Spread,
    /// A cluster after the other, siblings last.
    Packed,
}

/// The cost of cache lines, in picoseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineCosts {
    /// The instructions between two operations of the facade.
    pub code: u64,
    /// A load or store that hits.
    pub hit: u64,
    /// The cost of a read-modify-write beyond the line's being there.
    pub rmw: u64,
    /// A line that comes from the hardware thread beside.
    pub sibling: u64,
    /// From a core with the same last-level cache.
    pub cluster: u64,
    /// From another cluster of the node.
    pub node: u64,
    /// From another node of the socket.
    pub socket: u64,
    /// From another socket.
    pub remote: u64,
    /// From memory of the own socket: nobody has it.
    pub memory: u64,
    /// How long a core keeps a line that it was granted from others that want it.
    pub hold: u64,
}

/// Memory, which CPUs share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryCosts {
    /// Bytes a second of one node, for all CPUs together.
    pub bandwidth: u64,
    /// A line from memory of another socket, in picoseconds.
    pub remote: u64,
}

/// The cost of the scheduler, in picoseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerCosts {
    /// Into the kernel and back, for a call that does nothing.
    pub call: u64,
    /// From one thread to another on a CPU.
    pub switch: u64,
    /// The cost of a wake-up for the waker.
    pub wake: u64,
    /// From a wake-up to running on an idle CPU.
    pub wake_latency: u64,
    /// How long a thread runs while others wait for its CPU.
    pub slice: u64,
}

/// The cost of the bytes of pages, in picoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageCosts {
    /// Clearing a page of 4 KiB.
    pub clear: u64,
    /// Copying one.
    pub copy: u64,
    /// Mapping memory from the system for the engine itself, a call.
    pub map: u64,
}

/// A disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// From submission to completion of a small read on an idle disk, in picoseconds.
    pub latency: u64,
    /// Bytes a second, all requests together.
    pub bandwidth: u64,
    /// Requests that it works on at a time.
    pub depth: u32,
    /// How long each request keeps all others from the wire, besides its bytes, in picoseconds: so many requests a second
    /// at most.
    #[serde(default)]
    pub request: u64,
    /// Processor time of a read, in picoseconds.
    pub submit: u64,
}

/// The cost of the kernel beneath real page faults, in picoseconds, besides the
/// lines that its locks are on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelCosts {
    /// A fault that ends in SIGBUS and its handler's return, without the locks.
    pub signal: u64,
    /// How long the signal path holds the process's signal lock, each time.
    pub signal_lock: u64,
    /// How many times it takes it a fault.
    pub signal_lock_takings: u32,
    /// UFFDIO_COPY without the pages, and without its locks.
    pub uffd_copy: u64,
    /// Each page of it, copied into memory that was used before.
    pub uffd_copy_page: u64,
    /// Unmapping, a batch.
    pub zap: u64,
    /// Unmapping, a page.
    pub zap_page: u64,
    /// Interrupting another CPU that runs the process, for a shootdown: the
    /// cost for the sender, each.
    pub ipi_send: u64,
    /// The cost for each interrupted CPU.
    pub ipi_receive: u64,
    /// mmap or munmap of a window, without its locks.
    pub map: u64,
}

impl Topology {
    /// NUMA nodes of all sockets.
    pub fn memory_nodes(&self) -> usize {
        usize::from(self.sockets) * usize::from(self.nodes)
    }

    /// CPUs: hardware threads.
    pub fn cpus(&self) -> usize {
        [
            self.sockets,
            self.nodes,
            self.clusters,
            self.cores,
            self.smt,
        ]
        .iter()
        .map(|&n| usize::from(n))
        .product()
    }
}
