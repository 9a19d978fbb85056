//! [`Mmu`] over userfaultfd.

use super::Faults;
use super::abi::{self, Offers, Progress};
use super::given::Given;
use super::in_place::InPlace;
use super::pagemap::Pagemap;
use super::pins::Pins;
use super::present::Looks;
use super::released::Released;
use super::reserved::unmap;
use super::rows::Rows;
use super::segments::Scans;
use super::spare::{SpareWindows, renew};
use super::zap::Zap;
use crate::errno::errno;
use crate::table::Working;
use core::ops::Range;
use core::slice::from_ref;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use libc::{c_int, c_void};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{
    Access, Mmu, MmuError, Moved, PartialMove, Place, Reservation, WrittenPage, Zeroed,
};
use softfault_engine::stage::Stage;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// File descriptors that windows are spread over, at most.
const DESCRIPTORS: usize = 16;

/// Of a token: the number of a descriptor.
const DESCRIPTOR: u32 = 0xff;
/// Of a token: the window may be written to.
pub(super) const WRITABLE: u32 = 1 << 8;
/// Of a token: its pages can be write-protected.
pub(super) const PROTECTS: u32 = 1 << 9;
/// Of a token: it is only read, and memory can be moved in ([`rows`](super::rows)).
pub(super) const MOVES: u32 = 1 << 10;

/// Zeros that are copied at once.
const ZEROS_BYTES: usize = 64 * PAGE_SIZE;

/// True where a handler is told whether a touch was a write: without that a write
/// to a protected page would be served as a read for ever.
const KNOWS_WRITES: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Windows by their start: the end, and the protection.
pub type WindowEnds = BTreeMap<usize, (usize, Protection)>;

/// The real page tables of the process.
pub struct UffdMmu {
    /// Immutable.
    offers: Offers,
    /// Immutable.
    faults: Faults,
    /// Opened one after the other, kept until exit or fork. A fault only looks.
    pub(super) descriptors: [OnceLock<Working>; DESCRIPTORS],
    /// Windows made so far; picks the descriptor.
    made: AtomicUsize,
    /// All windows, for a child of fork to close. Never locked by a fault.
    windows: Mutex<WindowEnds>,
    pub(super) released: Released,
    pub(super) spare: SpareWindows,
    /// Where the windows start that were reserved for writing and may only be read, or some of whose pages once could.
    restricted: Mutex<BTreeSet<usize>>,
    pub(super) in_place: InPlace,
    pub(super) scans: Scans,
    /// Parts of windows that are not the windows' any more.
    pub(super) given: Given,
    pub(super) pins: Pins,
    pub(super) rows: Rows,
    /// True from the first poisoned page on. Relaxed: the store is made before the system call fails, and a thread that gives up the
    /// page after that call sees it.
    pub(super) has_poison: AtomicBool,
    pub(super) zap: Zap,
    pub(super) looks: Looks,
}

impl UffdMmu {
    /// The page tables, or the errno with which the kernel refuses them.
    pub fn new(faults: Faults) -> Result<Self, c_int> {
        let mut offers = abi::ask(faults)?;
        // A message says it.
        offers.protect &= KNOWS_WRITES || faults.by_threads();
        Self::with(offers, faults, Pagemap::new())
    }

    /// The page tables of a kernel that has no more than this.
    pub(super) fn with(offers: Offers, faults: Faults, pagemap: Pagemap) -> Result<Self, c_int> {
        let mmu = Self {
            offers,
            faults,
            descriptors: [const { OnceLock::new() }; DESCRIPTORS],
            made: AtomicUsize::new(0),
            windows: Mutex::new(BTreeMap::new()),
            released: Released::default(),
            spare: SpareWindows::default(),
            restricted: Mutex::default(),
            in_place: InPlace::default(),
            scans: Scans::default(),
            given: Given::default(),
            pins: Pins::default(),
            rows: Rows::default(),
            has_poison: AtomicBool::new(false),
            zap: Zap::new(),
            looks: Looks::new(faults, pagemap)?,
        };
        mmu.descriptor(0)?;
        if faults.by_threads() {
            // At once: the thread that reads sleeps on all. Where there are fewer, those have to do.
            let _ = (1..abi::MESSAGE_DESCRIPTORS)
                .try_for_each(|number| mmu.descriptor(number).map(drop));
        }
        Ok(mmu)
    }

