//! This process's memory as a file, `/proc/self/mem`: reading it never waits for the server of faults.
//!
//! With [`Faults::Messages`](super::Faults::Messages) a system call that reads a missing page sleeps until it is served. A thread that looks at a page
//! of the program's has it locked, so the thread that serves the fault would wait for the lock, and neither would go on.
//!
//! A read of this file takes the pages one by one, and keeps `mmap_lock` over each: `access_remote_vm` gives the fault no
//! FAULT_FLAG_ALLOW_RETRY. userfaultfd sleeps only where it may drop that lock, and otherwise answers VM_FAULT_SIGBUS
//! (`handle_userfault`): the read is short, or EIO. So it is in all versions that have both, since a debugger reads in this way and must not
//! hang. (A kernel with CONFIG_DEBUG_VM also logs it.) All other missing pages, as those in the system's swap, are
//! brought in, and a protection does not matter (FOLL_FORCE).

use crate::table::Working;
use libc::c_int;

/// The file.
pub(super) struct Memory(Working);

impl Memory {
    /// Opens it; the errno where there is none, or where this process may not be looked at (PR_SET_DUMPABLE).
    pub(super) fn open() -> Result<Self, c_int> {
        Working::open_to_read(c"/proc/thread-self/mem").map(Self)
    }

    /// Copies bytes out as far as they are there: how many. EIO if the first is not.
    ///
    /// # Safety
    /// `to` is writable for `bytes`.
    pub(super) unsafe fn copy(
        &self,
        from: usize,
        to: *mut u8,
        bytes: usize,
    ) -> Result<usize, c_int> {
        let args = [to.addr(), bytes, from, 0, 0];
        // SAFETY: fills the caller's bytes alone.
        unsafe { self.0.call_checked_twice(libc::SYS_pread64, args) }
    }

    /// The inherited descriptor means the parent: it must not be used.
    pub(super) fn fork_child(&self) {
        self.0.close();
    }
}
