//! A touch of huge memory that raised SIGBUS.

use super::{count, descriptor, table};

/// Serves it. `None` if no huge map has the address, false if the page is not to be had.
///
/// Called in the handler: no heap, no lock.
pub(crate) fn serve(addr: usize) -> Option<bool> {
    let held = table::find(addr)?;
    let counted = held.counted();
    let served = held.window().fill(addr, counted).is_ok();
    match served {
        true => count::fault(counted),
        false => count::failed(counted),
    }
    Some(served)
}

/// True if a huge map has the address. Asked for where a raised signal is understood.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has(addr: usize) -> bool {
    table::find(addr).is_some()
}

/// In a child of fork.
pub(crate) fn fork_child() {
    descriptor::fork_child();
    count::fork_child();
}
