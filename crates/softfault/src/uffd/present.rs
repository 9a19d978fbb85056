//! Looking at a page that may not be there, by asking the kernel: its presence, its contents, and a copy of it.
//!
//! The program may throw a page away at any moment (`MADV_DONTNEED`), and no look at it may be a fault that a thread has to serve: none serves
//! one in a handler, and elsewhere the server may wait for a lock of the looking thread.

use super::Faults;
use super::memory::Memory;
use super::pagemap::{Pagemap, Place};
use crate::errno::errno;
use core::ops::Range;
use libc::{c_int, c_void};
use softfault_engine::PAGE_SIZE;

/// No way to change a mask: the kernel reads the set, and then refuses.
const NO_WAY: c_int = -1;
/// Bytes of a mask, as the kernel has it.
const MASK_BYTES: usize = 8;
/// Bytes that are compared at a time: there is little room on a handler's stack. Most pages are other from the first on.
const PIECE: usize = 256;

/// Ranges that one call copies out, at most. They are noted on the stack.
const RANGES: usize = 64;

/// First bytes of a page, by which most are seen to be other; of so many pages by a call.
const FIRST: usize = 64;
const AT_A_TIME: usize = 16;

/// How pages are looked at.
pub(super) struct Looks {
    /// `None` where the kernel's faults on windows are not served: its own calls report missing pages.
    memory: Option<Memory>,
    /// Whether the page tables have nothing where bytes cannot be read.
    pub(super) pagemap: Pagemap,
}

impl Looks {
    /// The errno where pages cannot be looked at without waiting for the server of faults.
    pub(super) fn new(faults: Faults, pagemap: Pagemap) -> Result<Self, c_int> {
        let memory = match faults {
            Faults::Signals | Faults::Threads => None,
            Faults::Messages => Some(Memory::open()?),
        };
        Ok(Self { memory, pagemap })
    }

    /// True if the page of a window is certainly missing. A page that may not be
    /// read, or is in the system's swap, is not missing, even if both are so.
    pub(super) fn is_missing(&self, addr: usize) -> bool {
        self.is_unreadable(addr) && self.pagemap.place(addr) == Some(Place::Nowhere)
    }

    /// True if the page of a window went to the system's swap, and cannot be read there.
    pub(super) fn is_lost(&self, addr: usize) -> bool {
        self.is_unreadable(addr) && self.pagemap.place(addr) == Some(Place::Swap)
    }

    /// True if the page is missing, or may not or cannot be read.
    fn is_unreadable(&self, addr: usize) -> bool {
        let page = addr & !(PAGE_SIZE - 1);
        let mut byte = 0_u8;
        match &self.memory {
            None => is_refused(page),
            // SAFETY: fills the byte.
            Some(memory) => unsafe { memory.copy(page, &raw mut byte, 1) == Err(libc::EIO) },
        }
    }

    /// True if pages can be copied out: a filter of system calls may refuse it.
    pub(super) fn can_copy_out(&self) -> bool {
        self.memory.is_some() || can_copy()
    }

    /// Copies a page of a window out: false if it is missing, an errno if it is there and may not be read.
    ///
    /// # Safety
    /// `to` is writable for a page.
    pub(super) unsafe fn copy_out(&self, addr: usize, to: *mut u8) -> Result<bool, c_int> {
        // SAFETY: the caller's promise.
        match unsafe { self.copy(addr, to, PAGE_SIZE) } {
            Ok(PAGE_SIZE) => Ok(true),
            _ if self.is_missing(addr) => Ok(false),
            Ok(_) => Err(libc::EFAULT),
            Err(errno) => Err(errno),
        }
    }

    /// Copies the pages of some ranges out, one behind the other, up to the first that is missing or may not be read: how many.
    ///
    /// # Safety
    /// `to` is writable for all of them.
    pub(super) unsafe fn copy_out_all(&self, ranges: &[Range<usize>], to: *mut u8) -> usize {
        if self.memory.is_some() {
            // That file is read place by place: no call is saved.
            return 0;
        }
        let mut done = 0;
        for ranges in ranges.chunks(RANGES) {
            let mut from = [iovec(core::ptr::null_mut(), 0); RANGES];
            for (part, range) in from.iter_mut().zip(ranges) {
                *part = iovec(range.start as *mut c_void, range.len());
            }
            let bytes: usize = ranges.iter().map(Range::len).sum();
            // SAFETY: the caller's promise.
            let copied = unsafe { gather(&from[..ranges.len()], to.add(done)) };
            // The kernel may stop within a page.
            let copied = copied.unwrap_or(0) / PAGE_SIZE * PAGE_SIZE;
            done += copied;
            if copied < bytes {
                break;
            }
        }
        done / PAGE_SIZE
    }

    /// True if the page of a window is there, can be copied out, and has these bytes.
    ///
    /// # Safety
    /// `page` is readable for a page, and nobody writes to it.
    pub(super) unsafe fn is_same(&self, addr: usize, page: *const u8) -> bool {
        let mut shown = [0_u8; PIECE];
        (0..PAGE_SIZE).step_by(PIECE).all(|at| {
            // SAFETY: fills the piece.
            let copied = unsafe { self.copy(addr + at, shown.as_mut_ptr(), PIECE) };
            // SAFETY: the caller's promise; within the page.
            let page = unsafe { core::slice::from_raw_parts(page.add(at), PIECE) };
            copied == Ok(PIECE) && shown == page
        })
    }

