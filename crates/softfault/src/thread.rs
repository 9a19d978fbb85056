//! Threads of ours in the program's process.
//!
//! By pthread_create(3) and not by [`std::thread`]: a thread of the standard library maps and protects
//! a stack for signals of its own before it does anything, and where mprotect(2) is denied by then
//! it ends the program.

mod stacks;
mod starting;

pub(crate) use stacks::Stacks;
pub(crate) use starting::HeldStarts;

use crate::{error, signal};
use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use starting::Starting;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A stack with room for code that is not ours, such as a waker.
pub(crate) const STACK: usize = 2 << 20;

/// A thread that was started. Dropped, it goes on by itself.
pub(crate) struct Thread(usize);

struct Start<Work> {
    name: &'static CStr,
    work: Work,
}

/// Threads of ours that are being started.
static STARTING: Starting = Starting::new();

/// Waits for threads of ours that are being started, before a fork takes locks that their allocator may wait for.
pub(crate) fn wait_for_starts() {
    STARTING.wait();
}

/// Holds starts of threads back while the process forks.
pub(crate) fn hold_starts() -> HeldStarts<'static> {
    STARTING.hold()
}

/// In the child.
pub(crate) fn forked() {
    STARTING.forked();
}

/// Starts a thread with so many bytes of stack beside the C library's own. Signals are masked in
/// it: those that are sent to the process are for the program's threads.
pub(crate) fn start<Work: FnOnce() + Send + 'static>(
    name: &'static CStr,
    stack: usize,
    work: Work,
) -> io::Result<Thread> {
    start_on(None, name, stack, work)
}

/// The same on the stack of that number, which nobody has, where it can be had.
pub(crate) fn start_on<Work: FnOnce() + Send + 'static>(
    stacks: Option<(&Stacks, usize)>,
    name: &'static CStr,
    stack: usize,
    work: Work,
) -> io::Result<Thread> {
    let place = stacks.and_then(|(stacks, number)| stacks.stack(number));
    let start = Box::into_raw(Box::new(Start { name, work }));
    // A thread inherits the mask. No handler runs meanwhile, which may fork.
    let masked = signal::masked_for_start();
    STARTING.begin();
    let mut thread = MaybeUninit::uninit();
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: the attributes are initialised before they are used, and destroyed after. The thread takes
    // `start` over, if there is one.
    let failed = unsafe {
        let attributes = attributes.as_mut_ptr();
        match libc::pthread_attr_init(attributes) {
            0 => {}
            failed => {
                (0..2).for_each(|_| STARTING.end());
                drop(Box::from_raw(start));
                return Err(error::no_thread(failed));
            }
        }
        // Refused, it is the default: more.
        match place {
            Some((start, bytes)) => libc::pthread_attr_setstack(attributes, start, bytes),
            None => libc::pthread_attr_setstacksize(attributes, stack + least_stack(&*attributes)),
        };
        let failed =
            libc::pthread_create(thread.as_mut_ptr(), attributes, main::<Work>, start.cast());
        libc::pthread_attr_destroy(attributes);
        failed
    };
    STARTING.end();
    if failed != 0 {
        STARTING.end();
        // SAFETY: there is no thread that would have taken it.
        drop(unsafe { Box::from_raw(start) });
        return Err(error::no_thread(failed));
    }
    drop(masked);
    // SAFETY: pthread_create filled it.
    let thread = unsafe { thread.assume_init() };
    Ok(Thread(thread as usize))
}

extern "C" fn main<Work: FnOnce()>(start: *mut c_void) -> *mut c_void {
    STARTING.end();
    // SAFETY: from `start`, for this thread alone.
    let start = unsafe { Box::from_raw(start.cast::<Start<Work>>()) };
    // SAFETY: a string that lives as long as the process; longer than 15 bytes, it is cut.
    unsafe { libc::prctl(libc::PR_SET_NAME, start.name.as_ptr()) };
    // The hook has printed the reason. The program goes on without this thread.
    let _ = catch_unwind(AssertUnwindSafe(start.work));
    ptr::null_mut()
}

/// So many bytes of a stack, and those that the C library takes of it.
fn with_least_stack(stack: usize) -> usize {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: the attributes are initialised before they are used, and destroyed after.
    unsafe {
        let attributes = attributes.as_mut_ptr();
        if libc::pthread_attr_init(attributes) != 0 {
            return stack + libc::PTHREAD_STACK_MIN;
        }
        let least = least_stack(&*attributes);
        libc::pthread_attr_destroy(attributes);
        stack + least
    }
}

/// The bytes that the C library takes of each stack. glibc puts the program's thread-local variables there, and has
/// a function with the number, which is looked up; musl adds it itself.
fn least_stack(attributes: &libc::pthread_attr_t) -> usize {
    type MinStack = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    let found = look_up_least_stack();
    if found == 0 {
        return libc::PTHREAD_STACK_MIN;
    }
    // SAFETY: the function of that name has this type; the standard library calls it, too.
    let min_stack = unsafe { core::mem::transmute::<usize, MinStack>(found) };
    // SAFETY: attributes of a thread, which the function only reads.
    unsafe { min_stack(attributes) }
}

/// Where that function is; 0: there is none. Looked up once: that takes the loader's lock, which a thread may have that
/// waits for one of ours.
fn look_up_least_stack() -> usize {
    /// `UNKNOWN`, or the result. Relaxed: every thread finds the same.
    static FOUND: AtomicUsize = AtomicUsize::new(UNKNOWN);
    const UNKNOWN: usize = usize::MAX;
    match FOUND.load(Relaxed) {
        UNKNOWN => {
            let name = c"__pthread_get_minstack".as_ptr();
            // SAFETY: looks a name up.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name) } as usize;
            FOUND.store(found, Relaxed);
            found
        }
        found => found,
    }
}

/// The same for `softfault run`, whose own threads are started as ours are. The returned value waits for the thread's end,
/// if it is called.
pub fn start_thread<Work: FnOnce() + Send + 'static>(
    name: &'static CStr,
    stack: usize,
    work: Work,
) -> io::Result<impl FnOnce()> {
    let thread = start(name, stack, work)?;
    Ok(move || thread.join())
}

/// Looks up the functions for starting a thread, for `softfault run`: when its library is loaded, before the loader can be busy.
pub fn prepare_threads() {
    look_up_least_stack();
}

impl Thread {
    /// Waits until it ends.
    pub(crate) fn join(self) {
        let thread = self.0 as libc::pthread_t;
        core::mem::forget(self);
        // SAFETY: a thread that was neither joined nor detached.
        let failed = unsafe { libc::pthread_join(thread, ptr::null_mut()) };
        debug_assert_eq!(failed, 0);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: a thread that was neither joined nor detached.
        unsafe { libc::pthread_detach(self.0 as libc::pthread_t) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_cannot_be_started_names_the_limits() {
        // No address space has room for its stack, which pthread_create(3) answers as it does a limit of tasks.
        let refused = start(c"none", 1 << 60, || {}).map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        let text = refused.to_string();
        assert!(
            text.contains("pids.max") && text.contains("thread"),
            "{text}"
        );
        // Nothing counts as being started.
        wait_for_starts();
    }
}
