//! Errors as exceptions: `OSError` with an errno, and `MemoryError` where a budget is too small.

use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use softfault::FaultError;
use std::io::{self, ErrorKind};

/// The exception of an error.
pub(crate) fn raised(error: io::Error) -> PyErr {
    let error = match error.downcast::<PyErr>() {
        Ok(exception) => return exception,
        Err(error) => error,
    };
    let inner = error.get_ref();
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<FaultError>()) {
        return of_page(*error);
    }
    let text = error.to_string();
    if error.raw_os_error().is_none() && error.kind() == ErrorKind::OutOfMemory {
        return PyMemoryError::new_err(text);
    }
    let errno = softfault::errno_of(&error);
    // Python says the number itself.
    let number = format!(" (os error {errno})");
    let text = text.strip_suffix(&number).unwrap_or(&text).to_owned();
    PyOSError::new_err((errno, text))
}

/// Runs the handlers of Python's signals, for a system call that a signal interrupted: the call is made again, unless a handler
/// has raised an exception.
pub(crate) fn handle_signals() -> io::Result<()> {
    let handled = Python::try_attach(|py| py.check_signals());
    handled.unwrap_or(Ok(())).map_err(io::Error::other)
}

/// The exception of a page that cannot be had.
pub(crate) fn of_page(error: FaultError) -> PyErr {
    let errno = match error {
        FaultError::NoMemory | FaultError::PoolEmpty => {
            return PyMemoryError::new_err(error.to_string());
        }
        FaultError::BeyondEnd => libc::EFAULT,
        FaultError::Io(errno) => return raised(io::Error::from_raw_os_error(errno)),
        FaultError::OutOfRange => libc::EINVAL,
        FaultError::ReadOnly => libc::EACCES,
        FaultError::TimedOut => libc::ETIMEDOUT,
        FaultError::Forked => libc::EOPNOTSUPP,
        // Errors that a later library adds.
        _ => libc::EIO,
    };
    PyOSError::new_err((errno, error.to_string()))
}
