//! Masking signals, and seeing the pending ones.

use super::cancel::{self, NoCancel};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use libc::{c_int, sigset_t};
use softfault_engine::fault::Interrupt;

/// Signals that a thread's own instructions raise: never masked, since the
/// process would die of them.
const SYNCHRONOUS: [c_int; 6] = [
    libc::SIGBUS,
    libc::SIGSEGV,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// The kernel's set of a signal.
const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Those of [`SYNCHRONOUS`] that threads of ours do not block. All by default: such a thread may run code that is not ours, a waker, and
/// somebody's handler may serve its faults. Relaxed: set before there are such threads.
static UNBLOCKED_IN_THREADS: AtomicU64 = AtomicU64::new(u64::MAX);

/// For `softfault run`, whose threads run nothing of the program's: those that are started from now on block all signals but these, so
/// that one which is sent to the process, and which all of the program's threads block, stays pending.
pub fn threads_unblock_only(signals: &[c_int]) {
    let set = signals.iter().fold(0, |set, &signal| set | bit(signal));
    UNBLOCKED_IN_THREADS.store(set, Relaxed);
}

/// All signals.
pub(crate) fn all() -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset fills the set.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Masks all signals in this thread for ever: all that are sent to the process are for the program's
/// threads.
pub fn mask_all() {
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &all(), core::ptr::null_mut()) };
}

/// Changes the mask by the kernel's own call: the C library's leaves signals of its own out, and to restore a mask that has them would
/// unblock them. `softfault run` has a thread that hears of writers by one of these.
///
/// # Safety
/// The sets are valid; the kernel's signals are the first 64 bits of one, also of that which is filled.
unsafe fn change(how: c_int, set: *const sigset_t, before: *mut sigset_t) {
    // SAFETY: the caller's promise.
    unsafe { sync::system_call!(libc::SYS_rt_sigprocmask, how, set, before, size_of::<u64>()) };
}

/// Signals are masked in this thread while this lives, and nobody cancels it.
pub struct Masked {
    before: sigset_t,
    /// Dropped after the mask is restored.
    _no_cancel: NoCancel,
}

/// Masks all signals that another thread or process can send, but those that the C library
/// keeps to itself: the one that cancels threads finds cancelling disabled.
pub fn masked() -> Masked {
    masked_but(u64::MAX)
}

/// The same while a thread of ours is started, which inherits the mask.
pub(crate) fn masked_for_start() -> Masked {
    masked_but(UNBLOCKED_IN_THREADS.load(Relaxed))
}

/// Masks all but those of [`SYNCHRONOUS`] that are in a set of the kernel's.
fn masked_but(unmasked: u64) -> Masked {
    let no_cancel = cancel::disabled();
    let mut set = all();
    // Zeros are a set too, of no signals: where the call is denied, none is masked.
    let mut before = MaybeUninit::zeroed();
    // SAFETY: both sets are valid; the second is filled by the call, or stays.
    let before = unsafe {
        for signal in SYNCHRONOUS {
            if unmasked & bit(signal) != 0 {
                libc::sigdelset(&mut set, signal);
            }
        }
        change(libc::SIG_BLOCK, &set, before.as_mut_ptr());
        before.assume_init()
    };
    Masked {
        before,
        _no_cancel: no_cancel,
    }
}

impl Masked {
    /// Sees signals that would be delivered but for this mask.
    pub fn pending(&self) -> PendingIn<'_> {
        PendingIn(&self.before)
    }

    /// Lets pending signals be delivered now.
    pub fn deliver_pending(self) -> Masked {
        drop(self);
        masked()
    }

    /// True if SIGBUS is masked by the thread itself: it would die at its next
    /// fault.
    pub fn sigbus_was_blocked(&self) -> bool {
        // SAFETY: a valid set.
        unsafe { libc::sigismember(&self.before, libc::SIGBUS) == 1 }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: the set that was in force before.
        unsafe { change(libc::SIG_SETMASK, &self.before, core::ptr::null_mut()) };
    }
}

/// Signals that are pending and that this mask, which was in force before,
/// lets through.
pub struct PendingIn<'a>(&'a sigset_t);

impl<'a> PendingIn<'a> {
    /// Of a mask that a handler has interrupted.
    pub fn new(before: &'a sigset_t) -> Self {
        Self(before)
    }
}

impl Interrupt for PendingIn<'_> {
    fn pending(&self) -> bool {
        let mut pending = MaybeUninit::<sigset_t>::uninit();
        // SAFETY: the call fills the set; the first 64 bits of a sigset_t are
        // the kernel's signals, in both sets.
        unsafe {
            if libc::sigpending(pending.as_mut_ptr()) != 0 {
                return false;
            }
            let pending = pending.as_ptr().cast::<u64>().read_unaligned();
            let blocked = core::ptr::from_ref(self.0).cast::<u64>().read_unaligned();
            pending & !blocked != 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::{SIGCANCEL, kernel};

    /// Failed before: the signal was unblocked, and the next of a file's lease ended the process if its thread was at work.
    #[test]
    fn a_signal_of_the_c_librarys_stays_masked() {
        let own = 1_u64 << (SIGCANCEL - 1);
        let set = [own, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: a set of as many bytes as the C library's.
        unsafe { change(libc::SIG_BLOCK, set.as_ptr().cast(), core::ptr::null_mut()) };
        let before = kernel::blocked();
        assert_eq!(before & own, own);
        let masked = masked();
        assert_ne!(kernel::blocked(), before);
        drop(masked);
        assert_eq!(kernel::blocked(), before);
    }
}
