//! The look at the next ranges: present pages are passed, reads of the others are started.
//!
//! One lock of a VMA serves all looks in it, of those that the cursor has taken over. The reads
//! are submitted under it, as a fault submits its read-ahead. The caller's memory is not touched.

use super::FaultIn;
use crate::PAGE_SIZE;
use crate::anon::Anonymous;
use crate::cache::PageCache;
use crate::cache::folio::BLOCK_BYTES;
use crate::cache::reads::ReadBatch;
use crate::mm::{AddressSpace, Attributes, VmaRead};
use core::ops::Range;
use sync::Arc;

/// The most bytes of one look: a thread that waits to change the VMA waits for so many.
const LOOK: usize = 64 * BLOCK_BYTES;

impl FaultIn {
    /// Goes on until enough is in the queue, or through the VMA, or the range that was taken over.
    pub(super) fn look(&mut self, space: &AddressSpace) {
        let Some(rest) = self.cursor.rest() else {
            return;
        };
        match space.lock_vma_or_mmap_lock(rest.start) {
            Ok(vma) => vma.with(|attributes| self.look_in(&vma, attributes)),
            Err(_) => {
                // The fault says why.
                let page = rest.start..rest.start + PAGE_SIZE;
                self.cursor.pass(page.end);
                self.pieces.push(page);
            }
        }
    }

    fn look_in(&mut self, vma: &VmaRead<'_>, attributes: &Attributes) {
        let mapped = vma.vma().start()..vma.vma().end();
        let cache = page_cache(attributes).filter(|_| self.waits);
        let mut reads = cache.map(|cache| ReadBatch::new(cache, 0));
        let mut left = LOOK;
        while left > 0
            && let Some(rest) = self.cursor.rest()
            && mapped.contains(&rest.start)
        {
            let part = rest.start..rest.end.min(mapped.end).min(rest.start + left);
            let present = present_in(
                attributes,
                part.start - mapped.start,
                part.len(),
                self.write,
            );
            if present > 0 {
                self.cursor.pass(part.start + present);
                left -= present;
                continue;
            }
            let (Some(cache), Some(reads)) = (cache, &mut reads) else {
                if self.pieces.is_full() {
                    break;
                }
                let piece = part.start..part.end.min(block_end(part.start));
                self.cursor.pass(piece.end);
                self.pieces.push(piece);
                continue;
            };
            let shown = cache
                .window
                .address(attributes.pgoff, part.start - mapped.start);
            let bytes = part.len().min(block_end(shown) - shown);
            let most = cache.node.readahead_frames() / 2;
            let is_alone = self.pieces.is_empty() && part.len() == bytes && self.cursor.is_last();
            if self.reads_alone && is_alone {
                self.cursor.pass(part.end);
                self.pieces.push(part);
                break;
            }
            let too_many = self.pieces.pages() + bytes / PAGE_SIZE > most;
            // Frames become spare once the pieces in the queue are mapped.
            let has_frames =
                !self.pieces.is_full() && !too_many && reads.add_absent(shown..shown + bytes);
            if !has_frames && !self.pieces.is_empty() {
                break;
            }
            self.cursor.pass(part.start + bytes);
            self.pieces.push(part.start..part.start + bytes);
        }
        if let Some(mut reads) = reads {
            reads.submit();
        }
    }
}

/// Bytes at the front of `range`, which begins in the VMA, that a touch would find.
pub(super) fn present(vma: &VmaRead<'_>, range: Range<usize>, write: bool) -> usize {
    let mapped = vma.vma().start()..vma.vma().end();
    let bytes = range.end.min(mapped.end) - range.start;
    vma.with(|attributes| present_in(attributes, range.start - mapped.start, bytes, write))
}

fn present_in(attributes: &Attributes, distance: usize, bytes: usize, write: bool) -> usize {
    match attributes.backing.ops() {
        Some(ops) if attributes.protection.allows(write) => {
            ops.present(attributes.pgoff, distance, bytes, write)
        }
        // The fault says why.
        _ => 0,
    }
}

/// The page cache that reads the pages of a VMA, if it has one.
fn page_cache(attributes: &Attributes) -> Option<&Arc<PageCache>> {
    let private = || Anonymous::shown(&attributes.backing)?.swap_cache.as_ref();
    PageCache::shown(&attributes.backing).or_else(|| Some(private()?.cache()))
}

fn block_end(addr: usize) -> usize {
    (addr & !(BLOCK_BYTES - 1)) + BLOCK_BYTES
}
