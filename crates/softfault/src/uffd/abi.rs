//! The system calls of userfaultfd(2) and their structures, as Linux's
//! `uapi/linux/userfaultfd.h` gives them. Written out because the crates that
//! wrap them allocate, or need a C compiler; these are called in a handler.

use super::Faults;
use crate::errno::errno;
use crate::table::Working;
use core::ops::Range;
use libc::c_int;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Serve faults of user mode only: needs no privilege.
const UFFD_USER_MODE_ONLY: c_int = 1;
const UFFD_API: u64 = 0xAA;
/// `USERFAULTFD_IOC_NEW` of `/dev/userfaultfd`: `_IO(0xAA, 0x00)`. (Linux 6.1)
const USERFAULTFD_IOC_NEW: u64 = 0xAA << 8;
/// Pages can be write-protected.
const UFFD_FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
/// The faulting thread gets SIGBUS instead of a message being queued.
const UFFD_FEATURE_SIGBUS: u64 = 1 << 7;
/// There is UFFDIO_MOVE. (Linux 6.8)
const UFFD_FEATURE_MOVE: u64 = 1 << 16;
/// There is UFFDIO_POISON. (Linux 6.6)
const UFFD_FEATURE_POISON: u64 = 1 << 14;
/// A message says which thread sleeps. (Linux 4.14)
const UFFD_FEATURE_THREAD_ID: u64 = 1 << 8;
/// It says the address, and not only the page. (Linux 5.18)
const UFFD_FEATURE_EXACT_ADDRESS: u64 = 1 << 11;
const UFFD_EVENT_PAGEFAULT: u8 = 0x12;
const UFFD_PAGEFAULT_FLAG_WRITE: u64 = 1 << 0;
const UFFD_PAGEFAULT_FLAG_WP: u64 = 1 << 1;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
/// No thread is woken: in SIGBUS mode none sleeps, otherwise sleepers are woken once all is done
/// ([`wake`]).
const DONTWAKE: u64 = 1;
const UFFDIO_COPY_MODE_WP: u64 = 1 << 1;
const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1;
const UFFDIO_WRITEPROTECT_MODE_DONTWAKE: u64 = 1 << 1;
const UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES: u64 = 1 << 1;

const UFFDIO_API: u64 = read_write(0x3F, size_of::<Api>());
const UFFDIO_REGISTER: u64 = read_write(0x00, size_of::<Register>());
const UFFDIO_COPY: u64 = read_write(0x03, size_of::<Copy>());
const UFFDIO_ZEROPAGE: u64 = read_write(0x04, size_of::<ZeroPage>());
const UFFDIO_MOVE: u64 = read_write(0x05, size_of::<Move>());
const UFFDIO_WRITEPROTECT: u64 = read_write(0x06, size_of::<WriteProtect>());
const UFFDIO_POISON: u64 = read_write(0x08, size_of::<Poison>());

/// `_IOR(0xAA, 0x02, struct uffdio_range)`.
const UFFDIO_WAKE: u64 = 2 << 30 | (size_of::<Wake>() as u64) << 16 | 0xAA << 8 | 0x02;
/// `_IOR(0xAA, 0x01, struct uffdio_range)`.
const UFFDIO_UNREGISTER: u64 = 2 << 30 | (size_of::<Wake>() as u64) << 16 | 0xAA << 8 | 0x01;

/// `_IOWR(0xAA, number, size)`.
const fn read_write(number: u64, size: usize) -> u64 {
    3 << 30 | (size as u64) << 16 | 0xAA << 8 | number
}

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Copy {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

#[repr(C)]
struct ZeroPage {
    start: u64,
    len: u64,
    mode: u64,
    zeroed: i64,
}

#[repr(C)]
struct Move {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    moved: i64,
}

#[repr(C)]
struct WriteProtect {
    start: u64,
    len: u64,
    mode: u64,
}

#[repr(C)]
struct Poison {
    start: u64,
    len: u64,
    mode: u64,
    updated: i64,
}

#[repr(C)]
struct Wake {
    start: u64,
    len: u64,
}

/// `struct uffd_msg`, of a page fault.
#[repr(C)]
#[derive(Default)]
struct RawMessage {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u32,
    padding: u32,
}

/// A thread that sleeps until its fault is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The touched address; before Linux 5.18 the page's.
    pub addr: usize,
    /// The touch is a write.
    pub write: bool,
    /// The kernel's number of it.
    pub thread: u32,
    /// Which userfaultfd it came by.
    pub from: u8,
}

