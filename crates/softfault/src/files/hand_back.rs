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
use softfault_engine::PAGE_SIZE;
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

    /// Puts the kernel's mappings of the file in the place of the window of a cache, at these parts of it, and unmaps the
    /// rest. [`forget_window`](Self::forget_window) has to follow. After an error the window stays, and no new map finds it: somebody may
    /// be about to write to the file. Signals are masked.
    ///
    /// # Safety
    /// Only the caller maps the window. The addresses are the program's from now on.
    pub(crate) unsafe fn replace_window(
        &self,
        process: &Process,
        cache: &Arc<PageCache>,
        parts: &[KernelPart],
    ) -> io::Result<()> {
        let hidden = self.table().hide(cache);
        let file = hidden.ok_or(io::ErrorKind::Unsupported)?;
        let reservation = cache.reservation();
        // SAFETY: the caller's promise; the window has a reservation of its own.
        let replaced = unsafe {
            process
                .mmu()
                .hand_back(reservation, || replace(&file, reservation.range(), parts))
        };
        replaced.map_err(|error| crate::error::map(error.into()))
    }

    /// Forgets a window in whose place are mappings of the kernel. Signals are masked.
    pub(crate) fn forget_window(&self, managed: &Managed, cache: Arc<PageCache>) {
        let window = cache.addresses();
        cache.invalidate(window.clone());
        managed.unmap_window(window);
        let gone = self.table().take_out(&cache);
        drop(gone);
        // A fault that was under way looks at it still, and lets go: the last reference is dropped here, and not in a
        // handler.
        while Arc::strong_count(&cache) > 1 {
            std::thread::yield_now();
        }
    }
}

/// One call replaces the window, from the first part to the last, so that a call that is refused has replaced nothing.
fn replace(file: &FileStore, place: Range<usize>, parts: &[KernelPart]) -> Result<(), MmuError> {
    let file = file.in_table().ok_or(MmuError::NoMemory)?;
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        unmap(place);
        return Ok(());
    };
    let map = |addresses: Range<usize>, part: &KernelPart, flags: i32| {
        let args = [
            addresses.start,
            addresses.len(),
            part.protection as usize,
            (flags | libc::MAP_NORESERVE) as usize,
            file.number() as usize,
            part.addresses.start - place.start,
        ];
        // SAFETY: at an address of the kernel's choice, or in the place of a window, which is the caller's to give away.
        let mapped = unsafe { file.run(libc::SYS_mmap, args) };
        mapped.map_err(|errno| match errno {
            libc::ENOMEM => MmuError::NoMemory,
            errno => MmuError::System(errno),
        })
    };
    // mmap(2) has dropped already what was there when it asks the file: it is asked first, by a page elsewhere. All other
    // reasons to refuse are looked at before.
    let elsewhere = map(0..PAGE_SIZE, first, first.sharing)?;
    unmap(elsewhere..elsewhere + PAGE_SIZE);
    // A page of a private mapping that nobody wrote to is the file's, as one of a shared mapping.
    let is_private = |part: &&KernelPart| part.sharing == libc::MAP_PRIVATE;
    let whole = parts.iter().find(is_private).unwrap_or(first);
    let whole = KernelPart {
        addresses: first.addresses.start..last.addresses.end,
        ..whole.clone()
    };
    map(
        whole.addresses.clone(),
        &whole,
        whole.sharing | libc::MAP_FIXED,
    )?;
    let mut free = place.start;
    for part in parts {
        if (part.sharing, part.protection) != (whole.sharing, whole.protection) {
            // Too many mappings, or no memory: it stays as the others are.
            let _ = map(part.addresses.clone(), part, part.sharing | libc::MAP_FIXED);
        }
        unmap(free..part.addresses.start);
        free = part.addresses.end;
    }
    unmap(free..place.end);
    Ok(())
}

/// Refused where the process has as many mappings as it may have: then the whole mapping stays there, as nothing else can be put there.
fn unmap(range: Range<usize>) {
    if !range.is_empty() {
        // SAFETY: a part of a window that nobody uses, or just mapped.
        unsafe { sync::kernel_calls::munmap(range.start as *mut libc::c_void, range.len()) };
    }
}
