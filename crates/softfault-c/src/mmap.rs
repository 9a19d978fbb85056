//! mmap(2).

use crate::boundary::answer;
use crate::engine::softfault_engine;
use crate::failure::Failure;
use crate::kinds::Arguments;
use crate::sized::{self, Grows};
use core::ffi::{c_int, c_void};
use libc::off_t;

/// What softfault_mmap_ex takes besides mmap's arguments. Set it to zero, then `size` and what you want.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct softfault_map_options {
    /// sizeof(struct softfault_map_options).
    pub size: usize,
    /// The engine under whose budget the map is; NULL for the default engine.
    pub engine: *const softfault_engine,
}

// SAFETY: two words, the first of which is the size; null is an engine's pointer.
unsafe impl Grows for softfault_map_options {
    const FIRST: usize = 16;
}

/// Maps a file, or memory, over the process's default engine; mmap(2).
///
/// Pages are read when they are touched, past the kernel's page cache or through it, and never more of them are
/// resident than the engine's budget (SOFTFAULT_MEMORY; without it a quarter of the machine's memory). The map
/// stays when the file is closed.
///
/// addr is a hint, and is not taken, but for
///   MAP_FIXED with MAP_PRIVATE|MAP_ANONYMOUS: the pages there become zeros that may be used as prot says. All of them are
///     of maps of private anonymous memory, or were until softfault_munmap, and stay in those maps and under their
///     engines. Pins and locks of them end;
///   MAP_FIXED_NOREPLACE with the same: where all of the pages were of such maps, and none is.
///
/// length is rounded up to whole pages. What is behind the end of the file in its last page is zero; a touch
/// of a later page raises SIGBUS.
///
/// prot is PROT_READ, or PROT_READ|PROT_WRITE; PROT_WRITE alone means both.
///
/// flags is one of
///   MAP_SHARED (or MAP_SHARED_VALIDATE) of a file. Read-only, it is the engine's: a page shows what the file had when
///     it was read, until it is evicted. Two such maps of one file may have the same addresses: softfault_munmap is
///     called for each. Writable, it is the kernel's own mapping, in no budget, or the engine's where its coherence
///     is SOFTFAULT_COHERENCE_ENGINE;
///   MAP_PRIVATE of a file: what is written is this map's alone, counts against the budget, and goes to swap where
///     the engine has some;
///   MAP_PRIVATE|MAP_ANONYMOUS: zeros until written, which then count and go to swap likewise. fd and offset are
///     not looked at;
/// and any of
///   MAP_POPULATE: starts to bring it in, which cannot fail;
///   MAP_LOCKED: as softfault_mlock of it, which can;
///   MAP_STACK, MAP_HUGETLB (and MAP_HUGE_...) with MAP_ANONYMOUS: memory of the kernel's own, in no budget;
///   MAP_NORESERVE, MAP_NONBLOCK, MAP_DENYWRITE, MAP_EXECUTABLE: nothing.
///
/// offset is a multiple of the page size.
///
/// Returns the first address, or MAP_FAILED with errno:
///   EACCES      the file is not open as prot and flags need it
///   EBADF       fd is no open file
///   EBUSY       MAP_FIXED, and another call uses the pages
///   EEXIST      MAP_FIXED_NOREPLACE, and some of the addresses are taken, whoever has them
///   EINVAL      length is 0, offset (or addr, with MAP_FIXED) is no multiple of the page size, flags has neither MAP_SHARED nor MAP_PRIVATE,
///               prot has unknown bits, or the environment says something that cannot be
///   ENODEV      the file is none that can be mapped: a directory, a pipe, a socket, a character device
///   ENOMEM      no address space, or the budget cannot hold the page tables of one more map, or, of MAP_LOCKED, the
///               pages
///   EOVERFLOW   offset is negative, or the map would reach past what a file can have
///   EOPNOTSUPP  PROT_NONE, PROT_EXEC, MAP_GROWSDOWN, MAP_32BIT, MAP_SYNC, MAP_SHARED|MAP_ANONYMOUS, unknown flags;
///               MAP_FIXED and MAP_FIXED_NOREPLACE of other memory, or over other pages: nothing is replaced; or
///               userfaultfd is closed to this process
///   and what reading the file's size or its file system may answer.
///
/// Any threads may call this at the same time. A thread that blocks SIGBUS cannot map (EINVAL).
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

/// As softfault_mmap, with options: over which engine.
///
/// options may be NULL. The engine may be freed before the map is unmapped: it lives as long as its maps.
///
/// Returns the first address, or MAP_FAILED with errno as softfault_mmap, and:
///   EINVAL      options->size is none that the structure has had
///   E2BIG       options says something that this release does not know
///   EOPNOTSUPP  the engine is that of the process's parent, and the map is of a shared file
///
/// Any threads may call this at the same time, with the same options and engine too.
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
