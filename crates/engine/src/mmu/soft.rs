//! Page tables in memory, the plain kind: a bit for each page. For tests, and
//! for machines where userfaultfd is closed; bytes are reached through
//! [`Mmu::read`].

use super::{Mmu, MmuError, Reservation, TABLE_SPAN};
use crate::PAGE_SIZE;
use crate::lock::Mutex;
use crate::mm::Protection;
use core::ops::Range;
use core::ptr::NonNull;

struct SoftWindow {
    reservation: Reservation,
    memory: NonNull<u8>,
    present: Vec<u64>,
}

/// The soft page tables of a space.
pub struct SoftMmu {
    /// All windows; its lock protects their bits and bytes too.
    windows: Mutex<Vec<SoftWindow>>,
}

// SAFETY: the memory of the windows is reached through the lock only.
unsafe impl Send for SoftMmu {}
// SAFETY: as above.
unsafe impl Sync for SoftMmu {}

impl Default for SoftMmu {
    fn default() -> Self {
        Self::new()
    }
}

impl SoftMmu {
    /// No windows yet.
    pub fn new() -> Self {
        Self {
            windows: Mutex::new(Vec::new()),
        }
    }

    /// Pages present in all windows.
    pub fn present_pages(&self) -> usize {
        let windows = self.windows.lock();
        let bits = |window: &SoftWindow| -> usize {
            window.present.iter().map(|w| w.count_ones() as usize).sum()
        };
        windows.iter().map(bits).sum()
    }
}

impl SoftWindow {
    fn pages(&self, range: &Range<usize>) -> Range<usize> {
        let base = self.reservation.addr;
        (range.start - base) / PAGE_SIZE..(range.end - base).div_ceil(PAGE_SIZE)
    }

    fn is_present(&self, page: usize) -> bool {
        self.present[page / 64] >> (page % 64) & 1 != 0
    }

    fn set(&mut self, page: usize, present: bool) {
        let bit = 1 << (page % 64);
        match present {
            true => self.present[page / 64] |= bit,
            false => self.present[page / 64] &= !bit,
        }
    }

    fn address(&self, page: usize) -> *mut u8 {
        assert!(page * PAGE_SIZE < self.reservation.bytes);
        let base = self.reservation.addr - self.memory.as_ptr() as usize;
        // SAFETY: inside the window's memory, as just asserted.
        unsafe { self.memory.as_ptr().add(base + page * PAGE_SIZE) }
    }
}

fn find<'a>(windows: &'a mut [SoftWindow], range: &Range<usize>) -> Option<&'a mut SoftWindow> {
    windows.iter_mut().find(|window| {
        let all = window.reservation.range();
        all.start <= range.start && range.end <= all.end
    })
}

impl Mmu for SoftMmu {
    fn reserve(&self, bytes: usize, _protection: Protection) -> Result<Reservation, MmuError> {
        let bytes = bytes.next_multiple_of(PAGE_SIZE);
        let memory = sync::pages::map(bytes + TABLE_SPAN).ok_or(MmuError::NoMemory)?;
        let reservation = Reservation {
            addr: (memory.as_ptr() as usize).next_multiple_of(TABLE_SPAN),
            bytes,
            token: 0,
        };
        self.windows.lock().push(SoftWindow {
            reservation: reservation.clone(),
            memory,
            present: vec![0; (bytes / PAGE_SIZE).div_ceil(64)],
        });
        Ok(reservation)
    }

    fn release(&self, window: Reservation) {
        let mut windows = self.windows.lock();
        let place = windows
            .iter()
            .position(|other| other.reservation == window)
            .expect("a reservation is released once");
        let window = windows.swap_remove(place);
        // SAFETY: mapped in `reserve`, and no longer in the list.
        unsafe { sync::pages::unmap(window.memory, window.reservation.bytes + TABLE_SPAN) };
    }

    unsafe fn copy(
        &self,
        window: &Reservation,
        addr: usize,
        source: *const u8,
        bytes: usize,
    ) -> Result<(), MmuError> {
        let mut windows = self.windows.lock();
        let range = addr..addr + bytes;
        let window = find(&mut windows, &range)
            .filter(|found| found.reservation == *window)
            .ok_or(MmuError::Gone)?;
        for (place, page) in window.pages(&range).enumerate() {
            if !window.is_present(page) {
                // SAFETY: the caller vouches for the source; the target is a
                // page of the window, reached under the lock.
                unsafe {
                    core::ptr::copy_nonoverlapping(
                        source.add(place * PAGE_SIZE),
                        window.address(page),
                        PAGE_SIZE,
                    );
                }
                window.set(page, true);
            }
        }
        Ok(())
    }

    fn zero(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        let mut windows = self.windows.lock();
        let range = addr..addr + bytes;
        let window = find(&mut windows, &range)
            .filter(|found| found.reservation == *window)
            .ok_or(MmuError::Gone)?;
        for page in window.pages(&range) {
            if !window.is_present(page) {
                // SAFETY: a page of the window, reached under the lock.
                unsafe { window.address(page).write_bytes(0, PAGE_SIZE) };
                window.set(page, true);
            }
        }
        Ok(())
    }

    fn fill(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        self.zero(window, addr, bytes)
    }

    fn zap(&self, ranges: &[Range<usize>]) {
        let mut windows = self.windows.lock();
        for range in ranges {
            let window = find(&mut windows, range).expect("zapped ranges are reserved");
            for page in window.pages(range) {
                window.set(page, false);
            }
        }
    }

    unsafe fn read(&self, addr: usize, target: *mut u8, bytes: usize) -> bool {
        let mut windows = self.windows.lock();
        let range = addr..addr + bytes;
        let Some(window) = find(&mut windows, &range) else {
            return false;
        };
        if !window.pages(&range).all(|page| window.is_present(page)) {
            return false;
        }
        // SAFETY: present bytes of the window; the caller vouches for the
        // target.
        unsafe { core::ptr::copy_nonoverlapping(addr as *const u8, target, bytes) };
        true
    }
}
