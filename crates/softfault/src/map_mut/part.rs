//! A part of a private map as a map of its own: `mremap(2)` that grows a part.

use super::{MmapMut, MmapMutKind};
use crate::private::{HoldFor, Private};
use crate::range::whole_pages;
use crate::signal;
use core::ops::Range;
use std::io;
use sync::bytes;

/// Bytes that are copied at a time.
const PIECE: usize = 64 << 10;

impl MmapMut {
    /// A map of `len` bytes that begins with the bytes of a part of this map. The part starts at a page. The new map has
    /// zeros, or the file's bytes, and a copy of the part's pages in memory or in swap. No thread may write to the part meanwhile.
    pub(crate) fn copy_part_to_new_map(&self, part: Range<usize>, len: usize) -> io::Result<Self> {
        let pages = whole_pages(&self.addresses(part)?);
        let MmapMutKind::Managed(private) = &self.kind else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let inner = &self.engine.inner;
        let anew = {
            let masked = signal::masked();
            inner.check_signals(&masked)?;
            let of = (self.managed(), &inner.files);
            Private::new(of, Some(&masked), len, private.file_from(pages.start))?
        };
        let anew = Self::new(&self.engine, MmapMutKind::Managed(anew));
        let mut copy = vec![0; PIECE.min(pages.len())];
        for touched in private.touched(&pages) {
            for at in touched.clone().step_by(PIECE) {
                let piece = at..touched.end.min(at + PIECE);
                let copy = &mut copy[..piece.len()];
                private.hold(self.managed(), piece.clone(), HoldFor::Reads)?;
                // Whole pages: behind the last byte of the map there may be others.
                // SAFETY: the pages are in memory, and stay as long as they are held; the buffer has as many bytes.
                unsafe { bytes::load(at as *const u8, copy.as_mut_ptr(), piece.len()) };
                private.release(self.managed(), piece);
                // SAFETY: a buffer of so many bytes; nobody knows of the map yet.
                unsafe { anew.copy_in((copy.as_ptr(), copy.len()), at - pages.start)? };
            }
        }
        Ok(anew)
    }
}
