//! The SIGBUS handler.
//!
//! It runs on the stack of the faulting thread and needs at most 3072 bytes of
//! it on top of the kernel's signal frame (3.3 KiB with AVX-512), as
//! `tests/small_stack.rs` measures. Threads with stacks of 16 KiB do, and so do
//! alternate stacks of 16 KiB on which a handler of the program's own touches a
//! map; one of SIGSTKSZ, as Rust's standard library installs, may be too small
//! for a fault that evicts or reads ahead, and for any where the kernel's frame is that large:
//! there are two of them on it. It uses no heap, unless parts of windows were given
//! away (`uffd/given.rs`), which the library does under `softfault run` alone; and no thread-locals
//! but errno, which it keeps.

use super::chain::{self, Action, FORMS};
use super::raised;
use crate::errno::{errno, set_errno};
use crate::huge_faults;
use crate::process;
use crate::signal::kernel;
use crate::signal::{Masked, PendingIn, SIGCANCEL, all, cancel_disabled, is_write};
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use libc::{c_int, c_void, sigaction, siginfo_t, sigset_t, ucontext_t};
use softfault_engine::fault::{self, FaultFlags, Outcome};
use softfault_engine::stage::Stage;
use std::io;
use sync::stage;

/// The address was not mapped, as far as the kernel knows: the code of a fault in a
/// window of ours, on a missing page and on a protected one.
/// (`si_code` of a SIGBUS, from `asm-generic/siginfo.h`.)
const BUS_ADRERR: c_int = 2;
/// A broken page, which nobody has touched.
const BUS_MCEERR_AO: c_int = 5;

/// Whose handler is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Installed {
    /// Ours.
    Ours,
    /// Somebody's that was installed after ours.
    Replaced,
}

/// True once an engine said that a handler in front of ours passes our signals on.
static TRUSTED: AtomicBool = AtomicBool::new(false);

/// The handler, in all its forms. One place: a function may have several addresses.
static HANDLERS: [extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void); FORMS] = [
    on_sigbus::<0>,
    on_sigbus::<1>,
    on_sigbus::<2>,
    on_sigbus::<3>,
    on_sigbus::<4>,
    on_sigbus::<5>,
    on_sigbus::<6>,
    on_sigbus::<7>,
    on_sigbus::<8>,
    on_sigbus::<9>,
    on_sigbus::<10>,
    on_sigbus::<11>,
    on_sigbus::<12>,
    on_sigbus::<13>,
    on_sigbus::<14>,
    on_sigbus::<15>,
];

/// Puts a form of ours in force, unless one is: it passes on to the action that was in force,
/// which it knows before its first signal. Also in a child of fork, which may have a
/// handler of its own by then.
pub(crate) fn install() -> Installed {
    let now = ask();
    if is_ours(&now) {
        return Installed::Ours;
    }
    let Some(form) = chain::take(now) else {
        return Installed::Replaced;
    };
    let before = put(form);
    // Somebody was faster, and is to be passed on to.
    if before != now
        && !is_ours(&before)
        && let Some(form) = chain::take(before)
    {
        put(form);
    }
    Installed::Ours
}

/// Sets the program's action for SIGBUS to `now`, if there is one; returns the action before. `None` where no
/// handler of ours is in force: then the kernel has the action.
///
/// For a caller that gets the program's calls of sigaction(2), and does not hand them on.
#[doc(hidden)]
pub fn program_sigbus(now: Option<&sigaction>) -> Option<sigaction> {
    if !chain::is_begun() {
        return None;
    }
    let before = chain::predecessor(0);
    if let Some(now) = now {
        chain::replace(action(now));
    }
    // SAFETY: a sigaction of zeros is valid, and the first 64 bits of a set are the kernel's signals.
    unsafe {
        let mut shown: sigaction = MaybeUninit::zeroed().assume_init();
        shown.sa_sigaction = before.handler;
        shown.sa_flags = before.flags;
        (&raw mut shown.sa_mask)
            .cast::<u64>()
            .write_unaligned(before.mask);
        Some(shown)
    }
}

/// Every call of the program's that sets its action for SIGBUS comes to [`program_sigbus`] from now on, and not to the kernel: no
/// handler of its own gets our faults, and a SIGBUS that one raises is meant.
#[doc(hidden)]
pub fn set_sigbus_calls_intercepted() {
    chain::set_calls_intercepted();
}

