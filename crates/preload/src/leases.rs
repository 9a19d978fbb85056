//! Read leases on files of which mappings are taken.

use crate::count::Decline;
use libc::c_int;
use softfault::ReadLease;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::path::PathBuf;

/// Device and inode.
pub type FileKey = (u64, u64);

/// The leases of a process. Protected by the table's lock.
pub struct Leases {
    held: BTreeMap<FileKey, Leased>,
    /// The kernel's number of the thread that hears when one is wanted, once there is one.
    pub thread: Option<c_int>,
}

struct Leased {
    lease: ReadLease,
    /// Mappings of the file.
    users: usize,
    /// Where it was when the lease was taken.
    path: Option<PathBuf>,
}

/// A file that somebody has opened to write to it, and how many bytes of mappings were handed back for that.
pub struct Written {
    pub path: Option<PathBuf>,
    pub bytes: u64,
}

/// The signal of the thread, which waits for it. A thread that waits for a signal also takes those of its number that are sent to
/// the process, and cannot put them back for another. So it is the C library's own, for single threads: no program has it, and
/// nobody sends it to a process.
pub const SIGNAL: c_int = softfault::SIGCANCEL;

/// Why there is no lease.
pub enum NoLease {
    /// The file's state.
    Declined(Decline),
    /// The system's: without descriptors, memory or /proc, nothing is known of the file.
    Failed(io::Error),
}

impl From<Decline> for NoLease {
    fn from(why: Decline) -> Self {
        Self::Declined(why)
    }
}

impl Leases {
    /// None.
    pub const fn new() -> Self {
        Self {
            held: BTreeMap::new(),
            thread: None,
        }
    }

    /// Counts a mapping of a file in, under a lease; or why there can be none.
    pub fn take(&mut self, file: FileKey, fd: RawFd) -> Result<(), NoLease> {
        if let Some(leased) = self.held.get_mut(&file) {
            if leased.lease.is_wanted() {
                return Err(Decline::OpenForWriting.into());
            }
            leased.users += 1;
            return Ok(());
        }
        let thread = self.thread.ok_or(Decline::FileMayChange)?;
        // SAFETY: open as long as the program's call lasts.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let lease = ReadLease::take(fd, thread, SIGNAL);
        let lease = lease.map_err(|why| match why.raw_os_error() {
            Some(libc::EAGAIN) => Decline::OpenForWriting.into(),
            // None: there is no /proc.
            None | Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => NoLease::Failed(why),
            _ => Decline::FileMayChange.into(),
        })?;
        let path = std::fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd())).ok();
        let users = 1;
        self.held.insert(file, Leased { lease, users, path });
        Ok(())
    }

    /// Counts it out; with the last mapping the lease goes.
    pub fn give(&mut self, file: FileKey) {
        if let Some(leased) = self.held.get_mut(&file) {
            leased.users -= 1;
            if leased.users == 0 {
                self.held.remove(&file);
            }
        }
    }

    /// Gives the lease on a file up, for all its mappings.
    pub fn give_up(&mut self, file: FileKey) {
        self.held.remove(&file);
    }

    /// Where a file was when its lease was taken.
    pub fn path(&self, file: FileKey) -> Option<PathBuf> {
        self.held.get(&file)?.path.clone()
    }

    /// In a child of fork: they are the parent's.
    pub fn forked(&mut self) {
        core::mem::forget(core::mem::take(&mut self.held));
        self.thread = None;
    }

    /// Files that somebody wants to write to.
    pub fn wanted(&self) -> Vec<FileKey> {
        let wanted = self
            .held
            .iter()
            .filter(|(_, leased)| leased.lease.is_wanted());
        wanted.map(|(&file, _)| file).collect()
    }
}
