//! A window's place is handed back to the program for good: from then on the kernel's own mappings are there, and
//! nothing of ours.
//!
//! ```text
//!   1  no new map finds the window
//!   2  mappings of the file, made by the kernel, in its place: a touch is served by whichever is there
//!   3  its pages are forgotten; those that are being read are waited for, and can be mapped no more
//!   4  its VMA goes: a fault that began before finds none, and the touch is made again
//!   5  the window goes, when the last fault that looked at it has
//! ```

use super::Files;
use crate::managed::Managed;
use crate::process::Process;
use crate::store::FileStore;
use core::ops::Range;
use softfault_engine::cache::PageCache;
use softfault_engine::mmu::MmuError;
use std::io;
use std::sync::Arc;

/// A mapping that the kernel makes in a window's place.
#[derive(Debug, Clone)]
pub(crate) struct KernelPart {
    /// Its addresses: whole pages. A page of it has the file's bytes at the window's offset of it.
    pub(crate) addresses: Range<usize>,
    /// As of `mmap(2)`.
    pub(crate) protection: i32,
    /// `MAP_SHARED` or `MAP_PRIVATE`.
    pub(crate) sharing: i32,
}

impl Files {
    /// True if a window can be handed back: the kernel can map its file.
    pub(crate) fn can_hand_back(&self, cache: &Arc<PageCache>) -> bool {
        let file = self.table().file_of(cache);
        cache.has_own_reservation() && file.is_some_and(|file| file.can_be_mapped())
    }

    /// Hands the window of a cache back: these parts of it are the kernel's mappings of the file, and the rest is
    /// unmapped. Only the caller maps it, and it does not use it from here on. Signals are masked.
    ///
    /// # Safety
    /// The addresses are the program's from now on.
    pub(crate) unsafe fn hand_back(
        &self,
        managed: &Managed,
        process: &Process,
        cache: Arc<PageCache>,
        parts: &[KernelPart],
    ) -> io::Result<()> {
        let file = self.table().hide(&cache);
        let file = file.ok_or(io::ErrorKind::Unsupported)?;
        let window = cache.addresses();
        let reservation = cache.reservation();
        // SAFETY: the caller's promise; the window has a reservation of its own.
        unsafe {
            process
                .mmu()
                .hand_back(reservation, || replace(&file, reservation.range(), parts))
        }
        .map_err(|error| crate::error::map(error.into()))?;
        cache.invalidate(window.clone());
        managed.unmap_window(window);
        let gone = self.table().take_out(&cache);
        drop(gone);
        // A fault that was under way looks at it still, and lets go: the last reference is dropped here, and not in a
        // handler.
        while Arc::strong_count(&cache) > 1 {
            std::thread::yield_now();
        }
        Ok(())
    }
}

fn replace(file: &FileStore, place: Range<usize>, parts: &[KernelPart]) -> Result<(), MmuError> {
    let file = file.in_table().ok_or(MmuError::NoMemory)?;
    let mut free = place.start;
    for part in parts {
        unmap(free..part.addresses.start);
        let args = [
            part.addresses.start,
            part.addresses.len(),
            part.protection as usize,
            (part.sharing | libc::MAP_FIXED | libc::MAP_NORESERVE) as usize,
            file.number() as usize,
            part.addresses.start - place.start,
        ];
        // SAFETY: in the place of a window, which is the caller's to give away.
        let mapped = unsafe { file.run(libc::SYS_mmap, args) };
        mapped.map_err(|errno| match errno {
            libc::ENOMEM => MmuError::NoMemory,
            errno => MmuError::System(errno),
        })?;
        free = part.addresses.end;
    }
    unmap(free..place.end);
    Ok(())
}

fn unmap(range: Range<usize>) {
    if !range.is_empty() {
        // SAFETY: a part of a window that nobody uses.
        unsafe { sync::kernel_calls::munmap(range.start as *mut libc::c_void, range.len()) };
    }
}
