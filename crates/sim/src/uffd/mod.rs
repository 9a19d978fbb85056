//! The kernel's page tables through userfaultfd, as far as they cost: the soft
//! tables do the work, and the kernel's work beneath is costed, so
//! that its queues are seen.
//!
//! The steps of one fault of the product, by its own code
//! (`crates/softfault/src/signal`, `src/uffd`) and Linux 6.18's:
//!
//! ```text
//!   touch ── kernel's VMA lock for reading            a line of the window
//!      │     SIGBUS: signal lock, three times         a lock of the process
//!      ▼
//!   fault::handle ── the engine's own way
//!      │     └── UFFDIO_COPY: the descriptor's count  a line of a 16th of the windows
//!      │               mm_users, up and down          a line of the process
//!      │               kernel's VMA lock for reading
//!      │               the page table's lock, a page  the soft tables' leaf
//!      ▼
//!   sigreturn ── signal lock once more
//! ```
//!
//! A zap takes the kernel's `mmap_lock` for reading, unmaps, and interrupts all
//! other processors on which the process runs. So does to protect a range, or to
//! make a page writable again; a page of zeros is mapped as by a copy, protected,
//! and looked at, the latter two with `mmap_lock` for reading. To make a window takes half a
//! dozen system calls that write `mmap_lock`; windows that were given back are
//! kept for the next, 32 of them.
//!
//! The topology has the times of these ([`KernelCosts`]): measured, or from
//! its named sources. How often the signal lock is taken is its
//! `signal_lock_takings`: in `kernel/signal.c` sending a forced signal,
//! dequeueing it, setting the handler's mask and restoring the old one each
//! take `sighand->siglock`.
//!
//! Left out: copies that the kernel makes after a fork; its VMA tree, which faults only read; its allocator and
//! memory cgroup, which work by processor mostly; how long a thread that was
//! interrupted had interrupts off.
//!
//! [`KernelCosts`]: sync::topology::KernelCosts

mod fault;
mod kernel;
mod mmu;
mod spare;
mod spin;
#[cfg(test)]
mod tests;
mod windows;

pub use kernel::KernelWaits;
pub use mmu::UffdMmu;
