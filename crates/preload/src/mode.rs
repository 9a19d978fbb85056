//! How faults of this process reach us: settled when the library is loaded, or at the first question before that, by the system's
//! permissions.

use crate::call;
use crate::options::{self, Mode};
use core::ffi::{CStr, c_int, c_long};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// 0: not known yet.
static MODE: AtomicU8 = AtomicU8::new(0);

/// The mode. Messages wherever they are allowed: they alone are right for every system call. Not under a tracer, which may stop
/// the thread that serves faults, and wait for a page of the program's meanwhile.
pub fn get() -> Mode {
    known().unwrap_or_else(|| {
        let errno = call::errno();
        let mode = options::get().faults.unwrap_or_else(|| match is_traced() {
            true => Mode::Signals,
            false => allowed(),
        });
        call::set_errno(errno);
        MODE.store(1 + mode as u8, Relaxed);
        softfault::threads_unblock_only(unblocked_in_threads(mode));
        mode
    })
}

/// Signals that softfault's own threads do not block, since they may raise them: SIGSYS, by which a filter of the program's (seccomp) may
/// answer their calls, and that of faults. Those of the others would be errors of softfault's, and end the process.
fn unblocked_in_threads(mode: Mode) -> &'static [c_int] {
    match mode {
        Mode::Messages => &[libc::SIGSYS],
        Mode::Signals => &[libc::SIGSYS, libc::SIGBUS],
    }
}

/// The mode, if it is known.
pub fn known() -> Option<Mode> {
    // Relaxed: every thread finds the same.
    match MODE.load(Relaxed) {
        0 => None,
        known if known == 1 + Mode::Signals as u8 => Some(Mode::Signals),
        _ => Some(Mode::Messages),
    }
}

/// True if faults are known to arrive as signals. Cheap, and for any state of the program.
pub fn is_signals() -> bool {
    known() == Some(Mode::Signals)
}

/// True if private memory can be had: written pages go to swap where the budget is short, and system
/// calls that write into it are served.
pub fn has_private_memory() -> bool {
    options::get().swap.is_some()
}

/// The mode that the system allows.
fn allowed() -> Mode {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: makes a file descriptor.
    let by_call = || opens(unsafe { softfault::system_call!(libc::SYS_userfaultfd, flags) });
    // An engine looks at pages by the last. The process's own has no memory once its first thread has ended.
    let memory = c"/proc/thread-self/mem";
    match (by_device() || by_call()) && opens(open(memory, libc::O_RDONLY)) {
        true => Mode::Messages,
        false => Mode::Signals,
    }
}

/// True if a debugger or strace(1) traces this process.
fn is_traced() -> bool {
    let fd = open(c"/proc/self/status", libc::O_RDONLY);
    // TracerPid is the eighth line, after a name of at most 64 bytes.
    let mut text = [0_u8; 512];
    // SAFETY: fills the bytes.
    let got = unsafe { softfault::system_call!(libc::SYS_read, fd, text.as_mut_ptr(), text.len()) };
    opens(fd);
    let mut lines = text[..usize::try_from(got).unwrap_or(0)].split(|&byte| byte == b'\n');
    let tracer = lines.find_map(|line| line.strip_prefix(b"TracerPid:\t"));
    tracer.is_some_and(|tracer| tracer != b"0")
}

/// Descriptors below which an engine leaves too few to the program: with swap it has 12 by messages, and more while it begins.
pub const LEAST_DESCRIPTORS: u64 = 24;

/// Descriptors that a child needs for private memory, and some more for files.
const DESCRIPTORS: u64 = 64;

/// True if a child of fork can go on with private memory as this process does, whose budget is `memory`: it opens all anew. A
/// process may have come to be in another root, to be another user, or to have a limit on its files.
pub fn can_begin_in_child(memory: usize) -> bool {
    let faults = match get() {
        Mode::Messages => allowed() == Mode::Messages,
        Mode::Signals => {
            let flags = libc::O_CLOEXEC | USER_MODE_ONLY;
            // SAFETY: makes a file descriptor.
            opens(unsafe { softfault::system_call!(libc::SYS_userfaultfd, flags) })
        }
    };
    let swap = options::get().swap.as_ref();
    faults
        && !has_few_descriptors()
        && has_address_space(memory)
        && swap.is_some_and(|swap| swap.is_available(memory))
}

/// Bytes that the engine of a child maps at most, beside its budget: tables, frames and stacks.
const ENGINE: usize = 64 << 20;

/// True if an engine more can be mapped, where the process has a limit on that. An allocation that failed in the child would end it.
fn has_address_space(memory: usize) -> bool {
    let is_limited = |what| limit(what) != libc::RLIM_INFINITY;
    if !is_limited(libc::RLIMIT_AS) && !is_limited(libc::RLIMIT_DATA) {
        return true;
    }
    let bytes = memory.saturating_add(ENGINE);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: memory of its own, which goes again.
    unsafe {
        let room = call::mmap(null_mut(), bytes, protection, flags, -1, 0);
        room != libc::MAP_FAILED && softfault::system_call!(libc::SYS_munmap, room, bytes) == 0
    }
}

/// True if the process may have too few descriptors for an engine and its files.
pub fn has_few_descriptors() -> bool {
    limit(libc::RLIMIT_NOFILE) < DESCRIPTORS
}

/// A limit of this process: the soft one.
pub fn limit(what: libc::__rlimit_resource_t) -> u64 {
    limits(what).rlim_cur
}

/// Both limits of this process.
pub fn limits(what: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut limit = core::mem::MaybeUninit::<libc::rlimit>::zeroed();
    let (number, none) = (libc::SYS_prlimit64, core::ptr::null::<libc::rlimit>());
    // SAFETY: fills the structure; zeros are a valid one.
    unsafe {
        softfault::system_call!(number, 0, what, none, limit.as_mut_ptr());
        limit.assume_init()
    }
}

/// A flag of userfaultfd(2), for the program's own faults alone: nobody needs a privilege for that.
const USER_MODE_ONLY: libc::c_int = 1;

fn open(path: &CStr, flags: c_int) -> c_long {
    let (at, flags) = (libc::AT_FDCWD, flags | libc::O_CLOEXEC);
    // SAFETY: a path that ends in zero.
    unsafe { softfault::system_call!(libc::SYS_openat, at, path.as_ptr(), flags) }
}

/// Makes one by the device: a process may be allowed to open it, and not that.
fn by_device() -> bool {
    /// `USERFAULTFD_IOC_NEW`: `_IO(0xAA, 0x00)`.
    const NEW: c_long = 0xAA00;
    let device = open(c"/dev/userfaultfd", libc::O_RDWR);
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: makes a file descriptor.
    let made = device >= 0
        && opens(unsafe { softfault::system_call!(libc::SYS_ioctl, device, NEW, flags) });
    opens(device) && made
}

/// True if this is a descriptor, which was just made and nobody knows.
fn opens(fd: c_long) -> bool {
    // SAFETY: closes the descriptor that was just made.
    fd >= 0 && unsafe { softfault::system_call!(libc::SYS_close, fd) } == 0
}
