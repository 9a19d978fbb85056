//! Whole pages that a call writes to a file's window, and that are not in memory: the old bytes are not read, no frame is
//! taken, and the pages of a block are mapped in one go.

use super::map::Refused;
use super::miss::HEADROOM;
use crate::PAGE_SIZE;
use crate::budget::Need;
use crate::cache::PageCache;
use crate::cache::folio::{BLOCK_BYTES, flag};
use crate::cache::node::FrameUse;
use crate::cache::reads::read;
use core::ops::Range;
use core::ptr::slice_from_raw_parts;
use sync::Arc;

/// Attempts on a block, for each of which room is made. After that faults write it: they wait for memory.
const ATTEMPTS: usize = 8;

/// Bytes of the pages from `addr` on that nobody has in memory: `most` at most, of one block.
pub fn absent_from(cache: &PageCache, addr: usize, most: usize) -> usize {
    let block = addr & !(BLOCK_BYTES - 1);
    let most = addr..(addr + most).min(block + BLOCK_BYTES);
    cache.absent_around(addr, most).len()
}

/// Writes `bytes`, whole pages, to `addr` on, up to the first page that is in memory, or on its way there, or has to be waited for; returns
/// how many bytes it has written. The caller writes the rest by faults.
///
/// # Safety
/// The bytes can be read. Where calls that read a missing page wait ([`calls_wait`](crate::Mmu::calls_wait)) none of these is served by a
/// fault: this has pages locked meanwhile, and the fault may wait for a thread that waits for one of them. The caller keeps the window mapped, and has no lock.
pub unsafe fn write_whole(cache: &Arc<PageCache>, addr: usize, bytes: *const [u8]) -> usize {
    debug_assert!(addr.is_multiple_of(PAGE_SIZE));
    // The file's last page, which is partly behind the end, is left to faults; so are pages that others have cut off: a fault says so.
    let known = cache.store.len().map_or(0, |now| now.min(cache.end()));
    let end = cache.addresses().start + known as usize / PAGE_SIZE * PAGE_SIZE;
    let end = end.min(addr + bytes.len() / PAGE_SIZE * PAGE_SIZE);
    let mut at = addr;
    while at < end {
        let part = at..at + absent_from(cache, at, end - at);
        if part.is_empty() {
            break;
        }
        let from = bytes.cast::<u8>().wrapping_add(at - addr);
        // SAFETY: from the part's bytes on, which can be read, as the caller says.
        if !unsafe { write_with_room(cache, &part, from) } {
            break;
        }
        at = part.end;
    }
    at - addr
}

/// Writes pages of one block, none of which was cached a moment ago. False if that cannot be done at once.
///
/// # Safety
/// As many bytes as the part has can be read from `from` on. The part lies in the window, which stays mapped.
unsafe fn write_with_room(cache: &PageCache, part: &Range<usize>, from: *const u8) -> bool {
    for _ in 0..ATTEMPTS {
        // SAFETY: the caller vouches for it.
        match unsafe { write_part(cache, part, from) } {
            Ok(()) => return true,
            Err(Some(need)) => cache.node.make_room(need),
            Err(None) => return false,
        };
    }
    false
}

/// The same, if there is room; otherwise the need that there is no room for, if that is the reason.
///
/// # Safety
/// As for [`write_with_room`].
unsafe fn write_part(
    cache: &PageCache,
    part: &Range<usize>,
    from: *const u8,
) -> Result<(), Option<Need>> {
    let node = &cache.node;
    let writes = cache.writes.as_ref().ok_or(None)?;
    for page in part.clone().step_by(PAGE_SIZE) {
        if !cache.is_reserved(page) {
            // If it cannot be, the fault says why.
            let reserved = writes.to().reserve(cache.offset(page));
            reserved.map_err(|_| None)?;
        }
    }
    let room = Some(Need::Pages(HEADROOM));
    if !node.budget.has_free(HEADROOM as u64 + cache.floor()) {
        return Err(room);
    }
    if !node.may_dirty() {
        return Err(Some(Need::Clean));
    }
    let pages = part.len() / PAGE_SIZE;
    let folio = node.alloc_folio(cache, part.start, pages, FrameUse::Hole);
    let folio = folio.map_err(Some)?;
    // Locked since it was made: nobody takes a page of it for mapped before all is done.
    let Some(held) = cache.insert(folio) else {
        node.abandon(folio);
        return Err(None);
    };
    if let Err(refused) = cache.enter(part.start, pages, 0) {
        read::discard(node, cache, &held);
        return Err(room.filter(|_| matches!(refused, Refused::Memory)));
    }
    held.change(flag::UPTODATE, 0);
    // They are protected: where some cannot be mapped, nobody has written to the others meanwhile.
    let to = (cache.window.reservation(), part.start);
    let of = slice_from_raw_parts(from, part.len());
    // SAFETY: the bytes can be read, and the part lies in the window, as the caller says.
    if unsafe { node.mmu.copy_absent(to, of) }.is_err() {
        cache.leave(part.start, pages);
        node.budget.uncharge(pages as u64);
        read::discard(node, cache, &held);
        return Err(None);
    }
    cache.begin_dirty(&held, part.clone());
    held.change(flag::MAPPED, 0);
    node.lru.lists.add(&node.folios, &held);
    held.unlock();
    Ok(())
}