/// Installs our handler again over one that was installed after it, unless that is trusted.
/// Cheap where nobody was: one system call. False if that handler stays in front, since all forms of ours are used up.
pub fn reinstall_handler() -> bool {
    !may_reinstall_handler() || install() == Installed::Ours
}

fn may_reinstall_handler() -> bool {
    // Relaxed: a program that trusts a handler says so before it installs it.
    chain::is_begun() && !TRUSTED.load(Relaxed)
}

/// Handlers that are installed after ours pass our signals on: they stay in front.
fn trust_handlers() {
    TRUSTED.store(true, Relaxed);
}

/// A fault in this thread must reach our handler. `trust`: other handlers pass on the signals that are not theirs.
pub(crate) fn check_handlers(trust: bool, masked: &Masked) -> io::Result<()> {
    if masked.sigbus_was_blocked() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "SIGBUS is blocked in this thread: its first touch of a map would kill the process",
        ));
    }
    if trust {
        trust_handlers();
        return Ok(());
    }
    let in_force = match may_reinstall_handler() {
        true => install(),
        false => state(),
    };
    if in_force == Installed::Replaced {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "a SIGBUS handler is installed again and again after the engine's: faults would \
             not be served (the option trust_signal_handlers is for one that passes on signals that it does not know)",
        ));
    }
    Ok(())
}

/// Whose handler is in force now.
fn state() -> Installed {
    match is_ours(&ask()) {
        true => Installed::Ours,
        false => Installed::Replaced,
    }
}

fn is_ours(action: &Action) -> bool {
    HANDLERS.iter().any(|&ours| ours as usize == action.handler)
}

/// The handler in force.
fn ask() -> Action {
    let now = kernel::ask(libc::SIGBUS);
    Action {
        handler: now.handler,
        flags: now.flags as c_int,
        mask: now.mask,
    }
}

/// Puts a form in force, and returns the handler that was in force.
fn put(form: usize) -> Action {
    let mut before = MaybeUninit::<sigaction>::zeroed();
    // SAFETY: a sigaction of zeros is valid; the handler has the signature
    // that SA_SIGINFO asks for; the call fills `before`.
    action(&unsafe {
        let mut action: sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = HANDLERS[form] as usize;
        // Not SA_ONSTACK: alternate stacks are small, and a fault is no
        // overflow. A fault on an alternate stack is served on that.
        action.sa_flags = libc::SA_SIGINFO;
        action.sa_mask = with(all(), SIGCANCEL);
        libc::sigaction(libc::SIGBUS, &action, before.as_mut_ptr());
        before.assume_init()
    })
}

/// A set and a signal that the C library would not add to it.
fn with(mut set: sigset_t, signal: c_int) -> sigset_t {
    let word = core::ptr::from_mut(&mut set).cast::<u64>();
    // SAFETY: the first 64 bits of a sigset_t are the kernel's signals.
    unsafe { word.write_unaligned(word.read_unaligned() | 1 << (signal - 1)) };
    set
}

fn action(action: &sigaction) -> Action {
    Action {
        handler: action.sa_sigaction,
        flags: action.sa_flags,
        mask: word(&action.sa_mask),
    }
}

/// The kernel's signals of a set: its first 64 bits.
fn word(set: &sigset_t) -> u64 {
    // SAFETY: a set is no smaller.
    unsafe { core::ptr::from_ref(set).cast::<u64>().read_unaligned() }
}

/// A thread that was cancelled meanwhile ends at the end of the fault, and unwinds from here.
extern "C-unwind" fn on_sigbus<const FORM: usize>(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    handle_sigbus(FORM, signal, info, context);
}

fn handle_sigbus(form: usize, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    stage::enter(Stage::Handler as u8);
    let errno = errno();
    // SAFETY: the kernel hands valid structures to an SA_SIGINFO handler.
    let (addr, code, context_ref) = unsafe {
        let addr = (*info).si_addr() as usize;
        (addr, (*info).si_code, &*context.cast::<ucontext_t>())
    };
    let no_cancel = cancel_disabled();
    let served = code == BUS_ADRERR && serve(addr, context_ref);
    drop(no_cancel);
    if served {
        raised::served();
    } else if !(code == libc::SI_TKILL
        && raised_here(info)
        && chain::may_have_later_handlers()
        && raised::hands_a_fault_on(context_ref))
    {
        pass_on(form, signal, info, context);
    }
    set_errno(errno);
    stage::enter(Stage::Return as u8);
}

