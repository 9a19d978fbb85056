//! Cells: the real machine's. What they hold is plain memory, which costs
//! nothing here.

pub use softfault_sync_std::cell::{MutPtr, UnsafeCell};
