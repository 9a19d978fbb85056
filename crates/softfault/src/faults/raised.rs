//! A SIGBUS that a handler raises to hand a fault on.
//!
//! A crash reporter that was installed after us gets our faults. Python's `faulthandler`
//! then restores the handler before it, which is ours, raises the signal, and returns:
//! the touch would fault again, and be served; but the raised signal comes first, and
//! says nothing of a fault. It differs from a signal that the program means:
//!
//! - the processor's last fault in this thread that became a signal was in a map of ours,
//!   which every signal's context says, also that of one that was raised;
//! - it was not served: the page is not there, or was written to;
//! - its own frame is still on the stack, below the handler that raises.
//!
//! A stale frame of a fault that was served may look the same. So this is not asked where no handler of the program's is ever
//! in front of ours (`softfault run`).
//!
//! And not twice without a fault that is served: a program that goes on raising means it. Known for
//! x86-64 only; elsewhere such a signal ends the process, as it did.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use libc::ucontext_t;

/// Where the frame is for which a raised signal was taken as handed on, until a fault is
/// served.
static HANDED_ON: AtomicUsize = AtomicUsize::new(0);

/// A fault was served.
#[inline]
pub(super) fn served() {
    // Relaxed: a word. A write only where there is something to forget.
    if HANDED_ON.load(Relaxed) != 0 {
        HANDED_ON.store(0, Relaxed);
    }
}

/// True if the handler of a fault of ours has raised this signal.
pub(super) fn hands_a_fault_on(context: &ucontext_t) -> bool {
    let frame = frame::of_unserved_fault(context);
    frame.is_some_and(|frame| HANDED_ON.swap(frame, Relaxed) != frame)
}

#[cfg(not(target_arch = "x86_64"))]
mod frame {
    /// Not known.
    pub(super) fn of_unserved_fault(_: &libc::ucontext_t) -> Option<usize> {
        None
    }
}

#[cfg(target_arch = "x86_64")]
mod frame {
    use crate::huge_faults;
    use crate::process;
    use crate::signal::is_write;
    use core::mem::offset_of;
    use libc::{c_void, ucontext_t};
    use softfault_engine::PAGE_SIZE;

    /// The processor's number of a page fault.
    const PAGE_FAULT: i64 = 14;
    /// How far up the stack the frame is looked for.
    const FAR: usize = 64 << 10;
    /// Words at a time. The handler's stack is small.
    const WORDS: usize = 128;
    /// Words of a context that are looked at: the trap's number, a mask, the address.
    const TRAP: usize = 3;

    /// Where the frame of the thread's last fault is, if that was ours and is not served.
    // Its buffers are not on the stack of faults that are served.
    #[inline(never)]
    pub(super) fn of_unserved_fault(context: &ucontext_t) -> Option<usize> {
        let registers = &context.uc_mcontext.gregs;
        let addr = registers[libc::REG_CR2 as usize] as usize;
        let is_fault = registers[libc::REG_TRAPNO as usize] == PAGE_FAULT && is_ours(addr);
        if !is_fault || (is_there(addr) && !is_write(context)) {
            return None;
        }
        // Behind this context's own mask.
        let own = core::ptr::from_ref(context) as usize + offset_of!(ucontext_t, uc_sigmask);
        let (mut at, end) = (own, own + FAR);
        let mut words = [0_u64; WORDS];
        while at < end {
            let read = read(at, &mut words);
            let is_frame =
                |words: &&[u64]| words[0] == PAGE_FAULT as u64 && words[2] == addr as u64;
            let place = words[..read]
                .windows(TRAP)
                .position(|words| is_frame(&words));
            if let Some(place) = place {
                return Some(at + place * size_of::<u64>());
            }
            at += read.checked_sub(TRAP - 1).filter(|&done| done > 0)? * size_of::<u64>();
        }
        None
    }

    /// Copies words of the stack, as far as it goes; returns how many.
    fn read(at: usize, words: &mut [u64; WORDS]) -> usize {
        let local = libc::iovec {
            iov_base: words.as_mut_ptr().cast(),
            iov_len: size_of_val(words),
        };
        let remote = libc::iovec {
            iov_base: at as *mut c_void,
            iov_len: local.iov_len,
        };
        // SAFETY: writes to the array alone; unreadable memory is an error, or makes it
        // shorter.
        let done = unsafe { libc::process_vm_readv(libc::gettid(), &local, 1, &remote, 1, 0) };
        usize::try_from(done).map_or(0, |bytes| bytes / size_of::<u64>())
    }

    /// True if a map of ours has the address.
    fn is_ours(addr: usize) -> bool {
        let space = process::get().map(|process| process.space());
        space.is_some_and(|space| space.lock_vma(addr).is_some()) || huge_faults::has(addr)
    }

    /// True if its page is there.
    fn is_there(addr: usize) -> bool {
        let mut there = 0;
        let page = (addr & !(PAGE_SIZE - 1)) as *mut c_void;
        // SAFETY: asks for one page, and fills one byte.
        unsafe { sync::kernel_calls::mincore(page, PAGE_SIZE, &mut there) == 0 && there & 1 != 0 }
    }
}
