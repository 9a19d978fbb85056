//! What to map, and how: memmap2's `MmapOptions`, `MmapAsRawDesc` and `RemapOptions`. The maps
//! themselves are made where they are ([`map`](crate::map), [`map_mut`](crate::map_mut)).

use crate::error::{invalid, past_end, too_large};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// A descriptor that is to be mapped, as memmap2 has it.
pub struct MmapRawDescriptor(RawFd);

/// What can be mapped: an open file or its descriptor, as in memmap2.
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

/// How to map; memmap2's builder.
#[derive(Debug, Clone, Default)]
pub struct MmapOptions {
    pub(crate) offset: u64,
    pub(crate) len: Option<usize>,
    pub(crate) populate: bool,
    pub(crate) stack: bool,
    /// Bits of a page's size, or 0 for the machine's.
    pub(crate) huge: Option<u8>,
    /// A file's window is no other map's, and has room for so many bytes at least.
    pub(crate) alone: Option<u64>,
}

impl MmapOptions {
    /// The whole file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows a file by a window of the map's own: at addresses, and with pages, that no other map of the file has. It
    /// is as long as the file or `bytes`: a map may reach past the end of the file, and a touch there is an error.
    #[doc(hidden)]
    pub fn own_window(&mut self, bytes: u64) -> &mut Self {
        self.alone = Some(bytes);
        self
    }

    /// Starts the map at this byte of the file. Any offset, as in memmap2.
    pub fn offset(&mut self, offset: u64) -> &mut Self {
        self.offset = offset;
        self
    }

    /// Bytes to map; without it, to the end of the file.
    pub fn len(&mut self, len: usize) -> &mut Self {
        self.len = Some(len);
        self
    }

    /// Starts to read everything at once, as far as the budget goes; of
    /// anonymous memory, fills all of it, or fails.
    pub fn populate(&mut self) -> &mut Self {
        self.populate = true;
        self
    }

    /// Makes anonymous memory fit for a thread's stack: it is the kernel's own, since a fault of ours on a
    /// stack would need that stack.
    pub fn stack(&mut self) -> &mut Self {
        self.stack = true;
        self
    }

    /// Makes anonymous memory of huge pages from the machine's pool (`MAP_HUGETLB`), of so many bits each, or of the
    /// machine's size. It is the kernel's own, outside of any budget.
    /// [`HugeMemory`](crate::HugeMemory) has huge pages of which only those that are used are there.
    pub fn huge(&mut self, page_bits: Option<u8>) -> &mut Self {
        self.huge = Some(page_bits.unwrap_or(0));
        self
    }

    /// Nothing: no map reserves swap.
    pub fn no_reserve_swap(&mut self) -> &mut Self {
        self
    }

    /// Nothing: it concerns Windows.
    pub fn no_probe_handle(&mut self) -> &mut Self {
        self
    }

    /// Bytes to map privately of a file of `size`, which may be more than it has.
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
            false => Err(invalid("the map would reach past what a file can have")),
        }
    }

    /// Bytes to map of a file of `size`; fails where it has not that many.
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

/// The descriptor of a file that is lent for a call.
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

/// How [`MmapMut::remap`](crate::MmapMut::remap) goes about it; memmap2's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemapOptions {
    may_move: bool,
}

impl RemapOptions {
    /// The map stays where it is, or cannot grow.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it may move to where there is room.
    pub fn may_move(mut self, may_move: bool) -> Self {
        self.may_move = may_move;
        self
    }

    /// True if it may move.
    pub(crate) fn moves(self) -> bool {
        self.may_move
    }
}

/// Who serves a map that writes to its file, and so who sees what is written, and what survives; `docs/contract.md` has
/// both in full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Coherence {
    /// The kernel, by a mapping of its own: in no budget. All who have the file see at once what is
    /// written, and nothing that was written is lost but by a crash of the machine.
    #[default]
    Kernel,
    /// The engine, under its budget. Its own maps of the file see at once what is written; others once it is written back, which
    /// is at most 5 seconds later. What was not is lost if the process is killed, or becomes another program
    /// by `exec` without a fork.
    Engine,
}
