//! memmap2's `Mmap` and `MmapOptions`, over an engine.

use crate::FaultError;
use crate::engine::{Engine, Fallback};
use crate::fault_in::FaultIn;
use crate::pinned::Pinned;
use crate::signal::{self, Installed};
use core::ops::{Bound, Deref, Range, RangeBounds};
use softfault_engine::cache::{PageCache, Residency};
use softfault_engine::store::NO_COOKIE;
use softfault_engine::{fault, mm};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// What can be mapped: an open file or its descriptor, as in memmap2.
pub trait MmapAsRawDesc {
    /// The descriptor.
    fn as_raw_desc(&self) -> RawFd;
}

impl MmapAsRawDesc for RawFd {
    fn as_raw_desc(&self) -> RawFd {
        *self
    }
}

impl<T: AsRawFd> MmapAsRawDesc for &T {
    fn as_raw_desc(&self) -> RawFd {
        self.as_raw_fd()
    }
}

/// What the caller expects of its accesses; the names are memmap2's and
/// madvise(2)'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Nothing: the engine finds out.
    Normal,
    /// Random: single pages, no read-ahead.
    Random,
    /// Sequential: read far ahead from the first touch.
    Sequential,
    /// Start to read the range now, as far as spare memory goes.
    WillNeed,
}

/// How to map; memmap2's builder.
#[derive(Debug, Clone, Default)]
pub struct MmapOptions {
    offset: u64,
    pub(crate) len: Option<usize>,
    pub(crate) populate: bool,
}

impl MmapOptions {
    /// The whole file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts the map at this byte of the file. Any offset, as in memmap2.
    pub fn offset(&mut self, offset: u64) -> &mut Self {
        self.offset = offset;
        self
    }

    /// Bytes to map; without it, to the end of the file.
    pub fn len(&mut self, len: usize) -> &mut Self {
        self.len = Some(len);
        self
    }

    /// Starts to read everything at once, as far as the budget goes; of
    /// anonymous memory, fills all of it, or fails.
    pub fn populate(&mut self) -> &mut Self {
        self.populate = true;
        self
    }

    /// Maps read-only over the process's default engine.
    ///
    /// # Safety
    /// See [`Engine::map`].
    pub unsafe fn map<T: MmapAsRawDesc>(&self, file: T) -> io::Result<Mmap> {
        // SAFETY: the caller vouches for it.
        unsafe { self.map_with(Engine::process_default()?, file) }
    }

    /// Maps read-only over `engine`.
    ///
    /// # Safety
    /// See [`Engine::map`].
    pub unsafe fn map_with<T: MmapAsRawDesc>(&self, engine: &Engine, file: T) -> io::Result<Mmap> {
        if engine.inner.is_parents() {
            return Err(FaultError::Forked.into());
        }
        let fd = file.as_raw_desc();
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        // SAFETY: open as long as the file that it was taken from, which the
        // caller lends.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let len = self.length(fd)?;
        let map = match engine.inner.managed() {
            _ if len == 0 => Mmap::new(engine, 0, 0, Kind::Empty),
            None => kernel_map(engine, fd, self.offset, len)?,
            Some(managed) => {
                let masked = signal::masked();
                check_signals(engine, &masked)?;
                let on_truncate = engine.inner.options.on_truncate;
                let cache = engine.inner.files.open(managed, fd, on_truncate)?;
                let start = cache.addresses().start + self.offset as usize;
                Mmap::new(engine, start, len, Kind::Managed(cache))
            }
        };
        if self.populate {
            map.advise(Advice::WillNeed)?;
        }
        Ok(map)
    }

    /// Bytes to map; fails where the file has not that many.
    fn length(&self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let invalid = |message| Err(io::Error::new(io::ErrorKind::InvalidData, message));
        let size = crate::machine::file_bytes(fd)?;
        let rest = size.saturating_sub(self.offset);
        let len = match self.len {
            None if self.offset > size => return invalid("the offset is past the end of the file"),
            None => rest,
            Some(len) if len as u64 > rest => {
                return invalid("the map would reach past the end of the file");
            }
            Some(len) => len as u64,
        };
        match isize::try_from(len) {
            Ok(len) => Ok(len as usize),
            Err(_) => invalid("the map would be larger than an address can say"),
        }
    }
}

