//! The work at the end of a thread: thread-local values of this library.
//!
//! The C library notes that under the loader's lock. A thread that loads a library has it locked while the library's
//! initialisers run, and they may map memory that is taken: a thread of ours, which they wait for, would wait for them. So
//! our destructors are noted here, under a key of the thread's.

use super::next::Next;
use crate::inside;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

type Destructor = unsafe extern "C" fn(*mut c_void);
type AtThreadExit = unsafe extern "C" fn(Destructor, *mut c_void, *mut c_void) -> c_int;

static NEXT: Next<AtThreadExit> = Next::new(c"__cxa_thread_atexit_impl");

unsafe extern "C" {
    /// The linker's: where this library begins, and ends.
    static __ehdr_start: u8;
    static _end: u8;
}

/// True if an address is one of this library's.
fn is_ours(addr: *const c_void) -> bool {
    (&raw const __ehdr_start as usize..&raw const _end as usize).contains(&(addr as usize))
}

/// The work of a thread at its end, the last first.
struct ExitWork {
    act: Destructor,
    with: *mut c_void,
    before: *mut ExitWork,
}

/// The key, and one more; 0: it is not made yet.
static KEY: AtomicU64 = AtomicU64::new(0);

/// The key, made now if there is none; `None`: the program has all that there are.
fn key() -> Option<libc::pthread_key_t> {
    // Acquire pairs with the AcqRel below.
    let known = KEY.load(Ordering::Acquire);
    if known != 0 {
        return Some((known - 1) as libc::pthread_key_t);
    }
    let mut made = 0;
    // SAFETY: fills the key; the function is called with the value that a thread has put there.
    if unsafe { libc::pthread_key_create(&mut made, Some(end)) } != 0 {
        return None;
    }
    let (set, failed) = (Ordering::AcqRel, Ordering::Acquire);
    match KEY.compare_exchange(0, u64::from(made) + 1, set, failed) {
        Ok(_) => Some(made),
        Err(other) => {
            // SAFETY: just made, and nobody knows it.
            unsafe { libc::pthread_key_delete(made) };
            Some((other - 1) as libc::pthread_key_t)
        }
    }
}

/// At the end of a thread. Values noted meanwhile the C library hands to another call.
unsafe extern "C" fn end(notes: *mut c_void) {
    // The heap is this library's: a handler that maps would wait for the lock that its own thread has.
    let _inside = inside::enter();
    let mut notes = notes.cast::<ExitWork>();
    while !notes.is_null() {
        // SAFETY: boxed below, and taken out once.
        let note = unsafe { Box::from_raw(notes) };
        notes = note.before;
        // SAFETY: the promise of the caller that noted it.
        unsafe { (note.act)(note.with) };
    }
}

/// Looks the C library's up.
pub fn find() {
    NEXT.find();
}

/// C++ and Rust call this for each thread-local value that has a destructor.
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_thread_atexit_impl(
    act: Destructor,
    with: *mut c_void,
    of: *mut c_void,
) -> c_int {
    // Something of the library that has the value.
    if !is_ours(of) {
        // SAFETY: the caller's promise.
        return unsafe { NEXT.get()(act, with, of) };
    }
    // Without a key the value stays.
    if let Some(key) = key() {
        // As above.
        let _inside = inside::enter();
        // SAFETY: the key is there; its values are notes of this thread.
        unsafe {
            let before = libc::pthread_getspecific(key).cast();
            let note = Box::new(ExitWork { act, with, before });
            libc::pthread_setspecific(key, Box::into_raw(note).cast());
        }
    }
    0
}
