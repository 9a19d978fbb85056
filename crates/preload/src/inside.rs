//! A mark in a thread that is in softfault: its calls are softfault's, and go to the kernel.

use core::cell::Cell;
use core::mem::MaybeUninit;

thread_local! {
    /// Without a destructor: looking at it allocates nothing.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Signals that a thread raises by its own instructions.
const SYNCHRONOUS: [libc::c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// A thread that is in softfault, with all signals masked and errno kept.
pub struct Inside {
    mask: libc::sigset_t,
    errno: libc::c_int,
}

/// True in a thread that is in softfault.
pub fn is_inside() -> bool {
    INSIDE.get()
}

/// Enters; `None` if the thread is inside already.
pub fn enter() -> Option<Inside> {
    if is_inside() {
        return None;
    }
    let errno = crate::call::errno();
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both sets are filled before they are used.
    let mask = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        // Signals that the thread raises itself: a fault of ours among them.
        for signal in SYNCHRONOUS {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        set_mask(all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    };
    INSIDE.set(true);
    Some(Inside { mask, errno })
}

/// Sets the thread's mask past the hooks, which may have to enter for it.
///
/// # Safety
/// As of sigprocmask(2).
unsafe fn set_mask(mask: *const libc::sigset_t, before: *mut libc::sigset_t) {
    /// Bytes of the kernel's set.
    const BYTES: usize = 8;
    let (number, how) = (libc::SYS_rt_sigprocmask, libc::SIG_SETMASK);
    // SAFETY: the caller's promise; the C library's set begins with the kernel's.
    unsafe { softfault::system_call!(number, how, mask, before, BYTES) };
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
        // SAFETY: the mask that was in force before.
        unsafe { set_mask(&self.mask, core::ptr::null_mut()) };
        crate::call::set_errno(self.errno);
    }
}
