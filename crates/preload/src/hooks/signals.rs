//! Handlers and masks, where faults are signals.
//!
//! SIGBUS is ours in the kernel from the first mapping that is taken, and never blocked: the kernel ends a process whose
//! fault it cannot deliver. The program's own settings of it are kept here, and are the answers to its calls; a SIGBUS that is
//! not ours goes to the program's handler.

use super::again::{Reads, again};
use super::next::hooks;
use super::polled::polled;
use super::readable::is_readable;
use super::receive::{BounceBuffer, set_bytes};
use crate::options::Mode;
use crate::{early, fork, mode};
use core::cell::Cell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use libc::{
    c_int, epoll_event, fd_set, nfds_t, pollfd, sigaction as Action, sighandler_t, sigset_t,
    timespec,
};

/// True if faults are signals, also where that was not asked before: libraries that the program is linked with set their masks and
/// handlers before ours is initialised, and these last.
pub fn are_signals() -> bool {
    match mode::known() {
        None if early::can_look_up() && early::has_environment() => mode::get() == Mode::Signals,
        known => known == Some(Mode::Signals),
    }
}

thread_local! {
    /// The program believes that this thread blocks SIGBUS.
    static BLOCKED: Cell<bool> = const { Cell::new(false) };
}

/// Signals whose handlers are to run with SIGBUS blocked, as the program believes. Relaxed: words of its own.
static BLOCKED_IN: AtomicU64 = AtomicU64::new(0);

/// In the thread that loads the library: SIGBUS may have been blocked by the program before this one.
pub fn unblock() {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is filled.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGBUS);
        nexts::pthread_sigmask.get()(libc::SIG_UNBLOCK, set.as_ptr(), core::ptr::null_mut());
    }
}

/// In a thread that the C library has started with signals blocked, before the program's function in it: the program believes that
/// SIGBUS is one of them, if it was.
pub fn unblock_in_new_thread() {
    let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the first set is filled here, the second by the call, which cannot fail.
    let was_blocked = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGBUS);
        let change = nexts::pthread_sigmask.get();
        change(libc::SIG_UNBLOCK, set.as_ptr(), before.as_mut_ptr());
        libc::sigismember(before.as_ptr(), libc::SIGBUS) == 1
    };
    set_blocked(was_blocked);
}

/// The program's belief about this thread from now on. A child that shares its parent's memory believes nothing: it is about to
/// call exec, and the parent goes on as it was.
fn set_blocked(blocked: bool) {
    if BLOCKED.get() != blocked && !fork::is_in_parents_memory() {
        BLOCKED.set(blocked);
    }
}

/// The program's action for SIGBUS, as it says, or asks; a child as above has none of its own.
fn program_sigbus(now: Option<&Action>) -> Option<Action> {
    softfault::program_sigbus(now.filter(|_| !fork::is_in_parents_memory()))
}

/// True if a set has SIGBUS.
///
/// # Safety
/// It is there, if it is not null.
unsafe fn has_sigbus(set: *const sigset_t) -> bool {
    // SAFETY: the caller's promise.
    !set.is_null() && unsafe { libc::sigismember(set, libc::SIGBUS) == 1 }
}

/// A set without SIGBUS, in `place`, if it has it.
///
/// # Safety
/// As of [`has_sigbus`].
pub unsafe fn without(set: *const sigset_t, place: &mut MaybeUninit<sigset_t>) -> *const sigset_t {
    // SAFETY: the caller's promise.
    unsafe {
        if !are_signals() || !has_sigbus(set) {
            return set;
        }
        let place = place.write(set.read());
        libc::sigdelset(place, libc::SIGBUS);
        place
    }
}

/// The same of a set that the C library hands to the kernel as it is.
///
/// # Safety
/// As of sigsuspend(2).
unsafe fn of_the_kernel(
    set: *const sigset_t,
    place: &mut MaybeUninit<sigset_t>,
) -> *const sigset_t {
    match are_signals() && is_readable(set.cast(), size_of::<u64>()) {
        // SAFETY: it is there.
        true => unsafe { without(set, place) },
        false => set,
    }
}

/// SIGBUS in the kernel's sets, which have 8 bytes.
const SIGBUS: u64 = 1 << (libc::SIGBUS - 1);

/// A set of the kernel's without SIGBUS, in `place`, if it can be read.
///
/// # Safety
/// As of the system call that it is for.
pub unsafe fn without_in_kernel_set(set: *const u64, place: &mut u64) -> *const u64 {
    if set.is_null() || !are_signals() || !is_readable(set.cast(), size_of::<u64>()) {
        return set;
    }
    // SAFETY: it is there.
    *place = unsafe { set.read_unaligned() } & !SIGBUS;
    place
}

