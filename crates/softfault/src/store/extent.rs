//! The contents of a file at an offset: bytes, or a hole.
//!
//! Bytes may be answered from memory, for reading a hole that came to be
//! meanwhile gives zeros too. A hole is looked up each time: bytes written
//! there since would be lost.

use std::mem::MaybeUninit;
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

/// Looks the extent around `offset` up in the file; `len` is asked where the file system cannot tell holes. Moves the
/// position of the open file.
///
/// Apart, as what it asks: the frames of faults that ask nothing stay small.
#[inline(never)]
pub(super) fn seek(
    file: &Descriptor,
    offset: u64,
    len: impl FnOnce() -> Result<u64, i32>,
) -> Result<Extent, i32> {
    match Seen::of(file, page_of(offset)).extent(offset)? {
        Some(extent) => Ok(extent),
        None => {
            let page = page_of(offset);
            Ok(Extent::Data(page..page_after(len()?).max(page + PAGE)))
        }
    }
}

/// The answer of a file when it is asked for data and holes from a page on. All of it is asked at once: each request in the
/// table of descriptors costs two changes of threads, many times a system call.
struct Seen {
    /// The first data at or after the page.
    data: Result<u64, i32>,
    /// The first hole there.
    hole: Result<u64, i32>,
    /// Where the file ends.
    end: Result<u64, i32>,
    /// As `data`, once more.
    data_again: Result<u64, i32>,
}

impl Seen {
    #[inline(never)]
    fn of(file: &Descriptor, page: u64) -> Self {
        let mut stat = MaybeUninit::<libc::stat>::zeroed();
        let seek = |whence: i32| {
            let args = [page as usize, whence as usize, 0, 0, 0];
            (libc::SYS_lseek, args)
        };
        let fstat = [stat.as_mut_ptr() as usize, 0, 0, 0, 0];
        let calls = [
            seek(libc::SEEK_DATA),
            seek(libc::SEEK_HOLE),
            (libc::SYS_fstat, fstat),
            seek(libc::SEEK_DATA),
        ];
        // SAFETY: seeking takes no memory; the stat is filled before this returns.
        let [data, hole, told, data_again] = unsafe { file.call_each(calls) };
        // SAFETY: zeros are valid, and so are the kernel's values.
        let size = unsafe { stat.assume_init() }.st_size;
        Self {
            data: data.map(|at| at as u64),
            hole: hole.map(|at| at as u64),
            end: told.map(|_| u64::try_from(size).unwrap_or(0)),
            data_again: data_again.map(|at| at as u64),
        }
    }

