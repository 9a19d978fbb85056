//! Address space for windows: reserved, and given back.

use super::mmu::{UffdMmu, system};
use core::ops::Range;
use libc::c_void;
use softfault_engine::mmu::{MmuError, TABLE_SPAN};

/// Places that are looked at for a window before there is said to be none.
const PLACES: usize = 8;

impl UffdMmu {
    /// Reserves `bytes` at a multiple of a page table's span, inaccessible, where no other window's addresses are.
    ///
    /// The kernel may offer some of another's: those of a part that was given to the program, and that the kernel has moved
    /// away (`mremap(2)`) or unmapped since.
    pub(super) fn map_apart(&self, bytes: usize) -> Result<usize, MmuError> {
        // They are kept meanwhile, so that the kernel offers others.
        let mut others = Vec::new();
        let found = loop {
            // The more at once, the sooner it is larger than the place of such a part.
            let most = bytes.saturating_mul(1 << (2 * others.len()));
            let start = match aligned(most) {
                Ok(start) => start,
                Err(error) => break Err(error),
            };
            unmap(start + bytes..start + most);
            let range = start..start + bytes;
            match self.is_apart(&range) {
                Ok(()) => break Ok(start),
                Err(error) => {
                    others.push(range);
                    if others.len() == PLACES {
                        break Err(error);
                    }
                }
            }
        };
        others.into_iter().for_each(unmap);
        found
    }

    /// An error if addresses of a window are in a range: each address is one window's at most.
    pub(super) fn is_apart(&self, range: &Range<usize>) -> Result<(), MmuError> {
        let windows = self.windows();
        let below = windows.range(..range.end).next_back();
        match below.is_some_and(|(_, &(end, _))| end > range.start) {
            true => Err(system(libc::EEXIST)),
            false => Ok(()),
        }
    }
}

/// Reserves `bytes` at a multiple of a page table's span, inaccessible.
fn aligned(bytes: usize) -> Result<usize, MmuError> {
    let plain = inaccessible(bytes)?;
    if plain.is_multiple_of(TABLE_SPAN) {
        return Ok(plain);
    }
    unmap(plain..plain + bytes);
    let wide = inaccessible(bytes + TABLE_SPAN)?;
    let start = wide.next_multiple_of(TABLE_SPAN);
    unmap(wide..start);
    unmap(start + bytes..wide + bytes + TABLE_SPAN);
    Ok(start)
}

/// Reserves address space that cannot be accessed; the address of its first byte.
fn inaccessible(bytes: usize) -> Result<usize, MmuError> {
    match sync::pages::reserve(bytes) {
        Ok(addr) => Ok(addr.as_ptr() as usize),
        // `mlockall(MCL_FUTURE)`, and its limit is used up.
        Err(libc::EAGAIN) => Err(system(libc::EAGAIN)),
        Err(_) => Err(MmuError::NoMemory),
    }
}

/// Takes a mapping away. Where the kernel refuses to cut it out of a larger one, since the process has as many mappings as it may
/// have, its pages go, and its addresses stay reserved: the kernel would not let us close them either.
pub(super) fn unmap(range: Range<usize>) {
    if range.is_empty() {
        return;
    }
    let (start, bytes) = (range.start as *mut c_void, range.len());
    // SAFETY: a part of a mapping that was just made and is not used, or of a window that nobody looks at any more.
    unsafe {
        if sync::kernel_calls::munmap(start, bytes) < 0
            && sync::kernel_calls::madvise(start, bytes, libc::MADV_DONTNEED) < 0
        {
            sync::kernel_calls::madvise(start, bytes, libc::MADV_DONTNEED_LOCKED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::in_child::{check, forked};
    use softfault_engine::PAGE_SIZE;

    /// Failed before: the pages stayed in memory, and nobody knew of them.
    #[test]
    fn what_cannot_be_unmapped_has_no_memory() {
        forked(|| {
            let most = 1 << 20;
            let (Ok(start), Ok(others)) =
                (inaccessible(PAGE_SIZE << 4), inaccessible(most * PAGE_SIZE))
            else {
                return 1;
            };
            let open = |start: usize, bytes| {
                let flags = libc::PROT_READ | libc::PROT_WRITE;
                // SAFETY: a part of what was just mapped.
                unsafe { sync::kernel_calls::mprotect(start as *mut c_void, bytes, flags) == 0 }
            };
            check!(open(start, PAGE_SIZE << 4));
            let middle = (start + PAGE_SIZE) as *mut u8;
            // SAFETY: opened above.
            unsafe { middle.write(7) };
            let mut pages = (1..most).step_by(2);
            check!(!pages.all(|page| open(others + page * PAGE_SIZE, PAGE_SIZE)));
            unmap(start + PAGE_SIZE..start + 2 * PAGE_SIZE);
            // SAFETY: it is still mapped, as there was no other way.
            check!(unsafe { middle.read_volatile() } == 0);
            0
        });
    }
}