    /// The pages, a bit each from `start` on, whose first bytes are there and are those of the page of that number at `with`.
    ///
    /// # Safety
    /// Each of these pages at `with` is readable, and nobody writes to it.
    pub(super) unsafe fn may_be_same(&self, start: usize, pages: u32, with: *const u8) -> u32 {
        if self.memory.is_some() {
            // That file is read place by place: no call is saved.
            return pages;
        }
        let (mut left, mut same) = (pages, 0);
        while left != 0 {
            let mut first = [[0_u8; FIRST]; AT_A_TIME];
            let now = left;
            let numbers = (0..u32::BITS as usize).filter(move |page| now >> page & 1 == 1);
            let numbers = numbers.take(AT_A_TIME);
            let mut from = [iovec(core::ptr::null_mut(), FIRST); AT_A_TIME];
            let mut count = 0;
            for page in numbers.clone() {
                from[count].iov_base = (start + page * PAGE_SIZE) as *mut c_void;
                count += 1;
            }
            // SAFETY: fills the array.
            let copied = unsafe { gather(&from[..count], first.as_mut_ptr().cast()) };
            let there = copied.unwrap_or(0) / FIRST;
            for (number, page) in numbers.enumerate() {
                if number > there {
                    // The kernel stops at the first that is not there.
                    break;
                }
                left &= !(1 << page);
                // SAFETY: the caller's promise.
                let with =
                    unsafe { core::slice::from_raw_parts(with.add(page * PAGE_SIZE), FIRST) };
                same |= u32::from(number < there && first[number] == with) << page;
            }
        }
        same
    }

    /// Copies bytes that may not be there, as far as it goes.
    ///
    /// # Safety
    /// `to` is writable for `bytes`.
    unsafe fn copy(&self, from: usize, to: *mut u8, bytes: usize) -> Result<usize, c_int> {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.memory {
                None => copy_some(from as *const u8, to, bytes),
                Some(memory) => memory.copy(from, to, bytes),
            }
        }
    }

    /// In a child: inherited state is about the parent.
    pub(super) fn fork_child(&self) {
        self.pagemap.fork_child();
        if let Some(memory) = &self.memory {
            memory.fork_child();
        }
    }
}

/// [`Looks::is_unreadable`], where nobody serves the kernel's faults there.
///
/// The kernel is asked to read from the page: a fault of the kernel's on a missing page
/// of a window changes nothing. No descriptor is involved, no
/// filter of system calls refuses it, and where the page is there no lock is taken.
fn is_refused(page: usize) -> bool {
    // SAFETY: reads a page of a window of ours, if it can, and changes nothing.
    let answer = unsafe {
        let nothing = core::ptr::null_mut::<c_void>();
        sync::system_call!(libc::SYS_rt_sigprocmask, NO_WAY, page, nothing, MASK_BYTES)
    };
    answer != 0 && errno() == libc::EFAULT
}

/// Copies out a page that is a window's whose faults nobody serves to the kernel, or is other memory: as of [`Looks::copy_out`].
///
/// # Safety
/// `to` is writable for a page.
pub unsafe fn copy_page(addr: usize, to: *mut u8) -> Result<bool, c_int> {
    let looks = Looks {
        memory: None,
        pagemap: Pagemap::unopened(),
    };
    // SAFETY: the caller's promise.
    unsafe { looks.copy_out(addr, to) }
}

/// True if [`copy_some`] is not refused.
fn can_copy() -> bool {
    let (from, mut to) = (1_u8, 0_u8);
    // SAFETY: a byte each.
    unsafe { copy_some(&raw const from, &raw mut to, 1) == Ok(1) && to == 1 }
}

/// Copies bytes that may not be there, as far as it goes, where nobody serves the kernel's faults there.
///
/// # Safety
/// `to` is writable for `bytes`.
pub unsafe fn copy_some(from: *const u8, to: *mut u8, bytes: usize) -> Result<usize, c_int> {
    // SAFETY: the caller's promise.
    unsafe { gather(&[iovec(from.cast_mut().cast(), bytes)], to) }
}

/// The same of several places, one behind the other, up to the first that is not there.
///
/// # Safety
/// `to` is writable for the bytes of all of them.
unsafe fn gather(from: &[libc::iovec], to: *mut u8) -> Result<usize, c_int> {
    let into = iovec(to.cast(), from.iter().map(|part| part.iov_len).sum());
    let count = from.len() as libc::c_ulong;
    // By this thread's number: the first one, whose number is the process's, may have ended.
    // SAFETY: writes to the caller's bytes alone; unreadable memory is an error.
    let done = unsafe { libc::process_vm_readv(libc::gettid(), &into, 1, from.as_ptr(), count, 0) };
    usize::try_from(done).map_err(|_| errno())
}

fn iovec(base: *mut c_void, bytes: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base,
        iov_len: bytes,
    }
}
