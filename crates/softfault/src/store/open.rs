//! Opening a file for a store: an open file description of its own, past the
//! page cache where the file system allows.
//!
//! ```text
//! user's fd ── reopen O_DIRECT ──► alignment fits a page ──────────► Direct
//!                 │    └─ refused, or wants larger blocks ─► reopened, Buffered
//!                 └─ may not be reopened (no right, no /proc) ─► dup of the user's
//! ```
//!
//! A dup shares flags and position with the user's descriptor, so nothing may
//! change those: no read-ahead advice, no seeking for holes, and no
//! [mark](super::mark), so it is read in the table.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use softfault_engine::PAGE_SIZE;

use super::descriptor::{Descriptor, NO_READ_AHEAD};
use super::errno;
use super::huge_page_of;
use super::identity::{Alignment, stat};
use crate::table;

/// How a store reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Straight from the device (`O_DIRECT`).
    Direct,
    /// Through the page cache, which is dropped behind each read unless the policy keeps it
    /// ([`Reads`](crate::Reads)).
    Buffered(WhyBuffered),
}

/// Why a store does not read straight from the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyBuffered {
    /// The caller wanted it so, or the engine's policy does for now.
    Asked,
    /// The file system has no direct reads: the errno with which it refused,
    /// or 0 where it says so by itself.
    Refused(i32),
    /// Direct reads want this alignment in bytes, which is more than a page's.
    Alignment(u32),
    /// The file may not be opened anew, for this errno; the caller's own open
    /// file is used, with the kernel's read-ahead as it is set there.
    NotReopened(i32),
}

/// The result of [`open`].
pub(super) struct OpenedFile {
    pub(super) file: Descriptor,
    pub(super) mode: Mode,
    /// Opened once more where the file seems to have holes: looking for them moves the
    /// position, by which `file` is known.
    pub(super) holes: Option<Descriptor>,
    /// A block device, whose size is not in its `stat`.
    pub(super) device: bool,
    /// Not the program's open file, whose flags stay.
    pub(super) ours: bool,
}

/// Whether the file is to be opened past the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Where that is possible.
    Direct,
    /// No.
    Buffered,
    /// Through the page cache; that it could be read past it is found out. Then the mode is `Direct`.
    Either,
}

impl Wanted {
    /// Flags that the file is opened with, and those that it has afterwards.
    fn flags(self) -> (i32, i32) {
        match self {
            Self::Direct => (libc::O_DIRECT, libc::O_DIRECT),
            Self::Buffered => (0, 0),
            Self::Either => (libc::O_DIRECT, 0),
        }
    }
}

/// Opens the file behind `user` for reading. Uses the heap.
pub(super) fn open(user: BorrowedFd<'_>, wanted: Wanted) -> io::Result<OpenedFile> {
    let flags = flags_of(user).map_err(errno::of_call("fcntl"))?;
    if flags & libc::O_PATH != 0 {
        return Err(errno::io(libc::EBADF));
    }
    if flags & libc::O_ACCMODE == libc::O_WRONLY {
        return Err(errno::io(libc::EACCES));
    }
    let stat = stat(user).map_err(errno::of_call("fstat"))?;
    let device = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => false,
        libc::S_IFBLK => true,
        other => return Err(not_mappable(other)),
    };
    if stat.st_blocks == 0 {
        may_be_mapped(user)?;
    }
    let opened_as = |ours, file, mode, holes| {
        Ok(OpenedFile {
            file,
            mode,
            holes,
            device,
            ours,
        })
    };
    let (opened, lent) = (
        |file, mode, holes| opened_as(true, file, mode, holes),
        |file, mode| opened_as(false, file, mode, None),
    );

    let path = path_of(user);
    let (file, refused) = match reopen(&path, &stat, wanted) {
        Ok(reopened) => reopened,
        Err(no @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => return Err(errno::io(no)),
        Err(no) => {
            let file = duplicate(user).map_err(errno::of_call("fcntl"))?;
            if flags & libc::O_DIRECT == 0 {
                return lent(file, Mode::Buffered(WhyBuffered::NotReopened(no)));
            }
            // The caller's own file is direct, and must stay so.
            return match why_not_direct(&file) {
                None => lent(file, Mode::Direct),
                Some(_) => Err(errno::io(libc::EINVAL)),
            };
        }
    };
    let why = match refused {
        Some(why) => Some(why),
        None => {
            let set = |flags| file.set_flags(flags).map_err(errno::of_call("fcntl"));
            // Where nobody tells, it is tried.
            let tried = wanted == Wanted::Either && file.alignment().is_none();
            if tried {
                set(libc::O_DIRECT)?;
            }
            let why = why_not_direct(&file);
            if tried || why.is_some() && wanted == Wanted::Direct {
                // It was opened for direct reads, and has none, or is to have none yet.
                set(0)?;
            }
            why
        }
    };
    let sparse = !device && bytes_allocated(&stat) < stat.st_size as u64;
    // Without a table each seek would go by a number, and might move another file's position. Of FUSE the server answers, which does
    // not know of bytes that the page cache has not written back yet: they would be holes.
    let tells = sparse && table::refused().is_none() && !file.is_fuse();
    let holes = match tells {
        true => open_path(&path, libc::O_RDONLY, (0, 0), &stat).ok(),
        false => None,
    };
    match why {
        None => opened(file, Mode::Direct, holes),
        Some(why) => opened(file, Mode::Buffered(why), holes),
    }
}

