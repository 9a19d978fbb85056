//! mremap(2).

use crate::access::pages;
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps::{self, NotMapped, Part, Taken};
use core::ffi::{c_int, c_void};
use softfault::RemapOptions;

/// Makes a map longer or shorter; mremap(2), without its fifth argument.
///
/// What the map has stays, in memory or in swap, and is not copied; what is new is zeros, or what the file has
/// there. A part of a map can be made shorter only. A read-only map of a shared file can grow to the end of
/// the file, and stays where it is.
///
/// old_address and old_size are the map's, in whole pages. flags is 0, or MREMAP_MAYMOVE: the map may move where its
/// place has no room. Locks go with it.
///
/// Returns the address, or MAP_FAILED with errno:
///   EBUSY       pages of the map are pinned, or another call uses it
///   EFAULT      some of the old pages are not mapped by softfault
///   EINVAL      old_address is no multiple of the page size, a size is 0, flags has unknown bits, or a shared file
///               ends before
///   ENOMEM      it cannot grow where it is, or there is no address space, or the budget cannot hold the move
///   EOPNOTSUPP  MREMAP_FIXED, MREMAP_DONTUNMAP, or a part of a map is to grow
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
        Part::of(&old).map_err(|NotMapped| not_mapped())?;
        if new == old {
            return Ok(old_address);
        }
        if !maps::is_one_map(&old) {
            if new.end > old.end {
                return Err(Failure::unsupported("a part of a map cannot grow"));
            }
            let gone = new.end..old.end;
            maps::unmap(&gone).map_err(|NotMapped| not_mapped())?;
            return Ok(old_address);
        }
        let mut taken = Taken::of(&old)?;
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

fn not_mapped() -> Failure {
    let text = "the old range has addresses that softfault has not mapped";
    Failure::new(libc::EFAULT, text)
}
