//! The files that workloads read: made ones, of holes or of known data, and the caller's own.
//!
//! A made file has no name (O_TMPFILE, or unlinked at once where a file system has none), one that stays not before it is whole. So nothing
//! is left behind however the command ends, SIGKILL included. Children inherit the descriptor and open
//! it anew through /proc/self/fd, each with read-ahead state of its own.

use super::fill::{Contents, FILE_MAX, Fill, PAGE};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::size;
use indicatif::{ProgressBar, ProgressStyle};
use std::ffi::CString;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use tempfile::NamedTempFile;

/// Pages written at once, and between two looks at the interrupt flag.
const CHUNK_PAGES: u64 = 256;
/// Written bytes between two syncs: bounds the dirty memory, and makes the bar tell the disk's speed.
const SYNC_BYTES: u64 = 64 << 20;
/// The largest file of a warm start.
const MIXED_MAX: u64 = 8 << 20;

/// A file open for reading. All fields immutable.
#[derive(Debug)]
pub struct LabFile {
    /// Read-only, inherited by children.
    pub file: File,
    /// Its length.
    pub bytes: u64,
    /// Its contents.
    pub contents: Contents,
}

/// Opens a file that must be a regular one.
pub fn open_regular(path: &Path) -> Result<File, Error> {
    let fail = |e: &dyn std::fmt::Display| Error::input(format_args!("{}: {e}", path.display()));
    // Looked at before it is opened: opening a pipe would wait for its writer.
    let kind = std::fs::metadata(path).map_err(|e| fail(&e))?.file_type();
    if kind.is_dir() {
        return Err(fail(&"is a directory"));
    }
    if !kind.is_file() {
        return Err(fail(&"is not a regular file"));
    }
    File::open(path).map_err(|e| fail(&e))
}

/// Opens anything that can be read: waits for a pipe's writer, as `cat` does.
pub fn open_unless_directory(path: &Path) -> Result<File, Error> {
    let fail = |e: &dyn std::fmt::Display| Error::input(format_args!("{}: {e}", path.display()));
    let file = File::open(path).map_err(|e| fail(&e))?;
    match file.metadata().map_err(|e| fail(&e))?.is_dir() {
        true => Err(fail(&"is a directory")),
        false => Ok(file),
    }
}

/// Opens the caller's file; recognises one that was made earlier.
pub fn open(path: &Path) -> Result<LabFile, Error> {
    let fail = |e: &dyn std::fmt::Display| Error::input(format_args!("{}: {e}", path.display()));
    let file = open_regular(path)?;
    let bytes = file.metadata().map_err(|e| fail(&e))?.len();
    if bytes == 0 {
        return Err(fail(&"is empty"));
    }
    if bytes > FILE_MAX {
        return Err(fail(&"is larger than any file of the lab"));
    }
    let mut first = [0; 24];
    let read = file.read_at(&mut first, 0).map_err(|e| fail(&e))?;
    let contents = match Fill::recognise(&first[..read], bytes) {
        Some(fill) => Contents::Filled(fill),
        None => Contents::Unknown,
    };
    LabFile::inheritable(file, bytes, contents).map_err(|e| fail(&e))
}

/// Makes files of these sizes in `dir`, of data that `seed` determines; shows a bar.
pub fn make_data(
    dir: &Path,
    sizes: &[u64],
    seed: u64,
    interrupt: &Interrupt,
) -> Result<Vec<LabFile>, Error> {
    let total = sizes.iter().sum();
    let fail = |e: io::Error| cannot_make(dir, total, e);
    let mut files = Vec::new();
    // Room for all of them first: a full disk is told before minutes of writing.
    for &bytes in sizes {
        interrupt.check()?;
        let file = tempfile::tempfile_in(dir).map_err(fail)?;
        reserve(&file, bytes).map_err(fail)?;
        files.push(file);
    }
    let bar = byte_bar(total, "making files");
    let mut made = Vec::new();
    let mut unsynced = 0;
    for (number, (file, &bytes)) in files.into_iter().zip(sizes).enumerate() {
        let fill = Fill {
            seed: super::fill::mix(seed.wrapping_add(number as u64)),
            bytes,
        };
        write_data(&file, fill, &bar, interrupt, &fail)?;
        unsynced += bytes;
        if unsynced >= SYNC_BYTES || number + 1 == sizes.len() {
            sync_all_files(&file).map_err(fail)?;
            unsynced = 0;
        }
        made.push(LabFile::reopened(&file, bytes, Contents::Filled(fill)).map_err(fail)?);
    }
    bar.finish_and_clear();
    Ok(made)
}

