//! Maps whose addresses become the program's own again, and the kernel's to serve. For those who take over what a
//! program has mapped by itself.

use super::{Mmap, MmapKind};
use crate::files::KernelPart;
use crate::{process, signal};
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use std::io;

/// What the kernel is to have in the place of a map.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct KernelMapping {
    /// Whole pages.
    pub addresses: Range<usize>,
    /// As of `mmap(2)`.
    pub protection: i32,
    /// `MAP_SHARED` or `MAP_PRIVATE`.
    pub sharing: i32,
}

impl Mmap {
    /// The window that shows the file of a map that the engine serves: its maps are parts of it.
    #[doc(hidden)]
    pub fn window(&self) -> Option<Range<usize>> {
        match self.kind() {
            MmapKind::Managed(file) => Some(file.cache().addresses()),
            _ => None,
        }
    }

    /// Whether children of fork have its window as a private mapping of the kernel's, or as a shared one, as they do
    /// otherwise.
    #[doc(hidden)]
    pub fn lend_as_private(&self, private: bool) {
        if let MmapKind::Managed(file) = self.kind() {
            file.lend_as_private(private);
        }
    }

    /// True if its window can be handed back.
    #[doc(hidden)]
    pub fn can_be_handed_back(&self) -> bool {
        match self.kind() {
            MmapKind::Managed(file) => self.engine.inner.files.can_hand_back(file.cache()),
            _ => false,
        }
    }

    /// Hands the addresses of a window back to the program: `maps` are all the maps of it, and where `mappings` are,
    /// sorted, the kernel maps the file from now on. The rest of the window is unmapped. Threads that read there
    /// meanwhile see the file's bytes. After an error the maps are leaked, and what is not replaced yet is served as
    /// it was.
    ///
    /// # Safety
    /// The maps are all that there are of the window, and nobody asks them for anything any more.
    #[doc(hidden)]
    pub unsafe fn hand_back(maps: Vec<Self>, mappings: &[KernelMapping]) -> io::Result<()> {
        let Some(first) = maps.first() else {
            return Ok(());
        };
        let engine = first.engine.clone();
        if engine.inner.is_parents() {
            return Err(crate::FaultError::Forked.into());
        }
        let window = first.window().ok_or(io::ErrorKind::Unsupported)?;
        let process = process::get().ok_or(io::ErrorKind::Unsupported)?;
        let is_right = |mapping: &KernelMapping| {
            let Range { start, end } = mapping.addresses;
            let whole = start.is_multiple_of(PAGE_SIZE) && end.is_multiple_of(PAGE_SIZE);
            whole && window.start <= start && start < end
        };
        if !mappings.iter().all(is_right) {
            return Err(crate::FaultError::OutOfRange.into());
        }
        let _masked = signal::masked();
        let mut caches = Vec::new();
        for mut map in maps {
            // What is locked or pinned is not kept any more.
            let _ = map.unlock();
            match core::mem::replace(&mut map.kind, MmapKind::Empty) {
                MmapKind::Managed(file) => caches.push(file.into_cache()),
                other => map.kind = other,
            }
        }
        let Some(cache) = caches.pop() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        drop(caches);
        cache.forget_pins();
        let parts = mappings.iter().map(|mapping| KernelPart {
            addresses: mapping.addresses.clone(),
            protection: mapping.protection,
            sharing: mapping.sharing,
        });
        let parts: Vec<_> = parts.collect();
        let managed = engine.inner.managed().ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the caller's promise.
        unsafe {
            engine
                .inner
                .files
                .hand_back(managed, process, cache, &parts)
        }
    }
}