    pub(super) fn windows(&self) -> MutexGuard<'_, WindowEnds> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor of a number, opened if it is not yet.
    fn descriptor(&self, number: usize) -> Result<&Working, c_int> {
        let slot = &self.descriptors[number];
        if let Some(fd) = slot.get() {
            return Ok(fd);
        }
        let fresh = abi::open(self.offers, self.faults)?;
        Ok(slot.get_or_init(|| fresh))
    }

    /// The descriptor of a window.
    pub(super) fn of(&self, window: &Reservation) -> &Working {
        let number = window.token & DESCRIPTOR;
        let opened = self.descriptors[number as usize].get();
        opened.expect("the descriptor of a window is open")
    }

    /// Those that are open, from the first on.
    pub(super) fn opened(&self) -> impl Iterator<Item = &Working> {
        self.descriptors.iter().map_while(OnceLock::get)
    }

    /// The descriptor that was opened first.
    pub(super) fn first(&self) -> &Working {
        self.descriptors[0].get().expect("opened at once")
    }

    /// The features of the kernel.
    pub(super) fn offers(&self) -> Offers {
        self.offers
    }

    /// How faults arrive.
    pub(super) fn faults(&self) -> Faults {
        self.faults
    }

    /// True if pages of the window can be protected.
    pub(super) fn protects(&self, window: &Reservation) -> bool {
        window.token & PROTECTS != 0
    }

    /// A descriptor for a new window, and its number.
    fn pick(&self, protection: Protection) -> Result<(&Working, u32), MmuError> {
        let number = match self.faults {
            Faults::Signals => self.made.fetch_add(1, Ordering::Relaxed) % DESCRIPTORS,
            // Nothing is opened: the table is to have the program's rights all the same.
            Faults::Threads | Faults::Messages => {
                crate::table::take_credentials();
                match protection {
                    // Pages are moved between windows of one descriptor only ([`pins`](super::pins)).
                    Protection::ReadWrite => 0,
                    _ => self.made.fetch_add(1, Ordering::Relaxed) % self.opened().count(),
                }
            }
        };
        // Where descriptors have run out, the first one serves all.
        match self.descriptor(number) {
            Ok(fd) => Ok((fd, number as u32)),
            Err(_) => Ok((self.descriptor(0).map_err(system)?, 0)),
        }
    }

    /// Registers a range as a window: these parts of it.
    pub(super) fn register(
        &self,
        range: Range<usize>,
        parts: &[Range<usize>],
        protection: Protection,
    ) -> Result<Reservation, MmuError> {
        self.register_as(range, parts, (protection, 0))
    }

    fn register_as(
        &self,
        range: Range<usize>,
        parts: &[Range<usize>],
        (protection, moves): (Protection, u32),
    ) -> Result<Reservation, MmuError> {
        let (fd, mut token) = match moves {
            0 => self.pick(protection)?,
            // As for a writable window.
            _ => self.pick(Protection::ReadWrite)?,
        };
        if moves != 0 {
            token |= moves | PROTECTS;
        }
        if protection == Protection::ReadWrite {
            token |= WRITABLE;
            if self.offers.protect {
                token |= PROTECTS;
            }
        }
        for part in parts {
            abi::register(fd, part, token & PROTECTS != 0).map_err(system)?;
        }
        self.windows().insert(range.start, (range.end, protection));
        Ok(Reservation {
            addr: range.start,
            bytes: range.len(),
            token,
        })
    }

