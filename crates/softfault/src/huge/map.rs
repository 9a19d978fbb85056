//! Huge memory in the address space of a process.

use super::memory::HugeMemory;
use super::options::HugeMapOptions;
use super::place::{SharedMapping, WantedMapping};
use super::pool::MachinePool;
use crate::huge_faults::HugeBacking;
use crate::huge_faults::HugeMapStats;
use crate::huge_faults::HugeWindow;
use crate::huge_faults::TouchableMap;
use crate::huge_faults::{self, HugeSize};
use crate::range::within;
use crate::{Fallback, FaultError, error, faults, fork, process, required_calls, signal};
use core::ops::Range;
use std::io;

/// A map of [`HugeMemory`], shared with all others of it, in this process and in others.
///
/// It is an address and a length. It is no slice, because a slice promises that nothing else writes to it:
/// [`read_at`](Self::read_at) and [`write_at`](Self::write_at) copy. A caller that excludes concurrent writes can
/// take a slice ([`as_slice`](Self::as_slice)).
///
/// A touch of a missing page takes one of the pages that the map reserved. The touch raises SIGBUS if
/// the memory was truncated before that page ([`HugeMemory::truncate`]), or if the pool is empty. The pool can be empty for
/// maps without reservation ([`HugeMapOptions::no_reserve`]), after [`HugeMemory::punch_hole`], and for memory without
/// a pool. [`populate`](Self::populate) returns the error as a value. A system call on a missing
/// page fails with EFAULT.
///
/// A child made by `fork()` shares the map. In the child the kernel serves missing pages of inherited maps, and raises
/// SIGBUS if it cannot. Maps that the child makes are served as in the parent.
pub struct HugeMap {
    memory: HugeMemory,
    /// `None` if the kernel serves the map.
    entry: Option<TouchableMap>,
    place: SharedMapping,
    /// Its own, where the memory's does not reach.
    alias: Option<SharedMapping>,
    offset: u64,
    read_only: bool,
    reserved_pages: u64,
}

impl HugeMap {
    pub(super) fn new(memory: &HugeMemory, options: &HugeMapOptions) -> io::Result<Self> {
        let (offset, bytes) = memory.part(options.offset, options.len)?;
        if options.fallback == Fallback::Error {
            required_calls::for_faults()?;
        }
        let masked = signal::masked();
        {
            let _making = process::making();
            faults::install();
        }
        faults::check_handlers(options.trust_handlers, &masked)?;
        fork::watch();
        crate::exit_stats::watch();
        let reserves = memory.backing() == HugeBacking::Hugetlb && !options.no_reserve;
        // What can fail without a reservation comes first: reserved pages stay with the memory.
        let descriptor = match huge_faults::opened() {
            Ok(descriptor) => Some(descriptor),
            Err(_) if options.fallback == Fallback::Kernel => None,
            Err(errno) => return Err(error::closed(errno)),
        };
        if !options.read_only {
            memory.may_write()?;
        }
        let (alias, own_alias) = memory.alias(offset, bytes)?;
        let place = place(memory, offset, bytes, options)?;
        let is_watched = match descriptor.map(|descriptor| descriptor.watch(place.range())) {
            None => false,
            Some(Ok(())) => true,
            // Linux registers no mapping that nobody may ever write to: the descriptor is only for reading, or sealed.
            Some(Err(libc::EPERM)) if options.read_only => false,
            Some(Err(_)) if options.fallback == Fallback::Kernel => false,
            Some(Err(errno)) => return Err(error::call("UFFDIO_REGISTER", errno)),
        };
        let entry = match is_watched {
            false => None,
            true => Some(TouchableMap::new(HugeWindow {
                start: place.range().start,
                bytes,
                offset,
                alias,
                fd: memory.fd()?,
                file: memory.file(),
                page: memory.page_size(),
                backing: memory.backing(),
            })),
        };
        let pages = (bytes / memory.page_size().bytes()) as u64;
        let reserved_pages = if reserves { pages } else { 0 };
        huge_faults::map(memory.backing(), pages, reserved_pages);
        Ok(Self {
            memory: memory.clone(),
            entry,
            place,
            alias: own_alias,
            offset,
            read_only: options.read_only,
            reserved_pages,
        })
    }

