//! The library that is loaded before the program's own: where it is, and whether it is of this command's build.

use super::elf::Head;
use super::{absolute, not_begun, stamp};
use crate::error::Error;
use std::env::{current_exe, var_os};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const NAME: &str = "libsoftfault_preload.so";

/// The library: where `SOFTFAULT_PRELOAD` says, beside this command, or in `../lib/softfault` from there.
pub fn find() -> Result<PathBuf, Error> {
    let found = match var_os("SOFTFAULT_PRELOAD").filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = absolute("SOFTFAULT_PRELOAD", Path::new(&path))?;
            let there = path.is_file();
            there.then_some(path.clone()).ok_or_else(|| {
                let path = path.display();
                Error::input(format_args!(
                    "SOFTFAULT_PRELOAD: there is no library {path}"
                ))
            })?
        }
        None => beside_us()?,
    };
    // The loader takes the list apart there.
    let odd = |byte: &u8| b": \t\n".contains(byte);
    if found.as_os_str().as_bytes().iter().any(odd) {
        let path = found.display();
        return Err(not_begun::failed(format_args!(
            "{path}: the loader cannot load a library whose path has a space or a colon; name a copy elsewhere in SOFTFAULT_PRELOAD"
        )));
    }
    Ok(found)
}

/// An error with both builds, if the library is of another than this command: it would pass over options that it does not know.
pub fn fits(library: &Path) -> Result<(), Error> {
    let note = Head::read(library)
        .ok()
        .and_then(|head| head.note(stamp::NOTE));
    let theirs = match note {
        Some(note) if note == stamp::STAMP.as_bytes() => return Ok(()),
        Some(note) => format!("of softfault {}", note.escape_ascii()),
        None => "of an unknown build".to_owned(),
    };
    let us = us()?;
    Err(not_begun::failed(format_args!(
        "the library {}, {theirs}, does not fit {}, of softfault {}: build both anew \
         (cargo build --release -p softfault-cli -p softfault-preload)",
        library.display(),
        us.display(),
        stamp::STAMP
    )))
}

/// This command.
fn us() -> Result<PathBuf, Error> {
    current_exe().map_err(|why| not_begun::failed(format_args!("/proc/self/exe: {why}")))
}

fn beside_us() -> Result<PathBuf, Error> {
    let us = us()?;
    let directory = us.parent().unwrap_or(Path::new("/"));
    let places = [directory.to_owned(), directory.join("../lib/softfault")];
    let mut paths = places.iter().map(|place| place.join(NAME));
    paths.find(|path| path.is_file()).ok_or_else(|| {
        let directory = directory.display();
        not_begun::failed(format_args!(
            "{NAME} is neither in {directory} nor in ../lib/softfault from there, and SOFTFAULT_PRELOAD names none \
             (cargo build --release -p softfault-preload makes it)"
        ))
    })
}
