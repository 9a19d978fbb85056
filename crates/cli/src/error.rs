//! Errors by their cause, which decides the exit code.

use std::fmt;

/// An error of a command, printed as one line on stderr.
#[derive(Debug)]
pub enum Error {
    /// The caller's input cannot be used (argument, file, directory, budget, room on the disk): exit code 2.
    Input(String),
    /// A run failed (wrong data, a child that died): exit code 1.
    Failed(String),
    /// `softfault run` did not begin the program: this exit code.
    NotBegun(u8, String),
    /// A signal asked for the end: exit code 128 + its number.
    Interrupted(i32),
}

impl Error {
    /// An error in the caller's input.
    pub fn input(text: impl fmt::Display) -> Self {
        Self::Input(text.to_string())
    }

    /// A failure that the caller did not cause.
    pub fn failed(text: impl fmt::Display) -> Self {
        Self::Failed(text.to_string())
    }

    /// The process's exit code for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Input(_) => 2,
            Self::NotBegun(code, _) => *code,
            Self::Interrupted(signal) => 128 + *signal as u8,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(text) | Self::Failed(text) | Self::NotBegun(_, text) => {
                f.write_str(&text.replace('\n', " "))
            }
            Self::Interrupted(_) => f.write_str("interrupted"),
        }
    }
}