/// Asks the kernel whether it would map the file: a file of procfs or sysfs looks like an
/// ordinary one, but its bytes are made when it is read, and its size says nothing of them.
///
/// Worth asking only of a file without blocks, which those never have.
pub(crate) fn may_be_mapped(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a new mapping at an address of the kernel's choice, which nobody touches.
    let addr = unsafe {
        sync::kernel_calls::mmap(
            std::ptr::null_mut(),
            PAGE_SIZE,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_NORESERVE,
            fd.as_raw_fd(),
            0,
        )
    };
    if addr != libc::MAP_FAILED {
        let page = huge_page_of(fd).unwrap_or(PAGE_SIZE);
        // SAFETY: the mapping that was just made.
        unsafe { sync::kernel_calls::munmap(addr, page) };
        return Ok(());
    }
    match crate::errno::errno() {
        libc::ENODEV | libc::EIO | libc::EINVAL => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this file has no bytes until it is read (as in /proc or /sys), and cannot be mapped",
        )),
        no => Err(errno::io(no)),
    }
}

/// Fails where mmap(2) of the descriptor, shared and writable, would: it may not read and write, or the file is sealed.
pub(crate) fn may_be_written(fd: BorrowedFd<'_>) -> io::Result<()> {
    const SEALS: i32 = libc::F_SEAL_WRITE | libc::F_SEAL_FUTURE_WRITE;
    let flags = flags_of(fd).map_err(errno::of_call("fcntl"))?;
    if flags & libc::O_ACCMODE != libc::O_RDWR || flags & libc::O_PATH != 0 {
        return Err(errno::io(libc::EACCES));
    }
    // SAFETY: only asks.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    // A memfd has seals. Other files of tmpfs have none of these, and of those of other file systems that is an error.
    match seals >= 0 && seals & SEALS != 0 {
        true => Err(errno::io(libc::EPERM)),
        false => Ok(()),
    }
}

fn not_mappable(kind: libc::mode_t) -> io::Error {
    let (kind, what) = match kind {
        libc::S_IFDIR => (io::ErrorKind::IsADirectory, "a directory cannot be mapped"),
        libc::S_IFIFO => (io::ErrorKind::InvalidInput, "a pipe cannot be mapped"),
        libc::S_IFSOCK => (io::ErrorKind::InvalidInput, "a socket cannot be mapped"),
        libc::S_IFCHR => (
            io::ErrorKind::InvalidInput,
            "a character device cannot be mapped",
        ),
        _ => (
            io::ErrorKind::InvalidInput,
            "only a file or a block device can be mapped",
        ),
    };
    io::Error::new(kind, what)
}

pub(super) fn flags_of(fd: BorrowedFd<'_>) -> Result<i32, i32> {
    // SAFETY: no memory involved.
    errno::check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })
}

/// The same open file by a descriptor of ours, whose close drops no locks of the program.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> Result<Descriptor, i32> {
    if let Ok(file) = Descriptor::adopt(fd) {
        return Ok(file);
    }
    // SAFETY: no memory involved.
    let fd = errno::check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: the descriptor is new, so it is nobody else's.
    Descriptor::shared(unsafe { OwnedFd::from_raw_fd(fd) }, true)
}

