//! The program: where it is, and whether its loader would load a library before its own.

use super::elf::{Head, Kind};
use super::not_begun::{cannot_run, not_found};
use super::rights::why_careful;
use crate::error::Error;
use std::env::var_os;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How often an interpreter may have one itself.
const MOST_INTERPRETERS: usize = 4;

/// It runs scripts that name no interpreter.
pub const SHELL: &CStr = c"/bin/sh";

/// A program that is to be run.
pub struct Program(PathBuf);

impl Program {
    /// Finds it, as execvp(3) does.
    pub fn find(name: &OsStr) -> Result<Self, Error> {
        let shown = name.display();
        if name.is_empty() {
            return Err(not_found("the program's name is empty"));
        }
        if name.as_bytes().contains(&b'/') {
            return match fs::metadata(name) {
                Ok(about) if about.is_dir() => Err(is_directory(name)),
                Ok(about) if !about.is_file() => Err(cannot_run(format_args!(
                    "{shown}: it is not a regular file"
                ))),
                Ok(_) => Ok(Self(name.into())),
                Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
                    Err(not_found(format_args!("{shown}: there is no such program")))
                }
                Err(why) => Err(cannot_run(format_args!("{shown}: {why}"))),
            };
        }
        if [".", ".."].contains(&name.to_str().unwrap_or_default()) {
            return Err(is_directory(name));
        }
        let path = var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        let places = std::env::split_paths(&path).map(|directory| directory.join(name));
        let files: Vec<_> = places.filter(|path| path.is_file()).collect();
        let program = files.iter().find(|path| is_executable(path));
        match (program, files.first()) {
            (Some(program), _) => Ok(Self(program.clone())),
            (None, Some(file)) => {
                let file = file.display();
                Err(cannot_run(format_args!("{file}: it is not executable")))
            }
            (None, None) => Err(not_found(format_args!(
                "{shown}: there is no such program in PATH"
            ))),
        }
    }

    /// The one that runs scripts which name no interpreter.
    pub fn shell() -> Self {
        Self(OsStr::from_bytes(SHELL.to_bytes()).into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// An error with the reason, if the program's loader ignores preloaded libraries.
    pub fn can_be_preloaded(&self) -> Result<(), Error> {
        let mut path = self.0.clone();
        for _ in 0..MOST_INTERPRETERS {
            let shown = path.display().to_string();
            let refuse = |why: &str| Err(cannot_run(format_args!("{shown}: {why}")));
            // A file that cannot be read can be executed all the same.
            let kind = Head::read(&path).map_or(Kind::Unknown, |head| head.kind());
            // A script has its interpreter's rights.
            if !matches!(kind, Kind::Script(_))
                && let Some(why) = why_careful(&path)
            {
                return refuse(why);
            }
            match kind {
                Kind::Script(interpreter) => path = interpreter,
                Kind::Dynamic => return Ok(()),
                Kind::Static => {
                    return refuse(
                        "a statically linked program has no loader, and LD_PRELOAD does nothing: run it without softfault",
                    );
                }
                Kind::Musl => {
                    return refuse(
                        "linked with musl, whose loader cannot load our library: it is glibc's",
                    );
                }
                Kind::Other => {
                    return refuse("not a program for this machine's processor and word size");
                }
                Kind::Unknown => return Ok(()),
            }
        }
        Ok(())
    }
}

fn is_directory(name: &OsStr) -> Error {
    let shown = name.display();
    cannot_run(format_args!("{shown}: it is a directory"))
}

/// Whether this user may execute it: a file that only others may is passed over.
fn is_executable(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the path is a live C string.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}
