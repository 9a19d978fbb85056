//! The engine's verbs on anonymous memory, by their names here.

use crate::op::MemoryVerb;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::Store;
use softfault_engine::anon::Anonymous;
use softfault_engine::anon::PrivateFile;
use softfault_engine::cache::{Node, OnTruncate};
use softfault_engine::fault::{self, FaultError, NeverInterrupted, Populated};
use softfault_engine::mm::AddressSpace;
use sync::Arc;

/// The result of a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Managed {
    /// It was done.
    Done,
    /// There is no memory for it.
    NoMemory,
    /// Swap, or the file, failed.
    Io,
    /// Something is not mapped, or not so that the verb is for it.
    Refused,
}

/// Does it.
pub fn manage(space: &AddressSpace, range: Range<usize>, verb: MemoryVerb) -> Managed {
    let interrupt = &NeverInterrupted;
    let advised = match verb {
        MemoryVerb::DontNeed => space.dont_need(range),
        MemoryVerb::Free => space.free(range),
        MemoryVerb::Cold => space.cold(range),
        MemoryVerb::PageOut => space.page_out(range),
        MemoryVerb::PopulateRead => return came(fault::populate(space, range, false, interrupt)),
        MemoryVerb::PopulateWrite => return came(fault::populate(space, range, true, interrupt)),
        MemoryVerb::Lock => {
            let locked = came(fault::lock(space, range.clone(), true, interrupt));
            if locked != Managed::Done {
                // The first part is locked.
                fault::unlock(space, range);
            }
            return locked;
        }
        MemoryVerb::Unlock => {
            fault::unlock(space, range);
            return Managed::Done;
        }
    };
    match advised {
        Ok(()) => Managed::Done,
        Err(_) => Managed::Refused,
    }
}

fn came(populated: Populated) -> Managed {
    match populated {
        Populated::Done => Managed::Done,
        Populated::Failed(_, FaultError::NoMemory) => Managed::NoMemory,
        Populated::Failed(_, FaultError::Io(_) | FaultError::Short) => Managed::Io,
        Populated::Failed(..) => Managed::Refused,
        Populated::Interrupted(_) => unreachable!("nobody does"),
    }
}

/// True if the page at `address` is anonymous memory, and resident.
pub fn is_resident(space: &AddressSpace, address: usize) -> bool {
    let mmap = space.mmap_lock().read();
    let Some(vma) = space.find(&mmap, address) else {
        return false;
    };
    let attributes = vma.attributes(&mmap);
    Anonymous::shown(&attributes.backing).is_some_and(|anon| {
        let start = anon.addresses().start + attributes.pgoff as usize * PAGE_SIZE;
        anon.is_resident(start + (address - vma.start()))
    })
}

/// A private copy of `bytes` of a file, from page `from` on.
pub fn private_copy<S: Store + 'static>(
    node: Arc<Node>,
    bytes: usize,
    store: &Arc<S>,
    from: usize,
) -> Arc<Anonymous> {
    let private_file = PrivateFile {
        store: store.clone(),
        offset: (from * PAGE_SIZE) as u64,
    };
    let copy = Anonymous::of_file(node, bytes, private_file, OnTruncate::Error);
    copy.expect("room for a window")
}
