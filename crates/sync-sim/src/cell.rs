//! Cells: the real machine's. Their contents are plain memory, which costs
//! nothing here.

pub use softfault_sync_std::cell::{MutPtr, UnsafeCell};
