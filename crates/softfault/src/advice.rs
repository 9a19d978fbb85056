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

/// madvise(2)'s numbers.
const ADVICE: [(c_int, Advice); 17] = [
    (libc::MADV_NORMAL, Advice::Normal),
    (libc::MADV_RANDOM, Advice::Random),
    (libc::MADV_SEQUENTIAL, Advice::Sequential),
    (libc::MADV_WILLNEED, Advice::WillNeed),
    (libc::MADV_COLD, Advice::Cold),
    (libc::MADV_PAGEOUT, Advice::PageOut),
    (libc::MADV_POPULATE_READ, Advice::PopulateRead),
    (libc::MADV_POPULATE_WRITE, Advice::PopulateWrite),
    (libc::MADV_DONTFORK, Advice::DontFork),
    (libc::MADV_DOFORK, Advice::DoFork),
    (libc::MADV_MERGEABLE, Advice::Mergeable),
    (libc::MADV_UNMERGEABLE, Advice::Unmergeable),
    (libc::MADV_HUGEPAGE, Advice::HugePage),
    (libc::MADV_NOHUGEPAGE, Advice::NoHugePage),
    (libc::MADV_DONTDUMP, Advice::DontDump),
    (libc::MADV_DODUMP, Advice::DoDump),
    (libc::MADV_HWPOISON, Advice::HwPoison),
];

/// The same.
const UNCHECKED_ADVICE: [(c_int, UncheckedAdvice); 3] = [
    (libc::MADV_DONTNEED, UncheckedAdvice::DontNeed),
    (libc::MADV_FREE, UncheckedAdvice::Free),
    (libc::MADV_REMOVE, UncheckedAdvice::Remove),
];

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

    /// The advice of that number of madvise(2).
    #[doc(hidden)]
    pub fn of_number(number: c_int) -> Option<Self> {
        let mut all = ADVICE.iter();
        all.find_map(|&(each, advice)| (each == number).then_some(advice))
    }

    /// Gives it to the kernel, of a mapping of its own.
    pub(crate) fn to_kernel(self, range: &Range<usize>) -> io::Result<()> {
        let mut all = ADVICE.iter();
        let number = all.find_map(|&(number, each)| (each == self).then_some(number));
        madvise(range, number.expect("each advice has a number"))
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

    /// The advice of that number of madvise(2).
    #[doc(hidden)]
    pub fn of_number(number: c_int) -> Option<Self> {
        let mut all = UNCHECKED_ADVICE.iter();
        all.find_map(|&(each, advice)| (each == number).then_some(advice))
    }

    /// Gives it to the kernel, of a mapping of its own.
    pub(crate) fn to_kernel(self, range: &Range<usize>) -> io::Result<()> {
        let mut all = UNCHECKED_ADVICE.iter();
        let number = all.find_map(|&(number, each)| (each == self).then_some(number));
        madvise(range, number.expect("each advice has a number"))
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
