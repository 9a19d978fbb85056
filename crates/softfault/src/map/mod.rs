//! memmap2's `Mmap` over an engine, a verb a file: a read-only map of a shared file, or of private memory.

mod advise;
mod flush;
mod hand_back;
mod keep;
mod make;
mod pinned;
mod remap;
mod safe;
#[cfg(test)]
mod tests;
mod transfer;

pub use hand_back::{KernelMapping, NotHandedBack};
pub(crate) use pinned::Held;
pub use pinned::Pinned;
pub use safe::MapIfSafeError;

use crate::advice::Advice;
use crate::engine::Engine;
use crate::error::FaultError;
use crate::fault_in::{Awaited, FaultIn, FaultInMany, KeptServed};
use crate::file_map::{FileMap, FilePin};
use crate::kernel::{KernelMap, close_part};
use crate::managed::Managed;
use crate::map_mut::MmapMut;
use crate::private::Private;
use crate::range::{offsets, whole_pages, within};
use core::ops::{Deref, Range, RangeBounds};
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::Residency;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Mutex;

/// A read-only map; memmap2's `Mmap`.
///
/// It is a `[u8]` whose pages are read when they are touched. A system call
/// on a part that is not in memory fails with EFAULT: use
/// [`read_at`](Self::read_at), [`write_to`](Self::write_to) or
/// [`pin`](Self::pin).
pub struct Mmap {
    engine: Engine,
    start: usize,
    len: usize,
    kind: MmapKind,
    /// The pages of a managed map while it is locked.
    locked: Mutex<Option<FilePin>>,
}

// A panic leaves nothing half-done behind that a map's user could see: the
// bytes are the file's, and the locks beneath are never held over user code.
impl UnwindSafe for Mmap {}
impl RefUnwindSafe for Mmap {}

enum MmapKind {
    Managed(FileMap),
    /// Read-only private memory.
    Private(MmapMut),
    Kernel(KernelMap),
    /// In a child of fork, a parent's map of a file: the kernel has mapped the file in the window's place.
    Inherited,
    Empty,
}

impl Mmap {
    fn new(engine: &Engine, start: usize, len: usize, kind: MmapKind) -> Self {
        Self {
            engine: engine.clone(),
            start,
            len,
            kind,
            locked: Mutex::default(),
        }
    }

    /// Address of the first byte, for callers that make no reference to the bytes.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Bytes of the map, for the same callers: a slice's length takes a reference to all of them.
    pub(crate) fn byte_len(&self) -> usize {
        self.len
    }

    /// True if the engine serves this map; it may let the kernel serve it for a while ([`Reads`](crate::Reads)). False
    /// if the kernel always serves it, because it is [small](crate::Builder::small_maps) or userfaultfd is closed.
    pub fn is_managed(&self) -> bool {
        match self.kind() {
            MmapKind::Managed(_) => true,
            MmapKind::Private(map) => map.is_managed(),
            MmapKind::Kernel(_) | MmapKind::Inherited | MmapKind::Empty => false,
        }
    }

    /// The engine of the map.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Starts to read a range, as far as spare memory goes, and does not wait.
    pub fn prefetch(&self, range: impl RangeBounds<usize>) -> Result<(), FaultError> {
        let addresses = self.addresses(self.range_of(range))?;
        match self.kind() {
            MmapKind::Managed(file) => file.prefetch(addresses),
            MmapKind::Private(map) => map.will_need(addresses),
            MmapKind::Kernel(_) | MmapKind::Inherited => {
                let _ = Advice::WillNeed.to_kernel(&addresses);
            }
            MmapKind::Empty => {}
        }
        Ok(())
    }

