//! The error of a file for reports that is a pipe which nobody reads. The command has this file too.

use std::io;

/// The error, with a remedy where there is one.
pub fn told(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENXIO) => {
            io::Error::other(format!("{error}: nobody reads the pipe, or it is a socket"))
        }
        _ => error,
    }
}
