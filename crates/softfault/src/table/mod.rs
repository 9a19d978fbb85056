//! Descriptors that no close of the program reaches.
//!
//! A program may close descriptors that it does not know: `closefrom(3)` before it
//! executes another, a loop when it becomes a daemon, `dup2` over a number that it takes
//! for free. The last close of a userfaultfd takes its windows' registration away, and
//! missing pages become zeros. So a descriptor that must stay open is open in a *table of its own*,
//! which a thread of ours has, the *server*. It does nothing but system calls for others.
//!
//! ```text
//!   the process                                  the server
//!   table of descriptors                         table of descriptors
//!     0 1 2   the program's                        0   userfaultfd   Guarded
//!     3       userfaultfd  ◄── pidfd_getfd ──────  1   pagemap       Guarded
//!     4 ...   the program's                        ...
//!      ▲                                            ▲
//!   Working: calls by its number, which may      Guarded::call: asks the server, by
//!   mean something else by now; then it gets     a word of memory and a futex
//!   another, or asks the server
//! ```
//!
//! The server shares all but the table with the process, so pointers mean the same, and
//! its files are the process's. It is a thread of the kernel's and not one of libc's:
//! libc does not count it, and `exit`, `exec` and signals treat the process as if it
//! were not there. Two effects show: one more thread in `/proc/self/task`, and a call that only
//! processes of one thread may make (`unshare(CLONE_NEWUSER)`, `setns` to a user or mount
//! namespace) is refused. No libc tells it of `setuid`: it takes the credentials of
//! the thread that asks it to open something, and until then has those of the last one.
//!
//! A child of fork has no server: guarded descriptors are its parent's, and every call says
//! EBADF. It starts its own when it needs one. A child that shares the memory (vfork) asks
//! its parent's.
//!
//! Where no thread can be started (RLIMIT_NPROC, a filter for system calls), there is no
//! table: descriptors are plain ones, and a program must not close those it does not know.

mod credentials;
#[cfg(test)]
#[path = "../../tests/filter/mod.rs"]
mod filter;
mod guarded;
mod identity;
#[cfg(test)]
pub(crate) mod in_child;
mod known;
mod raw;
mod read_file;
#[cfg(test)]
pub(crate) mod scratch;
mod sent;
mod server;
#[cfg(test)]
mod tests;
mod working;

pub(crate) use guarded::Guarded;
pub(crate) use identity::{Identity, close_if, identity_of, stat_by};
pub(crate) use known::fork_child;
pub(crate) use read_file::read_file;
pub(crate) use working::Working;

/// Lets several calls run in the table at a time, where some wait for a disk.
pub(crate) fn want_several() {
    if let Ok(table) = server::DescriptorTable::start() {
        table.want_all();
    }
}

/// Lets the servers have the rights of the calling thread, as if it had opened something.
pub(crate) fn take_credentials() {
    if let Ok(table) = server::DescriptorTable::start() {
        table.take_credentials();
    }
}

/// The calling thread has come to have other rights, and so has the process: the servers take them at once, if there are any.
pub fn follow_credentials() {
    if let Some(table) = server::DescriptorTable::there()
        && table.is_of_this_process()
    {
        table.follow_credentials();
    }
}

/// Why this process has no table, if it has none: an errno. Starts it.
pub(crate) fn refused() -> Option<i32> {
    server::DescriptorTable::start().err()
}

/// Requests of the calling thread, each of which costs two changes of threads.
#[cfg(test)]
pub(crate) fn requests() -> u32 {
    server::REQUESTS.get()
}

/// True if there is a table here.
pub(crate) fn is_there() -> bool {
    server::DescriptorTable::there().is_some()
}

/// A system call in the calling thread, past the C library.
///
/// # Safety
/// The arguments are those that this call takes.
pub(crate) unsafe fn call(number: core::ffi::c_long, args: &[usize; 6]) -> Result<usize, i32> {
    // SAFETY: the caller's promise.
    raw::answered(unsafe { raw::call(number, args) })
}
