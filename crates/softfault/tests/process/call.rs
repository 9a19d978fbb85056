//! System calls on memory, as a program makes them.

use crate::scene::{PAGE, Scene};
use std::io::{Error, Result};
use std::ops::Range;

/// The answer of a system call that answers -1 for an error.
pub fn answer(answer: impl Into<i64>) -> Result<i64> {
    match answer.into() {
        -1 => Err(Error::last_os_error()),
        answer => Ok(answer),
    }
}

/// The errno of an answer; 0 if it succeeded.
pub fn errno(answer: Result<i64>) -> i32 {
    answer.map_or_else(|error| error.raw_os_error().expect("an errno"), |_| 0)
}

pub fn madvise(range: &Range<usize>, advice: i32) -> Result<i64> {
    // SAFETY: a call that the row is about; its memory is checked afterwards.
    answer(unsafe { libc::madvise(range.start as *mut _, range.len(), advice) })
}

pub fn mprotect(range: &Range<usize>, protection: i32) -> Result<i64> {
    // SAFETY: as above.
    answer(unsafe { libc::mprotect(range.start as *mut _, range.len(), protection) })
}

pub fn mlock(range: &Range<usize>) -> Result<i64> {
    // SAFETY: as above.
    answer(unsafe { libc::mlock(range.start as *const _, range.len()) })
}

pub fn mlock_on_fault(range: &Range<usize>) -> Result<i64> {
    const MLOCK_ONFAULT: i64 = 1;
    // SAFETY: as above.
    answer(unsafe { libc::syscall(libc::SYS_mlock2, range.start, range.len(), MLOCK_ONFAULT) })
}

pub fn munlock(range: &Range<usize>) -> Result<i64> {
    // SAFETY: as above.
    answer(unsafe { libc::munlock(range.start as *const _, range.len()) })
}

pub fn mlockall(flags: i32) -> Result<i64> {
    // SAFETY: as above.
    answer(unsafe { libc::mlockall(flags) })
}

/// The addresses of some pages.
pub fn part(scene: &Scene, pages: Range<usize>) -> Range<usize> {
    let start = scene.addresses().start;
    start + pages.start * PAGE..start + pages.end * PAGE
}

/// Reads memory as a plain touch does, in a thread of its own; `false` if a touch raises
/// SIGBUS or SIGSEGV, which a handler then answers by mapping something there.
pub fn touched_elsewhere(addr: usize, words: &mut [u64]) -> bool {
    // A process that shares the memory and dies of the touch: nothing here changes.
    let mut stack = vec![0_u8; 1 << 16];
    let mut arguments = (addr, words.as_mut_ptr(), words.len());
    extern "C" fn copy(arguments: *mut libc::c_void) -> i32 {
        // SAFETY: the caller's arguments; the touch may end this process.
        unsafe {
            let (addr, words, len) = *arguments.cast::<(usize, *mut u64, usize)>();
            for at in 0..len {
                let found = (addr as *const u64).add(at).read_volatile();
                words.add(at).write_volatile(found);
            }
            libc::_exit(0)
        }
    }
    // SAFETY: the child has a stack of its own, and ends before this returns; it makes no
    // call but `_exit`, whose exit handlers are none.
    let status = unsafe {
        let top = stack.as_mut_ptr().add(stack.len() - 64).cast();
        let flags = libc::CLONE_VM | libc::SIGCHLD;
        let child = libc::clone(copy, top, flags, (&raw mut arguments).cast());
        assert!(child > 0, "{}", Error::last_os_error());
        crate::child::wait(child)
    };
    status == 0
}
