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
    let found = lseek(file, page, libc::SEEK_DATA);
    if found == Err(libc::ENXIO) {
        let end = len()?;
        if offset >= end {
            // Truncated in between: the read will tell.
            return Ok(Extent::Data(one_page));
        }
        // The answer may be of the file when it was shorter, and `end` of the bytes that were
        // written there since.
        return match lseek(file, page, libc::SEEK_DATA) {
            Ok(data) => from_data(file, page, data),
            Err(libc::ENXIO) => Ok(Extent::Hole(page..page_after(end))),
            Err(no) => Err(no),
        };
    }
    match found {
        Ok(data) => from_data(file, page, data),
        // A file system that cannot tell holes; a child of fork, whose parent has `file`.
        Err(libc::EINVAL | libc::EOPNOTSUPP | libc::EBADF) => {
            Ok(Extent::Data(page..page_after(len()?).max(one_page.end)))
        }
        Err(no) => Err(no),
    }
}

/// The extent around a page, after which the first data is at `data`.
fn from_data(file: &Descriptor, page: u64, data: u64) -> Result<Extent, i32> {
    let page_end = page + PAGE;
    if data >= page_end {
        return Ok(Extent::Hole(page..page_of(data)));
    }
    let hole = match lseek(file, data, libc::SEEK_HOLE) {
        Ok(hole) => page_after(hole).max(page_end),
        // Truncated in between: the read will tell.
        Err(libc::ENXIO) => page_end,
        Err(no) => return Err(no),
    };
    Ok(Extent::Data(page..hole))
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
    use std::fs::File;
    use std::os::fd::{AsFd, FromRawFd};
    use std::os::unix::fs::FileExt;

    fn memory_file() -> File {
        // SAFETY: a name of the test's.
        let fd = unsafe { libc::memfd_create(c"softfault-extent".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: just made.
        unsafe { File::from_raw_fd(fd) }
    }

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
    fn a_file_that_is_cut_and_written_again_has_no_hole() {
        let user = memory_file();
        let holes = Descriptor::adopt(user.as_fd()).expect("a table");
        let written = |at: u64, bytes: u64| {
            seek(&holes, 8192, || {
                user.set_len(at).expect("cut");
                user.write_all_at(&vec![7; bytes as usize], at)
                    .expect("written");
                Ok(at + bytes)
            })
        };
        // No data anywhere: the length is asked for, and there is some then.
        assert_eq!(written(0, 5 << 12), Ok(Extent::Data(8192..5 << 12)));
        user.set_len(0).expect("cut");
        assert_eq!(written(4 << 12, 1 << 12), Ok(Extent::Hole(8192..4 << 12)));
        user.set_len(0).expect("cut");
        assert_eq!(
            written(4096, 1),
            Ok(Extent::Data(8192..12_288)),
            "past the end"
        );
        user.set_len(0).expect("cut");
        let still = seek(&holes, 8192, || {
            user.set_len(5 << 12).expect("longer");
            Ok(5 << 12)
        });
        assert_eq!(still, Ok(Extent::Hole(8192..5 << 12)));
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
