//! Errors as C has them: errno, and a line of text.

use core::ffi::c_int;
use softfault::FaultError;
use std::borrow::Cow;
use std::io;

/// Why a call has failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) errno: c_int,
    pub(crate) text: Cow<'static, str>,
}

impl Failure {
    /// With a text of ours.
    pub(crate) fn new(errno: c_int, text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        Self { errno, text }
    }

    /// EINVAL.
    pub(crate) fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(libc::EINVAL, text)
    }

    /// EINVAL, of flags.
    pub(crate) fn unknown_bits(bits: c_int) -> Self {
        Self::invalid(format!("flags has unknown bits: {bits:#x}"))
    }

    /// EOPNOTSUPP: mmap(2) has it, and softfault not.
    pub(crate) fn unsupported(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(libc::EOPNOTSUPP, text)
    }

    /// ENOMEM, as madvise(2) and its siblings have it: some of a range is no map.
    pub(crate) fn not_mapped() -> Self {
        Self::new(
            libc::ENOMEM,
            "the range has addresses that softfault has not mapped",
        )
    }

    /// EBUSY: what is pinned cannot go or move.
    pub(crate) fn pinned() -> Self {
        let text = "pages of the map are pinned: call softfault_unpin first";
        Self::new(libc::EBUSY, text)
    }

    /// EBUSY, in a handler of `pthread_atfork`.
    pub(crate) fn forking() -> Self {
        let text = "this thread forks: register handlers that call softfault after the first softfault_mmap";
        Self::new(libc::EBUSY, text)
    }

    /// EBADF.
    pub(crate) fn not_open(fd: c_int) -> Self {
        let text = format!("fd {fd} is not an open file (closed, or O_PATH)");
        Self::new(libc::EBADF, text)
    }

    /// EEXIST, of mmap(2).
    pub(crate) fn taken() -> Self {
        let text = "MAP_FIXED_NOREPLACE: some of the addresses are taken";
        Self::new(libc::EEXIST, text)
    }

    /// A panic.
    pub(crate) fn bug() -> Self {
        let text = "a bug in softfault: a message on the standard error has the place";
        Self::new(libc::ENOTRECOVERABLE, text)
    }
}

/// errno of an error in a page.
pub(crate) fn errno_of(error: FaultError) -> c_int {
    match error {
        FaultError::BeyondEnd => libc::EFAULT,
        FaultError::Io(errno) => errno,
        FaultError::NoMemory | FaultError::PoolEmpty | FaultError::OutOfRange => libc::ENOMEM,
        FaultError::ReadOnly => libc::EACCES,
        FaultError::TimedOut => libc::ETIMEDOUT,
        FaultError::Forked => libc::EOPNOTSUPP,
        // Errors that a later library adds.
        _ => libc::EIO,
    }
}

impl From<FaultError> for Failure {
    fn from(error: FaultError) -> Self {
        Self::new(errno_of(error), error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let inner = error.get_ref();
        if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<FaultError>()) {
            return (*error).into();
        }
        Self::new(softfault::errno_of(&error), error.to_string())
    }
}
