//! Private memory that is handed over to somebody else where it is, with its bytes: the kernel's own from then on.
//!
//! ```text
//!   for each chunk
//!     1  pages whose bytes are nowhere else are brought in, and stay
//!     2  no fault is in progress, and nothing is evicted              mm/hand_over.rs
//!     3  something of it has gone again, or has come: from 1 on
//!     4  given: from here on it is not the memory's
//!     5  counted out, and paid back
//! ```
//!
//! So no more than a chunk has to be in memory at a time, and after a failure each page is either the memory's, as it
//! was, or has been given.

use crate::PAGE_SIZE;
use crate::anon::Anonymous;
use crate::fault::{FaultError, NeverInterrupted, Populated, lock};
use crate::mm::{AddressSpace, MmError};
use crate::mmu::MmuError;
use core::ops::Range;
use sync::Arc;

/// Pages of a chunk that have to be in memory at the same time. Half of the least budget has room for them.
const CHUNK: usize = 64;
/// How often a chunk is begun again: other threads touch it, or memory is so short that others' reads take it away.
const TRIES: usize = 1000;

/// Takes a chunk, and where in it the bytes are that are nowhere else.
pub type HandOverFn<'a> = dyn FnMut(Range<usize>, &[Range<usize>]) -> Result<(), MmuError> + 'a;

/// Why memory is still where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotHandedOver {
    /// A page cannot be brought in.
    Fault(FaultError),
    /// It is not mapped, or no VMA is left.
    Mappings(MmError),
    /// It was not taken.
    Mmu(MmuError),
    /// Other threads have changed it again and again.
    Changed,
}

impl From<MmError> for NotHandedOver {
    fn from(error: MmError) -> Self {
        Self::Mappings(error)
    }
}

/// Hands `range`, which shows private memory, over, from its front on. `give` gets chunks of it, and where in each the
/// bytes are that are nowhere else. They are present, and protected if `protect`, where the page tables can: a thread that writes to
/// them meanwhile does so after `give` has answered. After an error the first address that was not given; pages from there on may stay
/// ([`lock`]), and the caller lets those go that nobody else keeps.
///
/// Windows are where their VMAs are: not for page tables of our own.
pub fn hand_over(
    space: &AddressSpace,
    range: Range<usize>,
    protect: bool,
    give: &mut HandOverFn<'_>,
) -> Result<(), (usize, NotHandedOver)> {
    let mut at = range.start;
    while at < range.end {
        let unmapped = (at, NotHandedOver::Mappings(MmError::Unmapped));
        let (anon, piece) = space.private_piece(at..range.end).ok_or(unmapped)?;
        let chunk = at..anon.end_of_chunk(piece);
        let mut tries = 0;
        loop {
            let given = bring_in(space, &anon, &chunk)
                .and_then(|()| hand_over_chunk(space, &anon, &chunk, protect, give));
            match given {
                Ok(()) => break,
                Err(NotHandedOver::Changed) if tries < TRIES => tries += 1,
                Err(error) => return Err((at, error)),
            }
        }
        at = chunk.end;
    }
    Ok(())
}

/// Brings in the pages of a chunk that are to be handed over. They stay until then.
fn bring_in(
    space: &AddressSpace,
    anon: &Anonymous,
    chunk: &Range<usize>,
) -> Result<(), NotHandedOver> {
    for part in anon.own_pages(chunk).0 {
        if let Populated::Failed(_, error) = lock(space, part, false, &NeverInterrupted) {
            return Err(NotHandedOver::Fault(error));
        }
    }
    Ok(())
}

fn hand_over_chunk(
    space: &AddressSpace,
    anon: &Anonymous,
    chunk: &Range<usize>,
    protect: bool,
    give: &mut HandOverFn<'_>,
) -> Result<(), NotHandedOver> {
    let mut stopped = None;
    let given = space.hand_over(chunk, || {
        // Until it is counted out: evictions under way zap their pages.
        stopped = Some(anon.node.stop_eviction());
        let (own, is_present) = anon.own_pages(chunk);
        if !is_present {
            return Err(NotHandedOver::Changed);
        }
        if protect && anon.node.mmu.can_protect() && !own.is_empty() {
            anon.node.mmu.protect(&own);
        }
        give(chunk.clone(), &own).map_err(NotHandedOver::Mmu)
    });
    drop(stopped);
    given
}

impl AddressSpace {
    /// The private memory that is shown where a range begins, and how much of the range shows it in one piece.
    fn private_piece(&self, range: Range<usize>) -> Option<(Arc<Anonymous>, Range<usize>)> {
        let vma = self.lock_vma_or_mmap_lock(range.start).ok()?;
        let end = vma.vma().end().min(range.end);
        let anon = vma.with(|attributes| Anonymous::shown(&attributes.backing).cloned());
        Some((anon?, range.start..end))
    }
}

impl Anonymous {
    /// True if a page has bytes that are nowhere else, and whether they are in memory.
    fn is_own(&self, page: usize) -> (bool, bool) {
        let state = self.pages.state(page);
        let is_changed = !state.is_clean() || self.pages.slot(page).is_some();
        // In memory of a file, unchanged pages are the file's.
        let is_own = match self.private_file() {
            Some(_) => !state.is_absent() && is_changed,
            None => !state.is_absent(),
        };
        (is_own, state.is_resident())
    }

    /// The pages of a range that have bytes which are nowhere else, and whether all of these are in memory. Exact while no
    /// fault is in progress and nothing is evicted.
    fn own_pages(&self, range: &Range<usize>) -> (Vec<Range<usize>>, bool) {
        let pages = self.page_range(range);
        let mut own: Vec<Range<usize>> = Vec::new();
        let mut all_present = true;
        let mut next = self.pages.next_used(pages.start);
        while next < pages.end {
            let (is_own, is_present) = self.is_own(next);
            if is_own {
                all_present &= is_present;
                let addr = self.window.address(next as u64, 0);
                match own.last_mut() {
                    Some(last) if last.end == addr => last.end += PAGE_SIZE,
                    _ => own.push(addr..addr + PAGE_SIZE),
                }
            }
            next = self.pages.next_used(next + 1);
        }
        (own, all_present)
    }

    /// Where a chunk ends that begins where a range does.
    fn end_of_chunk(&self, range: Range<usize>) -> usize {
        let pages = self.page_range(&range);
        let mut own = 0;
        let mut next = self.pages.next_used(pages.start);
        while next < pages.end {
            own += usize::from(self.is_own(next).0);
            if own > CHUNK {
                return self.window.address(next as u64, 0);
            }
            next = self.pages.next_used(next + 1);
        }
        range.end
    }
}
