//! The device: a file whose byte `n` × the page size is slot `n`.

use super::clusters::{CLUSTER, Clusters};
use super::create::{Created, create};
use super::table::Table;
use super::trim::Trimmer;
use super::write::Sheets;
use crate::store::{Mode, Request, Ring, Rings, drop_behind, read};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::PAGE_SIZE;
use softfault_engine::store::{Complete, Extent, NO_COOKIE, Read, Reap, Store, StoreError};
use softfault_engine::swap::SwapDevice;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use sync::stat::Counter;

const PAGE: u64 = PAGE_SIZE as u64;
/// Slots that have their bits in one word.
const BITS: u64 = u64::BITS as u64;

/// A swap file.
pub(crate) struct SwapFile {
    /// Immutable. What it is read and written through.
    fd: OwnedFd,
    /// Immutable.
    mode: Mode,
    /// Immutable.
    bytes: u64,
    /// A bit a slot: it was written, and not discarded since.
    written: Table,
    clusters: Arc<Clusters>,
    sheets: Sheets,
    /// Immutable. The rings, and which of them is this device's.
    rings: Option<(Arc<Rings>, usize)>,
    bytes_written: Counter,
    _trimmer: Trimmer,
}

impl SwapFile {
    /// A new file of `bytes`, whole pages, in `dir`.
    pub(super) fn create(dir: &Path, bytes: u64, rings: Option<Arc<Rings>>) -> io::Result<Self> {
        let Created { fd, mode, .. } = create(dir, bytes)?;
        let written = Table::new((bytes / PAGE).div_ceil(BITS) as usize);
        let written = written.ok_or(io::ErrorKind::OutOfMemory)?;
        let clusters = Arc::new(Clusters::new(fd.try_clone()?, bytes));
        let rings = rings.filter(|rings| mode == Mode::Direct || rings.serves_buffered());
        Ok(Self {
            fd,
            mode,
            bytes,
            written,
            sheets: Sheets::new(),
            rings: rings.map(|rings| {
                let index = rings.assign();
                (rings, index)
            }),
            bytes_written: Counter::new(),
            _trimmer: Trimmer::new(clusters.clone()),
            clusters,
        })
    }

    /// How the file is read and written.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Bytes that were written to the file.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.bytes_written.get()
    }

    fn ring(&self) -> Option<&Ring> {
        let (rings, index) = self.rings.as_ref()?;
        rings.get(*index)
    }

    fn is_buffered(&self) -> bool {
        self.mode != Mode::Direct
    }

    /// Takes the space of slots that are about to be written.
    fn hold(&self, slots: Range<u64>) -> Result<(), i32> {
        let mut result = Ok(());
        for part in parts(slots, CLUSTER / PAGE) {
            let mut more = 0;
            for (word, mask) in words(part.clone()) {
                // Relaxed: a slot is had by one thread at a time.
                let before = self.written[word].fetch_or(mask, Relaxed);
                more += (mask & !before).count_ones();
            }
            let cluster = (part.start * PAGE / CLUSTER) as usize;
            let held = self
                .clusters
                .hold(cluster, more, part.start * PAGE..part.end * PAGE);
            result = result.and(held);
        }
        result
    }

    /// Makes a buffered write last, as a direct one does, and takes it out of the
    /// page cache: there it would be memory that nobody counts, and an error on
    /// its way to the disk would reach nobody.
    fn settle(&self, offset: u64, bytes: usize) -> Result<(), i32> {
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        let (fd, start) = (self.fd.as_raw_fd(), offset as i64);
        // SAFETY: no memory involved.
        let answer = unsafe { libc::sync_file_range(fd, start, bytes as i64, flags) };
        crate::store::check(answer)?;
        drop_behind(fd, offset, bytes);
        Ok(())
    }
}

/// Bits of the words that stand for `slots`.
fn words(slots: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    parts(slots, BITS).map(|part| {
        let count = part.end - part.start;
        let mask = u64::MAX >> (BITS - count) << (part.start % BITS);
        ((part.start / BITS) as usize, mask)
    })
}