    /// Brings a range into memory and keeps it there while the result lives.
    /// A failed read is an error here, never a signal.
    ///
    /// Where the kernel serves the map (a small file, or one in the page cache; [`Reads`](crate::Reads)), it brings the range
    /// in, and keeps nothing: a touch waits if the page was reclaimed, and raises SIGBUS if it cannot be read again, or if the
    /// file has become shorter. [`read_at`](Self::read_at) copies without signals wherever the pages are, and
    /// [`allow_kernel_maps(false)`](crate::Builder::allow_kernel_maps) keeps the kernel from serving a file to be read, unless a map that the kernel serves writes to it.
    ///
    /// Up to half of the budget can be pinned. Each pin is charged for its pages, for one more page per 2 MiB, and for
    /// 32 more pages, because folios are pinned whole and may reach past both ends of the range. So a budget of
    /// 16 MiB has room for one pin of 7.8 MiB, or for 62 pins of one byte, even of the same byte.
    pub fn pin(&self, range: impl RangeBounds<usize>) -> Result<Pinned<'_>, FaultError> {
        let range = self.range_of(range);
        let pinned = Pinned::new(self, range.clone())?;
        self.note_call(range);
        Ok(pinned)
    }

    /// Brings a range into memory without blocking: a future for any executor.
    /// The pages may be evicted again; [`pin`](Self::pin) keeps them.
    pub fn fault_in(&self, range: impl RangeBounds<usize>) -> FaultIn<'_> {
        FaultIn::new(self, self.range_of(range))
    }

    /// Brings many ranges into memory. The ranges may be in any order and may overlap. One thread
    /// keeps many reads in flight, enough to keep the device busy. Await the result, or block
    /// with [`wait`](FaultInMany::wait). A range that is in memory already costs a lookup. A range that fails has
    /// its own error, and the others go on.
    ///
    /// ```no_run
    /// # fn main() -> std::io::Result<()> {
    /// # let file = std::fs::File::open("index.bin")?;
    /// // SAFETY: nobody writes to the file meanwhile.
    /// let map = unsafe { softfault::Mmap::map(&file)? };
    /// # let wanted = [0..4096, 1 << 30..(1 << 30) + 512];
    /// let deadline = std::time::Instant::now() + std::time::Duration::from_millis(50);
    /// let answers = map.fault_in_many(&wanted).until(deadline).wait();
    /// for (range, answer) in wanted.iter().zip(answers) {
    ///     match answer {
    ///         Ok(()) => println!("{:?}", &map[range.clone()]),
    ///         Err(why) => eprintln!("{range:?}: {why}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The pages may be evicted again; [`pin`](Self::pin) keeps them. If the ranges are larger than
    /// the budget, the first pages are evicted before the last are read.
    pub fn fault_in_many(&self, ranges: &[Range<usize>]) -> FaultInMany<'_> {
        FaultInMany::new(self, ranges)
    }

    /// The number of pages of a range that are in memory. All zero for a map that only the kernel serves
    /// ([`is_managed`](Self::is_managed) is false).
    pub fn residency(&self, range: impl RangeBounds<usize>) -> Result<Residency, FaultError> {
        let addresses = self.addresses(self.range_of(range))?;
        Ok(match self.kind() {
            MmapKind::Managed(file) => file.residency(addresses),
            MmapKind::Private(map) => map.residency_of(addresses),
            _ => Residency::default(),
        })
    }

    /// Drops the pages of a range: the next touch reads them from the file
    /// again. Waits for pages that are being read. Pinned pages stay until they are
    /// unpinned, and are dropped then. On a private map this does nothing: the written
    /// bytes are nowhere else.
    pub fn invalidate(&self, range: impl RangeBounds<usize>) -> Result<(), FaultError> {
        let addresses = self.addresses(self.range_of(range))?;
        if let MmapKind::Managed(file) = self.kind() {
            file.invalidate(addresses);
        }
        Ok(())
    }

    /// Switches a file's map to the kernel, or back to the engine, for tests. False: it is so already, pages of it
    /// are pinned or locked, or it is not possible.
    #[doc(hidden)]
    pub fn change_server(&self, kernel: bool) -> io::Result<bool> {
        self.addresses(0..self.len)?;
        match self.file() {
            Some(file) => file.change_server(kernel),
            None => Ok(false),
        }
    }

    /// Bytes of a page of it.
    pub(crate) fn page_size(&self) -> usize {
        match &self.kind {
            MmapKind::Kernel(map) => map.page_size(),
            MmapKind::Private(map) => map.page_size(),
            _ => PAGE_SIZE,
        }
    }

    /// The pages that belong only to this map, and to other maps of the same file's window.
    pub(crate) fn window_pages(&self) -> Range<usize> {
        match &self.kind {
            MmapKind::Managed(file) => file.cache().addresses().clone(),
            MmapKind::Private(map) => map.window_pages(),
            _ => whole_pages(&(self.start..self.start + self.len)),
        }
    }

    /// See [`MmapRaw::unmap_part`](crate::MmapRaw::unmap_part).
    ///
    /// # Safety
    /// Nothing uses the part any more.
    #[doc(hidden)]
    pub unsafe fn give_up_part(&self, part: Range<usize>) -> io::Result<()> {
        let addresses = self.addresses(part.clone())?;
        match self.kind() {
            MmapKind::Managed(file) => file.invalidate(addresses),
            // SAFETY: the caller vouches for it.
            MmapKind::Private(map) => return unsafe { map.give_up_part(part) },
            // SAFETY: the mapping is this map's, and nobody looks at the part any more.
            MmapKind::Kernel(_) => unsafe {
                close_part(&whole_pages(&addresses))?;
            },
            // The window's other maps show it.
            MmapKind::Inherited | MmapKind::Empty => {}
        }
        Ok(())
    }

    /// The kind of the map in this process.
    fn kind(&self) -> &MmapKind {
        match &self.kind {
            MmapKind::Managed(file) if file.was_inherited() => &MmapKind::Inherited,
            kind => kind,
        }
    }

    /// The file of a managed map.
    pub(crate) fn file(&self) -> Option<&FileMap> {
        match self.kind() {
            MmapKind::Managed(file) => Some(file),
            MmapKind::Private(map) => map.file(),
            _ => None,
        }
    }

    /// The managed part of the engine, which serves maps.
    fn managed(&self) -> &Managed {
        self.engine.inner.managed().expect("a managed map")
    }

    /// The memory of a private map.
    pub(crate) fn private(&self) -> Option<&Private> {
        match &self.kind {
            MmapKind::Private(map) => map.private(),
            _ => None,
        }
    }

    /// True if the map belongs to a parent of this process.
    pub(crate) fn is_parents(&self) -> bool {
        match self.kind() {
            MmapKind::Private(map) => map.is_lost(),
            // A child has the kernel's mappings as its parent has them.
            MmapKind::Kernel(_) | MmapKind::Inherited | MmapKind::Empty => false,
            MmapKind::Managed(_) => self.engine.inner.is_parents(),
        }
    }

    /// The offsets of a range, with its bounds resolved.
    pub(crate) fn range_of(&self, range: impl RangeBounds<usize>) -> Range<usize> {
        offsets(range, self.len)
    }

    /// The addresses of a range of offsets, if it is within the map.
    pub(crate) fn addresses(&self, range: Range<usize>) -> Result<Range<usize>, FaultError> {
        if self.is_parents() {
            return Err(FaultError::Forked);
        }
        within(self.start, self.len, &range)
    }
}

