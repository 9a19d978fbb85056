//! Memory by the page, zeroed when first touched, from the system and not
//! from the heap: it may be asked for inside the fault handler.

use core::ptr::NonNull;
use std::sync::Mutex;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Single pages that are kept for the next who asks.
const KEPT: usize = 64;

/// Single pages that were given back, zeroed. Tables of small windows come and
/// go with each mapping: four system calls, two faults and two TLB shootdowns a
/// round otherwise. Locked by trying only: the fault handler may come while
/// its own thread has the lock.
static SPARE: Mutex<Spare> = Mutex::new(Spare {
    pages: [core::ptr::null_mut(); KEPT],
    count: 0,
});

struct Spare {
    pages: [*mut u8; KEPT],
    count: usize,
}

// SAFETY: the pages are nobody's.
unsafe impl Send for Spare {}

/// Maps `bytes` of zeroed memory that costs nothing until touched. `None` when
/// the system has no more. A child process gets a copy, as of any other memory:
/// what it must not have, its owner keeps from it.
pub fn map(bytes: usize) -> Option<NonNull<u8>> {
    if bytes == PAGE
        && let Ok(mut spare) = SPARE.try_lock()
        && spare.count > 0
    {
        spare.count -= 1;
        return NonNull::new(spare.pages[spare.count]);
    }
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let addr = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if addr == libc::MAP_FAILED {
        None
    } else {
        NonNull::new(addr.cast())
    }
}

/// Gives memory from [`map`] back.
///
/// # Safety
/// `addr` and `bytes` are those of one `map`, and nothing uses it any more.
pub unsafe fn unmap(addr: NonNull<u8>, bytes: usize) {
    if bytes == PAGE
        && let Ok(mut spare) = SPARE.try_lock()
        && spare.count < KEPT
    {
        // SAFETY: a whole page, the caller's alone.
        unsafe { addr.write_bytes(0, PAGE) };
        let place = spare.count;
        spare.pages[place] = addr.as_ptr();
        spare.count += 1;
        return;
    }
    // SAFETY: the caller owns the whole mapping.
    unsafe { libc::munmap(addr.as_ptr().cast(), bytes) };
}

/// Gives the memory behind whole pages of a [`map`] back: they are zeros that cost
/// nothing until touched. False where it stays, as it is (locked pages, say).
///
/// # Safety
/// The pages are within one map, and nobody writes to them meanwhile.
pub unsafe fn discard(addr: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the caller owns the pages.
    unsafe { libc::madvise(addr.as_ptr().cast(), bytes, libc::MADV_DONTNEED) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_zeros_whoever_had_it() {
        for bytes in [PAGE, 3 * PAGE] {
            for _ in 0..2 * KEPT {
                let page = map(bytes).unwrap();
                // SAFETY: mapped, and ours.
                unsafe {
                    let all = core::slice::from_raw_parts_mut(page.as_ptr(), bytes);
                    assert!(all.iter().all(|&byte| byte == 0));
                    all.fill(7);
                    unmap(page, bytes);
                }
            }
        }
        let many: Vec<_> = (0..2 * KEPT).map(|_| map(PAGE).unwrap()).collect();
        for &page in &many {
            // SAFETY: as above.
            unsafe {
                assert!((0..PAGE).all(|at| page.add(at).read() == 0));
                page.write_bytes(9, PAGE);
            }
        }
        // SAFETY: as above.
        many.into_iter()
            .for_each(|page| unsafe { unmap(page, PAGE) });
    }
}
