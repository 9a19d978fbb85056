//! Which mappings are taken: of large regular files, that the program only reads.

use crate::assurance::{self, Assurance};
use crate::count::Decline;
use crate::leases::FileKey;
use crate::marked::ADDRESSES;
use crate::{inside, mode, options, program};
use core::mem::MaybeUninit;
use libc::c_int;
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;

/// A call of mmap(2), as far as it matters.
#[derive(Clone, Copy)]
pub struct Call {
    pub bytes: usize,
    pub protection: c_int,
    pub flags: c_int,
    pub fd: RawFd,
    pub offset: i64,
}

/// A mapping that is to be taken.
pub struct Wanted {
    pub fd: RawFd,
    pub offset: u64,
    /// Whole pages.
    pub bytes: usize,
    /// Bytes of the file.
    pub size: u64,
    /// `MAP_SHARED` or `MAP_PRIVATE`.
    pub sharing: c_int,
    /// The program writes to it: private memory that begins as the file.
    pub writes: bool,
    pub populate: bool,
    pub assurance: Assurance,
    /// Device and inode.
    pub file: FileKey,
}

pub const PAGE: usize = 4096;

/// Bytes of the smallest mapping that is looked at, as a part of a file of any size: nothing is gained by less, and one
/// that is not looked at costs no more than without softfault.
pub const LEAST: usize = 128 << 10;

/// Bytes of the largest file that is never taken: windows of such files share a place, and none of them can be handed
/// back to the program.
const LARGEST_SMALL_FILE: u64 = 1 << 20;

/// Bytes of the largest reservation that is remembered: the upper page tables of a window are paid for by the budget.
pub const LARGEST_RESERVATION: usize = 64 << 30;

/// Flags that change nothing for us: hints, and flags that mmap(2) ignores.
const HARMLESS: c_int = libc::MAP_NORESERVE
    | libc::MAP_POPULATE
    | libc::MAP_NONBLOCK
    | libc::MAP_STACK
    | libc::MAP_DENYWRITE
    | libc::MAP_EXECUTABLE;

/// The memory to take, or the reason to decline. `Ok(None)`: the kernel has an error for the call.
pub fn decide(call: &Call) -> Result<Option<Wanted>, Decline> {
    if call.bytes == 0 {
        return Ok(None);
    }
    if call.bytes < LEAST {
        return Err(Decline::SmallMapping);
    }
    let options = options::get();
    let Some(stat) = look(call.fd) else {
        return Ok(None);
    };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Decline::NotRegular);
    }
    let size = stat.st_size as u64;
    if size < options.min_size || size <= LARGEST_SMALL_FILE {
        return Err(Decline::TooSmall);
    }
    // From here on there is more to do, in any state of the program.
    let Some(_inside) = inside::enter() else {
        return Ok(None);
    };
    let bytes = call.bytes.checked_next_multiple_of(PAGE);
    let bytes = bytes.filter(|&bytes| 0 < bytes && bytes < ADDRESSES);
    let offset = u64::try_from(call.offset).ok();
    let offset = offset.filter(|offset| offset.is_multiple_of(PAGE as u64));
    let (Some(bytes), Some(offset)) = (bytes, offset) else {
        return Ok(None);
    };
    // Before all reasons that end a program with --strict: the user does not want this file.
    if by_path(call.fd, options) == Some(false) {
        return Err(Decline::Excluded);
    }
    let (sharing, writes) = sharing(call)?;
    // SAFETY: only asks.
    let mode = unsafe { libc::fcntl(call.fd, libc::F_GETFL) };
    if mode < 0 || mode & libc::O_PATH != 0 {
        return Ok(None);
    }
    match mode & libc::O_ACCMODE {
        libc::O_RDONLY => {}
        libc::O_RDWR => return Err(Decline::WritableDescriptor),
        _ => return Ok(None),
    }
    let end = offset.saturating_add(bytes as u64);
    let assurance = assurance::of(call.fd, &stat, end)?;
    Ok(Some(Wanted {
        fd: call.fd,
        offset,
        bytes,
        size,
        sharing,
        writes,
        populate: call.flags & libc::MAP_POPULATE != 0,
        assurance,
        file: (stat.st_dev, stat.st_ino),
    }))
}

/// How the mapping is shared, if its flags and its protection are such as we can serve.
fn sharing(call: &Call) -> Result<(c_int, bool), Decline> {
    let sharing = match call.flags & libc::MAP_TYPE {
        libc::MAP_PRIVATE => libc::MAP_PRIVATE,
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => libc::MAP_SHARED,
        _ => return Err(Decline::UnsupportedFlags),
    };
    let other = call.flags & !(libc::MAP_TYPE | HARMLESS);
    check_flags(call, other)?;
    match call.protection {
        libc::PROT_READ => Ok((sharing, false)),
        protection if protection & libc::PROT_WRITE == 0 => Err(Decline::NoAccess),
        _ if sharing == libc::MAP_SHARED => Err(Decline::SharedWritable),
        BOTH if mode::has_private_memory() => Ok((sharing, true)),
        _ => Err(Decline::PrivateWritable),
    }
}

