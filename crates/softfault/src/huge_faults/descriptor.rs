//! The userfaultfd of huge maps.
//!
//! One a process: in SIGBUS mode a fault takes no lock of it. The descriptor that a child of fork inherits acts
//! on the parent: its number is closed there before anything else runs, and its file is in a table
//! that the child does not have ([`table`](crate::table)). A child that ran no handlers (a bare `clone`) knows by
//! its number that it is another process.

use crate::process;
use crate::table::Working;
use crate::uffd::{Faults, Offers, open, register};
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::c_int;

/// The last process's that had any; never dropped. Set with [`process::making`] held.
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

/// This process's, or the errno. The caller does not hold [`process::making`].
pub(crate) fn opened() -> Result<&'static ProcessDescriptor, c_int> {
    let number = std::process::id();
    let known = || {
        // Acquire pairs with the Release below.
        // SAFETY: null, or leaked below.
        let last = unsafe { OPENED.load(Ordering::Acquire).as_ref() };
        last.filter(|last| last.process == number)
    };
    if let Some(known) = known() {
        return Ok(known);
    }
    // A fork waits, until the descriptor is where the child looks for it: it would go on with the parent's otherwise.
    let _making = process::making();
    if let Some(known) = known() {
        return Ok(known);
    }
    let offers = Offers {
        protect: false,
        moves: false,
    };
    let fresh = Box::leak(Box::new(ProcessDescriptor {
        process: number,
        descriptor: open(offers, Faults::Signals)?,
    }));
    // Release pairs with the Acquire above.
    OPENED.store(fresh, Ordering::Release);
    Ok(fresh)
}
