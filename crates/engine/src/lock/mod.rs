//! Locks of our own, built on the façade so that they are checked and costed.
//!
//! - [`Mutex`]: one word; for short sections that never touch managed memory.
//! - [`MutexPool`]: mutexes of which a thread wants any one.
//! - [`RwSem`]: reader-writer lock, beneath `mmap_lock`; it is [`RawRwSem`], which is
//!   fair, [`StealRwSem`], which lets a writer that runs pass those that sleep, a few
//!   times, or [`QueuedRwSem`], which is as Linux's, with statistics.
//! - [`GroupLock`](group::GroupLock): two groups, any number of either; beside `mmap_lock`.
//! - [`Bell`]: one thread waits until another rings.
//! - [`order`]: which lock may be waited for under which, checked in debug builds.
//! - [`WaitStats`]: how often and how long a lock was waited for.
//!
//! All of them may be used in the fault handler: no heap, no thread-locals.
//! None of them is poisoned by a panic.

pub mod bell;
pub mod group;
pub mod mutex;
pub mod mutex_pool;
pub mod order;
pub mod queued_rwsem;
pub mod raw_rwsem;
pub mod rwsem;
pub mod steal_rwsem;
pub mod wait_stats;

pub use bell::Bell;
pub use mutex::{Mutex, MutexGuard};
pub use mutex_pool::{MutexPool, PoolGuard};
pub use queued_rwsem::QueuedRwSem;
pub use raw_rwsem::RawRwSem;
pub use rwsem::{ReadGuard, RwSem, WriteGuard};
pub use steal_rwsem::StealRwSem;
pub use wait_stats::{WaitSnapshot, WaitStats};
