//! Files that tests write, and that somebody then asks the kernel for a lease on, or to run.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Waits until nobody has a file open for writing.
///
/// Its writer has closed it; but a child that another thread of the test forked meanwhile has a copy of that descriptor
/// until it calls exec(2), and so long a read lease on the file is refused (EAGAIN), and running it (ETXTBSY).
pub fn wait(path: &Path) {
    let file = File::open(path).expect("it has been written");
    // The lease ends with the descriptor. Without the right to one there is nothing to be learned, and nothing depends on it.
    // SAFETY: takes numbers only.
    while unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) } < 0
        && std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
    {
        std::thread::yield_now();
    }
}