/// Serves the fault; `false` if it is not ours to serve.
fn serve(addr: usize, context: &ucontext_t) -> bool {
    if let Some(served) = huge_faults::serve(addr) {
        return served;
    }
    let Some(process) = process::get() else {
        return false;
    };
    // The touch is made again, of the kernel's page.
    if process.mmu().show_next(addr) {
        return true;
    }
    let flags = FaultFlags {
        write: is_write(context),
        ..FaultFlags::default()
    };
    let pending = PendingIn::new(&context.uc_sigmask);
    let changes = process.mmu().changes();
    match fault::handle(process.space(), addr, flags, &pending) {
        Outcome::Mapped | Outcome::Interrupted => true,
        Outcome::Error(fault::FaultError::NotMapped) => {
            process.mmu().note_unmappable(addr);
            process.mmu().has_changed_since(changes, addr)
        }
        Outcome::Error(_) => {
            process.note_error();
            false
        }
    }
}

/// True if this process has raised it.
fn raised_here(info: *mut siginfo_t) -> bool {
    // SAFETY: reads fields that the kernel filled in, of a signal that was sent.
    unsafe { (*info).si_pid() == libc::getpid() }
}

/// Hands a signal that is not ours, or a fault that failed, to the action for
/// SIGBUS before this form of ours.
#[inline(never)]
fn pass_on(form: usize, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let frame = core::ptr::from_ref(&form) as usize;
    let Some(form) = chain::enter(info as usize, frame, form) else {
        return die(signal, info);
    };
    let to = chain::predecessor_for_signal(form);
    hand_to(to, signal, info, context);
    chain::leave(info as usize, form);
    // Rust's own handler restores the default and returns: the fault is to end the
    // process when it comes again. Faults of ours are to be served all the same; one that
    // is not finds the default as the predecessor.
    if ![libc::SIG_DFL, libc::SIG_IGN].contains(&to.handler) {
        reinstall_handler();
    }
}

fn hand_to(to: Action, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    match to.handler {
        libc::SIG_DFL => die(signal, info),
        // Of a fault the kernel would not ignore it either.
        libc::SIG_IGN if was_sent(info) => {}
        libc::SIG_IGN => die(signal, info),
        handler => {
            // The handler runs with the mask that it asked for.
            // SAFETY: calls the handler in the form that it was installed in,
            // with the kernel's own arguments; the first 64 bits of a set are the
            // kernel's signals.
            unsafe {
                let context_ref = &*context.cast::<ucontext_t>();
                let mut mask: sigset_t = context_ref.uc_sigmask;
                let of_handler = word(&mask) | to.mask;
                (&raw mut mask).cast::<u64>().write_unaligned(of_handler);
                if to.flags & libc::SA_NODEFER == 0 {
                    libc::sigaddset(&mut mask, signal);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut());
                if to.flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                        core::mem::transmute(handler);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(c_int) = core::mem::transmute(handler);
                    handler(signal);
                }
                // The kernel restores the mask at the return. Under `softfault run` it is not all of it: the C library's
                // function remembers that the program blocks the signal.
                let mut told = mask;
                libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), &mut told);
                if word(&told) != kernel::blocked() {
                    let after = &raw const (*context.cast::<ucontext_t>()).uc_sigmask;
                    libc::pthread_sigmask(libc::SIG_SETMASK, after, core::ptr::null_mut());
                }
            }
        }
    }
}

/// The default action, of the kernel: under `softfault run` the C library's functions set the program's, which is not in
/// force. A fault is raised again by the touch itself once the default is back; a signal that was sent is sent again.
fn die(signal: c_int, info: *mut siginfo_t) {
    kernel::set_default(signal);
    if was_sent(info) {
        // SAFETY: no memory involved.
        unsafe { libc::raise(signal) };
    }
}

/// True if a process has sent the signal, or the kernel to tell of a broken page that nobody has touched: no touch will raise it again.
fn was_sent(info: *mut siginfo_t) -> bool {
    // SAFETY: reads a field that the kernel filled in.
    let code = unsafe { (*info).si_code };
    code <= 0 || code == BUS_MCEERR_AO
}
