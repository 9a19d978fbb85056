//! [`Mmu`] over userfaultfd.

use super::abi::{self, Progress};
use super::released::Released;
use super::spare::Spare;
use super::zap::Zap;
use core::ops::Range;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use libc::{c_int, c_void};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{Access, Mmu, MmuError, Reservation, TABLE_SPAN, Zeroed};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// File descriptors that windows are spread over, at most.
const DESCRIPTORS: usize = 16;
const CLOSED: c_int = -1;

/// Windows by their start: the end, and what they are for.
pub type Windows = BTreeMap<usize, (usize, Protection)>;

/// The real page tables of the process.
pub struct UffdMmu {
    /// Opened one after the other, kept until exit or fork.
    descriptors: [AtomicI32; DESCRIPTORS],
    /// Windows made so far; picks the descriptor.
    made: AtomicUsize,
    /// All windows, for a child of fork to close. Never locked by a fault.
    windows: Mutex<Windows>,
    released: Released,
    spare: Spare,
    zap: Zap,
}

impl UffdMmu {
    /// The page tables, or the errno with which the kernel refuses them.
    pub fn new() -> Result<Self, c_int> {
        let mmu = Self {
            descriptors: [const { AtomicI32::new(CLOSED) }; DESCRIPTORS],
            made: AtomicUsize::new(0),
            windows: Mutex::new(BTreeMap::new()),
            released: Released::default(),
            spare: Spare::default(),
            zap: Zap::new(),
        };
        mmu.descriptor(0)?;
        Ok(mmu)
    }

    fn windows(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor of a token, opened if it is not yet.
    fn descriptor(&self, token: usize) -> Result<c_int, c_int> {
        let slot = &self.descriptors[token];
        let fd = slot.load(Ordering::Acquire);
        if fd != CLOSED {
            return Ok(fd);
        }
        let fresh = abi::open()?;
        match slot.compare_exchange(CLOSED, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(fresh),
            Err(other) => {
                // SAFETY: just opened, and nobody knows it.
                unsafe { libc::close(fresh) };
                Ok(other)
            }
        }
    }

    /// Maps `bytes` at a multiple of a page table's span.
    fn map(&self, bytes: usize, protection: c_int) -> Result<usize, MmuError> {
        let plain = anonymous(bytes, protection)?;
        if plain.is_multiple_of(TABLE_SPAN) {
            return Ok(plain);
        }
        unmap(plain..plain + bytes);
        let wide = anonymous(bytes + TABLE_SPAN, protection)?;
        let start = wide.next_multiple_of(TABLE_SPAN);
        unmap(wide..start);
        unmap(start + bytes..wide + bytes + TABLE_SPAN);
        Ok(start)
    }

    /// True if `addr` was in a window that was given back a short while ago: a
    /// fault of then may arrive now, and is touched again. Only so often, so
    /// that a stray pointer does not loop.
    pub fn was_released(&self, addr: usize) -> bool {
        self.released.contains(addr)
    }

    /// Keeps the list of windows still while the process forks.
    pub fn fork_prepare(&self) -> MutexGuard<'_, Windows> {
        self.windows()
    }

    /// In the child: nothing of the parent's is to be touched through what was
    /// inherited, and every window answers with SIGSEGV.
    pub fn fork_child(&self, windows: &Windows) {
        for slot in &self.descriptors {
            let fd = slot.swap(CLOSED, Ordering::Relaxed);
            if fd != CLOSED {
                // SAFETY: inherited, acts on the parent, and not used again.
                unsafe { libc::close(fd) };
            }
        }
        self.zap.fork_child();
        for (&start, &(end, _)) in windows {
            // SAFETY: the place is empty (the window was not inherited), and
            // NOREPLACE leaves alone what somebody may have put there.
            unsafe {
                libc::mmap(
                    start as *mut c_void,
                    end - start,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE
                        | libc::MAP_ANONYMOUS
                        | libc::MAP_NORESERVE
                        | libc::MAP_FIXED_NOREPLACE,
                    -1,
                    0,
                )
            };
        }
    }
}

fn anonymous(bytes: usize, protection: c_int) -> Result<usize, MmuError> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let addr = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    match addr {
        libc::MAP_FAILED => Err(MmuError::NoMemory),
        addr => Ok(addr as usize),
    }
}

fn unmap(range: Range<usize>) {
    if !range.is_empty() {
        // SAFETY: a part of a mapping that was just made and is not used.
        unsafe { libc::munmap(range.start as *mut c_void, range.end - range.start) };
    }
}

fn system(errno: c_int) -> MmuError {
    match errno {
        libc::ENOMEM => MmuError::NoMemory,
        libc::ENOENT => MmuError::Gone,
        libc::EMFILE | libc::ENFILE => MmuError::NoMemory,
        libc::ENOSYS | libc::EPERM => MmuError::Closed(errno),
        errno => MmuError::System(errno),
    }
}