    /// A window of a kind: [`MOVES`], or 0.
    pub(super) fn reserve_as(
        &self,
        bytes: usize,
        protection: Protection,
        moves: u32,
    ) -> Result<Reservation, MmuError> {
        let is_one = |window: &Reservation| window.token & MOVES == moves;
        if let Some(window) = self.spare.take(bytes, protection, is_one) {
            let range = window.range();
            self.windows().insert(range.start, (range.end, protection));
            return Ok(window);
        }
        // Inaccessible until it is registered: a call that fills new mappings in this
        // process (`mlockall(MCL_FUTURE)`) would fill it with zeros, and those would
        // never fault. From then on all missing pages are ours to fill, for every call.
        let start = self.map_apart(bytes)?;
        let range = start..start + bytes;
        if let Err(error) = advise_window(&range, protection) {
            unmap(range);
            return Err(error);
        }
        let kind = (protection, moves);
        let window = self.register_as(range.clone(), from_ref(&range), kind);
        let opened = match moves {
            0 => protection,
            _ => Protection::ReadWrite,
        };
        let window = window.and_then(|window| {
            mprotect(&range, opened).inspect_err(|_| {
                self.windows().remove(&range.start);
            })?;
            Ok(window)
        });
        if window.is_err() {
            unmap(range);
        }
        window
    }

