//! Memory by the page, zeroed when first touched, from the system and not
//! from the heap: it may be asked for inside the fault handler.

use crate::errno::errno;
use crate::{PROCESSORS, cpu, kernel_calls};
use core::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

/// Bytes of a page.
const PAGE: usize = 4096;
/// Mappings of this many bytes or more are made so that neither `mlockall(MCL_FUTURE)` nor a touch fills more of them than
/// the touched page: tables that are sparse, or grow into what they have. Their owners charge them by the page.
const LARGE: usize = 256 << 10;
/// Single pages that are kept for the next caller, for each processor.
const KEPT: usize = 32;

/// Single pages that were given back, zeroed, by processor. Tables of small windows come and
/// go with each mapping: four system calls, two faults and two TLB shootdowns a
/// round otherwise. Locked by trying only: the fault handler may come while
/// its own thread has the lock.
static SPARE: [Spare; PROCESSORS] = [const { Spare(Mutex::new(Pages::NONE)) }; PROCESSORS];

#[repr(align(64))]
struct Spare(Mutex<Pages>);

impl Spare {
    /// Those of the caller's processor, unless somebody has them.
    fn try_lock() -> Option<MutexGuard<'static, Pages>> {
        SPARE[cpu() % PROCESSORS].0.try_lock().ok()
    }
}

struct Pages {
    pages: [*mut u8; KEPT],
    count: usize,
}

// SAFETY: the pages are nobody's.
unsafe impl Send for Pages {}

impl Pages {
    const NONE: Self = Self {
        pages: [core::ptr::null_mut(); KEPT],
        count: 0,
    };
}

