//! Which file a number stands for.

use super::raw;
use core::mem::MaybeUninit;

/// A file, as fstat(2) tells it from others. Each userfaultfd, ring, pipe and pidfd (since Linux 6.9) has
/// an inode of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Identity {
    /// Of nothing.
    pub(crate) const NONE: Self = Self {
        device: 0,
        inode: 0,
    };

    /// The identity of the file of an fstat(2).
    pub(crate) fn of(stat: &libc::stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// Of a number of the calling thread's table. The error is an errno.
pub(crate) fn identity_of(fd: i32) -> Result<Identity, i32> {
    by(|[stat, ..]| {
        let args = [fd as usize, stat, 0, 0, 0, 0];
        // SAFETY: fills the structure.
        raw::answered(unsafe { raw::call(libc::SYS_fstat, &args) })
    })
}

/// By a call of fstat(2), as [`stat_by`].
pub(super) fn by(fstat: impl FnOnce([usize; 5]) -> Result<usize, i32>) -> Result<Identity, i32> {
    Ok(Identity::of(&stat_by(fstat)?))
}

/// What a call of fstat(2) fills in that has these arguments behind the descriptor.
pub(crate) fn stat_by(
    fstat: impl FnOnce([usize; 5]) -> Result<usize, i32>,
) -> Result<libc::stat, i32> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    fstat([stat.as_mut_ptr() as usize, 0, 0, 0, 0])?;
    // SAFETY: zeros are valid, and so are the kernel's values.
    Ok(unsafe { stat.assume_init() })
}

/// Closes a number if it means this file. The program must not close it and take the
/// number at that very moment.
pub(crate) fn close_if(fd: i32, identity: Identity) {
    if identity_of(fd) == Ok(identity) {
        // SAFETY: ours, and not used again.
        unsafe { raw::call(libc::SYS_close, &[fd as usize, 0, 0, 0, 0, 0]) };
    }
}
