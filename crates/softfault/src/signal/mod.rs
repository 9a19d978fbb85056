//! SIGBUS, and all the other signals around it.
//!
//! The handler serves faults in the thread that raised them, with all other
//! signals masked; while it waits it looks whether one is pending, and returns
//! for it: the touch faults again. A SIGBUS that is not ours goes to whoever
//! had it before.
//!
//! Entry points that take locks mask signals meanwhile ([`masked`]), so that a
//! user's handler that touches a map cannot meet a lock that its own thread
//! holds.

mod access;
mod handler;
mod mask;

#[cfg(test)]
pub(crate) use access::is_write;
pub use handler::{Installed, install, install_once, state};
pub use mask::{Masked, masked};
