//! mremap(2).

use crate::access::pages;
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps::{self, NotMapped, Part, Taken};
use core::ffi::{c_int, c_void};
use core::ops::Range;
use softfault::RemapOptions;

/// Makes a map longer or shorter; mremap(2), without its fifth argument.
///
/// What the map has stays, in memory or in swap, and is not copied; what is new is zeros, or what the file has
/// there. A part of a private map that grows becomes a map of its own, elsewhere; what it has in memory or in swap is
/// copied then. A read-only map of a shared file can grow to the end of the file, and stays where it is; a part of it cannot.
///
/// old_address and old_size are the map's, in whole pages. flags is 0, or MREMAP_MAYMOVE: the map may move where its
/// place has no room. Locks go with it.
///
/// Returns the address, or MAP_FAILED with errno:
///   EBUSY       pages of the map are pinned, or another call uses it
///   EFAULT      some of the old pages are not mapped by softfault; or they are to grow, and by softfault_mprotect only some
///               of them may be written to
///   EINVAL      old_address is no multiple of the page size, a size is 0, flags has unknown bits, or a shared file
///               ends before
///   ENOMEM      it cannot grow where it is, or there is no address space, or the budget cannot hold the move
///   EOPNOTSUPP  MREMAP_FIXED, MREMAP_DONTUNMAP, or several maps, or a part of a map of a shared file or of one that the
///               kernel serves, are to grow
/// The map is as it was then, but that it may have moved to an address that nobody knows if moving it back failed,
/// which is said by ENOTRECOVERABLE.
///
/// Any threads may call this at the same time, of different maps. A call of another thread's on the map meanwhile
/// makes this fail with EBUSY, or fails with ENOMEM itself.
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
        if flags & !KNOWN != 0 {
            return Err(Failure::invalid("flags has unknown bits"));
        }
        if flags & libc::MREMAP_MAYMOVE != flags {
            return Err(Failure::unsupported("the engine says where a map moves to"));
        }
        if old_size == 0 || new_size == 0 {
            return Err(Failure::invalid("a size is 0"));
        }
        let old = pages(old_address, old_size)?;
        let new = pages(old_address, new_size)?;
        let parts = Part::of(&old).map_err(|NotMapped| not_mapped())?;
        if new == old {
            return Ok(old_address);
        }
        let is_one = parts.iter().all(|part| part.access == parts[0].access);
        if new.end > old.end && !is_one {
            let text = "some of the old pages may be written to, and some not";
            return Err(Failure::new(libc::EFAULT, text));
        }
        drop(parts);
        if !maps::is_one_map(&old) || !is_one {
            if new.end > old.end {
                return grow_part(&old, new_size, flags & libc::MREMAP_MAYMOVE != 0);
            }
            let gone = new.end..old.end;
            maps::unmap(&gone).map_err(|NotMapped| not_mapped())?;
            return Ok(old_address);
        }
        let mut taken = Taken::of(&old)?;
        if taken.access_changed {
            // What is new is to be as the rest.
            let known = taken.map.protect(taken.access.writable);
            if let Err(error) = known {
                taken.enter(None);
                return Err(error.into());
            }
        }
        let options = RemapOptions::new().may_move(flags & libc::MREMAP_MAYMOVE != 0);
        // SAFETY: the caller has the map to itself, and nobody finds it.
        let remapped = unsafe { taken.map.remap(new_size, options) };
        let asked = remapped.is_ok().then_some(new_size);
        let now = taken.enter(asked) as *mut c_void;
        match remapped {
            Ok(()) => Ok(now),
            Err(_) if now != old_address => Err(Failure::new(
                libc::ENOTRECOVERABLE,
                "the map has moved and could not be made as it was",
            )),
            Err(error) => Err(error.into()),
        }
    })
}

/// A part of a map that grows.
fn grow_part(old: &Range<usize>, new_size: usize, may_move: bool) -> Result<*mut c_void, Failure> {
    let parts = Part::of(old).map_err(|NotMapped| not_mapped())?;
    let [part] = &parts[..] else {
        return Err(Failure::unsupported("several maps cannot grow"));
    };
    let access = part.access;
    if access.shared || !part.map.is_managed() {
        let text =
            "a part of a map of a shared file, or of one that the kernel serves, cannot grow";
        return Err(Failure::unsupported(text));
    }
    if !may_move {
        let text = "a part of a map cannot grow where it is";
        return Err(Failure::new(libc::ENOMEM, text));
    }
    let locked = maps::locked_unpinned(old)?;
    let mut anew = part.map.part_anew(part.offsets(), new_size)?;
    if !access.writable {
        anew.protect(false)?;
    }
    let start = maps::enter(anew, new_size, access);
    // What somebody has unmapped meanwhile is gone already.
    let _ = maps::unmap(old);
    let moved =
        |range: Range<usize>| start + (range.start - old.start)..start + (range.end - old.start);
    maps::lock_again(&locked.into_iter().map(moved).collect::<Vec<_>>());
    Ok(start as *mut c_void)
}

fn not_mapped() -> Failure {
    let text = "the old range has addresses that softfault has not mapped";
    Failure::new(libc::EFAULT, text)
}
