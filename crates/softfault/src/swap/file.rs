//! The device: a file of ours as a store of slots.

use super::Compression;
use super::clusters::Clusters;
use super::create::{Created, create};
use super::packed::{self, Bounces, Packed, Plan};
use super::plain::Plain;
use super::trim::Trimmer;
use super::write::WriteVectorPool;
use crate::store::{Descriptor, LastStep, Mode, ReadPath, Request, Ring, Rings, Source, apart};
use crate::table;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use softfault_engine::PAGE_SIZE;
use softfault_engine::lock::Mutex;
use softfault_engine::store::{Complete, NO_COOKIE, Read, Reap, Store, StoreError};
use softfault_engine::swap::SwapDevice;
use std::io;
use std::path::Path;
use std::sync::Arc;
use sync::stat::Counter;

/// Bytes of a page, as offsets are counted.
pub(super) const PAGE: u64 = PAGE_SIZE as u64;

/// A swap file.
pub struct SwapFile {
    disk: Arc<Disk>,
    /// Immutable. The rings, and which of them is this device's.
    rings: Option<(Arc<Rings>, usize)>,
    /// The buffers for packed bytes: the rings know their addresses.
    bounces: Option<Box<Bounces>>,
}

/// The disk. A child process reads its parent's.
struct Disk {
    /// Immutable. The descriptor for reads and writes.
    file: Arc<Descriptor>,
    /// Immutable.
    mode: Mode,
    /// Immutable. Bytes of all slots.
    bytes: u64,
    layout: Layout,
    clusters: Arc<Clusters>,
    write_vectors: WriteVectorPool,
    /// Buffered writes that failed. Held over a wait for one: the kernel tells an open file's error once, whosever write it was.
    failed: Mutex<u64>,
    bytes_written: Counter,
    _trimmer: Trimmer,
}

/// Where slots are in the file.
enum Layout {
    Plain(Plain),
    Packed(Box<Packed>),
}

impl SwapFile {
    /// A new file in `dir`, with slots of `bytes`.
    pub(super) fn create(
        dir: &Path,
        bytes: u64,
        compression: Compression,
        rings: Option<Arc<Rings>>,
    ) -> io::Result<Self> {
        Self::make(dir, bytes, compression, rings, Trimmer::new)
    }

    /// The same, with no thread that gives space back: it goes with the file.
    pub(super) fn create_alone(
        dir: &Path,
        bytes: u64,
        compression: Compression,
        rings: Option<Arc<Rings>>,
    ) -> io::Result<Self> {
        Self::make(dir, bytes, compression, rings, Trimmer::none)
    }

    fn make(
        dir: &Path,
        bytes: u64,
        compression: Compression,
        rings: Option<Arc<Rings>>,
        trimmer: impl FnOnce(Arc<Clusters>) -> Trimmer,
    ) -> io::Result<Self> {
        let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let file_bytes = bytes * compression.times_longer();
        let Created { file, mode, align } = create(dir, file_bytes)?;
        let file = Arc::new(file);
        // Batches are written side by side, and space is given back meanwhile.
        table::want_several();
        let slots = bytes / PAGE;
        let layout = match compression {
            Compression::None => Plain::new(slots).map(Layout::Plain),
            Compression::Lz4 => {
                Packed::new(slots, align).map(|packed| Layout::Packed(Box::new(packed)))
            }
        };
        let clusters = Clusters::new(file.clone(), file_bytes).ok_or_else(no_memory)?;
        let clusters = Arc::new(clusters);
        let disk = Disk {
            file,
            mode,
            bytes,
            layout: layout.ok_or_else(no_memory)?,
            write_vectors: WriteVectorPool::new(),
            failed: Mutex::new(0),
            bytes_written: Counter::new(),
            _trimmer: trimmer(clusters.clone()),
            clusters,
        };
        Self::of(Arc::new(disk), rings)
    }

    fn of(disk: Arc<Disk>, rings: Option<Arc<Rings>>) -> io::Result<Self> {
        let rings = rings.filter(|rings| !disk.is_buffered() || rings.serves_buffered());
        let bounces = match disk.layout {
            Layout::Plain(_) => None,
            Layout::Packed(_) => Some(Box::new(Bounces::new().ok_or(io::ErrorKind::OutOfMemory)?)),
        };
        Ok(Self {
            disk,
            rings: rings.map(|rings| {
                let index = rings.assign();
                (rings, index)
            }),
            bounces,
        })
    }

