//! memmap2's `MmapMut`: private memory over an engine, and writable maps of files; one verb a file.

mod advise;
mod exec;
mod flush;
mod flush_future;
mod hand_over;
mod keep;
mod make;
mod part;
mod protect;
mod remap;
mod shared;
mod transfer;

pub use flush_future::FlushFuture;

use crate::fault_in::{Awaited, FaultInMany, KeptServed};
use crate::file_map::FileMap;
use crate::files::WrittenFile;
use crate::kernel::{KernelMap, close_part};
use crate::managed::Managed;
use crate::private::Private;
use crate::range::{offsets, whole_pages, within};
use crate::writable::WritableFile;
use crate::{Advice, Engine, FaultError, error, signal};
use core::ops::{Deref, DerefMut, Range, RangeBounds};
use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::PageState;
use softfault_engine::cache::Residency;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Writable memory; memmap2's `MmapMut`.
///
/// A shared map of a file ([`map_mut`](Self::map_mut)) is a mapping of the kernel, in no budget, or is served by the
/// engine ([`Coherence`](crate::Coherence)). Any other map is private memory under the engine's budget:
/// a `[u8]` of zeros ([`map_anon`](Self::map_anon)), or of the bytes of a file, which
/// does not change ([`MmapOptions::map_copy`](crate::MmapOptions::map_copy)). A page costs
/// nothing until it is touched, and a page of zeros costs nothing until it is written. Then
/// it counts against the budget. When the budget is full, pages go to the engine's swap
/// ([`Builder::swap`](crate::Builder::swap)), and come back when they are touched. Without
/// swap, written pages stay in memory until the map is dropped. A touch raises SIGBUS if the budget
/// has no room for its page and nothing more can be evicted;
/// [`populate`](Self::populate) brings pages in beforehand, and returns the error as a value.
///
/// A system call on a part that is not in memory fails with EFAULT. A system call that writes to the map also fails
/// on a write-protected page, and the engine may write-protect any page in memory at any time. Use
/// [`read_from`](Self::read_from) and
/// [`write_to`](Self::write_to), or [`lock`](Self::lock): locked pages are in memory and not write-protected.
///
/// A child made by `fork()` has a copy of private memory, as it was at that moment. A shared map of a file is the kernel's mapping of
/// the same file there: parent and child see each other's writes.
pub struct MmapMut {
    engine: Engine,
    start: usize,
    len: usize,
    kind: MmapMutKind,
    /// The file of a shared writable map.
    written: Option<WrittenFile>,
    /// Offset in the file of a shared writable map. Immutable.
    offset: u64,
}

enum MmapMutKind {
    Managed(Private),
    Writable(WritableFile),
    Kernel(KernelMap),
    Empty,
    /// Empty for ever, of a file. The kernel's map of the file would not do: it could grow beside one of the engine's.
    Gone,
}

