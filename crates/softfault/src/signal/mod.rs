//! SIGBUS, and all the other signals around it.
//!
//! The handler serves faults in the thread that raised them, with all other
//! signals masked; while it waits it looks whether one is pending, and returns
//! for it: the touch faults again. A SIGBUS that is not ours goes to whoever
//! had it before (`chain`). A handler that somebody installs after ours gets our faults
//! until the next call into the library, which puts ours in front of it; one that restores
//! ours and raises the signal again is understood (`raised`).
//!
//! Entry points that take locks mask signals meanwhile ([`masked`]), so that a
//! user's handler that touches a map cannot meet a lock that its own thread
//! holds.

mod access;
mod cancel;
mod chain;
mod file_size;
mod handler;
mod mask;
mod raised;

#[cfg(test)]
pub(crate) use access::is_write;
pub use file_size::without_file_size_signal;
pub use handler::{Installed, get_in_front, install, state, trust};
pub use mask::{Masked, mask_all, masked};
