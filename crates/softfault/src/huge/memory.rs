//! Huge memory itself: a file without a name, which processes can pass to each other.

use super::anchor::Anchor;
use super::create::HugeMemoryBuilder;
use super::map::HugeMap;
use super::options::HugeMapOptions;
use super::place::{SharedMapping, WantedMapping};
use crate::error::{answered, invalid};
use crate::huge_faults::HugeBacking;
use crate::huge_faults::HugeSize;
use crate::store;
use crate::table::{Identity, close_if, identity_of};
use core::mem::MaybeUninit;
use core::ops::Range;
use libc::c_int;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

/// Memory of huge pages, shared between processes.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use softfault::{HugeMemory, HugeSize};
///
/// let buffers = HugeMemory::builder().page_size(HugeSize::TwoMiB).create(8 << 30)?;
/// let map = buffers.map()?; // reserved here, or an error with the remedy
/// map.write_at(b"page 0", 0)?;
/// # let _ = map;
/// # Ok(())
/// # }
/// ```
///
/// Another process gets the memory by fork, or as a descriptor over a socket
/// ([`AsFd`], [`from_fd`](Self::from_fd)). The memory lives as long as any descriptor or map of it.
///
/// It can be sealed (`F_ADD_SEALS`). `F_SEAL_WRITE` fails with EBUSY while there are maps of it, except those by a descriptor that was
/// opened for reading only; a map of 1 GiB or more of a pool counts until its `HugeMemory` is gone.
#[derive(Clone)]
pub struct HugeMemory {
    inner: Arc<HugeMemfd>,
}

/// All immutable.
struct HugeMemfd {
    /// The program can see the descriptor ([`AsFd`]), and may close it and reuse its number. So each use checks first
    /// that it is still of this file, and it is closed only then.
    fd: ManuallyDrop<OwnedFd>,
    /// Immutable. The identity of its file.
    file: Identity,
    backing: HugeBacking,
    page: HugeSize,
    /// A mapping of the whole file, as long as it was when this mapping was made.
    alias: Option<SharedMapping>,
    anchor: Anchor,
}

impl HugeMemory {
    /// Settings to start from.
    pub fn builder() -> HugeMemoryBuilder {
        HugeMemoryBuilder::default()
    }

    /// Memory that another process made. The backing and the page size are read from the descriptor.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        const TMPFS: u64 = 0x0102_1994;
        let mut about = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: fills the structure.
        let about = unsafe {
            if libc::fstatfs(fd.as_raw_fd(), about.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            about.assume_init()
        };
        // Signed with glibc, unsigned with musl.
        let (backing, size) = match about.f_type as u64 {
            store::HUGETLBFS => (HugeBacking::Hugetlb, HugeSize::of(about.f_bsize as u64)),
            TMPFS => (HugeBacking::without_pool(), Some(HugeSize::TwoMiB)),
            _ => {
                return Err(invalid(
                    "the descriptor is not of a memfd, or of a file on hugetlbfs or tmpfs",
                ));
            }
        };
        let size =
            size.ok_or_else(|| invalid("the file's huge pages are neither 2 MiB nor 1 GiB"))?;
        Self::over(fd, backing, size)
    }

    pub(super) fn over(fd: OwnedFd, backing: HugeBacking, size: HugeSize) -> io::Result<Self> {
        let page = match backing {
            HugeBacking::Hugetlb => size,
            _ => HugeSize::TwoMiB,
        };
        let file = identity_of(fd.as_raw_fd()).map_err(io::Error::from_raw_os_error)?;
        let mut inner = HugeMemfd {
            fd: ManuallyDrop::new(fd),
            file,
            backing,
            page,
            alias: None,
            anchor: Anchor::new(),
        };
        let bytes = inner.stat()?.st_size as u64;
        if !bytes.is_multiple_of(page.bytes() as u64) {
            return Err(invalid(&format!("{bytes} bytes are no multiple of {page}")));
        }
        inner.alias = Some(inner.alias(0, bytes)?).filter(|_| bytes > 0);
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Maps the whole memory, readable and writable. [`HugeMapOptions`] has other ways.
    pub fn map(&self) -> io::Result<HugeMap> {
        HugeMapOptions::new().map(self)
    }

    /// The backing of the memory.
    pub fn backing(&self) -> HugeBacking {
        self.inner.backing
    }

    /// The page size: the unit in which pages are requested, for ordinary memory too.
    pub fn page_size(&self) -> HugeSize {
        self.inner.page
    }

    /// Its length now.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(self.inner.stat()?.st_size as u64)
    }

