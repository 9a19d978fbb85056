//! The contents of a file at an offset: bytes, or a hole.
//!
//! Bytes may be answered from memory, for reading a hole that came to be
//! meanwhile gives zeros too. A hole is looked up each time: bytes written
//! there since would be lost.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use softfault_engine::PAGE_SIZE;
use softfault_engine::store::Extent;

use super::descriptor::Descriptor;

const PAGE: u64 = PAGE_SIZE as u64;

pub(super) fn page_of(offset: u64) -> u64 {
    offset & !(PAGE - 1)
}

/// The first page boundary at or after `offset`.
pub(super) fn page_after(offset: u64) -> u64 {
    page_of(offset.saturating_add(PAGE - 1))
}

/// Looks the extent around `offset` up in the file; `len` is asked where the
/// file ends in a hole. Moves the position of the open file.
pub(super) fn seek(
    file: &Descriptor,
    offset: u64,
    len: impl FnOnce() -> Result<u64, i32>,
) -> Result<Extent, i32> {
    let page = page_of(offset);
    let one_page = page..page + PAGE;
    match lseek(file, page, libc::SEEK_DATA) {
        Ok(data) if data < page + PAGE => {
            let hole = match lseek(file, data, libc::SEEK_HOLE) {
                Ok(hole) => page_after(hole).max(one_page.end),
                // Truncated in between: the read will tell.
                Err(libc::ENXIO) => one_page.end,
                Err(no) => return Err(no),
            };
            Ok(Extent::Data(page..hole))
        }
        Ok(data) => Ok(Extent::Hole(page..page_of(data))),
        Err(libc::ENXIO) => {
            let end = len()?;
            // Truncated in between: the read will tell.
            if offset >= end {
                Ok(Extent::Data(one_page))
            } else {
                Ok(Extent::Hole(page..page_after(end)))
            }
        }
        // A file system that cannot tell holes; a child of fork, whose parent has `file`.
        Err(libc::EINVAL | libc::EOPNOTSUPP | libc::EBADF) => {
            Ok(Extent::Data(page..page_after(len()?).max(one_page.end)))
        }
        Err(no) => Err(no),
    }
}

fn lseek(file: &Descriptor, offset: u64, whence: i32) -> Result<u64, i32> {
    let offset = i64::try_from(offset).map_err(|_| libc::ENXIO)?;
    let args = [offset as usize, whence as usize, 0, 0, 0];
    // SAFETY: no memory involved.
    unsafe { file.call(libc::SYS_lseek, args) }.map(|at| at as u64)
}

/// The range of bytes found last, so that reading on in it asks nothing.
#[derive(Debug, Default)]
pub(super) struct LastData {
    /// Even: the range is whole. Odd: somebody writes it.
    sequence: AtomicU32,
    /// Protected by `sequence`.
    start: AtomicU64,
    /// Protected by `sequence`.
    end: AtomicU64,
}

impl LastData {
    /// The range, if it holds `offset`.
    pub(super) fn get(&self, offset: u64) -> Option<Range<u64>> {
        // Acquire pairs with the Release at the end of `set`.
        let before = self.sequence.load(Ordering::Acquire);
        let range = self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed);
        // Pairs with the Release fence in `set`: a thread that saw a later range
        // also sees the later sequence.
        fence(Ordering::Acquire);
        let whole = before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before;
        (whole && range.contains(&offset)).then_some(range)
    }

    /// Remembers `range`, unless somebody else is remembering one.
    pub(super) fn set(&self, range: &Range<u64>) {
        let before = self.sequence.load(Ordering::Relaxed);
        // Acquire pairs with the Release at the end of the last `set`: ranges
        // are not mixed.
        let mine = before.is_multiple_of(2)
            && self
                .sequence
                .compare_exchange(
                    before,
                    before.wrapping_add(1),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok();
        if !mine {
            return;
        }
        // Pairs with the Acquire fence in `get`.
        fence(Ordering::Release);
        self.start.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Relaxed);
        // Release pairs with the Acquire in `get` and in the next `set`.
        self.sequence
            .store(before.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_range_answers_for_its_pages() {
        let last = LastData::default();
        assert_eq!(last.get(0), None);
        last.set(&(4096..8192));
        assert_eq!(last.get(4095), None);
        assert_eq!(last.get(4096), Some(4096..8192));
        assert_eq!(last.get(8191), Some(4096..8192));
        assert_eq!(last.get(8192), None);
        last.set(&(0..4096));
        assert_eq!(last.get(5000), None);
    }

    #[test]
    fn ranges_of_several_writers_are_never_mixed() {
        let last = LastData::default();
        std::thread::scope(|scope| {
            for writer in 0..2u64 {
                let last = &last;
                scope.spawn(move || {
                    for i in 0..20_000 {
                        let start = (i * 2 + writer) * 10;
                        last.set(&(start..start + 10));
                    }
                });
            }
            for i in 0..40_000 {
                if let Some(range) = last.get(i % 400_000) {
                    assert_eq!(range.end - range.start, 10);
                    assert_eq!(range.start % 10, 0);
                }
            }
        });
    }

    #[test]
    fn pages_round() {
        assert_eq!((page_of(0), page_of(4095), page_of(4096)), (0, 0, 4096));
        assert_eq!(
            (page_after(0), page_after(1), page_after(4096)),
            (0, 4096, 4096)
        );
        assert_eq!(page_after(u64::MAX), page_of(u64::MAX));
    }
}