impl Awaited for Mmap {
    fn place(&self) -> Result<(usize, usize), FaultError> {
        let all = self.addresses(0..self.len)?;
        Ok((all.start, all.len()))
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn served(&self) -> KeptServed {
        match self.kind() {
            MmapKind::Managed(file) => KeptServed::window(file.hold()),
            _ => KeptServed::always(!self.is_managed()),
        }
    }

    fn kernels_error(&self, addresses: &Range<usize>, error: FaultError) -> FaultError {
        match self.kind() {
            MmapKind::Managed(file) => file.kernels_error(addresses, error),
            _ => error,
        }
    }
}

impl Deref for Mmap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the window is mapped as long as this lives, and a touch of a
        // missing page is served; an empty one is at an aligned address. The caller of `map` vouched
        // that the bytes do not change.
        unsafe { core::slice::from_raw_parts(self.start as *const u8, self.len) }
    }
}

// SAFETY: the bytes stay where they are when the map itself is moved.
#[cfg(feature = "stable_deref_trait")]
unsafe impl stable_deref_trait::StableDeref for Mmap {}

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
        if self.is_parents() || matches!(self.kind(), MmapKind::Inherited) {
            // The parent's: the child has nothing to give back, and locked pages are locked there.
            core::mem::forget(core::mem::take(&mut self.locked));
            if let MmapKind::Managed(file) = &self.kind {
                file.leave();
            }
            return;
        }
        let _ = self.unlock();
        match core::mem::replace(&mut self.kind, MmapKind::Empty) {
            MmapKind::Managed(file) => file.unmap(self.managed(), &self.engine.inner.files),
            MmapKind::Kernel(mut map) => {
                map.unmap();
                self.engine.inner.small_maps.give(map.len());
            }
            // Private memory goes by itself.
            MmapKind::Private(_) | MmapKind::Inherited | MmapKind::Empty => {}
        }
    }
}
