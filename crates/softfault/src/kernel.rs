//! Maps that the kernel serves: the same verbs, by its own calls. And their counts.
//!
//! | a map | why |
//! |---|---|
//! | any, where userfaultfd is closed | [`Fallback::Kernel`](crate::Fallback::Kernel) |
//! | of a small file | it is cheaper |
//! | shared and writable, and of a file that has such a map | one page of a file is in one place |
//! | executable, a stack, of huge pages by `MAP_HUGETLB` | no touch of it can be a fault of ours |
//! | writable, and of a file on hugetlbfs | nobody can write to such a file but by a map |

use crate::error::{answered, too_large};
use crate::machine::huge_page_bytes;
use crate::store::{self, Descriptor};
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use libc::{c_int, c_void};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Counts of memory that the kernel serves by policy, for the whole process. It is not in any budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelCount {
    /// Small maps that were made.
    SmallMaps,
    /// Their bytes.
    SmallBytes,
    /// Times that it got a window of the engine's to serve.
    SwitchedToKernel,
    /// Bytes of these.
    SwitchedToKernelBytes,
    /// Times that one was taken back.
    SwitchedToEngine,
    /// Bytes of segments that it served of scans.
    ScannedBytes,
    /// Shared writable maps that were made, and other maps of their files.
    Shared,
    /// Their bytes.
    SharedBytes,
    /// Executable maps, stacks and those of huge pages that were made.
    Special,
    /// Their bytes.
    SpecialBytes,
}

static COUNTS: [AtomicU64; 10] = [const { AtomicU64::new(0) }; 10];

impl KernelCount {
    pub(crate) fn add(self, count: u64) {
        COUNTS[self as usize].fetch_add(count, Relaxed);
    }

    pub(crate) fn get(self) -> u64 {
        COUNTS[self as usize].load(Relaxed)
    }
}

/// The source of the mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MapSource<'a> {
    /// Zeros, with these flags besides.
    Nothing(c_int),
    /// A file from this byte on, shared or private.
    File(BorrowedFd<'a>, u64, c_int),
    /// The same of a file of ours.
    Own(&'a Descriptor, u64, c_int),
}

/// A mapping of the kernel's.
#[derive(Debug)]
pub(crate) struct KernelMap {
    start: usize,
    /// Bytes of the mapping before the first of the map.
    skip: usize,
    len: usize,
    /// Bytes of a page of it: the kernel maps, protects and unmaps whole pages only. Immutable.
    page: usize,
    /// A file's own pages, which its maker asked for to read: the file's descriptor may allow more.
    shared_to_read: bool,
}

impl KernelMap {
    /// Maps `len` bytes, or, as mmap(2) has no empty mappings, one that nobody sees.
    pub(crate) fn new(of: MapSource<'_>, len: usize, access: KernelAccess) -> io::Result<Self> {
        let (offset, kind) = match of {
            MapSource::Nothing(flags) => (0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags),
            MapSource::File(_, offset, kind) | MapSource::Own(_, offset, kind) => (offset, kind),
        };
        let skip = (offset % PAGE_SIZE as u64) as usize;
        let page = match of {
            MapSource::Nothing(flags) => page_size(flags),
            MapSource::File(fd, ..) => page_size_of(fd),
            MapSource::Own(file, ..) => store::huge_page_of_own(file).unwrap_or(PAGE_SIZE),
        };
        // Huge pages that are not reserved would be a SIGBUS at a touch.
        let kind = match page {
            PAGE_SIZE => kind | libc::MAP_NORESERVE,
            _ => kind,
        };
        let bytes = (len + skip).max(1);
        let from = offset - skip as u64;
        let by = |fd| {
            let from = from as libc::off_t;
            let anywhere = core::ptr::null_mut();
            // SAFETY: a new mapping at an address of the kernel's choice.
            match unsafe {
                sync::kernel_calls::mmap(anywhere, bytes, access.flags(), kind, fd, from)
            } {
                libc::MAP_FAILED => Err(io::Error::last_os_error()),
                addr => Ok(addr as usize),
            }
        };
        let start = match of {
            MapSource::Nothing(_) => by(-1),
            MapSource::File(fd, ..) => by(fd.as_raw_fd()),
            MapSource::Own(file, ..) => {
                let (access, kind) = (access.flags() as usize, kind as usize);
                let args = |fd| [0, bytes, access, kind, fd as usize, from as usize];
                // SAFETY: as above. The table's thread has the memory of the process.
                let start = unsafe { file.run(libc::SYS_mmap, args) };
                start.map_err(io::Error::from_raw_os_error)
            }
        };
        Ok(Self {
            start: start?,
            skip,
            len,
            page,
            shared_to_read: kind & libc::MAP_SHARED != 0 && access != KernelAccess::ReadWrite,
        })
    }

    /// True if a store to it would be one to a file that was mapped to be read.
    pub(crate) fn is_shared_to_read(&self) -> bool {
        self.shared_to_read
    }

    /// Where the first byte is.
    pub(crate) fn start(&self) -> usize {
        self.start + self.skip
    }

    /// Bytes of the map.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of a page of it.
    pub(crate) fn page_size(&self) -> usize {
        self.page
    }

    /// All of its pages; it has one at least.
    fn all(&self) -> (*mut c_void, usize) {
        let bytes = (self.skip + self.len).max(1).next_multiple_of(self.page);
        (self.start as *mut c_void, bytes)
    }

    /// Keeps it in memory, or not any more.
    pub(crate) fn lock(&self, locked: bool) -> io::Result<()> {
        lock_by_kernel(&(self.start()..self.start() + self.len()), locked)
    }

    /// Lets it be used for this.
    pub(crate) fn protect(&self, access: KernelAccess) -> io::Result<()> {
        let (start, bytes) = self.all();
        // SAFETY: a mapping of ours, which its owner has for itself.
        answered(unsafe { sync::kernel_calls::mprotect(start, bytes, access.flags()) })
    }

    /// The same of some of its pages.
    pub(crate) fn protect_part(
        &self,
        pages: &Range<usize>,
        access: KernelAccess,
    ) -> io::Result<()> {
        let (start, all) = self.all();
        let within = start as usize..start as usize + all;
        assert!(within.start <= pages.start && pages.end <= within.end);
        let start = pages.start as *mut c_void;
        // SAFETY: pages of a mapping of ours, which its owner has for itself.
        answered(unsafe { sync::kernel_calls::mprotect(start, pages.len(), access.flags()) })
    }

    /// Makes it shorter or longer.
    pub(crate) fn remap(&mut self, new_len: usize, may_move: bool) -> io::Result<()> {
        let (start, bytes) = self.all();
        let new = (self.skip.checked_add(new_len)).filter(|&new| isize::try_from(new).is_ok());
        let new = new.ok_or_else(too_large)?.max(1);
        let flags = if may_move { libc::MREMAP_MAYMOVE } else { 0 };
        // SAFETY: a mapping of ours, which its owner has for itself.
        let addr =
            unsafe { sync::kernel_calls::mremap(start, bytes, new, flags, core::ptr::null_mut()) };
        if addr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        (self.start, self.len) = (addr as usize, new_len);
        Ok(())
    }

    /// Takes it away; nobody has a reference to the bytes any more.
    pub(crate) fn unmap(&mut self) {
        let (start, bytes) = self.all();
        // SAFETY: mapped in `new`.
        unsafe { sync::kernel_calls::munmap(start, bytes) };
    }
}

/// Bytes of a page of memory that is mapped with these flags, where there are such pages.
pub(crate) fn page_size(flags: c_int) -> usize {
    if flags & libc::MAP_HUGETLB == 0 {
        return PAGE_SIZE;
    }
    match flags >> libc::MAP_HUGE_SHIFT & libc::MAP_HUGE_MASK {
        0 => huge_page_bytes().unwrap_or(PAGE_SIZE),
        bits => 1 << bits,
    }
}

/// Bytes of a page of a mapping of a file.
pub(crate) fn page_size_of(fd: BorrowedFd<'_>) -> usize {
    store::huge_page_of(fd).unwrap_or(PAGE_SIZE)
}

/// The use of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelAccess {
    None,
    Read,
    ReadWrite,
    ReadExec,
}

