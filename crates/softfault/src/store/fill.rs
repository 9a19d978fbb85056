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
use super::kernel_reads::apart_from_touches;
use super::read_path::{FIRST_FAR, ReadPath};
use crate::uffd::UnplacedMapping;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use softfault_engine::mmu::MmuError;
use std::sync::Weak;

/// Bytes brought in at a time: a huge page.
const PIECE: u64 = 2 << 20;
/// One of so many bytes is there when it begins: as it may be at the first look, for blocks around pages overlap.
const THERE: u64 = 2 * FIRST_FAR;
/// No more is read than so many bytes.
const MOST: u64 = 8 << 30;

/// A file that is being brought in.
#[derive(Debug, Default)]
pub(crate) struct Fill {
    /// Nobody wants it any more.
    unwanted: AtomicBool,
    /// All of it is there. Release and Acquire: the pages came before.
    done: AtomicBool,
}

impl Fill {
    /// Ends it after the piece that is under way.
    pub(crate) fn stop(&self) {
        self.unwanted.store(true, Ordering::Release);
    }

    /// True if it has come to its end.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}

impl FileStore {
    /// True if the rest of the file is worth to be brought in: so much of it is there, and the rest fits.
    pub(crate) fn is_worth_filling(&self) -> bool {
        let Some((rest, bytes)) = self.missing() else {
            return false;
        };
        // A hole would be filled with zeros.
        let is_whole = self.size().is_ok_and(|size| bytes == size);
        let is_worth_it = bytes - rest >= bytes / THERE && rest <= MOST && !self.is_random();
        is_whole && is_worth_it && self.file.keeps(rest)
    }

    /// Brings a file in, and waits for the device: until all is there, nobody wants it or has the file, there is no room any more,
    /// somebody says that it is read at random, or the kernel cannot read it. The file may be closed between two pieces.
    pub(crate) fn bring_in(file: &Weak<Self>, fill: &Fill) {
        let mut next = 0;
        let missing = file.upgrade().and_then(|file| file.missing());
        let Some((missing, all)) = missing else {
            return;
        };
        while let Some(file) = file.upgrade() {
            let end = file.size().unwrap_or(0);
            if next >= end {
                return fill.done.store(true, Ordering::Release);
            }
            let is_unwanted = fill.unwanted.load(Ordering::Acquire) || file.is_random();
            if is_unwanted || !file.file.keeps(PIECE) {
                return;
            }
            let piece = next..end.min(next + PIECE);
            next = piece.end;
            let bytes = piece.end - piece.start;
            if file.bring_piece(piece).is_err() {
                return;
            }
            // By its share of what was missing: of the piece itself a part is on its way already, by read-ahead for the one before it.
            let share = u128::from(missing) * u128::from(bytes) / u128::from(all.max(1));
            file.file.was_brought(share as usize);
        }
    }

    fn bring_piece(&self, piece: Range<u64>) -> Result<(), MmuError> {
        let file = self.in_table().ok_or(MmuError::Gone)?;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let mapping = UnplacedMapping::new(file, piece, flags)?;
        mapping.advise(libc::MADV_DONTFORK)?;
        // A kernel without huge pages refuses, and would read `read_ahead_kb` at a time, or page by page.
        mapping.advise(libc::MADV_HUGEPAGE)?;
        mapping.allow_reads()?;
        // An error, where a touch would be a SIGBUS.
        apart_from_touches(|| mapping.advise(libc::MADV_POPULATE_READ))
    }

    /// How many bytes the page cache has not, and of how many. `None` where the kernel does not say.
    fn missing(&self) -> Option<(u64, u64)> {
        let (there, bytes) = self.cached_bytes()?;
        Some((bytes.saturating_sub(there), bytes))
    }
}

impl super::descriptor::Descriptor {
    /// True if so many more bytes may stay in the page cache.
    fn keeps(&self, bytes: u64) -> bool {
        self.how() == ReadPath::Keep && self.has_room(bytes)
    }
}