/// Sizes of a warm start's files, `total` bytes in all, as the simulator's are spread.
pub fn mixed_sizes(total: u64, seed: u64) -> Vec<u64> {
    let largest = (total / 4).clamp(PAGE, MIXED_MAX);
    let orders = (largest as f64 / PAGE as f64).ln();
    let mean = match orders > 0.0 {
        true => (largest - PAGE) as f64 / orders,
        false => PAGE as f64,
    };
    let count = (total as f64 / mean).round().max(1.0) as u64;
    softfault_sim::mixed_sizes(count, largest, seed)
}

/// Makes a file of known data that stays, for many runs with `--file`. It appears under its name only once
/// it is whole.
pub fn make_named(path: &Path, bytes: u64, seed: u64, interrupt: &Interrupt) -> Result<(), Error> {
    let dir = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let fail = |e: io::Error| cannot_make(dir, bytes, e);
    if path.exists() {
        return Err(Error::input(format_args!(
            "{} is there already",
            path.display()
        )));
    }
    let unnamed = unnamed_in(dir).map_err(fail)?;
    let named = match unnamed {
        Some(_) => None,
        None => Some(with_a_name(dir).map_err(fail)?),
    };
    let file = (unnamed.as_ref()).or(named.as_ref().map(NamedTempFile::as_file));
    let file = file.expect("it is one of the two");
    reserve(file, bytes).map_err(fail)?;
    let fill = Fill {
        seed: super::fill::mix(seed),
        bytes,
    };
    let bar = byte_bar(bytes, "making files");
    write_data(file, fill, &bar, interrupt, &fail)?;
    file.sync_all().map_err(fail)?;
    bar.finish_and_clear();
    let kept = match named {
        Some(named) => named.persist_noclobber(path).map(drop).map_err(|e| e.error),
        None => name(file, path),
    };
    kept.map_err(|e| Error::input(format_args!("{}: {e}", path.display())))
}

/// A file without a name, which it can be given: a killed command leaves nothing. `None` on file systems that have none.
fn unnamed_in(dir: &Path) -> io::Result<Option<File>> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o666);
    match options.custom_flags(libc::O_TMPFILE).open(dir) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        Err(e) => Err(e),
    }
}

fn with_a_name(dir: &Path) -> io::Result<NamedTempFile> {
    let mode = Permissions::from_mode(0o666);
    tempfile::Builder::new().permissions(mode).tempfile_in(dir)
}

/// Gives a file its name, which nothing else may have.
fn name(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: live C strings.
    match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes `count` files of `bytes` bytes each in `dir`, all hole.
pub fn make_holes(dir: &Path, count: usize, bytes: u64) -> Result<Vec<LabFile>, Error> {
    let make = || {
        let file = tempfile::tempfile_in(dir)?;
        file.set_len(bytes)?;
        LabFile::reopened(&file, bytes, Contents::Zeros)
    };
    (0..count)
        .map(|_| make().map_err(|e| cannot_make(dir, bytes * count as u64, e)))
        .collect()
}

/// A progress bar over bytes, on stderr where that is a terminal.
pub fn byte_bar(total: u64, what: &'static str) -> ProgressBar {
    let style =
        "{msg:16} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
    ProgressBar::new(total)
        .with_style(ProgressStyle::with_template(style).expect("a well-formed template"))
        .with_message(what)
}

impl LabFile {
    fn inheritable(file: File, bytes: u64, contents: Contents) -> io::Result<Self> {
        // SAFETY: fcntl on a descriptor that `file` owns, with no pointer.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            file,
            bytes,
            contents,
        })
    }

    /// `made` opened again for reading only: nobody holds it open for writing once it is made.
    fn reopened(made: &File, bytes: u64, contents: Contents) -> io::Result<Self> {
        let file = File::open(format!("/proc/self/fd/{}", made.as_raw_fd()))?;
        Self::inheritable(file, bytes, contents)
    }

    /// Pages of `PAGE` bytes, a partial last one included.
    pub fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE)
    }
}

