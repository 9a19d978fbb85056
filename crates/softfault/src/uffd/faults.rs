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
    /// touch maps, or touch them on alternate stacks too small for a handler of ours. Each fault
    /// costs two switches of threads, and up to 64 faults are served at a time.
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
}
