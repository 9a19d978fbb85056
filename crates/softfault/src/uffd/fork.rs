//! What becomes of the page tables when the process forks.
//!
//! A child inherits no userfaultfd with a mapping: what of a window the kernel
//! gives to it is plain memory there, nothing of it is protected, and a missing
//! page would be filled with zeros. The descriptors it inherits mean the parent.

use super::mmu::{CLOSED, UffdMmu, Windows};
use core::ops::Range;
use core::sync::atomic::Ordering;
use libc::c_void;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{MmuError, Reservation};
use std::sync::MutexGuard;

impl UffdMmu {
    /// Keeps the list of windows still while the process forks.
    pub fn fork_prepare(&self) -> MutexGuard<'_, Windows> {
        self.windows()
    }

    /// In the child: nothing of the parent's is to be touched through what was
    /// inherited, and every window answers with SIGSEGV.
    pub fn fork_child(&self, windows: &Windows) {
        for slot in &self.descriptors {
            let fd = slot.swap(CLOSED, Ordering::Relaxed);
            if fd != CLOSED {
                // SAFETY: inherited, acts on the parent, and not used again.
                unsafe { libc::close(fd) };
            }
        }
        self.zap.fork_child();
        for (&start, &(end, _)) in windows {
            // SAFETY: the place is empty (the window was not inherited), and
            // NOREPLACE leaves alone what somebody may have put there.
            unsafe {
                libc::mmap(
                    start as *mut c_void,
                    end - start,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE
                        | libc::MAP_ANONYMOUS
                        | libc::MAP_NORESERVE
                        | libc::MAP_FIXED_NOREPLACE,
                    -1,
                    0,
                )
            };
        }
    }

    /// In the child, after [`fork_child`](Self::fork_child): page tables of the
    /// child's own, for it to [`adopt`](Self::adopt) windows or make others. What
    /// is not named here is opened when it is needed.
    #[allow(dead_code)] // For forks whose child goes on.
    pub fn reopen_in_child(&self) {
        self.zap.reopen_in_child();
        self.pagemap.reopen_in_child();
    }

    /// Takes over, in a child, memory that was a window of the parent's and was
    /// inherited: it shows what the parent's showed, and what is missing is
    /// missing. Nothing is protected, and writes go to copies. Nobody has touched
    /// it yet: the kernel would have filled it with zeros.
    #[allow(dead_code)] // As above.
    pub fn adopt(
        &self,
        range: Range<usize>,
        protection: Protection,
    ) -> Result<Reservation, MmuError> {
        self.register(range, protection)
    }
}