/// Changes the mask of a thread, but for SIGBUS.
///
/// # Safety
/// As of pthread_sigmask(3).
unsafe fn change_mask(
    next: unsafe extern "C-unwind" fn(c_int, *const sigset_t, *mut sigset_t) -> c_int,
    how: c_int,
    set: *const sigset_t,
    before: *mut sigset_t,
) -> c_int {
    if !are_signals() || crate::inside::is_inside() {
        // SAFETY: the caller's promise.
        return unsafe { next(how, set, before) };
    }
    let mut place = MaybeUninit::uninit();
    // SAFETY: the caller's promise.
    unsafe {
        let has = has_sigbus(set);
        let aside = BounceBuffer::of(
            before.cast(),
            if before.is_null() {
                0
            } else {
                size_of::<sigset_t>()
            },
            true,
        );
        let answer = next(how, without(set, &mut place), aside.place().cast());
        aside.end(size_of::<sigset_t>());
        if answer != 0 {
            return answer;
        }
        if !before.is_null() && BLOCKED.get() {
            libc::sigaddset(before, libc::SIGBUS);
        }
        if !set.is_null() {
            believe(how, has);
        }
        answer
    }
}

/// The same by the system call, whose sets have 8 bytes.
///
/// # Safety
/// As of sigprocmask(2).
pub unsafe fn change_kernel_mask(
    how: c_int,
    set: *const u64,
    before: *mut u64,
    next: impl Fn(*const u64, *mut u64) -> c_int,
) -> c_int {
    let is_there = |set: *const u64| set.is_null() || is_readable(set.cast(), size_of::<u64>());
    // The kernel has an error for what cannot be read.
    if !are_signals() || !is_there(set) {
        return next(set, before);
    }
    // SAFETY: it is there.
    let wanted = (!set.is_null()).then(|| unsafe { set.read_unaligned() });
    let without = wanted.map(|wanted| wanted & !SIGBUS);
    let kernels = (without.as_ref()).map_or(core::ptr::null(), |without| &raw const *without);
    let bytes = if before.is_null() {
        0
    } else {
        size_of::<u64>()
    };
    let aside = BounceBuffer::of(before.cast(), bytes, true);
    let place = aside.place().cast::<u64>();
    let answer = next(kernels, place);
    if answer != 0 {
        aside.end(0);
        return answer;
    }
    if !place.is_null() && BLOCKED.get() {
        // SAFETY: the kernel has written there.
        unsafe { place.write_unaligned(place.read_unaligned() | SIGBUS) };
    }
    aside.end(bytes);
    if let Some(wanted) = wanted {
        believe(how, wanted & SIGBUS != 0);
    }
    answer
}

/// The program's belief after it has changed the mask by a set that has SIGBUS, or does not.
fn believe(how: c_int, has: bool) {
    match how {
        libc::SIG_BLOCK if has => set_blocked(true),
        libc::SIG_UNBLOCK if has => set_blocked(false),
        libc::SIG_SETMASK => set_blocked(has),
        _ => {}
    }
}

/// sigaction(2).
///
/// # Safety
/// As of the C library's.
unsafe fn change_action(
    next: unsafe extern "C-unwind" fn(c_int, *const Action, *mut Action) -> c_int,
    signal: c_int,
    action: *const Action,
    before: *mut Action,
) -> c_int {
    if !are_signals() || crate::inside::is_inside() {
        // SAFETY: the caller's promise.
        return unsafe { next(signal, action, before) };
    }
    // SAFETY: the caller's promise.
    unsafe {
        if signal == libc::SIGBUS
            && let Some(shown) = program_sigbus(action.as_ref())
        {
            if !before.is_null() {
                before.write(shown);
            }
            return 0;
        }
        let mut place = MaybeUninit::uninit();
        let mut own = action;
        let mut without_sigbus;
        if !action.is_null() && has_sigbus(&raw const (*action).sa_mask) {
            without_sigbus = action.read();
            without_sigbus.sa_mask = *without(&raw const (*action).sa_mask, &mut place);
            own = &raw const without_sigbus;
        }
        let answer = next(signal, own, before);
        if answer != 0 {
            return answer;
        }
        let bit = 1 << (signal - 1);
        if !before.is_null() && BLOCKED_IN.load(Relaxed) & bit != 0 {
            libc::sigaddset(&raw mut (*before).sa_mask, libc::SIGBUS);
        }
        if !action.is_null() && !fork::is_in_parents_memory() {
            match own == action {
                true => BLOCKED_IN.fetch_and(!bit, Relaxed),
                false => BLOCKED_IN.fetch_or(bit, Relaxed),
            };
        }
        answer
    }
}

