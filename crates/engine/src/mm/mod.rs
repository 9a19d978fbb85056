//! Address spaces: VMAs, the tree that finds them, `mmap_lock`, and the verbs
//! that change the shape of a space.
//!
//! Read [`space`] first: it names the verbs. Then [`vma_lock`], and [`find`],
//! which a fault begins with.
//!
//! Lock order: `mmap_lock`, then a VMA's write lock (with `mmap_lock` for write, or for one
//! VMA with the leaf of the tree that has it, by a verb that shares `mmap_lock`: `shared.rs`) or its
//! read lock (a fault; with or without `mmap_lock`). A thread that holds a VMA's read lock must not
//! wait for `mmap_lock`.

mod advise;
mod align;
pub mod backing;
pub mod find;
mod fork;
mod freeze;
pub mod grace;
mod hand_over;
mod map;
mod merge;
pub mod mmap_lock;
mod modify;
mod move_to;
mod pending_flush;
mod protect;
mod query;
mod remap;
mod shared;
pub mod space;
mod split;
pub mod tree;
mod unmap;
pub mod vma;
pub mod vma_lock;
pub mod vma_slabs;

pub use crate::page::{Advice, Protection};
pub use backing::Backing;
pub use find::NotMapped;
pub use fork::ForkError;
pub use freeze::Frozen;
pub use grace::{GracePeriods, ReadSection};
pub use mmap_lock::{MmapHeld, MmapLock, MmapReadGuard, MmapWriteGuard};
pub use move_to::MoveError;
pub use space::{AddressSpace, LockStats, MmError};
pub use vma::{AddressRange, Attributes, Vma};
pub use vma_lock::{ReadError, VisibleReaders, VmaLock, VmaRead};
pub use vma_slabs::{VmaSlabs, VmaSlots};