fn cannot_make(dir: &Path, bytes: u64, error: io::Error) -> Error {
    let bytes = size::show(bytes);
    // The name of a file that was to have none tells nothing.
    let inner = error.get_ref().and_then(|named| named.source());
    let error = inner.map_or_else(|| error.to_string(), ToString::to_string);
    Error::input(format_args!(
        "cannot make {bytes} of files in {}: {error}",
        dir.display()
    ))
}

/// The room that an ordinary user has in `dir`, if its file system tells.
pub fn room(dir: &Path) -> Option<u64> {
    // One that knows of no blocks has zeros everywhere: those in FUSE whose program does not answer the call.
    let about = file_system(dir).filter(|about| about.f_blocks > 0)?;
    Some(about.f_bavail * about.f_frsize)
}

/// The file system that `path` is in tells of itself.
pub fn file_system(path: &Path) -> Option<libc::statvfs> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: zeros are a value of each field.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a live C string and a live structure.
    let told = unsafe { libc::statvfs(path.as_ptr(), &mut about) } == 0;
    told.then_some(about)
}

/// A file in memory for this process and its children; `flags` are those of memfd_create(2).
pub fn in_memory(flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: memfd_create reads the name, a live C string.
    let fd = unsafe { libc::memfd_create(c"softfault-lab".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and nobody else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Makes a file so long, of blocks that it has, where its file system can say so.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    // SAFETY: fallocate on a descriptor that `file` owns, with no pointer.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => file.set_len(bytes),
        error => Err(error),
    }
}

fn write_data(
    mut file: &File,
    fill: Fill,
    bar: &ProgressBar,
    interrupt: &Interrupt,
    fail: &dyn Fn(io::Error) -> Error,
) -> Result<(), Error> {
    let page_words = (PAGE / 8) as usize;
    let mut words = vec![0u64; CHUNK_PAGES as usize * page_words];
    let pages = fill.bytes / PAGE;
    let mut unsynced = 0;
    for first in (0..pages).step_by(CHUNK_PAGES as usize) {
        interrupt.check()?;
        let count = CHUNK_PAGES.min(pages - first);
        let chunk = &mut words[..count as usize * page_words];
        for (page, words) in (first..).zip(chunk.chunks_exact_mut(page_words)) {
            fill.page(page, words);
        }
        // SAFETY: every bit pattern of a u64 is eight valid bytes, and bytes need no alignment.
        let bytes = unsafe { chunk.align_to::<u8>().1 };
        file.write_all(bytes).map_err(fail)?;
        bar.inc(bytes.len() as u64);
        unsynced += bytes.len() as u64;
        if unsynced >= SYNC_BYTES {
            file.sync_data().map_err(fail)?;
            unsynced = 0;
        }
    }
    Ok(())
}

/// Writes the dirty data of `file`'s file system to the disk: one wait for many small files.
fn sync_all_files(file: &File) -> io::Result<()> {
    // SAFETY: syncfs on a descriptor that `file` owns, with no pointer.
    match unsafe { libc::syncfs(file.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_unknown_where_a_file_system_has_no_blocks() {
        assert_eq!(room(Path::new("/proc")), None);
        assert!(room(Path::new(".")).is_some());
    }

    #[test]
    fn mixed_sizes_are_of_all_orders_and_near_their_total() {
        let sizes = mixed_sizes(1 << 30, 1);
        let total: u64 = sizes.iter().sum();
        assert!((0.98..1.02).contains(&(total as f64 / (1 << 30) as f64)));
        let within = |low: u64, high: u64| {
            let count = sizes.iter().filter(|&&bytes| low <= bytes && bytes < high);
            count.count() as f64 / sizes.len() as f64
        };
        // Each of the eleven doublings has its eleventh.
        assert!((0.07..0.11).contains(&within(64 << 10, 128 << 10)));
        assert!((0.07..0.11).contains(&within(1 << 20, 2 << 20)));
        assert!(sizes.iter().all(|bytes| bytes.is_multiple_of(PAGE)));
        assert!(sizes.iter().all(|&bytes| bytes <= MIXED_MAX));
        assert_eq!(sizes, mixed_sizes(1 << 30, 1));
        assert_ne!(sizes, mixed_sizes(1 << 30, 2));
        assert_eq!(mixed_sizes(PAGE, 1), [PAGE]);
    }
}
