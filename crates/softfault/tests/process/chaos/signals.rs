//! Signals, and threads that end in the middle.

use super::draw::Draw;
use super::world::{Which, World};
use crate::rows::signals::{install, load, pause, start_toucher, timer};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

static START: AtomicPtr<u64> = AtomicPtr::new(core::ptr::null_mut());
static TOUCHED: AtomicUsize = AtomicUsize::new(0);
static WRONG: AtomicUsize = AtomicUsize::new(0);
/// One at a time: handlers are the process's.
pub static HANDLERS: Mutex<()> = Mutex::new(());

/// Reads a word of the file. Its thread may be cancelled at any of its instructions, so that there is nothing here that may panic.
extern "C-unwind" fn touch(_: i32) {
    let touched = TOUCHED.fetch_add(1, SeqCst).wrapping_mul(0x9E37_79B9);
    let index = touched % (super::world::FILE_BYTES / 8);
    // SAFETY: within the map, which lives.
    let found = unsafe { load(START.load(SeqCst).wrapping_add(index)) };
    if found != crate::scene::word(index, 0) {
        WRONG.fetch_add(1, SeqCst);
    }
}

/// Has the C library's handler of a change of credentials interrupted by no handler that touches. It may run on after the change has
/// returned, on a thread's alternate stack of 8 KiB, where a touch would be the third signal's frame. Called when there are threads, for
/// then the C library has its handler.
pub fn keep_from_credentials() {
    /// glibc's SIGSETXID, which sigaction(2) of the library refuses to change.
    const SIGSETXID: i32 = 33;
    const MASK_BYTES: usize = 8;
    #[repr(C)]
    struct KernelAction {
        handler: usize,
        flags: usize,
        restorer: usize,
        mask: u64,
    }
    let mut action = KernelAction {
        handler: 0,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    let none = core::ptr::null_mut::<KernelAction>();
    let call = |new: *mut KernelAction, old: *mut KernelAction| {
        // SAFETY: reads the one and fills the other, as the kernel has them; the handler stays.
        let done =
            unsafe { libc::syscall(libc::SYS_rt_sigaction, SIGSETXID, new, old, MASK_BYTES) };
        assert_eq!(done, 0);
    };
    call(none, &raw mut action);
    for signal in [libc::SIGUSR1, libc::SIGALRM, libc::SIGPROF] {
        action.mask |= 1 << (signal - 1);
    }
    // SIG_DFL and SIG_IGN are no handlers: another C library.
    if action.handler > 1 {
        call(&raw mut action, none);
    }
}

fn prepare(world: &World) {
    START.store(world.file.as_ptr().cast_mut().cast(), SeqCst);
    install(libc::SIGUSR1, touch as *const () as usize, libc::SA_RESTART);
    install(libc::SIGALRM, touch as *const () as usize, libc::SA_RESTART);
    install(libc::SIGPROF, touch as *const () as usize, libc::SA_RESTART);
}

fn toucher(world: &World, draw: &mut Draw, how: i32) -> libc::pthread_t {
    let which = draw.one_of(&[Which::File, Which::Copy, Which::Anon]);
    let start = world.addresses(which, 0..1).start;
    start_toucher(start, world.pages(which), draw.below(1000), how)
}

/// Signals that come while a thread faults.
pub fn storm(world: &World, draw: &mut Draw) {
    let _handlers = HANDLERS.lock().expect("no panic");
    prepare(world);
    let thread = toucher(world, draw, 1);
    for _ in 0..50 {
        pause(20);
        // SAFETY: the thread lives: it was not joined.
        unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
    }
    end(thread);
    assert_eq!(WRONG.load(SeqCst), 0);
}

/// SIGALRM and SIGPROF, to whichever thread.
pub fn timers(world: &World, draw: &mut Draw) {
    let _handlers = HANDLERS.lock().expect("no panic");
    prepare(world);
    let which = draw.one_of(&[libc::ITIMER_REAL, libc::ITIMER_PROF]);
    timer(which, 300);
    pause(5000);
    timer(which, 0);
    // One that is pending is forgotten with that: on a busy machine it may come when another
    // thread changes the process's credentials, and run on the small stack of the C library's handler.
    for signal in [libc::SIGALRM, libc::SIGPROF] {
        install(signal, libc::SIG_IGN, 0);
    }
    assert_eq!(WRONG.load(SeqCst), 0);
}

/// Threads that are cancelled while they touch.
pub fn cancelled(world: &World, draw: &mut Draw) {
    let how = draw.below(2) as i32;
    let thread = toucher(world, draw, how);
    pause(draw.below(1000) as u64);
    end(thread);
}

fn end(thread: libc::pthread_t) {
    // SAFETY: the thread lives: it was not joined.
    unsafe {
        assert_eq!(libc::pthread_cancel(thread), 0);
        assert_eq!(libc::pthread_join(thread, core::ptr::null_mut()), 0);
    }
}
