//! Whether the page cache has a file.

use super::file::FileStore;
use super::open::bytes_allocated;
use super::read_path::CacheProgress;
use crate::table::Guarded;
use core::ffi::c_long;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;

/// cachestat(2), since Linux 6.5; the same number everywhere.
const CACHESTAT: c_long = 451;
/// A file of which all but one of so many bytes are there is there.
const MISSING: u64 = 16;

/// As the call takes it: 0 bytes are all.
#[repr(C)]
struct Part {
    offset: u64,
    bytes: u64,
}

/// As the call fills it.
#[repr(C)]
#[derive(Default)]
struct CachedPages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

impl FileStore {
    /// The file in the table of descriptors, if it is there.
    pub(crate) fn in_table(&self) -> Option<&Guarded> {
        self.file.guarded()
    }

    /// True if the kernel can map it: a file, opened by us and in the table.
    pub(crate) fn can_be_mapped(&self) -> bool {
        !self.device && self.file.is_ours() && self.in_table().is_some()
    }

    /// True if the page cache has all of the file but a little. False where the kernel does not say.
    pub(crate) fn is_in_the_page_cache(&self) -> bool {
        let is_there = |(there, bytes)| bytes > 0 && there >= bytes - bytes / MISSING;
        self.cached_bytes().is_some_and(is_there)
    }

    /// How much of the file the page cache has, and how much there is. `None` where the kernel does not say: to a process that
    /// neither owns the file nor may write it, and before Linux 6.5.
    pub(super) fn cached_bytes(&self) -> Option<(u64, u64)> {
        let stat = self.file.stat().ok()?;
        let bytes = bytes_allocated(&stat).min(u64::try_from(stat.st_size).unwrap_or(0));
        // No bytes are all.
        Some((self.cached_in(0..0)?, bytes))
    }

    /// The bytes of a part that the page cache has. `None` as above.
    pub(crate) fn cached_in(&self, part: Range<u64>) -> Option<u64> {
        let part = Part {
            offset: part.start,
            bytes: part.end - part.start,
        };
        let mut pages = CachedPages::default();
        let args = [(&raw const part).addr(), (&raw mut pages).addr(), 0, 0, 0];
        // SAFETY: reads the one, and fills the other.
        unsafe { self.file.call(CACHESTAT, args) }.ok()?;
        Some(pages.cached * PAGE_SIZE as u64)
    }

    /// Takes a part of it out of the page cache, but for pages that are mapped or dirty.
    pub(crate) fn drop_from_page_cache(&self, part: &Range<u64>) {
        let (offset, bytes) = (part.start as usize, (part.end - part.start) as usize);
        let args = [offset, bytes, libc::POSIX_FADV_DONTNEED as usize, 0, 0];
        // SAFETY: no memory involved. Advice: what the kernel keeps, it keeps.
        let _ = unsafe { self.file.call(libc::SYS_fadvise64, args) };
    }

    /// Whether the kernel's last scan of it went on to the end of what it was to serve.
    pub(crate) fn was_scanned(&self, to_the_end: bool) {
        self.file.way.was_scanned(to_the_end);
    }

    /// How far it was read in order, past the page cache, since the last time, if that was for a while.
    pub(crate) fn take_scanned(&self) -> Option<u64> {
        self.file.way.take_scanned()
    }

    /// How far it was read through the page cache since the last time.
    pub(crate) fn take_reached(&self) -> Option<CacheProgress> {
        self.file.way.take_reached()
    }
}