impl KernelAccess {
    fn flags(self) -> c_int {
        match self {
            Self::None => libc::PROT_NONE,
            Self::Read => libc::PROT_READ,
            Self::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
            Self::ReadExec => libc::PROT_READ | libc::PROT_EXEC,
        }
    }
}

impl From<Protection> for KernelAccess {
    fn from(protection: Protection) -> Self {
        match protection {
            Protection::None => Self::None,
            Protection::Read => Self::Read,
            Protection::ReadWrite => Self::ReadWrite,
        }
    }
}

/// Drops pages of a mapping of the kernel's, whose addresses stay taken: another mapping there would go with
/// the rest of this one.
///
/// # Safety
/// The pages are of a mapping of ours, and nobody looks at them any more.
pub(crate) unsafe fn close_part(pages: &Range<usize>) -> io::Result<()> {
    if pages.is_empty() {
        return Ok(());
    }
    const CLOSED: c_int =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the caller has the pages, and gives them up.
    let addr = unsafe {
        sync::kernel_calls::mmap(
            pages.start as *mut c_void,
            pages.len(),
            libc::PROT_NONE,
            CLOSED,
            -1,
            0,
        )
    };
    match addr {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// `mlock(2)` of pages that the kernel serves, or `munlock(2)`: both begin at the page's first byte.
pub(crate) fn lock_by_kernel(addresses: &Range<usize>, locked: bool) -> io::Result<()> {
    let (start, bytes) = (addresses.start as *mut c_void, addresses.len());
    // SAFETY: a mapping of ours; no byte changes.
    answered(unsafe {
        match locked {
            true => sync::kernel_calls::mlock(start, bytes),
            false => sync::kernel_calls::munlock(start, bytes),
        }
    })
}

/// Writes dirty pages of some addresses of a mapping of the kernel's to its file: by `MS_SYNC`, which waits for the device,
/// or by `MS_ASYNC`.
pub(crate) fn msync(addresses: &Range<usize>, how: c_int) -> io::Result<()> {
    let start = addresses.start & !(PAGE_SIZE - 1);
    let bytes = addresses.end - start;
    // SAFETY: a part of a mapping of ours, as the caller has looked; no byte changes.
    answered(unsafe { sync::kernel_calls::msync(start as *mut c_void, bytes, how) })
}
