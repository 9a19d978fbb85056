//! A SIGBUS handler that serves the windows of tests, each by the test's own
//! rule.

use crate::signal::is_write;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use softfault_engine::mmu::Reservation;
use std::sync::{Arc, Once};

/// More than there are tests with faults.
const MOST: usize = 64;

struct Scene {
    range: Range<usize>,
    faults: Arc<Faults>,
    serve: Box<dyn Fn(usize, bool) + Send + Sync>,
}

static SCENES: [AtomicPtr<Scene>; MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Touches that ended in a signal.
#[derive(Default)]
pub struct Faults {
    reads: AtomicUsize,
    writes: AtomicUsize,
}

impl Faults {
    /// Reads, and writes, since the last call.
    pub fn take(&self) -> (usize, usize) {
        let take = |count: &AtomicUsize| count.swap(0, Ordering::Relaxed);
        (take(&self.reads), take(&self.writes))
    }
}

/// From now on faults in the window are told to `serve`: the address, and whether
/// it was a write. It may neither allocate nor panic.
pub fn serve(
    window: &Reservation,
    serve: impl Fn(usize, bool) + Send + Sync + 'static,
) -> Arc<Faults> {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(install);
    let faults = Arc::<Faults>::default();
    let scene = Box::new(Scene {
        range: window.range(),
        faults: faults.clone(),
        serve: Box::new(serve),
    });
    let place = COUNT.fetch_add(1, Ordering::Relaxed);
    // Release pairs with the Acquire in the handler. Leaked: a handler may be
    // looking at it at any time.
    SCENES[place].store(Box::into_raw(scene), Ordering::Release);
    faults
}

fn install() {
    // SAFETY: a sigaction of zeros is valid, and the handler has the signature
    // that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
    }
}

extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands valid structures to an SA_SIGINFO handler.
    let (addr, context) = unsafe { ((*info).si_addr() as usize, &*context.cast::<ucontext_t>()) };
    // The latest first: an address may have been another test's.
    for scene in SCENES.iter().rev() {
        // Acquire pairs with the Release in `serve`.
        // SAFETY: null, or leaked.
        let scene = unsafe { scene.load(Ordering::Acquire).as_ref() };
        if let Some(scene) = scene.filter(|scene| scene.range.contains(&addr)) {
            let write = is_write(context);
            let count = match write {
                true => &scene.faults.writes,
                false => &scene.faults.reads,
            };
            count.fetch_add(1, Ordering::Relaxed);
            return (scene.serve)(addr & !(softfault_engine::PAGE_SIZE - 1), write);
        }
    }
    // SAFETY: the touch ends the process.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
