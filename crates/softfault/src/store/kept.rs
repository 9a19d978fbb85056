//! Numbers that were not closed with their files, for the close would have dropped locks
//! of the program's.

use super::mark::Mark;
use crate::generation::ProcessGeneration;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

/// A number of the process's table, and the file that it meant.
struct KeptNumber {
    fd: RawFd,
    mark: Mark,
}

/// In a child of fork it is the parent's list, of the same numbers. Nothing is locked
/// while it is.
static KEPT: Mutex<Vec<KeptNumber>> = Mutex::new(Vec::new());

/// A write lock of the whole file, to ask for others'.
pub(super) fn any_lock() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Closes a number, at once or when nobody has locks on the file any more.
pub(super) fn close_or_keep(fd: RawFd, mark: Mark) {
    let number = KeptNumber { fd, mark };
    if number.is_locked() {
        change(|kept| kept.push(number));
    }
}

/// Closes those on whose files nobody has locks any more. True if some are left.
pub(crate) fn look() -> bool {
    change(|kept| {
        kept.retain(|kept| kept.is_locked());
        !kept.is_empty()
    })
}

fn change<T>(change: impl FnOnce(&mut Vec<KeptNumber>) -> T) -> T {
    let _masked = crate::signal::masked();
    // A child of fork may find it locked for ever.
    match KEPT.try_lock() {
        Ok(mut kept) => change(&mut kept),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => change(&mut poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) if ProcessGeneration::is_child() => {
            change(&mut Vec::new())
        }
        Err(_) => change(&mut KEPT.lock().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Closes a number of ours.
pub(super) fn close(fd: RawFd) {
    // SAFETY: ours, and not used again.
    unsafe { libc::close(fd) };
}

impl KeptNumber {
    /// False: it was closed, by us or before.
    fn is_locked(&self) -> bool {
        if !self.mark.is(self.fd) {
            return false;
        }
        let mut lock = any_lock();
        // SAFETY: fills the structure.
        let asked = unsafe { libc::fcntl(self.fd, libc::F_OFD_GETLK, &raw mut lock) };
        if asked == 0 && lock.l_type != libc::F_UNLCK as i16 {
            return true;
        }
        close(self.fd);
        false
    }
}