/// A fault in this thread must reach our handler.
pub(crate) fn check_signals(engine: &Engine, masked: &signal::Masked) -> io::Result<()> {
    if masked.sigbus_was_blocked() {
        return Err(io::Error::other(
            "SIGBUS is blocked in this thread: its first touch of a map would kill the process",
        ));
    }
    if signal::state() == Installed::Replaced && !engine.inner.options.trust_handlers {
        return Err(io::Error::other(
            "a SIGBUS handler was installed after the engine's: faults would not be served \
             (trust_signal_handlers(true) if it passes on what it does not know)",
        ));
    }
    Ok(())
}

fn kernel_map(engine: &Engine, fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Mmap> {
    debug_assert_eq!(engine.inner.options.fallback, Fallback::Kernel);
    let skip = (offset % softfault_engine::PAGE_SIZE as u64) as usize;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let addr = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            len + skip,
            libc::PROT_READ,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            (offset - skip as u64) as libc::off_t,
        )
    };
    if addr == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(Mmap::new(
        engine,
        addr as usize + skip,
        len,
        Kind::Kernel { skip },
    ))
}

/// Bytes to pin at a time when copying.
const STEP: usize = 1 << 20;
/// Bytes to copy at a time where nothing more can be pinned: a page.
const SMALL_STEP: usize = softfault_engine::PAGE_SIZE;

/// A read-only map; memmap2's `Mmap`.
///
/// It is a `[u8]` whose pages are read when they are touched. A system call
/// that is handed a part of it that is not in memory fails with EFAULT: use
/// [`read_at`](Self::read_at), [`write_to`](Self::write_to) or
/// [`pin`](Self::pin).
pub struct Mmap {
    engine: Engine,
    start: usize,
    len: usize,
    kind: Kind,
}

// A panic leaves nothing half-done behind that a map's user could see: the
// bytes are the file's, and the locks beneath are never held over user code.
impl UnwindSafe for Mmap {}
impl RefUnwindSafe for Mmap {}

enum Kind {
    Managed(Arc<PageCache>),
    Kernel { skip: usize },
    Empty,
}

impl Mmap {
    fn new(engine: &Engine, start: usize, len: usize, kind: Kind) -> Self {
        Self {
            engine: engine.clone(),
            start,
            len,
            kind,
        }
    }

    /// Maps a store.
    pub(crate) fn of_store(
        engine: &Engine,
        store: Arc<dyn softfault_engine::Store>,
    ) -> io::Result<Self> {
        if engine.inner.is_parents() {
            return Err(FaultError::Forked.into());
        }
        let Some(managed) = engine.inner.managed() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let masked = signal::masked();
        check_signals(engine, &masked)?;
        let files = &engine.inner.files;
        let cache = files.open_store(managed, store, engine.inner.options.on_truncate)?;
        let (start, len) = (cache.addresses().start, cache.end() as usize);
        Ok(Self::new(engine, start, len, Kind::Managed(cache)))
    }

    /// Maps a whole file over the process's default engine.
    ///
    /// # Safety
    /// See [`Engine::map`].
    pub unsafe fn map<T: MmapAsRawDesc>(file: T) -> io::Result<Self> {
        // SAFETY: the caller vouches for it.
        unsafe { MmapOptions::new().map(file) }
    }

    /// True if the engine serves this map, false if the kernel does.
    pub fn is_managed(&self) -> bool {
        matches!(self.kind, Kind::Managed(_))
    }

