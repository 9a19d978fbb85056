//! The rest of a file, brought into the page cache.
//!
//! Of a file that is read here and there, in no order, each page is a fault, and a read that is waited for. Once a 16th
//! of it was read through the page cache, and there is room for the rest, that is read in order. Nobody knows whether it will be
//! wanted. But with blocks of 128 KiB around each page (`around.rs`) a page in every 2 MiB of the file was waited for by then, and a
//! device reads 2 MiB in order in the time of some ten such waits: a program that touches nothing more has lost so much at
//! most, and one that goes on waits no more. And the kernel can serve a file that is completely there, without a fault for
//! each page and without a copy.
//!
//! It is read through a mapping of its own, told MADV_HUGEPAGE: so the kernel reads 2 MiB at a time, and begins with the
//! next, whatever the disk's `read_ahead_kb` (Linux 5.18), into large folios where the file system has them. By
//! POSIX_FADV_WILLNEED the pages would be single: filling and touching them takes ten times the kernel's processor time.

use super::file::FileStore;
use super::read_path::{FIRST_FAR, ReadPath};
use crate::uffd::UnplacedMapping;
use core::ops::Range;
use softfault_engine::mmu::MmuError;

/// Bytes brought in at a time: a huge page.
const PIECE: u64 = 2 << 20;
/// One of so many bytes is there when it begins: as it may be at the first look, for blocks around pages overlap.
const THERE: u64 = 2 * FIRST_FAR;
/// No more is read than so many bytes.
const MOST: u64 = 8 << 30;

/// A file that is being brought in.
#[derive(Debug)]
pub(crate) struct Fill {
    /// Where the next piece begins.
    next: u64,
    end: u64,
}

/// How a step of it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    Some,
    All,
    /// There is no room any more, or the kernel cannot read it.
    GivenUp,
}

impl FileStore {
    /// The fill of this file, if it is worth one: so much of it is there, and the rest fits.
    pub(crate) fn begin_fill(&self) -> Option<Fill> {
        let (there, bytes) = self.cached_bytes()?;
        let rest = bytes.saturating_sub(there);
        // A hole would be filled with zeros.
        let is_whole = self.size().is_ok_and(|size| bytes == size);
        let is_worth_it = there >= bytes / THERE && rest <= MOST && !self.is_random();
        let goes = is_whole && is_worth_it && self.file.keeps(rest);
        goes.then_some(Fill {
            next: 0,
            end: bytes,
        })
    }

    /// Brings in the next piece, and waits for it.
    pub(crate) fn go_on(&self, fill: &mut Fill) -> Filled {
        if !self.file.keeps(PIECE) {
            return Filled::GivenUp;
        }
        let piece = fill.next..fill.end.min(fill.next + PIECE);
        let bytes = piece.end - piece.start;
        if self.bring_in(piece).is_err() {
            return Filled::GivenUp;
        }
        self.file.was_brought(bytes as usize);
        fill.next += bytes;
        match fill.next < fill.end {
            true => Filled::Some,
            false => Filled::All,
        }
    }

    fn bring_in(&self, piece: Range<u64>) -> Result<(), MmuError> {
        let file = self.in_table().ok_or(MmuError::Gone)?;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let mapping = UnplacedMapping::new(file, piece, flags)?;
        mapping.advise(libc::MADV_DONTFORK)?;
        // A kernel without huge pages refuses, and would read `read_ahead_kb` at a time, or page by page.
        mapping.advise(libc::MADV_HUGEPAGE)?;
        // An error, where a touch would be a SIGBUS.
        mapping.advise(libc::MADV_POPULATE_READ)
    }
}

impl super::descriptor::Descriptor {
    /// True if so many more bytes may stay in the page cache.
    fn keeps(&self, bytes: u64) -> bool {
        self.how() == ReadPath::Keep && self.has_room(bytes)
    }
}