/// The kernel's features besides missing faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offers {
    /// Pages can be write-protected.
    pub protect: bool,
    /// Pages can be moved.
    pub moves: bool,
}

/// The kernel's features, or the errno with which it refuses all. It is asked as for the descriptors that are used: a filter may
/// refuse userfaultfd(2) and leave the device.
pub fn ask(faults: Faults) -> Result<Offers, c_int> {
    let (_, features) = match faults {
        Faults::Signals | Faults::Threads => with_features(0, Allowed::UserMode)?,
        Faults::Messages => for_messages(|allowed| with_features(0, allowed))?,
    };
    Ok(Offers {
        protect: features & UFFD_FEATURE_PAGEFAULT_FLAG_WP != 0,
        moves: features & UFFD_FEATURE_MOVE != 0,
    })
}

/// A userfaultfd whose faults arrive this way, or the errno. It uses the features of `offers`,
/// which are no more than the kernel has.
pub fn open(offers: Offers, faults: Faults) -> Result<Working, c_int> {
    let protect = match offers.protect {
        true => UFFD_FEATURE_PAGEFAULT_FLAG_WP,
        false => 0,
    };
    let opened = match faults {
        Faults::Signals => with_features(UFFD_FEATURE_SIGBUS | protect, Allowed::UserMode),
        Faults::Threads => {
            let least = UFFD_FEATURE_THREAD_ID | protect;
            let exact = with_features(least | UFFD_FEATURE_EXACT_ADDRESS, Allowed::UserMode);
            exact.or_else(|_| with_features(least, Allowed::UserMode))
        }
        Faults::Messages => {
            let least = UFFD_FEATURE_THREAD_ID | protect;
            let all = least | UFFD_FEATURE_EXACT_ADDRESS | UFFD_FEATURE_POISON;
            for_messages(|allowed| {
                with_features(all, allowed).or_else(|_| with_features(least, allowed))
            })
        }
    };
    opened.map(|(fd, _)| fd)
}

/// The accesses whose faults a userfaultfd is for, and the way by which we have it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Allowed {
    /// Faults of user mode: everybody.
    UserMode,
    /// All, for a process with CAP_SYS_PTRACE, or with `vm.unprivileged_userfaultfd`.
    ByCall,
    /// All, for processes that may open the device.
    ByDevice,
}

/// A new userfaultfd, or the errno.
fn make(allowed: Allowed) -> Result<Working, c_int> {
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
    let args = match allowed {
        Allowed::UserMode => [flags | UFFD_USER_MODE_ONLY as usize, 0, 0, 0, 0, 0],
        Allowed::ByCall => [flags, 0, 0, 0, 0, 0],
        Allowed::ByDevice => {
            return by_device();
        }
    };
    // SAFETY: makes a file descriptor.
    unsafe { Working::open(libc::SYS_userfaultfd, args) }
}

/// A new one by `/dev/userfaultfd`, or the errno.
fn by_device() -> Result<Working, c_int> {
    let device = c"/dev/userfaultfd".as_ptr();
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // Bare numbers, and the program may close those that it does not know: then it is an error.
    // SAFETY: a path that ends in zero; both descriptors are new, and the first is closed.
    let made = unsafe {
        let device = libc::open(device, libc::O_RDWR | libc::O_CLOEXEC);
        if device < 0 {
            return Err(errno());
        }
        let made = libc::ioctl(device, USERFAULTFD_IOC_NEW as _, flags);
        let answer = if made < 0 { Err(errno()) } else { Ok(made) };
        libc::close(device);
        answer?
    };
    // SAFETY: nobody else has it.
    Working::adopt(unsafe { OwnedFd::from_raw_fd(made) })
}

