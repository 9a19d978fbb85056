//! A mark in a thread that is in softfault: its calls are softfault's, and go to the kernel.

use core::cell::Cell;
use softfault::NoCancel;

thread_local! {
    /// Without a destructor: looking at it allocates nothing.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Signals that a thread raises by its own instructions, a fault of ours among them, and the C library's for `setuid(2)` of all
/// threads, which waits for each. They stay as the program has them: one that it blocks and that is pending is not delivered here.
const UNMASKED: [libc::c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    softfault::SIGCANCEL + 1,
];

/// The kernel's mask of all others.
const MASK: u64 = {
    let (mut mask, mut at) = (u64::MAX, 0);
    while at < UNMASKED.len() {
        mask &= !(1 << (UNMASKED[at] - 1));
        at += 1;
    }
    mask
};

/// A thread that is in softfault, with all other signals masked and errno kept. Nobody cancels it: it may hold locks, and what it
/// does for the program is no cancellation point.
pub struct Inside {
    mask: u64,
    errno: libc::c_int,
    /// Dropped after the mask is restored.
    _no_cancel: NoCancel,
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
    // First: a thread of the asynchronous type is cancelled anywhere, where that is not disabled.
    let no_cancel = softfault::cancel_disabled();
    let mask = change_mask(libc::SIG_BLOCK, MASK);
    INSIDE.set(true);
    Some(Inside {
        mask,
        errno,
        _no_cancel: no_cancel,
    })
}

/// Changes the thread's mask past the hooks, which may have to enter for it; the mask before.
fn change_mask(how: libc::c_int, mask: u64) -> u64 {
    let (number, mut before) = (libc::SYS_rt_sigprocmask, 0_u64);
    // SAFETY: two sets of the kernel's size.
    unsafe { softfault::system_call!(number, how, &mask, &mut before, size_of::<u64>()) };
    before
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
        change_mask(libc::SIG_SETMASK, self.mask);
        crate::call::set_errno(self.errno);
    }
}