    /// The same file for a child process, which has its own rings: to read slots
    /// that were written before the fork. Only to be called in the child.
    pub fn in_child(&self, rings: Option<Arc<Rings>>) -> io::Result<Self> {
        self.disk.file.after_fork();
        Self::of(self.disk.clone(), rings)
    }

    /// How the file is read and written.
    pub fn mode(&self) -> Mode {
        self.disk.mode
    }

    /// True if that is past the kernel's page cache.
    pub fn is_direct(&self) -> bool {
        !self.disk.is_buffered()
    }

    /// Bytes that were written to the file.
    pub fn bytes_written(&self) -> u64 {
        self.disk.bytes_written.get()
    }

    /// Bytes that the file takes on the disk.
    pub fn bytes_on_disk(&self) -> u64 {
        self.disk.clusters.bytes_on_disk()
    }

    fn ring(&self) -> Option<&Ring> {
        let (rings, index) = self.rings.as_ref()?;
        rings.get(*index)
    }

    /// As [`Store::read`], of packed slots.
    ///
    /// # Safety
    /// As there.
    unsafe fn read_packed(
        &self,
        packed: &Packed,
        bounces: &Bounces,
        slots: Range<u64>,
        buffer: *mut u8,
    ) -> Result<(), i32> {
        let (mut slot, mut buffer) = (slots.start, buffer);
        while slot < slots.end {
            // Slots that were never written have no bytes.
            let plan = packed.plan(slot..slots.end).ok_or(libc::EIO)?;
            let bytes = plan.pages() * PAGE_SIZE;
            if plan.is_plain() {
                // SAFETY: the caller's promise, for a part of the buffer.
                unsafe { self.disk.fetch(plan.range(), buffer) }?;
            } else {
                bounces.with(|bounce| {
                    // SAFETY: the plan's range fits the bounce buffer.
                    unsafe { self.disk.fetch(plan.range(), bounce.as_mut_ptr()) }?;
                    // SAFETY: the caller's promise, for a part of the buffer.
                    let pages = unsafe { core::slice::from_raw_parts_mut(buffer, bytes) };
                    plan.unpack(bounce, pages)
                })?;
            }
            slot += plan.pages() as u64;
            buffer = buffer.wrapping_add(bytes);
        }
        Ok(())
    }

    /// A read ahead as the ring gets it; `None` if it takes more than one.
    ///
    /// # Safety
    /// Its buffer is the read's until its completion.
    unsafe fn packed_request(
        &self,
        packed: &Packed,
        bounces: &Bounces,
        ahead: &Read,
    ) -> Option<Request> {
        let plan = packed.plan(slots(ahead.offset, ahead.bytes))?;
        if plan.pages() * PAGE_SIZE != ahead.bytes {
            return None;
        }
        let (buffer, then) = match plan.is_plain() {
            true => (ahead.buffer, None),
            false => {
                // SAFETY: as many bytes as the plan has pages, and the read's, as the caller says.
                let bounce = unsafe { bounces.ahead(plan, ahead.buffer) }?;
                (bounces.buffer_of(bounce), Some(bounces.then(bounce)))
            }
        };
        Some(self.disk.request(ahead.cookie, &plan, buffer, then))
    }
}

impl Disk {
    fn is_buffered(&self) -> bool {
        self.mode != Mode::Direct
    }

    fn how(&self) -> ReadPath {
        match self.mode {
            Mode::Direct => ReadPath::Past,
            Mode::Buffered(_) => ReadPath::Drop,
        }
    }

    /// Reads a range of the file, all of it.
    ///
    /// # Safety
    /// `buffer` is writable for as many bytes, and nobody else touches it.
    unsafe fn fetch(&self, range: Range<u64>, buffer: *mut u8) -> Result<(), i32> {
        let bytes = (range.end - range.start) as usize;
        // SAFETY: the caller's promise.
        let arrived = unsafe { self.file.read(range.start, buffer, bytes) };
        if self.is_buffered() {
            self.file.drop_behind(range.start, bytes);
        }
        // Missing bytes were written once: these are not zeros.
        if arrived? == bytes {
            Ok(())
        } else {
            Err(libc::EIO)
        }
    }

    fn request(
        &self,
        cookie: u64,
        plan: &Plan,
        buffer: *mut u8,
        then: Option<LastStep>,
    ) -> Request {
        let range = plan.range();
        Request {
            cookie,
            source: Source::of(&self.file),
            offset: range.start,
            buffer,
            bytes: (range.end - range.start) as usize,
            how: self.how(),
            whole: true,
            then,
        }
    }