/// A userfaultfd with these features, and all that there are.
fn with_features(features: u64, allowed: Allowed) -> Result<(Working, u64), c_int> {
    let fd = make(allowed)?;
    let mut api = Api {
        api: UFFD_API,
        features,
        ioctls: 0,
    };
    let args = [UFFDIO_API as usize, (&raw mut api) as usize, 0, 0, 0];
    // SAFETY: the structure is the one that this ioctl takes.
    unsafe { fd.call_guarded(libc::SYS_ioctl, args) }?;
    Ok((fd, api.features))
}

/// The same for faults of the kernel too, by whichever way is open. The device first: a filter may kill the caller of
/// userfaultfd(2). Where memory or descriptors are short the call would say less.
fn for_messages<T>(open: impl Fn(Allowed) -> Result<T, c_int>) -> Result<T, c_int> {
    match open(Allowed::ByDevice) {
        short @ Err(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => short,
        Err(_) => open(Allowed::ByCall),
        made => made,
    }
}

/// An ioctl that no other file knows. By another userfaultfd of the process it would do the
/// same.
///
/// # Safety
/// The structure is the one that this ioctl takes.
unsafe fn ioctl<T>(fd: &Working, request: u64, structure: &mut T) -> Result<usize, c_int> {
    let structure = core::ptr::from_mut(structure) as usize;
    // SAFETY: the caller's promise.
    unsafe { fd.call(libc::SYS_ioctl, [request as usize, structure, 0, 0, 0]) }
}

/// Registers a range for missing faults, and for writes to protected pages if
/// `protect`. With no other userfaultfd: its end would be the registration's.
pub fn register(fd: &Working, range: &Range<usize>, protect: bool) -> Result<(), c_int> {
    let protect = match protect {
        true => UFFDIO_REGISTER_MODE_WP,
        false => 0,
    };
    let mut register = Register {
        start: range.start as u64,
        len: range.len() as u64,
        mode: UFFDIO_REGISTER_MODE_MISSING | protect,
        ioctls: 0,
    };
    let args = [
        UFFDIO_REGISTER as usize,
        (&raw mut register) as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the structure is the one that this ioctl takes.
    unsafe { fd.call_guarded(libc::SYS_ioctl, args) }.map(drop)
}

/// Lets a part of a registered range be plain memory: nothing of it is protected any more, and threads that sleep in a
/// touch of it are woken.
pub fn unregister(fd: &Working, range: &Range<usize>) -> Result<(), c_int> {
    let mut wake = Wake {
        start: range.start as u64,
        len: range.len() as u64,
    };
    // SAFETY: the structure is the one that this ioctl takes.
    unsafe { ioctl(fd, UFFDIO_UNREGISTER, &mut wake) }.map(drop)
}

/// How far a copy, a zeroing or a move got: bytes done, and the errno that stopped it.
pub struct Progress {
    /// Bytes done from the front.
    pub bytes: usize,
    /// The errno that stopped it, if one did.
    pub stopped: Option<c_int>,
}

fn progress(answer: Result<usize, c_int>, done: i64) -> Progress {
    match (answer, done) {
        (Ok(_), done) => Progress {
            bytes: done.max(0) as usize,
            stopped: None,
        },
        // Stopped half-way: the count is the part that was done before.
        (Err(_), done) if done > 0 => Progress {
            bytes: done as usize,
            stopped: Some(libc::EAGAIN),
        },
        (Err(errno), _) => Progress {
            bytes: 0,
            stopped: Some(errno),
        },
    }
}

/// UFFDIO_COPY; the pages are write-protected from the first if `protect`.
///
/// # Safety
/// `source` is readable for `bytes`, or not there at all: then the errno is
/// EFAULT. The target lies in a window of ours.
pub unsafe fn copy(
    fd: &Working,
    target: usize,
    source: *const u8,
    bytes: usize,
    protect: bool,
) -> Progress {
    let protect = match protect {
        true => UFFDIO_COPY_MODE_WP,
        false => 0,
    };
    let mut copy = Copy {
        dst: target as u64,
        src: source as u64,
        len: bytes as u64,
        mode: DONTWAKE | protect,
        copied: 0,
    };
    // SAFETY: the structure is the one that this ioctl takes, and the caller
    // vouches for the memory.
    let answer = unsafe { ioctl(fd, UFFDIO_COPY, &mut copy) };
    progress(answer, copy.copied)
}

/// UFFDIO_ZEROPAGE.
pub fn zero(fd: &Working, target: usize, bytes: usize) -> Progress {
    let mut zero = ZeroPage {
        start: target as u64,
        len: bytes as u64,
        mode: DONTWAKE,
        zeroed: 0,
    };
    // SAFETY: the structure is the one that this ioctl takes; it maps zeros
    // only where nothing is mapped in a registered range.
    let answer = unsafe { ioctl(fd, UFFDIO_ZEROPAGE, &mut zero) };
    progress(answer, zero.zeroed)
}

/// The effect of UFFDIO_MOVE on pages that are missing in the source.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// It stays missing in the target.
    Moved,
    /// It is an error (ENOENT).
    Refused,
}

/// UFFDIO_MOVE.
///
/// # Safety
/// Both lie in windows of ours, and nobody uses their pages.
pub unsafe fn move_pages(
    fd: &Working,
    (target, source): (usize, usize),
    bytes: usize,
    holes: Holes,
) -> Progress {
    let holes = match holes {
        Holes::Moved => UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES,
        Holes::Refused => 0,
    };
    let mut moving = Move {
        dst: target as u64,
        src: source as u64,
        len: bytes as u64,
        mode: DONTWAKE | holes,
        moved: 0,
    };
    // SAFETY: the structure is the one that this ioctl takes, and the caller
    // vouches for the memory.
    let answer = unsafe { ioctl(fd, UFFDIO_MOVE, &mut moving) };
    progress(answer, moving.moved)
}

/// UFFDIO_WRITEPROTECT of the present pages of a range: a write ends in a fault.
pub fn protect(fd: &Working, range: &Range<usize>) -> Result<(), c_int> {
    write_protect(fd, range, UFFDIO_WRITEPROTECT_MODE_WP)
}

/// The opposite.
pub fn unprotect(fd: &Working, range: &Range<usize>) -> Result<(), c_int> {
    write_protect(fd, range, UFFDIO_WRITEPROTECT_MODE_DONTWAKE)
}

fn write_protect(fd: &Working, range: &Range<usize>, mode: u64) -> Result<(), c_int> {
    let mut protect = WriteProtect {
        start: range.start as u64,
        len: range.len() as u64,
        mode,
    };
    loop {
        // SAFETY: the structure is the one that this ioctl takes; no bytes
        // change.
        match unsafe { ioctl(fd, UFFDIO_WRITEPROTECT, &mut protect) } {
            // The mappings were changing.
            Err(libc::EAGAIN) => {}
            done => return done.map(drop),
        }
    }
}

/// Messages that are read at a time.
pub const MESSAGES: usize = 16;

/// Reads the messages that are there, up to `most` of at most [`MESSAGES`], and hands each on.
///
/// The number is looked at before: by another file at it, something of the program's would
/// be read.
pub fn read((fd, from): (&Working, u8), most: usize, mut each: impl FnMut(Message)) {
    let mut raw: [RawMessage; MESSAGES] = Default::default();
    let raw = &mut raw[..most];
    let args = [raw.as_mut_ptr() as usize, size_of_val(raw), 0, 0, 0];
    // SAFETY: fills the structures.
    let read = unsafe { fd.call_checked(libc::SYS_read, args) };
    let whole = read.map_or(0, |bytes| bytes / size_of::<RawMessage>());
    for raw in raw.iter().take(whole) {
        if raw.event == UFFD_EVENT_PAGEFAULT {
            each(Message {
                addr: raw.address as usize,
                write: raw.flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP) != 0,
                thread: raw.thread,
                from,
            });
        }
    }
}