    /// Pointer to the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.place.range().start as *const u8
    }

    /// Pointer to the first byte, for writes: a write to a read-only map raises SIGSEGV.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.place.range().start as *mut u8
    }

    /// Length of the map in bytes.
    pub fn len(&self) -> usize {
        self.place.range().len()
    }

    /// Always false: there are no empty maps.
    pub fn is_empty(&self) -> bool {
        self.place.range().is_empty()
    }

    /// The whole map as a slice.
    ///
    /// # Safety
    /// While the slice lives, no thread of any process writes to the memory, truncates it or punches it.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped as long as this lives; the caller vouches for the rest.
        unsafe { core::slice::from_raw_parts(self.as_ptr(), self.len()) }
    }

    /// The whole map as a writable slice.
    ///
    /// # Safety
    /// While the slice lives, no other thread of any process reads or writes the memory, truncates it or
    /// punches it. The map is not read-only.
    #[allow(clippy::mut_from_ref)] // Shared memory is not borrowed.
    pub unsafe fn as_mut_slice(&self) -> &mut [u8] {
        // SAFETY: as in `as_slice`.
        unsafe { core::slice::from_raw_parts_mut(self.as_mut_ptr(), self.len()) }
    }

    /// The memory that the map shows.
    pub fn memory(&self) -> &HugeMemory {
        &self.memory
    }

    /// Offset of the map in the memory.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The backing of the memory.
    pub fn backing(&self) -> HugeBacking {
        self.memory.backing()
    }

    /// The page size.
    pub fn page_size(&self) -> HugeSize {
        self.memory.page_size()
    }

    /// True if the library serves the map's faults, false if the kernel does: with [`Fallback::Kernel`], and for a read-only map
    /// of memory that may not be written to ([`HugeMapOptions::read_only`]).
    pub fn is_managed(&self) -> bool {
        self.entry.is_some()
    }

    /// True if the map is read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The counters of the map since it was made.
    pub fn stats(&self) -> HugeMapStats {
        let counted = self.entry.as_ref().map(|entry| entry.counted().read());
        counted.unwrap_or_default()
    }

    /// The entry by which its faults are served.
    pub(super) fn entry(&self) -> Option<&TouchableMap> {
        self.entry.as_ref()
    }

    /// The addresses of a range of offsets, if it is within the map.
    pub(super) fn addresses(&self, range: Range<usize>) -> Result<Range<usize>, FaultError> {
        within(self.place.range().start, self.len(), &range)
    }
}

fn wanted(
    memory: &HugeMemory,
    offset: u64,
    bytes: usize,
    read_only: bool,
    no_reserve: bool,
) -> io::Result<WantedMapping> {
    Ok(WantedMapping {
        fd: memory.fd()?,
        offset,
        bytes,
        protection: match read_only {
            true => libc::PROT_READ,
            false => libc::PROT_READ | libc::PROT_WRITE,
        },
        flags: match no_reserve {
            true => libc::MAP_NORESERVE,
            false => 0,
        },
        page: memory.page_size().bytes(),
    })
}

fn place(
    memory: &HugeMemory,
    offset: u64,
    bytes: usize,
    options: &HugeMapOptions,
) -> io::Result<SharedMapping> {
    let place = SharedMapping::map(&wanted(
        memory,
        offset,
        bytes,
        options.read_only,
        options.no_reserve,
    )?);
    let place = place.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOMEM) => no_room(memory, bytes, options),
        _ => error,
    })?;
    if memory.backing() == HugeBacking::TransparentHuge {
        place.advise(libc::MADV_HUGEPAGE);
    }
    Ok(place)
}

/// The error of a mapping that cannot be made. ENOMEM has several reasons.
fn no_room(memory: &HugeMemory, bytes: usize, options: &HugeMapOptions) -> io::Error {
    let page = memory.page_size();
    match MachinePool::of(page) {
        Some(pool)
            if memory.backing() == HugeBacking::Hugetlb
                && !options.no_reserve
                && SharedMapping::has_room(bytes) =>
        {
            pool.refused((bytes / page.bytes()) as u64)
        }
        _ => error::no_room(),
    }
}

impl core::fmt::Debug for HugeMap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HugeMap")
            .field("ptr", &self.as_ptr())
            .field("len", &self.len())
            .field("backing", &self.backing())
            .finish()
    }
}

impl Drop for HugeMap {
    fn drop(&mut self) {
        let pages = (self.len() / self.page_size().bytes()) as u64;
        huge_faults::unmap(self.backing(), pages, self.reserved_pages);
        // In a child an inherited map is registered no more, and so unlike those that the child makes.
        let is_served = (self.entry.as_ref()).is_some_and(|entry| !entry.is_parents());
        let anchored = self.backing() == HugeBacking::Hugetlb && is_served;
        let no_reserve = self.reserved_pages == 0;
        let (bytes, read_only) = (self.len(), self.read_only);
        // Before the parts that a handler would use. No lock is taken, so signals may come.
        self.entry = None;
        let place = core::mem::replace(&mut self.place, SharedMapping::none());
        if let (true, Ok(wanted)) = (
            anchored,
            wanted(&self.memory, self.offset, bytes, read_only, no_reserve),
        ) {
            self.memory.anchor().keep(place, &wanted);
        }
        self.alias = None;
    }
}
