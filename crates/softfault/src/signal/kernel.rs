//! Actions as the kernel has them: the C library's functions may be somebody's (`LD_PRELOAD`), who keeps the program's
//! action for SIGBUS aside and answers with that.

use core::ffi::c_int;

/// The structure that the kernel takes, on x86-64 and on aarch64.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct KernelAction {
    /// The handler, `SIG_DFL` or `SIG_IGN`.
    pub handler: usize,
    pub flags: usize,
    restorer: usize,
    /// The kernel's signals.
    pub mask: u64,
}

static DEFAULT: KernelAction = KernelAction {
    handler: libc::SIG_DFL,
    flags: 0,
    restorer: 0,
    mask: 0,
};

/// The action for a signal.
pub fn ask(signal: c_int) -> KernelAction {
    let mut now = KernelAction { ..DEFAULT };
    // SAFETY: only asks, and fills the structure.
    unsafe {
        let (new, old) = (core::ptr::null::<KernelAction>(), &raw mut now);
        sync::system_call!(libc::SYS_rt_sigaction, signal, new, old, size_of::<u64>())
    };
    now
}

/// Puts a signal's default action in force.
pub fn set_default(signal: c_int) {
    // SAFETY: no handler, which would need the C library to return by.
    unsafe {
        let (new, old) = (&raw const DEFAULT, core::ptr::null::<KernelAction>());
        sync::system_call!(libc::SYS_rt_sigaction, signal, new, old, size_of::<u64>())
    };
}

/// The signals that are blocked in this thread.
pub fn blocked() -> u64 {
    let (how, set, mut blocked) = (libc::SIG_BLOCK, core::ptr::null::<u64>(), 0_u64);
    let bytes = size_of::<u64>();
    // SAFETY: fills a set of the size that is named.
    unsafe { sync::system_call!(libc::SYS_rt_sigprocmask, how, set, &raw mut blocked, bytes) };
    blocked
}

/// Lets a signal be delivered to this thread.
pub fn unblock(signal: c_int) {
    let set = 1_u64 << (signal - 1);
    let (set, before) = (&raw const set, core::ptr::null::<u64>());
    let how = libc::SIG_UNBLOCK;
    // SAFETY: a set of the size that is named.
    unsafe { sync::system_call!(libc::SYS_rt_sigprocmask, how, set, before, size_of::<u64>()) };
}
