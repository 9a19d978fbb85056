//! memmap2's `MmapMut` for anonymous memory, over an engine.

use crate::map::{Advice, MmapOptions, check_signals, kernel_advise, offsets};
use crate::{Engine, FaultError, process, signal};
use core::ops::{Deref, DerefMut, Range, RangeBounds};
use softfault_engine::anon::Anonymous;
use softfault_engine::fault::{self, FaultFlags, Outcome};
use softfault_engine::mm::{Attributes, Backing, Protection};
use softfault_engine::mmu::MmuError;
use softfault_engine::{PAGE_SIZE, mm};
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

impl MmapOptions {
    /// Maps [`len`](Self::len) bytes of anonymous memory over the process's
    /// default engine. The offset means nothing here.
    pub fn map_anon(&self) -> io::Result<MmapMut> {
        self.map_anon_with(Engine::process_default()?)
    }

    /// Maps [`len`](Self::len) bytes of anonymous memory over `engine`.
    pub fn map_anon_with(&self, engine: &Engine) -> io::Result<MmapMut> {
        if process::is_forked_child() {
            return Err(FaultError::Forked.into());
        }
        let len = self.len.unwrap_or(0);
        if isize::try_from(len).is_err() {
            let message = "the map would be larger than an address can say";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let map = match engine.inner.managed() {
            _ if len == 0 => MmapMut::new(engine, 0, 0, Kind::Empty),
            None => kernel_map(engine, len)?,
            Some(_) => managed_map(engine, len)?,
        };
        if self.populate {
            map.populate(..)?;
        }
        Ok(map)
    }
}

fn managed_map(engine: &Engine, len: usize) -> io::Result<MmapMut> {
    let managed = engine.inner.managed().expect("checked by the caller");
    let masked = signal::masked();
    check_signals(engine, &masked)?;
    let anon = Anonymous::new(managed.node.clone(), len).map_err(|error| match error {
        MmuError::Closed(errno) => crate::error::closed(errno),
        MmuError::System(errno) => io::Error::from_raw_os_error(errno),
        MmuError::NoMemory | MmuError::Gone => no_memory("no address space for the map"),
    })?;
    let attributes = Attributes {
        backing: Backing::Anonymous(anon.clone()),
        protection: Protection::ReadWrite,
        ..Attributes::default()
    };
    let addresses = anon.addresses();
    let mapped = managed.space.mmap(addresses.clone(), attributes);
    mapped.map_err(|_| no_memory("no room for another mapping"))?;
    Ok(MmapMut::new(
        engine,
        addresses.start,
        len,
        Kind::Managed(anon),
    ))
}

fn no_memory(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, message)
}

fn kernel_map(engine: &Engine, len: usize) -> io::Result<MmapMut> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let addr = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    match addr {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        addr => Ok(MmapMut::new(engine, addr as usize, len, Kind::Kernel)),
    }
}

/// Anonymous memory under the engine's budget; memmap2's `MmapMut`.
///
/// It is a `[u8]` of zeros. A page costs nothing until it is touched; then it
/// counts against the budget, and **stays until the map is dropped**: there is
/// no swap yet. A touch that the budget has no room for, although everything
/// that can be evicted has been, raises SIGBUS; [`populate`](Self::populate)
/// asks beforehand, and gets the error as a value.
///
/// A system call that is handed a part of it that was not touched yet fails
/// with EFAULT: `populate` it first. A child made by `fork` that touches it dies
/// of SIGSEGV.
pub struct MmapMut {
    engine: Engine,
    start: usize,
    len: usize,
    kind: Kind,
}

enum Kind {
    Managed(Arc<Anonymous>),
    Kernel,
    Empty,
}

// As for `Mmap`: no lock is held over user code.
impl UnwindSafe for MmapMut {}
impl RefUnwindSafe for MmapMut {}

impl MmapMut {
    fn new(engine: &Engine, start: usize, len: usize, kind: Kind) -> Self {
        Self {
            engine: engine.clone(),
            start,
            len,
            kind,
        }
    }

    /// Maps `len` bytes of anonymous memory over the process's default engine.
    pub fn map_anon(len: usize) -> io::Result<Self> {
        MmapOptions::new().len(len).map_anon()
    }

    /// True if the engine serves this map, false if the kernel does.
    pub fn is_managed(&self) -> bool {
        matches!(self.kind, Kind::Managed(_))
    }

    /// The engine that serves it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Bytes of it that are in memory, by whole pages.
    pub fn resident_bytes(&self) -> usize {
        match &self.kind {
            Kind::Managed(anon) => anon.resident_pages() * PAGE_SIZE,
            _ => 0,
        }
    }