    /// Bytes of the memory that are resident, touched by any process.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        /// The unit of `st_blocks`.
        const BLOCK: u64 = 512;
        Ok(self.inner.stat()?.st_blocks as u64 * BLOCK)
    }

    /// Makes the memory shorter or longer, by whole pages, for all processes. Pages past the new end leave all maps, and
    /// return to the pool together with their reservations. A touch there raises SIGBUS, and
    /// [`HugeMap::populate`] fails with [`BeyondEnd`](crate::FaultError::BeyondEnd).
    pub fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.inner.whole_pages("the length", bytes)?;
        let length = libc::off_t::try_from(bytes).map_err(|_| too_long())?;
        // SAFETY: changes the length of a file of ours.
        answered(unsafe { libc::ftruncate(self.fd()?, length) })
    }

    /// Returns a range of pages to the pool, for all processes. The pages are missing until the next touch, and are
    /// zeros then. Their reservation is returned too: the next touch needs
    /// a free page of the pool.
    pub fn punch_hole(&self, range: Range<u64>) -> io::Result<()> {
        self.inner.whole_pages("the start", range.start)?;
        self.inner.whole_pages("the end", range.end)?;
        if range.start >= range.end {
            return Ok(());
        }
        let (Ok(start), Ok(len)) = (
            libc::off_t::try_from(range.start),
            libc::off_t::try_from(range.end - range.start),
        ) else {
            return Err(too_long());
        };
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: gives back pages of a file of ours.
        answered(unsafe { libc::fallocate(self.fd()?, mode, start, len) })
    }

    /// Start and length of the range to map, after checks.
    pub(super) fn part(&self, offset: u64, len: Option<usize>) -> io::Result<(u64, usize)> {
        let bytes = self.bytes()?;
        let page = self.page_size();
        self.inner.whole_pages("the offset", offset)?;
        let rest = usize::try_from(bytes.saturating_sub(offset)).map_err(|_| too_long())?;
        let len = len.unwrap_or(rest);
        self.inner.whole_pages("the length", len as u64)?;
        match len {
            0 => Err(invalid(
                "there is nothing to map: the offset is at or past the end of the memory",
            )),
            len if len > rest => Err(invalid(&format!(
                "{len} bytes from {offset} on reach past the end of the memory, at {bytes} ({} pages of {page})",
                bytes / page.bytes() as u64
            ))),
            len => Ok((offset, len)),
        }
    }

    /// The mapping that keeps the page tables.
    pub(super) fn anchor(&self) -> &Anchor {
        &self.inner.anchor
    }

    /// The descriptor, if it is still this file's.
    pub(super) fn fd(&self) -> io::Result<c_int> {
        self.inner.fd()
    }

    /// The identity of the descriptor's file.
    pub(super) fn file(&self) -> Identity {
        self.inner.file
    }

    /// An error if no map may write to the memory.
    pub(super) fn may_write(&self) -> io::Result<()> {
        let fd = self.fd()?;
        // SAFETY: no memory involved.
        let (flags, seals) = unsafe {
            (
                libc::fcntl(fd, libc::F_GETFL),
                libc::fcntl(fd, libc::F_GET_SEALS),
            )
        };
        // A file on a mounted hugetlbfs may have no seals, and a filter may deny the calls: then mmap(2) says it.
        let refused = if flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDWR {
            "the descriptor of the memory was opened for reading only: the map has to be read-only"
        } else if seals >= 0 && seals & (libc::F_SEAL_WRITE | libc::F_SEAL_FUTURE_WRITE) != 0 {
            "the memory is sealed against writes: the map has to be read-only"
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::PermissionDenied, refused))
    }

    /// Address of this range in the alias. If the file has grown, the alias is made again.
    pub(super) fn alias(
        &self,
        offset: u64,
        bytes: usize,
    ) -> io::Result<(usize, Option<SharedMapping>)> {
        let end = offset + bytes as u64;
        match &self.inner.alias {
            Some(alias) if alias.range().len() as u64 >= end => {
                Ok((alias.range().start + offset as usize, None))
            }
            _ => {
                let own = self.inner.alias(offset, bytes as u64)?;
                Ok((own.range().start, Some(own)))
            }
        }
    }
}

