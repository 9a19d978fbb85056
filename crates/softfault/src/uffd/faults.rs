//! How the kernel tells of a touch of a missing page.

/// How a touch of a missing page reaches the engine. One way a process: its first engine over
/// userfaultfd chooses it, and another is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Faults {
    /// By SIGBUS, in the thread that touches. The fastest.
    #[default]
    Signals,
    /// By threads of the engine: the thread that touches sleeps in the kernel meanwhile. No
    /// SIGBUS handler, mask or default of the program's matters, and no handler is installed.
    ///
    /// For programs that install SIGBUS handlers again and again, block SIGBUS in threads that
    /// touch maps, or touch them on alternate stacks too small for a handler of ours. One touch at a time
    /// costs switches of threads that a signal does not; where many threads touch, a few threads of the engine serve them all. Up to
    /// 256 reads past the page cache are under way at a time, and 64 other waits.
    ///
    /// A touch that fails is a SIGBUS still: sent by us (`si_code` is `SI_QUEUE`), with the address
    /// in `si_addr` (before Linux 5.18 the page's). It ends the process where the thread blocks or ignores SIGBUS, as
    /// the kernel's does. The thread's mask is read in `/proc`; where that is not mounted, a failing
    /// touch of a thread that blocks SIGBUS is repeated for ever.
    ///
    /// The threads live as long as the process: one whose first thread ends by `pthread_exit` has to
    /// call `exit` when it is done, since libc waits for ours too. [`HugeMemory`](crate::HugeMemory)
    /// goes on using SIGBUS.
    Threads,
    /// As [`Threads`](Self::Threads), and what the kernel touches for a system call is served too: `write(2)` from a page
    /// that is not in memory waits for it, as in a mapping of the kernel's own, and every other call does.
    ///
    /// The system has to allow it: `/dev/userfaultfd` may be opened, `vm.unprivileged_userfaultfd` is 1, or the process
    /// has CAP_SYS_PTRACE. `/proc/self/mem` has to be there and may be opened. A call whose page cannot be had fails with EFAULT (Linux 6.6); until the page is evicted or unmapped,
    /// a touch of it raises SIGBUS. `/proc/self/mem` and debuggers get EIO from pages that are not in memory.
    Messages,
}

impl Faults {
    /// True if threads of the engine serve faults.
    pub(crate) fn by_threads(self) -> bool {
        self != Self::Signals
    }
}