/// The longest sleep for messages, in milliseconds, by numbers that were looked at: one may become another file's, which has
/// nothing to say, between the look and the sleep.
const LONGEST_SLEEP: c_int = 1000;
/// The same by numbers that were not looked at just now.
const SLEEP_UNSEEN: c_int = 20;
/// Numbers are looked at again after this time.
pub const SEEN_FOR: Duration = Duration::from_millis(SLEEP_UNSEEN as u64);
/// The shortest and the longest sleep where no number is to be had, in microseconds.
const WITHOUT_NUMBER: [u32; 2] = [50, 1000];

/// Userfaultfds that messages come by, at most.
pub const MESSAGE_DESCRIPTORS: usize = 8;

/// A thread that waits for messages looks for so long before it sleeps, if one may come soon. A wake-up takes some microseconds, and in a
/// virtual machine some ten.
pub const LOOKS: Duration = Duration::from_micros(50);

/// Sleeps until there may be a message, for the `again`th time since the last. Of which there may be one: a bit each. Where one may come
/// `soon`, looks for a moment first.
///
/// Numbers that were `seen` to mean the descriptors a moment ago are not looked at, which would take longer than all else: another
/// file is polled at worst, and [`read`] looks at the number.
pub fn wait<'a>(fds: impl Iterator<Item = &'a Working>, again: u32, seen: bool, soon: bool) -> u8 {
    let mut polled = [libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    }; MESSAGE_DESCRIPTORS];
    let mut count = 0;
    for fd in fds.take(MESSAGE_DESCRIPTORS) {
        let last = seen.then(|| fd.last_number()).flatten();
        let Some(number) = last.or_else(|| fd.here()) else {
            return sleep_without_number(again);
        };
        polled[count].fd = number;
        count += 1;
    }
    let polled = &mut polled[..count];
    let mut poll = |timeout| {
        // SAFETY: so many structures.
        unsafe { libc::poll(polled.as_mut_ptr(), count as libc::nfds_t, timeout) }
    };
    let begin = soon.then(Instant::now);
    let mut ready = 0;
    while ready == 0 && begin.is_some_and(|begin| begin.elapsed() < LOOKS) {
        ready = poll(0);
    }
    if ready == 0 {
        ready = poll(if seen { SLEEP_UNSEEN } else { LONGEST_SLEEP });
    }
    if ready < 0 {
        // The process may have fewer descriptors by now than are polled here.
        return sleep_without_number(again);
    }
    let polled = polled.iter().enumerate();
    polled.fold(0, |bits, (at, polled)| {
        bits | u8::from(polled.revents != 0) << at
    })
}