/// Maps `bytes` of zeroed memory that costs nothing until touched, and a large one only by the touched page. `None` when
/// the system has no more. A child process gets a copy, as of any other memory:
/// its owner keeps from the child the pages that it must not have.
pub fn map(bytes: usize) -> Option<NonNull<u8>> {
    if bytes == PAGE
        && let Some(mut spare) = Spare::try_lock()
        && spare.count > 0
    {
        spare.count -= 1;
        return NonNull::new(spare.pages[spare.count]);
    }
    if bytes >= LARGE {
        let addr = inaccessible(bytes).ok()?;
        // Where transparent huge pages are always on, the first touch would fill 2 MiB. Kernels without them refuse the advice.
        // SAFETY: just mapped; changes no bytes.
        unsafe { kernel_calls::madvise(addr.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
        // SAFETY: all of the new mapping.
        if unsafe { open(addr, bytes) } {
            return Some(addr);
        }
        // SAFETY: as above; nobody knows it.
        unsafe { kernel_calls::munmap(addr.as_ptr().cast(), bytes) };
        return None;
    }
    anonymous(bytes, libc::PROT_READ | libc::PROT_WRITE).ok()
}

/// Reserves address space that nobody may touch before it is [opened](open). It is
/// neither filled nor locked where the program has called `mlockall(MCL_FUTURE)`: it
/// was inaccessible when it was mapped, and is unlocked before it is opened. A core dump
/// leaves it out, and the opened parts too: where the kernel joins it to a neighbour that has had
/// pages, all of it would be dumped otherwise, as zeros. The error
/// is an errno; EAGAIN says that not even a page may be locked any more.
pub fn reserve(bytes: usize) -> Result<NonNull<u8>, i32> {
    let addr = inaccessible(bytes)?;
    // SAFETY: just mapped; changes no bytes.
    unsafe { kernel_calls::madvise(addr.as_ptr().cast(), bytes, libc::MADV_DONTDUMP) };
    Ok(addr)
}

/// The same, which a core dump may have.
fn inaccessible(bytes: usize) -> Result<NonNull<u8>, i32> {
    match anonymous(bytes, libc::PROT_NONE) {
        Ok(addr) => {
            // SAFETY: just mapped; not to be locked is no loss of bytes.
            unsafe { kernel_calls::munlock(addr.as_ptr().cast(), bytes) };
            Ok(addr)
        }
        // Locked memory counts against RLIMIT_MEMLOCK when it is mapped: so one page
        // is mapped, which is unlocked, and grows. Unlocked memory counts for nothing.
        Err(libc::EAGAIN) if bytes > PAGE => {
            let page = anonymous(PAGE, libc::PROT_NONE)?;
            let first = page.as_ptr().cast();
            // SAFETY: just mapped, and nobody knows it.
            let grown = unsafe {
                kernel_calls::munlock(first, PAGE);
                kernel_calls::mremap(
                    first,
                    PAGE,
                    bytes,
                    libc::MREMAP_MAYMOVE,
                    core::ptr::null_mut(),
                )
            };
            if grown == libc::MAP_FAILED {
                let errno = errno();
                // SAFETY: as above.
                unsafe { kernel_calls::munmap(first, PAGE) };
                return Err(errno);
            }
            NonNull::new(grown.cast()).ok_or(libc::ENOMEM)
        }
        Err(errno) => Err(errno),
    }
}

/// Lets a part of [reserved](reserve) space be used: zeros. `false` where the system
/// has no memory, or no mapping, for it.
///
/// # Safety
/// The part is of one reservation, in whole pages.
pub unsafe fn open(addr: NonNull<u8>, bytes: usize) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller's promise.
    unsafe { kernel_calls::mprotect(addr.as_ptr().cast(), bytes, protection) == 0 }
}

/// A new anonymous mapping at an address of the kernel's choice, or an errno.
fn anonymous(bytes: usize, protection: i32) -> Result<NonNull<u8>, i32> {
    // SAFETY: a new mapping.
    let addr = unsafe {
        kernel_calls::mmap(
            core::ptr::null_mut(),
            bytes,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    match addr {
        libc::MAP_FAILED => Err(errno()),
        addr => NonNull::new(addr.cast()).ok_or(libc::ENOMEM),
    }
}

/// Gives memory from [`map`] or [`reserve`] back.
///
/// # Safety
/// `addr` and `bytes` are those of one call, and nothing uses it any more.
pub unsafe fn unmap(addr: NonNull<u8>, bytes: usize) {
    if bytes == PAGE
        && let Some(mut spare) = Spare::try_lock()
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
    unsafe { kernel_calls::munmap(addr.as_ptr().cast(), bytes) };
}

/// Gives the memory behind whole pages of a [`map`] back: they are zeros that cost
/// nothing until touched. False where it stays, as it is (locked pages, say).
///
/// # Safety
/// The pages are within one map, and nobody writes to them meanwhile.
pub unsafe fn discard(addr: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the caller owns the pages.
    unsafe { kernel_calls::madvise(addr.as_ptr().cast(), bytes, libc::MADV_DONTNEED) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_zeros_after_any_owner() {
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
    /// Failed before, where transparent huge pages are always on: a word of a table took 2 MiB.
    #[test]
    fn a_large_map_has_no_huge_pages() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            softfault_skip::skipped("kernel", "it has no transparent huge pages");
            return;
        }
        for bytes in [LARGE, 8 << 20] {
            let table = map(bytes).unwrap();
            assert!(vm_flags(table).split(' ').any(|flag| flag == "nh"));
            // SAFETY: mapped, and ours.
            unsafe { unmap(table, bytes) };
        }
    }

    /// The flags of the mapping at an address.
    fn vm_flags(at: NonNull<u8>) -> String {
        let is_in = |line: &str| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let number = |digits| usize::from_str_radix(digits, 16).ok();
            Some((number(start)?..number(end)?).contains(&(at.as_ptr() as usize)))
        };
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = smaps.lines().skip_while(|line| is_in(line) != Some(true));
        let flags = lines.find_map(|line| line.strip_prefix("VmFlags: "));
        flags.expect("a mapping").trim_end().to_owned()
    }
}