impl HugeMemfd {
    fn fd(&self) -> io::Result<c_int> {
        let fd = self.fd.as_raw_fd();
        match identity_of(fd) == Ok(self.file) {
            true => Ok(fd),
            false => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }

    fn stat(&self) -> io::Result<libc::stat> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: fills the structure.
        unsafe {
            answered(libc::fstat(self.fd()?, stat.as_mut_ptr()))?;
            Ok(stat.assume_init())
        }
    }

    fn whole_pages(&self, what: &str, bytes: u64) -> io::Result<()> {
        match bytes.is_multiple_of(self.page.bytes() as u64) {
            true => Ok(()),
            false => Err(invalid(&format!(
                "{what} has to be a multiple of a huge page of {}: it is {bytes}",
                self.page
            ))),
        }
    }

    /// The mapping that requests pages. It is read-only: a writable one would make the
    /// file longer, if it was truncated meanwhile. By a descriptor that is only for reading, it does not keep
    /// others from sealing the file against writes (`F_SEAL_WRITE` is EBUSY while a mapping may become writable).
    fn alias(&self, offset: u64, bytes: u64) -> io::Result<SharedMapping> {
        let reader = Reader::of(self);
        let alias = SharedMapping::map(&WantedMapping {
            fd: match &reader {
                Some(reader) => reader.fd,
                None => self.fd()?,
            },
            offset,
            bytes: usize::try_from(bytes)
                .map_err(|_| too_long())?
                .max(self.page.bytes()),
            protection: libc::PROT_READ,
            flags: libc::MAP_NORESERVE,
            page: self.page.bytes(),
        })?;
        if self.backing == HugeBacking::TransparentHuge {
            alias.advise(libc::MADV_HUGEPAGE);
        }
        Ok(alias)
    }
}

/// The file once more, opened for reading.
struct Reader {
    fd: c_int,
    file: Identity,
}

impl Reader {
    /// `None` where it cannot be opened: without /proc, or without the right to.
    fn of(memory: &HugeMemfd) -> Option<Self> {
        let path = format!("/proc/thread-self/fd/{}", memory.fd().ok()?);
        let mut options = std::fs::File::options();
        // Nobody's lease is waited for.
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let opened = file.ok()?;
        // The program may have closed the memory's number meanwhile, and have another file there.
        let is_same = identity_of(opened.as_raw_fd()) == Ok(memory.file);
        is_same.then(|| Self {
            fd: opened.into_raw_fd(),
            file: memory.file,
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        close_if(self.fd, self.file);
    }
}

impl Drop for HugeMemfd {
    fn drop(&mut self) {
        close_if(self.fd.as_raw_fd(), self.file);
    }
}

impl AsFd for HugeMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.fd.as_fd()
    }
}

impl core::fmt::Debug for HugeMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HugeMemory")
            .field("backing", &self.inner.backing)
            .field("page_size", &self.inner.page)
            .finish_non_exhaustive()
    }
}

fn too_long() -> io::Error {
    invalid("the memory would be longer than a file can be")
}
