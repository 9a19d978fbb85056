//! mmap(2).

use crate::boundary::answer;
use crate::engine::softfault_engine;
use crate::failure::Failure;
use crate::kinds::Arguments;
use crate::sized::{self, Grows};
use core::ffi::{c_int, c_void};
use libc::off_t;

/// Options of softfault_mmap_ex besides mmap's arguments. Set the structure to zero, then set `size` and the options
/// that you want.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct softfault_map_options {
    /// sizeof(struct softfault_map_options).
    pub size: usize,
    /// The engine of the map, whose budget it counts against; NULL for the default engine.
    pub engine: *const softfault_engine,
}

// SAFETY: two words, the first of which is the size; null is an engine's pointer.
unsafe impl Grows for softfault_map_options {
    const FIRST: usize = 16;
}

/// Maps a file, or memory, over the process's default engine; mmap(2).
///
/// Pages are read when they are touched, past the kernel's page cache or through it. The resident pages that the engine serves
/// never exceed its budget (SOFTFAULT_MEMORY; without it a quarter of the machine's memory). The kernel serves small files, and
/// files in the page cache, outside of the budget, unless the engine's allow_kernel_maps or SOFTFAULT_ALLOW_KERNEL_MAPS=0
/// forbids it. The map stays when the file is closed.
///
/// addr is a hint, and is ignored, except with
///   MAP_FIXED with MAP_PRIVATE|MAP_ANONYMOUS: the pages there become zeros with the protection prot. All of them
///     must belong to maps of private anonymous memory, or have belonged to such maps until softfault_munmap. They stay
///     in those maps and under their engines. Pins and locks of the pages end;
///   MAP_FIXED_NOREPLACE with the same flags: all of the pages must have belonged to such maps, and none may be mapped now.
///
/// length is rounded up to whole pages. Bytes past the end of the file in its last page are zero; a touch
/// of a later page raises SIGBUS.
///
/// prot is PROT_READ, or PROT_READ|PROT_WRITE; PROT_WRITE alone means both.
///
/// flags is one of
///   MAP_SHARED (or MAP_SHARED_VALIDATE) of a file. The engine serves a read-only map: a page shows the bytes that the
///     file had when the page was read, until it is evicted. Two such maps of one file may have the same addresses: call
///     softfault_munmap for each. A writable map is a mapping of the kernel, in no budget; if the engine's coherence
///     is SOFTFAULT_COHERENCE_ENGINE, the engine serves it;
///   MAP_PRIVATE of a file: written pages belong to this map only, count against the budget, and go to swap if
///     the engine has some;
///   MAP_PRIVATE|MAP_ANONYMOUS: zeros until written; written pages count against the budget and go to swap likewise. fd
///     and offset are ignored;
/// and any of
///   MAP_POPULATE: brings the pages of a private writable map in, and starts to read those of others; a failure is not
///     reported;
///   MAP_LOCKED: as softfault_mlock of the map; a failure is an error;
///   MAP_STACK, MAP_HUGETLB (and MAP_HUGE_...) with MAP_ANONYMOUS: a mapping of the kernel, in no budget. With
///     MAP_HUGETLB length is rounded up to whole huge pages, and only whole ones can be unmapped. So it is with a map of a
///     file on hugetlbfs that the kernel serves, such as each one that can be written to;
///   MAP_NORESERVE, MAP_NONBLOCK, MAP_DENYWRITE, MAP_EXECUTABLE: no effect.
///
/// offset must be a multiple of the page size.
///
/// Returns the first address, or MAP_FAILED with errno:
///   EACCES      the file is not open for the accesses that prot and flags need
///   EBADF       fd is no open file
///   EBUSY       MAP_FIXED, and another call uses the pages: those that it does not use may be zeros by then, and pins and
///               locks of the range may have ended. Or the file has grown beyond what the addresses of its present maps have room
///               for: unmap them first. Or a SIGBUS handler is installed again and again after softfault's
///   EEXIST      MAP_FIXED_NOREPLACE, and some of the addresses are in use, by softfault or by another mapping
///   EINVAL      length is 0, offset (or addr, with MAP_FIXED) is no multiple of the page size, flags has neither
///               MAP_SHARED nor MAP_PRIVATE, or MAP_HUGETLB without MAP_ANONYMOUS, prot has unknown bits, an environment
///               variable has an invalid value, or this thread blocks SIGBUS
///   ENODEV      the file cannot be mapped: a directory, a pipe, a socket, a character device
///   ENOMEM      no address space, or the budget has no room for the page tables of one more map, or, with MAP_LOCKED,
///               for the pages
///   EOVERFLOW   offset is negative, or the map would end past the largest offset of a file
///   EOPNOTSUPP  PROT_NONE, PROT_EXEC, MAP_GROWSDOWN, MAP_32BIT, MAP_SYNC, MAP_SHARED|MAP_ANONYMOUS, unknown flags;
///               MAP_FIXED and MAP_FIXED_NOREPLACE for other memory, or over other pages: nothing is replaced; or
///               userfaultfd is closed to this process
///   or an error of reading the file's size or of its file system.
///
/// Several threads may call this at the same time.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_mmap(
    addr: *mut c_void,
    length: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    map(addr, length, prot, flags, fd, offset, || Ok(None))
}

/// As softfault_mmap, with options: the engine of the map.
///
/// options may be NULL. The engine may be freed before the map is unmapped: it lives as long as its maps.
///
/// Returns the first address, or MAP_FAILED with errno as softfault_mmap, and:
///   EINVAL      options->size is not a size of this structure in any release
///   E2BIG       options has a field that is set and that this release does not know
///   EOPNOTSUPP  the engine belongs to the process's parent, and the map is a shared map of a file
///
/// Several threads may call this at the same time, also with the same options and engine.
///
/// # Safety
/// `options` is null, or a structure of the size that it says, whose engine is null or was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softfault_mmap_ex(
    addr: *mut c_void,
    length: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
    options: *const softfault_map_options,
) -> *mut c_void {
    map(addr, length, prot, flags, fd, offset, || {
        if options.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's: a structure of the size that it says.
        let options = unsafe { sized::read(options) }?;
        // SAFETY: the caller's: null, or not freed yet.
        Ok(unsafe { options.engine.as_ref() })
    })
}

fn map<'a>(
    addr: *mut c_void,
    length: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
    engine: impl FnOnce() -> Result<Option<&'a softfault_engine>, Failure>,
) -> *mut c_void {
    answer(libc::MAP_FAILED, || {
        let arguments = Arguments {
            addr,
            length,
            prot,
            flags,
            fd,
            offset,
        };
        arguments.map(engine()?.map(|engine| &engine.engine))
    })
}
