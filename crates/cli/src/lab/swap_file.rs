//! The kernel's own swap, for the rows on it: a file that is made, switched on, and off again and removed when
//! it is dropped, however the run ends. Whoever kills this process outright leaves both behind; the next lab
//! that needs swap cleans up.

use super::fill::PAGE;
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;

/// How each file's name begins; the maker's process id follows.
const PREFIX: &str = "softfault-lab-swap-";
/// linux/swap.h: used before all others.
const FIRST: i32 = 0x8000 | 0x7fff;

/// A swap file that is on.
#[derive(Debug)]
pub struct SwapFile(PathBuf);

impl SwapFile {
    /// Makes one of `bytes` bytes in `dir`, or says why not.
    pub fn on(dir: &Path, bytes: u64) -> Result<Self, String> {
        sweep();
        let dir = fs::canonicalize(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        // From here on dropping it removes it.
        let swap = Self(dir.join(format!("{PREFIX}{}", process::id())));
        let cannot = |what: &str, e: io::Error| format!("{what} {}: {e}", swap.0.display());
        make(&swap.0, bytes).map_err(|e| cannot("cannot make", e))?;
        // SAFETY: the path is a live C string.
        match unsafe { libc::swapon(path(&swap.0).as_ptr(), FIRST) } {
            0 => Ok(swap),
            _ => Err(cannot("cannot swap to", io::Error::last_os_error())),
        }
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        off(&self.0);
    }
}

/// Switches a swap file off, which reads its pages back, and removes it.
fn off(file: &Path) {
    // Best effort: it was perhaps never on.
    // SAFETY: the path is a live C string.
    unsafe { libc::swapoff(path(file).as_ptr()) };
    let _ = fs::remove_file(file);
}

/// Switches off and removes files that killed labs left.
fn sweep() {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    for file in swaps.lines().skip(1).filter_map(abandoned) {
        off(&file);
    }
}

/// The file of a line of /proc/swaps, if a lab made it whose process is gone.
fn abandoned(line: &str) -> Option<PathBuf> {
    let file = unescaped(line.split_whitespace().next()?);
    let maker = file.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    let gone = maker.parse::<u32>().is_ok() && !Path::new("/proc").join(maker).exists();
    gone.then_some(file)
}

/// A path as /proc/swaps has it: blanks and backslashes are a backslash and three octal digits there.
fn unescaped(shown: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = shown.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// A file without holes, with the header that mkswap(8) writes.
fn make(file: &Path, bytes: u64) -> io::Result<()> {
    let made = File::create_new(file)?;
    made.set_permissions(fs::Permissions::from_mode(0o600))?;
    // SAFETY: fallocate on a descriptor that `made` owns, with no pointer.
    if unsafe { libc::fallocate(made.as_raw_fd(), 0, 0, (bytes + PAGE) as libc::off_t) } != 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
            return Err(error);
        }
        fill(&made, bytes + PAGE)?;
    }
    made.write_all_at(&header(bytes / PAGE), 0)?;
    made.sync_all()
}

fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(zeros.len() as u64);
        file.write_all(&zeros[..count as usize])?;
        left -= count;
    }
    Ok(())
}

/// The first page (union swap_header): version 1, the number of the last page, no bad ones.
fn header(last_page: u64) -> [u8; PAGE as usize] {
    let mut header = [0; PAGE as usize];
    header[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
    header[1028..1032].copy_from_slice(&(last_page as u32).to_ne_bytes());
    header[PAGE as usize - 10..].copy_from_slice(b"SWAPSPACE2");
    header
}

fn path(file: &Path) -> CString {
    CString::new(file.as_os_str().as_bytes()).expect("a path has no zero")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_dead_labs_are_abandoned() {
        let line = |name: &str| format!("/some/dir/{name}     file  1024 0 -2");
        let own = line(&format!("{PREFIX}{}", process::id()));
        assert_eq!(abandoned(&own), None);
        let dead = line(&format!("{PREFIX}4294967294"));
        let file = "/some/dir/softfault-lab-swap-4294967294";
        assert_eq!(abandoned(&dead), Some(file.into()));
        let in_blanks = dead.replace("some", "so\\040me\\134\\011");
        let file = file.replace("some", "so me\\\t");
        assert_eq!(abandoned(&in_blanks), Some(file.into()));
        for other in ["swap.img", "softfault-lab-swap-", "softfault-lab-swap-x"] {
            assert_eq!(abandoned(&line(other)), None);
        }
    }

    #[test]
    fn a_made_file_has_room_for_its_pages_and_a_header() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("swap");
        make(&file, 16 * PAGE).unwrap();
        let bytes = fs::read(&file).unwrap();
        assert_eq!(bytes.len() as u64, 17 * PAGE);
        assert_eq!(&bytes[4086..4096], b"SWAPSPACE2");
        assert_eq!(&bytes[1028..1032], 16u32.to_ne_bytes());
        assert!(make(&file, PAGE).is_err(), "another's file is left alone");
    }
}