    /// The starts of restricted windows.
    pub(super) fn restricted(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        (self.restricted.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// True if `addr` was in a window that was given back a short while ago: a
    /// fault of then may arrive now, and is touched again. Only so often, so
    /// that a stray pointer does not loop.
    pub fn was_released(&self, addr: usize) -> bool {
        self.released.contains(addr)
    }
}

/// `mprotect(2)`, as the flags of a protection say.
pub(super) fn mprotect(range: &Range<usize>, protection: Protection) -> Result<(), MmuError> {
    let flags = match protection {
        Protection::None => libc::PROT_NONE,
        Protection::Read => libc::PROT_READ,
        Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
    };
    let start = range.start as *mut c_void;
    // SAFETY: a window that its owner holds, or has yet to get.
    match unsafe { sync::kernel_calls::mprotect(start, range.len(), flags) } {
        0 => Ok(()),
        _ => Err(system(errno())),
    }
}

/// Advice about address space that is to be a window, or a part of one.
pub(super) fn advise_window(range: &Range<usize>, protection: Protection) -> Result<(), MmuError> {
    let advise = |advice| {
        // SAFETY: advice about a mapping that was just made.
        unsafe { sync::kernel_calls::madvise(range.start as *mut c_void, range.len(), advice) }
    };
    // Huge pages would be filled whole, for a read of any size. Machines
    // without them refuse the advice.
    advise(libc::MADV_NOHUGEPAGE);
    // Pages that are the same as others are made one (KSM) and lose their write
    // protection: writes to them would not be seen. A service may have been
    // started with all its memory to be merged.
    advise(libc::MADV_UNMERGEABLE);
    // Written pages are in a core dump, as memory of the kernel's is. Pages of files that are only
    // read are not, as those of the kernel's mappings are not.
    if protection == Protection::ReadWrite {
        advise(libc::MADV_DODUMP);
    }
    match advise(libc::MADV_DONTFORK) {
        0 => Ok(()),
        _ => Err(system(errno())),
    }
}

pub(super) fn system(errno: c_int) -> MmuError {
    match errno {
        libc::ENOMEM => MmuError::NoMemory,
        // The second of a window that is being taken over: its memory has no size yet.
        libc::ENOENT | libc::EFAULT => MmuError::Gone,
        libc::EMFILE | libc::ENFILE => MmuError::NoMemory,
        libc::ENOSYS | libc::EPERM => MmuError::Closed(errno),
        errno => MmuError::System(errno),
    }
}

/// Repeats an ioctl, which gets the bytes done and the bytes to do, until the whole run is
/// present. Pages that are no window of ours any more, since the program has unmapped
/// them, are passed over; an error if all are.
pub(super) fn finish(
    bytes: usize,
    mut step: impl FnMut(usize, usize) -> Progress,
) -> Result<(), MmuError> {
    let (mut done, mut most, mut gone) = (0, bytes, 0);
    while done < bytes {
        let progress = step(done, most.min(bytes - done));
        done += progress.bytes;
        match progress.stopped {
            // The mappings were changing, or a part is done: on with the rest.
            None | Some(libc::EAGAIN) => {}
            // The page is there.
            Some(libc::EEXIST) => done += PAGE_SIZE,
            // It fills one mapping at a time, and the program has split the window's
            // by locking or protecting a part.
            Some(libc::ENOENT) if most > PAGE_SIZE => most = PAGE_SIZE,
            Some(libc::ENOENT) if gone + PAGE_SIZE < bytes => {
                gone += PAGE_SIZE;
                done += PAGE_SIZE;
            }
            Some(errno) => return Err(system(errno)),
        }
    }
    Ok(())
}

impl Mmu for UffdMmu {
    fn reserve(&self, bytes: usize, protection: Protection) -> Result<Reservation, MmuError> {
        self.reserve_as(bytes, protection, 0)
    }

    fn reserve_for_moves(&self, bytes: usize) -> Option<Reservation> {
        self.reserve_row_window(bytes)
    }

    unsafe fn move_in(&self, to: Place<'_>, from: *mut u8) -> Moved {
        let _stage = Stage::Move.span();
        // SAFETY: the caller's promise.
        unsafe { self.move_row(to, from as usize) }
    }

    fn split(&self, _span: &Range<usize>, addr: usize) -> bool {
        self.split_row(addr)
    }

    fn refuse_writes(&self, window: &Reservation) -> bool {
        mprotect(&window.range(), Protection::Read).is_ok()
    }

    fn release(&self, window: Reservation) {
        self.give_back(window, false);
    }

    fn release_zapped(&self, window: Reservation) {
        self.give_back(window, true);
    }

    fn part_released(&self, part: &Range<usize>) {
        self.released.push(part);
    }

    fn renew(&self, window: &Reservation) {
        renew(window);
    }

    fn restrict(
        &self,
        window: &Reservation,
        part: &Range<usize>,
        protection: Protection,
    ) -> Result<(), MmuError> {
        self.restrict_to((window, part), protection)
    }

    unsafe fn copy(&self, to: Place<'_>, of: *const [u8], access: Access) -> Result<(), MmuError> {
        let _stage = Stage::Copy.span();
        let (window, addr) = to;
        // To a window that is only read, nothing has to be done for that.
        let protect = access == Access::ReadOnly && window.token & (WRITABLE | MOVES) != 0;
        if protect && window.token & PROTECTS == 0 {
            return Err(MmuError::Closed(libc::ENOSYS));
        }
        let fd = self.of(window);
        let (source, bytes) = (of.cast::<u8>(), of.len());
        finish(bytes, |done, bytes| {
            // SAFETY: the caller vouches for both sides.
            unsafe { abi::copy(fd, addr + done, source.add(done), bytes, protect) }
        })
    }

    unsafe fn copy_absent(&self, to: Place<'_>, of: *const [u8]) -> Result<(), MmuError> {
        let _stage = Stage::Copy.span();
        let (window, addr) = to;
        if window.token & PROTECTS == 0 {
            return Err(MmuError::Closed(libc::ENOSYS));
        }
        let fd = self.of(window);
        let (mut done, bytes) = (0, of.len());
        while done < bytes {
            let source = of.cast::<u8>().wrapping_add(done);
            // SAFETY: the caller vouches for both sides.
            let progress = unsafe { abi::copy(fd, addr + done, source, bytes - done, true) };
            done += progress.bytes;
            match progress.stopped {
                // The mappings were changing, or a part is done: on with the rest.
                None | Some(libc::EAGAIN) => {}
                Some(errno) => return Err(system(errno)),
            }
        }
        Ok(())
    }

    fn zero(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        let _stage = Stage::Zero.span();
        let fd = self.of(window);
        self.zero_all(fd, addr, bytes)?;
        match window.token & MOVES {
            0 => Ok(()),
            _ => self.protect_row(window, addr..addr + bytes),
        }
    }

    fn fill(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        // Not UFFDIO_ZEROPAGE: the kernel would replace its zero page at the
        // first write, and nobody would have paid for the memory.
        /// Words that may be written to, which nobody does, take no room in the program's file.
        static ZEROS: [AtomicU64; ZEROS_BYTES / 8] = [const { AtomicU64::new(0) }; ZEROS_BYTES / 8];
        for at in (addr..addr + bytes).step_by(ZEROS_BYTES) {
            let bytes = ZEROS_BYTES.min(addr + bytes - at);
            let zeros = core::ptr::slice_from_raw_parts(ZEROS.as_ptr().cast::<u8>(), bytes);
            // SAFETY: there are as many zeros, for ever.
            unsafe { self.copy((window, at), zeros, Access::Writable)? };
        }
        Ok(())
    }

    fn zero_page(&self, window: &Reservation, addr: usize) -> Result<Zeroed, MmuError> {
        self.zeros(window, addr, || ())
    }

    fn can_protect(&self) -> bool {
        self.offers.protect
    }

    fn protect(&self, ranges: &[Range<usize>]) {
        self.protect_all(ranges);
    }

    fn sees_pins(&self) -> bool {
        self.can_see_pins()
    }

    unsafe fn sum(&self, page: *const u8) -> u64 {
        super::pins::sum(page.addr())
    }

    fn calls_wait(&self) -> bool {
        self.faults == Faults::Messages
    }

    fn spare_pinned(&self, pages: &mut [WrittenPage]) {
        self.move_unpinned(pages);
    }

    fn protect_window(&self, window: &Reservation) -> bool {
        self.protect_whole(window)
    }

    unsafe fn is_same(&self, _window: &Reservation, addr: usize, page: *const u8) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.looks.is_same(addr, page) }
    }

