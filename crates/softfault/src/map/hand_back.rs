//! Handing a map's addresses back to the program: the kernel serves them from then on. For callers that took over
//! the program's own mappings.

use super::{Mmap, MmapKind};
use crate::files::{Hold, KernelPart};
use crate::{process, signal};
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use std::io;

/// The kernel's mapping that replaces a map.
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

/// A window that could not be handed back: the kernel refused its own mapping, since there would be too many, or too much
/// memory would be locked (`mlockall(2)` with `MCL_FUTURE`).
#[derive(Debug)]
#[doc(hidden)]
pub struct NotHandedBack {
    /// The kernel's reason.
    pub error: io::Error,
    /// The maps, as they were.
    pub maps: Vec<Mmap>,
}

impl Mmap {
    /// The window of the file, if the engine serves the map: all maps of the file are parts of the window.
    #[doc(hidden)]
    pub fn window(&self) -> Option<Range<usize>> {
        match self.kind() {
            MmapKind::Managed(file) => Some(file.cache().addresses()),
            _ => None,
        }
    }

    /// Whether children of fork get the window as a private mapping of the kernel. By default they get a shared
    /// mapping.
    #[doc(hidden)]
    pub fn allow_inherit_as_private(&self, private: bool) {
        if let MmapKind::Managed(file) = self.kind() {
            file.allow_inherit_as_private(private);
        }
    }

    /// True if the map's window can be handed back.
    #[doc(hidden)]
    pub fn can_be_handed_back(&self) -> bool {
        match self.kind() {
            MmapKind::Managed(file) => self.engine.inner.files.can_hand_back(file.cache()),
            _ => false,
        }
    }

    /// Hands the addresses of a window back to the program. `maps` are all maps of the window. The kernel maps the file
    /// at the places of `mappings`, which are sorted; the rest of the window is unmapped. Threads that read there
    /// meanwhile see the file's bytes. After an error all is as it was, and the maps come back.
    ///
    /// # Safety
    /// `maps` are all maps of the window, and nothing uses them any more.
    #[doc(hidden)]
    pub unsafe fn hand_back(
        maps: Vec<Self>,
        mappings: &[KernelMapping],
    ) -> Result<(), NotHandedBack> {
        let Some(first) = maps.first() else {
            return Ok(());
        };
        let engine = first.engine.clone();
        let _masked = signal::masked();
        // Nobody changes the server of a window whose place is the program's.
        let held = match first.kind() {
            MmapKind::Managed(file) if !engine.inner.is_parents() => Some(file.hold()),
            _ => None,
        };
        if held.as_ref().is_some_and(Hold::has_scan) {
            let error = io::ErrorKind::OutOfMemory.into();
            return Err(NotHandedBack { error, maps });
        }
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { first.replace_window(mappings) } {
            return Err(NotHandedBack { error, maps });
        }
        let mut caches = Vec::new();
        for mut map in maps {
            // Locked or pinned pages are not kept any more.
            let _ = map.unlock();
            match core::mem::replace(&mut map.kind, MmapKind::Empty) {
                MmapKind::Managed(file) => caches.push(file.into_cache()),
                other => map.kind = other,
            }
        }
        let last = caches.pop();
        drop(caches);
        if let (Some(cache), Some(managed)) = (last, engine.inner.managed()) {
            cache.forget_pins();
            engine.inner.files.forget_window(managed, cache);
        }
        Ok(())
    }

    /// Puts the kernel's mappings in the place of the window.
    ///
    /// # Safety
    /// As of [`hand_back`](Self::hand_back).
    unsafe fn replace_window(&self, mappings: &[KernelMapping]) -> io::Result<()> {
        let inner = &self.engine.inner;
        if inner.is_parents() {
            return Err(crate::FaultError::Forked.into());
        }
        let process = process::get().filter(|_| inner.managed().is_some());
        let (MmapKind::Managed(file), Some(process)) = (self.kind(), process) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let window = file.cache().addresses();
        let is_right = |mapping: &KernelMapping| {
            let Range { start, end } = mapping.addresses;
            let whole = start.is_multiple_of(PAGE_SIZE) && end.is_multiple_of(PAGE_SIZE);
            whole && window.start <= start && start < end && end <= window.end
        };
        let in_order = |pair: &[KernelMapping]| pair[0].addresses.end <= pair[1].addresses.start;
        if !mappings.iter().all(is_right) || !mappings.windows(2).all(in_order) {
            return Err(crate::FaultError::OutOfRange.into());
        }
        let parts = mappings.iter().map(|mapping| KernelPart {
            addresses: mapping.addresses.clone(),
            protection: mapping.protection,
            sharing: mapping.sharing,
        });
        let parts: Vec<_> = parts.collect();
        // SAFETY: the caller's promise.
        unsafe { inner.files.replace_window(process, file.cache(), &parts) }
    }
}
