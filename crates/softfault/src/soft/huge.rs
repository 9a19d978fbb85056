//! Memory of huge pages that maps of an engine and its forks share, with their page tables
//! (document 001): [`huge`](softfault_engine::huge), by calls.
//!
//! Not the machine's huge pages: those are [`HugeMemory`](crate::HugeMemory)'s, and the
//! kernel's own tables show them.

use super::{SoftEngine, SoftFork};
use crate::error::{self, FaultError};
use crate::generation::ProcessGeneration;
use crate::range::clip;
use core::mem::ManuallyDrop;
use core::ops::Range;
use softfault_engine::huge::{HugeError, HugeFile, HugeMapping, HugePool, HugeSize, Reserve};
use softfault_engine::mm::{AddressSpace, Attributes, Backing};
use softfault_engine::mmu::{Mmu, Reservation, SoftMmu};
use softfault_engine::page::Protection;
use softfault_engine::policy::HugePolicies;
use std::io;
use std::sync::Arc;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Bytes that a page table which maps share has: where a map begins at a multiple of it, all
/// of its tables are shared.
const SPAN: usize = 512 * HUGE;

/// The pool of an engine; `None` if it is to have none.
pub(super) fn pool(
    mmu: &Arc<SoftMmu>,
    bytes: usize,
    policies: HugePolicies,
) -> io::Result<Option<Arc<HugePool>>> {
    if bytes == 0 {
        return Ok(None);
    }
    let clock = crate::process::monotonic();
    let pages = u32::try_from(bytes / HUGE).map_err(|_| error::too_large())?;
    let pool = HugePool::new(mmu.clone(), clock, HugeSize::TwoMiB, pages, policies);
    Ok(Some(pool.map_err(refused)?))
}

fn refused(why: HugeError) -> io::Error {
    match why {
        HugeError::Range => error::invalid(&why.to_string()),
        _ => error::no_memory(&why.to_string()),
    }
}

/// Memory of huge pages: zeros until written. All its maps, in the engine
/// and in its forks, show the same bytes. The pages come from the engine's pool ([`Builder::huge_pages`]). No
/// budget bounds them, and they are never evicted.
///
/// [`Builder::huge_pages`]: crate::Builder::huge_pages
#[derive(Clone)]
pub struct SoftHugeFile {
    engine: SoftEngine,
    file: ManuallyDrop<Arc<HugeFile>>,
}

impl SoftEngine {
    /// Memory of `bytes` bytes, rounded up to huge pages of 2 MiB. Until it is touched, it costs only address space and
    /// page tables.
    pub fn huge_file(&self, bytes: usize) -> io::Result<SoftHugeFile> {
        self.check()?;
        let none = || error::invalid("the engine has no huge pages: set Builder::huge_pages");
        let pool = self.inner.huge.as_ref().ok_or_else(none)?;
        let file = HugeFile::new(pool, bytes.div_ceil(HUGE) as u64).map_err(refused)?;
        Ok(SoftHugeFile {
            engine: self.clone(),
            file: ManuallyDrop::new(file),
        })
    }
}

impl SoftHugeFile {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.file.len() as usize * HUGE
    }

    /// True if it has been truncated to nothing.
    pub fn is_empty(&self) -> bool {
        self.file.is_empty()
    }

    /// Bytes of the memory that are resident, in whole huge pages.
    pub fn resident_bytes(&self) -> usize {
        self.file.pages() as usize * HUGE
    }

    /// Maps the whole memory, and reserves its pages. Fails if the pool has not enough pages; otherwise no touch
    /// can fail for lack of pages, until [`truncate`](Self::truncate) makes the memory longer again.
    pub fn map(&self) -> io::Result<SoftHugeMap> {
        SoftHugeMap::new(self)
    }

    /// Returns a range to the pool, by whole huge pages, for all maps: it reads as zeros again.
    pub fn punch_hole(&self, range: Range<usize>) -> io::Result<()> {
        self.engine.check()?;
        let range = range.start.div_ceil(HUGE) as u64..(range.end / HUGE) as u64;
        self.file.punch_hole(range).map_err(refused)
    }

    /// Cuts the memory off after `bytes` bytes, rounded up to huge pages: touches past that fail. The memory
    /// can never be longer than it was made. Reservations go back to the pool with the pages. Making it longer reserves
    /// nothing: until it is mapped once more, a touch of the new pages fails if the pool is empty.
    pub fn truncate(&self, bytes: usize) -> io::Result<()> {
        self.engine.check()?;
        let pages = bytes.div_ceil(HUGE) as u64;
        self.file.truncate(pages).map_err(refused)
    }
}