/// A disposition of sigset(3).
const SIG_HOLD: sighandler_t = 2;

/// SIGBUS in a mask of BSD.
const OLD_SIGBUS: c_int = 1 << (libc::SIGBUS - 1);

/// True for the signal by which faults are served.
fn is_ours(signal: c_int) -> bool {
    signal == libc::SIGBUS && are_signals() && !crate::inside::is_inside()
}

/// signal(3), of SIGBUS, with flags; `None`: it is not ours.
fn sigbus_handler_as(signal: c_int, handler: sighandler_t, flags: c_int) -> Option<sighandler_t> {
    if !is_ours(signal) {
        return None;
    }
    let mut action = MaybeUninit::<Action>::zeroed();
    // SAFETY: a sigaction of zeros is valid.
    let action = unsafe {
        (*action.as_mut_ptr()).sa_sigaction = handler;
        (*action.as_mut_ptr()).sa_flags = flags;
        action.assume_init()
    };
    program_sigbus(Some(&action)).map(|before| before.sa_sigaction)
}

/// The program's handler of SIGBUS.
fn now_handler() -> Option<sighandler_t> {
    program_sigbus(None).map(|before| before.sa_sigaction)
}

/// signal(3), and its like.
///
/// # Safety
/// As of signal(3).
unsafe fn set_handler(
    signal: c_int,
    handler: sighandler_t,
    flags: c_int,
    next: unsafe extern "C-unwind" fn(c_int, sighandler_t) -> sighandler_t,
) -> sighandler_t {
    // SAFETY: the caller's promise.
    sigbus_handler_as(signal, handler, flags).unwrap_or_else(|| unsafe { next(signal, handler) })
}

/// A signal is blocked, or not any more, as the program believes; `None`: it is not ours.
fn block_alone(signal: c_int, blocked: bool) -> Option<c_int> {
    is_ours(signal).then(|| {
        set_blocked(blocked);
        0
    })
}

/// A call that changes a mask of BSD, and answers the one before.
fn change_old_mask(mask: c_int, adds: bool, next: impl FnOnce(c_int) -> c_int) -> c_int {
    if !is_ours(libc::SIGBUS) {
        return next(mask);
    }
    let before = next(mask & !OLD_SIGBUS);
    let has = mask & OLD_SIGBUS != 0;
    let was = BLOCKED.get();
    set_blocked(has || adds && was);
    before | if was { OLD_SIGBUS } else { 0 }
}

