//! The SIGBUS handler.
//!
//! It runs on the stack of the faulting thread and needs at most 3072 bytes of
//! it on top of the kernel's signal frame (3.3 KiB with AVX-512), as
//! `tests/small_stack.rs` measures. Threads with stacks of 16 KiB do, and so do
//! alternate stacks of 16 KiB on which a handler of the program's own touches a
//! map; one of SIGSTKSZ, as Rust's standard library installs, may be too small
//! for a fault that evicts or reads ahead. It uses no heap and no thread-locals
//! but errno, which it keeps.

use super::access::is_write;
use super::mask::{PendingIn, all};
use crate::huge;
use crate::process;
use crate::uffd::{errno, set_errno};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::{c_int, c_void, sigaction, siginfo_t, sigset_t, ucontext_t};
use softfault_engine::fault::{self, FaultFlags, Outcome};
use std::sync::OnceLock;

/// The address was not mapped, as far as the kernel knows: what a fault in a
/// window of ours says, of a page that is missing and of one that is protected.
/// (`si_code` of a SIGBUS, from `asm-generic/siginfo.h`.)
const BUS_ADRERR: c_int = 2;

/// Whose handler is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Installed {
    /// Ours.
    Ours,
    /// Somebody's that was installed after ours.
    Replaced,
}

struct Previous(sigaction);

// SAFETY: addresses of handlers, which belong to no thread.
unsafe impl Send for Previous {}
// SAFETY: as above; never changed.
unsafe impl Sync for Previous {}

static PREVIOUS: OnceLock<Previous> = OnceLock::new();
/// Set once `PREVIOUS` is: the handler must not meet a lock in `OnceLock`.
static READY: AtomicBool = AtomicBool::new(false);

/// Takes SIGBUS over, once a process.
pub fn install() {
    let mut previous = MaybeUninit::<sigaction>::uninit();
    // SAFETY: a sigaction of zeros is valid; the handler has the signature
    // that SA_SIGINFO asks for; the second call fills `previous`.
    let previous = unsafe {
        let mut action: sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = on_sigbus as *const () as usize;
        // Not SA_ONSTACK: alternate stacks are small, and a fault is no
        // overflow. A fault on an alternate stack is served on that.
        action.sa_flags = libc::SA_SIGINFO;
        action.sa_mask = all();
        libc::sigaction(libc::SIGBUS, &action, previous.as_mut_ptr());
        previous.assume_init()
    };
    let _ = PREVIOUS.set(Previous(previous));
    // Release pairs with the Acquire in `pass_on`.
    READY.store(true, Ordering::Release);
}

/// The same, unless it was done. Who calls keeps others from it.
pub fn install_once() {
    // Relaxed: whoever installed it had the same lock.
    if !READY.load(Ordering::Relaxed) {
        install();
    }
}

/// Whose handler is in force now.
pub fn state() -> Installed {
    let mut now = MaybeUninit::<sigaction>::uninit();
    // SAFETY: only asks; fills `now`.
    let now = unsafe {
        libc::sigaction(libc::SIGBUS, core::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    match now.sa_sigaction == on_sigbus as *const () as usize {
        true => Installed::Ours,
        false => Installed::Replaced,
    }
}

extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let errno = errno();
    // SAFETY: the kernel hands valid structures to an SA_SIGINFO handler.
    let (addr, code, context_ref) = unsafe {
        let addr = (*info).si_addr() as usize;
        (addr, (*info).si_code, &*context.cast::<ucontext_t>())
    };
    if code != BUS_ADRERR || !serve(addr, context_ref) {
        pass_on(signal, info, context);
    }
    set_errno(errno);
}

/// Serves the fault; `false` if it is not ours to serve.
fn serve(addr: usize, context: &ucontext_t) -> bool {
    if let Some(served) = huge::serve(addr) {
        return served;
    }
    let Some(process) = process::get() else {
        return false;
    };
    let flags = FaultFlags {
        write: is_write(context),
        ..FaultFlags::default()
    };
    let pending = PendingIn(&context.uc_sigmask);
    match fault::handle(process.space(), addr, flags, &pending) {
        Outcome::Mapped | Outcome::Interrupted => true,
        Outcome::Error(fault::FaultError::NotMapped) => process.mmu().was_released(addr),
        Outcome::Error(error) => {
            process.note_error(addr, error);
            false
        }
    }
}

/// Hands a signal that is not ours, or a fault that failed, to whoever had
/// SIGBUS before.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // Acquire pairs with the Release in `install`.
    let previous = match READY.load(Ordering::Acquire) {
        true => PREVIOUS.get(),
        false => None,
    };
    let Some(Previous(previous)) = previous else {
        return die(signal, info);
    };
    match previous.sa_sigaction {
        libc::SIG_DFL => die(signal, info),
        libc::SIG_IGN => {
            // SAFETY: reads what the kernel filled in.
            let sent = unsafe { (*info).si_code } <= 0;
            // Of a fault the kernel would not ignore it either.
            if !sent {
                die(signal, info);
            }
        }
        handler => {
            // The previous handler runs with the mask that it asked for.
            let mut mask: sigset_t = previous.sa_mask;
            // SAFETY: calls the handler in the form that it was installed in,
            // with what the kernel handed to us.
            unsafe {
                let context_ref = &*context.cast::<ucontext_t>();
                libc::sigaddset(&mut mask, signal);
                merge(&mut mask, &context_ref.uc_sigmask);
                libc::pthread_sigmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut());
                if previous.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                        core::mem::transmute(handler);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(c_int) = core::mem::transmute(handler);
                    handler(signal);
                }
            }
        }
    }
}

/// Adds the signals of `other` to `mask`.
fn merge(mask: &mut sigset_t, other: &sigset_t) {
    // SAFETY: the first 64 bits of a sigset_t are the kernel's signals.
    unsafe {
        let mask = core::ptr::from_mut(mask).cast::<u64>();
        let other = core::ptr::from_ref(other).cast::<u64>();
        mask.write_unaligned(mask.read_unaligned() | other.read_unaligned());
    }
}

/// The default action. A fault is raised again by the touch itself once the
/// default is back; a signal that was sent is sent again.
fn die(signal: c_int, info: *mut siginfo_t) {
    // SAFETY: restores the default; reads what the kernel filled in.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        if (*info).si_code <= 0 {
            libc::raise(signal);
        }
    }
}
