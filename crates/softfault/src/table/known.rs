//! The server as the program's table knows it: a pidfd, by which numbers are taken from
//! the server's table.
//!
//! It stays open, for the number may be somebody else's by the time that it would be
//! closed. A child inherits it, and may run no handlers (a bare `clone`, a fork before there
//! is an engine): by it the child would get its parent's descriptors. So it is known of which
//! table it is.

use super::identity::{Identity, close_if, identity_of};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// `PIDFD_THREAD`: of a thread and not of a process. (Linux 6.9)
pub(super) const PIDFD_THREAD: usize = libc::O_EXCL as usize;

const NONE: i32 = -1;

/// Changed under `borrowing` of the table. In a child it is the parent's.
static SERVER: AtomicI32 = AtomicI32::new(NONE);
/// The generation of the table whose server it is, and the server's thread.
static OF: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
/// Its device and inode.
static IDENTITY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The number for this server of a table of this generation, if it is still the same file.
pub(super) fn server(generation: u32, thread: u32) -> Option<i32> {
    let fd = SERVER.load(Ordering::Relaxed);
    let of = OF.each_ref().map(|word| word.load(Ordering::Relaxed));
    let is_its = of == [generation, thread];
    (is_its && fd != NONE && identity_of(fd) == Ok(identity())).then_some(fd)
}

fn identity() -> Identity {
    let [device, inode] = IDENTITY.each_ref().map(|word| word.load(Ordering::Relaxed));
    Identity { device, inode }
}

/// This is the number of that table's server from now on. The one before is not ours any more.
pub(super) fn set_server(generation: u32, thread: u32, pidfd: i32) -> i32 {
    if let Ok(Identity { device, inode }) = identity_of(pidfd) {
        IDENTITY[0].store(device, Ordering::Relaxed);
        IDENTITY[1].store(inode, Ordering::Relaxed);
        SERVER.store(pidfd, Ordering::Relaxed);
        OF[0].store(generation, Ordering::Relaxed);
        OF[1].store(thread, Ordering::Relaxed);
    }
    pidfd
}

/// In a child, which has one thread: closes the parent's, if it is still the same file.
pub(crate) fn fork_child() {
    close_if(SERVER.swap(NONE, Ordering::Relaxed), identity());
}
