//! The userfaultfd of huge maps.
//!
//! One a process: in SIGBUS mode a fault takes no lock of it. The descriptor that a child of fork inherits acts
//! on the parent: its number is closed there before anything else runs, and its file is in a table
//! that the child does not have ([`table`](crate::table)). A child that ran no handlers (a bare `clone`) knows by
//! its number that it is another process.

use crate::table::Working;
use crate::uffd::{Faults, Offers, open, register};
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::c_int;

/// The last process's that had any; never dropped.
static OPENED: AtomicPtr<ProcessDescriptor> = AtomicPtr::new(core::ptr::null_mut());

/// A process's. Immutable.
pub(crate) struct ProcessDescriptor {
    process: u32,
    descriptor: Working,
}

impl ProcessDescriptor {
    /// Registers a mapping for missing pages, or the errno: EPERM if nobody may ever write to it (`VM_MAYWRITE`).
    pub(crate) fn watch(&self, range: &Range<usize>) -> Result<(), c_int> {
        register(&self.descriptor, range, false)
    }
}

/// In a child: its own is another.
pub(super) fn fork_child() {
    let parents = OPENED.swap(core::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: null, or leaked below.
    if let Some(parents) = unsafe { parents.as_ref() } {
        parents.descriptor.close();
    }
}

/// This process's, or the errno.
pub(crate) fn opened() -> Result<&'static ProcessDescriptor, c_int> {
    // Acquire pairs with the Release below.
    let before = OPENED.load(Ordering::Acquire);
    let process = std::process::id();
    // SAFETY: null, or leaked below.
    match unsafe { before.as_ref() } {
        Some(opened) if opened.process == process => return Ok(opened),
        _ => {}
    }
    let offers = Offers {
        protect: false,
        moves: false,
    };
    let descriptor = open(offers, Faults::Signals)?;
    let fresh = Box::into_raw(Box::new(ProcessDescriptor {
        process,
        descriptor,
    }));
    let (set, failed) = (Ordering::AcqRel, Ordering::Acquire);
    match OPENED.compare_exchange(before, fresh, set, failed) {
        // SAFETY: just boxed, and not dropped from here on.
        Ok(_) => Ok(unsafe { &*fresh }),
        Err(other) => {
            // SAFETY: just boxed, and nobody knows it; the other was boxed so.
            unsafe {
                drop(Box::from_raw(fresh));
                Ok(&*other)
            }
        }
    }
}
