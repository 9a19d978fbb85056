//! A SIGBUS in a thread whose touch has failed, as the kernel would have it.

use crate::signal::kernel;
use libc::{c_int, c_long};
use std::io::Write;

/// The structure that the kernel takes and hands on; `libc::siginfo_t` hides its fields.
#[repr(C)]
struct Info {
    signal: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    addr: usize,
    rest: [u8; 104],
}

const _: () = assert!(size_of::<Info>() == size_of::<libc::siginfo_t>());

/// The same memory, of `kcmp(2)`.
const KCMP_VM: c_int = 1;

/// The kernel's number of the calling thread.
pub(super) fn this_thread() -> u32 {
    // SAFETY: only asks.
    unsafe { sync::system_call!(libc::SYS_gettid) as u32 }
}

/// Raises SIGBUS in a thread that sleeps in its touch of `addr`, or did so a moment ago. It ends the process
/// where the thread blocks the signal or the process ignores it, as a fault's does.
pub(super) fn raise(thread: u32, addr: usize) {
    let process = std::process::id();
    if queue(process, thread, addr) {
        return;
    }
    // A child that shares our memory (vfork), or a thread that has ended.
    // SAFETY: only asks.
    let shares = unsafe { sync::system_call!(libc::SYS_kcmp, process, thread, KCMP_VM, 0, 0) == 0 };
    if shares {
        let sent = send(thread, thread, addr);
        if sent != 0 || blocks(thread) {
            // SAFETY: a child of ours, which can neither go on nor be told.
            unsafe { libc::kill(thread as libc::pid_t, libc::SIGKILL) };
        }
    }
}

/// Raises it in a thread of this process; `false` if there is no such thread.
fn queue(process: u32, thread: u32, addr: usize) -> bool {
    // SAFETY: sends nothing.
    let there = unsafe { sync::system_call!(libc::SYS_tgkill, process, thread, 0) == 0 };
    if !there {
        return false;
    }
    if is_ignored() || blocks(thread) {
        end_process();
    }
    send(process, thread, addr) == 0
}

fn send(process: u32, thread: u32, addr: usize) -> c_long {
    let mut info = Info {
        signal: libc::SIGBUS,
        errno: 0,
        code: libc::SI_QUEUE,
        padding: 0,
        addr,
        rest: [0; 104],
    };
    let (call, info) = (libc::SYS_rt_tgsigqueueinfo, &raw mut info);
    // SAFETY: the structure has the layout that the call takes.
    unsafe { sync::system_call!(call, process, thread, libc::SIGBUS, info) }
}

fn is_ignored() -> bool {
    kernel::ask(libc::SIGBUS).handler == libc::SIG_IGN
}

/// How often a thread is looked at that has sent a message and does not sleep yet.
const LOOKS: u32 = 100;

/// True unless the thread sleeps in a touch of its own: in a system call, where a signal does not end it, or nobody knows, since `/proc`
/// does not say. A thread that runs has a signal pending, and its call repeats the touch.
pub(super) fn may_be_in_call(thread: u32) -> bool {
    for _ in 0..LOOKS {
        let mut text = [0_u8; 256];
        match of_thread(thread, "syscall", &mut text) {
            Some(text) if text.starts_with("running") => std::thread::yield_now(),
            // The number of a call that is none is -1.
            text => return !text.is_some_and(|text| text.starts_with('-')),
        }
    }
    true
}

/// True if the thread blocks SIGBUS; false where `/proc` does not say.
fn blocks(thread: u32) -> bool {
    let mut text = [0_u8; 4096];
    let text = of_thread(thread, "status", &mut text);
    let blocked = text.and_then(|text| text.lines().find_map(|line| line.strip_prefix("SigBlk:")));
    let mask = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (libc::SIGBUS - 1) & 1 == 1)
}

/// The contents of a file of a thread in `/proc`, as much as there is room for.
fn of_thread<'a>(thread: u32, file: &str, text: &'a mut [u8]) -> Option<&'a str> {
    let mut path = [0_u8; 48];
    // No heap: that may be in a map of ours.
    write!(&mut path[..47], "/proc/{thread}/{file}").ok()?;
    // Bare calls: the program may close a number that it does not know, and whose owner relies on it.
    // SAFETY: a path that ends in zero, and room for the read bytes.
    let bytes = unsafe {
        let fd = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return None;
        }
        let bytes = libc::read(fd, text.as_mut_ptr().cast(), text.len());
        libc::close(fd);
        bytes
    };
    let text = text.get(..usize::try_from(bytes).unwrap_or(0));
    text.and_then(|text| core::str::from_utf8(text).ok())
}

/// Ends the process by SIGBUS, without the program's handler.
pub(super) fn end_process() -> ! {
    loop {
        kernel::set_default(libc::SIGBUS);
        kernel::unblock(libc::SIGBUS);
        // SAFETY: no memory involved.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}