    /// Makes a buffered write last, as a direct one does, and takes it out of the
    /// page cache: there it would be memory that nobody counts, and an error on
    /// its way to the disk would reach nobody.
    /// `failures` is [`failures`](Self::failures) from before the write.
    fn settle(&self, offset: u64, bytes: usize, failures: u64) -> Result<(), i32> {
        let sync = |flags: u32| {
            let args = [offset as usize, bytes, flags as usize, 0, 0];
            // SAFETY: no memory involved.
            unsafe { self.file.call(libc::SYS_sync_file_range, args) }
        };
        // Begun without the lock: several writes may be on their way.
        sync(libc::SYNC_FILE_RANGE_WRITE)?;
        let mut failed = self.failed.lock();
        let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        if let Err(errno) = sync(all) {
            *failed += 1;
            return Err(errno);
        }
        if *failed != failures {
            return Err(libc::EIO);
        }
        drop(failed);
        self.file.drop_behind(offset, bytes);
        Ok(())
    }

    /// Buffered writes that have failed so far.
    fn failures(&self) -> u64 {
        match self.is_buffered() {
            true => *self.failed.lock(),
            false => 0,
        }
    }
}

fn slots(offset: u64, bytes: usize) -> Range<u64> {
    let all = offset | bytes as u64;
    assert!(
        all.is_multiple_of(PAGE) && bytes > 0,
        "slots are whole pages"
    );
    offset / PAGE..offset / PAGE + bytes as u64 / PAGE
}

impl SwapFile {
    /// Starts reads in a ring; how many, from the front, were started. The caller is [`submit`](Store::submit)'s.
    fn submit_in(&self, ring: &Ring, reads: &[Read]) -> usize {
        let (Layout::Packed(packed), Some(bounces)) = (&self.disk.layout, &self.bounces) else {
            return ring.submit(reads.len(), |i| Request {
                cookie: reads[i].cookie,
                source: Source::of(&self.disk.file),
                offset: reads[i].offset,
                buffer: reads[i].buffer,
                bytes: reads[i].bytes,
                how: self.disk.how(),
                whole: true,
                then: None,
            });
        };
        // One at a time: a stack that has room for many requests is not here.
        for (count, ahead) in reads.iter().enumerate() {
            // SAFETY: the caller's promise.
            let Some(request) = (unsafe { self.packed_request(packed, bounces, ahead) }) else {
                return count;
            };
            if ring.submit(1, |_| request) == 0 {
                bounces.take_back(request.then);
                return count;
            }
        }
        reads.len()
    }
}

impl Store for SwapFile {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.disk.bytes)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        let slots = slots(offset, bytes);
        let read = match (&self.disk.layout, &self.bounces) {
            (Layout::Packed(packed), Some(bounces)) => {
                // SAFETY: the caller's promise.
                unsafe { self.read_packed(packed, bounces, slots, buffer) }
            }
            // SAFETY: the caller's promise.
            _ => unsafe { self.disk.fetch(offset..offset + bytes as u64, buffer) },
        };
        read.map(|()| bytes).map_err(StoreError::Io)
    }

    unsafe fn submit(&self, reads: &[Read]) -> usize {
        self.ring().map_or(0, |ring| self.submit_in(ring, reads))
    }

    fn takes_apart(&self) -> bool {
        let past = self.disk.how() == ReadPath::Past && !self.disk.file.waits();
        past && self.ring().is_some() && apart::ring().is_some()
    }

    unsafe fn submit_apart(&self, reads: &[Read]) -> usize {
        match apart::ring() {
            Some(ring) if self.takes_apart() => self.submit_in(ring, reads),
            _ => 0,
        }
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

    fn before_fork(&self) {
        self.disk.file.before_fork();
    }
}