/// To be read and written.
const BOTH: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// The reason to decline a mapping that is executable, or has flags besides its type and the harmless ones.
fn check_flags(call: &Call, other: c_int) -> Result<(), Decline> {
    if other & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0 {
        return Err(Decline::Fixed);
    }
    if call.protection & libc::PROT_EXEC != 0 {
        return Err(Decline::Executable);
    }
    if other & libc::MAP_LOCKED != 0 {
        return Err(Decline::Locked);
    }
    match other {
        0 => Ok(()),
        _ => Err(Decline::UnsupportedFlags),
    }
}

/// Whole pages of anonymous memory that is to be taken, or why not. `Ok(None)`: the kernel has an error for it.
pub fn decide_anonymous(call: &Call) -> Result<Option<usize>, Decline> {
    let bytes = call.bytes.checked_next_multiple_of(PAGE);
    let bytes = bytes.filter(|&bytes| bytes < ADDRESSES);
    // The kernel looks at the offset of nothing, too.
    let (Some(bytes), true) = (bytes, call.offset % PAGE as i64 == 0) else {
        return Ok(None);
    };
    match call.flags & libc::MAP_TYPE {
        libc::MAP_PRIVATE => {}
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => return Err(Decline::SharedWritable),
        _ => return Err(Decline::UnsupportedFlags),
    }
    // A stack is its thread's, from its first call on.
    let harmless = libc::MAP_TYPE | libc::MAP_ANONYMOUS | HARMLESS & !libc::MAP_STACK;
    check_flags(call, call.flags & !harmless)?;
    match call.protection {
        BOTH if !mode::has_private_memory() => Err(Decline::NoSwap),
        BOTH if program::has_own_malloc() => Err(Decline::OtherMalloc),
        BOTH => Ok(Some(bytes)),
        _ => Err(Decline::NoAccess),
    }
}

/// True if address space is reserved, parts of which may be taken when they are used.
pub fn is_reservation(call: &Call) -> bool {
    let placed = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
    let harmless = libc::MAP_ANONYMOUS | placed | HARMLESS & !libc::MAP_STACK;
    call.protection == libc::PROT_NONE
        && call.flags & !harmless == libc::MAP_PRIVATE
        && call.flags & libc::MAP_ANONYMOUS != 0
        && call.bytes <= LARGEST_RESERVATION
        && mode::has_private_memory()
        && !program::has_own_malloc()
        && !program::makes_calls_itself()
}

/// True if anonymous memory begins anew at a place of the program's choice, and can be taken.
pub fn is_commit(call: &Call) -> bool {
    call.flags & libc::MAP_ANONYMOUS != 0 && matches!(anywhere(call), Ok(Some(_)))
}

/// Why anonymous memory at a place of the program's choice is the kernel's.
pub fn why_not_fixed(call: &Call) -> Option<Decline> {
    match anywhere(call) {
        Ok(Some(_)) => Some(Decline::Fixed),
        Ok(None) => None,
        Err(why) => Some(why),
    }
}

/// The same memory, if the kernel chose the place.
fn anywhere(call: &Call) -> Result<Option<usize>, Decline> {
    let flags = call.flags & !libc::MAP_FIXED;
    decide_anonymous(&Call { flags, ..*call })
}

/// fstat(2), past the hooks.
pub fn look(fd: RawFd) -> Option<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: fills the structure.
    let looked = unsafe { softfault::system_call!(libc::SYS_fstat, fd, stat.as_mut_ptr()) };
    // SAFETY: zeros, or the values that the call has filled in.
    (looked == 0).then(|| unsafe { stat.assume_init() })
}

/// The kernel's addition to the path of a file that has none any more.
const UNLINKED: &[u8] = b" (deleted)";

/// Whether the patterns match a file; `None`: there are none.
fn by_path(fd: RawFd, options: &options::Options) -> Option<bool> {
    if options.include.is_empty() && options.exclude.is_empty() {
        return None;
    }
    // Of this thread: the first one may have ended, and has no descriptors then.
    let link = format!("/proc/thread-self/fd/{fd}");
    let path = std::fs::read_link(link).ok()?;
    let mut path = path.into_os_string().into_encoded_bytes();
    if path.ends_with(UNLINKED) && look(fd).is_some_and(|stat| stat.st_nlink == 0) {
        path.truncate(path.len() - UNLINKED.len());
    }
    let path = CString::new(path).ok()?;
    let any = |patterns: &[CString]| patterns.iter().any(|pattern| matches(pattern, &path));
    Some((options.include.is_empty() || any(&options.include)) && !any(&options.exclude))
}

/// True if a pattern matches a path, or, without a slash in it, the path's last part.
fn matches(pattern: &CStr, path: &CStr) -> bool {
    let whole = path.to_bytes_with_nul();
    let last = whole
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |at| at + 1);
    let text = match pattern.to_bytes().contains(&b'/') {
        true => whole,
        false => &whole[last..],
    };
    // SAFETY: both end in zero.
    unsafe { libc::fnmatch(pattern.as_ptr(), text.as_ptr().cast(), 0) == 0 }
}
