//! The rest of a file, brought into the page cache.
//!
//! Of a file that is read here and there, in no order, each page is a fault, and a read that is waited for. Once
//! the page cache has a quarter of it and there is room for the rest, reading that in order takes less time than the
//! faults would: a device reads in order many times as fast as page by page. And the kernel can serve a file
//! that is completely there, without a fault for each page and without a copy.
//!
//! Two pieces are under way at a time, so a page that somebody waits for comes soon.

use super::file::FileStore;
use super::read_path::ReadPath;
use core::mem::MaybeUninit;
use softfault_engine::PAGE_SIZE;

/// Bytes requested from the device at a time.
const PIECE: u64 = 512 << 10;
/// One of so many bytes is there when it begins.
const THERE: u64 = 4;
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
    /// There is no room any more.
    GivenUp,
}

#[repr(C, align(4096))]
struct Page([MaybeUninit<u8>; PAGE_SIZE]);

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

    /// Brings in the next piece, and waits for the one before it.
    pub(crate) fn go_on(&self, fill: &mut Fill) -> Filled {
        if !self.file.keeps(PIECE) {
            return Filled::GivenUp;
        }
        if fill.next < fill.end {
            let bytes = PIECE.min(fill.end - fill.next) as usize;
            self.file
                .advise(fill.next, bytes, libc::POSIX_FADV_WILLNEED);
            self.file.was_brought(bytes);
        }
        if fill.next > 0 {
            let last = (fill.next - 1) & !(PAGE_SIZE as u64 - 1);
            let mut page = Page([MaybeUninit::uninit(); PAGE_SIZE]);
            let into = page.0.as_mut_ptr().cast();
            // SAFETY: a page, and nobody else's; at a multiple of its size.
            if unsafe { self.file.read(last, into, PAGE_SIZE) }.is_err() {
                return Filled::GivenUp;
            }
        }
        if fill.next >= fill.end {
            return Filled::All;
        }
        fill.next = fill.end.min(fill.next + PIECE);
        Filled::Some
    }
}

impl super::descriptor::Descriptor {
    /// True if so many more bytes may stay in the page cache.
    fn keeps(&self, bytes: u64) -> bool {
        self.how() == ReadPath::Keep && self.has_room(bytes)
    }
}