/// Sleeps where messages cannot be waited for, each time for longer: all descriptors are to be read.
fn sleep_without_number(again: u32) -> u8 {
    let [shortest, longest] = WITHOUT_NUMBER;
    // SAFETY: sleeps.
    unsafe { libc::usleep((shortest << (again / 8).min(16)).min(longest)) };
    u8::MAX
}

/// What UFFDIO_POISON has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poisoned {
    /// A touch of the page is a SIGBUS from now on, and a system call's EFAULT, until it is zapped.
    Yes,
    /// Nothing: the page is not missing, or is poisoned already.
    NotMissing,
    /// Nothing: the kernel does not have it.
    No,
}

/// UFFDIO_POISON, of a missing page.
pub fn poison(fd: &Working, page: usize, bytes: usize) -> Poisoned {
    let mut poison = Poison {
        start: page as u64,
        len: bytes as u64,
        mode: 0,
        updated: 0,
    };
    loop {
        // SAFETY: the structure is the one that this ioctl takes; no bytes change.
        return match unsafe { ioctl(fd, UFFDIO_POISON, &mut poison) } {
            Err(libc::EAGAIN) => continue,
            Err(libc::EEXIST) => Poisoned::NotMissing,
            Err(_) => Poisoned::No,
            Ok(_) => Poisoned::Yes,
        };
    }
}

/// UFFDIO_WAKE: lets threads that sleep in a fault of the range touch again. By this userfaultfd
/// and no other.
pub fn wake(fd: &Working, range: &Range<usize>) {
    let mut wake = Wake {
        start: range.start as u64,
        len: range.len() as u64,
    };
    let args = [UFFDIO_WAKE as usize, (&raw mut wake) as usize, 0, 0, 0];
    loop {
        // SAFETY: the structure is the one that this ioctl takes; no bytes change.
        match unsafe { fd.call_checked(libc::SYS_ioctl, args) } {
            Err(libc::EAGAIN) => {}
            Ok(_) => return,
            // The number has become another file's in that moment.
            Err(_) => break,
        }
    }
    // SAFETY: as above.
    let _ = unsafe { fd.call_guarded(libc::SYS_ioctl, args) };
}
