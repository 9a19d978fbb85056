//! Why the program was not begun. The exit codes are those of env(1), nice(1) and timeout(1); an error in the
//! arguments or in the environment is 2, as of all commands.

use crate::error::Error;
use std::fmt;

/// softfault itself failed.
pub fn failed(text: impl fmt::Display) -> Error {
    Error::NotBegun(125, text.to_string())
}

/// The program is there, and cannot be executed, or not under softfault.
pub fn cannot_run(text: impl fmt::Display) -> Error {
    Error::NotBegun(126, text.to_string())
}

/// There is no such program.
pub fn not_found(text: impl fmt::Display) -> Error {
    Error::NotBegun(127, text.to_string())
}
