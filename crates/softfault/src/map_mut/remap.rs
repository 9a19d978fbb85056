//! `mremap(2)`: maps that become longer or shorter.

use super::{MmapMut, MmapMutKind, make};
use crate::options::RemapOptions;
use std::io;

impl MmapMut {
    /// Lets the map have `new_len` bytes, from the same first one on. What it has stays,
    /// in memory or in swap, and none of it is copied; what is new is zeros, or what the
    /// file has there. As with mremap that goes by whole pages: what was written past `new_len` in
    /// its page is there again when the map grows, unless `new_len` is 0. An empty map grows into
    /// one of zeros.
    ///
    /// # Safety
    /// As for memmap2: bytes past `new_len` are not there any more, and all of it may be
    /// at another address.
    pub unsafe fn remap(&mut self, new_len: usize, options: RemapOptions) -> io::Result<()> {
        self.addresses(0..self.len)?;
        let managed = self.engine.inner.managed();
        let done = match &mut self.kind {
            MmapMutKind::Managed(private) => {
                let managed = managed.expect("a managed map");
                private.remap(managed, new_len, options.moves())
            }
            MmapMutKind::Writable(file) => file.remap(new_len),
            MmapMutKind::Kernel(map) => map.remap(new_len, options.moves()),
            MmapMutKind::Empty => {
                make::kind(&self.engine, new_len, None).map(|kind| self.kind = kind)
            }
        };
        // It may have moved and failed afterwards.
        self.set_place();
        done
    }
}
