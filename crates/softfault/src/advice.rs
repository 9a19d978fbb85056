//! Advice about accesses; the names are memmap2's and madvise(2)'s.

use core::ops::Range;
use libc::c_int;
use softfault_engine::{PAGE_SIZE, mm};
use std::io;

/// Advice of `madvise(2)`: the expected accesses to a range, or a request to prepare for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// No advice: the engine detects the access pattern.
    Normal,
    /// Random accesses: reads single pages, without read-ahead.
    Random,
    /// Sequential accesses: reads far ahead from the first touch.
    Sequential,
    /// Starts to read the range now, as far as spare memory goes.
    WillNeed,
    /// The range is not needed soon: its pages are evicted before other pages. For private memory;
    /// no effect on maps of files.
    Cold,
    /// Evicts the range now: private memory goes to swap, as far as swap has room; pages of a
    /// file are dropped.
    PageOut,
    /// Reads the range in now, and returns errors as values. The pages may be evicted again.
    PopulateRead,
    /// As [`PopulateRead`](Self::PopulateRead), for writing: the first write to each page does not wait. For
    /// writable maps.
    PopulateWrite,
    /// A child of fork does not inherit the range. For a file that the engine serves, the whole file and all its maps are concerned, whatever the
    /// range: a touch in the child is SIGSEGV.
    /// For private memory of an engine it is an error: a child always has that memory.
    DontFork,
    /// A child of fork inherits the range again.
    DoFork,
    /// The kernel may merge equal pages (KSM). This and the next three have an effect only on maps that the kernel
    /// serves.
    Mergeable,
    /// Ends [`Mergeable`](Self::Mergeable).
    Unmergeable,
    /// The kernel uses huge pages where it can.
    HugePage,
    /// The kernel uses no huge pages.
    NoHugePage,
    /// A core dump leaves the range out. For maps that the kernel serves; an error for others.
    DontDump,
    /// Ends [`DontDump`](Self::DontDump).
    DoDump,
    /// Treats the memory as broken, for tests of programs. For maps that the kernel serves; an error for others.
    HwPoison,
}

/// Advice that may change bytes: the caller promises that nothing relies on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UncheckedAdvice {
    /// The range is not needed: its pages read as zeros again, or as in the file.
    DontNeed,
    /// The range is not needed unless it is written again: until then its pages may become
    /// zeros at any time. For anonymous memory.
    Free,
    /// Punches a hole of this range into the file. For shared writable maps.
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

/// What both have by their numbers.
macro_rules! by_number {
    ($kind:ident of $all:ident) => {
        impl $kind {
            /// True if the kernel knows the advice, and this process may give it: for maps that the kernel serves. Memory that an engine
            /// serves does not depend on that.
            pub fn is_supported(self) -> bool {
                is_known(self.number())
            }

            /// The advice of that number of madvise(2).
            #[doc(hidden)]
            pub fn of_number(number: c_int) -> Option<Self> {
                let mut all = $all.iter();
                all.find_map(|&(each, advice)| (each == number).then_some(advice))
            }

            fn number(self) -> c_int {
                let mut all = $all.iter();
                let number = all.find_map(|&(number, each)| (each == self).then_some(number));
                number.expect("each advice has a number")
            }

            /// Gives it to the kernel, of a mapping of its own.
            pub(crate) fn to_kernel(self, range: &Range<usize>) -> io::Result<()> {
                madvise(range, self.number())
            }
        }
    };
}
by_number!(Advice of ADVICE);
by_number!(UncheckedAdvice of UNCHECKED_ADVICE);

impl Advice {
    /// The advice that a VMA keeps, if it is of that kind.
    pub(crate) fn lasting(self) -> Option<mm::Advice> {
        match self {
            Self::Normal => Some(mm::Advice::Normal),
            Self::Random => Some(mm::Advice::Random),
            Self::Sequential => Some(mm::Advice::Sequential),
            _ => None,
        }
    }

    /// The engine's result for advice about a mapping as such. It may ignore advice that is a hint; advice that
    /// promises something must be an error.
    pub(crate) fn about_mapping(self) -> io::Result<()> {
        let name = match self {
            Self::DontFork => "MADV_DONTFORK",
            Self::DontDump => "MADV_DONTDUMP",
            Self::HwPoison => "MADV_HWPOISON",
            _ => return Ok(()),
        };
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{name} is not supported for memory that an engine serves"),
        ))
    }
}

/// Asks the kernel, about no memory.
fn is_known(advice: c_int) -> bool {
    // SAFETY: advice about nothing.
    unsafe { sync::kernel_calls::madvise(core::ptr::null_mut(), 0, advice) == 0 }
}

fn madvise(range: &Range<usize>, advice: c_int) -> io::Result<()> {
    let start = range.start & !(PAGE_SIZE - 1);
    // SAFETY: advice about a mapping of ours; the caller of advice that changes bytes
    // vouches for it.
    match unsafe {
        sync::kernel_calls::madvise(start as *mut libc::c_void, range.end - start, advice)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs in other languages get the texts of errors.
    #[test]
    fn texts_have_the_names_of_madvise() {
        for name in ["DONTFORK", "DONTDUMP", "HWPOISON"] {
            let refused = ADVICE
                .iter()
                .filter_map(|(_, advice)| advice.about_mapping().err());
            let mut texts = refused.map(|error| error.to_string());
            assert!(texts.any(|text| text.starts_with(&format!("MADV_{name} is not "))));
        }
    }
}