impl Drop for SoftHugeFile {
    fn drop(&mut self) {
        // The parent's locks are never released in a child.
        if !ProcessGeneration::is_child() {
            // SAFETY: it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// A map of huge memory.
pub struct SoftHugeMap {
    file: SoftHugeFile,
    /// Addresses that nothing else is shown at.
    reservation: Reservation,
    len: usize,
    /// Forks that there were when it was made, which do not know it.
    forks: u64,
}

impl SoftHugeMap {
    fn new(file: &SoftHugeFile) -> io::Result<Self> {
        file.engine.check()?;
        let inner = &file.engine.inner;
        let forks = file.engine.forks();
        let len = file.len();
        let mapping = HugeMapping::new(&file.file, 0..file.file.len(), Reserve::Yes);
        let attributes = Attributes {
            backing: Backing::from(mapping.map_err(refused)?),
            protection: Protection::ReadWrite,
            ..Attributes::default()
        };
        let bytes = len.checked_add(SPAN).ok_or_else(error::too_large)?;
        let reservation = (inner.mmu.reserve(bytes, Protection::ReadWrite)).map_err(error::mmu)?;
        let map = Self {
            file: file.clone(),
            reservation,
            len,
            forks: *forks,
        };
        let mapped = (inner.managed.space).mmap(map.start()..map.start() + len, attributes);
        mapped.map_err(error::mm)?;
        Ok(map)
    }

    fn start(&self) -> usize {
        self.reservation.addr.next_multiple_of(SPAN)
    }

    /// Bytes that it was mapped with.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory.
    pub fn file(&self) -> &SoftHugeFile {
        &self.file
    }

    /// Copies bytes from `offset` on; returns the number of bytes copied. A concurrent
    /// write may be seen in part, by words of 8 bytes.
    pub fn read_at(&self, buffer: &mut [u8], offset: usize) -> Result<usize, FaultError> {
        self.read_in(&self.file.engine.inner.managed.space, buffer, offset)
    }

    /// Copies `bytes` into the map at `offset`; returns the number of bytes that had room.
    pub fn write_at(&self, bytes: &[u8], offset: usize) -> Result<usize, FaultError> {
        self.write_in(&self.file.engine.inner.managed.space, bytes, offset)
    }

    fn read_in(
        &self,
        space: &AddressSpace,
        buffer: &mut [u8],
        offset: usize,
    ) -> Result<usize, FaultError> {
        let addresses = clip(self.start(), self.len, offset, buffer.len());
        let part = &mut buffer[..addresses.len()];
        self.file.engine.read(space, addresses.start, part)?;
        Ok(addresses.len())
    }

    fn write_in(
        &self,
        space: &AddressSpace,
        bytes: &[u8],
        offset: usize,
    ) -> Result<usize, FaultError> {
        let addresses = clip(self.start(), self.len, offset, bytes.len());
        let part = &bytes[..addresses.len()];
        self.file.engine.write(space, addresses.start, part)?;
        Ok(addresses.len())
    }
}

impl Drop for SoftHugeMap {
    fn drop(&mut self) {
        if ProcessGeneration::is_child() {
            return;
        }
        let inner = &self.file.engine.inner;
        let range = self.start()..self.start() + self.len;
        // Of a map that was refused there is nothing to take out.
        let _ = inner.managed.space.munmap(range, |_, _| {});
        inner.mmu.release(self.reservation.clone());
    }
}

impl SoftFork {
    /// Copies bytes of huge memory out, as they are now: the fork shares this memory.
    pub fn read_huge_at(
        &self,
        map: &SoftHugeMap,
        buffer: &mut [u8],
        offset: usize,
    ) -> Result<usize, FaultError> {
        map.read_in(self.space(&map.file.engine, map.forks)?, buffer, offset)
    }

    /// Copies bytes into huge memory. The fork shares this memory: the engine and all forks see the bytes.
    pub fn write_huge_at(
        &self,
        map: &SoftHugeMap,
        bytes: &[u8],
        offset: usize,
    ) -> Result<usize, FaultError> {
        map.write_in(self.space(&map.file.engine, map.forks)?, bytes, offset)
    }
}

impl core::fmt::Debug for SoftHugeFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut shown = f.debug_struct("SoftHugeFile");
        shown.field("len", &self.len()).finish_non_exhaustive()
    }
}

impl core::fmt::Debug for SoftHugeMap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut shown = f.debug_struct("SoftHugeMap");
        shown.field("len", &self.len).finish_non_exhaustive()
    }
}