    unsafe fn may_be_same(&self, start: usize, pages: u32, with: *const u8) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.looks.may_be_same(start, pages, with) }
    }

    fn can_copy_out(&self) -> bool {
        self.looks.can_copy_out()
    }

    unsafe fn copy_out(
        &self,
        _window: &Reservation,
        addr: usize,
        to: *mut u8,
    ) -> Result<bool, i32> {
        // SAFETY: the caller's promise.
        unsafe { self.looks.copy_out(addr, to) }
    }

    unsafe fn copy_out_all(&self, _: &Reservation, ranges: &[Range<usize>], to: *mut u8) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.looks.copy_out_all(ranges, to) }
    }

    fn make_writable(&self, window: &Reservation, addr: usize) -> Result<(), MmuError> {
        self.unprotect(window, addr)
    }

    fn bytes(&self, _window: &Reservation, addr: usize) -> *const u8 {
        addr as *const u8
    }

    fn move_pages(&self, from: Place<'_>, to: Place<'_>, bytes: usize) -> Result<(), PartialMove> {
        self.move_all(from.1..from.1 + bytes, to)
    }

    fn is_missing(&self, addr: usize) -> bool {
        self.looks.is_missing(addr)
    }

    fn is_lost(&self, addr: usize) -> bool {
        self.looks.is_lost(addr)
    }

    fn zap(&self, ranges: &[Range<usize>]) {
        let _stage = Stage::Zap.span();
        let given = self.given.parts();
        if given.is_empty() {
            return self.zap.zap(ranges);
        }
        for range in ranges {
            self.zap.zap(&given.served(range));
        }
    }

    fn zap_all(&self, ranges: &[Range<usize>]) -> bool {
        if let [range] = ranges {
            // No part is given before the zap is over.
            let given = self.given.parts();
            if given.is_empty() {
                let _stage = Stage::Zap.span();
                return self.zap.one(range);
            }
        }
        self.zap(ranges);
        false
    }

    unsafe fn read(&self, addr: usize, target: *mut u8, bytes: usize) -> bool {
        // SAFETY: the pages are pinned by the caller or faulted in here; the
        // caller vouches for the target.
        unsafe { core::ptr::copy_nonoverlapping(addr as *const u8, target, bytes) };
        true
    }
}