/// The server of a map in this process.
enum ServedBy<'a> {
    /// The engine, as memory of the process's own.
    Private(&'a Private),
    /// The engine, as a file that is written to.
    File(&'a WritableFile),
    /// The kernel. Also of a file that is written to, in a child of fork: the kernel has mapped it in place of its parent's
    /// window, and the child may have no managed part of the engine.
    Kernel,
    /// Nobody: there is no byte.
    Nobody,
}

// As for `Mmap`: no lock is held over user code.
impl UnwindSafe for MmapMut {}
impl RefUnwindSafe for MmapMut {}

impl MmapMut {
    fn new(engine: &Engine, kind: MmapMutKind) -> Self {
        let mut map = Self {
            engine: engine.clone(),
            start: 0,
            len: 0,
            kind,
            written: None,
            offset: 0,
        };
        map.set_place();
        map
    }

    /// Notes where the map is.
    fn set_place(&mut self) {
        (self.start, self.len) = match &self.kind {
            MmapMutKind::Managed(private) => (private.start(), private.len()),
            MmapMutKind::Writable(file) => (file.part().start, file.part().len()),
            MmapMutKind::Kernel(map) => (map.start(), map.len()),
            // Aligned as any.
            MmapMutKind::Empty | MmapMutKind::Gone => (PAGE_SIZE, 0),
        };
    }

    /// A mapping of the kernel's own.
    pub(crate) fn of_kernel(engine: &Engine, map: KernelMap) -> Self {
        Self::new(engine, MmapMutKind::Kernel(map))
    }

    /// True if it is a mapping of the kernel's that [`KernelMap::is_shared_to_read`].
    pub(crate) fn is_shared_to_read(&self) -> bool {
        matches!(&self.kind, MmapMutKind::Kernel(map) if map.is_shared_to_read())
    }

    /// Address of the first byte, for callers that make no reference to the bytes.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Bytes of the map, for the same callers: a slice's length takes a reference to all of them.
    pub(crate) fn byte_len(&self) -> usize {
        self.len
    }

    fn served_by(&self) -> ServedBy<'_> {
        match &self.kind {
            MmapMutKind::Managed(private) => ServedBy::Private(private),
            MmapMutKind::Writable(file) if !file.was_inherited() => ServedBy::File(file),
            MmapMutKind::Writable(_) | MmapMutKind::Kernel(_) => ServedBy::Kernel,
            MmapMutKind::Empty | MmapMutKind::Gone => ServedBy::Nobody,
        }
    }

    /// True if the engine serves this map, false if the kernel does.
    pub fn is_managed(&self) -> bool {
        matches!(self.served_by(), ServedBy::Private(_) | ServedBy::File(_))
    }

    /// The engine of the map.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Bytes of the map that are in memory, in whole pages; 0 for a map that only the kernel serves.
    pub fn resident_bytes(&self) -> usize {
        // In a child: the parent's locks may be held for ever.
        if self.is_lost() {
            return 0;
        }
        match self.served_by() {
            ServedBy::Private(private) => private.anonymous().resident_pages() * PAGE_SIZE,
            ServedBy::File(file) => file.file().residency(file.part().clone()).mapped * PAGE_SIZE,
            ServedBy::Kernel | ServedBy::Nobody => 0,
        }
    }

    /// The managed part of the engine, which serves maps.
    fn managed(&self) -> &Managed {
        self.engine.inner.managed().expect("a managed map")
    }

    /// The memory, if the engine serves it.
    pub(crate) fn private(&self) -> Option<&Private> {
        match &self.kind {
            MmapMutKind::Managed(private) => Some(private),
            _ => None,
        }
    }

    /// The file, if it is written to over the engine.
    pub(crate) fn file(&self) -> Option<&FileMap> {
        match self.served_by() {
            ServedBy::File(file) => Some(file.file()),
            _ => None,
        }
    }

    /// Dirty bytes that the engine has not yet written back to the file, in whole pages. 0 for maps that
    /// the kernel serves: it does not report them.
    pub fn dirty_bytes(&self) -> u64 {
        match self.served_by() {
            ServedBy::File(file) => file.dirty_bytes(),
            _ => 0,
        }
    }

    /// Starts to read the pages of some addresses.
    pub(crate) fn will_need(&self, addresses: Range<usize>) {
        if matches!(self.served_by(), ServedBy::Kernel) {
            let _ = Advice::WillNeed.to_kernel(&addresses);
            return;
        }
        if let Some(file) = self.file() {
            return file.prefetch(addresses);
        }
        if let Some(private) = self.private()
            && !addresses.is_empty()
        {
            let _ = private.advise(self.managed(), addresses, Advice::WillNeed);
        }
    }

    /// Brings many ranges into memory, as reads would; see
    /// [`Mmap::fault_in_many`](crate::Mmap::fault_in_many).
    pub fn fault_in_many(&self, ranges: &[Range<usize>]) -> FaultInMany<'_> {
        FaultInMany::new(self, ranges)
    }

    /// The number of pages of a range that are in memory. All zero for a map that only the kernel serves
    /// ([`is_managed`](Self::is_managed) is false).
    pub fn residency(&self, range: impl RangeBounds<usize>) -> Result<Residency, FaultError> {
        let addresses = self.addresses(offsets(range, self.len))?;
        Ok(self.residency_of(addresses))
    }

    /// The same, of some addresses.
    pub(crate) fn residency_of(&self, addresses: Range<usize>) -> Residency {
        if let Some(file) = self.file() {
            return file.residency(addresses);
        }
        let Some(private) = self.private() else {
            return Residency::default();
        };
        let pages = whole_pages(&addresses);
        let is_in = |state: PageState| state.is_resident();
        Residency {
            pages: pages.len() / PAGE_SIZE,
            mapped: private.anonymous().count_pages(pages, is_in),
            ..Residency::default()
        }
    }

    /// True if a parent of this process made the map, and this process could not take it over.
    pub(crate) fn is_lost(&self) -> bool {
        match &self.kind {
            MmapMutKind::Managed(private) => private.is_lost(),
            MmapMutKind::Writable(file) => self.engine.inner.is_parents() && !file.was_inherited(),
            MmapMutKind::Kernel(_) | MmapMutKind::Empty | MmapMutKind::Gone => false,
        }
    }

    /// Bytes of a page of it.
    pub(crate) fn page_size(&self) -> usize {
        match &self.kind {
            MmapMutKind::Kernel(map) => map.page_size(),
            _ => PAGE_SIZE,
        }
    }

    /// The pages that belong only to this map, and to other maps of the same file's window.
    pub(crate) fn window_pages(&self) -> Range<usize> {
        match &self.kind {
            MmapMutKind::Managed(private) => private.window(),
            MmapMutKind::Writable(file) => file.file().cache().addresses().clone(),
            _ => whole_pages(&(self.start..self.start + self.len)),
        }
    }

    /// See [`MmapRaw::unmap_part`](crate::MmapRaw::unmap_part).
    ///
    /// # Safety
    /// Nothing uses the part any more.
    #[doc(hidden)]
    pub unsafe fn give_up_part(&self, part: Range<usize>) -> io::Result<()> {
        let addresses = self.addresses(part)?;
        let pages = whole_pages(&addresses);
        match self.served_by() {
            ServedBy::Private(_) if !pages.is_empty() => {
                let _masked = signal::masked();
                let unmapped = self.managed().space.munmap(pages, |_, _| {});
                unmapped.map_err(error::mm)
            }
            ServedBy::File(file) => {
                file.give_up(addresses);
                Ok(())
            }
            // SAFETY: the mapping is this map's, or the window's that it was the child's to inherit, and nobody looks
            // at the part any more.
            ServedBy::Kernel => unsafe { close_part(&pages) },
            ServedBy::Private(_) | ServedBy::Nobody => Ok(()),
        }
    }

    /// The addresses of a range of offsets, if it is within the map.
    pub(crate) fn addresses(&self, range: Range<usize>) -> Result<Range<usize>, FaultError> {
        if self.is_lost() {
            return Err(FaultError::Forked);
        }
        within(self.start, self.len, &range)
    }
}