/// `range`, cut at multiples of `size`.
fn parts(range: Range<u64>, size: u64) -> impl Iterator<Item = Range<u64>> {
    let mut left = range;
    core::iter::from_fn(move || {
        let end = ((left.start / size + 1) * size).min(left.end);
        let part = left.start..end;
        left.start = end;
        (!part.is_empty()).then_some(part)
    })
}

impl Store for SwapFile {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.bytes)
    }

    fn extent(&self, _offset: u64) -> Result<Extent, StoreError> {
        Ok(Extent::Data(0..self.bytes))
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: the caller's promise.
        let arrived = unsafe { read(fd, offset, buffer, bytes) };
        if self.is_buffered() {
            drop_behind(fd, offset, bytes);
        }
        match arrived {
            Ok(arrived) if arrived == bytes => Ok(arrived),
            // What does not come was written once: these are not zeros.
            Ok(_) => Err(StoreError(libc::EIO)),
            Err(errno) => Err(StoreError(errno)),
        }
    }

    unsafe fn submit(&self, reads: &[Read]) -> usize {
        let Some(ring) = self.ring() else { return 0 };
        let fd: RawFd = self.fd.as_raw_fd();
        ring.submit(reads.len(), |i| Request {
            cookie: reads[i].cookie,
            fd,
            offset: reads[i].offset,
            buffer: reads[i].buffer,
            bytes: reads[i].bytes,
            drop_behind: self.is_buffered(),
            whole: true,
        })
    }

    fn reap(&self, cookie: u64, complete: &dyn Complete, timeout_ns: u64) -> Reap {
        match (self.ring(), &self.rings) {
            (Some(_), Some((rings, _))) if cookie == NO_COOKIE => {
                rings.poll(complete);
                Reap::NotInFlight
            }
            (Some(ring), _) => ring.reap(cookie, complete, timeout_ns),
            (None, _) => Reap::NotInFlight,
        }
    }
}

impl SwapDevice for SwapFile {
    unsafe fn write(&self, offset: u64, pages: &[*const u8]) -> Result<(), StoreError> {
        let bytes = pages.len() * PAGE_SIZE;
        assert!(offset.is_multiple_of(PAGE) && offset + bytes as u64 <= self.bytes);
        let slots = offset / PAGE..(offset + bytes as u64) / PAGE;
        self.hold(slots).map_err(StoreError)?;
        // SAFETY: the caller's promise.
        let written = unsafe { self.sheets.write(self.fd.as_raw_fd(), offset, pages) };
        self.bytes_written.add(bytes as u64);
        let settled = match written {
            Ok(()) if self.is_buffered() => self.settle(offset, bytes),
            written => written,
        };
        settled.map_err(StoreError)
    }

    fn discard(&self, range: Range<u64>) {
        for part in parts(range.start / PAGE..range.end / PAGE, CLUSTER / PAGE) {
            let mut fewer = 0;
            for (word, mask) in words(part.clone()) {
                // Relaxed: as in `hold`.
                let before = self.written[word].fetch_and(!mask, Relaxed);
                fewer += (mask & before).count_ones();
            }
            if fewer > 0 {
                let cluster = (part.start * PAGE / CLUSTER) as usize;
                self.clusters.release(cluster, fewer);
            }
        }
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        // A ring reads the rest of a short read through this descriptor.
        let reading = self
            .ring()
            .is_some_and(|ring| ring.reads_from(self.fd.as_raw_fd()));
        assert!(
            !reading || std::thread::panicking(),
            "swap was dropped under its reads"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_by_words() {
        let of = |slots| words(slots).collect::<Vec<_>>();
        assert_eq!(of(0..64), [(0, u64::MAX)]);
        assert_eq!(of(3..4), [(0, 8)]);
        assert_eq!(of(62..66), [(0, 3 << 62), (1, 3)]);
        assert_eq!(of(5..5), []);
    }
}
