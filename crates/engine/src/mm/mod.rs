//! Address spaces: VMAs, the tree that finds them, `mmap_lock`, and the verbs
//! that change the shape of a space.
//!
//! Lock order: `mmap_lock`, then a VMA's write lock (only with `mmap_lock` for
//! write) or its read lock (a fault; with or without `mmap_lock`). Whoever
//! holds a VMA's read lock must not wait for `mmap_lock`.

pub mod backing;
pub mod lock_vma;
pub mod mmap_lock;
pub mod tree;
pub mod vma;
pub mod vma_lock;

pub use backing::Backing;
pub use mmap_lock::{MmapHeld, MmapLock, MmapReadGuard, MmapWriteGuard};
pub use vma::{AddressRange, Advice, Attributes, Protection, Vma};
pub use vma_lock::{ReadError, VmaRead};
