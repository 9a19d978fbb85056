//! Options of a map: memmap2's `MmapOptions`, `MmapAsRawDesc` and `RemapOptions`. The methods that create
//! the maps are in [`map`](crate::map) and [`map_mut`](crate::map_mut).

use crate::error::{invalid, past_end, too_large};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// The descriptor of a file to map, as in memmap2.
pub struct MmapRawDescriptor(RawFd);

/// A file that can be mapped: an open file or its descriptor, as in memmap2.
pub trait MmapAsRawDesc {
    /// The descriptor.
    fn as_raw_desc(&self) -> MmapRawDescriptor;
}

impl MmapAsRawDesc for RawFd {
    fn as_raw_desc(&self) -> MmapRawDescriptor {
        MmapRawDescriptor(*self)
    }
}

impl<T: AsRawFd> MmapAsRawDesc for &T {
    fn as_raw_desc(&self) -> MmapRawDescriptor {
        MmapRawDescriptor(self.as_raw_fd())
    }
}

/// Options of a map; memmap2's builder.
#[derive(Debug, Clone, Default)]
pub struct MmapOptions {
    pub(crate) offset: u64,
    pub(crate) len: Option<usize>,
    pub(crate) populate: bool,
    pub(crate) stack: bool,
    /// The page size as a power of two, or 0 for the machine's default.
    pub(crate) huge: Option<u8>,
    /// The map gets a window of the file for itself, with room for at least so many bytes.
    pub(crate) alone: Option<u64>,
}

impl MmapOptions {
    /// Options for a map of the whole file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the map a window of its own: no other map of the file shares its addresses or pages. The window
    /// is as long as the file, or `bytes` if that is more: a map may reach past the end of the file, and a touch
    /// there is an error.
    #[doc(hidden)]
    pub fn separate_window(&mut self, bytes: u64) -> &mut Self {
        self.alone = Some(bytes);
        self
    }

    /// Starts the map at this byte of the file. Every offset is allowed, as in memmap2.
    pub fn offset(&mut self, offset: u64) -> &mut Self {
        self.offset = offset;
        self
    }

    /// Length of the map in bytes. Default: to the end of the file. [`map`](Self::map) fails if the map would be longer than the file;
    /// private and writable maps may be longer.
    pub fn len(&mut self, len: usize) -> &mut Self {
        self.len = Some(len);
        self
    }

    /// Starts to read the whole range at once, as far as the budget goes. For
    /// anonymous memory: fills all of it, or fails.
    pub fn populate(&mut self) -> &mut Self {
        self.populate = true;
        self
    }

    /// Makes anonymous memory that can be a thread's stack. It is a mapping of the kernel, because our fault
    /// handler would need the same stack.
    pub fn stack(&mut self) -> &mut Self {
        self.stack = true;
        self
    }

    /// Makes anonymous memory of huge pages from the machine's pool (`MAP_HUGETLB`). A page has 2 to the power of
    /// `page_bits` bytes, or the machine's default size. It is a mapping of the kernel, outside of any budget.
    /// [`HugeMemory`](crate::HugeMemory) takes a huge page from the pool only when it is touched.
    pub fn huge(&mut self, page_bits: Option<u8>) -> &mut Self {
        self.huge = Some(page_bits.unwrap_or(0));
        self
    }

    /// Does nothing: no map reserves swap.
    pub fn no_reserve_swap(&mut self) -> &mut Self {
        self
    }

    /// Does nothing: it concerns Windows only.
    pub fn no_probe_handle(&mut self) -> &mut Self {
        self
    }

    /// Length of a private map of a file of `size` bytes; the map may be longer than the file.
    pub(crate) fn private_length(&self, size: u64) -> io::Result<usize> {
        let Some(len) = self.len else {
            return self.length(size);
        };
        if isize::try_from(len).is_err() {
            return Err(too_large());
        }
        // As mmap's EOVERFLOW: a file has no such bytes.
        let end = self.offset.checked_add(len as u64);
        match end.is_some_and(|end| i64::try_from(end).is_ok()) {
            true => Ok(len),
            false => Err(invalid(
                "the map would end past the largest offset that a file can have",
            )),
        }
    }

    /// Length of a map of a file of `size` bytes; fails if the map would be longer than the file.
    pub(crate) fn length(&self, size: u64) -> io::Result<usize> {
        let size = self.alone.map_or(size, |bytes| size.max(bytes));
        let rest = size.saturating_sub(self.offset);
        let len = match self.len {
            None if self.offset > size => {
                let message = "the offset is past the end of the file";
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            None => rest,
            Some(len) if len as u64 > rest => return Err(past_end()),
            Some(len) => len as u64,
        };
        match isize::try_from(len) {
            Ok(len) => Ok(len as usize),
            Err(_) => Err(too_large()),
        }
    }
}

/// The descriptor of a file, borrowed for a call.
///
/// # Safety
/// It is open as long as `file` is borrowed.
pub(crate) unsafe fn borrowed<T: MmapAsRawDesc>(file: &T) -> io::Result<BorrowedFd<'_>> {
    let MmapRawDescriptor(fd) = file.as_raw_desc();
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the caller vouches for it.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Options of [`MmapMut::remap`](crate::MmapMut::remap); memmap2's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemapOptions {
    may_move: bool,
}

impl RemapOptions {
    /// The map keeps its address, or fails to grow.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the map may move to an address where it has room.
    pub fn may_move(mut self, may_move: bool) -> Self {
        self.may_move = may_move;
        self
    }

    /// True if the map may move.
    pub(crate) fn moves(self) -> bool {
        self.may_move
    }
}

/// Whether the kernel or the engine serves a map that writes to its file. This decides which readers see a write, and which
/// writes survive a crash; `docs/contract.md` has the full contract.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Coherence {
    /// The kernel serves the map by a mapping of its own, in no budget. All readers of the file see a write at once,
    /// and only a crash of the machine can lose it.
    #[default]
    Kernel,
    /// The engine serves the map, under its budget. The engine's other maps of the file see a write at once. All other
    /// readers see it after write-back, at most 5 seconds later. Bytes that are not yet written back are lost if the
    /// process is killed, or calls `exec` without a fork.
    Engine,
}