    /// Brings a range into memory, where it stays: no touch of it faults any
    /// more, and it may be handed to system calls. Where the budget has no room
    /// that is an error here, and the pages up to there are in memory.
    pub fn populate(&self, range: impl RangeBounds<usize>) -> Result<(), FaultError> {
        let addresses = self.addresses(offsets(range, self.len))?;
        let Kind::Managed(anon) = &self.kind else {
            return Ok(());
        };
        let managed = self.engine.inner.managed().expect("a managed map");
        let flags = FaultFlags {
            write: true,
            ..FaultFlags::default()
        };
        let mut masked = signal::masked();
        let mut addr = addresses.start & !(PAGE_SIZE - 1);
        while addr < addresses.end {
            if anon.is_resident(addr) {
                addr += PAGE_SIZE;
                continue;
            }
            match fault::handle(&managed.space, addr, flags, &masked.pending()) {
                Outcome::Mapped => addr += PAGE_SIZE,
                Outcome::Interrupted => masked = masked.breathe(),
                Outcome::Error(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Says what to expect of all accesses.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        self.advise_range(advice, 0, self.len)
    }

    /// Says what to expect of accesses to a range. Memory that is not read from
    /// anywhere is served alike whatever the advice; it is kept with the map.
    pub fn advise_range(&self, advice: Advice, offset: usize, len: usize) -> io::Result<()> {
        let all = self.addresses(0..self.len)?;
        let start = all.start.saturating_add(offset);
        let range = start..start.saturating_add(len);
        if range.end > all.end.next_multiple_of(PAGE_SIZE) {
            return Err(FaultError::OutOfRange.into());
        }
        let advice = match (&self.kind, advice) {
            (Kind::Kernel, advice) => return kernel_advise(&range, advice),
            (Kind::Empty, _) | (_, Advice::WillNeed) => return Ok(()),
            (_, Advice::Normal) => mm::Advice::Normal,
            (_, Advice::Random) => mm::Advice::Random,
            (_, Advice::Sequential) => mm::Advice::Sequential,
        };
        let pages = range.start & !(PAGE_SIZE - 1)..range.end.next_multiple_of(PAGE_SIZE);
        if pages.is_empty() {
            return Ok(());
        }
        let _masked = signal::masked();
        let managed = self.engine.inner.managed().expect("a managed map");
        let advised = managed.space.madvise(pages, advice);
        advised.map_err(|_| no_memory("no room to split the map"))
    }

    /// Unmaps the pages that the range touches, for tests of the engine.
    ///
    /// # Safety
    /// Nobody looks at the range any more, not even through a slice of more.
    #[doc(hidden)]
    pub unsafe fn unmap_part(&mut self, range: Range<usize>) -> Result<(), FaultError> {
        let range = self.addresses(range)?;
        let pages = range.start & !(PAGE_SIZE - 1)..range.end.next_multiple_of(PAGE_SIZE);
        if let (Some(managed), false) = (self.engine.inner.managed(), pages.is_empty()) {
            let _masked = signal::masked();
            let unmapped = managed.space.munmap(pages, |_, _| {});
            unmapped.map_err(|_| FaultError::NoMemory)?;
        }
        Ok(())
    }

    /// The addresses of a range of offsets, if it is within the map.
    fn addresses(&self, range: Range<usize>) -> Result<Range<usize>, FaultError> {
        if process::is_forked_child() {
            return Err(FaultError::Forked);
        }
        match range.start <= range.end && range.end <= self.len {
            true => Ok(self.start + range.start..self.start + range.end),
            false => Err(FaultError::OutOfRange),
        }
    }
}

impl Deref for MmapMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the window is mapped as long as this lives, a touch of a
        // missing page is served, and nobody else has the memory.
        unsafe { core::slice::from_raw_parts(self.start as *const u8, self.len) }
    }
}

impl DerefMut for MmapMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: as in `deref`; this is borrowed for writing.
        unsafe { core::slice::from_raw_parts_mut(self.start as *mut u8, self.len) }
    }
}

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
        let kind = core::mem::replace(&mut self.kind, Kind::Empty);
        if process::is_forked_child() {
            // The parent's: the child has nothing to give back.
            core::mem::forget(kind);
            return;
        }
        match kind {
            Kind::Managed(anon) => {
                let _masked = signal::masked();
                let managed = self.engine.inner.managed().expect("a managed map");
                let unmapped = managed.space.munmap(anon.addresses(), |_, _| {});
                assert!(unmapped.is_ok(), "unmapping a whole window needs no node");
                // A fault of somebody who has a stray pointer looks once more,
                // and lets go: the last reference is dropped here, and not in
                // the handler.
                while !Anonymous::is_unused(&anon) {
                    std::thread::yield_now();
                }
                // While signals are masked: it takes locks.
                drop(anon);
            }
            Kind::Kernel => {
                // SAFETY: mapped in `kernel_map`; nobody has a slice any more.
                unsafe { libc::munmap(self.start as *mut libc::c_void, self.len) };
            }
            Kind::Empty => {}
        }
    }
}