hooks! {
    /// sigaction(2).
    fn sigaction(signal: c_int, action: *const Action, before: *mut Action) -> c_int = |next| {
        change_action(next, signal, action, before)
    };

    /// signal(2).
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t = |next| {
        set_handler(signal, handler, libc::SA_RESTART, next)
    };

    /// sigaction(2), by its other name.
    fn __sigaction(signal: c_int, action: *const Action, before: *mut Action) -> c_int = |next| {
        change_action(next, signal, action, before)
    };

    /// signal(2), by its name of BSD.
    fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t = |next| {
        set_handler(signal, handler, libc::SA_RESTART, next)
    };

    /// signal(2), by its name of GNU.
    fn ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t = |next| {
        set_handler(signal, handler, libc::SA_RESTART, next)
    };

    /// signal(2), of System V, which a program that asks for X/Open's functions gets.
    fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t = |next| {
        set_handler(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER, next)
    };

    /// The same.
    fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t = |next| {
        set_handler(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER, next)
    };

    /// sigset(3).
    fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t = |next| {
        let was_blocked = BLOCKED.get();
        match handler {
            SIG_HOLD if is_ours(signal) => {
                set_blocked(true);
                if was_blocked { SIG_HOLD } else { now_handler().unwrap_or(libc::SIG_ERR) }
            }
            _ => {
                let before = set_handler(signal, handler, 0, next);
                if is_ours(signal) && before != libc::SIG_ERR {
                    set_blocked(false);
                    if was_blocked { return SIG_HOLD; }
                }
                before
            }
        }
    };

    /// sigignore(3).
    fn sigignore(signal: c_int) -> c_int = |next| {
        match sigbus_handler_as(signal, libc::SIG_IGN, 0) {
            Some(_) => 0,
            None => next(signal),
        }
    };

    /// sighold(3).
    fn sighold(signal: c_int) -> c_int = |next| {
        block_alone(signal, true).unwrap_or_else(|| next(signal))
    };

    /// sigrelse(3).
    fn sigrelse(signal: c_int) -> c_int = |next| {
        block_alone(signal, false).unwrap_or_else(|| next(signal))
    };

    /// sigblock(3).
    fn sigblock(mask: c_int) -> c_int = |next| {
        change_old_mask(mask, true, |mask| next(mask))
    };

    /// sigsetmask(3).
    fn sigsetmask(mask: c_int) -> c_int = |next| {
        change_old_mask(mask, false, |mask| next(mask))
    };

    /// siggetmask(3).
    fn siggetmask() -> c_int = |next| {
        next() | if BLOCKED.get() { OLD_SIGBUS } else { 0 }
    };

    /// sigpause(3), of BSD: it has a mask.
    fn sigpause(mask: c_int) -> c_int = |next| {
        next(if are_signals() { mask & !OLD_SIGBUS } else { mask })
    };

    /// Both kinds of sigpause(3).
    fn __sigpause(signal_or_mask: c_int, is_signal: c_int) -> c_int = |next| {
        let is_mask = is_signal == 0 && are_signals();
        next(if is_mask { signal_or_mask & !OLD_SIGBUS } else { signal_or_mask }, is_signal)
    };

    /// sigsuspend(2), by its other name.
    fn __sigsuspend(set: *const sigset_t) -> c_int = |next| {
        next(of_the_kernel(set, &mut MaybeUninit::uninit()))
    };

    /// pthread_attr_setsigmask_np(3): threads that begin with a mask.
    fn pthread_attr_setsigmask_np(of: *mut libc::pthread_attr_t, set: *const sigset_t) -> c_int = |next| {
        next(of, without(set, &mut MaybeUninit::uninit()))
    };

    /// sigprocmask(2).
    fn sigprocmask(how: c_int, set: *const sigset_t, before: *mut sigset_t) -> c_int = |next| {
        change_mask(next, how, set, before)
    };

    /// pthread_sigmask(3).
    fn pthread_sigmask(how: c_int, set: *const sigset_t, before: *mut sigset_t) -> c_int = |next| {
        change_mask(next, how, set, before)
    };

    /// sigsuspend(2).
    fn sigsuspend(set: *const sigset_t) -> c_int = |next| {
        next(of_the_kernel(set, &mut MaybeUninit::uninit()))
    };

    /// ppoll(2).
    fn ppoll(all: *mut pollfd, count: nfds_t, until: *const timespec, set: *const sigset_t) -> c_int = |next| {
        let mut place = MaybeUninit::uninit();
        let set = of_the_kernel(set, &mut place);
        polled(all, count, |all| {
            let reads = [Reads::Bytes(until.cast(), super::receive::size(until))];
            again(&reads, || next(all, count, until, set))
        })
    };

    /// poll(2).
    fn poll(all: *mut pollfd, count: nfds_t, until: c_int) -> c_int = |next| {
        polled(all, count, |all| next(all, count, until))
    };

    /// pselect(2).
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set, until: *const timespec, set: *const sigset_t) -> c_int = |next| {
        let mut place = MaybeUninit::uninit();
        let set = of_the_kernel(set, &mut place);
        let sets = [read, write, other].map(|of| BounceBuffer::of(of.cast(), set_bytes(of.cast(), count), true));
        if sets.iter().any(BounceBuffer::is_refused) {
            return -1;
        }
        let [read, write, other] = sets.each_ref().map(|of| of.place().cast());
        let reads = [read, write, other].map(|of: *mut fd_set| Reads::Into(of.cast(), set_bytes(of.cast(), count)));
        let answer = again(&reads, || next(count, read, write, other, until, set));
        BounceBuffer::end_each(&sets);
        answer
    };

    /// epoll_pwait(2).
    fn epoll_pwait(fd: c_int, events: *mut epoll_event, most: c_int, until: c_int, set: *const sigset_t) -> c_int = |next| {
        let mut place = MaybeUninit::uninit();
        let set = of_the_kernel(set, &mut place);
        let into = Reads::Into(events.cast(), most.max(0) as usize * size_of::<epoll_event>());
        again(&[into], || next(fd, events, most, until, set))
    };

    /// epoll_pwait2(2).
    fn epoll_pwait2(fd: c_int, events: *mut epoll_event, most: c_int, until: *const timespec, set: *const sigset_t) -> c_int = |next| {
        let mut place = MaybeUninit::uninit();
        let set = of_the_kernel(set, &mut place);
        let reads = [
            Reads::Into(events.cast(), most.max(0) as usize * size_of::<epoll_event>()),
            Reads::Bytes(until.cast(), super::receive::size(until)),
        ];
        again(&reads, || next(fd, events, most, until, set))
    };
}
