//! mremap(2).

use crate::access::{PAGE_SIZE, pages, whole_pages};
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps::{self, NotMapped, Part, Taken};
use core::ffi::{c_int, c_void};
use core::ops::Range;
use softfault::RemapOptions;

/// Makes a map longer or shorter; mremap(2), without its fifth argument.
///
/// Pages of the map stay in memory or in swap, and are not copied; new pages are zeros, or have the file's
/// bytes. A part of a private map that grows becomes a map of its own, at another address; its pages in memory or in swap
/// are copied then. A read-only shared map of a file can grow to the end that the file had when it was mapped first, and keeps its address; a part of it cannot grow.
///
/// old_address and old_size are those of the map, or of a part of it, in whole pages; sizes of a map of huge pages are rounded up
/// to whole ones, and it cannot grow (EINVAL). flags is 0, or MREMAP_MAYMOVE: the map may move if
/// there is no room at its address. Locks move with it.
///
/// Returns the address, or MAP_FAILED with errno:
///   EBUSY       pages of the map are pinned (of a part that gets shorter: pages that would go and that no other map shows), or
///               another call uses it
///   EFAULT      some of the old pages are not mapped by softfault; or the range would grow, and softfault_mprotect has
///               made only some of its pages writable
///   EINVAL      old_address is no multiple of the page size (of a map of huge pages: of theirs), a size is 0, flags has
///               unknown bits, the new range would end past the end of a shared file, or a map of huge pages would grow
///   ENOMEM      the map cannot grow at its address, or there is no address space, or the budget has no room for the move
///   EOPNOTSUPP  MREMAP_FIXED or MREMAP_DONTUNMAP; or growing several maps, a part of a shared map of a file, or a part
///               of a map that the kernel serves
///   ENOTRECOVERABLE  the map has moved to an unknown address, and could not be moved back
/// After every other error the map is unchanged.
///
/// Several threads may call this at the same time, for different maps. If another thread calls a function on the map
/// meanwhile, this call fails with EBUSY, or the other one fails with ENOMEM.
///
/// # Safety
/// Nobody uses the pages that go, nor the map by its old address if it moves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softfault_mremap(
    old_address: *mut c_void,
    old_size: usize,
    new_size: usize,
    flags: c_int,
) -> *mut c_void {
    answer(libc::MAP_FAILED, || {
        const KNOWN: c_int = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        let unknown = flags & !KNOWN;
        if unknown != 0 {
            return Err(Failure::unknown_bits(unknown));
        }
        if flags & libc::MREMAP_MAYMOVE != flags {
            return Err(Failure::unsupported(
                "MREMAP_FIXED and MREMAP_DONTUNMAP are not supported: the engine chooses the new address",
            ));
        }
        for (name, size) in [("old_size", old_size), ("new_size", new_size)] {
            if size == 0 {
                return Err(Failure::invalid(format!("{name} is 0")));
            }
        }
        let (old_size, new_size) = whole_huge_pages(old_address, (old_size, new_size))?;
        let old = pages(old_address, old_size)?;
        let new = pages(old_address, new_size)?;
        let parts = Part::of(&old).map_err(|NotMapped| not_mapped())?;
        if new == old {
            return Ok(old_address);
        }
        if new.end > old.end && parts[0].map.page_size() > PAGE_SIZE {
            return Err(Failure::invalid("a map of huge pages cannot grow"));
        }
        let are_alike = parts.iter().all(|part| part.access == parts[0].access);
        drop(parts);
        // Of several maps of the same pages, the one that can be written to grows, and one that only reads shrinks: the first can do all
        // that the other could.
        let grows = new.end > old.end;
        if !maps::is_one_map(&old, grows) {
            if grows {
                if !are_alike {
                    let text = "some of the old pages are writable, and some are read-only";
                    return Err(Failure::new(libc::EFAULT, text));
                }
                return grow_part(&old, new_size, flags & libc::MREMAP_MAYMOVE != 0);
            }
            let gone = new.end..old.end;
            for part in Part::of(&gone).map_err(|NotMapped| not_mapped())? {
                maps::locked_unpinned(&part.range)?;
            }
            maps::unmap(&gone).map_err(|NotMapped| not_mapped())?;
            return Ok(old_address);
        }
        let mut taken = Taken::of(&old, grows)?;
        if let Err(error) = taken.know_access() {
            taken.enter(None);
            return Err(error.into());
        }
        let options = RemapOptions::new().may_move(flags & libc::MREMAP_MAYMOVE != 0);
        // A window that is only read ends with its file; its last page is mapped all the same.
        let bytes = match (
            taken.made.shared && !taken.made.writable,
            taken.map.longest(),
        ) {
            (true, Some(longest)) if new_size <= whole_pages(longest) => {
                whole_pages(new_size).min(longest)
            }
            _ => whole_pages(new_size),
        };
        // SAFETY: the caller has the map to itself, and nobody finds it.
        let remapped = unsafe { taken.map.remap(bytes, options) };
        let asked = remapped.is_ok().then_some(new_size);
        let now = taken.enter(asked) as *mut c_void;
        match remapped {
            Ok(()) => Ok(now),
            Err(_) if now != old_address => Err(Failure::new(
                libc::ENOTRECOVERABLE,
                "the map has moved to an unknown address, and could not be moved back",
            )),
            Err(error) => Err(error.into()),
        }
    })
}

/// A part of a map that grows.
fn grow_part(old: &Range<usize>, new_size: usize, may_move: bool) -> Result<*mut c_void, Failure> {
    let parts = Part::of(old).map_err(|NotMapped| not_mapped())?;
    let [part] = &parts[..] else {
        return Err(Failure::unsupported("several maps cannot grow in one call"));
    };
    let access = part.access;
    if access.shared || !part.map.is_managed() {
        let text =
            "a part of a shared map of a file, or of a map that the kernel serves, cannot grow";
        return Err(Failure::unsupported(text));
    }
    if !may_move {
        let text = "a part of a map cannot grow at its address: allow it to move (MREMAP_MAYMOVE)";
        return Err(Failure::new(libc::ENOMEM, text));
    }
    let locked = maps::locked_unpinned(old)?;
    let mut anew = part
        .map
        .copy_part_to_new_map(part.offsets(), whole_pages(new_size))?;
    if !access.writable {
        anew.protect(false)?;
    }
    let start = maps::enter(anew, new_size, access);
    // Parts that were unmapped meanwhile are gone already.
    let _ = maps::unmap(old);
    let moved =
        |range: Range<usize>| start + (range.start - old.start)..start + (range.end - old.start);
    maps::lock_again(&locked.into_iter().map(moved).collect::<Vec<_>>());
    Ok(start as *mut c_void)
}

/// The lengths, of a map of huge pages in whole ones.
fn whole_huge_pages(at: *mut c_void, sizes: (usize, usize)) -> Result<(usize, usize), Failure> {
    let page = maps::page_size(at as usize);
    if page == PAGE_SIZE {
        return Ok(sizes);
    }
    let whole = |size: usize| size.checked_next_multiple_of(page);
    let whole = whole(sizes.0).zip(whole(sizes.1));
    let whole = whole.filter(|_| (at as usize).is_multiple_of(page));
    whole.ok_or_else(|| Failure::invalid("the address is not a multiple of the huge page"))
}

fn not_mapped() -> Failure {
    let text = "the old range has addresses that softfault has not mapped";
    Failure::new(libc::EFAULT, text)
}
