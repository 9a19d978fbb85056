//! The immediate effects of `madvise(2)` on private memory: giving pages up, or away.
//!
//! They take no lock of the address space while they are at work: pages are locked one
//! by one, as by reclaim. A page that is unmapped meanwhile is unmapped.

use crate::anon::Anonymous;
use crate::cache::reads::prefetch;
use crate::mm::{AddressSpace, MmError};
use crate::reclaim::anonymous::Taken;
use core::ops::Range;
use sync::Arc;

impl AddressSpace {
    /// The pages of `range` are not wanted any more (`MADV_DONTNEED`): they are zeros
    /// again, or as the file has them. Fails where a page is locked in memory.
    pub fn dont_need(&self, range: Range<usize>) -> Result<(), MmError> {
        self.for_private(&range, |anon, part| {
            if anon.has_locked(&part) {
                return Err(MmError::Locked);
            }
            anon.node.take_anonymous(anon, part, Taken::Forgotten);
            Ok(())
        })
    }

    /// The pages of `range` are not wanted any more unless they are written to again
    /// (`MADV_FREE`): until then they may become zeros at any time. Fails for private
    /// mappings of files, and where a page is locked in memory, as Linux does.
    pub fn free(&self, range: Range<usize>) -> Result<(), MmError> {
        self.for_private(&range, |anon, part| match anon.private_file() {
            Some(_) => Err(MmError::NotAnonymous),
            None if anon.has_locked(&part) => Err(MmError::Locked),
            None => {
                anon.free(part);
                Ok(())
            }
        })
    }

    /// The pages of `range` go before others do (`MADV_COLD`).
    pub fn cold(&self, range: Range<usize>) -> Result<(), MmError> {
        self.for_private(&range, |anon, part| {
            anon.cold(part);
            Ok(())
        })
    }

    /// The pages of `range` go to swap now (`MADV_PAGEOUT`), as far as there is room.
    pub fn page_out(&self, range: Range<usize>) -> Result<(), MmError> {
        self.for_private(&range, |anon, part| {
            anon.node.take_anonymous(anon, part, Taken::Evicted);
            Ok(())
        })
    }

    /// Starts to read the pages of `range` that are in swap, or in a file (`MADV_WILLNEED`), as far
    /// as spare frames allow.
    pub fn will_need(&self, range: Range<usize>) -> Result<(), MmError> {
        self.for_private(&range, |anon, part| {
            if let Some(cache) = &anon.swap_cache {
                prefetch(cache.cache(), part);
            }
            Ok(())
        })
    }

    /// Calls `f` with each piece of private memory that is mapped in `range`, by its
    /// window's addresses; files are passed over. Fails, at the end, if the range has a
    /// hole.
    fn for_private(
        &self,
        range: &Range<usize>,
        f: impl Fn(&Arc<Anonymous>, Range<usize>) -> Result<(), MmError>,
    ) -> Result<(), MmError> {
        let mut done = Ok(());
        let mut at = range.start;
        while at < range.end {
            let Ok(vma) = self.lock_vma_or_mmap_lock(at) else {
                done = done.and(Err(MmError::Unmapped));
                match self.next_mapped(at) {
                    Some(next) => at = next,
                    None => break,
                }
                continue;
            };
            let part = at..vma.vma().end().min(range.end);
            let distance = at - vma.vma().start();
            let piece = vma.with(|attributes| {
                let anon = Anonymous::shown(&attributes.backing)?;
                let start = anon.window.address(attributes.pgoff, distance);
                Some((anon.clone(), start..start + part.len()))
            });
            // The VMA lock is not held over I/O: the reference keeps the memory.
            drop(vma);
            if let Some((anon, piece)) = piece {
                done = done.and(f(&anon, piece));
            }
            at = part.end;
        }
        done
    }
}
