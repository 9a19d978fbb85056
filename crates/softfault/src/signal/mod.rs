//! All the signals around a fault but SIGBUS itself ([`faults`](crate::faults)).
//!
//! Entry points that take locks mask signals meanwhile ([`masked`]), so that a
//! user's handler that touches a map cannot meet a lock that its own thread
//! holds.

mod access;
mod cancel;
mod file_size;
pub(crate) mod kernel;
mod mask;

pub(crate) use access::is_write;
pub use cancel::{NoCancel, SIGCANCEL, disabled as cancel_disabled};
pub use file_size::{without_file_size_signal, without_write_signals};
pub use mask::{Masked, PendingIn, mask_all, masked, threads_unblock_only};
pub(crate) use mask::{all, masked_for_start};
