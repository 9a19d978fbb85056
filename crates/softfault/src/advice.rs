//! Advice about accesses; the names are memmap2's and madvise(2)'s.

use core::ops::Range;
use libc::c_int;
use softfault_engine::{PAGE_SIZE, mm};
use std::io;

/// What the caller expects of its accesses, or wants done for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Nothing: the engine finds out.
    Normal,
    /// Random: single pages, no read-ahead.
    Random,
    /// Sequential: read far ahead from the first touch.
    Sequential,
    /// Start to read the range now, as far as spare memory goes.
    WillNeed,
    /// The range is not needed soon: its pages go before others do. Of private memory;
    /// of a file's it says nothing.
    Cold,
    /// The range goes now: private memory to swap, as far as there is room; what is a
    /// file's is forgotten.
    PageOut,
    /// Read the range in now, with errors as values. Nothing keeps it.
    PopulateRead,
    /// The same, for writing: the first write to each page does not have to wait. Of
    /// maps that may be written to.
    PopulateWrite,
    /// A child of fork is not to have it. Of a file that the engine serves, all its maps; private memory
    /// of an engine a child has, and this is an error.
    DontFork,
    /// A child is to have it again.
    DoFork,
    /// Pages that are the same may be one (KSM). Of maps that the kernel serves, as the next three.
    Mergeable,
    /// Not any more.
    Unmergeable,
    /// Huge pages where they can be had.
    HugePage,
    /// None.
    NoHugePage,
    /// A core dump is not to have it. Of maps that the kernel serves; of others an error.
    DontDump,
    /// It may.
    DoDump,
    /// The memory is broken, for tests of programs. Of maps that the kernel serves; of others an error.
    HwPoison,
}

/// Advice that changes what is there: the caller says that nobody minds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UncheckedAdvice {
    /// The range is not needed: it is zeros again, or as in the file.
    DontNeed,
    /// The range is not needed unless it is written to again: until then it may become
    /// zeros at any time. Of anonymous memory.
    Free,
    /// The range is a hole of its file from now on. Of shared maps that may be written to.
    Remove,
}

impl Advice {
    /// True: what a kernel does not know, the engine does by itself.
    pub fn is_supported(self) -> bool {
        true
    }

    /// The advice that a VMA keeps, if it is of that kind.
    pub(crate) fn lasting(self) -> Option<mm::Advice> {
        match self {
            Self::Normal => Some(mm::Advice::Normal),
            Self::Random => Some(mm::Advice::Random),
            Self::Sequential => Some(mm::Advice::Sequential),
            _ => None,
        }
    }

    /// Gives it to the kernel, of a mapping of its own.
    pub(crate) fn to_kernel(self, range: &Range<usize>) -> io::Result<()> {
        madvise(
            range,
            match self {
                Self::Normal => libc::MADV_NORMAL,
                Self::Random => libc::MADV_RANDOM,
                Self::Sequential => libc::MADV_SEQUENTIAL,
                Self::WillNeed => libc::MADV_WILLNEED,
                Self::Cold => libc::MADV_COLD,
                Self::PageOut => libc::MADV_PAGEOUT,
                Self::PopulateRead => libc::MADV_POPULATE_READ,
                Self::PopulateWrite => libc::MADV_POPULATE_WRITE,
                Self::DontFork => libc::MADV_DONTFORK,
                Self::DoFork => libc::MADV_DOFORK,
                Self::Mergeable => libc::MADV_MERGEABLE,
                Self::Unmergeable => libc::MADV_UNMERGEABLE,
                Self::HugePage => libc::MADV_HUGEPAGE,
                Self::NoHugePage => libc::MADV_NOHUGEPAGE,
                Self::DontDump => libc::MADV_DONTDUMP,
                Self::DoDump => libc::MADV_DODUMP,
                Self::HwPoison => libc::MADV_HWPOISON,
            },
        )
    }

    /// What the engine makes of advice about a mapping as such. All that is only a hint it may pass over;
    /// what is a promise it must not.
    pub(crate) fn about_mapping(self) -> io::Result<()> {
        match self {
            Self::DontFork | Self::DontDump | Self::HwPoison => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{self:?} cannot be had of memory that an engine serves"),
            )),
            _ => Ok(()),
        }
    }
}

impl UncheckedAdvice {
    /// True: what a kernel does not know, the engine does by itself.
    pub fn is_supported(self) -> bool {
        true
    }

    /// Gives it to the kernel, of a mapping of its own.
    pub(crate) fn to_kernel(self, range: &Range<usize>) -> io::Result<()> {
        madvise(
            range,
            match self {
                Self::DontNeed => libc::MADV_DONTNEED,
                Self::Free => libc::MADV_FREE,
                Self::Remove => libc::MADV_REMOVE,
            },
        )
    }
}

fn madvise(range: &Range<usize>, advice: c_int) -> io::Result<()> {
    let start = range.start & !(PAGE_SIZE - 1);
    // SAFETY: advice about a mapping of ours; whoever gives one that changes bytes
    // vouches for it.
    match unsafe {
        sync::kernel_calls::madvise(start as *mut libc::c_void, range.end - start, advice)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
