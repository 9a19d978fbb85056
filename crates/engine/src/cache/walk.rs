//! Going over the folios of a range of addresses.

use super::folio::{BLOCK_BYTES, Folio};
use super::{FolioRef, PageCache};
use crate::PAGE_SIZE;
use core::ops::Range;

/// The blocks of a range, one after the other: or, of a range that has more blocks than there are folios, all folios, each
/// where it begins. Which of the two is decided once: slots for more folios may be made between two steps.
#[derive(Debug, Clone)]
pub(super) struct Walk {
    range: Range<usize>,
    by_block: bool,
    next: usize,
    steps: usize,
}

impl PageCache {
    /// A walk from the start.
    pub(super) fn walk(&self, range: Range<usize>) -> Walk {
        let first = range.start & !(BLOCK_BYTES - 1);
        let blocks = range.end.saturating_sub(first).div_ceil(BLOCK_BYTES);
        let folios = self.node.folios.len() as usize;
        Walk {
            by_block: blocks <= folios,
            next: 0,
            steps: blocks.min(folios),
            range,
        }
    }

    /// The next part of a block in which folios that are in the range may begin. A folio begins in one part only.
    pub(super) fn next_part(&self, walk: &mut Walk) -> Option<Range<usize>> {
        let first = walk.range.start & !(BLOCK_BYTES - 1);
        while walk.next < walk.steps {
            let step = walk.next;
            walk.next += 1;
            let part = match walk.by_block {
                true => {
                    let block = first + step * BLOCK_BYTES;
                    block..block + BLOCK_BYTES
                }
                false => {
                    let start = self.node.folios.get(step as u32).range().start;
                    start..start + PAGE_SIZE
                }
            };
            if first <= part.start && part.start < walk.range.end {
                return Some(part);
            }
        }
        None
    }

    /// The first folio that begins in a part of a block, has a page in the range and is `wanted`.
    pub(super) fn next_folio(
        &self,
        part: &Range<usize>,
        range: &Range<usize>,
        wanted: impl Fn(&Folio) -> bool,
    ) -> Option<FolioRef<'_>> {
        if part.is_empty() {
            return None;
        }
        let bucket = self.node.index.lock(part.start, &self.node.folios);
        let candidates = bucket.iter().filter(|folio| {
            let pages = folio.range();
            part.contains(&pages.start)
                && pages.start < range.end
                && range.start < pages.end
                && wanted(folio)
        });
        let folio = candidates.min_by_key(|folio| folio.range().start)?;
        bucket.get(folio);
        Some(FolioRef::new(&self.node, folio))
    }
}

impl Walk {
    /// The range that it goes over.
    pub(super) fn range(&self) -> &Range<usize> {
        &self.range
    }
}