    /// The engine that serves it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Says what to expect of all accesses.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        self.advise_range(advice, 0, self.len)
    }

    /// Says what to expect of accesses to a range. Another map of the same file
    /// in the same engine shares the advice.
    pub fn advise_range(&self, advice: Advice, offset: usize, len: usize) -> io::Result<()> {
        // Advice is given by pages, so that the last may be named whole.
        let page = softfault_engine::PAGE_SIZE;
        let all = self.addresses(0..self.len)?;
        let range = all.start.saturating_add(offset);
        let range = range..range.saturating_add(len);
        if range.end > all.end.next_multiple_of(page) {
            return Err(FaultError::OutOfRange.into());
        }
        let advice = match (&self.kind, advice) {
            (Kind::Empty, _) => return Ok(()),
            (Kind::Kernel { .. }, advice) => return kernel_advise(&range, advice),
            (Kind::Managed(cache), Advice::WillNeed) => {
                let _masked = signal::masked();
                fault::prefetch(cache, range);
                return Ok(());
            }
            (Kind::Managed(_), Advice::Normal) => mm::Advice::Normal,
            (Kind::Managed(_), Advice::Random) => mm::Advice::Random,
            (Kind::Managed(_), Advice::Sequential) => mm::Advice::Sequential,
        };
        let pages = range.start / page * page..range.end.next_multiple_of(page);
        if pages.is_empty() {
            return Ok(());
        }
        let _masked = signal::masked();
        let managed = self.engine.inner.managed().expect("a managed map");
        let advised = managed.space.madvise(pages, advice);
        advised.map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, "no room to split the map"))
    }

    /// Starts to read a range, as far as spare memory goes; waits for nothing.
    pub fn prefetch(&self, range: impl RangeBounds<usize>) -> Result<(), FaultError> {
        let addresses = self.addresses(self.range_of(range))?;
        if let Kind::Managed(cache) = &self.kind {
            let _masked = signal::masked();
            fault::prefetch(cache, addresses);
        }
        Ok(())
    }

    /// Brings a range into memory and keeps it there while the result lives.
    /// A failed read is an error here, never a signal. Up to half of the
    /// budget can be pinned.
    pub fn pin(&self, range: impl RangeBounds<usize>) -> Result<Pinned<'_>, FaultError> {
        Pinned::new(self, self.range_of(range))
    }

    /// Copies bytes out, starting at `offset`; returns how many there were.
    /// For buffers of system calls, and where an error is wanted as a value.
    pub fn read_at(&self, buffer: &mut [u8], offset: usize) -> Result<usize, FaultError> {
        let count = buffer.len().min(self.len.saturating_sub(offset));
        let mut done = 0;
        while done < count {
            let step = (count - done).min(STEP);
            done += self.with_bytes(offset + done, step, |bytes| {
                buffer[done..done + bytes.len()].copy_from_slice(bytes);
            })?;
        }
        Ok(count)
    }

    /// Shows up to `len` bytes from `at` to `show`; returns how many. Where
    /// others have pinned so much that the bytes cannot be pinned too, they are
    /// fewer, and copied.
    fn with_bytes(
        &self,
        at: usize,
        len: usize,
        show: impl FnOnce(&[u8]),
    ) -> Result<usize, FaultError> {
        match self.pin(at..at + len) {
            Ok(pinned) => show(&pinned),
            Err(FaultError::NoMemory) => {
                let mut copy = [0; SMALL_STEP];
                // Not across pages: no more is held than a fault in progress
                // holds.
                let copy = &mut copy[..len.min(SMALL_STEP - (self.start + at) % SMALL_STEP)];
                copy.copy_from_slice(&Pinned::uncounted(self, at..at + copy.len())?);
                show(copy);
                return Ok(copy.len());
            }
            Err(error) => return Err(error),
        }
        Ok(len)
    }

    /// Writes a range to `writer` (a file, a socket, a hasher).
    pub fn write_to(
        &self,
        range: impl RangeBounds<usize>,
        writer: &mut (impl io::Write + ?Sized),
    ) -> io::Result<u64> {
        let range = self.range_of(range);
        self.addresses(range.clone())?;
        let mut at = range.start;
        while at < range.end {
            let step = (range.end - at).min(STEP);
            self.prefetch(at..(at + 4 * step).min(range.end))?;
            let mut written = Ok(());
            at += self.with_bytes(at, step, |bytes| written = writer.write_all(bytes))?;
            written?;
        }
        Ok((range.end - range.start) as u64)
    }

    /// Brings a range into memory without blocking: a future for any executor.
    /// What it brought may be evicted again; `pin` keeps.
    pub fn fault_in(&self, range: impl RangeBounds<usize>) -> FaultIn<'_> {
        FaultIn::new(self, self.range_of(range))
    }

    /// What of a range is in memory, by pages.
    pub fn residency(&self, range: impl RangeBounds<usize>) -> Result<Residency, FaultError> {
        let addresses = self.addresses(self.range_of(range))?;
        let _masked = signal::masked();
        Ok(match &self.kind {
            Kind::Managed(cache) => {
                // Reads that are over and that nobody waited for are not under
                // way any more.
                let completion = fault::Completion(cache.node());
                cache.store().reap(NO_COOKIE, &completion, 0);
                cache.residency(addresses)
            }
            _ => Residency::default(),
        })
    }

    /// Forgets the pages of a range: the next touch reads them from the file
    /// again. Waits for pages that are being read; pinned pages stay as they
    /// are until they are let go, and are forgotten then.
    pub fn invalidate(&self, range: impl RangeBounds<usize>) -> Result<(), FaultError> {
        let addresses = self.addresses(self.range_of(range))?;
        let _masked = signal::masked();
        if let Kind::Managed(cache) = &self.kind {
            cache.invalidate(addresses);
        }
        Ok(())
    }

    /// The page cache of a managed map.
    pub(crate) fn cache(&self) -> Option<&Arc<PageCache>> {
        match &self.kind {
            Kind::Managed(cache) => Some(cache),
            _ => None,
        }
    }

    /// The offsets that a range means.
    pub(crate) fn range_of(&self, range: impl RangeBounds<usize>) -> Range<usize> {
        offsets(range, self.len)
    }

    /// The addresses of a range of offsets, if it is within the map.
    pub(crate) fn addresses(&self, range: Range<usize>) -> Result<Range<usize>, FaultError> {
        if self.engine.inner.is_parents() {
            return Err(FaultError::Forked);
        }
        match range.start <= range.end && range.end <= self.len {
            true => Ok(self.start + range.start..self.start + range.end),
            false => Err(FaultError::OutOfRange),
        }
    }
}

