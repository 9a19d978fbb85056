//! Page faults served in user space.
//!
//! Read in this order: [`fault`] (a fault's way), [`mm::vma_lock`] (the lock
//! that is a reference count), its loom models in `crates/engine-loom`.
//!
//! This crate is the engine without an operating system beneath it: it names
//! time, page tables and stores by the traits [`Clock`], [`Mmu`] and
//! [`Store`], and everything that orders memory or waits by the `sync`
//! façade. The `softfault` crate puts the real ones in.

pub mod anon;
pub mod budget;
pub mod cache;
pub mod clock;
pub mod fault;
pub mod huge;
pub mod lock;
pub mod mm;
pub mod mmu;
pub mod page;
pub mod policy;
pub mod readahead;
pub mod reclaim;
pub mod slab;
pub mod stage;
pub mod stats;
pub mod store;
pub mod swap;
mod table;
pub mod wait;

pub use clock::Clock;
pub use mmu::Mmu;
pub use page::{PAGE_SHIFT, PAGE_SIZE};
pub use store::Store;