    /// The extent around `offset`; `None` where the file cannot tell holes: all of it is data.
    fn extent(&self, offset: u64) -> Result<Option<Extent>, i32> {
        let page = page_of(offset);
        let one_page = page..page + PAGE;
        let extent = match self.data {
            Ok(data) if data >= one_page.end => Extent::Hole(page..page_of(data)),
            // Truncated in between: the read will tell.
            Ok(data) if data == page => match self.hole {
                Ok(hole) => Extent::Data(page..page_after(hole).max(one_page.end)),
                Err(libc::ENXIO) => Extent::Data(one_page),
                Err(no) => return Err(no),
            },
            // Blocks that are smaller than a page: the first of them are a hole.
            Ok(_) => Extent::Data(one_page),
            Err(libc::ENXIO) => {
                let end = self.end?;
                match self.data_again {
                    // Truncated in between: the read will tell.
                    _ if offset >= end => Extent::Data(one_page),
                    // The first answer was of the file when it was shorter, and `end` of the bytes that were
                    // written there since.
                    Ok(data) if data >= one_page.end => Extent::Hole(page..page_of(data)),
                    Ok(_) => Extent::Data(one_page),
                    Err(libc::ENXIO) => Extent::Hole(page..page_after(end)),
                    Err(no) => return Err(no),
                }
            }
            // A file system that cannot tell holes; a child of fork, whose parent has `file`.
            Err(libc::EINVAL | libc::EOPNOTSUPP | libc::EBADF) => return Ok(None),
            Err(no) => return Err(no),
        };
        Ok(Some(extent))
    }
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
    use std::sync::atomic::AtomicBool;

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
        // All ranges hold this offset and have it in their middle: one that is mixed does not.
        const MIDDLE: u64 = 1000;
        let last = LastData::default();
        let enough = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2u64 {
                let (last, enough) = (&last, &enough);
                scope.spawn(move || {
                    let mut half = writer;
                    while !enough.load(Ordering::Relaxed) {
                        half = (half + 2) % MIDDLE;
                        last.set(&(MIDDLE - half..MIDDLE + half + 1));
                    }
                });
            }
            let mut whole = 0;
            let mut mixed = None;
            while whole < 100_000 && mixed.is_none() {
                if let Some(range) = last.get(MIDDLE) {
                    whole += 1;
                    mixed = (range.start + range.end != 2 * MIDDLE + 1).then_some(range);
                }
            }
            enough.store(true, Ordering::Relaxed);
            assert_eq!(mixed, None);
        });
    }

    /// The extents of a file that has no data from the page on, ends there, and then has this.
    fn seen(end: u64, data_again: Result<u64, i32>) -> Option<Extent> {
        let (data, hole) = (Err(libc::ENXIO), Err(libc::ENXIO));
        let seen = Seen {
            data,
            hole,
            end: Ok(end),
            data_again,
        };
        seen.extent(8192).expect("an extent")
    }

    #[test]
    fn a_file_that_is_cut_and_written_again_has_no_hole() {
        let data = Some(Extent::Data(8192..12_288));
        assert_eq!(seen(5 << 12, Ok(8192)), data);
        assert_eq!(seen(4096, Ok(8192)), data, "past the end");
        assert_eq!(seen(5 << 12, Ok(8200)), data, "not from its first byte on");
        let hole = Some(Extent::Hole(8192..4 << 12));
        assert_eq!(seen(5 << 12, Ok(4 << 12)), hole);
        assert_eq!(seen(4 << 12, Err(libc::ENXIO)), hole);
    }

    #[test]
    fn a_hole_ends_where_the_page_of_the_data_begins() {
        let extent = |data: u64| {
            let seen = Seen {
                data: Ok(data),
                hole: Ok(data + 512),
                end: Ok(9 << 12),
                data_again: Ok(data),
            };
            seen.extent(8192).map(|found| found.expect("an extent"))
        };
        // Blocks smaller than a page: the page has bytes, and all of it is read.
        assert_eq!(extent(8192 + 512), Ok(Extent::Data(8192..12_288)));
        let hole = Ok(Extent::Hole(8192..4 << 12));
        assert_eq!(extent((4 << 12) + 512), hole);
        assert_eq!(extent(4 << 12), hole);
    }

    #[test]
    fn one_look_finds_data_and_holes() {
        let user = memory_file();
        user.set_len(9 << 12).expect("longer");
        user.write_all_at(&[7; 4096], 3 << 12).expect("written");
        let holes = Descriptor::adopt(user.as_fd()).expect("a table");
        let extent = |page: u64| {
            let before = crate::table::requests();
            let extent = seek(&holes, (page << 12) + 5, || Err(libc::EIO));
            let asked = crate::table::requests() - before;
            assert_eq!(asked, u32::from(crate::table::is_there()));
            extent
        };
        let pages = |pages: Range<u64>| pages.start << 12..pages.end << 12;
        assert_eq!(extent(0), Ok(Extent::Hole(pages(0..3))));
        assert_eq!(extent(3), Ok(Extent::Data(pages(3..4))));
        assert_eq!(extent(4), Ok(Extent::Hole(pages(4..9))));
        assert_eq!(extent(9), Ok(Extent::Data(pages(9..10))), "past the end");
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
