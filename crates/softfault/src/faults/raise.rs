//! A SIGBUS in a thread whose touch has failed, as the kernel would have it.

use crate::signal::kernel;
use crate::table;
use core::ffi::CStr;
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

/// How often it is raised in a thread for one page where nobody tells which signals the thread blocks. One that has touched the page again
/// each time has a handler that means it, or blocks the signal.
const MOST_UNKNOWN: u32 = 10_000;

/// Raises SIGBUS in a thread that sleeps in its touch of `addr`, or did so a moment ago. It ends the process
/// where the thread blocks the signal or the process ignores it, as a fault's does. `before`: how often it was raised there for the same
/// page, and that page was all that it touched since.
pub(super) fn raise(thread: u32, addr: usize, before: u32) {
    let process = std::process::id();
    let blocks = |thread| blocks(thread).unwrap_or(before >= MOST_UNKNOWN);
    if queue(process, thread, addr, blocks) {
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
fn queue(process: u32, thread: u32, addr: usize, blocks: impl Fn(u32) -> bool) -> bool {
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
            Some(text) if text.starts_with(b"running") => std::thread::yield_now(),
            // The number of a call that is none is -1.
            text => return !text.is_some_and(|text| text.starts_with(b"-")),
        }
    }
    true
}

/// True if the thread blocks SIGBUS; `None` where `/proc` does not say.
fn blocks(thread: u32) -> Option<bool> {
    // Not `status`, which says it after the groups, as many as there are.
    let mut text = [0_u8; 1024];
    let mask = of_thread(thread, "stat", &mut text).and_then(blocked_signals)?;
    Some(mask >> (libc::SIGBUS - 1) & 1 == 1)
}

/// The field `blocked` of a thread's `stat`, see proc_pid_stat(5): the first 31 signals, a bit each.
fn blocked_signals(stat: &[u8]) -> Option<u64> {
    // The second field is a name in parentheses, with any bytes: further parentheses, too.
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let others = core::str::from_utf8(&stat[name_end + 1..]).ok()?;
    // The third is the first behind it; this is the 32nd.
    others.split_ascii_whitespace().nth(32 - 3)?.parse().ok()
}

/// The contents of a file of a thread in `/proc`, as much as there is room for.
fn of_thread<'a>(thread: u32, file: &str, text: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0_u8; 48];
    // No heap: that may be in a map of ours.
    write!(&mut path[..47], "/proc/{thread}/{file}").ok()?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    // By the table: the program may have used up its numbers.
    if let Ok(bytes) = table::read_file(path, text) {
        return text.get(..bytes);
    }
    // There is none, or it has other rights.
    // Bare calls: the program may close a number that it does not know, and whose owner relies on it.
    // SAFETY: a path that ends in zero, and room for the read bytes.
    let bytes = unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return None;
        }
        let bytes = libc::read(fd, text.as_mut_ptr().cast(), text.len());
        libc::close(fd);
        bytes
    };
    text.get(..usize::try_from(bytes).ok()?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_signals_are_found_behind_any_name() {
        let behind = b" S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 64 4096";
        for name in ["softfault", "a) R 64 (b", "((", "))", " "] {
            let stat = [b"12 (", name.as_bytes(), b")", behind].concat();
            assert_eq!(blocked_signals(&stat), Some(64), "{name}");
        }
        let odd_name = [b"12 (\xff)", &behind[..]].concat();
        assert_eq!(blocked_signals(&odd_name), Some(64));
        assert_eq!(blocked_signals(b"12 (cut) S 1 2"), None);
        assert_eq!(blocked_signals(b""), None);
    }

    /// Failed before: `status` was read in part, and the mask was behind it.
    #[test]
    fn a_thread_of_many_groups_blocks_the_signal_all_the_same() {
        let groups: Vec<libc::gid_t> = (1_000_000..1_001_000).collect();
        let thread = std::thread::spawn(move || {
            // SAFETY: the call itself, unlike the library's, is of this thread only.
            let set =
                unsafe { sync::system_call!(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
            if set != 0 {
                softfault_skip::skipped("root", "only root can have a thread join groups");
            }
            // SAFETY: of this thread, which has its end next.
            unsafe { libc::prctl(libc::PR_SET_NAME, c"a) R 1 (\xff".as_ptr()) };
            let before = blocks(this_thread());
            // SAFETY: fills the set, and changes the mask of this thread.
            unsafe {
                let mut bus = core::mem::zeroed();
                libc::sigemptyset(&mut bus);
                libc::sigaddset(&mut bus, libc::SIGBUS);
                libc::pthread_sigmask(libc::SIG_BLOCK, &bus, core::ptr::null_mut());
            }
            (before, blocks(this_thread()))
        });
        assert_eq!(thread.join().unwrap(), (Some(false), Some(true)));
    }
}