/// Repeats an ioctl until the whole run is present.
fn finish(bytes: usize, mut step: impl FnMut(usize) -> Progress) -> Result<(), MmuError> {
    let mut done = 0;
    while done < bytes {
        let progress = step(done);
        done += progress.bytes;
        match progress.stopped {
            // The mappings were changing, or a part is done: on with the rest.
            None | Some(libc::EAGAIN) => {}
            // The page is there.
            Some(libc::EEXIST) => done += PAGE_SIZE,
            Some(errno) => return Err(system(errno)),
        }
    }
    Ok(())
}

impl Mmu for UffdMmu {
    fn reserve(&self, bytes: usize, protection: Protection) -> Result<Reservation, MmuError> {
        if let Some(window) = self.spare.take(bytes, protection) {
            let range = window.range();
            self.windows().insert(range.start, (range.end, protection));
            return Ok(window);
        }
        let token = self.made.fetch_add(1, Ordering::Relaxed) % DESCRIPTORS;
        // Where descriptors have run out, the first one serves all.
        let (token, fd) = match self.descriptor(token) {
            Ok(fd) => (token, fd),
            Err(_) => (0, self.descriptor(0).map_err(system)?),
        };
        let start = self.map(
            bytes,
            match protection {
                Protection::None => libc::PROT_NONE,
                Protection::Read => libc::PROT_READ,
                Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
            },
        )?;
        let range = start..start + bytes;
        let advise = |advice| {
            // SAFETY: advice about a mapping that was just made.
            unsafe { libc::madvise(start as *mut c_void, bytes, advice) }
        };
        // Huge pages would be filled whole, whatever was read. Machines
        // without them refuse the advice.
        advise(libc::MADV_NOHUGEPAGE);
        if advise(libc::MADV_DONTFORK) < 0 {
            let error = system(abi::errno());
            unmap(range);
            return Err(error);
        }
        if let Err(errno) = abi::register(fd, &range) {
            unmap(range);
            return Err(system(errno));
        }
        self.windows().insert(range.start, (range.end, protection));
        Ok(Reservation {
            addr: start,
            bytes,
            token: token as u32,
        })
    }

    fn release(&self, window: Reservation) {
        let range = window.range();
        let forgotten = self.windows().remove(&range.start);
        let (_, protection) = forgotten.expect("a window is released once");
        self.released.push(&range);
        // Empty already, unless somebody has lost count: the next to have the
        // window must not see what was in it.
        // SAFETY: a window whose owner has given it back.
        let emptied = unsafe {
            let start = range.start as *mut c_void;
            libc::madvise(start, range.len(), libc::MADV_DONTNEED) == 0
        };
        let goes = match emptied {
            true => self.spare.keep(window, protection),
            false => Some(range),
        };
        goes.into_iter().for_each(unmap);
    }

    unsafe fn copy(
        &self,
        window: &Reservation,
        addr: usize,
        source: *const u8,
        bytes: usize,
        access: Access,
    ) -> Result<(), MmuError> {
        let _ = access; // Nothing is protected yet.
        let fd = self.descriptors[window.token as usize].load(Ordering::Relaxed);
        finish(bytes, |done| {
            // SAFETY: the caller vouches for both sides.
            unsafe { abi::copy(fd, addr + done, source.add(done), bytes - done) }
        })
    }

    fn zero(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        let fd = self.descriptors[window.token as usize].load(Ordering::Relaxed);
        finish(bytes, |done| abi::zero(fd, addr + done, bytes - done))
    }

    fn fill(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        // Not UFFDIO_ZEROPAGE: the kernel would replace its zero page at the
        // first write, and nobody would have paid for the memory.
        static ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];
        for page in (addr..addr + bytes).step_by(PAGE_SIZE) {
            // SAFETY: the zeros are there for ever.
            unsafe { self.copy(window, page, ZEROS.as_ptr(), PAGE_SIZE, Access::Writable)? };
        }
        Ok(())
    }

    fn zero_page(&self, window: &Reservation, addr: usize) -> Result<Zeroed, MmuError> {
        self.fill(window, addr, PAGE_SIZE)?;
        Ok(Zeroed::Memory)
    }

    fn protect(&self, _ranges: &[Range<usize>]) {
        unreachable!("windows are not registered for write protection yet");
    }

    fn make_writable(&self, _window: &Reservation, _addr: usize) -> Result<(), MmuError> {
        Ok(()) // All that is present is.
    }

    fn bytes(&self, _window: &Reservation, addr: usize) -> *const u8 {
        addr as *const u8
    }

    fn move_pages(
        &self,
        _from: (&Reservation, usize),
        _to: (&Reservation, usize),
        _bytes: usize,
    ) -> Result<(), MmuError> {
        Err(MmuError::Closed(libc::ENOSYS))
    }

    fn zap(&self, ranges: &[Range<usize>]) {
        self.zap.zap(ranges);
    }

    unsafe fn read(&self, addr: usize, target: *mut u8, bytes: usize) -> bool {
        // SAFETY: the pages are pinned by the caller or faulted in here; the
        // caller vouches for the target.
        unsafe { core::ptr::copy_nonoverlapping(addr as *const u8, target, bytes) };
        true
    }
}
