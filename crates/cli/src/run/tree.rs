//! The page by which the processes of a tree share a budget: its name. The first process that needs the page makes it.

use super::not_begun;
use crate::error::Error;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where its name is.
pub use super::names::TREE as VARIABLE;

/// A name that nobody has: of this user, this process, and a number.
pub fn name() -> Result<PathBuf, Error> {
    let mut number = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut number))
        .map_err(not_begun::failed)?;
    // SAFETY: only asks.
    let user = unsafe { libc::geteuid() };
    let (process, number) = (std::process::id(), u64::from_ne_bytes(number));
    Ok(directory()?.join(format!("softfault-run-{user}-{process}-{number:016x}")))
}

/// In memory, if there is such a place.
fn directory() -> Result<PathBuf, Error> {
    let places = [
        Some("/dev/shm".into()),
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        Some(std::env::temp_dir()),
    ];
    let mut places = places.into_iter().flatten();
    let found = places.find(|place| place.is_absolute() && is_writable(place));
    let none = "no file can be made in /dev/shm, XDG_RUNTIME_DIR or TMPDIR, by which processes share a budget: use --memory-per-process";
    found.ok_or_else(|| not_begun::failed(none))
}

fn is_writable(place: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(place.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a path that ends in zero.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}