/// The path for opening the file anew in the table that no close of the program
/// reaches: its numbers are another table's, so the calling thread's is named.
pub(super) fn path_of(user: BorrowedFd<'_>) -> CString {
    // SAFETY: only asks.
    let (thread, user) = (unsafe { libc::gettid() }, user.as_raw_fd());
    CString::new(format!("/proc/self/task/{thread}/fd/{user}")).expect("no zeros")
}

/// Bytes that the file system keeps for a file. Blocks in a stat are of 512 bytes,
/// whatever the file system's own block size is.
pub(super) fn bytes_allocated(stat: &libc::stat) -> u64 {
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
    blocks.saturating_mul(512)
}

/// Opens the file once more. Also answers why that is not direct, if it is not.
fn reopen(
    path: &CStr,
    stat: &libc::stat,
    wanted: Wanted,
) -> Result<(Descriptor, Option<WhyBuffered>), i32> {
    let buffered = |why| Ok((open_path(path, libc::O_RDONLY, (0, 0), stat)?, Some(why)));
    if wanted == Wanted::Buffered {
        return buffered(WhyBuffered::Asked);
    }
    match open_path(path, libc::O_RDONLY, wanted.flags(), stat) {
        Ok(file) => Ok((file, None)),
        Err(no @ (libc::EINVAL | libc::EOPNOTSUPP)) => buffered(WhyBuffered::Refused(no)),
        Err(no) => Err(no),
    }
}

/// Opens for this access with the first flags, besides the usual ones, and sets the second.
pub(super) fn open_path(
    path: &CStr,
    access: i32,
    (first, then): (i32, i32),
    expected: &libc::stat,
) -> Result<Descriptor, i32> {
    let flags = access | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK | first;
    let place = [libc::AT_FDCWD as usize, path.as_ptr() as usize];
    let args = [place[0], place[1], flags as usize, 0, 0, 0];
    // O_NONBLOCK only keeps the opening from waiting for a lease.
    // SAFETY: the path is a string that ends in zero.
    let file = match unsafe { Descriptor::open(libc::SYS_openat, args, then) } {
        Err(_) if table::refused().is_some() => {
            // SAFETY: as above.
            let fd = errno::check(unsafe { libc::open(path.as_ptr(), flags) })?;
            // SAFETY: the descriptor is new, so it is nobody else's.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            // SAFETY: no memory involved; the description is ours.
            errno::check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, then) })?;
            let [offset, bytes, advice, ..] = NO_READ_AHEAD.map(|word| word as i32);
            // SAFETY: no memory involved.
            unsafe { libc::posix_fadvise(fd.as_raw_fd(), offset.into(), bytes.into(), advice) };
            Descriptor::own(fd, true)?
        }
        opened => opened?,
    };
    // Anything may be mounted on /proc.
    match file.is_file(expected) {
        true => Ok(file),
        false => Err(libc::ESTALE),
    }
}

/// Why page-aligned direct reads of `file`, which is open for them, do not work.
pub(crate) fn why_not_direct(file: &Descriptor) -> Option<WhyBuffered> {
    let Some(Alignment { memory, offset }) = file.alignment() else {
        return try_direct(file);
    };
    if memory == 0 || offset == 0 {
        Some(WhyBuffered::Refused(0))
    } else if memory.max(offset) as usize > PAGE_SIZE {
        Some(WhyBuffered::Alignment(memory.max(offset)))
    } else {
        None
    }
}

/// One page read directly, where the file system does not tell its alignment.
fn try_direct(file: &Descriptor) -> Option<WhyBuffered> {
    #[repr(align(4096))]
    struct Page([u8; PAGE_SIZE]);
    let mut page = Box::new(Page([0; PAGE_SIZE]));
    let args = [page.0.as_mut_ptr() as usize, PAGE_SIZE, 0, 0, 0];
    // SAFETY: the page is writable for its length.
    match unsafe { file.call(libc::SYS_pread64, args) } {
        // Other errors are the reads' own to report.
        Err(no @ (libc::EINVAL | libc::EOPNOTSUPP)) => Some(WhyBuffered::Refused(no)),
        _ => None,
    }
}
