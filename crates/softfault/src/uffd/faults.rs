//! How the kernel tells of a touch of a missing page.

/// How a touch of a missing page reaches the engine. A process has one way: its first engine over
/// userfaultfd chooses it, and an engine with another way is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Faults {
    /// By SIGBUS, in the touching thread (`UFFD_FEATURE_SIGBUS`). The fastest way.
    #[default]
    Signals,
    /// By threads of the engine, which read userfaultfd's events; the touching thread sleeps in the kernel meanwhile. Only
    /// faults of user mode are served (`UFFD_USER_MODE_ONLY`): a system call on a missing page fails. The program's
    /// SIGBUS handlers, signal masks and defaults do not matter, and no handler is installed.
    ///
    /// For programs that install SIGBUS handlers again and again, block SIGBUS in threads that
    /// touch maps, or touch maps on alternate stacks that are too small for our handler. A touch costs two
    /// thread switches, which a signal does not need; if many threads touch, a few threads of the engine serve them all. Up to
    /// 256 direct reads are in flight at a time, and 64 other waits.
    ///
    /// A touch that fails still raises SIGBUS. The library sends it (`si_code` is `SI_QUEUE`), with the address
    /// in `si_addr` (before Linux 5.18 the address of the page). It ends the process if the thread blocks or ignores SIGBUS, as
    /// the kernel's SIGBUS does. The library reads the thread's mask from `/proc`; if that is not mounted, a failing
    /// touch of a thread that blocks SIGBUS is repeated for ever.
    ///
    /// The threads live as long as the process. If the first thread of a program ends by `pthread_exit`, the program has to
    /// call `exit` at its end, because libc waits for our threads too. [`HugeMemory`](crate::HugeMemory)
    /// uses SIGBUS in this mode too.
    Threads,
    /// As [`Threads`](Self::Threads), without `UFFD_USER_MODE_ONLY`: faults of the kernel in system calls are served too. `write(2)` from a page
    /// that is not in memory waits for the page, as in a mapping of the kernel. Every other system call does so too.
    ///
    /// The system has to allow it: the process may open `/dev/userfaultfd`, `vm.unprivileged_userfaultfd` is 1, or the process
    /// has CAP_SYS_PTRACE. The process must also be able to open `/proc/self/mem`. A system call whose page cannot be read
    /// fails with EFAULT (Linux 6.6). From then on calls that read that page fail and a touch of it raises SIGBUS, also once it could be
    /// read again, until it is unmapped, or is read with a page beside it. Reads of
    /// `/proc/self/mem`, and debuggers, get EIO for pages that are not in memory.
    Messages,
}

impl Faults {
    /// True if threads of the engine serve faults.
    pub(crate) fn by_threads(self) -> bool {
        self != Self::Signals
    }
}