impl Awaited for MmapMut {
    fn place(&self) -> Result<(usize, usize), FaultError> {
        let all = self.addresses(0..self.len)?;
        Ok((all.start, all.len()))
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn served(&self) -> KeptServed {
        KeptServed::always(!self.is_managed())
    }
}

impl Deref for MmapMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the window is mapped as long as this lives, a touch of a
        // missing page is served, and nobody else has the memory, or changes the file, as the caller of
        // `map_mut` vouched for. An empty one is at an aligned address.
        unsafe { core::slice::from_raw_parts(self.start as *const u8, self.len) }
    }
}

impl DerefMut for MmapMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; this is borrowed for writing.
        unsafe { core::slice::from_raw_parts_mut(self.start as *mut u8, self.len) }
    }
}

// SAFETY: the bytes stay where they are when the map itself is moved.
#[cfg(feature = "stable_deref_trait")]
unsafe impl stable_deref_trait::StableDeref for MmapMut {}

impl AsRef<[u8]> for MmapMut {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for MmapMut {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl core::fmt::Debug for MmapMut {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MmapMut")
            .field("ptr", &(self.start as *const u8))
            .field("len", &self.len)
            .finish()
    }
}

impl Drop for MmapMut {
    fn drop(&mut self) {
        let kind = core::mem::replace(&mut self.kind, MmapMutKind::Empty);
        match kind {
            // The parent's: the child has nothing to give back.
            MmapMutKind::Managed(private) if private.is_lost() => core::mem::forget(private),
            MmapMutKind::Managed(private) => private.unmap(self.managed()),
            MmapMutKind::Writable(file) => match self.engine.inner.is_parents() {
                true => file.leave(),
                false => file.unmap(self.managed(), &self.engine.inner.files),
            },
            MmapMutKind::Kernel(mut map) => map.unmap(),
            MmapMutKind::Empty | MmapMutKind::Gone => {}
        }
        if let Some(written) = self.written.take() {
            match self.engine.inner.is_parents() {
                // The parent's map is still there.
                true => core::mem::forget(written),
                false => {
                    let _masked = signal::masked();
                    self.engine.inner.files.end_writing(written);
                }
            }
        }
    }
}
