//! A machine that refuses system calls: a seccomp filter under which a command is started.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// SECCOMP_RET_ERRNO and SECCOMP_RET_KILL_PROCESS of linux/seccomp.h.
pub const REFUSE: u32 = 0x0005_0000 | libc::EPERM as u32;
pub const KILL: u32 = 0x8000_0000;

/// `command` under a filter that answers `calls` with `action`.
pub fn closed<'a>(
    command: &'a mut Command,
    calls: &[libc::c_long],
    action: u32,
) -> &'a mut Command {
    // From linux/bpf_common.h: load the number of the call, compare, answer.
    let statement = |code: u16, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = vec![statement(0x20, 0, 0, 0)];
    for &call in calls {
        filter.push(statement(0x15, 0, 1, call as u32));
        filter.push(statement(0x06, 0, 0, action));
    }
    filter.push(statement(0x06, 0, 0, 0x7fff_0000));
    let close = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_ptr().cast_mut(),
        };
        // SAFETY: the program is valid for the calls, which copy it.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::syscall(libc::SYS_seccomp, 1, 0, &program) == 0
        };
        match done {
            true => Ok(()),
            false => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: only system calls; nothing is allocated.
    unsafe { command.pre_exec(close) }
}