/// The offsets that a range means in a map of `len` bytes.
pub(crate) fn offsets(range: impl RangeBounds<usize>, len: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    start..end
}

pub(crate) fn kernel_advise(range: &Range<usize>, advice: Advice) -> io::Result<()> {
    let start = range.start & !(softfault_engine::PAGE_SIZE - 1);
    let advice = match advice {
        Advice::Normal => libc::MADV_NORMAL,
        Advice::Random => libc::MADV_RANDOM,
        Advice::Sequential => libc::MADV_SEQUENTIAL,
        Advice::WillNeed => libc::MADV_WILLNEED,
    };
    // SAFETY: advice about a mapping of ours.
    match unsafe { libc::madvise(start as *mut libc::c_void, range.end - start, advice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Deref for Mmap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the window is mapped as long as this lives, and a touch of a
        // missing page is served. That the bytes do not change is what the
        // caller of `map` vouched for.
        unsafe { core::slice::from_raw_parts(self.start as *const u8, self.len) }
    }
}

impl AsRef<[u8]> for Mmap {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl core::fmt::Debug for Mmap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Mmap")
            .field("ptr", &(self.start as *const u8))
            .field("len", &self.len)
            .finish()
    }
}

impl Drop for Mmap {
    fn drop(&mut self) {
        if self.engine.inner.is_parents() {
            // The parent's: the child has nothing to give back.
            if let Kind::Managed(cache) = &self.kind {
                core::mem::forget(cache.clone());
            }
            return;
        }
        match &self.kind {
            Kind::Managed(cache) => {
                let _masked = signal::masked();
                let managed = self.engine.inner.managed().expect("a managed map");
                // The list keeps the cache while this reference is dropped.
                self.engine.inner.files.close(managed, cache);
            }
            Kind::Kernel { skip } => {
                // SAFETY: mapped in `kernel_map`; nobody has a slice any more.
                unsafe { libc::munmap((self.start - skip) as *mut libc::c_void, self.len + skip) };
            }
            Kind::Empty => {}
        }
    }
}