impl SwapDevice for SwapFile {
    unsafe fn write(&self, offset: u64, pages: &[*const u8]) -> Result<(), StoreError> {
        let Disk { file, clusters, .. } = &*self.disk;
        let bytes = pages.len() * PAGE_SIZE;
        let slots = slots(offset, bytes);
        let failures = self.disk.failures();
        let settle = |offset, bytes| match self.disk.is_buffered() {
            true => self.disk.settle(offset, bytes, failures),
            false => Ok(()),
        };
        let written = match &self.disk.layout {
            Layout::Plain(plain) => plain
                .hold(clusters, slots)
                // SAFETY: the caller's promise.
                .and_then(|()| unsafe { self.disk.write_vectors.write(file, offset, pages) })
                .and_then(|()| settle(offset, bytes))
                .map(|()| bytes as u64),
            Layout::Packed(packed) => {
                // SAFETY: the caller's promise.
                unsafe { packed.write(file, clusters, slots.start, pages, &settle) }
            }
        };
        let written = written.inspect_err(|&errno| tell_of_failure(errno));
        self.disk
            .bytes_written
            .add(written.map_err(StoreError::Io)?);
        Ok(())
    }

    fn discard(&self, range: Range<u64>) {
        let slots = range.start / PAGE..range.end / PAGE;
        match &self.disk.layout {
            Layout::Plain(plain) => plain.release(&self.disk.clusters, slots),
            Layout::Packed(packed) => packed.discard(&self.disk.clusters, slots),
        }
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        // A ring reads the rest of a short read from it.
        let source = Source::of(&self.disk.file);
        let reading = self.ring().is_some_and(|ring| ring.reads_from(source));
        assert!(
            !reading || std::thread::panicking(),
            "swap was dropped under its reads"
        );
    }
}

/// A function of [`on_swap_failure`]; 0: there is none. Relaxed: it guards nothing.
static ON_FAILURE: AtomicUsize = AtomicUsize::new(0);

/// Calls `tell` with the errno of each write to swap that fails from now on, for `softfault run`. The call is in the thread that
/// needs the memory, also in the fault handler, with locks held.
pub fn on_swap_failure(tell: fn(i32)) {
    ON_FAILURE.store(tell as usize, Relaxed);
}

#[cold]
fn tell_of_failure(errno: i32) {
    let tell = ON_FAILURE.load(Relaxed);
    if tell != 0 {
        // SAFETY: only `on_swap_failure` stores others, which are such functions.
        let tell = unsafe { core::mem::transmute::<usize, fn(i32)>(tell) };
        tell(errno);
    }
}

impl Compression {
    /// Bytes of the file for each of its slots'.
    pub(super) fn times_longer(self) -> u64 {
        match self {
            Self::None => 1,
            Self::Lz4 => packed::TIMES_LONGER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[repr(align(4096))]
    struct Pages([u8; 8 * PAGE_SIZE]);

    struct Answer(Cell<Option<Result<usize, StoreError>>>);

    impl Complete for Answer {
        fn complete(&self, _cookie: u64, result: Result<usize, StoreError>) {
            self.0.set(Some(result));
        }
    }

    /// Another process cut the file: missing bytes are not zeros.
    #[test]
    fn a_short_read_is_an_error() {
        for compression in [Compression::None, Compression::Lz4] {
            let rings = Arc::new(Rings::new().unwrap());
            let dir = std::env::temp_dir();
            let file = SwapFile::create(&dir, 1 << 20, compression, Some(rings)).unwrap();
            let mut pages = Box::new(Pages(core::array::from_fn(|at| (at * at / 7) as u8)));
            let each = pages.0.chunks(PAGE_SIZE).map(<[u8]>::as_ptr);
            let each: Vec<_> = each.collect();
            // SAFETY: the pages are ours.
            unsafe { file.write(0, &each) }.unwrap();
            let bytes = file.bytes_written() as i64;
            // SAFETY: no memory involved.
            let cut = unsafe { libc::ftruncate(file.disk.file.raw(), bytes - 512) };
            assert_eq!(cut, 0);
            let buffer = pages.0.as_mut_ptr();
            // SAFETY: the pages are ours.
            let read = unsafe { file.read(0, buffer, 8 * PAGE_SIZE) };
            assert_eq!(read, Err(StoreError::Io(libc::EIO)));
            // SAFETY: as above.
            let read = unsafe { file.read(0, buffer, PAGE_SIZE) };
            assert_eq!(read, Ok(PAGE_SIZE), "the first is whole");
            let ahead = Read {
                cookie: 1,
                offset: 0,
                buffer,
                bytes: 8 * PAGE_SIZE,
            };
            // SAFETY: as above.
            assert_eq!(unsafe { file.submit(&[ahead]) }, 1);
            let answer = Answer(Cell::new(None));
            while file.reap(1, &answer, u64::MAX / 4) == Reap::TimedOut {}
            assert_eq!(answer.0.get(), Some(Err(StoreError::Short)));
        }
    }
}
